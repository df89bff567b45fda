//! The body of `POST /v1/responses`: the input as messages of a chat program, and the fields that the answer repeats.

use serde_json::{Map, Value, json};

use super::{
    super::{
        completions::parse_name,
        parse_body::ParseBody,
        request::{ChatCompletionRequest, FieldFaults, InputMessage, InputRole, MAX_MESSAGES},
    },
    answer::EchoedFields,
};
use crate::errors::{Code, Problem};

/// A request for a response.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseRequest {
    /// `None`: the model of the earlier response, or the default model.
    pub model: Option<String>,
    /// The id of the response that the request continues from, as it came.
    pub previous: Option<String>,
    /// The name of the talk.
    pub conversation: Option<String>,
    /// The input as the request of a chat program.
    pub chat: ChatCompletionRequest,
    pub echoed: EchoedFields,
}

impl ResponseRequest {
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
        refuse_unoffered(&fields, &mut faults);
        let instructions = read_text(&fields, "instructions", &mut faults);
        let mut messages: Vec<InputMessage> = instructions
            .iter()
            .map(|text| plain_message(InputRole::System, text.clone()))
            .collect();
        match fields.get("input") {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => messages.push(plain_message(InputRole::User, text.clone())),
            Some(Value::Array(items)) if items.len() > MAX_MESSAGES => {
                faults.add::<()>("input", &format!("has more than {MAX_MESSAGES} items"));
            }
            Some(Value::Array(items)) => {
                let items = items.iter().enumerate();
                messages.extend(items.filter_map(|(index, item)| read_item(index, item, &mut faults)));
            }
            Some(_) => faults.add("input", "must be a text or a list of items"),
        }
        let previous = read_text(&fields, "previous_response_id", &mut faults);
        let conversation = read_conversation(&fields, &mut faults);
        if previous.is_some() && conversation.is_some() {
            let detail = "does not go together with previous_response_id, which names the talk already";
            faults.add::<()>("conversation", detail);
        }
        let model = read_text(&fields, "model", &mut faults);
        let user = read_text(&fields, "user", &mut faults);
        let stream = faults.read_flag(&fields, "stream");
        let echoed = EchoedFields {
            max_output_tokens: read_cap(&fields, &mut faults),
            metadata: read_metadata(&fields, &mut faults),
            parallel_tool_calls: !matches!(fields.get("parallel_tool_calls"), Some(Value::Bool(false))),
            temperature: read_number(&fields, "temperature", &mut faults),
            top_p: read_number(&fields, "top_p", &mut faults),
            tool_choice: read_tool_choice(&fields, &mut faults),
            tools: read_tools(&fields, &mut faults),
            user: user.clone(),
            instructions,
        };
        if !faults.0.is_empty() {
            return Err(Problem::invalid_fields(faults.0));
        }
        let cap = echoed.max_output_tokens;
        Ok(Self {
            model,
            previous,
            conversation,
            chat: ChatCompletionRequest::from_parts(messages, stream, user, cap, fields),
            echoed,
        })
    }
}

/// Refuses what would be left out in silence.
fn refuse_unoffered(fields: &Map<String, Value>, faults: &mut FieldFaults) {
    if fields.get("background") == Some(&Value::Bool(true)) {
        faults.add::<()>(
            "background",
            "is not offered: a response is answered or streamed at once",
        );
    }
    if fields.get("prompt").is_some_and(|prompt| !prompt.is_null()) {
        faults.add::<()>("prompt", "is not offered: send the texts in `instructions` and `input`");
    }
    let format = fields.get("text").and_then(|text| text.get("format")?.get("type"));
    if format.is_some_and(|kind| kind != "text") {
        faults.add::<()>("text.format", "must be `text`: an NPC speaks");
    }
}

/// Reads a text. Empty is as unset.
fn read_text(fields: &Map<String, Value>, name: &str, faults: &mut FieldFaults) -> Option<String> {
    match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
        Some(_) => faults.add(name, "must be a text"),
    }
}

fn read_number(fields: &Map<String, Value>, name: &str, faults: &mut FieldFaults) -> Option<f64> {
    match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::Number(number)) => number.as_f64(),
        Some(_) => faults.add(name, "must be a number"),
    }
}

/// Reads the output cap, in tokens.
fn read_cap(fields: &Map<String, Value>, faults: &mut FieldFaults) -> Option<u32> {
    match fields.get("max_output_tokens") {
        None | Some(Value::Null) => None,
        Some(cap) => match cap.as_u64() {
            Some(cap) if cap > 0 => Some(u32::try_from(cap).unwrap_or(u32::MAX)),
            _ => faults.add("max_output_tokens", "must be a number of at least 1"),
        },
    }
}

fn read_metadata(fields: &Map<String, Value>, faults: &mut FieldFaults) -> Map<String, Value> {
    match fields.get("metadata") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(metadata)) if metadata.values().all(Value::is_string) => metadata.clone(),
        Some(_) => faults.add("metadata", "must be an object of texts"),
    }
}

fn read_conversation(fields: &Map<String, Value>, faults: &mut FieldFaults) -> Option<String> {
    let conversation = match fields.get("conversation") {
        None | Some(Value::Null) => return None,
        Some(Value::Object(conversation)) => conversation.get("id"),
        other => other,
    };
    let Some(name) = conversation.and_then(Value::as_str) else {
        return faults.add("conversation", "must be a text, or an object with `id`");
    };
    match parse_name("conversation", name) {
        Ok(name) => Some(name),
        Err(problem) => {
            faults.0.extend(problem.errors);
            None
        }
    }
}

fn read_tools(fields: &Map<String, Value>, faults: &mut FieldFaults) -> Vec<Value> {
    match fields.get("tools") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(tools)) if tools.iter().all(Value::is_object) => tools.clone(),
        Some(_) => faults.add("tools", "must be a list of objects"),
    }
}

fn read_tool_choice(fields: &Map<String, Value>, faults: &mut FieldFaults) -> Value {
    match fields.get("tool_choice") {
        None | Some(Value::Null) => json!("auto"),
        Some(choice) if choice.is_object() || ["none", "auto", "required"].iter().any(|mode| choice == mode) => {
            choice.clone()
        }
        Some(_) => faults.add("tool_choice", "must be none, auto, required or an object"),
    }
}

const fn plain_message(role: InputRole, text: String) -> InputMessage {
    InputMessage {
        role,
        text,
        name: None,
        calls_tools: false,
        as_sent: None,
    }
}

/// Reads an item of the input. `None`: a fault, or an item without words.
fn read_item(index: usize, item: &Value, faults: &mut FieldFaults) -> Option<InputMessage> {
    let param = |field: &str| format!("input[{index}].{field}");
    let Some(fields) = item.as_object() else {
        return faults.add(&format!("input[{index}]"), "must be an object");
    };
    match fields.get("type").map(|kind| kind.as_str().unwrap_or_default()) {
        None | Some("message") => {}
        // Clients send the output of earlier responses back. Thoughts were never spoken.
        Some("reasoning") => return None,
        Some(_) => return faults.add(&param("type"), "is not offered: items must be messages"),
    }
    let (name, role) = match fields.get("role").and_then(Value::as_str) {
        Some("user") => ("user", InputRole::User),
        Some("assistant") => ("assistant", InputRole::Assistant),
        Some("system" | "developer") => ("system", InputRole::System),
        _ => return faults.add(&param("role"), "must be user, assistant, system or developer"),
    };
    let parts = match fields.get("content") {
        Some(Value::String(text)) => return Some(plain_message(role, text.clone())),
        Some(Value::Array(parts)) => parts,
        _ => return faults.add(&param("content"), "must be a text or a list of parts"),
    };
    let mut texts = Vec::new();
    let mut sent_parts = Vec::new();
    let mut has_pictures = false;
    for (number, part) in parts.iter().enumerate() {
        let text = |field: &str| part.get(field).and_then(Value::as_str);
        match (text("type"), text("text"), text("image_url")) {
            (Some("input_text" | "output_text" | "text"), Some(text), _) => {
                texts.push(text);
                sent_parts.push(json!({"type": "text", "text": text}));
            }
            (Some("refusal"), _, _) => {}
            (Some("input_image"), _, Some(url)) => {
                has_pictures = true;
                let mut picture = json!({"url": url});
                if let Some(detail) = text("detail") {
                    picture["detail"] = json!(detail);
                }
                sent_parts.push(json!({"type": "image_url", "image_url": picture}));
            }
            _ => {
                let detail = "must be input_text, output_text, or input_image with an image_url";
                return faults.add(&param(&format!("content[{number}]")), detail);
            }
        }
    }
    let as_sent = has_pictures.then(|| {
        let message = [
            ("role".to_owned(), json!(name)),
            ("content".to_owned(), Value::Array(sent_parts)),
        ];
        message.into_iter().collect()
    });
    Some(InputMessage {
        as_sent,
        ..plain_message(role, texts.join("\n"))
    })
}

impl ParseBody for ResponseRequest {
    fn parse_body(raw: &[u8]) -> Result<Self, Problem> {
        Self::parse(raw)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(body: &Value) -> Result<ResponseRequest, Problem> {
        ResponseRequest::parse(body.to_string().as_bytes())
    }

    #[test]
    fn instructions_and_items_are_messages() {
        let request = parse(&json!({"instructions": "Rain.", "input": [
            {"role": "developer", "content": "Night."},
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"role": "user", "content": [{"type": "input_text", "text": "Look"},
                {"type": "input_image", "image_url": "data:,x", "detail": "low"}]}]}))
        .unwrap();
        let messages = &request.chat.messages;
        let contents: Vec<_> = messages
            .iter()
            .map(|message| (message.role, message.text.as_str()))
            .collect();
        assert_eq!(
            contents,
            [
                (InputRole::System, "Rain."),
                (InputRole::System, "Night."),
                (InputRole::Assistant, "Hello."),
                (InputRole::User, "Look")
            ]
        );
        assert_eq!(
            request.chat.messages[3].as_sent.as_ref().unwrap()["content"][1],
            json!({"type": "image_url", "image_url": {"url": "data:,x", "detail": "low"}})
        );
        assert_eq!(request.echoed.instructions.as_deref(), Some("Rain."));
    }

    #[test]
    fn what_is_not_offered_is_refused_by_name() {
        let problem = parse(
            &json!({"background": true, "prompt": {"id": "p"}, "text": {"format": {"type": "json_object"}},
            "input": [{"type": "function_call_output", "call_id": "c", "output": ""}, {"role": "tool", "content": ""}],
            "previous_response_id": "resp_1", "conversation": {"id": "night"}, "max_output_tokens": 0}),
        )
        .unwrap_err();
        let params: Vec<_> = problem.errors.iter().map(|error| error.param.as_str()).collect();
        assert_eq!(
            params,
            [
                "background",
                "prompt",
                "text.format",
                "input[0].type",
                "input[1].role",
                "conversation",
                "max_output_tokens"
            ]
        );
    }

    #[test]
    fn input_of_too_many_items_is_refused() {
        let items = |count: usize| json!({"input": vec![json!({"role": "user", "content": "Hi"}); count]});
        let messages = parse(&items(MAX_MESSAGES)).unwrap().chat.messages;
        assert_eq!(messages.len(), MAX_MESSAGES);
        let problem = parse(&items(MAX_MESSAGES + 1)).unwrap_err();
        assert_eq!((problem.code, problem.errors.len()), (Code::ValidationFailed, 1));
        assert_eq!(problem.errors[0].param, "input");
    }

    #[test]
    fn empty_body_is_a_request() {
        let request = parse(&json!({})).unwrap();
        assert!(request.chat.messages.is_empty() && request.model.is_none());
        assert_eq!(request.echoed.tool_choice, "auto");
        let request_with_name = parse(&json!({"conversation": "night"})).unwrap();
        assert_eq!(request_with_name.conversation.as_deref(), Some("night"));
    }
}
