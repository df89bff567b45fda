//! What a dialogue's next turn waits for: the extraction of the last one, for a bounded time.

use std::time::{Duration, Instant};

use actix::SpawnHandle;

use crate::{
    dialogue::turn::TurnInput,
    ids::TurnId,
    ports::ledger::jobs::{Job, JobKind},
};

/// The extraction of the last turn, while the next turn waits for it.
#[derive(Default)]
pub(super) struct MemoryWait {
    /// Whose facts are not known yet.
    pub of: Option<TurnId>,
    /// When a turn began to wait.
    pub since: Option<Instant>,
    /// Ends the wait.
    pub timer: Option<SpawnHandle>,
}

impl MemoryWait {
    /// Waits for the extraction of `turn`; `None`: for nothing.
    pub fn of(turn: Option<TurnId>) -> Self {
        Self {
            of: turn,
            ..Self::default()
        }
    }

    /// A turn was committed with these jobs.
    pub fn committed(&mut self, turn: TurnId, jobs: &[Job]) {
        let extracts = jobs.iter().any(|job| job.kind == JobKind::ExtractFacts);
        self.of = extracts.then_some(turn);
    }

    /// A job of the dialogue ended.
    pub fn ended(&mut self, turn: TurnId, kind: JobKind) {
        if kind == JobKind::ExtractFacts && self.of == Some(turn) {
            self.of = None;
        }
    }

    /// A turn waits from `now` on, unless one did. Whether a timer that ends it after `longest` is to
    /// be set; with no time at all it waits for nothing.
    pub fn begin(&mut self, now: Instant, longest: Duration) -> bool {
        self.since.get_or_insert(now);
        if longest.is_zero() {
            self.of = None;
        }
        self.of.is_some() && self.timer.is_none()
    }

    /// It took too long: the turn begins without it.
    pub fn give_up(&mut self) {
        self.of = None;
        self.timer = None;
    }

    /// The turn begins: notes how long it waited, and returns the timer that is not needed any more.
    pub fn over(&mut self, now: Instant, input: &mut TurnInput) -> Option<SpawnHandle> {
        let waited = self.since.take().map(|since| now.saturating_duration_since(since));
        input.memory_wait_ms = waited.unwrap_or_default().as_secs_f64() * 1_000.0;
        self.timer.take()
    }
}
