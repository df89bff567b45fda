//! The events that the server sends, in the form of OpenAI's published schema.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    errors::RealtimeError,
    items::{Item, ItemStatus},
};
use colloquy_memory::turn::Usage;

/// An event with an id of its own.
#[derive(Debug, Serialize)]
struct ServerEvent<'a> {
    event_id: String,
    #[serde(flatten)]
    body: &'a EventBody<'a>,
}

/// What an event says.
#[derive(Debug, Serialize)]
#[serde(tag = "type")]
pub enum EventBody<'a> {
    #[serde(rename = "error")]
    Error { error: ErrorView<'a> },
    #[serde(rename = "session.created")]
    SessionCreated { session: &'a Value },
    #[serde(rename = "session.updated")]
    SessionUpdated { session: &'a Value },
    #[serde(rename = "conversation.item.added")]
    ItemAdded {
        previous_item_id: Option<&'a str>,
        item: ItemView<'a>,
    },
    #[serde(rename = "conversation.item.done")]
    ItemDone {
        previous_item_id: Option<&'a str>,
        item: ItemView<'a>,
    },
    #[serde(rename = "conversation.item.deleted")]
    ItemDeleted { item_id: &'a str },
    #[serde(rename = "conversation.item.retrieved")]
    ItemRetrieved { item: ItemView<'a> },
    #[serde(rename = "conversation.item.truncated")]
    ItemTruncated {
        item_id: &'a str,
        content_index: u32,
        audio_end_ms: u64,
        /// The length of the text that stands, in Unicode scalar values. Not part of OpenAI's schema.
        heard_chars: usize,
    },
    #[serde(rename = "response.created")]
    ResponseCreated { response: ResponseView<'a> },
    #[serde(rename = "response.done")]
    ResponseDone { response: ResponseView<'a> },
    #[serde(rename = "response.output_item.added")]
    OutputItemAdded {
        response_id: &'a str,
        output_index: u32,
        item: ItemView<'a>,
    },
    #[serde(rename = "response.output_item.done")]
    OutputItemDone {
        response_id: &'a str,
        output_index: u32,
        item: ItemView<'a>,
    },
    #[serde(rename = "response.content_part.added")]
    ContentPartAdded {
        #[serde(flatten)]
        place: PartPlace<'a>,
        part: PartView<'a>,
    },
    #[serde(rename = "response.content_part.done")]
    ContentPartDone {
        #[serde(flatten)]
        place: PartPlace<'a>,
        part: PartView<'a>,
    },
    #[serde(rename = "response.output_text.delta")]
    TextDelta {
        #[serde(flatten)]
        place: PartPlace<'a>,
        delta: &'a str,
    },
    #[serde(rename = "response.output_text.done")]
    TextDone {
        #[serde(flatten)]
        place: PartPlace<'a>,
        text: &'a str,
    },
}

impl EventBody<'_> {
    /// Returns the event as a message for the client.
    pub fn to_message(&self) -> String {
        let event = ServerEvent {
            event_id: format!("event_{:032x}", rand::random::<u128>()),
            body: self,
        };
        // The values have only texts and numbers, so serialization cannot fail.
        serde_json::to_string(&event).unwrap_or_default()
    }
}

/// The error of an `error` event.
#[derive(Debug, Serialize)]
pub struct ErrorView<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    code: &'static str,
    message: &'a str,
    param: Option<&'a str>,
    /// The `event_id` of the client's event.
    event_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl<'a> EventBody<'a> {
    /// The event of an error. `event_id` is that of the client's event.
    pub fn error(error: &'a RealtimeError, event_id: Option<&'a str>) -> Self {
        Self::Error {
            error: ErrorView {
                kind: error.kind,
                code: error.code,
                message: &error.message,
                param: error.param.as_deref(),
                event_id,
                retry_after_ms: error.retry_after_ms,
            },
        }
    }
}

/// An item of the conversation.
#[derive(Debug, Serialize)]
pub struct ItemView<'a> {
    id: &'a str,
    object: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    status: ItemStatus,
    role: &'static str,
    content: Vec<PartView<'a>>,
}

impl<'a> ItemView<'a> {
    /// The item with its words. A reply under way has none yet.
    pub fn new(item: &'a Item) -> Self {
        let content = match item.status {
            ItemStatus::InProgress => Vec::new(),
            ItemStatus::Completed | ItemStatus::Incomplete => vec![PartView {
                kind: item.role.part_kind(),
                text: &item.text,
            }],
        };
        Self {
            id: &item.id,
            object: "realtime.item",
            kind: "message",
            status: item.status,
            role: item.role.as_str(),
            content,
        }
    }
}

/// Words of an item or of a response.
#[derive(Debug, Serialize)]
pub struct PartView<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

impl<'a> PartView<'a> {
    /// The part of a response. The schema names the part `text` here, and `output_text` in the item.
    pub const fn of_response(text: &'a str) -> Self {
        Self { kind: "text", text }
    }
}

/// The place of the words of a response. There is one item with one part.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PartPlace<'a> {
    pub response_id: &'a str,
    pub item_id: &'a str,
    pub output_index: u32,
    pub content_index: u32,
}

/// How far a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    InProgress,
    Completed,
    /// The client or another one cut the reply.
    Cancelled,
    /// The reply reached the output cap.
    Incomplete,
    Failed,
}

/// A response.
#[derive(Debug, Serialize)]
pub struct ResponseView<'a> {
    pub id: &'a str,
    pub object: &'static str,
    pub status: ResponseStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_details: Option<StatusDetails<'a>>,
    pub output: Vec<ItemView<'a>>,
    /// Left out for a response beside the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<&'a str>,
    pub output_modalities: [&'static str; 1],
    pub max_output_tokens: Value,
    pub metadata: Option<&'a Map<String, Value>>,
    /// Left out until the reply has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
}

/// Why a response ended as it did.
#[derive(Debug, Serialize)]
pub struct StatusDetails<'a> {
    #[serde(rename = "type")]
    kind: ResponseStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FailureView<'a>>,
}

#[derive(Debug, Serialize)]
struct FailureView<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    code: &'static str,
    message: &'a str,
}

impl<'a> StatusDetails<'a> {
    /// The details of a status. `None`: the status says all.
    pub fn new(status: ResponseStatus, error: Option<&'a RealtimeError>) -> Option<Self> {
        let reason = match status {
            ResponseStatus::InProgress | ResponseStatus::Completed => return None,
            ResponseStatus::Cancelled => Some("client_cancelled"),
            ResponseStatus::Incomplete => Some("max_output_tokens"),
            ResponseStatus::Failed => None,
        };
        Some(Self {
            kind: status,
            reason,
            error: error.map(|error| FailureView {
                kind: error.kind,
                code: error.code,
                message: &error.message,
            }),
        })
    }
}

/// The tokens of a response.
#[derive(Debug, Serialize)]
pub struct UsageView {
    total_tokens: u32,
    input_tokens: u32,
    output_tokens: u32,
    input_token_details: InputTokens,
    output_token_details: OutputTokens,
}

#[derive(Debug, Serialize)]
struct InputTokens {
    cached_tokens: u32,
    text_tokens: u32,
    image_tokens: u32,
    audio_tokens: u32,
    cached_tokens_details: CachedTokens,
}

// The names are those of the schema.
#[allow(clippy::struct_field_names)]
#[derive(Debug, Serialize)]
struct CachedTokens {
    text_tokens: u32,
    image_tokens: u32,
    audio_tokens: u32,
}

#[derive(Debug, Serialize)]
struct OutputTokens {
    text_tokens: u32,
    audio_tokens: u32,
}

impl From<Usage> for UsageView {
    fn from(usage: Usage) -> Self {
        Self {
            total_tokens: usage.prompt_tokens.saturating_add(usage.completion_tokens),
            input_tokens: usage.prompt_tokens,
            output_tokens: usage.completion_tokens,
            input_token_details: InputTokens {
                cached_tokens: usage.cached_tokens,
                text_tokens: usage.prompt_tokens,
                image_tokens: 0,
                audio_tokens: 0,
                cached_tokens_details: CachedTokens {
                    text_tokens: usage.cached_tokens,
                    image_tokens: 0,
                    audio_tokens: 0,
                },
            },
            output_token_details: OutputTokens {
                text_tokens: usage.completion_tokens,
                audio_tokens: 0,
            },
        }
    }
}
