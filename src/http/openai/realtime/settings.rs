//! The settings of a session and of a response.

use serde_json::{Map, Value, json};

use super::{errors::RealtimeError, fields::Fields, item_fields::read_item, items::Item};

/// The most entries of `metadata`.
const MAX_METADATA: usize = 16;

/// The settings of a connection's session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSettings {
    /// The name of the model, as the client gave it.
    pub model: String,
    /// Notes about the scene; for a character of the program, its description.
    pub instructions: String,
    /// In tokens; `None`: as many as the server permits.
    pub max_output_tokens: Option<u32>,
    /// Fields that are shown, and have no effect.
    inert_fields: Map<String, Value>,
}

impl SessionSettings {
    pub fn new(model: String) -> Self {
        let inert_fields = [
            ("tools", json!([])),
            ("tool_choice", json!("auto")),
            ("truncation", json!("auto")),
            ("tracing", Value::Null),
        ];
        Self {
            model,
            instructions: String::new(),
            max_output_tokens: None,
            inert_fields: inert_fields
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect(),
        }
    }

    /// Applies a change.
    ///
    /// # Errors
    /// The change names another model.
    pub fn apply(&mut self, change: SettingsChange) -> Result<(), RealtimeError> {
        if change.model.as_ref().is_some_and(|model| *model != self.model) {
            return Err(RealtimeError::field(
                "session.model",
                "cannot change: open another connection",
            ));
        }
        if let Some(instructions) = change.instructions {
            self.instructions = instructions;
        }
        if let Some(cap) = change.max_output_tokens {
            self.max_output_tokens = cap.0;
        }
        self.inert_fields.extend(change.inert_fields);
        Ok(())
    }

    /// The session as clients see it. `expires_at`: the end of the token, in seconds since 1970.
    pub fn to_view(&self, id: &str, expires_at: Option<i64>) -> Value {
        let mut view = json!({
            "type": "realtime",
            "object": "realtime.session",
            "id": id,
            "model": self.model,
            "output_modalities": ["text"],
            "instructions": self.instructions,
            "max_output_tokens": cap_to_json(self.max_output_tokens),
        });
        if let Value::Object(fields) = &mut view {
            fields.extend(expires_at.map(|timestamp| ("expires_at".to_owned(), Value::from(timestamp))));
            fields.extend(self.inert_fields.clone());
        }
        view
    }
}

/// An output cap as clients see it.
pub fn cap_to_json(cap: Option<u32>) -> Value {
    cap.map_or_else(|| json!("inf"), Value::from)
}

/// The limit of a reply; `None`: `inf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputCap(pub Option<u32>);

/// What `session.update` changes. Missing fields stay as they are.
#[derive(Debug, Default, PartialEq)]
pub struct SettingsChange {
    model: Option<String>,
    instructions: Option<String>,
    max_output_tokens: Option<OutputCap>,
    inert_fields: Map<String, Value>,
}

impl SettingsChange {
    /// Reads the `session` of an event.
    ///
    /// # Errors
    /// A field that cannot be used, or that this server does not offer.
    pub fn read(mut fields: Fields) -> Result<Self, RealtimeError> {
        match fields.take_text("type")?.as_deref() {
            None | Some("realtime") => {}
            Some(_) => {
                let param = fields.param("type");
                return Err(RealtimeError::not_supported(
                    &param,
                    "sessions are of the type `realtime`",
                ));
            }
        }
        refuse_audio(&mut fields)?;
        let mut change = Self {
            model: fields.take_text("model")?,
            max_output_tokens: take_cap(&mut fields)?,
            inert_fields: take_tools(&mut fields)?,
            ..Self::default()
        };
        if fields.has("instructions") {
            change.instructions = Some(fields.take_text("instructions")?.unwrap_or_default());
        }
        // These fields have no effect. The session shows what the client has set.
        for name in ["truncation", "tracing"] {
            if fields.has(name) {
                let value = fields.take(name).unwrap_or(Value::Null);
                if name == "tracing" || !value.is_null() {
                    change.inert_fields.insert(name.to_owned(), value);
                }
            }
        }
        if let Some(reasoning) = fields.take_optional_object("reasoning")? {
            change
                .inert_fields
                .insert("reasoning".to_owned(), reasoning.into_value());
        }
        if fields.take("prompt").is_some() {
            let param = fields.param("prompt");
            return Err(RealtimeError::not_supported(&param, "send the texts in `instructions`"));
        }
        if let Some(include) = fields.take("include")
            && include.as_array().is_none_or(|include| !include.is_empty())
        {
            let param = fields.param("include");
            return Err(RealtimeError::not_supported(&param, "nothing of audio can be included"));
        }
        fields.refuse_rest()?;
        Ok(change)
    }
}

/// What `response.create` asks.
#[derive(Debug, Default, PartialEq)]
pub struct ResponseSettings {
    /// In place of the session's instructions.
    pub instructions: Option<String>,
    pub max_output_tokens: Option<OutputCap>,
    pub metadata: Option<Map<String, Value>>,
    /// True for an answer beside the conversation: nothing is stored.
    pub is_aside: bool,
    /// With `is_aside`: the items that are answered, in place of the conversation.
    pub input: Option<Vec<InputItem>>,
}

/// An item of the input of an answer beside the conversation.
#[derive(Debug, PartialEq)]
pub enum InputItem {
    New(Item),
    /// The id of an item of the conversation.
    Reference(String),
}

impl ResponseSettings {
    /// Reads the `response` of an event.
    ///
    /// # Errors
    /// A field that cannot be used, or that this server does not offer.
    pub fn read(mut fields: Fields) -> Result<Self, RealtimeError> {
        refuse_audio(&mut fields)?;
        let is_aside = match fields.take_text("conversation")?.as_deref() {
            None | Some("auto") => false,
            Some("none") => true,
            Some(_) => return Err(fields.fault("conversation", "must be auto or none")),
        };
        let input = take_input(&mut fields)?;
        if input.is_some() && !is_aside {
            let detail = "needs `conversation` to be none: a turn answers the items of the conversation";
            return Err(fields.fault("input", detail));
        }
        // Tools are never called, so those of a single response have no effect either.
        take_tools(&mut fields)?;
        fields.take_optional_object("reasoning")?;
        if fields.take("prompt").is_some() {
            let param = fields.param("prompt");
            return Err(RealtimeError::not_supported(&param, "send the texts in `instructions`"));
        }
        let settings = Self {
            instructions: fields.take_text("instructions")?,
            max_output_tokens: take_cap(&mut fields)?,
            metadata: take_metadata(&mut fields)?,
            is_aside,
            input,
        };
        fields.refuse_rest()?;
        Ok(settings)
    }
}

/// Refuses audio in the output, and settings of audio. Settings that switch something off are accepted.
fn refuse_audio(fields: &mut Fields) -> Result<(), RealtimeError> {
    let param = fields.param("output_modalities");
    match fields.take("output_modalities") {
        None => {}
        Some(modalities) if modalities == json!(["text"]) => {}
        Some(Value::Array(_)) => {
            return Err(RealtimeError::not_supported(
                &param,
                "must be [\"text\"]: this server has no audio",
            ));
        }
        Some(_) => return Err(RealtimeError::field(&param, "must be [\"text\"]")),
    }
    let param = fields.param("audio");
    match fields.take("audio") {
        Some(audio) if !is_empty(&audio) => Err(RealtimeError::not_supported(
            &param,
            "this server speaks and hears text, no audio",
        )),
        _ => Ok(()),
    }
}

/// True for `null`, and for objects without anything else.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

fn take_cap(fields: &mut Fields) -> Result<Option<OutputCap>, RealtimeError> {
    let name = "max_output_tokens";
    match fields.take(name) {
        None => Ok(None),
        Some(cap) if cap == "inf" => Ok(Some(OutputCap(None))),
        Some(cap) => match cap.as_u64() {
            Some(cap) if cap > 0 => Ok(Some(OutputCap(Some(u32::try_from(cap).unwrap_or(u32::MAX))))),
            _ => Err(fields.fault(name, "must be a number of at least 1, or `inf`")),
        },
    }
}

/// Takes the fields about tools, which are shown and never called.
fn take_tools(fields: &mut Fields) -> Result<Map<String, Value>, RealtimeError> {
    let mut inert_fields = Map::new();
    match fields.take("tools") {
        None => {}
        Some(Value::Array(tools)) if tools.iter().all(Value::is_object) => {
            inert_fields.insert("tools".to_owned(), Value::Array(tools));
        }
        Some(_) => return Err(fields.fault("tools", "must be a list of objects")),
    }
    match fields.take("tool_choice") {
        None => {}
        Some(choice) if choice.is_object() || ["none", "auto", "required"].iter().any(|mode| choice == *mode) => {
            inert_fields.insert("tool_choice".to_owned(), choice);
        }
        Some(_) => return Err(fields.fault("tool_choice", "must be none, auto, required or an object")),
    }
    match fields.take("parallel_tool_calls") {
        None | Some(Value::Bool(_)) => Ok(inert_fields),
        Some(_) => Err(fields.fault("parallel_tool_calls", "must be true or false")),
    }
}

fn take_metadata(fields: &mut Fields) -> Result<Option<Map<String, Value>>, RealtimeError> {
    match fields.take("metadata") {
        None => Ok(None),
        Some(Value::Object(metadata)) if metadata.len() <= MAX_METADATA && metadata.values().all(Value::is_string) => {
            Ok(Some(metadata))
        }
        Some(_) => {
            let detail = format!("must be an object of at most {MAX_METADATA} texts");
            Err(fields.fault("metadata", &detail))
        }
    }
}

fn take_input(fields: &mut Fields) -> Result<Option<Vec<InputItem>>, RealtimeError> {
    let items = match fields.take("input") {
        None => return Ok(None),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(fields.fault("input", "must be a list of items")),
    };
    let parse_item = |(index, item): (usize, Value)| {
        let path = fields.param(&format!("input[{index}]"));
        let Value::Object(item) = item else {
            return Err(RealtimeError::field(&path, "must be an object"));
        };
        let mut item = Fields::new(item, path);
        if item.is_text("type", "item_reference") {
            return item.take_required_text("id").map(InputItem::Reference);
        }
        read_item(item).map(InputItem::New)
    };
    items
        .into_iter()
        .enumerate()
        .map(parse_item)
        .collect::<Result<_, _>>()
        .map(Some)
}
