//! The language model of an OpenAI-compatible endpoint.

use std::time::Duration;

use async_openai::{Client, config::OpenAIConfig, traits::RequestOptionsBuilder, types::stream::StreamResponse};
use async_trait::async_trait;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use reqwest::header::{HeaderMap, HeaderValue};
use tokio::time::timeout;

use super::{
    http::{Answers, Endpoint, HttpClient, InvalidEndpoint, answer_error, classify_error},
    wire::{ChatChunk, ChatRequest, ChatResponse, Messages, ResponseFormat, StreamOptions},
};
use colloquy_memory::turn::Usage;
use colloquy_ports::llm::{Chunk, Completion, Llm, LlmError, LlmRequest};

/// How long a finished stream may take to report its usage and close.
const USAGE_GRACE: Duration = Duration::from_secs(1);
/// The endpoint's word for an answer that ended at the output cap.
const AT_CAP: &str = "length";
/// Tells gateways and the mock server the task of a call.
const TASK_HEADER: &str = "x-colloquy-task";

/// The options of one endpoint's chat API.
#[derive(Debug, Clone)]
pub struct OpenAiLlmOptions {
    pub endpoint: Endpoint,
    /// The model for requests without a model.
    pub model: String,
    /// Sends JSON schemas as `response_format`. Off for servers that reject the field; the prompts ask for JSON in
    /// words too.
    pub supports_json_schema: bool,
    /// Sends `cache_control` marks after messages with a cache breakpoint.
    pub explicit_cache_marks: bool,
    /// Sends the output cap as `max_completion_tokens`, which reasoning models require, instead of `max_tokens`, which
    /// all other models understand.
    pub max_completion_tokens: bool,
}

impl OpenAiLlmOptions {
    /// Returns options for `model` at `endpoint`, with JSON schemas and without cache marks.
    #[must_use]
    pub fn new(endpoint: Endpoint, model: impl Into<String>) -> Self {
        Self {
            endpoint,
            model: model.into(),
            supports_json_schema: true,
            explicit_cache_marks: false,
            max_completion_tokens: false,
        }
    }
}

/// A chat model behind an OpenAI-compatible endpoint.
pub struct OpenAiLlm {
    client: Client<OpenAIConfig>,
    streaming: Client<OpenAIConfig>,
    options: OpenAiLlmOptions,
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
        Ok(Self {
            client: options.endpoint.build_client(http, Answers::Whole)?,
            streaming: options.endpoint.build_client(http, Answers::Streamed)?,
            options,
        })
    }

    fn chat_request_body<'a>(&'a self, request: &'a LlmRequest, stream: bool) -> ChatRequest<'a> {
        let cap = Some(request.max_output_tokens);
        let client_fields = request.client.as_ref().map(|client| &client.fields);
        let client_sets = |name: &str| client_fields.is_some_and(|fields| fields.contains_key(name));
        let (max_tokens, max_completion_tokens) = if self.options.max_completion_tokens {
            (None, cap)
        } else {
            (cap, None)
        };
        ChatRequest {
            model: request.model.as_deref().unwrap_or(&self.options.model),
            messages: Messages {
                messages: &request.messages,
                cache_marks: self.options.explicit_cache_marks,
            },
            max_tokens,
            max_completion_tokens,
            temperature: (!client_sets("temperature")).then_some(request.temperature),
            // With custom types, async-openai does not set this field.
            stream,
            stream_options: stream.then_some(StreamOptions { include_usage: true }),
            response_format: request
                .json_schema
                .as_ref()
                .filter(|_| self.options.supports_json_schema && !client_sets("response_format"))
                .map(ResponseFormat::from_schema),
            client_fields,
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
        let answer = choice.message;
        match (answer.content, answer.refusal) {
            (None, Some(_)) => Err(declined_error()),
            (content, _) => Ok(Completion {
                at_cap,
                text: content.unwrap_or_default(),
                usage: response.usage.map(Usage::from).unwrap_or_default(),
                model: response
                    .model
                    .or_else(|| request.model.clone())
                    .unwrap_or_else(|| self.options.model.clone()),
            }),
        }
    }

    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let chat = self.streaming.chat().headers(task_headers(request));
        let body = self.chat_request_body(request, true);
        let events = timeout(request.timeout, chat.create_stream_byot(body))
            .await
            .map_err(|_| LlmError::Timeout)?
            .map_err(classify_error)?;
        let reader = ChunkReader {
            events,
            idle: request.timeout,
            finished: false,
            at_cap: false,
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

/// The model refused to answer. Its reasons quote the prompt, so they are left out.
fn declined_error() -> LlmError {
    LlmError::Refused("the model declined to answer".into())
}

/// Turns an endpoint's events into chunks, and separates a proper end from a break.
struct ChunkReader {
    /// Ends at `[DONE]` or with the connection, and async-openai shows no difference. The reliable end mark is
    /// therefore a choice's `finish_reason`, which every such endpoint sends.
    events: StreamResponse<ChatChunk>,
    idle: Duration,
    finished: bool,
    /// True if the end mark reported the output cap and the chunk for it is not sent yet.
    at_cap: bool,
    usage: Option<Usage>,
}

impl ChunkReader {
    async fn next_chunk(&mut self) -> Option<Result<Chunk, LlmError>> {
        loop {
            if std::mem::take(&mut self.at_cap) {
                return Some(Ok(Chunk::AtCap));
            }
            let wait = if self.finished {
                self.idle.min(USAGE_GRACE)
            } else {
                self.idle
            };
            let event = match timeout(wait, self.events.next()).await {
                Ok(Some(Ok(event))) => event,
                // The text is complete, so a later failure does not affect it.
                _ if self.finished => return self.usage.take().map(|usage| Ok(Chunk::Usage(usage))),
                Ok(Some(Err(error))) => return Some(Err(classify_error(error))),
                Ok(None) => return Some(Err(LlmError::Broken("the stream ended without its end mark".into()))),
                Err(_) => return Some(Err(LlmError::Timeout)),
            };
            if let Some(error) = event.error {
                return Some(Err(answer_error(&error)));
            }
            // Some endpoints repeat the usage with every event. The last usage counts.
            if let Some(usage) = event.usage {
                self.usage = Some(usage.into());
            }
            let Some(choice) = event.choices.into_iter().next() else {
                continue;
            };
            self.finished |= choice.finish_reason.is_some();
            self.at_cap |= choice.finish_reason.as_deref() == Some(AT_CAP);
            if let Some(delta) = choice.delta {
                if let Some(text) = delta.content.filter(|text| !text.is_empty()) {
                    return Some(Ok(Chunk::Text(text)));
                }
                if delta.refusal.is_some_and(|text| !text.is_empty()) {
                    return Some(Err(declined_error()));
                }
            }
        }
    }
}
