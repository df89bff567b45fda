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
    /// The wait of the next turn.
    running: Option<RunningWait>,
}

struct RunningWait {
    since: Instant,
    /// `None`: the limit is not known yet.
    limit: Option<WaitLimit>,
    /// Ends the wait at the limit.
    timer: Option<SpawnHandle>,
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
        debug_assert!(!is_held || jobs.is_empty(), "held jobs are not awaited");
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

    /// Begins the wait of the next turn at `now`, unless begun. Returns when the wait began.
    pub fn begin_wait(&mut self, now: Instant) -> Instant {
        self.running_since(now).since
    }

    fn running_since(&mut self, now: Instant) -> &mut RunningWait {
        self.running.get_or_insert(RunningWait {
            since: now,
            limit: None,
            timer: None,
            gave_up: false,
        })
    }

    /// True if the wait has its limit and its timer.
    pub fn is_limited(&self) -> bool {
        self.running.as_ref().is_some_and(|wait| wait.timer.is_some())
    }

    /// Limits the wait. A limit of zero ends the wait at once. True if the caller must set a timer for the limit.
    pub fn limit_wait(&mut self, now: Instant, limit: WaitLimit) -> bool {
        let wait = self.running_since(now);
        if limit.longest.is_zero() {
            self.awaited_turn = None;
        } else {
            wait.limit.get_or_insert(limit);
        }
        self.awaited_turn.is_some()
    }

    /// Records the timer that ends the wait.
    pub fn set_timer(&mut self, timer: SpawnHandle) {
        debug_assert!(self.running.is_some(), "a wait with a timer has begun");
        if let Some(wait) = &mut self.running {
            wait.timer = Some(timer);
        }
    }

    /// Ends the wait that began at `since`, because the wait took too long: the turn begins without the extraction.
    /// The timer of a wait that another line has left changes nothing.
    pub fn give_up(&mut self, since: Instant) {
        if let Some(wait) = self.running.as_mut().filter(|wait| wait.since == since) {
            self.awaited_turn = None;
            wait.gave_up = true;
            wait.timer = None;
        }
    }

    /// Forgets the wait of a line that is no longer the next.
    pub fn abandon_wait(&mut self) {
        self.running = None;
    }

    /// Returns the timer of the wait, if set.
    pub fn take_timer(&mut self) -> Option<SpawnHandle> {
        self.running.as_mut()?.timer.take()
    }

    /// Ends the wait of a starting turn and records its length in `input`. Returns the timer, no longer needed.
    pub fn finish_wait(&mut self, now: Instant, input: &mut TurnInput) -> Option<SpawnHandle> {
        let running = self.running.take();
        let waited = running.as_ref().map(|wait| now.saturating_duration_since(wait.since));
        input.memory_wait_ms = waited.unwrap_or_default().as_secs_f64() * 1_000.0;
        input.memory_wait = running.as_ref().and_then(|wait| {
            let limit = wait.limit?;
            Some(MemoryWaitTrace {
                waited_ms: input.memory_wait_ms,
                limit_ms: u64::try_from(limit.longest.as_millis()).unwrap_or(u64::MAX),
                reason: limit.reason,
                gave_up: wait.gave_up,
            })
        });
        running?.timer
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use colloquy_core::ids::{DialogueId, JobId};

    #[test]
    fn timer_of_an_abandoned_wait_does_not_end_the_wait_of_the_next_line() {
        #[expect(clippy::disallowed_methods, reason = "any moment will do")]
        let first = Instant::now();
        let second = first + Duration::from_millis(100);
        let limit = WaitLimit {
            longest: Duration::from_millis(1_500),
            reason: MemoryWaitReason::AnyLine,
        };
        let mut wait = MemoryWait::default();
        wait.expect_turn(TurnId::from_u128(1));
        let since = wait.begin_wait(first);
        assert!(wait.limit_wait(first, limit));
        wait.abandon_wait();
        assert_eq!(wait.begin_wait(second), second);
        wait.give_up(since);
        assert!(wait.awaited_turn.is_some(), "the other line still waits");
        wait.give_up(second);
        assert!(wait.awaited_turn.is_none());
    }

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
