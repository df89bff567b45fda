//! A connection: one task owns its state, and handles the client's events and those of the session in their order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix_web::web;
use bytestring::ByteString;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    client_events::{ClientEvent, Envelope},
    errors::RealtimeError,
    items::Conversation,
    response::{ActiveResponse, ResponseEnd, SentWords},
    server_events::EventBody,
    settings::SessionSettings,
    talk::{LaterTalk, OpenedTalk, SocketCaller, Talk, TalkEvents, TalkStart},
};
use crate::{
    AppState,
    errors::{Code, Problem},
    open_streams::{ClosableStream, OpenStreamGuard},
    socket::{
        MAX_EXPIRY_WATCH, MAX_INBOX,
        player_socket::{SentCounts, SocketConnection, SocketProtocol, close_code},
    },
    sse::SseStream,
};
use colloquy_actors::VisibleEvent;
use colloquy_core::{
    ids::{DialogueId, TurnId},
    scope::Principal,
};
use colloquy_tenancy::limits::{SocketLimit, SocketRefusal, SocketSeat};

/// Events that may wait, in multiples of the largest event.
const MAX_INBOX_EVENTS_OF_MOST_BYTES: usize = 4;

/// Returns the message of an error.
pub fn error_message(error: &RealtimeError, event_id: Option<&str>) -> String {
    EventBody::error(error, event_id).to_message()
}

/// The socket of a connection.
pub struct RealtimeSocket {
    limit: Mutex<SocketLimit>,
    /// `None`: the connection has ended.
    inbox: Mutex<Option<mpsc::Sender<ByteString>>>,
    waiting_bytes: Arc<AtomicUsize>,
    max_waiting_bytes: usize,
    /// Taken when the connection opens.
    start: Mutex<Option<ConnectionStart>>,
    /// The socket's seat among the sockets of its player, until the socket closes.
    seat: Mutex<Option<SocketSeat>>,
    is_forwarded: bool,
}

/// What the task of a connection begins with.
struct ConnectionStart {
    state: web::Data<AppState>,
    principal: Principal,
    opened: OpenedTalk,
    is_forwarded: bool,
    inbox: mpsc::Receiver<ByteString>,
}

impl RealtimeSocket {
    pub fn new(
        state: &web::Data<AppState>,
        principal: Principal,
        seat: Option<SocketSeat>,
        opened: OpenedTalk,
        is_forwarded: bool,
    ) -> Self {
        let (sender, inbox) = mpsc::channel(MAX_INBOX);
        Self {
            limit: Mutex::new(state.limits.new_socket_limit()),
            inbox: Mutex::new(Some(sender)),
            waiting_bytes: Arc::default(),
            max_waiting_bytes: state.chat.max_event_bytes * MAX_INBOX_EVENTS_OF_MOST_BYTES,
            start: Mutex::new(Some(ConnectionStart {
                state: state.clone(),
                principal,
                opened,
                is_forwarded,
                inbox,
            })),
            seat: Mutex::new(seat),
            is_forwarded,
        }
    }

    /// Returns why an event is not taken. The last value is true if the connection ends.
    fn refusal(&self, text: &ByteString) -> Option<(RealtimeError, bool)> {
        let rate_limit = if self.is_forwarded {
            Ok(())
        } else {
            self.limit.lock().check_message()
        };
        match rate_limit {
            Ok(()) => {}
            Err(SocketRefusal::Slow(fault)) => return Some((Problem::from(fault).into(), false)),
            Err(SocketRefusal::Abuse) => {
                let problem = Problem::new(Code::RateLimited, "this socket keeps sending too many events");
                return Some((problem.into(), true));
            }
        }
        let waiting = self.waiting_bytes.fetch_add(text.len(), Ordering::AcqRel) + text.len();
        let is_taken = waiting <= self.max_waiting_bytes
            && self
                .inbox
                .lock()
                .as_ref()
                .is_none_or(|inbox| inbox.try_send(text.clone()).is_ok());
        if is_taken {
            return None;
        }
        self.waiting_bytes.fetch_sub(text.len(), Ordering::AcqRel);
        let problem = Problem::new(Code::RateLimited, "too many events wait already");
        Some((problem.into(), false))
    }
}

impl SocketProtocol for RealtimeSocket {
    fn on_open(&self, connection: &Arc<SocketConnection>) {
        let Some(start) = self.start.lock().take() else { return };
        let connection = Arc::clone(connection);
        let waiting_bytes = Arc::clone(&self.waiting_bytes);
        actix_web::rt::spawn(async move {
            let (caller, shutdown) = SseStream::with_shutdown(start.principal.clone());
            let state = start.state.clone();
            let place = state.streams.add_stream(&state.auth, &caller);
            let task = Connection::new(start, Arc::clone(&connection), shutdown, waiting_bytes, (caller, place));
            // A panic of the task is a panic of `spawn`'s own task, so the client is told by a task of its own.
            if actix_web::rt::spawn(task.run()).await.is_err() {
                tracing::error!(connection = connection.id(), "a connection's task panicked");
                let problem = Problem::new(Code::Internal, "the server failed");
                let _ = connection.send_text(error_message(&problem.into(), None));
                connection.close_after_flush(close_code::INTERNAL, "internal");
            }
        });
    }

    fn on_text(&self, connection: &Arc<SocketConnection>, text: ByteString) {
        let Some((error, closes)) = self.refusal(&text) else {
            return;
        };
        let event_id = Envelope::event_id_of(&text);
        let _ = connection.send_text(error_message(&error, event_id.as_deref()));
        if closes {
            connection.close_after_flush(close_code::TOO_MANY, "too many events");
        }
    }

    fn on_close(&self, _: &Arc<SocketConnection>) {
        // The task ends with its inbox.
        drop(self.inbox.lock().take());
        drop(self.seat.lock().take());
    }
}

/// The state of a connection, owned by its task.
pub struct Connection {
    pub state: web::Data<AppState>,
    pub caller: SocketCaller,
    pub settings: SessionSettings,
    pub items: Conversation,
    pub talk: Option<Talk>,
    pub events: Option<TalkEvents>,
    pub response: Option<ActiveResponse>,
    pub sent_words: SentWords,
    /// Turns that the client has brought in.
    pub imported_turns: usize,
    later: Option<LaterTalk>,
    /// The id that the session has before it begins.
    provisional_id: String,
    /// True for a tunnel of another node, which has counted the messages for the tenant.
    is_forwarded: bool,
    socket: Arc<SocketConnection>,
    pub inbox: mpsc::Receiver<ByteString>,
    pub waiting_bytes: Arc<AtomicUsize>,
    pub shutdown: mpsc::Receiver<Problem>,
    _place: (Arc<dyn ClosableStream>, OpenStreamGuard),
}

/// What a connection does next.
enum NextStep {
    Shut(Problem),
    Expired,
    SessionEvent(Option<VisibleEvent>),
    ResponseEnded(ResponseEnd),
    Message(Option<ByteString>),
}

impl Connection {
    fn new(
        start: ConnectionStart,
        socket: Arc<SocketConnection>,
        shutdown: mpsc::Receiver<Problem>,
        waiting_bytes: Arc<AtomicUsize>,
        place: (Arc<dyn ClosableStream>, OpenStreamGuard),
    ) -> Self {
        let (talk, later) = match start.opened.start {
            TalkStart::Open(talk) => (Some(*talk), None),
            TalkStart::Later(later) => (None, Some(*later)),
        };
        Self {
            caller: SocketCaller::on_socket(start.principal),
            settings: SessionSettings::new(start.opened.model),
            items: Conversation::default(),
            talk,
            later,
            events: None,
            response: None,
            sent_words: SentWords::default(),
            imported_turns: 0,
            provisional_id: format!("sess_{:032x}", rand::random::<u128>()),
            is_forwarded: start.is_forwarded,
            state: start.state,
            inbox: start.inbox,
            socket,
            waiting_bytes,
            shutdown,
            _place: place,
        }
    }

    /// Serves the connection until it ends.
    async fn run(mut self) {
        let remaining_time = self.caller.principal.expires_at - self.state.services.clock.now();
        let remaining_time: Duration = remaining_time.to_std().unwrap_or_default().min(MAX_EXPIRY_WATCH);
        let expiry = tokio::time::sleep(remaining_time);
        tokio::pin!(expiry);
        if let Err(problem) = self.begin().await {
            let owner = problem.owner.as_deref().filter(|_| !self.is_forwarded);
            let opened = match owner {
                Some(owner) => self.open_owner_tunnel(*owner).await,
                None => Err(problem),
            };
            return match opened {
                Ok(to_owner) => self.relay_events(to_owner, expiry).await,
                Err(problem) => {
                    let code = match problem.code {
                        Code::Draining | Code::WrongNode => close_code::DRAINING,
                        _ => close_code::INTERNAL,
                    };
                    self.close(&problem, code, problem.code.as_str());
                }
            };
        }
        while !self.socket.is_gone() {
            let step = tokio::select! {
                biased;
                Some(problem) = self.shutdown.recv() => NextStep::Shut(problem),
                () = &mut expiry => NextStep::Expired,
                event = next_event(&mut self.events) => NextStep::SessionEvent(event),
                end = end_of_response(&mut self.response) => NextStep::ResponseEnded(end),
                text = next_message(&mut self.inbox, &self.waiting_bytes) => NextStep::Message(text),
            };
            match step {
                NextStep::Shut(problem) => self.close(&problem, close_code::UNAUTHENTICATED, "unauthenticated"),
                NextStep::Expired => {
                    self.close_expired();
                    expiry.as_mut().reset(tokio::time::Instant::now() + MAX_EXPIRY_WATCH);
                }
                NextStep::SessionEvent(Some(event)) => self.on_session_events(event).await,
                NextStep::SessionEvent(None) => {
                    self.events = None;
                    let problem = Problem::new(Code::SlowConsumer, "events of the session were lost");
                    self.close(&problem, close_code::SLOW_CONSUMER, "events were lost");
                }
                NextStep::ResponseEnded(end) => self.on_response_ended(end),
                NextStep::Message(Some(text)) => self.on_message(&text).await,
                NextStep::Message(None) => break,
            }
        }
        self.on_hung_up();
    }

    async fn begin(&mut self) -> Result<(), Problem> {
        if let Some(talk) = self.talk.clone() {
            self.listen_to(&talk).await?;
        }
        let session = self.session_view();
        self.send(&EventBody::SessionCreated { session: &session });
        Ok(())
    }

    /// Subscribes to the events of the session.
    async fn listen_to(&mut self, talk: &Talk) -> Result<(), Problem> {
        self.events = Some(talk.subscribe(&self.state, &self.caller.principal).await?);
        if !self.items.is_begun() {
            self.items = talk.earlier_items(&self.state, &self.caller.principal).await?;
        }
        Ok(())
    }

    /// Returns the session. A session of a character of the program begins with the first call.
    ///
    /// # Errors
    /// As of a new session.
    pub async fn session(&mut self) -> Result<Talk, Problem> {
        if let Some(talk) = &self.talk {
            return Ok(talk.clone());
        }
        let later = self.later.as_ref();
        let later = later.ok_or_else(|| Problem::internal_error(&"a connection without a session"))?;
        let head = self.notes_of_session();
        let talk = later.open(&self.state, &self.caller, &head).await?;
        self.listen_to(&talk).await?;
        self.talk = Some(talk.clone());
        // The session has its id from here on.
        let session = self.session_view();
        self.send(&EventBody::SessionUpdated { session: &session });
        Ok(talk)
    }

    /// The id of the session, if it has begun.
    pub fn session_id(&self) -> Option<DialogueId> {
        self.talk.as_ref().map(|talk| talk.session)
    }

    fn session_view(&self) -> Value {
        let id = self.session_id().map(|id| id.to_string());
        let id = id.as_deref().unwrap_or(&self.provisional_id);
        // A node before this one watches the token.
        let expires_at = (!self.is_forwarded).then(|| self.caller.principal.expires_at.timestamp());
        self.settings.to_view(id, expires_at)
    }

    async fn on_message(&mut self, text: &str) {
        let envelope = match Envelope::read(text) {
            Ok(envelope) => envelope,
            Err((error, event_id)) => return self.send_error(&error, event_id.as_deref()),
        };
        let messages = &self.state.metrics.messages;
        messages.with_label_values(&[envelope.metric_label()]).inc();
        let event_id = envelope.event_id.clone();
        if let Err(error) = self.on_client_event(envelope).await {
            self.send_error(&error, event_id.as_deref());
        }
    }

    async fn on_client_event(&mut self, envelope: Envelope) -> Result<(), RealtimeError> {
        let limits = &self.state.limits;
        let principal = &self.caller.principal;
        let rate_limit = if self.is_forwarded {
            limits.check_forwarded_request(&principal.tenant, principal.player.as_ref())
        } else {
            limits.check_request(&principal.tenant, principal.player.as_ref())
        };
        rate_limit.map_err(Problem::from)?;
        let event_id = envelope.event_id.clone();
        let event = envelope.into_event()?;
        // The event is about the session as the client has been told.
        self.take_session_events().await;
        match event {
            ClientEvent::UpdateSession(change) => {
                self.settings.apply(*change)?;
                let session = self.session_view();
                self.send(&EventBody::SessionUpdated { session: &session });
                Ok(())
            }
            ClientEvent::CreateItem { previous, item } => self.create_item(previous.as_deref(), item).await,
            ClientEvent::DeleteItem { id } => self.delete_item(&id).await,
            ClientEvent::RetrieveItem { id } => self.retrieve_item(&id).await,
            ClientEvent::TruncateItem { id, heard_position } => self.truncate_item(&id, heard_position, event_id).await,
            ClientEvent::CreateResponse(settings) => self.create_response(*settings).await,
            ClientEvent::CancelResponse { id } => self.cancel_response(id.as_deref(), event_id).await,
        }
    }

    /// Sends an event to the client. A connection that is gone ends with the next step.
    pub fn send(&self, event: &EventBody<'_>) {
        let _ = self.socket.send_text(event.to_message());
    }

    /// Sends an event with words of a reply. `chars` is the length of the reply up to their end, in Unicode scalar values.
    pub fn send_words(&mut self, message: String, chars: usize) {
        let _ = self.socket.send_text(message);
        self.sent_words.note(self.socket.sent_counts(), chars);
    }

    pub fn send_error(&self, error: &RealtimeError, event_id: Option<&str>) {
        let errors = &self.state.metrics.errors;
        errors.with_label_values(&[error.code]).inc();
        self.send(&EventBody::error(error, event_id));
    }

    /// Sends the reason, and closes the connection.
    pub fn close(&self, problem: &Problem, code: u16, reason: &'static str) {
        self.send_error(&problem.clone().into(), None);
        self.socket.close_after_flush(code, reason);
    }

    pub fn close_expired(&self) {
        let problem = Problem::new(Code::TokenExpired, "the token has expired");
        self.close(&problem, close_code::UNAUTHENTICATED, "the token has expired");
    }

    /// The sending side of the connection.
    pub fn socket(&self) -> Arc<SocketConnection> {
        Arc::clone(&self.socket)
    }

    /// Returns the counts of the connection's messages.
    pub fn sent_counts(&self) -> SentCounts {
        self.socket.sent_counts()
    }

    /// A new id for a turn.
    pub fn new_turn_id(&self) -> TurnId {
        self.state.services.ids.next_id()
    }
}

/// Waits for the next message of the client. `None`: the client hung up.
pub async fn next_message(inbox: &mut mpsc::Receiver<ByteString>, waiting_bytes: &AtomicUsize) -> Option<ByteString> {
    let text = inbox.recv().await?;
    waiting_bytes.fetch_sub(text.len(), Ordering::AcqRel);
    Some(text)
}

/// Waits for the next event of the session. `None`: there are no more.
async fn next_event(events: &mut Option<TalkEvents>) -> Option<VisibleEvent> {
    match events {
        Some(events) => events.events.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits for the end of the response under way.
async fn end_of_response(response: &mut Option<ActiveResponse>) -> ResponseEnd {
    match response {
        Some(response) => response.ended().await,
        None => std::future::pending().await,
    }
}
