//! The required fields of the OpenAI API, borrowed from the request to avoid copies.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeSeq};
use serde_json::{Map, Value};

use colloquy_memory::turn::Usage;
use colloquy_ports::llm::{ChatMessage, ChatRole, JsonSchema};

#[derive(Serialize)]
pub(super) struct ChatRequest<'a> {
    pub model: &'a str,
    pub messages: Messages<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub stop: &'a [String],
    pub stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat<'a>>,
    /// Further fields, of the configuration or of a client. None of them is a field above.
    #[serde(flatten)]
    pub further: Cow<'a, Map<String, Value>>,
}

#[derive(Serialize)]
pub(super) struct StreamOptions {
    pub include_usage: bool,
}

#[derive(Serialize)]
pub(super) struct ResponseFormat<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    json_schema: Option<NamedSchema<'a>>,
}

#[derive(Serialize)]
struct NamedSchema<'a> {
    name: &'a str,
    strict: bool,
    schema: &'a Value,
}

impl<'a> ResponseFormat<'a> {
    pub(super) fn from_schema(schema: &'a JsonSchema) -> Self {
        Self {
            r#type: "json_schema",
            json_schema: Some(NamedSchema {
                name: schema.name,
                strict: true,
                schema: &schema.schema,
            }),
        }
    }
    /// Any JSON object.
    pub(super) const fn object() -> Self {
        Self {
            r#type: "json_object",
            json_schema: None,
        }
    }
}

/// The messages of a request. A message with a cache mark is sent as content parts. Consecutive messages of one role
/// are joined, since some endpoints refuse roles that do not alternate. A message that a client sent in its own form
/// stays as it is.
pub(super) struct Messages<'a> {
    pub messages: &'a [ChatMessage],
    pub cache_marks: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    role: ChatRole,
    content: MessageContent<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum MessageContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
struct ContentPart<'a> {
    r#type: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct CacheControl {
    r#type: &'static str,
}

impl<'a> MessageContent<'a> {
    fn from_messages(messages: &'a [ChatMessage], cache_marks: bool) -> Self {
        if cache_marks && messages.iter().any(|message| message.cache_breakpoint) {
            let part = |message: &'a ChatMessage| ContentPart {
                r#type: "text",
                text: &message.content,
                cache_control: message.cache_breakpoint.then_some(CacheControl { r#type: "ephemeral" }),
            };
            return Self::Parts(messages.iter().map(part).collect());
        }
        Self::Text(match messages {
            [only] => Cow::Borrowed(&only.content),
            several => {
                let texts: Vec<&str> = several.iter().map(|message| message.content.as_str()).collect();
                Cow::Owned(texts.join("\n\n"))
            }
        })
    }
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let joins = |first: &ChatMessage, next: &ChatMessage| {
            first.role == next.role && first.as_sent.is_none() && next.as_sent.is_none()
        };
        for messages in self.messages.chunk_by(joins) {
            if let Some(as_sent) = &messages[0].as_sent {
                list.serialize_element(&**as_sent)?;
                continue;
            }
            list.serialize_element(&Message {
                role: messages[0].role,
                content: MessageContent::from_messages(messages, self.cache_marks),
            })?;
        }
        list.end()
    }
}

#[derive(Deserialize)]
pub(super) struct ChatResponse {
    pub model: Option<String>,
    #[serde(default)]
    pub choices: Vec<Choice>,
    pub usage: Option<WireUsage>,
    /// Some endpoints answer 200 with an error in this field.
    pub error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct Choice {
    pub message: AssistantMessage,
    pub finish_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct AssistantMessage {
    pub content: Option<AnswerContent>,
    /// The model's refusal, in its own words.
    pub refusal: Option<String>,
    /// Calls of tools, or pieces of them. Another value than a list is left out.
    #[serde(default)]
    tool_calls: Value,
    /// True if the endpoint sends a thought apart from the answer. The text of the thought is not read.
    #[serde(default, deserialize_with = "is_filled")]
    reasoning_content: bool,
    #[serde(default, deserialize_with = "is_filled")]
    reasoning: bool,
}

impl AssistantMessage {
    /// True if the endpoint sends a thought beside the answer or as a part of the answer.
    pub(super) fn has_thought(&self) -> bool {
        let is_part = || self.content.as_ref().is_some_and(AnswerContent::has_thought);
        self.reasoning_content || self.reasoning || is_part()
    }

    /// Takes the calls of tools, as they came.
    pub(super) fn take_tool_calls(&mut self) -> Vec<Value> {
        match self.tool_calls.take() {
            Value::Array(calls) => calls,
            _ => Vec::new(),
        }
    }
}

/// The text of an answer. Some endpoints send parts, in which thoughts have a type of their own.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum AnswerContent {
    Text(String),
    Parts(Vec<AnswerPart>),
}

#[derive(Deserialize)]
pub(super) struct AnswerPart {
    #[serde(default)]
    r#type: String,
    /// The text of a part of the type `text`. Parts of other types may have another shape.
    #[serde(default)]
    text: Value,
}

impl AnswerContent {
    /// Returns the text without the parts that are no text.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => {
                let texts = parts.iter().filter(|part| part.r#type == "text");
                texts.filter_map(|part| part.text.as_str()).collect()
            }
        }
    }
    fn has_thought(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Parts(parts) => parts.iter().any(|part| part.r#type == "thinking"),
        }
    }
}

/// True for a text, list or object that is not empty.
fn is_filled<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    })
}

#[derive(Deserialize)]
pub(super) struct ChatChunk {
    #[serde(default)]
    pub choices: Vec<ChunkChoice>,
    pub usage: Option<WireUsage>,
    pub error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct ChunkChoice {
    pub delta: Option<AssistantMessage>,
    pub finish_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WireUsage {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    prompt_tokens_details: Option<PromptTokensDetails>,
}

#[derive(Deserialize)]
struct PromptTokensDetails {
    cached_tokens: Option<u32>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let prompt_tokens = wire.prompt_tokens.unwrap_or_default();
        Self {
            prompt_tokens,
            cached_tokens: wire
                .prompt_tokens_details
                .and_then(|details| details.cached_tokens)
                .unwrap_or_default()
                .min(prompt_tokens),
            completion_tokens: wire.completion_tokens.unwrap_or_default(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct EmbeddingRequest<'a> {
    pub model: &'a str,
    pub input: &'a [std::borrow::Cow<'a, str>],
    pub encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_type: Option<&'static str>,
}

#[derive(Deserialize)]
pub(super) struct EmbeddingResponse {
    pub data: Vec<EmbeddingRow>,
}

#[derive(Deserialize)]
pub(super) struct EmbeddingRow {
    pub index: Option<usize>,
    pub embedding: Vec<f32>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn cache_mark_is_sent_only_where_supported() {
        let mut marked = ChatMessage::new(ChatRole::System, "rules");
        marked.cache_breakpoint = true;
        let messages = [marked, ChatMessage::new(ChatRole::User, "hi")];
        let sent = |cache_marks| {
            serde_json::to_value(Messages {
                messages: &messages,
                cache_marks,
            })
            .unwrap()
        };
        assert_eq!(
            sent(false),
            json!([{"role": "system", "content": "rules"}, {"role": "user", "content": "hi"}])
        );
        assert_eq!(
            sent(true),
            json!([
                {"role": "system", "content": [{"type": "text", "text": "rules", "cache_control": {"type": "ephemeral"}}]},
                {"role": "user", "content": "hi"},
            ])
        );
    }

    #[test]
    fn roles_alternate() {
        let say = |role, text: &str| ChatMessage::new(role, text);
        let mut messages = [
            say(ChatRole::System, "rules"),
            say(ChatRole::User, "Mira: Hm."),
            say(ChatRole::User, "Tomas: Well."),
            say(ChatRole::Assistant, "So it is."),
            say(ChatRole::User, "Mira: Is it?"),
            say(ChatRole::User, "Your line."),
        ];
        let sent =
            |messages: &[ChatMessage], cache_marks| serde_json::to_value(Messages { messages, cache_marks }).unwrap();
        assert_eq!(
            sent(&messages, false),
            json!([
                {"role": "system", "content": "rules"},
                {"role": "user", "content": "Mira: Hm.\n\nTomas: Well."},
                {"role": "assistant", "content": "So it is."},
                {"role": "user", "content": "Mira: Is it?\n\nYour line."},
            ])
        );
        messages[1].cache_breakpoint = true;
        assert_eq!(
            sent(&messages, true)[1]["content"],
            json!([
                {"type": "text", "text": "Mira: Hm.", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "Tomas: Well."},
            ])
        );
    }

    #[test]
    fn thought_of_an_endpoint_is_no_text_of_the_answer() {
        let read = |value| {
            let message: AssistantMessage = serde_json::from_value(value).unwrap();
            let has_thought = message.has_thought();
            (message.content.map(AnswerContent::into_text), has_thought)
        };
        let hello = || Some("Hello.".to_owned());
        assert_eq!(read(json!({"content": "Hello."})), (hello(), false));
        for field in ["reasoning_content", "reasoning"] {
            assert_eq!(read(json!({"content": "Hello.", field: "Hm."})), (hello(), true));
            assert_eq!(read(json!({"content": "Hello.", field: null})), (hello(), false));
            assert_eq!(read(json!({"content": "Hello.", field: ""})), (hello(), false));
            assert_eq!(read(json!({"content": null, field: {"steps": 2}})), (None, true));
        }
        let parts = json!([
            {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
            {"type": "text", "text": "Hel"}, {"type": "text", "text": "lo."}, {"type": "reference", "ids": [1]},
        ]);
        assert_eq!(read(json!({"content": parts})), (hello(), true));
    }

    #[test]
    fn message_in_its_own_form_stays_as_it_is() {
        let picture =
            json!({"role": "user", "name": "ann", "content": [{"type": "image_url", "image_url": {"url": "x"}}]});
        let mut message = ChatMessage::new(ChatRole::User, "");
        message.as_sent = picture.as_object().cloned().map(Into::into);
        let messages = [
            ChatMessage::new(ChatRole::User, "Look:"),
            message,
            ChatMessage::new(ChatRole::User, "Well?"),
        ];
        let sent = serde_json::to_value(Messages {
            messages: &messages,
            cache_marks: false,
        });
        assert_eq!(
            sent.unwrap(),
            json!([{"role": "user", "content": "Look:"}, picture, {"role": "user", "content": "Well?"}])
        );
    }

    #[test]
    fn usage_accepts_nulls_and_odd_counts() {
        let usage = |text: &str| Usage::from(serde_json::from_str::<WireUsage>(text).unwrap());
        assert_eq!(usage("{}"), Usage::default());
        assert_eq!(
            usage(r#"{"prompt_tokens":5,"completion_tokens":null,"prompt_tokens_details":{"cached_tokens":9}}"#),
            Usage {
                prompt_tokens: 5,
                cached_tokens: 5,
                completion_tokens: 0
            }
        );
    }
}
