//! Answers in the form of the OpenAI API.

use serde::{Serialize, Serializer};
use serde_json::Value;

use colloquy_memory::turn::Usage;

/// A finished answer (`chat.completion`).
#[derive(Debug, Serialize)]
pub struct ChatCompletion<'a> {
    pub id: &'a str,
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: i64,
    pub model: &'a str,
    pub choices: Vec<Choice>,
    pub usage: CompletionUsage,
}

/// One of the replies.
#[derive(Debug, Serialize)]
pub struct Choice {
    pub index: u32,
    pub message: AnswerMessage,
    pub logprobs: Option<()>,
    pub finish_reason: FinishReason,
}

#[derive(Debug, Serialize)]
pub struct AnswerMessage {
    pub role: &'static str,
    /// `None`: the reply only calls tools.
    pub content: Option<String>,
    pub refusal: Option<()>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
}

impl AnswerMessage {
    /// The reply of an NPC, with whole calls of the client's tools.
    pub fn new(text: String, tool_calls: Vec<Value>) -> Self {
        Self {
            role: "assistant",
            content: Some(text).filter(|text| !text.is_empty() || tool_calls.is_empty()),
            refusal: None,
            tool_calls,
        }
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    Stop,
    Length,
    ToolCalls,
}

/// The tokens of an answer.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CompletionUsage {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
    prompt_tokens_details: PromptTokensDetails,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct PromptTokensDetails {
    cached_tokens: u32,
}

impl From<Usage> for CompletionUsage {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            total_tokens: usage.prompt_tokens.saturating_add(usage.completion_tokens),
            prompt_tokens_details: PromptTokensDetails {
                cached_tokens: usage.cached_tokens,
            },
        }
    }
}

/// The usage in a piece of a streamed answer.
#[derive(Debug, Clone, Copy)]
pub enum ChunkUsage {
    /// The request asks for no usage.
    Absent,
    /// The usage comes with a later piece.
    Later,
    Total(CompletionUsage),
}

impl ChunkUsage {
    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The usage in all pieces but the last.
    pub fn before_end(is_asked_for: bool) -> Self {
        if is_asked_for { Self::Later } else { Self::Absent }
    }
}

impl Serialize for ChunkUsage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Later => serializer.serialize_none(),
            Self::Total(usage) => usage.serialize(serializer),
        }
    }
}

/// A piece of a streamed answer (`chat.completion.chunk`).
#[derive(Debug, Serialize)]
pub struct ChatChunk<'a> {
    pub id: &'a str,
    pub object: &'static str,
    pub created: i64,
    pub model: &'a str,
    pub choices: &'a [ChunkChoice<'a>],
    /// Present only if the request asks for usage: `null` until the last chunk.
    #[serde(skip_serializing_if = "ChunkUsage::is_absent")]
    pub usage: ChunkUsage,
}

#[derive(Debug, Serialize)]
pub struct ChunkChoice<'a> {
    pub index: u32,
    pub delta: Delta<'a>,
    pub logprobs: Option<()>,
    pub finish_reason: Option<FinishReason>,
}

#[derive(Debug, Default, Serialize)]
pub struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<&'a str>,
    /// Pieces of calls of the client's tools, as they came.
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    pub tool_calls: &'a [Value],
}
