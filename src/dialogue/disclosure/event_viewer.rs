//! The events of a dialogue that a client may see.

use crate::events::{DialogueRewound, EventBody};
use colloquy_core::scope::Role;

/// The optional events that a client asks for.
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
    /// Returns a viewer of the events that every client of a role sees.
    #[must_use]
    pub fn of_role(role: Role) -> Self {
        let optional = OptionalEvents::default();
        Self { role, optional }
    }
    /// Returns the viewer with optional events. `None`: the role gets none of them.
    #[must_use]
    pub fn with_optional(self, optional: OptionalEvents) -> Option<Self> {
        let is_permitted = match self.role {
            Role::Admin | Role::Backend | Role::Viewer => true,
            Role::Player | Role::Operator => optional == OptionalEvents::default(),
        };
        is_permitted.then_some(Self { optional, ..self })
    }
    /// Returns what the viewer may see of a rewind.
    #[must_use]
    pub fn show_rewind(&self, rewound: DialogueRewound) -> DialogueRewound {
        match self.role {
            Role::Player => rewound.for_players(),
            Role::Admin | Role::Backend | Role::Viewer | Role::Operator => rewound,
        }
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
