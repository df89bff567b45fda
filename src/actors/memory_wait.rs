//! What a dialogue's next turn waits for: the extraction of facts and of state from the last one, for a bounded time.

use std::time::{Duration, Instant};

use actix::SpawnHandle;

use crate::{
    dialogue::turn::TurnInput,
    ids::TurnId,
    ports::ledger::jobs::{Job, JobKind},
};

/// Jobs without which the next turn would not know what the last one changed.
const TEACHES: [JobKind; 2] = [JobKind::ExtractFacts, JobKind::ExtractState];

/// The extraction of the last turn, while the next turn waits for it.
#[derive(Default)]
pub(super) struct MemoryWait {
    /// Whose facts or state are not known yet.
    pub of: Option<TurnId>,
    /// What of it is not known yet.
    pending: Vec<JobKind>,
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
            pending: vec![JobKind::ExtractFacts],
            ..Self::default()
        }
    }

    /// Waits for the extraction of `turn` from now on; `None`: for nothing.
    pub fn expect(&mut self, turn: Option<TurnId>) {
        self.of = turn;
        self.pending = vec![JobKind::ExtractFacts];
    }

    /// A turn was committed with these jobs.
    pub fn committed(&mut self, turn: TurnId, jobs: &[Job]) {
        let kinds = jobs.iter().map(|job| job.kind);
        self.pending = kinds.filter(|kind| TEACHES.contains(kind)).collect();
        self.of = (!self.pending.is_empty()).then_some(turn);
    }

    /// A job of the dialogue ended.
    pub fn ended(&mut self, turn: TurnId, kind: JobKind) {
        if self.of == Some(turn) {
            self.pending.retain(|pending| *pending != kind);
            if self.pending.is_empty() {
                self.of = None;
            }
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

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::ids::{DialogueId, JobId};

    #[test]
    fn facts_and_state_are_both_waited_for() {
        let turn = TurnId::from_u128(1);
        let job = |kind| Job {
            id: JobId::from_u128(2),
            kind,
            dialogue: DialogueId::new(crate::ids::DialogueKind::Session, ulid::Ulid(3)),
            turn,
            text_version: 1,
            attempts: 0,
            useless: 0,
            created_at: DateTime::UNIX_EPOCH,
            since: DateTime::UNIX_EPOCH,
            answer: None,
            leased_until: DateTime::UNIX_EPOCH,
        };
        let mut wait = MemoryWait::default();
        wait.committed(
            turn,
            &[
                job(JobKind::ExtractState),
                job(JobKind::ExtractFacts),
                job(JobKind::Summarise),
            ],
        );
        wait.ended(turn, JobKind::ExtractFacts);
        assert_eq!(wait.of, Some(turn), "the state is not known yet");
        wait.ended(turn, JobKind::ExtractState);
        assert_eq!(wait.of, None);
        wait.committed(turn, &[job(JobKind::Summarise)]);
        assert_eq!(wait.of, None);
    }
}
