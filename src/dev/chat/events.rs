//! Fields of the server's events.

use serde_json::Value;

pub(super) fn event_type(event: &Value) -> &str {
    event["type"].as_str().unwrap_or_default()
}

pub(super) fn error_text(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("unknown error");
    match error["code"].as_str() {
        Some(code) => format!("{message} [{code}]"),
        None => message.to_owned(),
    }
}
