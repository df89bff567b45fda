//! The in-process buffer store, with a size limit. A buffer is dropped some time after the last use.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use moka::{ops::compute::Op, sync::Cache};

use colloquy_core::{
    ids::{DialogueId, TenantId},
    scope::TenantScope,
};
use colloquy_ports::{
    StoreResult,
    buffer::{BufferHead, BufferSnapshot, BufferStore, BufferedTurn},
};

/// Limits of [`InProcessBuffers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferLimits {
    /// The limit of text over all dialogues, in bytes.
    pub max_bytes: u64,
    /// The lifetime of a buffer after its last use.
    pub ttl: Duration,
}

impl Default for BufferLimits {
    fn default() -> Self {
        Self {
            max_bytes: 256 * 1024 * 1024,
            ttl: Duration::from_hours(24),
        }
    }
}

/// Buffers in this process's memory.
#[derive(Debug)]
pub struct InProcessBuffers {
    cache: Cache<(TenantId, DialogueId), Arc<BufferSnapshot>>,
}

impl InProcessBuffers {
    #[must_use]
    pub fn new(limits: BufferLimits) -> Self {
        let cache = Cache::builder()
            .weigher(|_, snapshot: &Arc<BufferSnapshot>| estimate_bytes(snapshot))
            .max_capacity(limits.max_bytes)
            .time_to_idle(limits.ttl)
            .build();
        Self { cache }
    }

    /// Changes the buffer atomically, if its head is `expected`. Returns whether it was.
    fn change_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        change: impl FnOnce(&mut BufferSnapshot),
    ) -> bool {
        let mut changed = false;
        self.cache
            .entry((scope.tenant().clone(), dialogue))
            .and_compute_with(|entry| {
                let stored = entry.map(moka::Entry::into_value);
                let Some(mut snapshot) = stored.filter(|snapshot| snapshot.head == expected) else {
                    return Op::Nop;
                };
                change(Arc::make_mut(&mut snapshot));
                changed = true;
                Op::Put(snapshot)
            });
        changed
    }
}

/// Returns a rough size in bytes: the texts, and a fixed share for each turn and buffer.
fn estimate_bytes(snapshot: &BufferSnapshot) -> u32 {
    let texts: usize = snapshot
        .turns
        .iter()
        .map(|turn| 128 + turn.player_text.len() + turn.reply_text.len())
        .sum();
    u32::try_from(texts + 256).unwrap_or(u32::MAX)
}

#[async_trait]
impl BufferStore for InProcessBuffers {
    async fn load_buffer(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Option<BufferSnapshot>> {
        let snapshot = self.cache.get(&(scope.tenant().clone(), dialogue));
        Ok(snapshot.map(|snapshot| BufferSnapshot::clone(&snapshot)))
    }

    async fn replace_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        snapshot: &BufferSnapshot,
    ) -> StoreResult<()> {
        debug_assert!(snapshot.is_contiguous(), "the turns of a buffer follow each other");
        self.cache
            .insert((scope.tenant().clone(), dialogue), Arc::new(snapshot.clone()));
        Ok(())
    }

    async fn append_turn(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        turn: &BufferedTurn,
        keep_from: u32,
    ) -> StoreResult<bool> {
        Ok(self.change_buffer(scope, dialogue, expected, |buffer| {
            buffer.turns.retain(|stored| stored.number >= keep_from);
            buffer.turns.push(turn.clone());
            debug_assert!(buffer.is_contiguous(), "a turn follows the last turn of the buffer");
            buffer.head.turn = Some(turn.id);
        }))
    }

    async fn truncate_buffer(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        expected: BufferHead,
        last: u32,
        head: BufferHead,
    ) -> StoreResult<bool> {
        Ok(self.change_buffer(scope, dialogue, expected, |buffer| {
            debug_assert!(head.epoch >= buffer.head.epoch, "the epochs of a buffer never fall");
            buffer.turns.retain(|stored| stored.number <= last);
            buffer.head = head;
        }))
    }

    async fn remove_buffer(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<()> {
        self.cache.invalidate(&(scope.tenant().clone(), dialogue));
        Ok(())
    }

    async fn ping(&self) -> StoreResult<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_core::ids::{DialogueKind, GeneratedId, TurnId};

    #[tokio::test]
    async fn buffers_together_stay_within_their_byte_limit() {
        let max_bytes = 100_000;
        let buffers = InProcessBuffers::new(BufferLimits {
            max_bytes,
            ..BufferLimits::default()
        });
        let scope = TenantScope::new("a".parse().unwrap());
        for n in 0..200 {
            let turn = BufferedTurn {
                id: TurnId::from_ulid(ulid::Ulid(n)),
                number: 1,
                player_text: "x".repeat(2_000),
                npc: "mira".parse().unwrap(),
                reply_text: "y".repeat(2_000),
                committed_at: None,
            };
            let snapshot = BufferSnapshot {
                head: BufferHead {
                    epoch: 1,
                    turn: Some(turn.id),
                },
                turns: vec![turn],
            };
            let dialogue = DialogueId::new(DialogueKind::Session, ulid::Ulid(n));
            buffers.replace_buffer(&scope, dialogue, &snapshot).await.unwrap();
        }
        buffers.cache.run_pending_tasks();
        assert!(buffers.cache.weighted_size() <= max_bytes);
        assert!(buffers.cache.entry_count() > 10, "it does keep some");
    }
}
