//! A circuit breaker per (task, model): a model that keeps failing is given a rest, and its
//! fall-back answers meanwhile.
//!
//! Per task, because a model may be far too slow for intents (2 s) and serve replies (60 s) well:
//! its late intents must not take the replies away.
//!
//! Failures are judged by their share among the last calls. Timeouts are judged sooner: each costs
//! whoever waits the whole time of the task, so a few in a row are enough, and after the rest one
//! call at a time tells whether the model is back.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use moka::sync::Cache;
use parking_lot::Mutex;
use recloser::{AsyncRecloser, Recloser};

use super::{ModelLimits, RouteTable, routes::task_slot};
use crate::ports::llm::{LlmError, Task};

/// Breakers of models that only an NPC or the embedder names; the least used are forgotten.
const MAX_NAMED_BREAKERS: u64 = 1_024;

pub(super) struct ModelBreakers {
    limits: ModelLimits,
    /// By task slot and place in the chain.
    routes: [Vec<ModelBreaker>; Task::ALL.len()],
    named: Cache<(&'static str, String), ModelBreaker>,
}

impl ModelBreakers {
    pub(super) fn new(table: &RouteTable, limits: &ModelLimits) -> Self {
        let each = |task| {
            table
                .chain_for(task)
                .iter()
                .map(|_| ModelBreaker::new(limits))
                .collect()
        };
        Self {
            routes: Task::ALL.map(each),
            named: Cache::new(MAX_NAMED_BREAKERS),
            limits: limits.clone(),
        }
    }
    /// The breaker of the route at `place` of the chain of `task`.
    pub(super) fn for_route(&self, task: Task, place: usize) -> ModelBreaker {
        self.routes[task_slot(task)][place].clone()
    }
    /// The breaker of a model that is in no route.
    pub(super) fn for_model(&self, task: &'static str, model: &str) -> ModelBreaker {
        self.named
            .get_with((task, model.to_owned()), || ModelBreaker::new(&self.limits))
    }
}

/// The breaker of one model in one task.
#[derive(Clone)]
pub(super) struct ModelBreaker {
    pub share: AsyncRecloser,
    row: Arc<TimeoutStreak>,
}

/// Timeouts in a row.
struct TimeoutStreak {
    most: u32,
    rest: Duration,
    state: Mutex<TimeoutStreakState>,
}

#[derive(Default)]
struct TimeoutStreakState {
    timeouts: u32,
    /// Set once the row was full, until a call succeeds in being in time.
    resting_until: Option<Instant>,
    /// After the rest: a call is on its way to tell how things are.
    trial: bool,
}

impl ModelBreaker {
    fn new(limits: &ModelLimits) -> Self {
        // It judges by `closed_len` calls once it has seen one more than that.
        let share = Recloser::custom()
            .error_rate(limits.breaker_failure_share)
            .closed_len(limits.breaker_window)
            .half_open_len(limits.breaker_trials)
            .open_wait(limits.breaker_open)
            .build();
        Self {
            share: share.into(),
            row: Arc::new(TimeoutStreak {
                most: limits.breaker_timeouts.max(1),
                rest: limits.breaker_open,
                state: Mutex::default(),
            }),
        }
    }
    /// Leave to call. `None`: the model has been late too often in a row and rests.
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

/// A call under way. Dropped without having ended, it says nothing about the model.
pub(super) struct AdmittedCall {
    row: Arc<TimeoutStreak>,
    trial: bool,
}

impl AdmittedCall {
    /// The model answered in time, however, or did not.
    pub(super) fn record_outcome(self, timed_out: bool, now: Instant) {
        let mut state = self.row.state.lock();
        if !timed_out {
            state.timeouts = 0;
            state.resting_until = None;
            return;
        }
        state.timeouts = state.timeouts.saturating_add(1);
        if state.timeouts >= self.row.most {
            state.resting_until = Some(now + self.row.rest);
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

/// Whether a failure says something about the model's health: a refused request or a rate limit is
/// an answer of an endpoint that works.
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
        let (early, later) = (start + limits.breaker_open, start + 2 * limits.breaker_open);
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
        // One at a time tells how things are, and one that is given up says nothing.
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
