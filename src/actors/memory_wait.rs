//! The bounded wait of a dialogue's next turn for the extraction of facts and state from the last turn.

use std::time::{Duration, Instant};

use actix::SpawnHandle;

use colloquy_core::ids::TurnId;
use colloquy_dialogue::turn::TurnInput;
use colloquy_memory::trace::{MemoryWaitReason, MemoryWaitTrace};
use colloquy_ports::ledger::jobs::{ExtractionStatus, Job, JobKind};

/// Jobs without which the next turn would not know the changes of the last turn.
const AWAITED_JOB_KINDS: [JobKind; 2] = [JobKind::ExtractFacts, JobKind::ExtractState];

/// The extraction of the last turn, while the next turn waits for the result.
#[derive(Default)]
pub(super) struct MemoryWait {
    /// The turn whose facts or state are not known yet.
    pub awaited_turn: Option<TurnId>,
    /// The last turn, if its jobs are held until a line follows.
    pub held_turn: Option<TurnId>,
    /// The extractions of the turn that are still missing.
    pending: Vec<JobKind>,
    /// When a turn began to wait.
    pub waiting_since: Option<Instant>,
    /// Ends the wait.
    pub timer: Option<SpawnHandle>,
    /// The limit of the wait, once it has begun.
    limit: Option<WaitLimit>,
    /// True if the wait reached its limit.
    gave_up: bool,
}

/// How long a turn may wait, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitLimit {
    pub longest: Duration,
    pub reason: MemoryWaitReason,
}

impl MemoryWait {
    /// Creates a wait for the facts of `turn`, the last turn.
    pub fn for_turn(turn: Option<TurnId>, extraction: ExtractionStatus) -> Self {
        Self {
            awaited_turn: turn.filter(|_| extraction == ExtractionStatus::Due),
            held_turn: turn.filter(|_| extraction == ExtractionStatus::Held),
            pending: vec![JobKind::ExtractFacts],
            ..Self::default()
        }
    }

    /// Waits for the facts of `turn` from now on.
    pub fn expect_turn(&mut self, turn: TurnId) {
        self.awaited_turn = Some(turn);
        self.pending = vec![JobKind::ExtractFacts];
    }

    /// Records that a turn was committed with the given jobs. `is_held`: further jobs wait until a line follows.
    pub fn on_turn_committed(&mut self, turn: TurnId, jobs: &[Job], is_held: bool) {
        self.held_turn = is_held.then_some(turn);
        let kinds = jobs.iter().map(|job| job.kind);
        self.pending = kinds.filter(|kind| AWAITED_JOB_KINDS.contains(kind)).collect();
        self.awaited_turn = (!self.pending.is_empty()).then_some(turn);
    }

    /// Records that a job of the dialogue ended.
    pub fn on_job_ended(&mut self, turn: TurnId, kind: JobKind) {
        if self.awaited_turn == Some(turn) {
            self.pending.retain(|pending| *pending != kind);
            if self.pending.is_empty() {
                self.awaited_turn = None;
            }
        }
    }

    /// Begins the wait of a turn at `now`, unless begun. A limit of zero ends the wait at once. True if the caller
    /// must set a timer for the limit.
    pub fn begin_wait(&mut self, now: Instant, limit: WaitLimit) -> bool {
        self.waiting_since.get_or_insert(now);
        if limit.longest.is_zero() {
            self.awaited_turn = None;
        } else {
            self.limit.get_or_insert(limit);
        }
        self.awaited_turn.is_some() && self.timer.is_none()
    }

    /// Ends a wait that took too long: the turn begins without the extraction.
    pub fn give_up(&mut self) {
        self.awaited_turn = None;
        self.gave_up = true;
        self.timer = None;
    }

    /// Ends the wait of a starting turn and records its length in `input`. Returns the timer, no longer needed.
    pub fn finish_wait(&mut self, now: Instant, input: &mut TurnInput) -> Option<SpawnHandle> {
        let waited = self
            .waiting_since
            .take()
            .map(|since| now.saturating_duration_since(since));
        input.memory_wait_ms = waited.unwrap_or_default().as_secs_f64() * 1_000.0;
        let gave_up = std::mem::take(&mut self.gave_up);
        input.memory_wait = self.limit.take().map(|limit| MemoryWaitTrace {
            waited_ms: input.memory_wait_ms,
            limit_ms: u64::try_from(limit.longest.as_millis()).unwrap_or(u64::MAX),
            reason: limit.reason,
            gave_up,
        });
        self.timer.take()
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use colloquy_core::ids::{DialogueId, JobId};

    #[test]
    fn memory_wait_covers_facts_and_state() {
        let turn = TurnId::from_u128(1);
        let job = |kind| Job {
            id: JobId::from_u128(2),
            kind,
            dialogue: DialogueId::new(colloquy_core::ids::DialogueKind::Session, ulid::Ulid(3)),
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
            false,
        );
        wait.on_job_ended(turn, JobKind::ExtractFacts);
        assert_eq!(wait.awaited_turn, Some(turn), "the state is not known yet");
        wait.on_job_ended(turn, JobKind::ExtractState);
        assert_eq!(wait.awaited_turn, None);
        wait.on_turn_committed(turn, &[job(JobKind::Summarise)], false);
        assert_eq!((wait.awaited_turn, wait.held_turn), (None, None));
        wait.on_turn_committed(turn, &[], true);
        assert_eq!((wait.awaited_turn, wait.held_turn), (None, Some(turn)));
    }
}
