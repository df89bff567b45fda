//! The arguments of a tool as a request to its operation, and the answer of the operation as the result of the tool.

use std::fmt::Write as _;

use actix_web::http::header::{HeaderName, HeaderValue};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::model::{CallToolResult, JsonObject, MetaObject};
use serde_json::{Value, json};

use super::{
    operations::{OperationAnswer, OperationRequest},
    schemas::{Parameter, Place},
    tools::OperationTool,
};
use crate::errors::{FieldError, Problem, ProblemBody};

/// Everything but the characters that no URI escapes (RFC 3986, 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes a segment of a path, or a part of a query.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Builds the request of a call.
///
/// # Errors
/// Every argument that is unknown, missing, or of the wrong type.
pub fn build_request(tool: &OperationTool, arguments: JsonObject) -> Result<OperationRequest, Problem> {
    let mut arguments = arguments;
    let mut faults = Vec::new();
    let mut uri = tool.path.to_owned();
    let mut query = String::new();
    let mut headers = Vec::new();
    for parameter in &tool.parameters {
        let name = &parameter.argument;
        let text = match arguments.remove(name).map(|value| scalar_text(parameter, &value)) {
            Some(Ok(Some(text))) => text,
            Some(Err(detail)) => {
                faults.push(fault(name, detail));
                continue;
            }
            None | Some(Ok(None)) => {
                if parameter.required {
                    faults.push(fault(name, "is missing"));
                }
                continue;
            }
        };
        match parameter.place {
            Place::Path if text.is_empty() => faults.push(fault(name, "is empty")),
            Place::Path => uri = uri.replace(&format!("{{{}}}", parameter.name), &encoded(&text)),
            Place::Query => {
                let separator = if query.is_empty() { '?' } else { '&' };
                // Writing to a string cannot fail.
                let _ = write!(query, "{separator}{}={}", encoded(&parameter.name), encoded(&text));
            }
            Place::Header => match header_of(parameter, &text) {
                Some(header) => headers.push(header),
                None => faults.push(fault(name, "has characters that are not allowed")),
            },
        }
    }
    let body = match read_body(tool.body, arguments.remove("body")) {
        Ok(body) => body,
        Err(detail) => {
            faults.push(fault("body", detail));
            None
        }
    };
    faults.extend(arguments.keys().map(|name| fault(name, "unknown argument")));
    if !faults.is_empty() {
        return Err(Problem::invalid_fields(faults));
    }
    uri.push_str(&query);
    Ok(OperationRequest {
        method: tool.method.clone(),
        uri,
        headers,
        body,
    })
}

/// The body of a request. `is_required`: `None` if the operation takes no body.
fn read_body(is_required: Option<bool>, body: Option<Value>) -> Result<Option<Bytes>, &'static str> {
    match (is_required, body) {
        (Some(true), None | Some(Value::Null)) => Err("is missing"),
        (Some(_), Some(body)) if body.is_object() => Ok(Some(Bytes::from(body.to_string()))),
        (_, None | Some(Value::Null)) => Ok(None),
        (Some(_), Some(_)) => Err("must be object"),
        (None, Some(_)) => Err("unknown argument"),
    }
}

/// The longest name of an unknown argument in a message, in characters.
const MAX_NAME_CHARS: usize = 64;

fn fault(name: &str, detail: impl Into<String>) -> FieldError {
    FieldError {
        param: name.chars().take(MAX_NAME_CHARS).collect(),
        detail: detail.into(),
    }
}

/// The text of a value; `None` for null, which equals no argument.
fn scalar_text(parameter: &Parameter, value: &Value) -> Result<Option<String>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(flag) if parameter.place == Place::Query => Ok(Some(flag.to_string())),
        _ => Err("must be string or number".to_owned()),
    }
}

fn header_of(parameter: &Parameter, text: &str) -> Option<(HeaderName, HeaderValue)> {
    // A version becomes an entity tag.
    let is_version = parameter.argument == "if_match" && text.bytes().all(|byte| byte.is_ascii_digit());
    let header_text = if is_version && !text.is_empty() {
        format!("\"{text}\"")
    } else {
        text.to_owned()
    };
    Some((parameter.name.parse().ok()?, header_text.parse().ok()?))
}

/// The result of a call whose operation answered. A refusal is a result with an error: the agent reads why.
pub fn result_of(answer: OperationAnswer) -> CallToolResult {
    let OperationAnswer { status, etag, body } = answer;
    if !status.is_success() {
        return CallToolResult::structured_error(body);
    }
    let structured = match body {
        Value::Object(_) => body,
        Value::Null => json!({"status": status.as_u16()}),
        other => json!({ "result": other }),
    };
    let tag = etag.map(|etag| MetaObject(JsonObject::from_iter([("etag".to_owned(), json!(etag))])));
    CallToolResult::structured(structured).with_meta(tag)
}

/// The result of a call that reached no operation.
pub fn refusal(problem: &Problem) -> CallToolResult {
    CallToolResult::structured_error(problem_value(problem))
}

/// A problem document as JSON, as in answers of REST.
pub fn problem_value(problem: &Problem) -> Value {
    let body = ProblemBody::new(problem, None);
    serde_json::to_value(body).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::tools::find_tool, *};

    fn request(tool: &str, arguments: Value) -> Result<OperationRequest, Problem> {
        build_request(find_tool(tool).unwrap(), serde_json::from_value(arguments).unwrap())
    }

    #[test]
    fn arguments_go_to_their_places() {
        let arguments = json!({"world": "vale", "npc": "er/gen", "q": "the well & more", "limit": 5, "after": null});
        let search_request = request("search_facts", arguments).unwrap();
        assert_eq!(
            search_request.uri,
            "/v1/worlds/vale/npcs/er%2Fgen/facts?q=the%20well%20%26%20more&limit=5"
        );
        assert!(search_request.body.is_none() && search_request.headers.is_empty());

        let body = json!({"name": "Well", "content": "It is dry."});
        let put_request = request(
            "put_lore",
            json!({"world": "vale", "lore": "well", "if_match": 3, "body": body}),
        )
        .unwrap();
        assert_eq!(put_request.method, actix_http::Method::PUT);
        assert_eq!(put_request.headers[0].0, "if-match");
        assert_eq!(put_request.headers[0].1, "\"3\"");
        assert_eq!(
            serde_json::from_slice::<Value>(&put_request.body.unwrap()).unwrap(),
            body
        );
        let any = json!({"world": "vale", "lore": "well", "if_match": "*", "body": {}});
        assert_eq!(request("put_lore", any).unwrap().headers[0].1, "*");
    }

    #[test]
    fn faulty_arguments_are_all_named() {
        let arguments = json!({"world": ["vale"], "if_match": "a\nb", "body": 5, "colour": "red"});
        let problem = request("put_lore", arguments).unwrap_err();
        let params: Vec<_> = problem.errors.iter().map(|error| error.param.as_str()).collect();
        assert_eq!(params, ["world", "lore", "if_match", "body", "colour"]);
        let problem = request("get_world", json!({"world": ""})).unwrap_err();
        assert_eq!(problem.errors[0].detail, "is empty");
    }

    #[test]
    fn optional_bodies_may_be_omitted() {
        assert!(request("create_save", json!({"world": "vale"})).unwrap().body.is_none());
        let problem = request("record_world_events", json!({"world": "vale"})).unwrap_err();
        assert_eq!(problem.errors[0].param, "body");
    }

    #[test]
    fn refusals_are_results_with_the_code() {
        let result = refusal(&Problem::not_found("world"));
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.structured_content.unwrap()["code"], "not_found");
    }
}
