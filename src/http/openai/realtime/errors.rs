//! Errors of the Realtime API: an `error` event, and the reason of a failed response.

use colloquy_actors::DialogueError;

use super::super::errors::{kind_of, message_of};
use crate::errors::{Code, Problem};

/// An error for a client of the Realtime API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealtimeError {
    pub kind: &'static str,
    /// One of OpenAI's codes, or of the codes of this server.
    pub code: &'static str,
    pub message: String,
    pub param: Option<String>,
    /// In ms, if waiting helps.
    pub retry_after_ms: Option<u64>,
}

impl RealtimeError {
    /// A fault of the client's event, with a code of the OpenAI API.
    pub fn invalid(code: &'static str, param: Option<&str>, message: impl Into<String>) -> Self {
        Self {
            kind: "invalid_request_error",
            code,
            message: message.into(),
            param: param.map(str::to_owned),
            retry_after_ms: None,
        }
    }

    /// A field that cannot be used.
    pub fn field(param: &str, detail: &str) -> Self {
        Problem::invalid_field(param, detail).into()
    }

    /// Something that the Realtime API has, and this server has not.
    pub fn not_supported(param: &str, detail: &str) -> Self {
        Problem::new(Code::NotSupported, format!("{param}: {detail}"))
            .with_param(param)
            .into()
    }

    /// An item that the conversation does not have.
    pub fn no_such_item(code: &'static str, id: &str) -> Self {
        let id: String = id.chars().take(200).collect();
        let message = format!("There is no item `{id}` in this conversation, or its turn was taken back.");
        Self::invalid(code, Some("item_id"), message)
    }
}

impl From<Problem> for RealtimeError {
    fn from(problem: Problem) -> Self {
        Self {
            kind: kind_of(problem.code),
            code: problem.code.as_str(),
            message: message_of(&problem),
            retry_after_ms: problem
                .retry_delay()
                .map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            param: problem.param,
        }
    }
}

impl From<DialogueError> for RealtimeError {
    fn from(error: DialogueError) -> Self {
        Problem::from(error).into()
    }
}
