//! The events that a dialogue sends to its listeners (docs/protocol.md#events-of-the-server). This module defines the
//! meaning; `http` and the socket define the wire form.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::knowledge::scenarios::ScenarioUnlock;
use colloquy_core::ids::{DialogueId, DialogueKind, FactId, NpcId, ScenarioId, TurnId};
use colloquy_memory::{
    state::StateChange,
    turn::{TurnStatus, Usage},
};
use colloquy_ports::ledger::rewinds::{QuotedIn, RewindRecord, RolledBack};

/// An event about one dialogue. Serialises to exactly the wire form (docs/protocol.md#events-of-the-server).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DialogueEvent {
    pub dialogue_id: DialogueId,
    /// Rises within a dialogue. Only durable events have a `seq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The `event_id` of the client message that caused the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub re: Option<Arc<str>>,
    #[serde(flatten)]
    pub body: EventBody,
}

/// What happened. A new event is a new variant: the documents of the socket take names, fields and comments from here.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type")]
pub enum EventBody {
    /// The NPC starts to answer a line.
    #[serde(rename = "turn.started")]
    TurnStarted { turn: u32 },
    /// A piece of the reply. Not durable; may be joined with the next piece.
    #[serde(rename = "reply.delta")]
    ReplyDelta {
        turn: u32,
        /// Where the piece begins in the reply, in Unicode scalar values.
        #[schema(value_type = u64)]
        offset: usize,
        #[schema(value_type = String)]
        npc_id: NpcId,
        text: String,
    },
    /// The end of the reply. Sent once per started turn.
    #[serde(rename = "reply.done")]
    ReplyDone(#[schema(inline)] ReplyDone),
    /// The turn is durable.
    #[serde(rename = "turn.committed")]
    TurnCommitted {
        turn: u32,
        #[schema(value_type = String)]
        turn_id: TurnId,
    },
    /// The facts that a turn taught. Only with `include`, never for players.
    #[serde(rename = "memory.updated")]
    MemoryUpdated { turn: u32, facts: Vec<MemoryChange> },
    /// The world changes that a turn made. Only with `include`, never for players.
    #[serde(rename = "state.changed")]
    StateChanged {
        turn: u32,
        #[schema(value_type = Vec<Object>)]
        changes: Vec<StateChange>,
    },
    /// A turn's world change unlocked a memory of an NPC's past for the player. Follows `turn.committed`, perhaps after
    /// the next turn has begun. At most 32 per turn; not sent if the server ends first. Only with `include`, never for
    /// players.
    #[serde(rename = "scenario.unlocked")]
    ScenarioUnlocked {
        turn: u32,
        #[schema(value_type = String)]
        scenario_id: ScenarioId,
        title: String,
        #[schema(value_type = String)]
        npc_id: NpcId,
    },
    /// An NPC begins its line.
    #[serde(rename = "npc_turn.started")]
    NpcTurnStarted {
        turn: u32,
        #[schema(value_type = String)]
        npc_id: NpcId,
    },
    /// A piece of the line. Not durable; may be joined with the next piece.
    #[serde(rename = "npc_turn.delta")]
    NpcTurnDelta {
        turn: u32,
        /// Where the piece begins in the line, in Unicode scalar values.
        #[schema(value_type = u64)]
        offset: usize,
        #[schema(value_type = String)]
        npc_id: NpcId,
        text: String,
    },
    /// The end of the line. Sent once per started line.
    #[serde(rename = "npc_turn.done")]
    NpcTurnDone(#[schema(inline)] ReplyDone),
    /// The line is durable.
    #[serde(rename = "npc_turn.committed")]
    NpcTurnCommitted {
        turn: u32,
        #[schema(value_type = String)]
        turn_id: TurnId,
        #[schema(value_type = String)]
        npc_id: NpcId,
    },
    /// The conversation is paused until a resume or a step.
    #[serde(rename = "npc_conversation.paused")]
    ConversationPaused {
        turn: u32,
        /// `interrupted`, `joined` or `failed` (the model failed repeatedly).
        reason: &'static str,
    },
    /// The conversation continues.
    #[serde(rename = "npc_conversation.resumed")]
    ConversationResumed { turn: u32 },
    /// The conversation has ended.
    #[serde(rename = "npc_conversation.ended")]
    ConversationEnded {
        turn: u32,
        /// `concluded`, `max_turns`, `closed by request`, `npc_deleted`, `world_deleted`, `moved` (to another node) or
        /// `restored` (a loaded save in which the conversation is not open).
        reason: &'static str,
    },
    /// Turns were taken back or stand again. A client with a transcript cuts the transcript at `turn` and continues
    /// from there.
    #[serde(rename = "dialogue.rewound")]
    DialogueRewound(#[schema(inline)] DialogueRewound),
    /// The session has ended.
    #[serde(rename = "session.closed")]
    SessionClosed {
        /// `closed by the client`, `closed by request`, `npc_deleted`, `world_deleted`, `rewound`, `restored` or
        /// `moved`. `rewound`: the turn at which the player joined was taken back. `restored`: the session is not open
        /// in the loaded save. `moved`: the session moved to another node.
        reason: &'static str,
    },
    /// A line that never became a turn (`turn` unset), or a turn that could not be committed after its `reply.done`: no
    /// `turn.committed` will follow.
    #[serde(rename = "error")]
    Error {
        #[serde(skip_serializing_if = "Option::is_none")]
        turn: Option<u32>,
        error: EventError,
    },
}

/// The result of a rewind.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct DialogueRewound {
    /// The last turn that stands; 0 if no turn stands.
    pub turn: u32,
    /// The heard part of the last reply in Unicode scalar values, if the reply was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, nullable = false)]
    pub heard_chars: Option<usize>,
    /// Turns that no longer stand.
    pub removed_turns: Vec<u32>,
    /// Turns that stand again, unchanged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reinstated_turns: Vec<u32>,
    pub rolled_back: RolledBack,
    /// Turns of other dialogues whose prompts quoted text that is now unsaid. Empty for players.
    pub quoted_in: Vec<QuotedIn>,
}

impl DialogueRewound {
    /// Removes the other dialogues, because a player's client must not learn where they are.
    #[must_use]
    pub fn for_players(mut self) -> Self {
        self.quoted_in.clear();
        self
    }
}

impl From<&RewindRecord> for DialogueRewound {
    fn from(rewound: &RewindRecord) -> Self {
        Self {
            turn: rewound.head_turn,
            heard_chars: rewound.heard_chars,
            removed_turns: rewound.removed.clone(),
            reinstated_turns: rewound.reinstated.clone(),
            rolled_back: rewound.rolled_back,
            quoted_in: rewound.quoted_in.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ReplyDone {
    pub turn: u32,
    #[schema(value_type = String)]
    pub npc_id: NpcId,
    pub text: String,
    pub status: TurnStatus,
    pub usage: Usage,
    /// Emotion and gesture tags, removed from the text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cues: Vec<String>,
    /// Set when `status` is `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<EventError>,
}

impl ReplyDone {
    fn for_players(mut self) -> Self {
        self.usage = self.usage.for_players();
        self
    }
}

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = TurnFailure)]
#[serde(deny_unknown_fields)]
pub struct EventError {
    pub code: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MemoryChange {
    #[schema(value_type = String)]
    pub id: FactId,
    pub content: String,
    pub op: MemoryOp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryOp {
    Added,
    /// Merged into a newer fact, or superseded by it.
    Invalidated,
    /// A protected fact was contradicted; a person should decide.
    Flagged,
}

impl EventBody {
    /// Returns the event as a player's client may see it. `None`: the event needs no change.
    #[must_use]
    pub fn for_players(&self) -> Option<Self> {
        match self {
            Self::DialogueRewound(rewound) if !rewound.quoted_in.is_empty() => {
                Some(Self::DialogueRewound(rewound.clone().for_players()))
            }
            Self::ReplyDone(reply) if reply.usage.prompt_tokens > 0 => {
                Some(Self::ReplyDone(reply.clone().for_players()))
            }
            Self::NpcTurnDone(reply) if reply.usage.prompt_tokens > 0 => {
                Some(Self::NpcTurnDone(reply.clone().for_players()))
            }
            _ => None,
        }
    }
    pub fn scenarios_unlocked(turn: u32, unlocked: Vec<ScenarioUnlock>) -> impl Iterator<Item = Self> {
        unlocked.into_iter().map(move |unlocked| Self::ScenarioUnlocked {
            turn,
            scenario_id: unlocked.scenario,
            title: unlocked.title,
            npc_id: unlocked.npc,
        })
    }
    /// Builds `turn.started`, or its counterpart for this kind of dialogue.
    #[must_use]
    pub fn turn_started(kind: DialogueKind, turn: u32, npc_id: NpcId) -> Self {
        match kind {
            DialogueKind::Session => Self::TurnStarted { turn },
            DialogueKind::NpcConversation => Self::NpcTurnStarted { turn, npc_id },
        }
    }
    /// Builds `reply.delta`, or its counterpart for this kind of dialogue.
    #[must_use]
    pub fn reply_delta(kind: DialogueKind, turn: u32, offset: usize, npc_id: NpcId, text: String) -> Self {
        match kind {
            DialogueKind::Session => Self::ReplyDelta {
                turn,
                offset,
                npc_id,
                text,
            },
            DialogueKind::NpcConversation => Self::NpcTurnDelta {
                turn,
                offset,
                npc_id,
                text,
            },
        }
    }
    /// Builds `reply.done`, or its counterpart for this kind of dialogue.
    #[must_use]
    pub const fn reply_done(kind: DialogueKind, reply: ReplyDone) -> Self {
        match kind {
            DialogueKind::Session => Self::ReplyDone(reply),
            DialogueKind::NpcConversation => Self::NpcTurnDone(reply),
        }
    }
    /// Builds `turn.committed`, or its counterpart for this kind of dialogue.
    #[must_use]
    pub fn turn_committed(kind: DialogueKind, turn: u32, turn_id: TurnId, npc_id: NpcId) -> Self {
        match kind {
            DialogueKind::Session => Self::TurnCommitted { turn, turn_id },
            DialogueKind::NpcConversation => Self::NpcTurnCommitted { turn, turn_id, npc_id },
        }
    }
    /// Returns the turn, offset and text of a piece of a reply or line.
    #[must_use]
    pub fn as_delta(&self) -> Option<(u32, usize, &str)> {
        match self {
            Self::ReplyDelta { turn, offset, text, .. } | Self::NpcTurnDelta { turn, offset, text, .. } => {
                Some((*turn, *offset, text))
            }
            _ => None,
        }
    }
    /// Returns the text of a piece, to append to.
    #[must_use]
    pub fn delta_text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::ReplyDelta { text, .. } | Self::NpcTurnDelta { text, .. } => Some(text),
            _ => None,
        }
    }
    /// True for durable events, which carry a `seq` and are replayed on resume.
    #[must_use]
    pub const fn is_durable(&self) -> bool {
        !matches!(self, Self::ReplyDelta { .. } | Self::NpcTurnDelta { .. })
    }
    /// True if the event reports that the dialogue continues on another node. No further event comes from this node.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        matches!(
            self,
            Self::SessionClosed { reason: "moved" } | Self::ConversationEnded { reason: "moved", .. }
        )
    }
}
