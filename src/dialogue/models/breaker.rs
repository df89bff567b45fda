//! A circuit breaker per (task, model): a model that keeps failing is given a rest, and its
//! fall-back answers meanwhile.
//!
//! Per task, because a model may be far too slow for intents (2 s) and serve replies (60 s) well:
//! its late intents must not take the replies away.

use moka::sync::Cache;
use recloser::{AsyncRecloser, Recloser};

use super::{ModelLimits, RouteTable, routes::slot};
use crate::ports::llm::{LlmError, Task};

/// Breakers of models that only an NPC or the embedder names; the least used are forgotten.
const NAMED: u64 = 1_024;

pub(super) struct Breakers {
    limits: ModelLimits,
    /// By task slot and place in the chain.
    routes: [Vec<AsyncRecloser>; Task::ALL.len()],
    named: Cache<(&'static str, String), AsyncRecloser>,
}

impl Breakers {
    pub(super) fn new(table: &RouteTable, limits: &ModelLimits) -> Self {
        Self {
            routes: Task::ALL.map(|task| table.chain(task).iter().map(|_| breaker(limits)).collect()),
            named: Cache::new(NAMED),
            limits: limits.clone(),
        }
    }
    /// The breaker of the route at `place` of the chain of `task`.
    pub(super) fn of_route(&self, task: Task, place: usize) -> AsyncRecloser {
        self.routes[slot(task)][place].clone()
    }
    /// The breaker of a model that is in no route.
    pub(super) fn of_model(&self, task: &'static str, model: &str) -> AsyncRecloser {
        self.named.get_with((task, model.to_owned()), || breaker(&self.limits))
    }
}

fn breaker(limits: &ModelLimits) -> AsyncRecloser {
    // It judges by `closed_len` calls once it has seen one more than that.
    Recloser::custom()
        .error_rate(limits.breaker_failure_share)
        .closed_len(limits.breaker_window)
        .half_open_len(limits.breaker_trials)
        .open_wait(limits.breaker_open)
        .build()
        .into()
}

/// Whether a failure says something about the model's health: a refused request or a rate limit is
/// an answer of an endpoint that works.
pub(super) const fn counts(error: &LlmError) -> bool {
    matches!(
        error,
        LlmError::Timeout | LlmError::Unavailable(_) | LlmError::Broken(_)
    )
}
