//! Calls of the tools in a request, as an endpoint makes them.

use actix_web::{HttpResponse, http::header::ContentType};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    answers::{self, MODEL, MockChatRequest, delta_event, sse_event},
    options::MockOptions,
};

/// The calls of an answer.
pub(super) struct MockToolCalls {
    /// The text before the calls.
    words: String,
    /// Whole calls, in the form of the OpenAI API.
    calls: Vec<Value>,
}

impl MockToolCalls {
    /// Returns the calls that answer a request. `None`: the answer is text. `number` counts the calls of the model.
    pub(super) fn for_request(request: &MockChatRequest<'_>, settings: &MockOptions, number: u64) -> Option<Self> {
        if settings.tool_calls == 0 || !request.may_call_tools() {
            return None;
        }
        let tools = request.tools.iter().cycle().zip(0..settings.tool_calls);
        let calls = tools.map(|(tool, place)| {
            let arguments = answers::smallest_instance(&tool["function"]["parameters"]);
            json!({"id": format!("call_{number}_{place}"), "type": "function",
                "function": {"name": tool["function"]["name"], "arguments": arguments.to_string()}})
        });
        Some(Self {
            words: settings.tool_words.clone(),
            calls: calls.collect(),
        })
    }

    /// Returns the events of a stream. Arguments come in two pieces.
    pub(super) fn events(&self) -> Vec<Bytes> {
        let chunk = |delta: Value, reason: Value| {
            sse_event(&json!({
                "id": "mock", "object": "chat.completion.chunk", "created": 0, "model": MODEL,
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
            }))
        };
        let mut events: Vec<Bytes> = (!self.words.is_empty())
            .then(|| delta_event(&self.words))
            .into_iter()
            .collect();
        for (index, call) in self.calls.iter().enumerate() {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let (first, second) = arguments.split_at(arguments.len().min(1));
            let mut first_piece = call.clone();
            first_piece["index"] = json!(index);
            first_piece["function"]["arguments"] = json!(first);
            let rest = json!({"index": index, "function": {"arguments": second}});
            for piece in [first_piece, rest] {
                events.push(chunk(json!({ "tool_calls": [piece] }), Value::Null));
            }
        }
        events.push(chunk(json!({}), json!("tool_calls")));
        events
    }

    /// Returns a whole answer.
    pub(super) fn whole(&self, prompt_tokens: usize) -> HttpResponse {
        let content = if self.words.is_empty() {
            Value::Null
        } else {
            json!(self.words)
        };
        let message = json!({"role": "assistant", "content": content, "tool_calls": self.calls});
        let usage = answers::usage_json(prompt_tokens, message.to_string().len() / 4);
        let body = format!(
            "{{\"id\":\"mock\",\"object\":\"chat.completion\",\"created\":0,\"model\":\"{MODEL}\",\"choices\":[{{\"index\":0,\
             \"message\":{message},\"finish_reason\":\"tool_calls\"}}],\"usage\":{usage}}}"
        );
        HttpResponse::Ok().insert_header(ContentType::json()).body(body)
    }
}
