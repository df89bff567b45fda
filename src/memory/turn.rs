//! Turns and checkpoints: the numbered history of a dialogue.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{DialogueId, NpcId, PlayerId, TurnId};

/// How a turn's reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// The model finished.
    Completed,
    /// Cut off by the player; the text is what was sent or heard.
    Interrupted,
    /// The model failed; nothing was committed.
    Failed,
}

impl TurnStatus {
    /// The name on the wire and in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
    /// The inverse of [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Completed, Self::Interrupted, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

/// What the player asked for (ALGORITHMS §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    Chat,
    Memory,
    Scenario,
    World,
    Overheard,
}

impl Intent {
    pub const ALL: [Self; 5] = [Self::Chat, Self::Memory, Self::Scenario, Self::World, Self::Overheard];

    /// The name in prompts, traces and the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Memory => "memory",
            Self::Scenario => "scenario",
            Self::World => "world",
            Self::Overheard => "overheard",
        }
    }
    /// The first intent named in a classifier's answer, if any.
    #[must_use]
    pub fn find_in(answer: &str) -> Option<Self> {
        let answer = answer.to_lowercase();
        Self::ALL
            .into_iter()
            .filter_map(|intent| answer.find(intent.as_str()).map(|at| (at, intent)))
            .min_by_key(|(at, _)| *at)
            .map(|(_, intent)| intent)
    }
}

/// Tokens of one or more model calls, as the endpoint reported them (or counted where it did not).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    pub prompt_tokens: u32,
    /// Prompt tokens the provider served from its cache; part of `prompt_tokens`.
    pub cached_tokens: u32,
    pub completion_tokens: u32,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.completion_tokens += other.completion_tokens;
    }
}

/// A committed turn. In a session: the player's line and the NPC's reply. In an NPC conversation:
/// one NPC's line, with `player_text` empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    pub dialogue: DialogueId,
    /// From 1 in each dialogue.
    pub number: u32,
    pub status: TurnStatus,
    pub player: Option<PlayerId>,
    pub player_text: String,
    pub npc: NpcId,
    /// The reply without its state block, as the player saw (or heard) it.
    pub reply_text: String,
    /// Rises when the text is cut later on; jobs of an older version may not write.
    pub text_version: u32,
    /// Emotion and gesture tags cut from the text.
    pub cues: Vec<String>,
    pub usage: Usage,
    pub started_at: DateTime<Utc>,
    pub committed_at: DateTime<Utc>,
    /// Event sequence numbers, from which a resume after a restart replays
    /// `turn.started`, `reply.done` and `turn.committed`.
    pub seqs: TurnSeqs,
}

impl Turn {
    /// Whether the NPC spoke first, in its persona's own words: no model was asked.
    #[must_use]
    pub fn is_authored_greeting(&self) -> bool {
        self.player.is_some() && self.player_text.is_empty() && self.usage == Usage::default()
    }
}

/// Event sequence numbers of a turn's three durable events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSeqs {
    pub started: u64,
    pub done: u64,
    pub committed: u64,
}

/// The dialogue's mutable state after a turn: ids and counters, not copies (DESIGN §6).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The turn it was taken after; 0 before the first.
    pub turn: u32,
    /// Last turn covered by a summary.
    pub summarised_through: u32,
    /// When the last summary landed.
    pub summarised_at: Option<DateTime<Utc>>,
    /// First turn still in the buffer: the prompt's history starts here. Moves in blocks.
    pub buffer_from: u32,
    /// Scenario titles unlocked or used lately, with the turn until which they stay so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recently_unlocked: Vec<(String, u32)>,
    /// The NPC that spoke last brought the conversation to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}
