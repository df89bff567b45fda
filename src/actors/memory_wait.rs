//! What a dialogue's next turn waits for: the extraction of facts and of state from the last one, for a bounded time.

use std::time::{Duration, Instant};

use actix::SpawnHandle;

use crate::{
    dialogue::turn::TurnInput,
    ids::TurnId,
    ports::ledger::jobs::{Job, JobKind},
};

/// Jobs without which the next turn would not know what the last one changed.
const AWAITED_JOB_KINDS: [JobKind; 2] = [JobKind::ExtractFacts, JobKind::ExtractState];

/// The extraction of the last turn, while the next turn waits for it.
#[derive(Default)]
pub(super) struct MemoryWait {
    /// Whose facts or state are not known yet.
    pub awaited_turn: Option<TurnId>,
    /// What of it is not known yet.
    pending: Vec<JobKind>,
    /// When a turn began to wait.
    pub waiting_since: Option<Instant>,
    /// Ends the wait.
    pub timer: Option<SpawnHandle>,
}

impl MemoryWait {
    /// Waits for the extraction of `turn`; `None`: for nothing.
    pub fn for_turn(turn: Option<TurnId>) -> Self {
        Self {
            awaited_turn: turn,
            pending: vec![JobKind::ExtractFacts],
            ..Self::default()
        }
    }

    /// Waits for the extraction of `turn` from now on; `None`: for nothing.
    pub fn expect_turn(&mut self, turn: Option<TurnId>) {
        self.awaited_turn = turn;
        self.pending = vec![JobKind::ExtractFacts];
    }

    /// A turn was committed with these jobs.
    pub fn on_turn_committed(&mut self, turn: TurnId, jobs: &[Job]) {
        let kinds = jobs.iter().map(|job| job.kind);
        self.pending = kinds.filter(|kind| AWAITED_JOB_KINDS.contains(kind)).collect();
        self.awaited_turn = (!self.pending.is_empty()).then_some(turn);
    }

    /// A job of the dialogue ended.
    pub fn on_job_ended(&mut self, turn: TurnId, kind: JobKind) {
        if self.awaited_turn == Some(turn) {
            self.pending.retain(|pending| *pending != kind);
            if self.pending.is_empty() {
                self.awaited_turn = None;
            }
        }
    }

    /// A turn waits from `now` on, unless one did. Whether a timer that ends it after `longest` is to
    /// be set; with no time at all it waits for nothing.
    pub fn begin_wait(&mut self, now: Instant, longest: Duration) -> bool {
        self.waiting_since.get_or_insert(now);
        if longest.is_zero() {
            self.awaited_turn = None;
        }
        self.awaited_turn.is_some() && self.timer.is_none()
    }

    /// It took too long: the turn begins without it.
    pub fn give_up(&mut self) {
        self.awaited_turn = None;
        self.timer = None;
    }

    /// The turn begins: notes how long it waited, and returns the timer that is not needed any more.
    pub fn finish_wait(&mut self, now: Instant, input: &mut TurnInput) -> Option<SpawnHandle> {
        let waited = self
            .waiting_since
            .take()
            .map(|since| now.saturating_duration_since(since));
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
    fn memory_wait_covers_facts_and_state() {
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
        wait.on_turn_committed(
            turn,
            &[
                job(JobKind::ExtractState),
                job(JobKind::ExtractFacts),
                job(JobKind::Summarise),
            ],
        );
        wait.on_job_ended(turn, JobKind::ExtractFacts);
        assert_eq!(wait.awaited_turn, Some(turn), "the state is not known yet");
        wait.on_job_ended(turn, JobKind::ExtractState);
        assert_eq!(wait.awaited_turn, None);
        wait.on_turn_committed(turn, &[job(JobKind::Summarise)]);
        assert_eq!(wait.awaited_turn, None);
    }
}
