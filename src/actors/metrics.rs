//! The actors' metrics for `/metrics`: waiting lines, running and failed turns, jobs and the lag of memory.

use std::time::Duration;

use chrono::{DateTime, Utc};
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use colloquy_core::ids::{DialogueId, DialogueKind};
use colloquy_dialogue::turn::{TurnError, event_error};
use colloquy_ports::ledger::{jobs::Job, metrics::GaugeGuard};

/// The kinds of actors, as the metrics name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActorKind {
    Session,
    NpcConversation,
    Npc,
    Curator,
}

impl ActorKind {
    pub const ALL: [Self; 4] = [Self::Session, Self::NpcConversation, Self::Npc, Self::Curator];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::NpcConversation => "npc_conversation",
            Self::Npc => "npc",
            Self::Curator => "curator",
        }
    }
}

/// Buckets in seconds for jobs after a turn: models are slow, and failed jobs are retried much later.
const JOB_SECONDS_BUCKETS: [f64; 14] = [
    0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0, 3600.0,
];

/// Error codes that listeners get for failed turns: the codes of [`event_error`] for [`is_failure`].
const FAILURE_CODES: [&str; 6] = [
    "model_timeout",
    "model_unavailable",
    "model_failed",
    "store_unavailable",
    "internal",
    "prompt_too_large",
];

/// True if a turn failed against everyone's wish. Fenced turns are counted as [`FencedWrite`]: a restored save fences
/// many turns, which is no reason for an alert. Exhausted budgets have a counter of their own.
fn is_failure(error: &TurnError) -> bool {
    !matches!(
        error,
        TurnError::CutBeforeReply
            | TurnError::CalledTools(_)
            | TurnError::Unsaid
            | TurnError::StaleHead
            | TurnError::Closed
            | TurnError::KeyTaken
            | TurnError::Fenced
            | TurnError::NpcDead
    ) && error.over_budget().is_none()
}

/// Creates the counter of failed turns with all labels, because a rate misses the first failure otherwise.
fn failed_turns_counter() -> prometheus::Result<IntCounterVec> {
    let failed = IntCounterVec::new(
        Opts::new(
            "colloquy_turns_failed_total",
            "Turns that came to nothing by nobody's wish",
        ),
        &["kind", "code"],
    )?;
    for kind in [ActorKind::Session, ActorKind::NpcConversation] {
        for code in FAILURE_CODES {
            failed.with_label_values(&[kind.as_str(), code]);
        }
    }
    Ok(failed)
}

/// Writes reserved to the owner; the ledger refuses writes with another epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FencedWrite {
    /// The commit of a session's turn.
    Turn,
    /// The commit of a line between NPCs.
    Line,
    /// A rewind of the head.
    Rewind,
    Pause,
    Close,
    /// The renewal of the ownership itself.
    Renew,
}

impl FencedWrite {
    const ALL: [Self; 6] = [
        Self::Turn,
        Self::Line,
        Self::Rewind,
        Self::Pause,
        Self::Close,
        Self::Renew,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Line => "line",
            Self::Rewind => "move",
            Self::Pause => "pause",
            Self::Close => "close",
            Self::Renew => "renew",
        }
    }
}

/// Metrics of the local node's actors. Cheap to clone: clones share their counts.
#[derive(Debug, Clone)]
pub struct ActorMetrics {
    lines: IntGauge,
    turns: IntGauge,
    failed: IntCounterVec,
    /// Jobs leased to the node that run or wait in memory.
    pub(super) jobs_held: IntGauge,
    jobs: IntCounterVec,
    job_seconds: HistogramVec,
    lags: HistogramVec,
    /// Per [`ActorKind`], in the order of the enum.
    mailboxes: [IntGauge; ActorKind::ALL.len()],
    waiting: IntGaugeVec,
    fenced: IntCounterVec,
    takeovers: IntCounter,
}

impl Default for ActorMetrics {
    fn default() -> Self {
        Self::new().expect("the names are constants, and a test makes them")
    }
}

impl ActorMetrics {
    fn new() -> prometheus::Result<Self> {
        let mailbox_messages = IntGaugeVec::new(
            Opts::new(
                "colloquy_mailbox_messages",
                "Messages that wait for an actor to come to them",
            ),
            &["kind"],
        )?;
        let fenced = IntCounterVec::new(
            Opts::new(
                "colloquy_fenced_writes_total",
                "Writes that the ledger refused: another owner had the dialogue by then",
            ),
            &["write"],
        )?;
        for write in FencedWrite::ALL {
            fenced.with_label_values(&[write.as_str()]);
        }
        Ok(Self {
            mailboxes: ActorKind::ALL.map(|kind| mailbox_messages.with_label_values(&[kind.as_str()])),
            waiting: mailbox_messages,
            fenced,
            takeovers: IntCounter::new(
                "colloquy_takeovers_total",
                "Dialogues taken over from a node that had not given them up",
            )?,
            lines: IntGauge::new("colloquy_lines_waiting", "Lines that wait behind a running turn")?,
            turns: IntGauge::new("colloquy_turns_running", "Turns that run now")?,
            failed: failed_turns_counter()?,
            jobs_held: IntGauge::new("colloquy_jobs_held", "Jobs leased to this node that run or wait in it")?,
            jobs: IntCounterVec::new(
                Opts::new("colloquy_job_attempts_total", "Attempts at after-turn jobs"),
                &["kind", "outcome"],
            )?,
            job_seconds: HistogramVec::new(
                HistogramOpts::new(
                    "colloquy_job_seconds",
                    "Seconds per attempt at a job, its wait for a place included",
                )
                .buckets(JOB_SECONDS_BUCKETS.to_vec()),
                &["kind"],
            )?,
            lags: HistogramVec::new(
                HistogramOpts::new(
                    "colloquy_job_lag_seconds",
                    "Seconds from a turn's commit to the end of a job of it",
                )
                .buckets(JOB_SECONDS_BUCKETS.to_vec()),
                &["kind"],
            )?,
        })
    }
    /// Registers the metrics.
    ///
    /// # Errors
    /// If the registry has the metrics already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.lines.clone()))?;
        registry.register(Box::new(self.turns.clone()))?;
        registry.register(Box::new(self.failed.clone()))?;
        registry.register(Box::new(self.jobs_held.clone()))?;
        registry.register(Box::new(self.jobs.clone()))?;
        registry.register(Box::new(self.job_seconds.clone()))?;
        registry.register(Box::new(self.lags.clone()))?;
        registry.register(Box::new(self.waiting.clone()))?;
        registry.register(Box::new(self.fenced.clone()))?;
        registry.register(Box::new(self.takeovers.clone()))
    }
    /// Counts a waiting line until the guard is dropped.
    pub(super) fn count_waiting_line(&self) -> GaugeGuard {
        GaugeGuard::increment_gauge(&self.lines)
    }
    /// Counts a message that waits for an actor of the kind, until the guard is dropped.
    pub(super) fn count_waiting_message(&self, kind: ActorKind) -> GaugeGuard {
        GaugeGuard::increment_gauge(&self.mailboxes[kind as usize])
    }
    /// Returns how many messages wait.
    #[cfg(test)]
    pub(super) fn waiting_messages(&self, kind: ActorKind) -> i64 {
        self.mailboxes[kind as usize].get()
    }
    /// Counts a write that the ledger refused because the dialogue had another owner or epoch.
    pub(super) fn count_fenced_write(&self, write: FencedWrite) {
        self.fenced.with_label_values(&[write.as_str()]).inc();
    }
    /// Returns how many writes of the sort were refused.
    #[cfg(test)]
    pub(super) fn fenced_writes(&self, write: FencedWrite) -> u64 {
        self.fenced.with_label_values(&[write.as_str()]).get()
    }
    /// Counts a takeover from a node that had not given up the dialogue.
    pub(super) fn count_takeover(&self) {
        self.takeovers.inc();
    }
    /// Counts a running turn until the guard is dropped.
    pub(super) fn count_running_turn(&self) -> GaugeGuard {
        GaugeGuard::increment_gauge(&self.turns)
    }
    /// Counts a turn that will not be committed, unless the end was wished.
    pub(super) fn count_failed_turn(&self, dialogue: DialogueId, error: &TurnError) {
        let kind = match dialogue.kind() {
            DialogueKind::Session => ActorKind::Session,
            DialogueKind::NpcConversation => ActorKind::NpcConversation,
        };
        if is_failure(error) {
            let code = event_error(error).code;
            self.failed.with_label_values(&[kind.as_str(), code]).inc();
        }
    }
    /// Returns how many turns failed with the code.
    #[cfg(test)]
    pub(super) fn failed_turns_so_far(&self, kind: ActorKind, code: &str) -> u64 {
        self.failed.with_label_values(&[kind.as_str(), code]).get()
    }
    /// Records an attempt at a job that ended at `now` after the duration `duration`.
    pub(super) fn observe_job_attempt(&self, job: &Job, duration: Duration, succeeded: bool, now: DateTime<Utc>) {
        let kind = job.kind.as_str();
        self.jobs
            .with_label_values(&[kind, if succeeded { "done" } else { "failed" }])
            .inc();
        self.job_seconds
            .with_label_values(&[kind])
            .observe(duration.as_secs_f64());
        if succeeded {
            let lag = (now - job.created_at).to_std().unwrap_or_default();
            self.lags.with_label_values(&[kind]).observe(lag.as_secs_f64());
        }
    }
}

/// An actor's share of a gauge, removed when the actor ends.
#[derive(Debug)]
pub(super) struct GaugeShare {
    gauge: IntGauge,
    mine: i64,
}

impl GaugeShare {
    pub(super) fn for_gauge(gauge: &IntGauge) -> Self {
        Self {
            gauge: gauge.clone(),
            mine: 0,
        }
    }
    pub(super) fn set_count(&mut self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.gauge.add(count - self.mine);
        self.mine = count;
    }
}

impl Drop for GaugeShare {
    fn drop(&mut self) {
        self.gauge.sub(self.mine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colloquy_ports::{StoreError, llm::LlmError};

    #[test]
    fn actor_gauge_share_is_removed_with_the_actor() {
        let meters = ActorMetrics::default();
        let (mut one, mut other) = (
            GaugeShare::for_gauge(&meters.jobs_held),
            GaugeShare::for_gauge(&meters.jobs_held),
        );
        one.set_count(3);
        other.set_count(2);
        one.set_count(1);
        assert_eq!(meters.jobs_held.get(), 3);
        drop(one);
        assert_eq!(meters.jobs_held.get(), 2);
    }

    #[test]
    fn failed_turns_are_counted_by_public_code_and_cancelled_turns_are_not() {
        let meters = ActorMetrics::default();
        let session = DialogueId::new(DialogueKind::Session, ulid::Ulid(1));
        let counted = || FAILURE_CODES.map(|code| meters.failed_turns_so_far(ActorKind::Session, code));
        for wished in [
            TurnError::CutBeforeReply,
            TurnError::Unsaid,
            TurnError::Closed,
            TurnError::KeyTaken,
            TurnError::Fenced,
        ] {
            meters.count_failed_turn(session, &wished);
        }
        assert_eq!(counted(), [0; FAILURE_CODES.len()]);
        for failure in [
            TurnError::Model(LlmError::Timeout),
            TurnError::TimedOut,
            TurnError::Model(LlmError::Unavailable(String::new())),
            TurnError::Model(LlmError::RateLimited { retry_after: None }),
            TurnError::Model(LlmError::Refused(String::new())),
            TurnError::Model(LlmError::Broken(String::new())),
            TurnError::Store(StoreError::Unavailable(String::new())),
            TurnError::Store(StoreError::Corrupt(String::new())),
            TurnError::Store(StoreError::Rejected(String::new())),
            TurnError::PromptTooLarge { over: 1 },
        ] {
            meters.count_failed_turn(session, &failure);
        }
        assert_eq!(counted(), [2, 2, 2, 1, 2, 1]);
        let of_npcs = FAILURE_CODES.map(|code| meters.failed_turns_so_far(ActorKind::NpcConversation, code));
        assert_eq!(of_npcs, [0; FAILURE_CODES.len()]);
    }
}
