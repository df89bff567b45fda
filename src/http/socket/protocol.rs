//! What the messages of one connection do. Frames are handled one after another, in order, by a
//! task that exists only while there are any.

use std::{
    collections::{HashMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use actix_web::{rt::task::JoinHandle, web};
use bytestring::ByteString;
use futures_util::FutureExt;
use garde::Validate;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use super::{
    ear::Ear,
    elsewhere::without_end,
    events::{self, AuthRefreshed, Pong},
    messages::{
        self, AuthRefresh, ConversationInterrupt, ConversationUnwatch, ConversationWatch, Envelope, NOT_OFFERED, Ping,
        PlayerInterrupt, PlayerRegenerate, PlayerResume, PlayerSay, ReplyPlayed, SessionClose, SessionResume,
    },
};
use crate::{
    actors::player_socket::{Connection, SocketProtocol, close},
    http::{
        AppState,
        errors::{Code, Problem},
        nodes::Tunnels,
        standing::{OpenStream, Stream},
        validate,
    },
    ids::{DialogueId, PlayerId},
    tenancy::{
        Principal, Role,
        limits::{SocketLimit, SocketRefusal, SocketSeat},
    },
};

/// Messages that may wait while one is handled.
const MAX_WAITING: usize = 256;
/// Tokens that live longer than this are not watched to their end.
const LONGEST_WATCH: Duration = Duration::from_hours(365 * 24);
/// All that a viewer may send.
const WATCHING: [&str; 5] = [
    "session.resume",
    "npc_conversation.watch",
    "npc_conversation.unwatch",
    "auth.refresh",
    "ping",
];
/// Longest `event_id`, in characters.
const MAX_EVENT_ID: usize = 128;

/// A socket whose caller was not let in: says why and closes.
pub struct Refused(Problem);

impl Refused {
    pub fn new(problem: Problem) -> Self {
        Self(problem)
    }
}

impl SocketProtocol for Refused {
    fn on_open(&self, connection: &Arc<Connection>) {
        let (code, reason) = match self.0.code {
            Code::Unauthenticated | Code::TokenExpired | Code::TokenRevoked => {
                (close::UNAUTHENTICATED, "unauthenticated")
            }
            Code::Forbidden => (close::FORBIDDEN, "forbidden"),
            Code::RateLimited => (close::TOO_MANY, "too many"),
            _ => (close::INTERNAL, "internal"),
        };
        let _ = connection.send(events::error(&self.0, None, None));
        connection.close(code, reason);
    }
    fn on_text(&self, _: &Arc<Connection>, _: ByteString) {}
    fn on_close(&self, _: &Arc<Connection>) {}
}

/// One caller's socket.
pub struct Socket(Arc<Inner>);

pub(super) struct Inner {
    pub(super) state: web::Data<AppState>,
    principal: Mutex<Principal>,
    limit: Mutex<SocketLimit>,
    inbox: Mutex<Inbox>,
    pub(super) open: Mutex<HashMap<DialogueId, Opened>>,
    /// The socket's place among its player's, until it closes.
    seat: Mutex<Option<SocketSeat>>,
    /// The socket's place among what is open, until it closes.
    place: Mutex<Option<(OpenStream, Arc<dyn Stream>)>>,
    /// Closes the socket when its token expires.
    expiry: Mutex<Option<JoinHandle<()>>>,
    /// The ways to the owners of dialogues that live on other nodes.
    pub(super) tunnels: Mutex<Tunnels>,
    pub(super) coalesce_ms: u64,
    /// It is the end of another node's tunnel, which has counted its messages for the tenant.
    pub(super) came_by_hop: bool,
}

#[derive(Default)]
struct Inbox {
    waiting: VecDeque<ByteString>,
    /// A task is handling messages.
    busy: bool,
}

/// A session this socket listens to.
pub(super) struct Opened {
    pub(super) listener: u64,
    pub(super) ear: Arc<Ear>,
    pub(super) player: Option<PlayerId>,
}

impl Socket {
    pub fn new(
        state: web::Data<AppState>,
        principal: Principal,
        seat: Option<SocketSeat>,
        coalesce_ms: u64,
        came_by_hop: bool,
    ) -> Self {
        let limit = state.limits.socket();
        Self(Arc::new(Inner {
            state,
            principal: Mutex::new(principal),
            limit: Mutex::new(limit),
            inbox: Mutex::default(),
            open: Mutex::default(),
            seat: Mutex::new(seat),
            place: Mutex::default(),
            expiry: Mutex::default(),
            tunnels: Mutex::default(),
            coalesce_ms,
            came_by_hop,
        }))
    }
}

impl SocketProtocol for Socket {
    fn on_open(&self, connection: &Arc<Connection>) {
        self.0.watch_expiry(connection);
        let open: Arc<dyn Stream> = Arc::new(Open {
            inner: Arc::downgrade(&self.0),
            connection: Arc::downgrade(connection),
            opened_by: self.0.who(),
        });
        let state = &self.0.state;
        let place = state.streams.add(&state.auth, &open);
        *self.0.place.lock() = Some((place, open));
    }

    fn on_text(&self, connection: &Arc<Connection>, text: ByteString) {
        let refusal = if self.0.came_by_hop {
            None
        } else {
            self.0.limit.lock().check().err()
        };
        match refusal {
            None => {}
            Some(SocketRefusal::Slow(limited)) => return self.0.tell(connection, &limited.into(), re_of(&text), None),
            Some(SocketRefusal::Abuse) => {
                let problem = Problem::new(Code::RateLimited, "this socket keeps sending too many messages");
                self.0.tell(connection, &problem, None, None);
                connection.close(close::TOO_MANY, "too many messages");
                return;
            }
        }
        {
            let mut inbox = self.0.inbox.lock();
            if inbox.waiting.len() >= MAX_WAITING {
                drop(inbox);
                let problem = Problem::new(Code::RateLimited, "too many messages wait already");
                return self.0.tell(connection, &problem, re_of(&text), None);
            }
            inbox.waiting.push_back(text);
            if inbox.busy {
                return;
            }
            inbox.busy = true;
        }
        let (inner, connection) = (self.0.clone(), connection.clone());
        actix_web::rt::spawn(async move {
            while let Some(text) = inner.next() {
                if AssertUnwindSafe(inner.handle(&connection, &text))
                    .catch_unwind()
                    .await
                    .is_err()
                {
                    // Nobody would handle what comes next, so the client must not believe otherwise.
                    tracing::error!(connection = connection.id(), "handling a message panicked");
                    let problem = Problem::new(Code::Internal, "the server failed");
                    inner.tell(&connection, &problem, re_of(&text), None);
                    connection.close(close::INTERNAL, "internal");
                    inner.inbox.lock().waiting.clear();
                }
            }
        });
    }

    fn on_close(&self, _: &Arc<Connection>) {
        if let Some(task) = self.0.expiry.lock().take() {
            task.abort();
        }
        // A task that still handles a message may hold the rest for a while.
        drop(self.0.seat.lock().take());
        drop(self.0.place.lock().take());
        self.0.inbox.lock().waiting.clear();
        *self.0.tunnels.lock() = Tunnels::default();
        let scope = self.0.principal.lock().scope();
        for (id, opened) in self.0.open.lock().drain() {
            self.0.state.sessions.detach(&scope, id, opened.listener);
        }
    }
}

/// A socket as something that is open for its caller.
struct Open {
    inner: Weak<Inner>,
    connection: Weak<Connection>,
    opened_by: Principal,
}

impl Stream for Open {
    fn principal(&self) -> Principal {
        // The token may have been refreshed since.
        self.inner
            .upgrade()
            .map_or_else(|| self.opened_by.clone(), |inner| inner.who())
    }
    fn shut(&self, why: &Problem) {
        if let (Some(inner), Some(connection)) = (self.inner.upgrade(), self.connection.upgrade()) {
            inner.tell(&connection, why, None, None);
            connection.close(close::UNAUTHENTICATED, "unauthenticated");
            inner.inbox.lock().waiting.clear();
        }
    }
}

fn re_of(text: &str) -> Option<&str> {
    // Cheap and only for refusals: a message whose `event_id` needs unescaping gets none.
    #[derive(serde::Deserialize)]
    struct OnlyId<'a> {
        #[serde(borrow, default)]
        event_id: Option<&'a str>,
    }
    serde_json::from_str::<OnlyId<'_>>(text).ok()?.event_id
}

impl Inner {
    fn next(&self) -> Option<ByteString> {
        let mut inbox = self.inbox.lock();
        let text = inbox.waiting.pop_front();
        inbox.busy = text.is_some();
        text
    }

    fn who(&self) -> Principal {
        self.principal.lock().clone()
    }

    pub(super) fn tell(
        &self,
        connection: &Connection,
        problem: &Problem,
        re: Option<&str>,
        dialogue: Option<DialogueId>,
    ) {
        self.state
            .metrics
            .errors
            .with_label_values(&[problem.code.as_str()])
            .inc();
        // A connection that is gone needs no error.
        let _ = connection.send(events::error(problem, re, dialogue));
    }

    /// Closes the socket with 4401 when the token runs out, unless it is refreshed before.
    fn watch_expiry(self: &Arc<Self>, connection: &Arc<Connection>) {
        let left = self.principal.lock().expires_at - self.state.services.clock.now();
        let left = left.to_std().unwrap_or_default().min(LONGEST_WATCH);
        // Weak: a socket that is gone must not be kept by its token.
        let (inner, connection) = (Arc::downgrade(self), Arc::downgrade(connection));
        let task = actix_web::rt::spawn(async move {
            actix_web::rt::time::sleep(left).await;
            if let (Some(inner), Some(connection)) = (inner.upgrade(), connection.upgrade()) {
                inner.tell(
                    &connection,
                    &Problem::new(Code::TokenExpired, "the token has expired"),
                    None,
                    None,
                );
                connection.close(close::UNAUTHENTICATED, "the token has expired");
            }
        });
        if let Some(old) = self.expiry.lock().replace(task) {
            old.abort();
        }
    }

    async fn handle(self: &Arc<Self>, connection: &Arc<Connection>, text: &str) {
        let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(text) else {
            self.tell(connection, &not_a_message(text), None, None);
            connection.close(close::MALFORMED, "malformed message");
            return;
        };
        let re = envelope.event_id.as_deref();
        self.state
            .metrics
            .messages
            .with_label_values(&[messages::label(&envelope.kind)])
            .inc();
        let Err(failed) = self.dispatch(connection, &envelope.kind, re, text).await else {
            return;
        };
        let (mut problem, dialogue) = *failed;
        if let Some(there) = self.elsewhere(&envelope.kind, text, &problem) {
            match self.send_on(connection, &self.who(), there, text).await {
                Ok(()) => return,
                Err(unreachable) => problem = unreachable,
            }
        }
        self.tell(connection, &problem, re, dialogue);
    }

    async fn dispatch(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        kind: &str,
        re: Option<&str>,
        text: &str,
    ) -> Result<(), Failed> {
        if re.is_some_and(|id| id.chars().count() > MAX_EVENT_ID) {
            let problem = Problem::field("event_id", format!("must be at most {MAX_EVENT_ID} characters"));
            return Err(nowhere(problem));
        }
        let who = self.who();
        let (limits, player) = (&self.state.limits, who.player.as_ref());
        let counted = match (self.came_by_hop, kind) {
            // What the other node has taken holds here as well.
            (true, "auth.refresh") => Ok(()),
            (true, _) => limits.forwarded_request(&who.tenant, player),
            (false, _) => limits.request(&who.tenant, player),
        };
        counted.map_err(|limited| nowhere(limited.into()))?;
        if who.role == Role::Viewer && !WATCHING.contains(&kind) {
            let problem = Problem::new(Code::Forbidden, "a viewer watches and changes nothing");
            return Err(nowhere(problem));
        }
        if let Some(there) = self.routed(text) {
            return self.send_on(connection, &who, there, text).await.map_err(at(there.0));
        }
        match kind {
            "player.say" => {
                let message: PlayerSay = parse(text)?;
                let id = message.session_id;
                self.say(connection, &who, message, re).await.map_err(at(id))
            }
            "player.interrupt" => {
                let message: PlayerInterrupt = parse(text)?;
                let id = message.session_id;
                self.interrupt(connection, &who, message, re).await.map_err(at(id))
            }
            "player.regenerate" => {
                let message: PlayerRegenerate = parse(text)?;
                let id = message.session_id;
                self.regenerate(connection, &who, message, re).await.map_err(at(id))
            }
            "player.resume" => {
                let message: PlayerResume = parse(text)?;
                let id = message.session_id;
                self.take_up(&who, message, re).await.map_err(at(id))
            }
            "session.create" => self.create(connection, &who, parse(text)?, re).await.map_err(nowhere),
            "session.resume" => {
                let message: SessionResume = parse(text)?;
                let id = message.session_id;
                self.resume(connection, &who, message, re).await.map_err(at(id))
            }
            "session.close" => {
                let message: SessionClose = parse(text)?;
                let id = message.session_id;
                self.close(&who, id).await.map_err(at(id))
            }
            "npc_conversation.watch" => {
                let message: ConversationWatch = parse(text)?;
                let id = message.conversation_id;
                self.watch(connection, &who, message, re).await.map_err(at(id))
            }
            "npc_conversation.unwatch" => {
                let message: ConversationUnwatch = parse(text)?;
                let id = message.conversation_id;
                self.unwatch(&who, id).map_err(at(id))
            }
            "npc_conversation.interrupt" => {
                let message: ConversationInterrupt = parse(text)?;
                let id = message.conversation_id;
                self.cut_in(connection, &who, message, re).await.map_err(at(id))
            }
            "reply.played" => {
                let message: ReplyPlayed = parse(text)?;
                let id = message.session_id;
                self.played(&who, message).await.map_err(at(id))
            }
            "auth.refresh" => self.refresh(connection, &who, text, re).await,
            "ping" => {
                let message: Ping = parse(text)?;
                let _ = connection.send(events::write(&Pong {
                    kind: "pong",
                    re,
                    t: message.t.as_ref(),
                }));
                Ok(())
            }
            other if NOT_OFFERED.contains(&other) => Err(nowhere(Problem::new(
                Code::NotSupported,
                format!("this server does not offer {other}"),
            ))),
            _ => Err(nowhere(
                Problem::new(Code::UnknownType, "there is no such message type").param("type"),
            )),
        }
    }

    async fn refresh(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        who: &Principal,
        text: &str,
        re: Option<&str>,
    ) -> Result<(), Failed> {
        let message: AuthRefresh = parse(text)?;
        let fresh = self.state.auth.verify(&message.token).await.map_err(Problem::from);
        let fresh = fresh.and_then(|fresh| same_caller(who, fresh));
        if self.came_by_hop {
            return match fresh {
                Ok(fresh) => {
                    *self.principal.lock() = without_end(&fresh);
                    self.leave_if_refused();
                    Ok(())
                }
                // The other node goes by another token than this one.
                Err(refused) => {
                    connection.close(close::UNAUTHENTICATED, "unauthenticated");
                    Err(nowhere(refused))
                }
            };
        }
        let fresh = fresh.map_err(nowhere)?;
        let expires_at = fresh.expires_at;
        *self.principal.lock() = fresh;
        self.watch_expiry(connection);
        if self.leave_if_refused() {
            return Ok(());
        }
        self.send_to_all(connection, text);
        let _ = connection.send(events::write(&AuthRefreshed {
            kind: "auth.refreshed",
            re,
            expires_at,
        }));
        Ok(())
    }

    /// Closes the socket if its token was revoked while it was being checked: whoever looked through what is open found the
    /// token of before. Returns whether it was.
    pub(super) fn leave_if_refused(&self) -> bool {
        let Err(refused) = self.state.auth.check_standing(&self.who()) else {
            return false;
        };
        let open = self.place.lock().as_ref().map(|(_, open)| Arc::clone(open));
        if let Some(open) = open {
            open.shut(&refused.into());
        }
        true
    }
}

/// `fresh`, if it is the caller's as well.
fn same_caller(who: &Principal, fresh: Principal) -> Result<Principal, Problem> {
    let same =
        fresh.tenant == who.tenant && fresh.role == who.role && fresh.player == who.player && fresh.world == who.world;
    if same {
        return Ok(fresh);
    }
    Err(Problem::new(
        Code::Forbidden,
        "the new token must be for the same tenant, role, player and world",
    )
    .param("token"))
}

/// What to tell, and about which dialogue. Boxed: it is large, and most messages do not fail.
type Failed = Box<(Problem, Option<DialogueId>)>;

fn at(id: DialogueId) -> impl Fn(Problem) -> Failed {
    move |problem| Box::new((problem, Some(id)))
}

fn nowhere(problem: Problem) -> Failed {
    Box::new((problem, None))
}

fn parse<T>(text: &str) -> Result<T, Failed>
where
    T: DeserializeOwned + Validate + ToSchema,
    T::Context: Default,
{
    validate::read(text.as_bytes()).map_err(nowhere)
}

/// What is wrong with a text that has no envelope.
fn not_a_message(text: &str) -> Problem {
    let fields = match serde_json::from_str(text) {
        Err(error) => return Problem::new(Code::MalformedJson, format!("a message is a JSON object: {error}")),
        Ok(serde_json::Value::Object(fields)) => fields,
        Ok(_) => return Problem::new(Code::MalformedJson, "a message is a JSON object"),
    };
    match fields.get("type") {
        None => Problem::field("type", "is missing"),
        Some(kind) if !kind.is_string() => Problem::field("type", "must be a string"),
        Some(_) => Problem::field("event_id", "must be a string"),
    }
}
