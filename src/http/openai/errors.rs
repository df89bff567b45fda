//! Errors in the form of the OpenAI API: `{"error":{"message","type","param","code"}}`.

use actix_web::{HttpResponse, http::StatusCode};
use serde::Serialize;

use crate::errors::{Code, Problem};

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
        let status = problem.code.status();
        Self {
            error: ErrorDetail {
                message: format!("{}: {}", problem.code.title(), problem.detail),
                kind: match status {
                    StatusCode::UNAUTHORIZED => "authentication_error",
                    StatusCode::FORBIDDEN => "permission_error",
                    StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
                    _ if status.is_server_error() => "server_error",
                    _ => "invalid_request_error",
                },
                param: problem.param.clone(),
                code: Some(problem.code.as_str()),
            },
        }
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

/// The response for a problem. `response` is the problem document, whose headers are kept.
pub fn to_openai_response(problem: &Problem, response: &HttpResponse) -> HttpResponse {
    let mut builder = HttpResponse::build(status_of(problem));
    for (name, value) in response.headers() {
        if name != actix_web::http::header::CONTENT_TYPE {
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
}
