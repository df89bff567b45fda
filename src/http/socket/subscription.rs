//! A socket's subscription to one dialogue, which delivers events.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;

use super::{events, messages::Include, remote, socket_state::SocketState};
use crate::{
    errors::{Code, Problem},
    socket::player_socket::{SocketConnection, close_code},
};
use colloquy_actors::{Listener, ListenerGone, VisibleEvent};
use colloquy_core::{ids::DialogueId, scope::Role};
use colloquy_dialogue::disclosure::{EventViewer, OptionalEvents};

/// Returns a viewer of a client's events, with the optional events that the client requested.
pub fn event_viewer(role: Role, include: &[Include]) -> Result<EventViewer, Problem> {
    let optional = OptionalEvents {
        memory: include.contains(&Include::Memory),
        state: include.contains(&Include::State),
        scenarios: include.contains(&Include::Scenarios),
    };
    EventViewer::of_role(role).with_optional(optional).ok_or_else(|| {
        Problem::new(
            Code::Forbidden,
            "only admins, backends and viewers may get these events",
        )
        .with_param("include")
    })
}

/// Delivers one dialogue's events to one socket.
pub struct DialogueSubscription {
    connection: Arc<SocketConnection>,
    viewer: EventViewer,
    /// The socket and its own session; unset for a subscription that only watches.
    owner: Option<(Weak<SocketState>, DialogueId)>,
    /// True after another subscription took this subscription's place.
    replaced: AtomicBool,
    /// An earlier subscription of the same socket, replaced by this subscription.
    replaces: Mutex<Option<Arc<Self>>>,
}

impl DialogueSubscription {
    pub fn new(connection: Arc<SocketConnection>, viewer: EventViewer) -> Self {
        Self {
            connection,
            viewer,
            owner: None,
            replaced: AtomicBool::new(false),
            replaces: Mutex::default(),
        }
    }
    /// Makes this the subscription of the session's own client.
    pub fn owned_by(mut self, socket: &Arc<SocketState>, session: DialogueId) -> Self {
        self.owner = Some((Arc::downgrade(socket), session));
        self
    }
    /// Once this subscription is attached, `earlier` delivers no more events. Ownership moves from `earlier` to this
    /// subscription.
    pub fn replacing_earlier(mut self, earlier: Option<&(u64, Arc<Self>)>) -> Self {
        let earlier = earlier.map(|(_, subscription)| subscription);
        let earlier_owner = earlier.and_then(|subscription| subscription.owner.clone());
        self.owner = self.owner.or(earlier_owner);
        self.replaces = Mutex::new(earlier.cloned());
        self
    }
    /// True if this subscription delivers no more events.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Relaxed)
    }
}

impl Listener for DialogueSubscription {
    fn on_attached(&self) {
        if let Some(earlier) = self.replaces.lock().take() {
            earlier.replaced.store(true, Relaxed);
        }
    }
    fn viewer(&self) -> EventViewer {
        self.viewer
    }
    fn deliver_event(&self, event: &VisibleEvent) -> Result<(), ListenerGone> {
        if self.is_replaced() {
            return Err(ListenerGone);
        }
        let delivered = self.connection.deliver_event(event);
        if event.body.has_moved() {
            // No more events come from this node. A client that reconnects reaches the new owner.
            let problem = remote::dialogue_moved_error();
            let _ = self
                .connection
                .send_text(events::error_event(&problem, None, Some(event.dialogue_id)));
            self.connection
                .close_after_flush(close_code::DRAINING, remote::MOVED_CLOSE_REASON);
        }
        delivered
    }
    fn is_gone(&self) -> bool {
        self.is_replaced() || self.connection.is_gone()
    }
    fn is_owner(&self) -> bool {
        self.owner.is_some()
    }
    fn on_replaced(&self) {
        self.replaced.store(true, Relaxed);
        let Some((socket, session)) = &self.owner else { return };
        if let Some(socket) = socket.upgrade() {
            socket.on_session_replaced(&self.connection, *session, self);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_core::ids::DialogueKind;
    use colloquy_dialogue::events::{DialogueEvent, DialogueRewound, EventBody, ReplyDone};
    use colloquy_memory::turn::{TurnStatus, Usage};
    use colloquy_ports::ledger::rewinds::{QuotedIn, RolledBack};

    #[test]
    fn prompt_size_is_hidden_from_players() {
        let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(7));
        let usage = Usage {
            prompt_tokens: 900,
            cached_tokens: 800,
            completion_tokens: 7,
        };
        for kind in [DialogueKind::Session, DialogueKind::NpcConversation] {
            let reply_done = ReplyDone {
                turn: 1,
                npc_id: "mira".parse().unwrap(),
                text: "Grapes.".into(),
                status: TurnStatus::Completed,
                usage,
                cues: Vec::new(),
                error: None,
            };
            let event = DialogueEvent {
                dialogue_id: id,
                seq: Some(4),
                re: None,
                body: EventBody::reply_done(kind, reply_done),
            };
            for (role, prompt, cached) in [(Role::Backend, 900, 800), (Role::Player, 0, 0)] {
                let visible_event = VisibleEvent::of_event(event.clone(), &EventViewer::of_role(role)).unwrap();
                let text: serde_json::Value = serde_json::from_str(visible_event.text()).unwrap();
                let counts =
                    serde_json::json!({"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": 7});
                assert_eq!(text["usage"], counts, "{role:?}");
                assert_eq!((&text["text"], visible_event.seq), (&"Grapes.".into(), Some(4)));
            }
        }
    }

    #[test]
    fn quoting_dialogues_are_shown_by_role() {
        let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(7));
        let event = DialogueEvent {
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
        };
        for (role, include, places) in [
            (Role::Backend, &[][..], 1),
            (Role::Admin, &[Include::State][..], 1),
            (Role::Player, &[][..], 0),
        ] {
            let viewer = event_viewer(role, include).unwrap();
            let visible_event = VisibleEvent::of_event(event.clone(), &viewer).unwrap();
            assert_eq!((visible_event.seq, visible_event.re.as_deref()), (Some(4), Some("c1")));
            let text: serde_json::Value = serde_json::from_str(visible_event.text()).unwrap();
            assert_eq!(text["quoted_in"].as_array().unwrap().len(), places, "{role:?}: {text}");
        }
    }
}
