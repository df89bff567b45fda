//! A reply model whose answers a test writes, and the requests of a client with tools.

use std::{collections::VecDeque, sync::Arc};

use async_trait::async_trait;
use colloquy::{
    memory::turn::Usage,
    ports::llm::{Chunk, Completion, Llm, LlmError, LlmRequest, Task},
};
use futures_util::{Stream, StreamExt as _, stream, stream::BoxStream};
use parking_lot::Mutex;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::super::{
    fakes::FakeLlm,
    harness::{HttpTestClient, HttpTestOptions, HttpTestServer},
};

pub const COMPLETIONS: &str = "/v1/chat/completions";
pub const CHARACTER: &str = "colloquy/proxy";
pub const RAIN: &str = "Is it raining?";
pub const USAGE: Usage = Usage {
    prompt_tokens: 10,
    cached_tokens: 0,
    completion_tokens: 5,
};

/// An answer of the reply model.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub text: &'static str,
    /// Pieces of tool calls, after the text.
    pub pieces: Vec<Value>,
    /// True: the answer never ends.
    pub stalls: bool,
    pub fails: bool,
}

pub fn says(text: &'static str) -> Answer {
    Answer {
        text,
        ..Answer::default()
    }
}

pub fn calls(text: &'static str, pieces: &[Value]) -> Answer {
    Answer {
        text,
        pieces: pieces.to_vec(),
        ..Answer::default()
    }
}

/// Answers lines with the answers of a test, in order. Records all requests.
#[derive(Default)]
pub struct ToolLlm {
    answers: Mutex<VecDeque<Answer>>,
    pub requests: Mutex<Vec<LlmRequest>>,
}

impl ToolLlm {
    pub fn will_answer(&self, answers: &[Answer]) {
        self.answers.lock().extend(answers.iter().cloned());
    }

    fn next_answer(&self, request: &LlmRequest) -> Result<Answer, LlmError> {
        self.requests.lock().push(request.clone());
        let answer = self.answers.lock().pop_front().expect("an answer for each request");
        if answer.fails {
            return Err(LlmError::Refused("no call has this id".into()));
        }
        Ok(answer)
    }

    pub fn last_request(&self) -> LlmRequest {
        self.requests.lock().last().expect("a request").clone()
    }

    /// The last messages of the last request, as the endpoint gets them.
    pub fn last_messages(&self, count: usize) -> Vec<Value> {
        let messages = self.last_request().messages;
        let last = messages[messages.len() - count..].iter();
        last.map(|message| match &message.as_sent {
            Some(as_sent) => Value::Object((**as_sent).clone()),
            None => json!({"role": message.role, "content": message.content}),
        })
        .collect()
    }
}

#[async_trait]
impl Llm for ToolLlm {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        if request.task != Task::Reply {
            self.requests.lock().insert(0, request.clone());
            return FakeLlm.complete_chat(request).await;
        }
        let answer = self.next_answer(request)?;
        Ok(Completion {
            text: answer.text.to_owned(),
            usage: USAGE,
            model: "fake".into(),
            at_cap: false,
            tool_calls: answer.pieces,
        })
    }
    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let answer = self.next_answer(request)?;
        let text = (!answer.text.is_empty()).then(|| Chunk::Text(answer.text.to_owned()));
        let pieces = answer.pieces.into_iter().map(|piece| Chunk::ToolCalls(vec![piece]));
        let begun = stream::iter(text.into_iter().chain(pieces).map(Ok).collect::<Vec<_>>());
        if answer.stalls {
            return Ok(begun.chain(stream::pending()).boxed());
        }
        Ok(begun.chain(stream::iter([Ok(Chunk::Usage(USAGE))])).boxed())
    }
    fn model(&self) -> &'static str {
        "fake"
    }
}

/// A server whose model answers as a test says.
pub struct ToolTest {
    pub llm: Arc<ToolLlm>,
    pub server: HttpTestServer,
    pub client: HttpTestClient,
}

impl ToolTest {
    pub async fn start() -> Self {
        let llm = Arc::new(ToolLlm::default());
        let server = HttpTestServer::with(HttpTestOptions {
            llm: llm.clone(),
            ..HttpTestOptions::default()
        });
        let client = server.start_demo_world().await;
        Self { llm, server, client }
    }

    pub async fn ask(&self, model: &str, messages: &[Value]) -> Value {
        self.client.post(COMPLETIONS, &body(model, messages)).await
    }

    pub async fn stream(&self, model: &str, messages: &[Value]) -> Streamed {
        let mut body = body(model, messages);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        Streamed::read(self.send(&body).await).await
    }

    pub async fn send(&self, body: &Value) -> Response {
        let request = self.client.request(Method::POST, COMPLETIONS);
        request.json(body).send().await.unwrap()
    }

    /// The world of the characters of the chat program.
    pub async fn own_world(&self) -> String {
        let worlds = self.client.get("/v1/worlds").await;
        let ids = worlds["items"].as_array().unwrap().iter();
        let mut ids = ids.map(|world| world["id"].as_str().unwrap());
        ids.find(|id| id.starts_with("chats-")).unwrap().to_owned()
    }

    pub async fn sessions(&self, world: &str) -> Vec<String> {
        let sessions = self.client.get(&format!("/v1/sessions?world_id={world}")).await;
        let items = sessions["items"].as_array().unwrap().iter();
        items
            .map(|session| session["id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The standing turns of the only session of a world.
    pub async fn turns(&self, world: &str) -> Vec<Value> {
        let sessions = self.sessions(world).await;
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        let page = self.client.get(&format!("/v1/sessions/{}/turns", sessions[0])).await;
        page["items"].as_array().unwrap().clone()
    }

    pub async fn said(&self, world: &str) -> Vec<(String, String)> {
        let turns = self.turns(world).await;
        let text = |turn: &Value, name: &str| turn[name].as_str().unwrap().to_owned();
        turns
            .iter()
            .map(|turn| (text(turn, "player_text"), text(turn, "reply_text")))
            .collect()
    }
}

/// A streamed answer.
pub struct Streamed {
    pub text: String,
    pub pieces: Vec<Value>,
    pub finish_reasons: Vec<Value>,
    pub usage: Value,
}

impl Streamed {
    pub async fn read(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        let body = response.text().await.unwrap();
        let frames = body.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
        let chunks: Vec<Value> = frames
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
        let reasons = chunks.iter().map(|chunk| chunk["choices"][0]["finish_reason"].clone());
        Self {
            text: deltas().filter_map(|delta| delta["content"].as_str()).collect(),
            pieces: deltas()
                .filter_map(|delta| delta["tool_calls"].as_array())
                .flatten()
                .cloned()
                .collect(),
            finish_reasons: reasons.filter(|reason| !reason.is_null()).collect(),
            usage: chunks.last().unwrap()["usage"].clone(),
        }
    }
}

/// Reads frames up to a text.
pub async fn read_until<S, B>(mut frames: S, text: &str) -> S
where
    S: Stream<Item = reqwest::Result<B>> + Unpin,
    B: AsRef<[u8]>,
{
    let mut seen = String::new();
    while !seen.contains(text) {
        let frame = frames.next().await.unwrap().unwrap();
        seen.push_str(std::str::from_utf8(frame.as_ref()).unwrap());
    }
    frames
}

pub fn body(model: &str, messages: &[Value]) -> Value {
    let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}});
    json!({"model": model, "user": "ann", "messages": messages,
        "tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}]})
}

pub fn system(text: &str) -> Value {
    json!({"role": "system", "content": text})
}

pub fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

pub fn call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{\"at\":\"sky\"}"}})
}

/// The reply that called tools, as a client sends it back.
pub fn calling(text: &str, ids: &[&str]) -> Value {
    let content = if text.is_empty() { Value::Null } else { json!(text) };
    let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
    json!({"role": "assistant", "content": content, "tool_calls": calls})
}

pub fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

/// The pieces of a call, as endpoints stream them.
pub fn pieces(index: u32, id: &str) -> Vec<Value> {
    vec![
        json!({"index": index, "id": id, "type": "function", "function": {"name": "look", "arguments": ""}}),
        json!({"index": index, "function": {"arguments": "{\"at\":"}}),
        json!({"index": index, "function": {"arguments": "\"sky\"}"}}),
    ]
}

pub fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = expected
        .iter()
        .map(|(line, reply)| ((*line).to_owned(), (*reply).to_owned()));
    owned.collect()
}
