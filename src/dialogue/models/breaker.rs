//! A circuit breaker per (task, model). A model that keeps failing is skipped for a while, and its fallback answers.
//!
//! Breakers are per task because a model may be far too slow for intents (2 s) and fast enough for replies (60 s).
//! Late intents must not block replies.
//!
//! Failures count by their share among the last calls. Timeouts open the breaker sooner: each costs the caller the
//! task's whole time, so a few consecutive timeouts are enough. After the rest period, one trial call at a time
//! checks whether the model is back.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use moka::sync::Cache;
use parking_lot::Mutex;
use recloser::{AsyncRecloser, Recloser};

use super::{
    limits::ModelLimits,
    routes::{RouteTable, task_slot},
};
use colloquy_ports::llm::{LlmError, Task};

/// The maximum number of breakers for models outside all routes. The least used breakers are evicted.
const MAX_NAMED_BREAKERS: u64 = 1_024;

pub(super) struct ModelBreakers {
    limits: ModelLimits,
    /// The breakers by task slot and place in the chain.
    routes: [Vec<ModelBreaker>; Task::ALL.len()],
    by_model: Cache<(&'static str, String), ModelBreaker>,
}

impl ModelBreakers {
    pub(super) fn new(table: &RouteTable, limits: &ModelLimits) -> Self {
        let breakers_of = |task| {
            table
                .chain_for(task)
                .iter()
                .map(|_| ModelBreaker::new(limits))
                .collect()
        };
        Self {
            routes: Task::ALL.map(breakers_of),
            by_model: Cache::new(MAX_NAMED_BREAKERS),
            limits: limits.clone(),
        }
    }
    /// Returns the breaker of the route at `place` in the chain of `task`.
    pub(super) fn for_route(&self, task: Task, place: usize) -> ModelBreaker {
        self.routes[task_slot(task)][place].clone()
    }
    /// Returns the breaker of a model outside all routes.
    pub(super) fn for_model(&self, task: &'static str, model: &str) -> ModelBreaker {
        self.by_model
            .get_with((task, model.to_owned()), || ModelBreaker::new(&self.limits))
    }
}

#[derive(Clone)]
pub(super) struct ModelBreaker {
    pub share: AsyncRecloser,
    row: Arc<TimeoutStreak>,
}

/// The state of consecutive timeouts.
struct TimeoutStreak {
    max_timeouts: u32,
    rest: Duration,
    state: Mutex<TimeoutStreakState>,
}

#[derive(Default)]
struct TimeoutStreakState {
    timeouts: u32,
    /// The end of the rest period. Set when the streak is full; cleared when a call is in time.
    resting_until: Option<Instant>,
    /// True while a trial call runs after the rest period.
    trial: bool,
}

impl ModelBreaker {
    fn new(limits: &ModelLimits) -> Self {
        // `Recloser` evaluates `closed_len` calls after one call more than `closed_len`.
        let share = Recloser::custom()
            .error_rate(limits.breaker_failure_share)
            .closed_len(limits.breaker_window)
            .half_open_len(limits.breaker_trials)
            .open_wait(limits.breaker_open)
            .build();
        Self {
            share: share.into(),
            row: Arc::new(TimeoutStreak {
                max_timeouts: limits.breaker_timeouts.max(1),
                rest: limits.breaker_open,
                state: Mutex::default(),
            }),
        }
    }
    /// Records a call that was so late that another model answered. It counts as a timeout.
    pub(super) fn record_timeout(&self, now: Instant) {
        self.row.record_timeout(now);
    }
    /// Admits a call. `None`: too many consecutive timeouts, and the rest period is not over or a trial call runs.
    pub(super) fn admit_call(&self, now: Instant) -> Option<AdmittedCall> {
        let mut state = self.row.state.lock();
        let trial = match state.resting_until {
            None => false,
            Some(until) if state.trial || now < until => return None,
            Some(_) => {
                state.trial = true;
                true
            }
        };
        Some(AdmittedCall {
            row: self.row.clone(),
            trial,
        })
    }
}

/// A running call. A call that is dropped before its end has no effect on the breaker.
pub(super) struct AdmittedCall {
    row: Arc<TimeoutStreak>,
    trial: bool,
}

impl AdmittedCall {
    /// Records whether the call timed out. Any answer in time, even an error, resets the streak.
    pub(super) fn record_outcome(self, timed_out: bool, now: Instant) {
        if timed_out {
            self.row.record_timeout(now);
            return;
        }
        let mut state = self.row.state.lock();
        state.timeouts = 0;
        state.resting_until = None;
    }
}

impl TimeoutStreak {
    fn record_timeout(&self, now: Instant) {
        let mut state = self.state.lock();
        state.timeouts = state.timeouts.saturating_add(1);
        if state.timeouts >= self.max_timeouts {
            state.resting_until = Some(now + self.rest);
        }
    }
}

impl Drop for AdmittedCall {
    fn drop(&mut self) {
        if self.trial {
            self.row.state.lock().trial = false;
        }
    }
}

/// True if an error indicates an unhealthy model. A refused request or a rate limit is an answer of a working
/// endpoint.
pub(super) const fn counts_as_failure(error: &LlmError) -> bool {
    matches!(
        error,
        LlmError::Timeout | LlmError::Unavailable(_) | LlmError::Broken(_)
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "some moment to count from")]
    fn breaker_opens_after_consecutive_timeouts() {
        let limits = ModelLimits::default();
        let breaker = ModelBreaker::new(&limits);
        let start = Instant::now();
        let early = start + limits.breaker_open;
        let later = start + 2 * limits.breaker_open;
        let call = |now, timed_out| {
            let admitted = breaker.admit_call(now);
            admitted.is_some_and(|call| {
                call.record_outcome(timed_out, now);
                true
            })
        };
        assert!(call(start, true) && call(start, true) && call(start, false));
        assert!(
            call(start, true) && call(start, true) && call(start, true),
            "one in time broke the row"
        );
        assert!(!call(start, true), "it rests");
        assert!(!call(start + limits.breaker_open / 2, true));
        // Trial calls run one at a time, and a cancelled trial has no effect.
        let trial = breaker.admit_call(early).unwrap();
        assert!(breaker.admit_call(early).is_none());
        drop(trial);
        assert!(call(early, true));
        assert!(!call(early, false), "late again: it rests again");
        assert!(call(later, false));
        let calls = [breaker.admit_call(later), breaker.admit_call(later)];
        assert!(calls.iter().all(Option::is_some), "it is back");
    }
}
