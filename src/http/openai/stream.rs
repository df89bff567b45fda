//! A streamed answer. A client that hangs up has heard what was sent by then: the reply ends there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix_web::{HttpResponse, http::header, web};
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{
    answer::{ChatChunk, ChunkChoice, ChunkUsage, Delta, FinishReason},
    errors::ErrorBody,
    prepared_talk::{PreparedTalk, RunningReply, SESSION_HEADER},
    request::ChatCompletionRequest,
    tool_calls::ReplyOutcome,
};
use crate::{
    AppState,
    errors::{Code, Problem},
    settings::STREAM_QUEUE,
    sse::{ListenerGuard, SseListener, SseStream},
};
use colloquy_actors::{AcceptedLine, HeardLength, InterruptCommand, VisibleEvent};
use colloquy_core::{
    ids::{DialogueId, TurnId},
    scope::Principal,
};
use colloquy_dialogue::{
    events::EventBody,
    turn::{ChatRequest, TurnError},
};
use colloquy_memory::turn::{Turn, TurnStatus, Usage};

/// A comment, which clients skip.
const HEARTBEAT: Bytes = Bytes::from_static(b": waiting for the model\n\n");
pub const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");
/// How often a line that still waits is to be cut, and the pause between: longer than a line waits for memory.
const MAX_CUT_ATTEMPTS: u32 = 20;
const CUT_RETRY_DELAY: Duration = Duration::from_millis(150);
/// Pieces that wait for a slow client.
const QUEUED_PIECES: usize = 16;

/// A piece of the answer, with the length of the reply up to its end, in Unicode scalar values.
struct Piece {
    bytes: Bytes,
    reply_chars: usize,
}

/// A turn that has not ended.
type PendingTurn = oneshot::Receiver<Result<Arc<Turn>, Arc<TurnError>>>;

/// Cuts the running reply on drop, at the text that was sent.
pub struct CutOnDrop {
    state: web::Data<AppState>,
    principal: Principal,
    session: DialogueId,
    /// The number of the turn.
    number: u32,
    sent_chars: Arc<AtomicUsize>,
    armed: bool,
}

impl CutOnDrop {
    pub fn new(talk: &PreparedTalk, sent_chars: Arc<AtomicUsize>) -> Self {
        Self {
            state: talk.state.clone(),
            principal: talk.principal.clone(),
            session: talk.session,
            number: talk.number,
            sent_chars,
            armed: true,
        }
    }

    /// Names the turn, once the turn has begun.
    pub fn set_number(&mut self, number: u32) {
        self.number = number;
    }

    /// The reply was sent whole.
    pub fn disarm(mut self) {
        self.armed = false;
    }

    fn command(&self) -> InterruptCommand {
        InterruptCommand {
            turn: Some(self.number),
            heard_length: Some(HeardLength::Chars(self.sent_chars.load(Ordering::Acquire))),
            key: None,
            // A later turn is of another request.
            if_head: Some(self.number),
            who: self.principal.clone(),
        }
    }

    /// Cuts the reply at the text that was sent.
    async fn cut_now(mut self) {
        self.armed = false;
        let command = self.command();
        let scope = self.principal.scope();
        let interrupt = self.state.sessions.interrupt_dialogue(&scope, self.session, command);
        if let Err(error) = interrupt.await {
            // The next request shows what the client has heard.
            tracing::debug!(session = %self.session, %error, "an abandoned reply could not be cut");
        }
    }
}

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        if self.armed {
            let state = self.state.clone();
            let scope = self.principal.scope();
            let session = self.session;
            let command = self.command();
            actix_web::rt::spawn(async move {
                // The line may still wait for its turn.
                for _ in 0..MAX_CUT_ATTEMPTS {
                    let result = state
                        .sessions
                        .interrupt_dialogue(&scope, session, command.clone())
                        .await;
                    let Err(error) = result else { return };
                    tracing::debug!(%session, %error, "an abandoned reply could not be cut");
                    tokio::time::sleep(CUT_RETRY_DELAY).await;
                }
            });
        }
    }
}

/// The form of a streamed reply.
pub trait ReplyFrames {
    /// Returns the frames before the first word.
    fn opening(&mut self) -> Bytes;
    /// Returns the frame of new words.
    fn words(&mut self, new_text: &str) -> Bytes;
    /// Returns the frame of pieces of tool calls, which come only if the request asks for tools.
    fn tool_calls(&mut self, _pieces: &[Value]) -> Bytes {
        Bytes::new()
    }
    /// Returns the frames after the last word. `turn` tells a cut reply from one at its limit.
    fn ending(&mut self, reason: FinishReason, turn: TurnStatus, usage: Usage) -> Bytes;
}

/// A stream whose first reply is under way.
pub struct OpenedStream {
    pub stream: ReplyStream,
    pub running: RunningReply,
    pub mark: Arc<str>,
    /// The response for the client. Its body ends with the stream.
    pub response: HttpResponse,
    pub attachment: ListenerGuard,
}

/// Asks for the reply of a talk, and makes the stream for its pieces.
///
/// # Errors
/// As of a line, if the line is not accepted.
pub async fn open_stream(mut talk: PreparedTalk) -> Result<OpenedStream, Problem> {
    let (calls, tool_calls) = mpsc::unbounded_channel();
    talk.tool_calls = talk.may_call_tools().then_some(calls);
    let (feed, events) = mpsc::channel(STREAM_QUEUE);
    let listener = SseListener::new(feed, talk.principal.role);
    let scope = talk.principal.scope();
    let attached = talk
        .state
        .sessions
        .attach_listener(&scope, talk.session, Arc::new(listener), None)
        .await?;
    let attachment = ListenerGuard::new(&talk.state, scope, talk.session, attached.listener);
    let mark = new_mark();
    let running = talk.begin_reply(true, Some(mark.clone())).await?;

    let (piece_sender, mut pieces) = mpsc::channel::<Piece>(QUEUED_PIECES);
    let sent_chars = Arc::new(AtomicUsize::new(0));
    let sent_counter = Arc::clone(&sent_chars);
    let body = stream::poll_fn(move |cx| {
        pieces.poll_recv(cx).map(|piece| {
            let piece = piece?;
            sent_counter.store(piece.reply_chars, Ordering::Release);
            Some(Ok::<_, Problem>(piece.bytes))
        })
    });
    let response = HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        // Buffering proxies would hold the pieces back.
        .insert_header(("x-accel-buffering", "no"))
        .insert_header((SESSION_HEADER, talk.session.to_string()))
        .content_type("text/event-stream")
        .streaming(body);
    Ok(OpenedStream {
        stream: ReplyStream {
            talk,
            piece_sender,
            events,
            tool_calls,
            sent_chars,
        },
        running,
        mark,
        response,
        attachment,
    })
}

/// Answers with a stream of chunks.
///
/// # Errors
/// As of a line, if the line is not accepted. Later errors are part of the stream.
pub async fn stream_answer(
    talk: PreparedTalk,
    completion_request: &ChatCompletionRequest,
) -> Result<HttpResponse, Problem> {
    let count = if talk.goes_on() { 1 } else { completion_request.choices };
    let opened = open_stream(talk).await?;
    let mut answer = StreamedAnswer {
        form: ChunkForm {
            id: format!("chatcmpl-{}", &opened.mark[4..]),
            created: opened.stream.talk.state.services.clock.now().timestamp(),
            model: completion_request.model.clone(),
            with_usage: completion_request.include_usage,
            index: 0,
        },
        stream: opened.stream,
    };
    let running = opened.running;
    let mark = opened.mark;
    let attachment = opened.attachment;
    actix_web::rt::spawn(async move {
        let talk = &answer.stream.talk;
        let (caller, mut shutdown) = SseStream::with_shutdown(talk.principal.clone());
        let place = talk.state.streams.add_stream(&talk.state.auth, &caller);
        let result = answer.send_choices(count, running, mark, &mut shutdown).await;
        if let Err(problem) = result {
            let _ = answer.stream.send(to_frame(&ErrorBody::from(&problem)), 0).await;
        }
        drop((attachment, place, caller));
    });
    Ok(opened.response)
}

/// A mark for the events of one turn.
pub fn new_mark() -> Arc<str> {
    format!("cht_{:032x}", rand::random::<u128>()).into()
}

/// The client hung up.
pub struct HungUp;

/// The way of a talk's replies to the client.
pub struct ReplyStream {
    pub talk: PreparedTalk,
    piece_sender: mpsc::Sender<Piece>,
    events: mpsc::Receiver<VisibleEvent>,
    /// Pieces of tool calls. At most the output of one reply waits here.
    tool_calls: mpsc::UnboundedReceiver<Vec<Value>>,
    sent_chars: Arc<AtomicUsize>,
}

impl ReplyStream {
    /// Sends one reply. `None`: the client hung up, and the reply was cut.
    ///
    /// # Errors
    /// The turn failed, the client does not keep up, or the server stops.
    pub async fn send_reply(
        &mut self,
        form: &mut impl ReplyFrames,
        running: RunningReply,
        mark: &str,
        shutdown: &mut mpsc::Receiver<Problem>,
    ) -> Result<Option<SentReply>, Problem> {
        self.sent_chars.store(running.heard_chars, Ordering::Release);
        let mut guard = CutOnDrop::new(&self.talk, Arc::clone(&self.sent_chars));
        let mut has_hung_up = self.send(form.opening(), running.heard_chars).await.is_err();
        let (mut pending_turn, repeated) = match running.accepted {
            AcceptedLine::Turn { done: pending_turn } => (Some(pending_turn), None),
            AcceptedLine::Repeated(turn) => (None, Some(Ok(ReplyOutcome::Turn(turn)))),
        };
        let heartbeat = Duration::from_millis(self.talk.state.chat.heartbeat_ms);
        let mut number = None;
        let mut outcome = repeated;
        let mut shown_chars = running.known_chars;
        while outcome.is_none() {
            let event = tokio::select! {
                biased;
                Some(problem) = shutdown.recv() => return Err(problem),
                () = self.piece_sender.closed(), if !has_hung_up => {
                    has_hung_up = true;
                    if number.is_none() {
                        // A line that still waits cannot be cut.
                        continue;
                    }
                    guard.cut_now().await;
                    return Ok(None);
                }
                event = self.events.recv() => event,
                Some(pieces) = self.tool_calls.recv() => {
                    if self.send(form.tool_calls(&pieces), shown_chars).await.is_err() {
                        guard.cut_now().await;
                        return Ok(None);
                    }
                    continue;
                }
                // Events come first, so all text was sent when the turn has ended.
                reply = wait_for_reply(&mut pending_turn) => {
                    outcome = Some(reply);
                    continue;
                }
                () = tokio::time::sleep(heartbeat), if !has_hung_up => {
                    let _ = self.send(HEARTBEAT, shown_chars).await;
                    continue;
                }
            };
            let Some(event) = event else {
                return Err(Problem::new(Code::SlowConsumer, "the client does not keep up"));
            };
            match &event.body {
                EventBody::TurnStarted { turn } if event.re.as_deref() == Some(mark) => {
                    number = Some(*turn);
                    guard.number = *turn;
                    if has_hung_up {
                        guard.cut_now().await;
                        return Ok(None);
                    }
                }
                EventBody::ReplyDelta { turn, offset, text, .. } if number == Some(*turn) => {
                    let skipped_chars = shown_chars.saturating_sub(*offset);
                    let new_text: String = text.chars().skip(skipped_chars).collect();
                    shown_chars = shown_chars.max(offset + text.chars().count());
                    if !new_text.is_empty() && self.send(form.words(&new_text), shown_chars).await.is_err() {
                        guard.cut_now().await;
                        return Ok(None);
                    }
                }
                _ => {}
            }
        }
        // Nothing runs any more. After a failure, a cut would meet the next try.
        guard.disarm();
        let Some(outcome) = outcome.transpose()? else {
            return Ok(None);
        };
        Ok(Some(self.send_end(form, &outcome, &running.chat, shown_chars).await))
    }

    /// Sends the end of a reply of which `shown_chars` Unicode scalar values were sent.
    async fn send_end(
        &mut self,
        form: &mut impl ReplyFrames,
        outcome: &ReplyOutcome,
        chat: &ChatRequest,
        shown_chars: usize,
    ) -> SentReply {
        // A repeated line has no events, and a slow event may be behind the commit.
        let unsent_text: String = outcome.text().chars().skip(shown_chars).collect();
        if !unsent_text.is_empty() {
            let _ = self.send(form.words(&unsent_text), usize::MAX).await;
        }
        let status = outcome.turn().map_or(TurnStatus::Completed, |turn| turn.status);
        let usage = outcome.usage_for(self.talk.principal.role);
        let ending = form.ending(outcome.finish_reason(chat), status, usage);
        let _ = self.send(ending, usize::MAX).await;
        self.talk.record_outcome(outcome);
        SentReply {
            is_turn: outcome.turn().is_some(),
            usage,
        }
    }

    /// Sends a frame. `reply_chars` is the length of the reply up to its end, in Unicode scalar values.
    ///
    /// # Errors
    /// The client hung up.
    pub async fn send(&self, bytes: Bytes, reply_chars: usize) -> Result<(), HungUp> {
        self.piece_sender
            .send(Piece { bytes, reply_chars })
            .await
            .map_err(|_| HungUp)
    }
}

/// A reply that was sent whole.
pub struct SentReply {
    /// False if the reply called tools.
    pub is_turn: bool,
    /// The tokens of the reply, as the caller may see them.
    pub usage: Usage,
}

/// Replies as chunks of the OpenAI API.
struct ChunkForm {
    id: String,
    created: i64,
    model: String,
    with_usage: bool,
    /// The number of the reply among several.
    index: u32,
}

impl ChunkForm {
    fn chunk(&self, choices: &[ChunkChoice<'_>], usage: ChunkUsage) -> Bytes {
        to_frame(&ChatChunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.model,
            choices,
            usage,
        })
    }

    fn choice(&self, delta: Delta<'_>, finish_reason: Option<FinishReason>) -> Bytes {
        let choice = ChunkChoice {
            index: self.index,
            delta,
            logprobs: None,
            finish_reason,
        };
        self.chunk(std::slice::from_ref(&choice), ChunkUsage::before_end(self.with_usage))
    }
}

impl ReplyFrames for ChunkForm {
    fn opening(&mut self) -> Bytes {
        let role = Delta {
            role: Some("assistant"),
            content: Some(""),
            ..Delta::default()
        };
        self.choice(role, None)
    }

    fn words(&mut self, new_text: &str) -> Bytes {
        let delta = Delta {
            content: Some(new_text),
            ..Delta::default()
        };
        self.choice(delta, None)
    }

    fn tool_calls(&mut self, pieces: &[Value]) -> Bytes {
        let delta = Delta {
            tool_calls: pieces,
            ..Delta::default()
        };
        self.choice(delta, None)
    }

    fn ending(&mut self, reason: FinishReason, _: TurnStatus, _: Usage) -> Bytes {
        self.choice(Delta::default(), Some(reason))
    }
}

/// An answer while it is sent.
pub struct StreamedAnswer {
    form: ChunkForm,
    stream: ReplyStream,
}

impl StreamedAnswer {
    /// An id for an answer that is no turn.
    pub fn new_id() -> String {
        format!("chatcmpl-{:032x}", rand::random::<u128>())
    }

    /// The id of an answer that is one turn.
    pub fn id_of(turn: TurnId) -> String {
        let turn = turn.to_string();
        format!("chatcmpl-{}", turn.rsplit('_').next().unwrap_or_default())
    }

    /// Sends all replies, the first one last: that one stands until a later request shows another one.
    async fn send_choices(
        &mut self,
        count: u32,
        running: RunningReply,
        mark: Arc<str>,
        shutdown: &mut mpsc::Receiver<Problem>,
    ) -> Result<(), Problem> {
        let mut next_reply = Some((running, mark));
        let mut usage = Usage::default();
        let mut has_turn = false;
        for index in (0..count).rev() {
            let (running, mark) = if let Some(reply) = next_reply.take() {
                reply
            } else {
                let mark = new_mark();
                let reply = self.stream.talk.begin_reply(!has_turn, Some(mark.clone()));
                (reply.await?, mark)
            };
            self.form.index = index;
            let sent_reply = self.stream.send_reply(&mut self.form, running, &mark, shutdown).await?;
            let Some(sent_reply) = sent_reply else {
                return Ok(());
            };
            has_turn = sent_reply.is_turn;
            usage += sent_reply.usage;
        }
        if self.form.with_usage {
            let chunk = self.form.chunk(&[], ChunkUsage::Total(usage.into()));
            let _ = self.stream.send(chunk, 0).await;
        }
        let _ = self.stream.send(DONE, 0).await;
        Ok(())
    }
}

/// Awaits the end of a turn.
async fn wait_for_reply(pending_turn: &mut Option<PendingTurn>) -> Result<ReplyOutcome, Problem> {
    match pending_turn {
        Some(received) => ReplyOutcome::from_ended(received.await),
        None => std::future::pending().await,
    }
}

pub fn to_frame(value: &impl Serialize) -> Bytes {
    // The values have only texts and numbers, so serialization cannot fail. JSON has no raw line breaks.
    let json = serde_json::to_string(value).unwrap_or_default();
    Bytes::from(format!("data: {json}\n\n"))
}
