//! The events of a client. Whatever this server does not offer is refused by name.

use serde_json::{Map, Value};

use super::{
    errors::RealtimeError,
    fields::Fields,
    item_fields::read_item,
    items::Item,
    settings::{ResponseSettings, SettingsChange},
};
use crate::errors::{Code, Problem};

/// The longest `event_id`, and the longest id of an item, in characters.
const MAX_EVENT_ID_CHARS: usize = 512;
/// The beginnings of the types of events about audio.
const AUDIO_EVENTS: [&str; 3] = ["input_audio_buffer.", "output_audio_buffer.", "transcription_session."];

/// What a client asks.
#[derive(Debug, PartialEq)]
pub enum ClientEvent {
    UpdateSession(Box<SettingsChange>),
    CreateItem { previous: Option<String>, item: Item },
    DeleteItem { id: String },
    RetrieveItem { id: String },
    TruncateItem { id: String, heard_position: HeardPosition },
    CreateResponse(Box<ResponseSettings>),
    CancelResponse { id: Option<String> },
}

/// How much of a reply was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeardPosition {
    /// In Unicode scalar values.
    Chars(usize),
    /// In UTF-16 code units.
    Utf16(usize),
    /// In ms of speech.
    AudioMs(u64),
}

/// The fields that all events have.
#[derive(Debug)]
pub struct Envelope {
    pub event_id: Option<String>,
    pub kind: String,
    fields: Map<String, Value>,
}

/// The event types that clients may send, for metrics.
const KNOWN_TYPES: [&str; 7] = [
    "session.update",
    "conversation.item.create",
    "conversation.item.delete",
    "conversation.item.retrieve",
    "conversation.item.truncate",
    "response.create",
    "response.cancel",
];

impl Envelope {
    /// Reads a message. The error comes with the `event_id`, if that can be read.
    ///
    /// # Errors
    /// No JSON object with a type.
    pub fn read(text: &str) -> Result<Self, (RealtimeError, Option<String>)> {
        let malformed = |detail: String| RealtimeError::from(Problem::new(Code::MalformedJson, detail));
        let fields: Value = serde_json::from_str(text)
            .map_err(|error| (malformed(format!("an event is a JSON object: {error}")), None))?;
        let Value::Object(mut fields) = fields else {
            return Err((malformed("an event is a JSON object".to_owned()), None));
        };
        let event_id = match fields.remove("event_id") {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) if id.chars().count() <= MAX_EVENT_ID_CHARS => Some(id),
            Some(_) => {
                let detail = format!("must be a text of at most {MAX_EVENT_ID_CHARS} characters");
                return Err((RealtimeError::field("event_id", &detail), None));
            }
        };
        match fields.remove("type") {
            Some(Value::String(kind)) => Ok(Self { event_id, kind, fields }),
            None => Err((RealtimeError::field("type", "is missing"), event_id)),
            Some(_) => Err((RealtimeError::field("type", "must be a text"), event_id)),
        }
    }

    /// Returns the `event_id` of a message that is not handled.
    pub fn event_id_of(text: &str) -> Option<String> {
        Self::read(text).map_or_else(|(_, id)| id, |envelope| envelope.event_id)
    }

    /// The type as the label of a metric.
    pub fn metric_label(&self) -> &'static str {
        let label = KNOWN_TYPES.iter().find(|label| **label == self.kind);
        label.copied().unwrap_or("unknown")
    }

    /// Reads the event.
    ///
    /// # Errors
    /// An unknown type, a type that is not offered, or a field that cannot be used.
    pub fn into_event(self) -> Result<ClientEvent, RealtimeError> {
        let mut fields = Fields::new(self.fields, "");
        let event = match self.kind.as_str() {
            "session.update" => {
                let session = fields.take_object("session")?;
                ClientEvent::UpdateSession(Box::new(SettingsChange::read(session)?))
            }
            "conversation.item.create" => {
                let previous = fields.take_text("previous_item_id")?;
                let item = read_item(fields.take_object("item")?)?;
                ClientEvent::CreateItem { previous, item }
            }
            "conversation.item.delete" => ClientEvent::DeleteItem {
                id: fields.take_required_text("item_id")?,
            },
            "conversation.item.retrieve" => ClientEvent::RetrieveItem {
                id: fields.take_required_text("item_id")?,
            },
            "conversation.item.truncate" => ClientEvent::TruncateItem {
                id: fields.take_required_text("item_id")?,
                heard_position: read_heard_position(&mut fields)?,
            },
            "response.create" => {
                ClientEvent::CreateResponse(Box::new(match fields.take_optional_object("response")? {
                    Some(response) => ResponseSettings::read(response)?,
                    None => ResponseSettings::default(),
                }))
            }
            "response.cancel" => ClientEvent::CancelResponse {
                id: fields.take_text("response_id")?,
            },
            kind if AUDIO_EVENTS.iter().any(|prefix| kind.starts_with(prefix)) => {
                return Err(RealtimeError::not_supported(
                    "type",
                    "this server speaks and hears text, no audio",
                ));
            }
            _ => {
                let problem = Problem::new(Code::UnknownType, "there is no such type of event");
                return Err(problem.with_param("type").into());
            }
        };
        fields.refuse_rest()?;
        Ok(event)
    }
}

/// Reads where a reply was cut: `heard_chars` or `heard_utf16`, and else `audio_end_ms`.
fn read_heard_position(fields: &mut Fields) -> Result<HeardPosition, RealtimeError> {
    if fields.take_number("content_index")?.is_some_and(|index| index != 0) {
        return Err(fields.fault("content_index", "must be 0: an item has one part"));
    }
    let audio_ms = fields.take_number("audio_end_ms")?;
    let chars = fields.take_number("heard_chars")?;
    let utf16 = fields.take_number("heard_utf16")?;
    let units = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    match (chars, utf16, audio_ms) {
        (Some(_), Some(_), _) => Err(fields.fault("heard_utf16", "does not go together with heard_chars")),
        (Some(chars), None, _) => Ok(HeardPosition::Chars(units(chars))),
        (None, Some(utf16), _) => Ok(HeardPosition::Utf16(units(utf16))),
        (None, None, Some(ms)) => Ok(HeardPosition::AudioMs(ms)),
        (None, None, None) => Err(fields.fault("audio_end_ms", "is missing, and so is heard_chars")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(event: &Value) -> Result<ClientEvent, RealtimeError> {
        Envelope::read(&event.to_string()).unwrap().into_event()
    }

    fn code_and_param(event: &Value) -> (&'static str, Option<String>) {
        let error = read(event).unwrap_err();
        (error.code, error.param)
    }

    #[test]
    fn audio_is_refused_by_name() {
        for (event, param) in [
            (json!({"type": "input_audio_buffer.append", "audio": "AAAA"}), "type"),
            (json!({"type": "output_audio_buffer.clear"}), "type"),
            (
                json!({"type": "session.update", "session": {"type": "transcription"}}),
                "session.type",
            ),
            (
                json!({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["audio"]}}),
                "session.output_modalities",
            ),
            (
                json!({"type": "session.update", "session": {"audio": {"output": {"voice": "marin"}}}}),
                "session.audio",
            ),
            (
                json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
                    "content": [{"type": "input_audio", "audio": "AAAA"}]}}),
                "item.content[0].type",
            ),
            (
                json!({"type": "conversation.item.create", "item": {"type": "function_call_output", "output": ""}}),
                "item.type",
            ),
            (
                json!({"type": "response.create", "response": {"output_modalities": ["text", "audio"]}}),
                "response.output_modalities",
            ),
        ] {
            assert_eq!(
                code_and_param(&event),
                ("not_supported", Some(param.to_owned())),
                "{event}"
            );
        }
    }

    #[test]
    fn unusable_fields_are_named() {
        for (event, param) in [
            (
                json!({"type": "response.create", "response": {"voice": "x"}}),
                "response.voice",
            ),
            (json!({"type": "session.update"}), "session"),
            (
                json!({"type": "session.update", "session": {"instructions": 7}}),
                "session.instructions",
            ),
            (
                json!({"type": "session.update", "session": {"max_output_tokens": 0}}),
                "session.max_output_tokens",
            ),
            (json!({"type": "conversation.item.delete"}), "item_id"),
            (
                json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 0}),
                "audio_end_ms",
            ),
            (
                json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 1, "audio_end_ms": 1}),
                "content_index",
            ),
            (json!({"type": "response.cancel", "reason": "x"}), "reason"),
            (
                json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
                    "content": [{"type": "input_text", "text": " "}]}}),
                "item.content",
            ),
        ] {
            assert_eq!(
                code_and_param(&event),
                ("validation_failed", Some(param.to_owned())),
                "{event}"
            );
        }
        assert_eq!(code_and_param(&json!({"type": "response.jump"})).0, "unknown_type");
    }

    #[test]
    fn positions_in_characters_come_before_ms() {
        let truncate = |extra: Value| {
            let mut event = json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 0,
                "audio_end_ms": 1500});
            event
                .as_object_mut()
                .unwrap()
                .extend(extra.as_object().unwrap().clone());
            match read(&event).unwrap() {
                ClientEvent::TruncateItem { heard_position, .. } => heard_position,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(truncate(json!({})), HeardPosition::AudioMs(1500));
        assert_eq!(truncate(json!({"heard_chars": 7})), HeardPosition::Chars(7));
        assert_eq!(truncate(json!({"heard_utf16": 8})), HeardPosition::Utf16(8));
    }

    #[test]
    fn messages_without_a_type_keep_their_event_id() {
        let (error, id) = Envelope::read(r#"{"event_id": "e1"}"#).unwrap_err();
        assert_eq!((error.param.as_deref(), id.as_deref()), (Some("type"), Some("e1")));
        assert_eq!(Envelope::read("[]").unwrap_err().0.code, "malformed_json");
        assert_eq!(Envelope::read("{").unwrap_err().0.code, "malformed_json");
    }
}
