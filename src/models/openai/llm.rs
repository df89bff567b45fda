//! The language model of an OpenAI-compatible endpoint.

use std::{borrow::Cow, collections::VecDeque, sync::Arc, time::Duration};

use async_openai::{Client, config::OpenAIConfig, traits::RequestOptionsBuilder, types::stream::StreamResponse};
use async_trait::async_trait;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::{
    http::{Answers, Endpoint, HttpClient, InvalidEndpoint, answer_error, classify_error},
    thoughts::{PrefilledModels, ThoughtCutter, cut_thoughts},
    wire::{AnswerContent, ChatChunk, ChatRequest, ChatResponse, Messages, ResponseFormat, StreamOptions},
};
use colloquy_memory::turn::Usage;
use colloquy_ports::llm::{Chunk, Completion, JsonSchema, Llm, LlmError, LlmRequest, Task};

/// How long a finished stream may take to report its usage and close.
const USAGE_GRACE: Duration = Duration::from_secs(1);
/// The endpoint's word for an answer that ended at the output cap.
const AT_CAP: &str = "length";
/// Tells gateways and the mock server the task of a call.
const TASK_HEADER: &str = "x-colloquy-task";

/// The options of one endpoint's chat API.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field that endpoints accept or refuse"
)]
pub struct OpenAiLlmOptions {
    pub endpoint: Endpoint,
    /// The model for requests without a model.
    pub model: String,
    /// Sends JSON schemas as `response_format`. Off for servers that reject the field; the prompts ask for JSON in
    /// words too.
    pub supports_json_schema: bool,
    /// Asks for any JSON object, where a JSON schema is not supported.
    pub supports_json_object: bool,
    /// Sends `cache_control` marks after messages with a cache breakpoint.
    pub explicit_cache_marks: bool,
    /// Sends the output cap as `max_completion_tokens`, which reasoning models require, instead of `max_tokens`, which
    /// all other models understand.
    pub max_completion_tokens: bool,
    /// Asks streams for their usage (`stream_options`).
    pub stream_usage: bool,
    /// Sends the temperature. Some reasoning models refuse the field.
    pub send_temperature: bool,
    /// The chat template opens a thought in the prompt, so an answer begins with a thought that only a tag closes.
    pub reasoning_prefilled: bool,
    /// Texts at which a reply ends.
    pub stop: Vec<String>,
    /// Fields that tell the endpoint how much to think. They give way to what a client says of it, and to `extra_body`.
    pub reasoning_fields: Map<String, Value>,
    /// Further fields of each request. They replace fields of clients, and none of the fields that the options or the
    /// request set.
    pub extra_body: Map<String, Value>,
}

/// The fields that a request has of its own. They cannot be part of `extra_body`.
pub const RESERVED_FIELDS: [&str; 10] = [
    "model",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "stop",
    "stream",
    "stream_options",
    "response_format",
    "n",
];

/// Fields with which clients say how much a model thinks.
const REASONING_FIELDS: [&str; 4] = ["reasoning_effort", "reasoning", "thinking", "chat_template_kwargs"];

impl OpenAiLlmOptions {
    /// Returns options for `model` at `endpoint`, with JSON schemas and without cache marks.
    #[must_use]
    pub fn new(endpoint: Endpoint, model: impl Into<String>) -> Self {
        Self {
            endpoint,
            model: model.into(),
            supports_json_schema: true,
            supports_json_object: false,
            explicit_cache_marks: false,
            max_completion_tokens: false,
            stream_usage: true,
            send_temperature: true,
            reasoning_prefilled: false,
            stop: Vec::new(),
            reasoning_fields: Map::new(),
            extra_body: Map::new(),
        }
    }
}

/// What the answers of an endpoint have shown of the model's thoughts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObservedThoughts {
    /// An answer had a thought, in its text or beside the text.
    pub any: bool,
    /// An answer had the closing tag of a thought without the opening tag.
    pub prefilled: bool,
}

/// A chat model behind an OpenAI-compatible endpoint.
pub struct OpenAiLlm {
    client: Client<OpenAIConfig>,
    streaming: Client<OpenAIConfig>,
    options: OpenAiLlmOptions,
    /// The further fields of requests without a client: `reasoning_fields`, and `extra_body` over them.
    own_fields: Map<String, Value>,
    thoughts: Arc<Thoughts>,
}

/// What is known of the models' thoughts.
#[derive(Debug)]
struct Thoughts {
    prefilled: PrefilledModels,
    observed: Mutex<ObservedThoughts>,
}

impl Thoughts {
    fn on_thought(&self) {
        self.observed.lock().any = true;
    }
    fn on_lone_closing_tag(&self, model: &str) {
        *self.observed.lock() = ObservedThoughts {
            any: true,
            prefilled: true,
        };
        self.prefilled.learn(model);
    }
}

impl OpenAiLlm {
    /// Returns a model without a call to the endpoint.
    ///
    /// # Errors
    /// Fails on an invalid base URL, key or model name.
    pub fn new(http: &HttpClient, options: OpenAiLlmOptions) -> Result<Self, InvalidEndpoint> {
        if options.model.trim().is_empty() {
            return Err(InvalidEndpoint::NoModel);
        }
        let mut own_fields = options.reasoning_fields.clone();
        own_fields.extend(options.extra_body.clone());
        Ok(Self {
            client: options.endpoint.build_client(http, Answers::Whole)?,
            streaming: options.endpoint.build_client(http, Answers::Streamed)?,
            thoughts: Arc::new(Thoughts {
                prefilled: PrefilledModels::new(options.reasoning_prefilled),
                observed: Mutex::default(),
            }),
            options,
            own_fields,
        })
    }

    /// Returns what the answers so far have shown of the model's thoughts.
    #[must_use]
    pub fn observed_thoughts(&self) -> ObservedThoughts {
        *self.thoughts.observed.lock()
    }

    fn model_of<'a>(&'a self, request: &'a LlmRequest) -> &'a str {
        request.model.as_deref().unwrap_or(&self.options.model)
    }

    fn response_format<'a>(&self, schema: &'a JsonSchema) -> Option<ResponseFormat<'a>> {
        if self.options.supports_json_schema {
            return Some(ResponseFormat::from_schema(schema));
        }
        self.options.supports_json_object.then(ResponseFormat::object)
    }

    /// Returns the fields of a client. `extra_body` counts more than these fields, and `reasoning_fields` less.
    fn further_fields<'a>(&'a self, client: Option<&'a Map<String, Value>>) -> Cow<'a, Map<String, Value>> {
        let Some(client) = client.filter(|fields| !fields.is_empty()) else {
            return Cow::Borrowed(&self.own_fields);
        };
        let refuses = |name: &str| name == "temperature" && !self.options.send_temperature;
        let mut fields = if asks_to_think(client) {
            Map::new()
        } else {
            self.options.reasoning_fields.clone()
        };
        let sent_fields = client.iter().filter(|(name, value)| !value.is_null() && !refuses(name));
        fields.extend(sent_fields.map(|(name, value)| (name.clone(), value.clone())));
        fields.extend(self.options.extra_body.clone());
        Cow::Owned(fields)
    }

    fn chat_request_body<'a>(&'a self, request: &'a LlmRequest, stream: bool) -> ChatRequest<'a> {
        let cap = Some(request.max_output_tokens);
        let client_fields = request.client.as_ref().map(|client| &client.fields);
        let client_sets =
            |name: &str| client_fields.is_some_and(|fields| fields.get(name).is_some_and(|value| !value.is_null()));
        let (max_tokens, max_completion_tokens) = if self.options.max_completion_tokens {
            (None, cap)
        } else {
            (cap, None)
        };
        ChatRequest {
            model: self.model_of(request),
            messages: Messages {
                messages: &request.messages,
                cache_marks: self.options.explicit_cache_marks,
            },
            max_tokens,
            max_completion_tokens,
            temperature: (self.options.send_temperature && !client_sets("temperature")).then_some(request.temperature),
            // The texts may be part of JSON.
            stop: if request.task == Task::Reply && !client_sets("stop") {
                &self.options.stop
            } else {
                &[]
            },
            // With custom types, async-openai does not set this field.
            stream,
            stream_options: (stream && self.options.stream_usage).then_some(StreamOptions { include_usage: true }),
            response_format: request
                .json_schema
                .as_ref()
                .filter(|_| !client_sets("response_format"))
                .and_then(|schema| self.response_format(schema)),
            further: self.further_fields(client_fields),
        }
    }
}

fn task_headers(request: &LlmRequest) -> HeaderMap {
    HeaderMap::from_iter([(
        reqwest::header::HeaderName::from_static(TASK_HEADER),
        HeaderValue::from_static(request.task.as_str()),
    )])
}

#[async_trait]
impl Llm for OpenAiLlm {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        let chat = self.client.chat().headers(task_headers(request));
        let body = self.chat_request_body(request, false);
        let response: ChatResponse = timeout(request.timeout, chat.create_byot(body))
            .await
            .map_err(|_| LlmError::Timeout)?
            .map_err(classify_error)?;
        if let Some(error) = response.error {
            return Err(answer_error(&error));
        }
        let choice = response
            .choices
            .into_iter()
            .next()
            .ok_or_else(|| LlmError::Broken("no choice in the answer".into()))?;
        let at_cap = choice.finish_reason.as_deref() == Some(AT_CAP);
        let mut answer = choice.message;
        let has_thought_beside = answer.has_thought();
        let tool_calls = if asks_for_tools(request) {
            answer.take_tool_calls()
        } else {
            Vec::new()
        };
        let calls_tools = !tool_calls.is_empty();
        let content = match answer.content {
            Some(content) => content.into_text(),
            None if calls_tools => String::new(),
            None if answer.refusal.is_some() => return Err(declined_error()),
            None if has_thought_beside => return Err(only_thought_error()),
            None => return Err(LlmError::Broken("the answer is empty".into())),
        };
        let spoken_answer = cut_thoughts(&content);
        let has_thought = has_thought_beside || spoken_answer.has_thought;
        if has_thought {
            self.thoughts.on_thought();
        }
        let model = self.model_of(request);
        if spoken_answer.has_lone_closing_tag {
            self.thoughts.on_lone_closing_tag(model);
        }
        // An answer that ended at its cap may lack the closing tag. JSON is no thought.
        let is_unclosed = at_cap
            && !calls_tools
            && !has_thought
            && self.thoughts.prefilled.contains(model)
            && !spoken_answer.text.trim_start().starts_with(['{', '[', '`']);
        if is_unclosed || (has_thought && !calls_tools && spoken_answer.text.trim().is_empty()) {
            return Err(only_thought_error());
        }
        Ok(Completion {
            at_cap,
            tool_calls,
            text: spoken_answer.text,
            usage: response.usage.map(Usage::from).unwrap_or_default(),
            model: response.model.unwrap_or_else(|| model.to_owned()),
        })
    }

    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let chat = self.streaming.chat().headers(task_headers(request));
        let body = self.chat_request_body(request, true);
        let events = timeout(request.timeout, chat.create_stream_byot(body))
            .await
            .map_err(|_| LlmError::Timeout)?
            .map_err(classify_error)?;
        let model = self.model_of(request);
        let reader = ChunkReader {
            events,
            idle: request.timeout,
            cutter: Some(ThoughtCutter::new(self.thoughts.prefilled.contains(model))),
            thoughts: self.thoughts.clone(),
            model: model.to_owned(),
            asks_for_tools: asks_for_tools(request),
            has_thought: false,
            has_answer: false,
            pending: VecDeque::new(),
            usage: None,
        };
        Ok(stream::unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            match reader.next_chunk().await {
                // The usage or an error is the last chunk. The connection is dropped with the reader.
                Some(last @ (Ok(Chunk::Usage(_)) | Err(_))) => Some((last, None)),
                Some(text) => Some((text, Some(reader))),
                None => None,
            }
        })
        .boxed())
    }

    fn model(&self) -> &str {
        &self.options.model
    }
}

/// True if a client says how much the model thinks. An effort of `none` agrees with endpoints that turn thoughts off in
/// a field of their own, so that field stays.
fn asks_to_think(client: &Map<String, Value>) -> bool {
    let mut values = REASONING_FIELDS.iter().filter_map(|name| client.get(*name));
    values.any(|value| !value.is_null() && *value != "none")
}

/// True if the model may call tools. Calls that nobody asked for are left out.
fn asks_for_tools(request: &LlmRequest) -> bool {
    request.client.as_ref().is_some_and(|client| client.asks_for_tools())
}

/// The model refused to answer. Its reasons quote the prompt, so they are left out.
fn declined_error() -> LlmError {
    LlmError::Refused("the model declined to answer".into())
}

/// The answer has no text beside its thought. The remedies are in the operator's hands, so the error names them.
fn only_thought_error() -> LlmError {
    LlmError::Broken(
        "the model thought and gave no answer: turn its reasoning off (llm.reasoning), or give the task more \
         max_output_tokens"
            .into(),
    )
}

/// Turns an endpoint's events into chunks, and separates a proper end from a break.
struct ChunkReader {
    /// Ends at `[DONE]` or with the connection, and async-openai shows no difference. The reliable end mark is
    /// therefore a choice's `finish_reason`, which every such endpoint sends.
    events: StreamResponse<ChatChunk>,
    idle: Duration,
    /// `None` after the end mark.
    cutter: Option<ThoughtCutter>,
    thoughts: Arc<Thoughts>,
    /// The model that answers.
    model: String,
    /// True if the model may call tools of the client.
    asks_for_tools: bool,
    /// True if the endpoint sent a thought, in its text or beside the text.
    has_thought: bool,
    /// True if text or a piece of a tool call was returned.
    has_answer: bool,
    /// Chunks that are read and not yet returned.
    pending: VecDeque<Result<Chunk, LlmError>>,
    usage: Option<Usage>,
}

impl ChunkReader {
    async fn next_chunk(&mut self) -> Option<Result<Chunk, LlmError>> {
        loop {
            if let Some(chunk) = self.pending.pop_front() {
                self.has_answer |= matches!(chunk, Ok(Chunk::Text(_) | Chunk::ToolCalls(_)));
                return Some(chunk);
            }
            let finished = self.cutter.is_none();
            let wait = if finished {
                self.idle.min(USAGE_GRACE)
            } else {
                self.idle
            };
            let event = match timeout(wait, self.events.next()).await {
                Ok(Some(Ok(event))) => event,
                // The text is complete, so a later failure does not affect it.
                _ if finished => return self.usage.take().map(|usage| Ok(Chunk::Usage(usage))),
                Ok(Some(Err(error))) => return Some(Err(classify_error(error))),
                Ok(None) => return Some(Err(LlmError::Broken("the stream ended without its end mark".into()))),
                Err(_) => return Some(Err(LlmError::Timeout)),
            };
            self.read_event(event);
        }
    }

    fn read_event(&mut self, event: ChatChunk) {
        if let Some(error) = event.error {
            self.pending.push_back(Err(answer_error(&error)));
            return;
        }
        // Some endpoints repeat the usage with every event. The last usage counts.
        if let Some(usage) = event.usage {
            self.usage = Some(usage.into());
        }
        let Some(choice) = event.choices.into_iter().next() else {
            return;
        };
        if let Some(mut delta) = choice.delta {
            self.has_thought |= delta.has_thought();
            let calls = delta.take_tool_calls();
            match delta.content.map(AnswerContent::into_text) {
                Some(text) if !text.is_empty() => self.read_text(&text),
                _ if delta.refusal.as_ref().is_some_and(|text| !text.is_empty()) => {
                    self.pending.push_back(Err(declined_error()));
                }
                _ => {}
            }
            if self.asks_for_tools && !calls.is_empty() {
                self.pending.push_back(Ok(Chunk::ToolCalls(calls)));
            }
        }
        if let Some(reason) = choice.finish_reason {
            self.finish_text(reason == AT_CAP);
        }
    }

    fn read_text(&mut self, text: &str) {
        let Some(cutter) = &mut self.cutter else { return };
        match cutter.push(text) {
            Ok(visible) if visible.is_empty() => {}
            Ok(visible) => self.pending.push_back(Ok(Chunk::Text(visible))),
            Err(_) => {
                self.thoughts.on_lone_closing_tag(&self.model);
                self.pending.push_back(Err(LlmError::Broken(
                    "the text so far was the model's thought, which its next replies withhold".into(),
                )));
            }
        }
    }

    /// Ends the text at the end mark.
    fn finish_text(&mut self, at_cap: bool) {
        let Some(cutter) = self.cutter.take() else { return };
        let finished = cutter.finish(at_cap);
        self.has_thought |= finished.has_thought;
        if finished.without_closing_tag {
            self.thoughts.prefilled.forget(&self.model);
        }
        if self.has_thought {
            self.thoughts.on_thought();
        }
        let is_pending = !self.pending.is_empty();
        if !finished.tail.is_empty() {
            self.pending.push_back(Ok(Chunk::Text(finished.tail)));
        } else if self.has_thought && !self.has_answer && !is_pending {
            self.pending.push_back(Err(only_thought_error()));
        }
        if at_cap {
            self.pending.push_back(Ok(Chunk::AtCap));
        }
    }
}
