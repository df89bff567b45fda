//! The language-model port: one prompt in, text out, whole or streamed.
//!
//! An adapter makes exactly one attempt per call. `dialogue::models` does retries, fall-back chains, circuit breaking
//! and usage accounting, in the same way for every adapter.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};

use super::ledger::usage::OverBudget;
use colloquy_memory::turn::Usage;

/// The purpose of a call. Each task has its own model, timeout and output cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    Reply,
    Intent,
    Extraction,
    Judge,
    Summary,
    Curation,
}

impl Task {
    pub const ALL: [Self; 6] = [
        Self::Reply,
        Self::Intent,
        Self::Extraction,
        Self::Judge,
        Self::Summary,
        Self::Curation,
    ];

    /// The name in configuration, traces and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Intent => "intent",
            Self::Extraction => "extraction",
            Self::Judge => "judge",
            Self::Summary => "summary",
            Self::Curation => "curation",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatRole {
    System,
    User,
    Assistant,
}

/// One message of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    pub role: ChatRole,
    pub content: String,
    /// Asks for an explicit cache mark after this message, from a provider with explicit marks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cache_breakpoint: bool,
    /// The message as a client sent it, in the form of the OpenAI API: sent in place of `content`, which has its text.
    /// For messages with pictures, tools or a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_sent: Option<std::sync::Arc<serde_json::Map<String, serde_json::Value>>>,
}

impl ChatMessage {
    #[must_use]
    pub fn new(role: ChatRole, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            cache_breakpoint: false,
            as_sent: None,
        }
    }
}

/// A JSON schema for the answer, where the endpoint can enforce a schema.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonSchema {
    /// Matches `^[a-z_]{1,64}$`.
    pub name: &'static str,
    /// Shared by the requests of a task: most schemas never change.
    pub schema: Arc<serde_json::Value>,
}

impl JsonSchema {
    /// An answer that is an object of exactly these properties.
    #[must_use]
    pub fn for_object(name: &'static str, properties: serde_json::Value) -> Self {
        let schema = Arc::new(Self::object(properties));
        Self { name, schema }
    }
    /// The schema of an object of exactly these properties. All are required, as strict endpoints demand.
    #[must_use]
    pub fn object(properties: serde_json::Value) -> serde_json::Value {
        let required: Vec<_> = properties
            .as_object()
            .into_iter()
            .flat_map(serde_json::Map::keys)
            .collect();
        let mut schema = serde_json::json!({ "type": "object", "required": required, "additionalProperties": false });
        schema["properties"] = properties;
        schema
    }
}

/// Fields of a client's request to this server that go to the endpoint as they came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientFields {
    /// Fields of the OpenAI API by their names, without those that the server sets: `model`, `messages`, `stream`,
    /// `stream_options`, `n` and the output cap.
    pub fields: serde_json::Map<String, serde_json::Value>,
    /// The output cap that the client wants, in tokens.
    pub max_output_tokens: Option<u32>,
    /// True if that cap may be larger than the cap of the route.
    pub may_exceed_cap: bool,
}

impl ClientFields {
    /// True if the model may call tools of the client.
    #[must_use]
    pub fn asks_for_tools(&self) -> bool {
        let tools = self.fields.get(TOOLS).and_then(serde_json::Value::as_array);
        let is_off = self.fields.get(TOOL_CHOICE).is_some_and(|choice| choice == "none");
        tools.is_some_and(|tools| !tools.is_empty()) && !is_off
    }

    /// Asks for a reply without calls of tools. The tools stay, because some endpoints want the tools of earlier calls.
    pub fn forbid_tool_calls(&mut self) {
        if self.asks_for_tools() {
            self.fields.insert(TOOL_CHOICE.to_owned(), "none".into());
        }
    }
}

const TOOLS: &str = "tools";
const TOOL_CHOICE: &str = "tool_choice";

/// One call.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmRequest {
    pub task: Task,
    /// Replaces the adapter's own model, for an NPC with a model of its own.
    pub model: Option<String>,
    pub messages: Vec<ChatMessage>,
    pub max_output_tokens: u32,
    /// From 0 to 2.
    pub temperature: f32,
    pub json_schema: Option<JsonSchema>,
    /// What the client of a chat program's request asked of the model.
    pub client: Option<std::sync::Arc<ClientFields>>,
    /// The limit of the whole call; for a stream, of the wait for each chunk.
    pub timeout: Duration,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    pub text: String,
    pub usage: Usage,
    /// The model's name in the endpoint's answer.
    pub model: String,
    /// True if the text ended at the output cap (`finish_reason: length`) and not where the model meant to stop.
    pub at_cap: bool,
    /// Calls of the client's tools (`message.tool_calls`), as they came. Empty unless [`ClientFields::asks_for_tools`].
    pub tool_calls: Vec<serde_json::Value>,
}

/// A piece of a streamed answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Chunk {
    Text(String),
    /// Pieces of calls of the client's tools (`delta.tool_calls`), as they came. Only after
    /// [`ClientFields::asks_for_tools`].
    ToolCalls(Vec<serde_json::Value>),
    /// The text ended at the output cap (`finish_reason: length`) and not where the model meant to stop.
    AtCap,
    /// The endpoint's own token counts, if the endpoint gives counts. Comes last.
    Usage(Usage),
}

/// The reason of a failed call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LlmError {
    #[error("the model did not answer in time")]
    Timeout,
    /// 5xx, or a connection refused or broken. A retry may succeed.
    #[error("the model endpoint is unavailable: {0}")]
    Unavailable(String),
    /// 429.
    #[error("the model endpoint limits requests")]
    RateLimited { retry_after: Option<Duration> },
    /// Another 4xx. A retry will not help.
    #[error("the model endpoint refused the request: {0}")]
    Refused(String),
    /// The stream ended without its end mark, or the body broke the API's promise.
    #[error("the model's answer broke off: {0}")]
    Broken(String),
    /// The tenant's budget for today is used up. No model was asked.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

impl LlmError {
    /// True if the same call may succeed later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        !matches!(self, Self::Refused(_) | Self::OverBudget(_))
    }
}

/// A chat model.
#[async_trait]
pub trait Llm: Send + Sync {
    /// Asks for a whole answer. The caller cancels the call by dropping the future.
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError>;
    /// Asks for a streamed answer. The caller cancels the call by dropping the stream; the endpoint sees the connection
    /// close.
    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError>;
    /// The model's name as configured.
    fn model(&self) -> &str;
    /// True for the scripted, offline model. Traces show the difference.
    fn is_offline(&self) -> bool {
        false
    }
}
