//! What the actors measure, for `/metrics`: lines that wait, turns that run or fail, jobs and how far memory lags.

use std::time::Duration;

use chrono::{DateTime, Utc};
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::mailbox::Kind;
use crate::{
    dialogue::turn::{TurnError, event_error},
    ids::{DialogueId, DialogueKind},
    ports::ledger::{jobs::Job, meters::Counted},
};

/// Seconds of what runs after a turn: models are slow, and what failed is tried again much later.
const SECONDS: [f64; 14] = [
    0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0, 3600.0,
];

/// What those who listen are told of turns that failed: the codes that [`event_error`] has for [`is_failure`].
const FAILURES: [&str; 6] = [
    "model_timeout",
    "model_unavailable",
    "model_failed",
    "store_unavailable",
    "internal",
    "prompt_too_large",
];

/// Whether a turn came to nothing by nobody's wish. One that was fenced is counted as a [`FencedWrite`]: a save that
/// is restored ends many so, and they are no reason to wake anybody. Budgets have a count of their own.
fn is_failure(error: &TurnError) -> bool {
    !matches!(
        error,
        TurnError::CutBeforeReply | TurnError::Unsaid | TurnError::Closed | TurnError::KeyTaken | TurnError::Fenced
    ) && error.over_budget().is_none()
}

/// Turns that failed, all of them shown from the start: a rate knows nothing of the first one otherwise.
fn failed_turns() -> prometheus::Result<IntCounterVec> {
    let failed = IntCounterVec::new(
        Opts::new(
            "colloquy_turns_failed_total",
            "Turns that came to nothing by nobody's wish",
        ),
        &["kind", "code"],
    )?;
    for kind in [Kind::Session, Kind::NpcConversation] {
        for code in FAILURES {
            failed.with_label_values(&[kind.as_str(), code]);
        }
    }
    Ok(failed)
}

/// Writes that are the owner's alone, of which the ledger refuses those of another epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FencedWrite {
    /// The commit of a session's turn.
    Turn,
    /// The commit of a line between NPCs.
    Line,
    /// A move of the head.
    Move,
    Pause,
    Close,
    /// Prolonging the ownership itself.
    Renew,
}

impl FencedWrite {
    const ALL: [Self; 6] = [
        Self::Turn,
        Self::Line,
        Self::Move,
        Self::Pause,
        Self::Close,
        Self::Renew,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Line => "line",
            Self::Move => "move",
            Self::Pause => "pause",
            Self::Close => "close",
            Self::Renew => "renew",
        }
    }
}

/// Meters of this node's actors. Cheap to clone: clones count together.
#[derive(Debug, Clone)]
pub struct ActorMeters {
    lines: IntGauge,
    turns: IntGauge,
    failed: IntCounterVec,
    /// Jobs leased to this node that run or wait here.
    pub(super) jobs_held: IntGauge,
    jobs: IntCounterVec,
    job_seconds: HistogramVec,
    lags: HistogramVec,
    /// Per [`Kind`], in its order.
    mailboxes: [IntGauge; Kind::ALL.len()],
    waiting: IntGaugeVec,
    fenced: IntCounterVec,
    takeovers: IntCounter,
}

impl Default for ActorMeters {
    fn default() -> Self {
        Self::new().expect("the names are constants, and a test makes them")
    }
}

impl ActorMeters {
    fn new() -> prometheus::Result<Self> {
        let waiting = IntGaugeVec::new(
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
            mailboxes: Kind::ALL.map(|kind| waiting.with_label_values(&[kind.as_str()])),
            waiting,
            fenced,
            takeovers: IntCounter::new(
                "colloquy_takeovers_total",
                "Dialogues taken over from a node that had not given them up",
            )?,
            lines: IntGauge::new("colloquy_lines_waiting", "Lines that wait behind a running turn")?,
            turns: IntGauge::new("colloquy_turns_running", "Turns that run now")?,
            failed: failed_turns()?,
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
                .buckets(SECONDS.to_vec()),
                &["kind"],
            )?,
            lags: HistogramVec::new(
                HistogramOpts::new(
                    "colloquy_job_lag_seconds",
                    "Seconds from a turn's commit to the end of a job of it",
                )
                .buckets(SECONDS.to_vec()),
                &["kind"],
            )?,
        })
    }
    /// Shows them.
    ///
    /// # Errors
    /// If the registry has them already.
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
    /// A line waits from now on.
    pub(super) fn line(&self) -> Counted {
        Counted::of(&self.lines)
    }
    /// A message waits for an actor of this kind from now on.
    pub(super) fn message(&self, kind: Kind) -> Counted {
        Counted::of(&self.mailboxes[kind as usize])
    }
    /// How many messages wait.
    #[cfg(test)]
    pub(super) fn messages(&self, kind: Kind) -> i64 {
        self.mailboxes[kind as usize].get()
    }
    /// The ledger refused a write since the dialogue was another's by then.
    pub(super) fn fenced(&self, write: FencedWrite) {
        self.fenced.with_label_values(&[write.as_str()]).inc();
    }
    /// How many writes of this sort were refused so.
    #[cfg(test)]
    pub(super) fn fenced_so_far(&self, write: FencedWrite) -> u64 {
        self.fenced.with_label_values(&[write.as_str()]).get()
    }
    /// A dialogue was taken over from a node that had not given it up.
    pub(super) fn took_over(&self) {
        self.takeovers.inc();
    }
    /// A turn runs from now on.
    pub(super) fn turn(&self) -> Counted {
        Counted::of(&self.turns)
    }
    /// A turn of this dialogue will not be committed. Counts it if nobody had wished so.
    pub(super) fn not_committed(&self, dialogue: DialogueId, error: &TurnError) {
        let kind = match dialogue.kind() {
            DialogueKind::Session => Kind::Session,
            DialogueKind::NpcConversation => Kind::NpcConversation,
        };
        if is_failure(error) {
            let code = event_error(error).code;
            self.failed.with_label_values(&[kind.as_str(), code]).inc();
        }
    }
    /// How many turns failed so.
    #[cfg(test)]
    pub(super) fn failed_so_far(&self, kind: Kind, code: &str) -> u64 {
        self.failed.with_label_values(&[kind.as_str(), code]).get()
    }
    /// An attempt at a job has ended after so long; `now` is when.
    pub(super) fn job_ended(&self, job: &Job, took: Duration, done: bool, now: DateTime<Utc>) {
        let kind = job.kind.as_str();
        self.jobs
            .with_label_values(&[kind, if done { "done" } else { "failed" }])
            .inc();
        self.job_seconds.with_label_values(&[kind]).observe(took.as_secs_f64());
        if done {
            let lag = (now - job.created_at).to_std().unwrap_or_default();
            self.lags.with_label_values(&[kind]).observe(lag.as_secs_f64());
        }
    }
}

/// What one actor adds to a gauge; taken off when the actor ends.
#[derive(Debug)]
pub(super) struct Share {
    gauge: IntGauge,
    mine: i64,
}

impl Share {
    pub(super) fn of(gauge: &IntGauge) -> Self {
        Self {
            gauge: gauge.clone(),
            mine: 0,
        }
    }
    pub(super) fn set(&mut self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.gauge.add(count - self.mine);
        self.mine = count;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.gauge.sub(self.mine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{StoreError, llm::LlmError};

    #[test]
    fn what_an_actor_adds_goes_with_it() {
        let meters = ActorMeters::default();
        let (mut one, mut other) = (Share::of(&meters.jobs_held), Share::of(&meters.jobs_held));
        one.set(3);
        other.set(2);
        one.set(1);
        assert_eq!(meters.jobs_held.get(), 3);
        drop(one);
        assert_eq!(meters.jobs_held.get(), 2);
    }

    #[test]
    fn turns_that_fail_are_counted_by_the_codes_that_are_shown_and_those_that_somebody_ended_are_not() {
        let meters = ActorMeters::default();
        let session = DialogueId::new(DialogueKind::Session, ulid::Ulid(1));
        let counted = || FAILURES.map(|code| meters.failed_so_far(Kind::Session, code));
        for wished in [
            TurnError::CutBeforeReply,
            TurnError::Unsaid,
            TurnError::Closed,
            TurnError::KeyTaken,
            TurnError::Fenced,
        ] {
            meters.not_committed(session, &wished);
        }
        assert_eq!(counted(), [0; FAILURES.len()]);
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
            meters.not_committed(session, &failure);
        }
        assert_eq!(counted(), [2, 2, 2, 1, 2, 1]);
        let of_npcs = FAILURES.map(|code| meters.failed_so_far(Kind::NpcConversation, code));
        assert_eq!(of_npcs, [0; FAILURES.len()]);
    }
}
