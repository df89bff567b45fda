//! Errors in the form of the OpenAI API: `{"error":{"message","type","param","code"}}`.

use actix_web::{
    HttpResponse,
    body::{BoxBody, to_bytes},
    http::{StatusCode, header::CONTENT_TYPE},
};
use serde::Serialize;

use crate::errors::{Code, Problem, ProblemBody};

/// The body of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ErrorDetail {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
}

impl From<&Problem> for ErrorBody {
    fn from(problem: &Problem) -> Self {
        Self {
            error: ErrorDetail {
                message: message_of(problem),
                kind: kind_of(problem.code),
                param: problem.param.clone(),
                code: Some(problem.code.as_str()),
            },
        }
    }
}

/// The message of a problem, in one sentence or more.
pub fn message_of(problem: &Problem) -> String {
    format!("{}: {}", problem.code.title(), problem.detail)
}

/// OpenAI's kind of an error.
pub fn kind_of(code: Code) -> &'static str {
    let status = code.status();
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        // What this server does not offer is a fault of the request.
        StatusCode::NOT_IMPLEMENTED => "invalid_request_error",
        _ if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

/// The status of a problem on these paths. Clients of the OpenAI API send a 409 again and again, so a conflict that a
/// repeat does not end is a 400.
fn status_of(problem: &Problem) -> StatusCode {
    match problem.code {
        Code::ValidationFailed
        | Code::LineEmpty
        | Code::LineTooLong
        | Code::PromptTooLarge
        | Code::NpcDead
        | Code::SessionClosed => StatusCode::BAD_REQUEST,
        code => code.status(),
    }
}

/// Puts a problem document of another node into OpenAI's form. Other answers stay as they are.
pub async fn translate_forwarded(answer: HttpResponse) -> HttpResponse {
    let kind = answer.headers().get(CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != "application/problem+json") {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let Ok(document) = to_bytes(body).await else {
        // The node died while it answered.
        return to_openai_response(&Problem::wrong_node(), &head);
    };
    let problem = serde_json::from_slice::<ProblemBody>(&document).ok();
    match problem.and_then(ProblemBody::into_problem) {
        Some(problem) => to_openai_response(&problem, &head),
        None => head.set_body(BoxBody::new(document)),
    }
}

/// The response for a problem. `response` is the problem document, whose headers are kept.
pub fn to_openai_response<B>(problem: &Problem, response: &HttpResponse<B>) -> HttpResponse {
    let mut builder = HttpResponse::build(status_of(problem));
    for (name, value) in response.headers() {
        if name != CONTENT_TYPE {
            builder.append_header((name.clone(), value.clone()));
        }
    }
    builder.json(ErrorBody::from(problem))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn problems_have_the_form_of_the_openai_api() {
        let problem = Problem::invalid_field("messages[2].role", "is `narrator`");
        let response = to_openai_response(&problem, &problem.to_response(None));
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert_eq!(
            serde_json::to_value(ErrorBody::from(&problem)).unwrap(),
            serde_json::json!({"error": {
                "message": "Some fields are not valid: messages[2].role: is `narrator`",
                "type": "invalid_request_error", "param": "messages[2].role", "code": "validation_failed",
            }})
        );
    }

    #[test]
    fn waits_stay_in_the_headers() {
        let problem = Problem::new(Code::RateLimited, "slow down");
        let response = to_openai_response(&problem, &problem.to_response(None));
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers().get("retry-after").unwrap(), "1");
    }

    #[actix_web::test]
    async fn problems_of_another_node_have_the_form_of_the_openai_api() {
        let problem = Problem::new(Code::RateLimited, "slow down").with_param("messages");
        let answer = translate_forwarded(problem.to_response(Some("req_1"))).await;
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers().get("retry-after").unwrap(), "1");
        assert_eq!(answer.headers().get(CONTENT_TYPE).unwrap(), "application/json");
        let body: serde_json::Value = serde_json::from_slice(&to_bytes(answer.into_body()).await.unwrap()).unwrap();
        assert_eq!(
            body["error"],
            serde_json::json!({
                "message": "Too many requests: slow down", "type": "rate_limit_error", "param": "messages",
                "code": "rate_limited",
            })
        );
        let reply =
            translate_forwarded(HttpResponse::Ok().json(serde_json::json!({"object": "chat.completion"}))).await;
        let body: serde_json::Value = serde_json::from_slice(&to_bytes(reply.into_body()).await.unwrap()).unwrap();
        assert_eq!(body["object"], "chat.completion");
    }
}
