//! Handles the messages of one connection. A task handles frames in order, one at a time. The task exists only while
//! frames wait.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use actix_web::web;
use bytestring::ByteString;
use futures_util::FutureExt;
use parking_lot::Mutex;

use super::{
    events::{self, AuthRefreshed, Pong},
    messages::{self, AuthRefresh, ClientMessage, Envelope},
    remote::without_expiry,
    socket_state::SocketState,
};
use crate::{
    AppState,
    errors::{Code, Problem},
    nodes::Tunnels,
    open_streams::ClosableStream,
    socket::player_socket::{SocketConnection, SocketProtocol, close_code},
};
use colloquy_core::{
    ids::DialogueId,
    scope::{Principal, Role},
};
use colloquy_tenancy::limits::{SocketRefusal, SocketSeat};

/// Messages that may wait while a message is handled.
pub const MAX_INBOX: usize = 256;
/// Tokens with a longer life are not watched until their end.
pub const MAX_EXPIRY_WATCH: Duration = Duration::from_hours(365 * 24);
/// All message types that a viewer may send.
const VIEWER_MESSAGES: [&str; 7] = [
    "session.resume",
    "npc_conversation.watch",
    "npc_conversation.unwatch",
    "world.watch",
    "world.unwatch",
    "auth.refresh",
    "ping",
];
/// Longest `event_id`, in characters.
const MAX_EVENT_ID_CHARS: usize = 128;

/// A socket of a rejected caller: sends the reason and closes.
pub struct RefusedSocket {
    code: Code,
    /// The reason as an event.
    event: String,
}

impl RefusedSocket {
    pub fn new(code: Code, event: String) -> Self {
        Self { code, event }
    }
}

impl SocketProtocol for RefusedSocket {
    fn on_open(&self, connection: &Arc<SocketConnection>) {
        let (code, reason) = match self.code {
            Code::Unauthenticated | Code::TokenExpired | Code::TokenRevoked => {
                (close_code::UNAUTHENTICATED, "unauthenticated")
            }
            Code::Forbidden => (close_code::FORBIDDEN, "forbidden"),
            Code::RateLimited => (close_code::TOO_MANY, "too many"),
            _ => (close_code::INTERNAL, "internal"),
        };
        let _ = connection.send_text(self.event.clone());
        connection.close_after_flush(code, reason);
    }
    fn on_text(&self, _: &Arc<SocketConnection>, _: ByteString) {}
    fn on_close(&self, _: &Arc<SocketConnection>) {}
}

/// One caller's socket.
pub struct Socket(Arc<SocketState>);

impl Socket {
    pub fn new(
        state: web::Data<AppState>,
        principal: Principal,
        seat: Option<SocketSeat>,
        coalesce_ms: u64,
        is_forwarded: bool,
    ) -> Self {
        let limit = state.limits.new_socket_limit();
        Self(Arc::new(SocketState {
            state,
            principal: Mutex::new(principal),
            limit: Mutex::new(limit),
            inbox: Mutex::default(),
            open: Mutex::default(),
            watched_worlds: Mutex::default(),
            seat: Mutex::new(seat),
            place: Mutex::default(),
            expiry: Mutex::default(),
            tunnels: Mutex::default(),
            coalesce_ms,
            is_forwarded,
        }))
    }
}

impl SocketProtocol for Socket {
    fn on_open(&self, connection: &Arc<SocketConnection>) {
        self.0.watch_expiry(connection);
        let open_socket: Arc<dyn ClosableStream> = Arc::new(OpenSocket {
            inner: Arc::downgrade(&self.0),
            connection: Arc::downgrade(connection),
            opened_by: self.0.current_principal(),
        });
        let state = &self.0.state;
        let place = state.streams.add_stream(&state.auth, &open_socket);
        *self.0.place.lock() = Some((place, open_socket));
    }

    fn on_text(&self, connection: &Arc<SocketConnection>, text: ByteString) {
        let refusal = if self.0.is_forwarded {
            None
        } else {
            self.0.limit.lock().check_message().err()
        };
        match refusal {
            None => {}
            Some(SocketRefusal::Slow(limited)) => {
                return self.0.send_error(connection, &limited.into(), event_id_of(&text), None);
            }
            Some(SocketRefusal::Abuse) => {
                let problem = Problem::new(Code::RateLimited, "this socket keeps sending too many messages");
                self.0.send_error(connection, &problem, None, None);
                connection.close_after_flush(close_code::TOO_MANY, "too many messages");
                return;
            }
        }
        {
            let mut inbox = self.0.inbox.lock();
            if inbox.waiting.len() >= MAX_INBOX {
                drop(inbox);
                let problem = Problem::new(Code::RateLimited, "too many messages wait already");
                return self.0.send_error(connection, &problem, event_id_of(&text), None);
            }
            inbox.waiting.push_back(text);
            if inbox.busy {
                return;
            }
            inbox.busy = true;
        }
        let inner = self.0.clone();
        let connection = connection.clone();
        actix_web::rt::spawn(async move {
            while let Some(text) = inner.next_message() {
                if AssertUnwindSafe(inner.handle_message(&connection, &text))
                    .catch_unwind()
                    .await
                    .is_err()
                {
                    // No task handles later messages, so the client must learn of the failure.
                    tracing::error!(connection = connection.id(), "handling a message panicked");
                    let problem = Problem::new(Code::Internal, "the server failed");
                    inner.send_error(&connection, &problem, event_id_of(&text), None);
                    connection.close_after_flush(close_code::INTERNAL, "internal");
                    inner.inbox.lock().waiting.clear();
                }
            }
        });
    }

    fn on_close(&self, _: &Arc<SocketConnection>) {
        if let Some(task) = self.0.expiry.lock().take() {
            task.abort();
        }
        // A task that still handles a message may hold the remaining fields for a while.
        drop(self.0.seat.lock().take());
        drop(self.0.place.lock().take());
        self.0.inbox.lock().waiting.clear();
        for (_, task) in self.0.watched_worlds.lock().drain() {
            task.abort();
        }
        *self.0.tunnels.lock() = Tunnels::default();
        let scope = self.0.principal.lock().scope();
        for (id, opened) in self.0.open.lock().drain() {
            self.0.state.sessions.detach_listener(&scope, id, opened.listener);
        }
    }
}

/// The socket as an open stream of its caller.
struct OpenSocket {
    inner: Weak<SocketState>,
    connection: Weak<SocketConnection>,
    opened_by: Principal,
}

impl ClosableStream for OpenSocket {
    fn principal(&self) -> Principal {
        // The client may have refreshed its token since.
        self.inner
            .upgrade()
            .map_or_else(|| self.opened_by.clone(), |inner| inner.current_principal())
    }
    fn close_with_reason(&self, problem: &Problem) {
        if let (Some(inner), Some(connection)) = (self.inner.upgrade(), self.connection.upgrade()) {
            inner.send_error(&connection, problem, None, None);
            connection.close_after_flush(close_code::UNAUTHENTICATED, "unauthenticated");
            inner.inbox.lock().waiting.clear();
        }
    }
}

fn event_id_of(text: &str) -> Option<&str> {
    // Cheap, and only for refusals: an `event_id` with escapes is ignored.
    #[derive(serde::Deserialize)]
    struct OnlyId<'a> {
        #[serde(borrow, default)]
        event_id: Option<&'a str>,
    }
    serde_json::from_str::<OnlyId<'_>>(text).ok()?.event_id
}

impl SocketState {
    fn next_message(&self) -> Option<ByteString> {
        let mut inbox = self.inbox.lock();
        let text = inbox.waiting.pop_front();
        inbox.busy = text.is_some();
        text
    }

    fn current_principal(&self) -> Principal {
        self.principal.lock().clone()
    }

    pub(super) fn send_error(
        &self,
        connection: &SocketConnection,
        problem: &Problem,
        re: Option<&str>,
        dialogue: Option<DialogueId>,
    ) {
        let errors = &self.state.metrics.errors;
        errors.with_label_values(&[problem.code.as_str()]).inc();
        // A connection that is gone needs no error.
        let _ = connection.send_text(events::error_event(problem, re, dialogue));
    }

    /// Closes the socket with 4401 when the token expires, unless the client refreshes the token before.
    fn watch_expiry(self: &Arc<Self>, connection: &Arc<SocketConnection>) {
        let remaining_time = self.principal.lock().expires_at - self.state.services.clock.now();
        let remaining_time = remaining_time.to_std().unwrap_or_default().min(MAX_EXPIRY_WATCH);
        // Weak: the timer of a token must not keep a closed socket alive.
        let inner = Arc::downgrade(self);
        let connection = Arc::downgrade(connection);
        let task = actix_web::rt::spawn(async move {
            actix_web::rt::time::sleep(remaining_time).await;
            if let (Some(inner), Some(connection)) = (inner.upgrade(), connection.upgrade()) {
                inner.send_error(
                    &connection,
                    &Problem::new(Code::TokenExpired, "the token has expired"),
                    None,
                    None,
                );
                connection.close_after_flush(close_code::UNAUTHENTICATED, "the token has expired");
            }
        });
        if let Some(old_task) = self.expiry.lock().replace(task) {
            old_task.abort();
        }
    }

    async fn handle_message(self: &Arc<Self>, connection: &Arc<SocketConnection>, text: &str) {
        let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(text) else {
            self.send_error(connection, &malformed_message_error(text), None, None);
            connection.close_after_flush(close_code::MALFORMED, "malformed message");
            return;
        };
        let re = envelope.event_id.as_deref();
        self.state
            .metrics
            .messages
            .with_label_values(&[messages::metric_label(&envelope.kind)])
            .inc();
        let Err(failure) = self.dispatch_message(connection, &envelope.kind, re, text).await else {
            return;
        };
        let (mut problem, dialogue) = *failure;
        if let Some((dialogue, owner)) = self.remote_owner(&envelope.kind, text, &problem) {
            match self
                .send_to_owner(connection, &self.current_principal(), dialogue, owner, text)
                .await
            {
                Ok(()) => return,
                Err(unreachable) => problem = unreachable,
            }
        }
        self.send_error(connection, &problem, re, dialogue);
    }

    async fn dispatch_message(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        kind: &str,
        re: Option<&str>,
        text: &str,
    ) -> Result<(), MessageError> {
        if re.is_some_and(|id| id.chars().count() > MAX_EVENT_ID_CHARS) {
            let problem =
                Problem::invalid_field("event_id", format!("must be at most {MAX_EVENT_ID_CHARS} characters"));
            return Err(global_error(problem));
        }
        let principal = self.current_principal();
        let limits = &self.state.limits;
        let player = principal.player.as_ref();
        let rate_limit = match (self.is_forwarded, kind) {
            // The owner accepted the new token, and the new token applies here too.
            (true, "auth.refresh") => Ok(()),
            (true, _) => limits.check_forwarded_request(&principal.tenant, player),
            (false, _) => limits.check_request(&principal.tenant, player),
        };
        rate_limit.map_err(|limited| global_error(limited.into()))?;
        if principal.role == Role::Viewer && !VIEWER_MESSAGES.contains(&kind) {
            let problem = Problem::new(Code::Forbidden, "a viewer watches and changes nothing");
            return Err(global_error(problem));
        }
        if let Some((dialogue, owner)) = self.routed_owner(text) {
            return self
                .send_to_owner(connection, &principal, dialogue, owner, text)
                .await
                .map_err(error_for(dialogue));
        }
        self.perform_message(connection, &principal, kind, re, text).await
    }

    /// Performs a message. `principal` may send messages of this `kind`.
    async fn perform_message(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        kind: &str,
        re: Option<&str>,
        text: &str,
    ) -> Result<(), MessageError> {
        let message = ClientMessage::parse(kind, text).map_err(global_error)?;
        let dialogue = message.dialogue_id();
        let outcome = match message {
            ClientMessage::PlayerSay(message) => self.say_line(connection, principal, message, re).await,
            ClientMessage::PlayerInterrupt(message) => self.interrupt_turn(connection, principal, message, re).await,
            ClientMessage::PlayerRegenerate(message) => self.regenerate_turn(connection, principal, message, re).await,
            ClientMessage::PlayerResume(message) => self.resume_turn(principal, message, re).await,
            ClientMessage::ReplyPlayed(message) => self.on_reply_played(principal, message).await,
            ClientMessage::SessionCreate(message) => self.create_session(connection, principal, message, re).await,
            ClientMessage::SessionResume(message) => self.resume_session(connection, principal, message, re).await,
            ClientMessage::SessionClose(message) => self.close_session(principal, message.session_id).await,
            ClientMessage::ConversationWatch(message) => {
                self.watch_conversation(connection, principal, message, re).await
            }
            ClientMessage::ConversationUnwatch(message) => {
                self.unwatch_conversation(principal, message.conversation_id)
            }
            ClientMessage::ConversationInterrupt(message) => {
                self.interrupt_conversation(connection, principal, message, re).await
            }
            ClientMessage::WorldWatch(message) => self.watch_world(connection, principal, message, re).await,
            ClientMessage::WorldUnwatch(message) => self.unwatch_world(&message.world_id),
            ClientMessage::AuthRefresh(message) => self.refresh_auth(connection, principal, &message, text, re).await,
            ClientMessage::Ping(message) => {
                let t = message.t.as_ref();
                let _ = connection.send_text(events::write_event(&Pong { re, t }));
                Ok(())
            }
        };
        outcome.map_err(|problem| Box::new((problem, dialogue)))
    }

    async fn refresh_auth(
        self: &Arc<Self>,
        connection: &Arc<SocketConnection>,
        principal: &Principal,
        message: &AuthRefresh,
        text: &str,
        re: Option<&str>,
    ) -> Result<(), Problem> {
        let new_principal = self
            .state
            .auth
            .verify_token(&message.token)
            .await
            .map_err(Problem::from);
        let new_principal = new_principal.and_then(|new_principal| require_same_caller(principal, new_principal));
        if self.is_forwarded {
            return match new_principal {
                Ok(new_principal) => {
                    *self.principal.lock() = without_expiry(&new_principal);
                    self.close_if_refused();
                    Ok(())
                }
                // The other node still uses a different token than this node.
                Err(problem) => {
                    connection.close_after_flush(close_code::UNAUTHENTICATED, "unauthenticated");
                    Err(problem)
                }
            };
        }
        let new_principal = new_principal?;
        let expires_at = new_principal.expires_at;
        *self.principal.lock() = new_principal;
        self.watch_expiry(connection);
        if self.close_if_refused() {
            return Ok(());
        }
        self.send_to_owners(connection, text);
        let _ = connection.send_text(events::write_event(&AuthRefreshed { re, expires_at }));
        Ok(())
    }

    /// Closes the socket if its token was revoked while the token was being checked. The revocation scanned the open
    /// streams and saw only the previous token. Returns true if the socket closes.
    pub(super) fn close_if_refused(&self) -> bool {
        let Err(refusal) = self.state.auth.check_not_refused(&self.current_principal()) else {
            return false;
        };
        let stream = self.place.lock().as_ref().map(|(_, stream)| Arc::clone(stream));
        if let Some(stream) = stream {
            stream.close_with_reason(&refusal.into());
        }
        true
    }
}

/// Returns `new_principal` if it belongs to the same caller.
fn require_same_caller(principal: &Principal, new_principal: Principal) -> Result<Principal, Problem> {
    let is_same = new_principal.tenant == principal.tenant
        && new_principal.role == principal.role
        && new_principal.player == principal.player
        && new_principal.world == principal.world;
    if is_same {
        return Ok(new_principal);
    }
    Err(Problem::new(
        Code::Forbidden,
        "the new token must be for the same tenant, role, player and world",
    )
    .with_param("token"))
}

/// The error to send, and its dialogue. Boxed: the pair is large, and most messages do not fail.
type MessageError = Box<(Problem, Option<DialogueId>)>;

fn error_for(id: DialogueId) -> impl Fn(Problem) -> MessageError {
    move |problem| Box::new((problem, Some(id)))
}

fn global_error(problem: Problem) -> MessageError {
    Box::new((problem, None))
}

/// The error for a text without a valid envelope.
fn malformed_message_error(text: &str) -> Problem {
    let fields = match serde_json::from_str(text) {
        Err(error) => return Problem::new(Code::MalformedJson, format!("a message is a JSON object: {error}")),
        Ok(serde_json::Value::Object(fields)) => fields,
        Ok(_) => return Problem::new(Code::MalformedJson, "a message is a JSON object"),
    };
    match fields.get("type") {
        None => Problem::invalid_field("type", "is missing"),
        Some(kind) if !kind.is_string() => Problem::invalid_field("type", "must be a string"),
        Some(_) => Problem::invalid_field("event_id", "must be a string"),
    }
}
