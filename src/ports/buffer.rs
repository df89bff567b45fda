//! The buffer port: the last raw turns of a dialogue (short-term memory, docs/algorithms.md#buffers-across-nodes).
//!
//! A buffer is a write-through copy of the ledger, never the truth. A missing buffer is a miss and is rebuilt. A buffer
//! without the ledger's (epoch, head turn id) is a miss too.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::StoreResult;
use colloquy_core::{
    ids::{DialogueId, NpcId, TurnId},
    scope::TenantScope,
};
use colloquy_memory::turn::{Turn, TurnStatus};

/// One turn, in the form which a prompt needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferedTurn {
    pub id: TurnId,
    pub number: u32,
    pub player_text: String,
    pub npc: NpcId,
    pub reply_text: String,
    /// When the turn was committed. `None`: in a buffer of an older build, and before the turn of a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<DateTime<Utc>>,
}

impl From<&Turn> for BufferedTurn {
    /// Ends an interrupted reply in a dash, to show the model where the reply was cut.
    fn from(turn: &Turn) -> Self {
        Self {
            id: turn.id,
            number: turn.number,
            player_text: turn.player_text.clone(),
            npc: turn.npc.clone(),
            reply_text: mark_if_interrupted(turn.reply_text.clone(), turn.status),
            committed_at: Some(turn.committed_at),
        }
    }
}

/// Returns the reply as models see it: with a dash at the end if the reply was cut.
#[must_use]
pub fn mark_if_interrupted(mut reply: String, status: TurnStatus) -> String {
    if status == TurnStatus::Interrupted {
        reply.push('\u{2014}');
    }
    reply
}

/// The epoch and the head which a buffer must carry to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferHead {
    /// The dialogue's `owner_epoch`.
    pub epoch: u64,
    /// `None` before the first turn.
    pub turn: Option<TurnId>,
}

/// The buffer of one dialogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferSnapshot {
    pub head: BufferHead,
    /// In order of turn number.
    pub turns: Vec<BufferedTurn>,
}

impl BufferSnapshot {
    /// True if each turn follows the turn before: no turn is missing, and none is there twice.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.turns
            .is_sorted_by(|earlier, later| earlier.number + 1 == later.number)
    }
}

/// Stores the last turns of dialogues for a limited time. Every call refreshes the time to live.
#[async_trait]
pub trait BufferStore: Send + Sync {
    /// Returns the buffer, if the store has a buffer of the dialogue.
    async fn load_buffer(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Option<BufferSnapshot>>;
    /// Replaces the buffer, after a rebuild or a takeover.
    async fn replace_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        snapshot: &BufferSnapshot,
    ) -> StoreResult<()>;
    /// Appends a turn if the buffer's head is `expected`, and drops turns numbered below `keep_from`. Returns `false`
    /// if the head differs: the buffer is unchanged, and the caller replaces it.
    async fn append_turn(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        turn: &BufferedTurn,
        keep_from: u32,
    ) -> StoreResult<bool>;
    /// Drops turns numbered above `last` and sets the head to `head`, atomically, if the head is `expected`. Returns
    /// `false`, without a change, if the head differs or the dialogue has no buffer. Turns under an unexpected head may
    /// be older than another rewind, so they must never look current.
    async fn truncate_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        last: u32,
        head: BufferHead,
    ) -> StoreResult<bool>;
    /// Removes the buffer.
    async fn remove_buffer(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<()>;
    /// Checks that the store answers.
    async fn ping(&self) -> StoreResult<()>;
}
