//! A socket's ear in one dialogue: passes events on.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;

use super::{elsewhere, events, messages::Include, protocol::Inner};
use crate::{
    actors::{
        Listener, ListenerGone, Published,
        player_socket::{Connection, close},
    },
    dialogue::events::{DialogueEvent, EventBody},
    ids::DialogueId,
    tenancy::Role,
};

/// What of a dialogue's events a client is told.
#[derive(Debug)]
struct Share {
    /// The optional events that it asked for.
    include: Vec<Include>,
    /// What a player must not learn is left out.
    for_player: bool,
}

impl Share {
    fn new(role: Role, include: &[Include]) -> Self {
        Self {
            include: Include::ALL.into_iter().filter(|one| include.contains(one)).collect(),
            for_player: role == Role::Player,
        }
    }
    fn has(&self, what: Include) -> bool {
        self.include.contains(&what)
    }
    /// The event as it is told; `None`: it is not.
    fn of(&self, event: &Arc<Published>) -> Option<Arc<Published>> {
        match &event.body {
            EventBody::MemoryUpdated { .. } if !self.has(Include::Memory) => None,
            EventBody::StateChanged { .. } if !self.has(Include::State) => None,
            EventBody::ScenarioUnlocked { .. } if !self.has(Include::Scenarios) => None,
            _ => Some(as_told(event, self.for_player)),
        }
    }
}

/// The event as a player's client may hear it, or all of it.
pub fn as_told(event: &Arc<Published>, for_player: bool) -> Arc<Published> {
    match for_player.then(|| event.body.for_players()).flatten() {
        None => event.clone(),
        Some(body) => Published::new(DialogueEvent {
            dialogue_id: event.dialogue_id,
            seq: event.seq,
            re: event.re.clone(),
            body,
        }),
    }
}

/// Listens to one dialogue for one socket.
pub struct Ear {
    connection: Arc<Connection>,
    share: Share,
    /// The socket and the session that is its own; unset: it only watches.
    own: Option<(Weak<Inner>, DialogueId)>,
    /// Another ear hears in this one's place.
    replaced: AtomicBool,
    /// An ear of the same socket whose place this one takes.
    replaces: Mutex<Option<Arc<Self>>>,
}

impl Ear {
    pub fn new(connection: Arc<Connection>, role: Role, include: &[Include]) -> Self {
        Self {
            connection,
            share: Share::new(role, include),
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
        let delivered = match self.share.of(event) {
            Some(told) => self.connection.deliver(&told),
            None => Ok(()),
        };
        if event.body.has_moved() {
            // Nothing more comes from here; whoever connects again is brought to where it goes on.
            let told = elsewhere::moved();
            let _ = self
                .connection
                .send(events::error(&told, None, Some(event.dialogue_id)));
            self.connection.close(close::DRAINING, elsewhere::MOVED);
        }
        delivered
    }
    fn sees_optional(&self) -> bool {
        !self.share.include.is_empty()
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        dialogue::events::{DialogueRewound, ReplyDone},
        ids::DialogueKind,
        memory::turn::{TurnStatus, Usage},
        ports::ledger::rewinds::{QuotedIn, RolledBack},
    };

    #[test]
    fn how_long_a_prompt_was_is_no_players_business() {
        let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(7));
        let usage = Usage {
            prompt_tokens: 900,
            cached_tokens: 800,
            completion_tokens: 7,
        };
        for kind in [DialogueKind::Session, DialogueKind::NpcConversation] {
            let done = ReplyDone {
                turn: 1,
                npc_id: "mira".parse().unwrap(),
                text: "Grapes.".into(),
                status: TurnStatus::Completed,
                usage,
                cues: Vec::new(),
                error: None,
            };
            let event = Published::new(DialogueEvent {
                dialogue_id: id,
                seq: Some(4),
                re: None,
                body: EventBody::done(kind, done),
            });
            for (role, prompt, cached) in [(Role::Backend, 900, 800), (Role::Player, 0, 0)] {
                let told = Share::new(role, &[]).of(&event).unwrap();
                let text: serde_json::Value = serde_json::from_str(told.text()).unwrap();
                let counts =
                    serde_json::json!({"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": 7});
                assert_eq!(text["usage"], counts, "{role:?}");
                assert_eq!((&text["text"], told.seq), (&"Grapes.".into(), Some(4)));
            }
        }
    }

    #[test]
    fn where_else_something_was_said_is_told_by_role() {
        let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(7));
        let event = Published::new(DialogueEvent {
            dialogue_id: id,
            seq: Some(4),
            re: Some("c1".into()),
            body: EventBody::DialogueRewound(DialogueRewound {
                turn: 1,
                heard_chars: None,
                removed_turns: vec![2],
                reinstated_turns: Vec::new(),
                rolled_back: RolledBack::default(),
                quoted_in: vec![QuotedIn {
                    dialogue_id: id,
                    turn: 3,
                }],
            }),
        });
        for (role, include, places) in [
            (Role::Backend, &[][..], 1),
            (Role::Admin, &[Include::State][..], 1),
            (Role::Player, &[][..], 0),
        ] {
            let told = Share::new(role, include).of(&event).unwrap();
            assert_eq!((told.seq, told.re.as_deref()), (Some(4), Some("c1")));
            let text: serde_json::Value = serde_json::from_str(told.text()).unwrap();
            assert_eq!(text["quoted_in"].as_array().unwrap().len(), places, "{role:?}: {text}");
        }
    }
}
