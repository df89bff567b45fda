//! Rewinds of a dialogue's head: turns become unsaid, or stand again (docs/design.md#interrupt-and-rewind).
//!
//! Every turn names its predecessor, so a head fixes the whole chain of turns before it. A rewind chooses the standing
//! chain. Turns outside the chain become unsaid, and unsaid turns in the chain stand again, each with all effects.
//! Interrupts, rewinds, resumed replies and restored saves all use this one operation.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{audit::Edit, jobs::NewJob};
use crate::{
    ids::{DialogueId, RewindId, TurnId, WorldId},
    memory::{fact::Audience, turn::Turn},
    ports::StoreResult,
    tenancy::TenantScope,
};

/// A rewind, in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct RewindCommit {
    pub id: RewindId,
    pub dialogue: DialogueId,
    /// The dialogue's world.
    pub world: WorldId,
    /// The owner's epoch. The rewind raises the epoch, so that a running turn cannot commit.
    pub epoch: u64,
    /// True if a closed dialogue is rewound too.
    pub include_closed: bool,
    /// The new head, standing or unsaid before; `None`: the start of the dialogue.
    pub to: Option<TurnId>,
    /// The turn after `to`, in place of a turn with a longer reply than the player heard.
    pub replacement: Option<Replacement>,
    /// The turn removed for a regenerated reply, named in [`super::dialogues::OpenDialogue::replacing`]. The turn can
    /// stand again unchanged until a turn is committed or the head moves again.
    pub replacing: Option<TurnId>,
    /// Whether the conversation is paused after the rewind; `None`: unchanged.
    pub paused: Option<bool>,
    /// Makes a retry safe; unique in a dialogue.
    pub key: Option<String>,
    /// Keys of other callers served by the same rewind, each with the id of its row. A key already known to the
    /// dialogue keeps its meaning.
    pub other_keys: Vec<(RewindId, String)>,
    /// The rewind is refused if a player has joined at this turn, or at a turn which this turn replaced.
    pub unless_joined: Option<TurnId>,
    /// The `seq` of the rewind's event.
    pub seq: u64,
    /// The rewind's time, author and audit row.
    pub edit: Edit,
    /// Audit rows of other callers served by the same rewind, whose requests were smaller.
    pub other_edits: Vec<Edit>,
}

/// A turn in place of another turn: the same line, number and key, and the heard part of the reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Replacement {
    /// The replaced turn. The replacement takes over its checkpoint and its trace.
    pub of: TurnId,
    pub turn: Turn,
    pub jobs: Vec<NewJob>,
    /// The whole reply, and the end of the time for a resume.
    pub sealed_reply: Option<(String, DateTime<Utc>)>,
}

/// Counts of the changes that a rewind undid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolledBack {
    /// Facts no longer valid, because their source was unsaid.
    pub facts: u32,
    /// Facts valid again, because the cause of their end was unsaid.
    pub restored: u32,
    pub summaries: u32,
    /// Changes of world state.
    pub state: u32,
}

/// A standing turn of another dialogue whose prompt contained text that is now unsaid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct QuotedIn {
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    pub turn: u32,
}

/// The outcome of a rewind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewindRecord {
    pub id: RewindId,
    pub world: WorldId,
    /// The owner's new epoch.
    pub epoch: u64,
    pub head: Option<TurnId>,
    pub head_turn: u32,
    /// The length of the heard part of the last reply, in Unicode scalar values, if the rewind cut the reply.
    pub heard_chars: Option<usize>,
    /// Numbers of turns that no longer stand, rising, without the number of a replaced turn.
    pub removed: Vec<u32>,
    /// Numbers of turns that stand again, rising.
    pub reinstated: Vec<u32>,
    pub rolled_back: RolledBack,
    /// Latest first, at most [`MAX_QUOTED`].
    pub quoted_in: Vec<QuotedIn>,
    /// Closed sessions: a player had joined each from a turn that no longer stands.
    pub closed: Vec<DialogueId>,
    /// The turn removed for a regenerated or resumed reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacing: Option<TurnId>,
    /// The `seq` of the rewind's event; 0 without an event, since a cut of a running reply shows in the turn's own
    /// events.
    pub seq: u64,
    pub at: DateTime<Utc>,
}

impl RewindRecord {
    /// Returns the record for a cut of the running reply of `turn`: the turn stands, and no turn was rewound.
    #[must_use]
    pub fn for_live_cut(id: RewindId, world: WorldId, epoch: u64, turn: &Turn) -> Self {
        Self {
            id,
            world,
            epoch,
            head: Some(turn.id),
            head_turn: turn.number,
            heard_chars: Some(turn.reply_text.chars().count()),
            removed: Vec::new(),
            reinstated: Vec::new(),
            rolled_back: RolledBack::default(),
            quoted_in: Vec::new(),
            closed: Vec::new(),
            replacing: None,
            seq: 0,
            at: turn.committed_at,
        }
    }

    /// Returns the record of a request that changed no turn: the head is still `head`, with the number `head_turn`.
    #[must_use]
    pub fn for_no_change(
        id: RewindId,
        world: WorldId,
        epoch: u64,
        (head, head_turn): (Option<TurnId>, u32),
        at: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            world,
            epoch,
            head,
            head_turn,
            heard_chars: None,
            removed: Vec::new(),
            reinstated: Vec::new(),
            rolled_back: RolledBack::default(),
            quoted_in: Vec::new(),
            closed: Vec::new(),
            replacing: None,
            seq: 0,
            at,
        }
    }

    /// Turns a [`Self::for_no_change`] record into the record of dropped `turn`, cut before its reply's first
    /// character.
    #[must_use]
    pub fn into_dropped(self, turn: u32) -> Self {
        Self {
            head_turn: turn,
            heard_chars: Some(0),
            ..self
        }
    }

    /// True for a record of [`Self::for_live_cut`] or [`Self::into_dropped`].
    #[must_use]
    pub fn is_live_cut(&self) -> bool {
        self.seq == 0 && self.heard_chars.is_some()
    }

    /// True for a record of [`Self::for_no_change`].
    #[must_use]
    pub fn is_no_change(&self) -> bool {
        self.seq == 0 && self.heard_chars.is_none()
    }
}

/// A cut of a running reply. The turn's commit writes the cut too, for the audit log and for retries with its key.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveCut {
    pub rewound: RewindRecord,
    /// Makes a retry safe. A key already known to the dialogue keeps its meaning.
    pub key: Option<String>,
    /// The cut's time, author and audit row.
    pub edit: Edit,
}

/// The largest number of turns in [`RewindRecord::quoted_in`].
pub const MAX_QUOTED: usize = 100;

/// The outcome of a rewind request.
#[derive(Debug, Clone, PartialEq)]
pub enum RewindOutcome {
    Done(Box<RewindRecord>),
    /// The epoch differs: this node no longer owns the dialogue. The store wrote no row.
    Fenced,
    /// The dialogue is closed. The store wrote no row.
    Closed,
    /// `to` is not a turn of this dialogue. The store wrote no row.
    NoSuchTurn,
    /// The key belongs to this earlier rewind. The store wrote no row.
    Repeated(Box<RewindRecord>),
    /// A player has joined there ([`RewindCommit::unless_joined`]). The store wrote no row.
    Joined,
}

/// A memory with a fact unsaid or reinstated. All statements since then must be reconciled again, in the order in which
/// they were said.
#[derive(Debug, Clone, PartialEq)]
pub struct DirtyMemory {
    pub world: WorldId,
    pub audience: Audience,
    pub since: DateTime<Utc>,
    /// The marks covered so far. A later mark leaves the row in place.
    pub mark: u64,
}

/// Callers who get the outcome of a rewind that is not, or not only, their own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RewindAcks {
    /// Their keys, which belong to the rewind from now on, each with the id of its row.
    pub keys: Vec<(RewindId, String)>,
    /// The audit rows of their requests.
    pub edits: Vec<Edit>,
}

/// The rule for keys already known to the dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnKeyConflict {
    /// The keys keep their outcome.
    Keep,
    /// The keys get the new outcome, because their callers got no other answer.
    Replace,
}

/// Stores heads, and the work left by rewinds.
#[async_trait]
pub trait RewindStore: Send + Sync {
    /// Moves a head. Durable when the call returns.
    async fn commit_rewind(&self, scope: &TenantScope, rewind: &RewindCommit) -> StoreResult<RewindOutcome>;
    /// Stores the outcome for callers served without a rewind of their own: all keys and audit rows, or none.
    async fn record_outcome(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        told: &RewindAcks,
        outcome: &RewindRecord,
        known: OnKeyConflict,
    ) -> StoreResult<()>;
    /// Returns the rewind of a key, whether the key's own or a rewind shared with other callers.
    async fn load_rewind_by_key(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        key: &str,
    ) -> StoreResult<Option<RewindRecord>>;
    /// Returns the rewinds of a dialogue with a `seq` above `after`, in order; at most `limit`.
    async fn list_rewinds_since(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        after: u64,
        limit: u32,
    ) -> StoreResult<Vec<RewindRecord>>;
    /// Returns a turn, standing or unsaid, with its uncut reply, until the reply's seal expires.
    async fn load_sealed_reply(
        &self,
        scope: &TenantScope,
        turn: TurnId,
        now: DateTime<Utc>,
    ) -> StoreResult<Option<SealedReply>>;
    /// Deletes every sealed text whose seal has expired by `now`. Returns the number of deleted texts.
    async fn delete_expired_seals(&self, scope: &TenantScope, now: DateTime<Utc>) -> StoreResult<u64>;
    /// Returns at most `limit` open dialogues with a turn removed for regeneration and no committed replacement.
    async fn list_pending_replacements(&self, scope: &TenantScope, limit: u32) -> StoreResult<Vec<DialogueId>>;
    /// Returns memories to reconcile, oldest mark first.
    async fn list_dirty_memories(&self, scope: &TenantScope, limit: u32) -> StoreResult<Vec<DirtyMemory>>;
}

/// The uncut text of a cut reply.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedReply {
    /// The cut turn, if its reply was complete. The turn can then stand again unchanged.
    pub whole: Option<TurnId>,
    /// The client's idempotency key of the turn.
    pub key: Option<String>,
    /// The text generated before the cut.
    pub text: String,
    /// The end of the time for a resume.
    pub until: DateTime<Utc>,
}
