//! The mock server on actix-web.

use std::{net::SocketAddr, sync::Arc, thread, time::Duration};

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    dev::{Server, ServerHandle},
    http::{StatusCode, header::ContentType},
    rt::{System, time::sleep},
    web::{self, Data, PayloadConfig},
};
use anyhow::Context as _;
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;

use super::{
    answers::{self, MockChatRequest, ReplyScript},
    embeddings,
    options::{CallKind, FaultKind, MockOptions},
    state::{AnswerGuard, MockState, MockStats},
    tool_calls::MockToolCalls,
};
use colloquy_ports::llm::Task;

/// The largest request body, in bytes.
const MAX_BODY: usize = 8 * 1024 * 1024;
/// Long enough for the connection to write its pending data.
const FLUSH: Duration = Duration::from_millis(10);
/// The header in which a client names the task of a call.
const TASK_HEADER: &str = "x-colloquy-task";

/// Serves until the process gets a stop signal.
pub async fn run(options: MockOptions) -> anyhow::Result<()> {
    let state = Arc::new(MockState::new(&options).map_err(anyhow::Error::msg)?);
    let (server, addr) = bind_server(&options, &state, true)?;
    tracing::info!(%addr, "mock model is listening");
    server.await.context("the mock server failed")
}

/// Starts a server on a separate thread, for tests.
///
/// # Errors
/// If the address cannot be bound or an option is out of range.
pub fn start_on_thread(options: MockOptions) -> anyhow::Result<MockHandle> {
    let state = Arc::new(MockState::new(&options).map_err(anyhow::Error::msg)?);
    let (started, ready) = std::sync::mpsc::sync_channel(1);
    let serving = state.clone();
    let thread = thread::Builder::new().name("mock-llm".into()).spawn(move || {
        System::new().block_on(async move {
            match bind_server(&options, &serving, false) {
                Ok((server, addr)) => {
                    // On an error here, the caller no longer waits and nobody needs the server.
                    if started.send(Ok((server.handle(), addr))).is_ok() {
                        let _ = server.await;
                    }
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        });
    })?;
    let (server, addr) = ready.recv().context("the mock server's thread ended")??;
    Ok(MockHandle {
        addr,
        state,
        server,
        thread: Some(thread),
    })
}

/// A server started by [`start_on_thread`]. Stops when dropped.
pub struct MockHandle {
    addr: SocketAddr,
    state: Arc<MockState>,
    server: ServerHandle,
    thread: Option<thread::JoinHandle<()>>,
}

impl MockHandle {
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
    /// Returns the base URL for a client.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }
    /// Changes settings, as `POST /control` does.
    ///
    /// # Errors
    /// Describes an unknown field or a value out of range.
    pub fn apply_settings(&self, patch: &serde_json::Value) -> Result<(), String> {
        self.state.apply_patch(patch).map(drop)
    }
    pub fn stats(&self) -> MockStats {
        self.state.stats()
    }
    /// Returns the number of calls of a task (`reply`, …, `embedding`).
    pub fn calls_of(&self, task: &str) -> u64 {
        self.stats().calls.get(task).copied().unwrap_or_default()
    }
    /// Returns the last requests of a task, newest last. At most 64 requests of all tasks are stored.
    pub fn requests_of(&self, task: &str) -> Vec<serde_json::Value> {
        CallKind::parse(task).map_or_else(Vec::new, |call| self.state.requests_of(call))
    }
    /// Waits until clients have abandoned at least `count` answers.
    pub async fn wait_for_aborted(&self, count: u64) {
        let mut aborted = self.state.subscribe_aborted();
        // The sender lives in `self.state`.
        let _ = aborted.wait_for(|aborted_count| *aborted_count >= count).await;
    }
    /// Stops at once and cuts running answers.
    pub fn stop(mut self) {
        self.shut_down();
    }
    fn shut_down(&mut self) {
        // The call itself sends the command. The future only waits for the end, and `join` does the same.
        drop(self.server.stop(false));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for MockHandle {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn bind_server(options: &MockOptions, state: &Arc<MockState>, signals: bool) -> anyhow::Result<(Server, SocketAddr)> {
    let state = Data::from(state.clone());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(state.clone())
            .app_data(PayloadConfig::new(MAX_BODY))
            .route("/v1/chat/completions", web::post().to(post_chat))
            .route("/v1/embeddings", web::post().to(post_embeddings))
            .route("/v1/models", web::get().to(list_models))
            .route("/control", web::post().to(post_control))
            .route("/control/stats", web::get().to(get_stats))
            .route("/control/requests/{task}", web::get().to(get_requests))
    })
    .tcp_nodelay(true)
    .workers(options.workers.max(1))
    // A client that closes its side is gone: its request is dropped and counted as aborted.
    .h1_allow_half_closed(false)
    .shutdown_timeout(1);
    let server = if signals { server } else { server.disable_signals() };
    let server = server
        .bind(options.listen)
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    let addr = server.addrs().first().copied().context("no address was bound")?;
    Ok((server.run(), addr))
}

fn error_response(status: StatusCode, message: &str) -> HttpResponse {
    HttpResponse::build(status).json(json!({"error": {"message": message, "type": "mock", "code": null}}))
}

fn unreadable_response(expected: &str, error: &serde_json::Error) -> HttpResponse {
    error_response(StatusCode::BAD_REQUEST, &format!("the body is not {expected}: {error}"))
}

/// Applies the faults that are equal for all kinds of calls; `None` means no such fault.
async fn common_fault(
    fault: FaultKind,
    call: CallKind,
    settings: &MockOptions,
    body: &[u8],
    witness: &mut AnswerGuard,
) -> Option<HttpResponse> {
    let jitter = if settings.jitter_ms == 0 {
        0
    } else {
        rand::random_range(0..=settings.jitter_ms)
    };
    let slow = if fault == FaultKind::Slow { settings.slow_ms } else { 0 };
    let wait = settings.latency_ms + jitter + slow;
    if wait > 0 {
        sleep(Duration::from_millis(wait)).await;
    }
    if fault == FaultKind::Hold {
        witness.wait_until_released(call).await;
    }
    let response = match fault {
        FaultKind::ServerError => error_response(StatusCode::INTERNAL_SERVER_ERROR, "the mock fails as it was told to"),
        FaultKind::Refuse => error_response(StatusCode::BAD_REQUEST, "the mock refuses as it was told to"),
        FaultKind::Echo => error_response(StatusCode::BAD_REQUEST, &echo_texts(body)),
        FaultKind::EchoBody => {
            let text = echo_texts(body);
            let answer = json!({"choices": text, "data": text}).to_string();
            match call {
                // A client of a stream expects events.
                CallKind::Chat(Task::Reply) => HttpResponse::Ok()
                    .content_type("text/event-stream")
                    .body(format!("data: {answer}\n\n")),
                _ => HttpResponse::Ok().content_type(ContentType::json()).body(answer),
            }
        }
        FaultKind::RateLimited => {
            let mut limited = error_response(StatusCode::TOO_MANY_REQUESTS, "the mock limits as it was told to");
            let ms = settings.retry_after_ms;
            for (name, value) in [("retry-after", ms.div_ceil(1_000)), ("retry-after-ms", ms)] {
                limited
                    .headers_mut()
                    .insert(actix_web::http::header::HeaderName::from_static(name), value.into());
            }
            limited
        }
        FaultKind::Hang => std::future::pending().await,
        _ => return None,
    };
    witness.mark_done();
    Some(response)
}

/// Returns all texts of a request, as endpoints repeat them in errors.
fn echo_texts(body: &[u8]) -> String {
    fn collect_texts(value: &serde_json::Value) -> String {
        match value {
            serde_json::Value::String(text) => format!("{text}\r\n"),
            serde_json::Value::Array(values) => values.iter().rev().map(collect_texts).collect(),
            serde_json::Value::Object(fields) => fields.values().map(collect_texts).collect(),
            _ => String::new(),
        }
    }
    let request: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let messages = collect_texts(&request["messages"]);
    let input = collect_texts(&request["input"]);
    format!("invalid \u{1b}[31mprompt\u{1b}[0m:\n{messages}{input}")
}

async fn post_chat(http: HttpRequest, body: Bytes, state: Data<MockState>) -> HttpResponse {
    let request: MockChatRequest<'_> = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return unreadable_response("a chat request", &error),
    };
    let header = http.headers().get(TASK_HEADER).and_then(|name| name.to_str().ok());
    let task = request.detect_task(header);
    let (settings, script) = state.settings();
    let (number, fault) = state.record_call(CallKind::Chat(task), &body, &settings);
    let mut witness = AnswerGuard::new(state.clone().into_inner());
    if let Some(failed) = common_fault(fault, CallKind::Chat(task), &settings, &body, &mut witness).await {
        return failed;
    }
    if request.is_refused_by(fault) {
        witness.mark_done();
        return error_response(
            StatusCode::BAD_REQUEST,
            "the mock does not know a field, as it was told to",
        );
    }
    let prompt_tokens = body.len() / 4;
    let json_task = !matches!(task, Task::Reply | Task::Intent);
    let fault = match fault {
        FaultKind::InvalidJson if !json_task => FaultKind::InvalidBody,
        other => other,
    };
    let pace = (settings.tokens_per_s > 0).then(|| Duration::from_secs(1) / settings.tokens_per_s);
    let usage = |completion| request.wants_usage().then_some((prompt_tokens, completion));
    let tool_calls = MockToolCalls::for_request(&request, &settings, number);
    if let Some(calls) = tool_calls.filter(|_| task == Task::Reply) {
        if !request.stream {
            witness.mark_done();
            return calls.whole(prompt_tokens);
        }
        let events = calls.events();
        let full_stream = events.concat().into();
        let pieces = events.len() - 1;
        return streamed_body(fault, events, &full_stream, usage(pieces), pace, witness);
    }
    let text = match fault {
        FaultKind::InvalidJson => r#"{"facts": [{"subject": "#.into(),
        FaultKind::IgnoreSchema => "Well, let me see.".into(),
        _ => answers::answer_text(task, &request, number, &settings, &script),
    };
    if request.stream {
        let usage = usage(script.events.len() - 1);
        let (events, full_stream) = stream_events(task, fault, &script, &text);
        return streamed_body(fault, events, &full_stream, usage, pace, witness);
    }
    whole_body(fault, whole_answer(fault, &text, prompt_tokens), witness)
}

/// Returns the events of a stream, each alone and all as one piece: the script for a reply, or `text`.
fn stream_events(task: Task, fault: FaultKind, script: &ReplyScript, text: &str) -> (Vec<Bytes>, Bytes) {
    if task == Task::Reply {
        return match answers::modify_events(fault, script) {
            Some(events) => (events.clone(), events.concat().into()),
            None => (script.events.clone(), script.whole.clone()),
        };
    }
    let end = script.events.last().cloned().unwrap_or_default();
    let events = vec![answers::delta_event(text), end];
    let full_stream = events.concat().into();
    (events, full_stream)
}

/// Returns the answer to a request without a stream.
fn whole_answer(fault: FaultKind, text: &str, prompt_tokens: usize) -> String {
    let completion_tokens = text.len().div_ceil(4);
    let mut message = json!({"role": "assistant", "content": answers::with_thought(fault, text)});
    if fault == FaultKind::Reasoning {
        message["reasoning_content"] = json!(answers::THOUGHT);
    }
    format!(
        "{{\"id\":\"mock\",\"object\":\"chat.completion\",\"created\":0,\"model\":\"{}\",\"choices\":[{{\"index\":0,\
         \"message\":{message},\"finish_reason\":\"stop\"}}],\"usage\":{}}}",
        answers::MODEL,
        answers::usage_json(prompt_tokens, completion_tokens)
    )
}

/// Returns a JSON body, modified by the fault.
fn whole_body(fault: FaultKind, mut body: String, mut witness: AnswerGuard) -> HttpResponse {
    let middle = body.len() / 2;
    let middle = (0..=middle)
        .rev()
        .find(|index| body.is_char_boundary(*index))
        .unwrap_or_default();
    let mut response = HttpResponse::Ok();
    response.insert_header(ContentType::json());
    if let Some(end) = StreamEnd::of_fault(fault) {
        body.truncate(middle);
        return response.streaming(event_stream(vec![body.into()], None, end, witness));
    }
    if matches!(fault, FaultKind::NoEndMark | FaultKind::InvalidBody) {
        body.truncate(middle);
    }
    witness.mark_done();
    response.body(body)
}

/// Returns a stream of events, in one piece if no pause or fault needs several.
fn streamed_body(
    fault: FaultKind,
    mut events: Vec<Bytes>,
    full_stream: &Bytes,
    usage: Option<(usize, usize)>,
    pace: Option<Duration>,
    mut witness: AnswerGuard,
) -> HttpResponse {
    let half = events.len() / 2;
    let mut response = HttpResponse::Ok();
    response.content_type("text/event-stream");
    if let Some(end) = StreamEnd::of_fault(fault) {
        events.truncate(half);
        return response.streaming(event_stream(events, pace, end, witness));
    }
    match fault {
        FaultKind::NoEndMark => {
            witness.mark_done();
            response.body(events[..half].concat())
        }
        FaultKind::InvalidBody => {
            witness.mark_done();
            response.body("data: {oops\n\n")
        }
        _ => {
            let tail = answers::end_events(usage);
            if pace.is_none() {
                witness.mark_done();
                return response.body([full_stream.as_ref(), tail.as_ref()].concat());
            }
            // The end mark and the tail are sent together.
            let end = [events.pop().unwrap_or_default(), tail].concat();
            events.push(end.into());
            response.streaming(event_stream(events, pace, StreamEnd::End, witness))
        }
    }
}

/// The end of a stream after its last piece.
#[derive(Clone, Copy, PartialEq)]
enum StreamEnd {
    /// A normal end.
    End,
    /// A broken connection.
    Break,
    /// Silence on an open connection.
    Silence,
}

impl StreamEnd {
    /// The end of half an answer, if the fault breaks off the answer.
    fn of_fault(fault: FaultKind) -> Option<Self> {
        match fault {
            FaultKind::BrokenStream => Some(Self::Break),
            FaultKind::Stall => Some(Self::Silence),
            _ => None,
        }
    }
}

fn event_stream(
    events: Vec<Bytes>,
    pace: Option<Duration>,
    after: StreamEnd,
    witness: AnswerGuard,
) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
    stream::unfold(Some((events.into_iter(), witness)), move |state| async move {
        let (mut events, mut witness) = state?;
        if let Some(event) = events.next() {
            if let Some(pace) = pace {
                sleep(pace).await;
            }
            // A client may leave as soon as it has seen the end mark.
            if after == StreamEnd::End && events.len() == 0 {
                witness.mark_done();
            }
            return Some((Ok(event), Some((events, witness))));
        }
        match after {
            StreamEnd::End => None,
            StreamEnd::Break => {
                // When a body fails, actix discards all data that it has not yet written.
                sleep(FLUSH).await;
                witness.mark_done();
                let broken = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "as it was told to");
                Some((Err(broken), None))
            }
            StreamEnd::Silence => std::future::pending().await,
        }
    })
}

#[derive(Deserialize)]
struct MockEmbeddingRequest {
    input: EmbeddingInput,
    model: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum EmbeddingInput {
    One(String),
    Many(Vec<String>),
}

async fn post_embeddings(body: Bytes, state: Data<MockState>) -> HttpResponse {
    let request: MockEmbeddingRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return unreadable_response("an embedding request", &error),
    };
    let (settings, _) = state.settings();
    let (_, fault) = state.record_call(CallKind::Embedding, &body, &settings);
    let mut witness = AnswerGuard::new(state.clone().into_inner());
    if let Some(failed) = common_fault(fault, CallKind::Embedding, &settings, &body, &mut witness).await {
        return failed;
    }
    let texts = match request.input {
        EmbeddingInput::One(text) => vec![text],
        EmbeddingInput::Many(texts) => texts,
    };
    let tokens = texts.iter().map(|text| text.len().div_ceil(4)).sum::<usize>();
    // In reverse order: the API promises an index, not an order, and clients must not rely on an order.
    let rows: Vec<_> = texts
        .iter()
        .enumerate()
        .rev()
        .map(|(index, text)| {
            json!({"object": "embedding", "index": index, "embedding": embeddings::embed_words(text, settings.dimensions)})
        })
        .collect();
    let answer = json!({
        "object": "list",
        "data": rows,
        "model": request.model.as_deref().unwrap_or(answers::MODEL),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    });
    let fault = if fault == FaultKind::InvalidJson {
        FaultKind::InvalidBody
    } else {
        fault
    };
    whole_body(fault, answer.to_string(), witness)
}

async fn list_models() -> HttpResponse {
    HttpResponse::Ok().json(json!({
        "object": "list",
        "data": [{"id": answers::MODEL, "object": "model", "created": 0, "owned_by": "colloquy"}],
    }))
}

async fn post_control(patch: web::Json<serde_json::Value>, state: Data<MockState>) -> HttpResponse {
    match state.apply_patch(&patch) {
        Ok(settings) => HttpResponse::Ok().json(&*settings),
        Err(reason) => error_response(StatusCode::BAD_REQUEST, &reason),
    }
}

async fn get_stats(state: Data<MockState>) -> HttpResponse {
    HttpResponse::Ok().json(state.stats())
}

async fn get_requests(task: web::Path<String>, state: Data<MockState>) -> HttpResponse {
    match CallKind::parse(&task) {
        Some(call) => HttpResponse::Ok().json(state.requests_of(call)),
        None => error_response(StatusCode::NOT_FOUND, "there is no such task"),
    }
}
