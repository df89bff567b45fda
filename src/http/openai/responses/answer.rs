//! Responses in the form of the OpenAI API.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::answer::FinishReason;
use crate::errors::{Code, Problem};
use colloquy_core::ids::TurnId;
use colloquy_memory::turn::{TurnStatus, Usage};

/// Fields of a request that its response repeats.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EchoedFields {
    pub instructions: Option<String>,
    /// In tokens.
    pub max_output_tokens: Option<u32>,
    pub metadata: Map<String, Value>,
    pub parallel_tool_calls: bool,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub tool_choice: Value,
    pub tools: Vec<Value>,
    /// Left out if unset: the published schema has no `null` here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl Default for EchoedFields {
    fn default() -> Self {
        Self {
            instructions: None,
            max_output_tokens: None,
            metadata: Map::new(),
            parallel_tool_calls: true,
            temperature: None,
            top_p: None,
            tool_choice: json!("auto"),
            tools: Vec::new(),
            user: None,
        }
    }
}

/// How far a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEnding {
    Whole,
    /// The reply reached the output cap.
    AtLimit,
    /// Somebody cut the reply.
    Cut,
}

impl ReplyEnding {
    /// The ending of the reply of a turn. `reason` is that of the chat form, which does not tell a cut from a limit.
    pub const fn new(reason: FinishReason, turn: TurnStatus) -> Self {
        match (reason, turn) {
            (_, TurnStatus::Interrupted | TurnStatus::Failed) => Self::Cut,
            (FinishReason::Length, TurnStatus::Completed) => Self::AtLimit,
            (FinishReason::Stop | FinishReason::ToolCalls, TurnStatus::Completed) => Self::Whole,
        }
    }

    /// The status of a response with this ending.
    pub const fn status(self) -> ResponseStatus {
        match self {
            Self::Whole => ResponseStatus::Completed,
            Self::AtLimit | Self::Cut => ResponseStatus::Incomplete,
        }
    }
}

/// A response.
#[derive(Debug, Serialize)]
pub struct ResponseView<'a> {
    id: &'a str,
    object: &'static str,
    /// Seconds since 1970.
    created_at: i64,
    status: ResponseStatus,
    background: bool,
    error: Option<ResponseError<'a>>,
    incomplete_details: Option<IncompleteDetails>,
    model: &'a str,
    output: Vec<OutputMessage<'a>>,
    previous_response_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<ConversationView<'a>>,
    /// Left out until the reply has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ResponseUsage>,
    #[serde(flatten)]
    echoed: &'a EchoedFields,
    text: TextOptions,
    truncation: &'static str,
    reasoning: ReasoningOptions,
    store: bool,
}

#[derive(Debug, Serialize)]
struct ResponseError<'a> {
    code: &'static str,
    message: &'a str,
}

#[derive(Debug, Serialize)]
struct IncompleteDetails {
    reason: &'static str,
}

#[derive(Debug, Serialize)]
struct ConversationView<'a> {
    id: &'a str,
}

#[derive(Debug, Default, Serialize)]
struct TextOptions {
    format: TextFormat,
}

#[derive(Debug, Serialize)]
struct TextFormat {
    #[serde(rename = "type")]
    kind: &'static str,
}

impl Default for TextFormat {
    fn default() -> Self {
        Self { kind: "text" }
    }
}

#[derive(Debug, Default, Serialize)]
struct ReasoningOptions {
    effort: Option<&'static str>,
    summary: Option<&'static str>,
}

/// The reply of an NPC as an item of the output.
#[derive(Debug, Serialize)]
pub struct OutputMessage<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    status: ResponseStatus,
    content: Vec<OutputText<'a>>,
}

impl<'a> OutputMessage<'a> {
    pub const fn new(id: &'a str, status: ResponseStatus, content: Vec<OutputText<'a>>) -> Self {
        Self {
            id,
            kind: "message",
            role: "assistant",
            status,
            content,
        }
    }
}

/// The words of a reply.
#[derive(Debug, Serialize)]
pub struct OutputText<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
    annotations: [(); 0],
    logprobs: [(); 0],
}

impl<'a> OutputText<'a> {
    pub const fn new(text: &'a str) -> Self {
        Self {
            kind: "output_text",
            text,
            annotations: [],
            logprobs: [],
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
struct ResponseUsage {
    input_tokens: u32,
    input_tokens_details: InputTokensDetails,
    output_tokens: u32,
    output_tokens_details: OutputTokensDetails,
    total_tokens: u32,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct InputTokensDetails {
    cached_tokens: u32,
    cache_write_tokens: u32,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct OutputTokensDetails {
    reasoning_tokens: u32,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputTokensDetails {
                cached_tokens: usage.cached_tokens,
                cache_write_tokens: 0,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputTokensDetails { reasoning_tokens: 0 },
            total_tokens: usage.prompt_tokens.saturating_add(usage.completion_tokens),
        }
    }
}

/// What stays the same while a response is made.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    pub id: String,
    pub message_id: String,
    /// Seconds since 1970.
    pub created_at: i64,
    pub model: String,
    pub previous: Option<String>,
    /// The name that the request gives the talk.
    pub conversation: Option<String>,
    pub echoed: EchoedFields,
}

impl ResponseHead {
    /// The head of the response of a turn.
    pub fn new(turn: TurnId, created_at: i64, model: String) -> Self {
        Self {
            id: response_id(turn),
            message_id: id_with_prefix("msg", turn),
            created_at,
            model,
            previous: None,
            conversation: None,
            echoed: EchoedFields::default(),
        }
    }

    /// Returns the response before the reply.
    pub fn begun(&self) -> ResponseView<'_> {
        self.view(ResponseStatus::InProgress)
    }

    /// Returns the response with the reply.
    pub fn finished<'a>(&'a self, ending: ReplyEnding, text: &'a str, usage: Usage) -> ResponseView<'a> {
        let status = ending.status();
        let at_limit = ending == ReplyEnding::AtLimit;
        ResponseView {
            incomplete_details: at_limit.then_some(IncompleteDetails {
                reason: "max_output_tokens",
            }),
            output: vec![OutputMessage::new(
                &self.message_id,
                status,
                vec![OutputText::new(text)],
            )],
            usage: Some(ResponseUsage::from(usage)),
            ..self.view(status)
        }
    }

    fn view(&self, status: ResponseStatus) -> ResponseView<'_> {
        ResponseView {
            id: &self.id,
            object: "response",
            created_at: self.created_at,
            status,
            background: false,
            error: None,
            incomplete_details: None,
            model: &self.model,
            output: Vec::new(),
            previous_response_id: self.previous.as_deref(),
            conversation: self.conversation.as_deref().map(|id| ConversationView { id }),
            usage: None,
            echoed: &self.echoed,
            text: TextOptions::default(),
            truncation: "disabled",
            reasoning: ReasoningOptions::default(),
            store: true,
        }
    }

    /// Returns the response of a turn that failed.
    pub fn failed<'a>(&'a self, problem: &'a Problem) -> ResponseView<'a> {
        let code = match problem.code {
            Code::RateLimited | Code::BudgetSpent => "rate_limit_exceeded",
            _ => "server_error",
        };
        ResponseView {
            error: Some(ResponseError {
                code,
                message: &problem.detail,
            }),
            ..self.view(ResponseStatus::Failed)
        }
    }
}

/// The id of the response of a turn.
pub fn response_id(turn: TurnId) -> String {
    id_with_prefix("resp", turn)
}

/// The turn of a response. `None`: the text is no id of a response.
pub fn turn_of_response(id: &str) -> Option<TurnId> {
    let ulid = id.strip_prefix("resp_")?;
    format!("{}_{ulid}", TurnId::PREFIX).parse().ok()
}

/// An id with the same random part as the id of a turn.
pub fn id_with_prefix(prefix: &str, turn: TurnId) -> String {
    let turn = turn.to_string();
    format!("{prefix}_{}", turn.rsplit('_').next().unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ids_lead_back_to_their_turns() {
        let turn = TurnId::from_u128(77);
        let id = response_id(turn);
        assert_eq!(id.len(), "resp_".len() + 26);
        assert_eq!(turn_of_response(&id), Some(turn));
        for other in ["previous_response_id", "resp_", "resp_1", &turn.to_string()] {
            assert_eq!(turn_of_response(other), None, "{other}");
        }
    }

    #[test]
    fn responses_have_every_field_of_the_published_schema() {
        let head = ResponseHead::new(TurnId::from_u128(1), 7, "vale/mira".to_owned());
        let whole = serde_json::to_value(head.finished(ReplyEnding::Whole, "Hi.", Usage::default())).unwrap();
        for field in ["error", "incomplete_details", "instructions", "previous_response_id"] {
            assert_eq!(whole.get(field), Some(&Value::Null), "{field}");
        }
        assert_eq!(
            whole["output"],
            json!([{"id": head.message_id, "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}]}])
        );
        let initial = serde_json::to_value(head.begun()).unwrap();
        assert!(initial.get("usage").is_none() && initial.get("user").is_none());
        assert_eq!(
            (&whole["tool_choice"], &whole["tools"], &whole["parallel_tool_calls"]),
            (&json!("auto"), &json!([]), &json!(true))
        );
    }
}
