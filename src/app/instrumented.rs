//! Turn store that measures where the time of every committed turn went, for `/metrics`. The folder
//! `instrumented/` does the same for the buffers and the index.
//!
//! A turn's trace contains its timings, and every turn passes through `commit_turn`. The use cases therefore need no
//! knowledge of metrics.

mod buffers;
mod call_metrics;
mod index;

use std::sync::Arc;

use async_trait::async_trait;
use prometheus::{
    Histogram, HistogramVec, IntCounterVec, Registry, register_histogram_vec_with_registry,
    register_histogram_with_registry, register_int_counter_vec_with_registry,
};

pub(super) use self::{buffers::InstrumentedBuffers, index::InstrumentedIndex};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{trace::Timings, turn::TurnStatus};
use colloquy_ports::{
    StoreResult,
    clock::Clock,
    ledger::dialogues::{CommitOutcome, TurnCommit, TurnStore},
};

const PHASE_BUCKETS: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];
const ADDED_LATENCY_BUCKETS: [f64; 19] = [
    0.000_25, 0.000_5, 0.001, 0.001_5, 0.002, 0.003, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0,
    2.5, 5.0,
];

/// The parts of a prompt: the beginning that the previous prompt shares, and the rest.
const PROMPT_PARTS: [&str; 2] = ["unchanged", "changed"];

struct TurnMetrics {
    turns: IntCounterVec,
    added: Histogram,
    phases: HistogramVec,
    prompt_tokens: IntCounterVec,
    sections: IntCounterVec,
}

impl TurnMetrics {
    fn register_in(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            turns: register_int_counter_vec_with_registry!(
                "colloquy_turns_total",
                "Turns committed",
                &["status"],
                registry
            )?,
            added: register_histogram_with_registry!(
                "colloquy_turn_added_seconds",
                "Seconds from player.say to reply.done, less the model's and the embedder's own",
                ADDED_LATENCY_BUCKETS.to_vec(),
                registry
            )?,
            phases: register_histogram_vec_with_registry!(
                "colloquy_turn_phase_seconds",
                "Seconds per phase of a turn",
                &["phase"],
                PHASE_BUCKETS.to_vec(),
                registry
            )?,
            prompt_tokens: register_int_counter_vec_with_registry!(
                "colloquy_prompt_tokens_total",
                "Tokens of the prompts for replies whose previous prompt is known, by part",
                &["part"],
                registry
            )?,
            sections: register_int_counter_vec_with_registry!(
                "colloquy_prompt_sections_total",
                "Sections of prompts, by their use of the budget: within, near (four fifths or more), cut (content left out)",
                &["section", "use"],
                registry
            )?,
        };
        // The series exist from the start, so their rates are correct from the first turn.
        for status in [TurnStatus::Completed, TurnStatus::Interrupted] {
            metrics.turns.with_label_values(&[status.as_str()]);
        }
        for part in PROMPT_PARTS {
            metrics.prompt_tokens.with_label_values(&[part]);
        }
        for (phase, _) in phase_millis(&Timings::default()) {
            metrics.phases.with_label_values(&[phase]);
        }
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
        for section in &commit.trace.sections {
            let used = match (section.dropped.is_empty(), section.near_budget) {
                (false, _) => "cut",
                (true, true) => "near",
                (true, false) => "within",
            };
            self.sections.with_label_values(&[section.name.as_str(), used]).inc();
        }
        if let Some(unchanged) = commit.trace.unchanged_tokens {
            let changed = commit.trace.prompt_tokens.saturating_sub(unchanged);
            for (part, tokens) in PROMPT_PARTS.into_iter().zip([unchanged, changed]) {
                self.prompt_tokens.with_label_values(&[part]).inc_by(tokens.into());
            }
        }
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

/// A turn store that measures its calls.
pub(super) struct InstrumentedTurns {
    inner: Arc<dyn TurnStore>,
    clock: Arc<dyn Clock>,
    metrics: TurnMetrics,
}

impl InstrumentedTurns {
    pub(super) fn new(
        inner: Arc<dyn TurnStore>,
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
impl TurnStore for InstrumentedTurns {
    async fn commit_turn(&self, scope: &TenantScope, commit: &TurnCommit) -> StoreResult<CommitOutcome> {
        let started_at = self.clock.monotonic_now();
        let outcome = self.inner.commit_turn(scope, commit).await?;
        if outcome == CommitOutcome::Committed {
            let elapsed = self.clock.monotonic_now().saturating_duration_since(started_at);
            self.metrics.count_commit(commit, elapsed.as_secs_f64());
        }
        Ok(outcome)
    }
}
