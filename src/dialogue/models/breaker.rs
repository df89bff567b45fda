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

use super::{ModelLimits, RouteTable, routes::slot};
use crate::ports::llm::{LlmError, Task};

/// Breakers of models that only an NPC or the embedder names; the least used are forgotten.
const NAMED: u64 = 1_024;

pub(super) struct Breakers {
    limits: ModelLimits,
    /// By task slot and place in the chain.
    routes: [Vec<Breaker>; Task::ALL.len()],
    named: Cache<(&'static str, String), Breaker>,
}

impl Breakers {
    pub(super) fn new(table: &RouteTable, limits: &ModelLimits) -> Self {
        let each = |task| table.chain(task).iter().map(|_| Breaker::new(limits)).collect();
        Self {
            routes: Task::ALL.map(each),
            named: Cache::new(NAMED),
            limits: limits.clone(),
        }
    }
    /// The breaker of the route at `place` of the chain of `task`.
    pub(super) fn of_route(&self, task: Task, place: usize) -> Breaker {
        self.routes[slot(task)][place].clone()
    }
    /// The breaker of a model that is in no route.
    pub(super) fn of_model(&self, task: &'static str, model: &str) -> Breaker {
        self.named
            .get_with((task, model.to_owned()), || Breaker::new(&self.limits))
    }
}

/// The breaker of one model in one task.
#[derive(Clone)]
pub(super) struct Breaker {
    pub share: AsyncRecloser,
    row: Arc<Row>,
}

/// Timeouts in a row.
struct Row {
    most: u32,
    rest: Duration,
    state: Mutex<RowState>,
}

#[derive(Default)]
struct RowState {
    timeouts: u32,
    /// Set once the row was full, until a call succeeds in being in time.
    resting_until: Option<Instant>,
    /// After the rest: a call is on its way to tell how things are.
    trial: bool,
}

impl Breaker {
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
            row: Arc::new(Row {
                most: limits.breaker_timeouts.max(1),
                rest: limits.breaker_open,
                state: Mutex::default(),
            }),
        }
    }
    /// Leave to call. `None`: the model has been late too often in a row and rests.
    pub(super) fn admit(&self, now: Instant) -> Option<Admitted> {
        let mut state = self.row.state.lock();
        let trial = match state.resting_until {
            None => false,
            Some(until) if state.trial || now < until => return None,
            Some(_) => {
                state.trial = true;
                true
            }
        };
        Some(Admitted {
            row: self.row.clone(),
            trial,
        })
    }
}

/// A call under way. Dropped without having ended, it says nothing about the model.
pub(super) struct Admitted {
    row: Arc<Row>,
    trial: bool,
}

impl Admitted {
    /// The model answered in time, however, or did not.
    pub(super) fn ended(self, timed_out: bool, now: Instant) {
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

impl Drop for Admitted {
    fn drop(&mut self) {
        if self.trial {
            self.row.state.lock().trial = false;
        }
    }
}

/// Whether a failure says something about the model's health: a refused request or a rate limit is
/// an answer of an endpoint that works.
pub(super) const fn counts(error: &LlmError) -> bool {
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
    fn a_few_timeouts_in_a_row_are_enough() {
        let limits = ModelLimits::default();
        let breaker = Breaker::new(&limits);
        let start = Instant::now();
        let (early, later) = (start + limits.breaker_open, start + 2 * limits.breaker_open);
        let call = |now, timed_out| {
            let admitted = breaker.admit(now);
            admitted.is_some_and(|call| {
                call.ended(timed_out, now);
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
        let trial = breaker.admit(early).unwrap();
        assert!(breaker.admit(early).is_none());
        drop(trial);
        assert!(call(early, true));
        assert!(!call(early, false), "late again: it rests again");
        assert!(call(later, false));
        let calls = [breaker.admit(later), breaker.admit(later)];
        assert!(calls.iter().all(Option::is_some), "it is back");
    }
}
