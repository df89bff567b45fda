//! Rewinds of a dialogue's head: turns become unsaid, or stand again (docs/internals/rewinds.md).
//!
//! Every turn names its predecessor, so a head fixes the whole chain of turns before it. A rewind chooses the standing
//! chain. Turns outside the chain become unsaid, and unsaid turns in the chain stand again, each with all effects.
//! Interrupts, rewinds, resumed replies and restored saves all use this one operation.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{audit::Edit, new_job::NewJob};
use crate::StoreResult;
use colloquy_core::{
    ids::{DialogueId, RewindId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{disclosure::audience::Audience, turn::Turn};

/// A rewind, in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct RewindCommit {
    pub id: RewindId,
    pub rewound_at: DateTime<Utc>,
    pub dialogue: DialogueId,
    /// The dialogue's world.
    pub world: WorldId,
    /// The owner's epoch. The rewind raises the epoch, so that a running turn cannot commit.
    pub epoch: u64,
    pub origin: RewindOrigin,
    /// The new head, standing or unsaid before; `None`: the start of the dialogue.
    pub to: Option<TurnId>,
    /// The turn after `to`, in place of a turn with a longer reply than the player heard.
    pub replacement: Option<Replacement>,
    /// The turn removed for a regenerated reply, named in [`super::dialogues::OpenDialogue::replacing`]. The turn can
    /// stand again unchanged until a turn is committed or the head moves again.
    pub replacing: Option<TurnId>,
    /// Whether the conversation is paused after the rewind; `None`: unchanged.
    pub paused: Option<bool>,
    /// The jobs of turns that stand again are held until then; `None`: they are due at once.
    pub held_until: Option<DateTime<Utc>>,
    /// Makes a retry safe; unique in a dialogue.
    pub key: Option<String>,
    /// Keys of other callers served by the same rewind, each with the id of its row. A key already known to the
    /// dialogue keeps its meaning.
    pub other_keys: Vec<(RewindId, String)>,
    /// The `seq` of the rewind's event.
    pub seq: u64,
    /// Audit rows of all callers. The first caller's request decided the new head.
    pub edits: Vec<Edit>,
}

/// The origin of a rewind, which decides the conditions of the rewind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindOrigin {
    /// An interrupt, a rewind or a regenerate. Only an open dialogue is rewound.
    Request,
    /// A resume of the reply of turn `cut`. Only an open dialogue is rewound, and only if no player has joined at the
    /// turn, or at a turn which this turn replaced.
    Resume { cut: TurnId },
    /// A replaced turn stands again, in a closed dialogue too.
    Reinstatement,
    /// A restored save. The save decides whether the dialogue is open, and which other dialogues are closed.
    Restore { open: bool },
}

/// A turn in place of another turn: the same line, number and key, and the heard part of the reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Replacement {
    /// The replaced turn. The replacement takes over its checkpoint and its trace.
    pub replaced_turn: TurnId,
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

/// A rewind that moved the head.
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
    /// The `seq` of the rewind's event.
    pub seq: u64,
    #[serde(rename = "at")]
    pub rewound_at: DateTime<Utc>,
}

/// What an interrupt did. The ledger stores the outcome with the key of each caller, and a repeated request gets the
/// outcome again.
///
/// In JSON, `kind` names the variant, and the fields of a [`RewindRecord`] stand beside `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", from = "StoredOutcome")]
pub enum InterruptOutcome {
    /// The running reply was cut. The turn is committed as interrupted.
    Cut { turn: u32 },
    /// The running turn was cut before the first character of its reply, and dropped.
    Dropped { turn: u32 },
    /// No turn was running, and no turn follows `head_turn`.
    Idle { head_turn: u32 },
    /// The dialogue was rewound, and the later turns are unsaid.
    Rewound(Arc<RewindRecord>),
}

/// An outcome in JSON, of this build or of an earlier build.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum StoredOutcome {
    Cut {
        turn: u32,
    },
    Dropped {
        turn: u32,
    },
    Idle {
        head_turn: u32,
    },
    Rewound(Arc<RewindRecord>),
    /// A row of an earlier build: a record for every outcome. Without an event (`seq` 0), the head was not moved, and
    /// `heard_chars` tells whether a reply was cut.
    #[serde(untagged)]
    WithoutKind(Arc<RewindRecord>),
}

impl From<StoredOutcome> for InterruptOutcome {
    fn from(stored: StoredOutcome) -> Self {
        match stored {
            StoredOutcome::Cut { turn } => Self::Cut { turn },
            StoredOutcome::Dropped { turn } => Self::Dropped { turn },
            StoredOutcome::Idle { head_turn } => Self::Idle { head_turn },
            StoredOutcome::Rewound(record) => Self::Rewound(record),
            StoredOutcome::WithoutKind(record) => match (record.seq, record.heard_chars, record.head_turn) {
                (0, None, head_turn) => Self::Idle { head_turn },
                (0, Some(0), turn) => Self::Dropped { turn },
                (0, Some(_), turn) => Self::Cut { turn },
                _ => Self::Rewound(record),
            },
        }
    }
}

/// A cut of a running reply. The turn's commit writes the cut too, for the audit log and for retries with its key.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveCut {
    pub id: RewindId,
    /// Makes a retry safe. A key already known to the dialogue keeps its meaning.
    pub key: Option<String>,
    /// The cut's time, author and audit row.
    pub edit: Edit,
}

/// The largest number of turns in [`RewindRecord::quoted_in`].
pub const MAX_QUOTED: usize = 100;

/// The result of a rewind's commit.
#[derive(Debug, Clone, PartialEq)]
pub enum RewindCommitResult {
    Done(Arc<RewindRecord>),
    /// The epoch differs: this node no longer owns the dialogue. The store wrote no row.
    Fenced,
    /// The dialogue is closed. The store wrote no row.
    Closed,
    /// `to` is not a turn of this dialogue. The store wrote no row.
    NoSuchTurn,
    /// The key has this outcome already. The store wrote no row.
    Repeated(InterruptOutcome),
    /// A player has joined at the turn of [`RewindOrigin::Resume`]. The store wrote no row.
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

/// Callers who get an outcome that is not, or not only, their own.
#[derive(Debug, Clone, PartialEq)]
pub struct RewindAcks {
    pub recorded_at: DateTime<Utc>,
    /// Their keys, which have the outcome from now on, each with the id of its row.
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
    async fn commit_rewind(&self, scope: &TenantScope, rewind: &RewindCommit) -> StoreResult<RewindCommitResult>;
    /// Stores the outcome for callers served without a rewind of their own: all keys and audit rows, or none.
    async fn record_outcome(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        acks: &RewindAcks,
        outcome: &InterruptOutcome,
        on_conflict: OnKeyConflict,
    ) -> StoreResult<()>;
    /// Returns the outcome of a key, whether the key's own or an outcome shared with other callers.
    async fn load_outcome_by_key(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        key: &str,
    ) -> StoreResult<Option<InterruptOutcome>>;
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
    /// Returns how many turns of this number took the place of a turn with a longer reply: the cuts of committed replies,
    /// those of turns that were unsaid since too.
    async fn count_cuts(&self, scope: &TenantScope, dialogue: DialogueId, number: u32) -> StoreResult<u64>;
    /// Returns the highest number of a stored turn, standing or unsaid; 0: no turn. Old unsaid turns are pruned.
    async fn load_highest_turn(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<u32>;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A row of a build without `kind`.
    fn old_row(seq: u64, heard_chars: Option<usize>) -> serde_json::Value {
        json!({
            "id": "rew_00000000000000000000000001", "world": "vale", "epoch": 4,
            "head": "turn_00000000000000000000000002", "head_turn": 2, "heard_chars": heard_chars,
            "removed": [], "reinstated": [],
            "rolled_back": {"facts": 0, "restored": 0, "summaries": 0, "state": 0},
            "quoted_in": [], "closed": [], "seq": seq, "at": "2026-11-22T10:00:00.000001Z",
        })
    }

    fn read(row: &serde_json::Value) -> InterruptOutcome {
        serde_json::from_str(&row.to_string()).unwrap()
    }

    #[test]
    fn outcomes_of_earlier_builds_are_read_by_their_event_and_their_heard_length() {
        assert_eq!(read(&old_row(0, Some(7))), InterruptOutcome::Cut { turn: 2 });
        assert_eq!(read(&old_row(0, Some(0))), InterruptOutcome::Dropped { turn: 2 });
        assert_eq!(read(&old_row(0, None)), InterruptOutcome::Idle { head_turn: 2 });
        for heard in [Some(7), Some(0), None] {
            let row = old_row(9, heard);
            let record: RewindRecord = serde_json::from_value(row.clone()).unwrap();
            assert_eq!(read(&row), InterruptOutcome::Rewound(Arc::new(record)));
        }
    }

    #[test]
    fn outcomes_name_their_kind_in_json() {
        let record: Arc<RewindRecord> = serde_json::from_value(old_row(9, Some(7))).unwrap();
        for (outcome, expected) in [
            (InterruptOutcome::Cut { turn: 3 }, json!({"kind": "cut", "turn": 3})),
            (
                InterruptOutcome::Dropped { turn: 3 },
                json!({"kind": "dropped", "turn": 3}),
            ),
            (
                InterruptOutcome::Idle { head_turn: 3 },
                json!({"kind": "idle", "head_turn": 3}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&outcome).unwrap(), expected);
            assert_eq!(read(&expected), outcome);
        }
        let mut expected = old_row(9, Some(7));
        expected["kind"] = json!("rewound");
        let outcome = InterruptOutcome::Rewound(Arc::clone(&record));
        assert_eq!(serde_json::to_value(&outcome).unwrap(), expected);
        assert_eq!(read(&expected), outcome);
        // The readers of events read the same rows.
        assert_eq!(serde_json::from_value::<RewindRecord>(expected).unwrap(), *record);
    }
}
