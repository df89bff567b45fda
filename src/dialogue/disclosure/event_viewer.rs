//! The events of a dialogue that a client may see.

use crate::events::EventBody;
use colloquy_core::scope::Role;

/// The optional events that a client asked for and its role permits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OptionalEvents {
    pub memory: bool,
    pub state: bool,
    pub scenarios: bool,
}

/// A client that sees events of a dialogue.
#[derive(Debug, Clone, Copy)]
pub struct EventViewer {
    role: Role,
    optional: OptionalEvents,
}

/// What a viewer may see of an event.
#[derive(Debug, PartialEq)]
pub enum EventVerdict {
    Whole,
    /// A part, for players.
    Part(EventBody),
    Hidden,
}

impl EventViewer {
    #[must_use]
    pub const fn new(role: Role, optional: OptionalEvents) -> Self {
        Self { role, optional }
    }
    /// Returns a viewer of the events that every client of a role sees.
    #[must_use]
    pub fn of_role(role: Role) -> Self {
        Self::new(role, OptionalEvents::default())
    }
    /// Decides what the viewer may see of an event.
    #[must_use]
    pub fn decide(&self, body: &EventBody) -> EventVerdict {
        let is_visible = match body {
            EventBody::MemoryUpdated { .. } => self.optional.memory,
            EventBody::StateChanged { .. } => self.optional.state,
            EventBody::ScenarioUnlocked { .. } => self.optional.scenarios,
            EventBody::TurnStarted { .. }
            | EventBody::ReplyDelta { .. }
            | EventBody::ReplyDone(_)
            | EventBody::TurnCommitted { .. }
            | EventBody::NpcTurnStarted { .. }
            | EventBody::NpcTurnDelta { .. }
            | EventBody::NpcTurnDone(_)
            | EventBody::NpcTurnCommitted { .. }
            | EventBody::ConversationPaused { .. }
            | EventBody::ConversationResumed { .. }
            | EventBody::ConversationEnded { .. }
            | EventBody::DialogueRewound(_)
            | EventBody::SessionClosed { .. }
            | EventBody::Error { .. } => true,
        };
        if !is_visible {
            return EventVerdict::Hidden;
        }
        let part = body.for_players().filter(|_| self.role == Role::Player);
        part.map_or(EventVerdict::Whole, EventVerdict::Part)
    }
}
