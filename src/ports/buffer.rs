//! The buffer port: the last raw turns of a dialogue (short-term memory, docs/algorithms.md#buffers-across-nodes).
//!
//! A write-through copy of the ledger, never the truth: whatever is missing or does not carry the
//! ledger's (epoch, head turn id) is a miss and is rebuilt.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::StoreResult;
use crate::{
    ids::{DialogueId, NpcId, TurnId},
    memory::turn::{Turn, TurnStatus},
    tenancy::TenantScope,
};

/// One turn as the prompt needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferedTurn {
    pub id: TurnId,
    pub number: u32,
    pub player_text: String,
    pub npc: NpcId,
    pub reply_text: String,
}

impl From<&Turn> for BufferedTurn {
    /// An interrupted reply ends in a dash, so that the model sees where it was cut.
    fn from(turn: &Turn) -> Self {
        Self {
            id: turn.id,
            number: turn.number,
            player_text: turn.player_text.clone(),
            npc: turn.npc.clone(),
            reply_text: mark_if_interrupted(turn.reply_text.clone(), turn.status),
        }
    }
}

/// A reply as models are shown it: with a dash where it was cut.
#[must_use]
pub fn mark_if_interrupted(mut reply: String, status: TurnStatus) -> String {
    if status == TurnStatus::Interrupted {
        reply.push('\u{2014}');
    }
    reply
}

/// What a buffer must carry to be believed.
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
    /// In order of their numbers.
    pub turns: Vec<BufferedTurn>,
}

/// Keeps the last turns of dialogues for a while. Every call refreshes the time to live.
#[async_trait]
pub trait BufferStore: Send + Sync {
    /// The buffer, if there is one.
    async fn load_buffer(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Option<BufferSnapshot>>;
    /// Replaces the buffer: after a rebuild or a takeover.
    async fn replace_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        snapshot: &BufferSnapshot,
    ) -> StoreResult<()>;
    /// Appends a turn if the buffer's head is `expected`, and drops turns numbered below `keep_from`.
    /// `false`: the head was another, nothing changed (the caller replaces).
    async fn append_turn(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        turn: &BufferedTurn,
        keep_from: u32,
    ) -> StoreResult<bool>;
    /// Drops turns numbered above `last`, atomically, if the buffer's head is `expected`; it has `head` from
    /// then on. `false`: the head was another, or there is no buffer, and nothing changed. What a buffer has
    /// under a head that is not the expected one may be from before another move, and is never made to look new.
    async fn truncate_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        last: u32,
        head: BufferHead,
    ) -> StoreResult<bool>;
    /// Forgets the buffer.
    async fn remove_buffer(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<()>;
    /// Asks for a sign of life.
    async fn ping(&self) -> StoreResult<()>;
}
