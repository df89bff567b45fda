//! A socket's ear in one dialogue: passes events on.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;

use super::{messages::Include, protocol::Inner};
use crate::{
    actors::{Listener, ListenerGone, Published, player_socket::Connection},
    dialogue::events::{DialogueEvent, EventBody},
    ids::DialogueId,
};

/// Listens to one dialogue for one socket.
pub struct Ear {
    connection: Arc<Connection>,
    memory: bool,
    state: bool,
    /// The socket and the session that is its own; unset: it only watches.
    own: Option<(Weak<Inner>, DialogueId)>,
    /// Another ear hears in this one's place.
    replaced: AtomicBool,
    /// An ear of the same socket whose place this one takes.
    replaces: Mutex<Option<Arc<Self>>>,
}

impl Ear {
    pub fn new(connection: Arc<Connection>, include: &[Include]) -> Self {
        Self {
            connection,
            memory: include.contains(&Include::Memory),
            state: include.contains(&Include::State),
            own: None,
            replaced: AtomicBool::new(false),
            replaces: Mutex::default(),
        }
    }
    /// Hears for the session's own client.
    pub fn owning(mut self, socket: &Arc<Inner>, session: DialogueId) -> Self {
        self.own = Some((Arc::downgrade(socket), session));
        self
    }
    /// Once it is attached, `before` hears nothing more. What that one owned, this one owns.
    pub fn in_place_of(mut self, before: Option<Arc<Self>>) -> Self {
        let owned = before.as_ref().and_then(|ear| ear.own.clone());
        self.own = self.own.or(owned);
        self.replaces = Mutex::new(before);
        self
    }
    /// Whether it hears nothing more.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Relaxed)
    }
}

impl Listener for Ear {
    fn seated(&self) {
        if let Some(before) = self.replaces.lock().take() {
            before.replaced.store(true, Relaxed);
        }
    }
    fn deliver(&self, event: &Arc<Published>) -> Result<(), ListenerGone> {
        if self.is_replaced() {
            return Err(ListenerGone);
        }
        match &event.body {
            EventBody::DialogueRewound(rewound) if !rewound.quoted_in.is_empty() && !self.sees_optional() => {
                let body = EventBody::DialogueRewound(rewound.clone().for_players());
                return self.connection.deliver(&Published::new(DialogueEvent {
                    dialogue_id: event.dialogue_id,
                    seq: event.seq,
                    re: event.re.clone(),
                    body,
                }));
            }
            EventBody::MemoryUpdated { .. } if !self.memory => return Ok(()),
            EventBody::StateChanged { .. } if !self.state => return Ok(()),
            _ => {}
        }
        self.connection.deliver(event)
    }
    fn sees_optional(&self) -> bool {
        self.memory || self.state
    }
    fn is_gone(&self) -> bool {
        self.is_replaced() || self.connection.is_gone()
    }
    fn owns(&self) -> bool {
        self.own.is_some()
    }
    fn replaced(&self) {
        self.replaced.store(true, Relaxed);
        let Some((socket, session)) = &self.own else { return };
        if let Some(socket) = socket.upgrade() {
            socket.lose(&self.connection, *session, self);
        }
    }
}
