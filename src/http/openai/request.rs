//! The body of `POST /v1/chat/completions`. Unknown fields are kept: they may be for the reply model.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::parse_body::ParseBody;
use crate::errors::{Code, FieldError, Problem};
use colloquy_core::scope::{Principal, Role};
use colloquy_ports::llm::ClientFields;

/// Fields that the server sets in its own requests to the reply model, or that concern this server alone.
const SERVER_FIELDS: [&str; 12] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "n",
    "user",
    "max_tokens",
    "max_completion_tokens",
    "metadata",
    "store",
    "prompt_cache_key",
    "safety_identifier",
];
/// Fields that requests for authored NPCs pass on to the reply model.
const SAMPLING_FIELDS: [&str; 5] = ["temperature", "top_p", "seed", "presence_penalty", "frequency_penalty"];
/// Further such fields, of tokens that are no player's: with them, a client decides what a reply says, or ends it before its
/// state block.
const AUTHORS_FIELDS: [&str; 5] = ["stop", "logit_bias", "tools", "tool_choice", "parallel_tool_calls"];
/// Further fields that players' requests for a character of their own pass on. Other fields could name another model, a
/// price or a cap.
const CHARACTER_FIELDS: [&str; 8] = [
    "reasoning_effort",
    "response_format",
    "min_p",
    "top_k",
    "top_a",
    "typical_p",
    "repetition_penalty",
    "repeat_penalty",
];
/// The most messages of a request, and the most items of the input of a response.
pub const MAX_MESSAGES: usize = 4_000;
/// Largest `n` of a request. Each reply is a call of the model, and chat programs ask for two or three.
const MAX_CHOICES: u32 = 4;
/// The line of a message with a picture and no words.
const PICTURE_LINE: &str = "[picture]";

/// The role of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputRole {
    #[serde(alias = "developer")]
    System,
    User,
    Assistant,
    #[serde(alias = "function")]
    Tool,
}

impl InputRole {
    /// True if a message of the role is spoken in the talk.
    pub const fn speaks(self) -> bool {
        matches!(self, Self::User | Self::Assistant)
    }
}

/// A message of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct InputMessage {
    pub role: InputRole,
    /// The text of the message, without pictures and calls of tools.
    pub text: String,
    /// The name of the speaker, if the chat program sends names.
    pub name: Option<String>,
    /// True for a reply that calls tools.
    pub calls_tools: bool,
    /// The message as it came, if `role` and `text` are not all of it.
    pub as_sent: Option<Map<String, Value>>,
}

/// A request for a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatCompletionRequest {
    pub model: String,
    pub messages: Vec<InputMessage>,
    pub stream: bool,
    pub include_usage: bool,
    /// The number of replies.
    pub choices: u32,
    /// The player, for tokens without a player.
    pub user: Option<String>,
    max_output_tokens: Option<u32>,
    fields: Map<String, Value>,
}

impl ChatCompletionRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// Every field that cannot be read, by its name.
    pub fn parse(raw: &[u8]) -> Result<Self, Problem> {
        let fields: Value = serde_json::from_slice(raw)
            .map_err(|error| Problem::new(Code::MalformedJson, format!("the body is not JSON: {error}")))?;
        let Value::Object(fields) = fields else {
            return Err(Problem::invalid_field("body", "must be an object"));
        };
        let mut faults = FieldFaults::default();
        let model = match fields.get("model").and_then(Value::as_str) {
            Some(model) if !model.trim().is_empty() => model.to_owned(),
            _ => faults.add("model", "is missing"),
        };
        let messages = match fields.get("messages").and_then(Value::as_array) {
            Some(messages) if messages.len() > MAX_MESSAGES => {
                faults.add("messages", &format!("are more than {MAX_MESSAGES}"))
            }
            Some(messages) if !messages.is_empty() => {
                let messages = messages.iter().enumerate();
                messages
                    .filter_map(|(index, value)| read_message(index, value, &mut faults))
                    .collect()
            }
            _ => faults.add("messages", "must be a list with at least one message"),
        };
        let choices = match fields.get("n") {
            None | Some(Value::Null) => 1,
            Some(n) => match n.as_u64().and_then(|n| u32::try_from(n).ok()) {
                Some(n) if (1..=MAX_CHOICES).contains(&n) => n,
                _ => faults.add("n", &format!("must be a number from 1 to {MAX_CHOICES}")),
            },
        };
        let stream = faults.read_flag(&fields, "stream");
        let options = fields.get("stream_options").and_then(Value::as_object);
        let include_usage = options.is_some_and(|options| options.get("include_usage") == Some(&Value::Bool(true)));
        let caps = ["max_completion_tokens", "max_tokens"];
        let max_output_tokens = caps.iter().find_map(|name| fields.get(*name)?.as_u64());
        if !faults.0.is_empty() {
            return Err(Problem::invalid_fields(faults.0));
        }
        Ok(Self {
            model,
            messages,
            stream,
            include_usage,
            choices,
            user: fields.get("user").and_then(Value::as_str).map(str::to_owned),
            // Some programs send 0 for "no limit".
            max_output_tokens: max_output_tokens
                .filter(|cap| *cap > 0)
                .map(|cap| u32::try_from(cap).unwrap_or(u32::MAX)),
            fields,
        })
    }

    /// The request of another form, with only the sampling fields of `fields`.
    pub fn from_parts(
        messages: Vec<InputMessage>,
        stream: bool,
        user: Option<String>,
        max_output_tokens: Option<u32>,
        fields: Map<String, Value>,
    ) -> Self {
        let sampling = fields
            .into_iter()
            .filter(|(name, value)| SAMPLING_FIELDS.contains(&name.as_str()) && !value.is_null());
        Self {
            model: String::new(),
            messages,
            stream,
            include_usage: false,
            choices: 1,
            user,
            max_output_tokens,
            fields: sampling.collect(),
        }
    }

    /// Refuses functions that a model might call, which the API has replaced by tools.
    ///
    /// # Errors
    /// 400 that names the field.
    pub fn refuse_functions(&self) -> Result<(), Problem> {
        let functions = self.fields.get("functions").and_then(Value::as_array);
        let is_off = self.fields.get("function_call").is_some_and(|choice| choice == "none");
        if is_off || functions.is_none_or(Vec::is_empty) {
            return Ok(());
        }
        let detail = "are the old form of tools, and not offered: send `tools`";
        Err(Problem::invalid_field("functions", detail))
    }

    /// Returns the fields for the model. `is_own`: the chat program describes the character.
    pub fn fields_for_model(&self, principal: &Principal, is_own: bool) -> ClientFields {
        if is_own {
            self.client_fields(principal)
        } else {
            self.sampling_fields(principal)
        }
    }

    /// Returns the fields for the model of a character that the chat program describes: all that the server does not
    /// set, and of players only known ones.
    fn client_fields(&self, principal: &Principal) -> ClientFields {
        let is_player = principal.role == Role::Player;
        let player_fields = [&SAMPLING_FIELDS[..], &AUTHORS_FIELDS, &CHARACTER_FIELDS];
        let is_permitted = |name: &str| {
            if is_player {
                player_fields.iter().any(|names| names.contains(&name))
            } else {
                !SERVER_FIELDS.contains(&name)
            }
        };
        let fields = self.fields.iter().filter(|(name, _)| is_permitted(name));
        ClientFields {
            fields: fields.map(|(name, value)| (name.clone(), value.clone())).collect(),
            max_output_tokens: self.max_output_tokens,
            may_exceed_cap: !is_player,
        }
    }

    /// Returns the fields for the reply model of an authored NPC.
    fn sampling_fields(&self, principal: &Principal) -> ClientFields {
        let is_player = principal.role == Role::Player;
        let is_permitted = |name: &str| SAMPLING_FIELDS.contains(&name) || !is_player && AUTHORS_FIELDS.contains(&name);
        let fields = self
            .fields
            .iter()
            .filter(|(name, value)| is_permitted(name) && !value.is_null());
        ClientFields {
            fields: fields.map(|(name, value)| (name.clone(), value.clone())).collect(),
            max_output_tokens: self.max_output_tokens,
            may_exceed_cap: false,
        }
    }
}

/// The fields of a request that cannot be read.
#[derive(Default)]
pub struct FieldFaults(pub Vec<FieldError>);

impl FieldFaults {
    pub fn add<T: Default>(&mut self, param: &str, detail: &str) -> T {
        self.0.push(FieldError {
            param: param.to_owned(),
            detail: detail.to_owned(),
        });
        T::default()
    }

    pub fn read_flag(&mut self, fields: &Map<String, Value>, name: &str) -> bool {
        match fields.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => self.add(name, "must be true or false"),
        }
    }
}

fn read_message(index: usize, value: &Value, faults: &mut FieldFaults) -> Option<InputMessage> {
    let param = |field: &str| format!("messages[{index}].{field}");
    let Some(fields) = value.as_object() else {
        return faults.add(&format!("messages[{index}]"), "must be an object");
    };
    let role = fields.get("role").cloned().unwrap_or_default();
    let Ok(role) = InputRole::deserialize(role) else {
        return faults.add(&param("role"), "must be system, developer, user, assistant or tool");
    };
    let text = match fields.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => match join_text_parts(parts) {
            text if text.trim().is_empty() && role == InputRole::User && parts.iter().any(is_no_text) => {
                PICTURE_LINE.to_owned()
            }
            text => text,
        },
        Some(_) => return faults.add(&param("content"), "must be a text or a list of parts"),
    };
    let calls = fields.get("tool_calls").and_then(Value::as_array);
    let is_plain = fields.keys().all(|name| name == "role" || name == "content")
        && !fields.get("content").is_some_and(Value::is_array)
        && role != InputRole::Tool;
    Some(InputMessage {
        role,
        text,
        name: fields.get("name").and_then(Value::as_str).map(str::to_owned),
        calls_tools: calls.is_some_and(|calls| !calls.is_empty()),
        as_sent: (!is_plain).then(|| fields.clone()),
    })
}

fn is_no_text(part: &Value) -> bool {
    part["type"] != "text"
}

fn join_text_parts(parts: &[Value]) -> String {
    let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
    texts.collect::<Vec<_>>().join("\n")
}

impl ParseBody for ChatCompletionRequest {
    fn parse_body(raw: &[u8]) -> Result<Self, Problem> {
        Self::parse(raw)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(body: &Value) -> Result<ChatCompletionRequest, Problem> {
        ChatCompletionRequest::parse(body.to_string().as_bytes())
    }

    #[test]
    fn every_faulty_field_is_named() {
        let problem = parse(&json!({"messages": [{"role": "narrator"}, 7], "n": 9, "stream": "yes"})).unwrap_err();
        let params: Vec<_> = problem.errors.iter().map(|error| error.param.as_str()).collect();
        assert_eq!(params, ["model", "messages[0].role", "messages[1]", "n", "stream"]);
    }

    #[test]
    fn pictures_stay_in_the_message_and_out_of_the_text() {
        let parts = json!([{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]);
        let body =
            json!({"model": "m", "messages": [{"role": "user", "content": parts}, {"role": "user", "content": "Hi"}]});
        let request = parse(&body).unwrap();
        assert_eq!(request.messages[0].text, "Look");
        assert_eq!(request.messages[0].as_sent.as_ref().unwrap()["content"], parts);
        assert_eq!(request.messages[1].as_sent, None);
    }

    #[test]
    fn unknown_fields_go_to_the_model_of_own_characters_only_and_none_of_players() {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.3,
            "min_p": 0.1, "max_tokens": 50, "user": "ann", "stop": null, "reasoning_effort": "high", "models": ["dear"],
            "service_tier": "priority", "n_predict": 9000});
        let request = parse(&body).unwrap();
        let principal = Principal {
            subject: "s".into(),
            tenant: "t".parse().unwrap(),
            role: Role::Backend,
            player: None,
            world: None,
            issued: colloquy_core::scope::TokenIdentity::default(),
            expires_at: chrono::DateTime::<chrono::Utc>::MAX_UTC,
        };
        let all = request.client_fields(&principal);
        assert_eq!(
            Value::Object(all.fields),
            json!({"temperature": 0.3, "min_p": 0.1, "stop": null, "reasoning_effort": "high", "models": ["dear"],
                "service_tier": "priority", "n_predict": 9000})
        );
        assert_eq!(all.max_output_tokens, Some(50));
        let player = Principal {
            role: Role::Player,
            ..principal.clone()
        };
        let of_player = request.client_fields(&player);
        assert_eq!(
            Value::Object(of_player.fields),
            json!({"temperature": 0.3, "min_p": 0.1, "stop": null, "reasoning_effort": "high"})
        );
        assert_eq!(of_player.max_output_tokens, Some(50));
        assert_eq!(
            Value::Object(request.sampling_fields(&principal).fields),
            json!({"temperature": 0.3})
        );
    }
}
