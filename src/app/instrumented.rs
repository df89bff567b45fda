//! Dialogue store that measures where the time of every committed turn went, for `/metrics`. The folder
//! `instrumented/` does the same for the buffers and the index.
//!
//! A turn's trace contains its timings, and every turn passes through `commit_turn`. The use cases therefore need no
//! knowledge of metrics.

mod buffers;
mod index;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

pub(super) use self::{buffers::InstrumentedBuffers, index::InstrumentedIndex};
use crate::{
    ids::{DialogueId, NodeId, NpcId, PlayerId, TurnId, WorldId},
    memory::{
        private_terms::PrivateTerms,
        summary::Meeting,
        trace::{Timings, TurnTrace},
        turn::{Checkpoint, Turn, TurnStatus},
    },
    ports::{
        Page, PageRequest, StoreResult,
        clock::Clock,
        ledger::dialogues::{
            CommitOutcome, Dialogue, DialogueFilter, DialogueStore, KeyedTurn, OverheardConversation,
            OwnerWriteOutcome, OwnershipClaim, TurnCommit,
        },
    },
    tenancy::TenantScope,
};

const PHASE_BUCKETS: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];
const ADDED_LATENCY_BUCKETS: [f64; 17] = [
    0.000_25, 0.000_5, 0.001, 0.001_5, 0.002, 0.003, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0,
];

struct TurnMetrics {
    turns: IntCounterVec,
    added: Histogram,
    phases: HistogramVec,
}

impl TurnMetrics {
    fn register_in(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            turns: IntCounterVec::new(Opts::new("colloquy_turns_total", "Turns committed"), &["status"])?,
            added: Histogram::with_opts(
                HistogramOpts::new(
                    "colloquy_turn_added_seconds",
                    "Seconds from player.say to reply.done, less the model's, the embedder's and the wait for memory",
                )
                .buckets(ADDED_LATENCY_BUCKETS.to_vec()),
            )?,
            phases: HistogramVec::new(
                HistogramOpts::new("colloquy_turn_phase_seconds", "Seconds per phase of a turn")
                    .buckets(PHASE_BUCKETS.to_vec()),
                &["phase"],
            )?,
        };
        // The series exist from the start, so their rates are correct from the first turn.
        for status in [TurnStatus::Completed, TurnStatus::Interrupted] {
            metrics.turns.with_label_values(&[status.as_str()]);
        }
        for (phase, _) in phase_millis(&Timings::default()) {
            metrics.phases.with_label_values(&[phase]);
        }
        registry.register(Box::new(metrics.turns.clone()))?;
        registry.register(Box::new(metrics.added.clone()))?;
        registry.register(Box::new(metrics.phases.clone()))?;
        Ok(metrics)
    }

    fn count_commit(&self, commit: &TurnCommit, commit_seconds: f64) {
        self.turns.with_label_values(&[commit.turn.status.as_str()]).inc();
        let timings = &commit.trace.timings;
        self.added.observe(timings.added / 1000.0);
        for (phase, millis) in phase_millis(timings) {
            self.phases.with_label_values(&[phase]).observe(millis / 1000.0);
        }
        self.phases.with_label_values(&["commit"]).observe(commit_seconds);
    }
}

fn phase_millis(timings: &Timings) -> [(&'static str, f64); 8] {
    [
        ("queue", timings.queue),
        ("memory_wait", timings.memory_wait),
        ("embed", timings.embed),
        ("recall", timings.recall),
        ("intent", timings.intent),
        ("assemble", timings.assemble),
        ("first_token", timings.first_token),
        ("reply", timings.reply),
    ]
}

/// A dialogue store that measures its calls.
pub(super) struct InstrumentedDialogues {
    inner: Arc<dyn DialogueStore>,
    clock: Arc<dyn Clock>,
    metrics: TurnMetrics,
}

impl InstrumentedDialogues {
    pub(super) fn new(
        inner: Arc<dyn DialogueStore>,
        clock: Arc<dyn Clock>,
        registry: &Registry,
    ) -> prometheus::Result<Self> {
        Ok(Self {
            inner,
            clock,
            metrics: TurnMetrics::register_in(registry)?,
        })
    }
}

#[async_trait]
impl DialogueStore for InstrumentedDialogues {
    async fn commit_turn(&self, scope: &TenantScope, commit: &TurnCommit) -> StoreResult<CommitOutcome> {
        let begun = self.clock.monotonic_now();
        let outcome = self.inner.commit_turn(scope, commit).await?;
        if outcome == CommitOutcome::Committed {
            let took = self.clock.monotonic_now().saturating_duration_since(begun);
            self.metrics.count_commit(commit, took.as_secs_f64());
        }
        Ok(outcome)
    }

    async fn create_dialogue(&self, scope: &TenantScope, dialogue: &Dialogue) -> StoreResult<bool> {
        self.inner.create_dialogue(scope, dialogue).await
    }
    async fn load_dialogue(&self, scope: &TenantScope, id: DialogueId) -> StoreResult<Option<Dialogue>> {
        self.inner.load_dialogue(scope, id).await
    }
    async fn list_dialogues(
        &self,
        scope: &TenantScope,
        filter: &DialogueFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<Dialogue>> {
        self.inner.list_dialogues(scope, filter, page).await
    }
    async fn find_last_overheard(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: Option<&PlayerId>,
    ) -> StoreResult<Option<OverheardConversation>> {
        self.inner.find_last_overheard(scope, world, npc, player).await
    }
    async fn find_last_meeting(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: &PlayerId,
        apart_from: DialogueId,
        unlocked: bool,
    ) -> StoreResult<Option<Meeting>> {
        self.inner
            .find_last_meeting(scope, world, npc, player, apart_from, unlocked)
            .await
    }
    async fn set_resume_token(&self, scope: &TenantScope, id: DialogueId, hash: &[u8]) -> StoreResult<bool> {
        self.inner.set_resume_token(scope, id, hash).await
    }
    async fn close_dialogue(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        at: DateTime<Utc>,
    ) -> StoreResult<OwnerWriteOutcome> {
        self.inner.close_dialogue(scope, id, epoch, at).await
    }
    async fn set_paused(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        paused: bool,
    ) -> StoreResult<OwnerWriteOutcome> {
        self.inner.set_paused(scope, id, epoch, paused).await
    }
    async fn claim_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> StoreResult<OwnershipClaim> {
        self.inner.claim_ownership(scope, id, node, now, until).await
    }
    async fn renew_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        until: DateTime<Utc>,
    ) -> StoreResult<bool> {
        self.inner.renew_ownership(scope, id, epoch, until).await
    }
    async fn release_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        next_seq: u64,
    ) -> StoreResult<()> {
        self.inner.release_ownership(scope, id, epoch, next_seq).await
    }
    async fn release_all_ownership(&self, node: NodeId) -> StoreResult<()> {
        self.inner.release_all_ownership(node).await
    }
    async fn load_turns(&self, scope: &TenantScope, id: DialogueId, from: u32, to: u32) -> StoreResult<Vec<Turn>> {
        self.inner.load_turns(scope, id, from, to).await
    }
    async fn load_turn(&self, scope: &TenantScope, id: TurnId) -> StoreResult<Option<KeyedTurn>> {
        self.inner.load_turn(scope, id).await
    }
    async fn load_turn_by_key(&self, scope: &TenantScope, id: DialogueId, key: &str) -> StoreResult<Option<KeyedTurn>> {
        self.inner.load_turn_by_key(scope, id, key).await
    }
    async fn list_turn_keys(&self, scope: &TenantScope, id: DialogueId, most: usize) -> StoreResult<Vec<String>> {
        self.inner.list_turn_keys(scope, id, most).await
    }
    async fn load_trace(&self, scope: &TenantScope, id: DialogueId, number: u32) -> StoreResult<Option<TurnTrace>> {
        self.inner.load_trace(scope, id, number).await
    }
    async fn load_confided(&self, scope: &TenantScope, id: DialogueId, last: u32) -> StoreResult<Option<PrivateTerms>> {
        self.inner.load_confided(scope, id, last).await
    }
    async fn load_checkpoint(&self, scope: &TenantScope, id: DialogueId) -> StoreResult<Option<Checkpoint>> {
        self.inner.load_checkpoint(scope, id).await
    }
}
