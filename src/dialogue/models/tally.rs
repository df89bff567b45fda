//! Usage tally: the sum of the model calls within one piece of work.

use std::cell::RefCell;

use colloquy_memory::{trace::TaskUsage, turn::Usage};

tokio::task_local! {
    static TALLY: RefCell<Vec<TaskUsage>>;
}

/// Runs `work` with a tally of its model calls. Calls in spawned tasks are not included.
pub async fn with_usage_tally<F: Future>(work: F) -> F::Output {
    TALLY.scope(RefCell::default(), work).await
}

/// Returns the usage of the surrounding work until now, by task. Empty without a tally.
#[must_use]
pub fn tallied_usage() -> Vec<TaskUsage> {
    TALLY.try_with(|tally| tally.borrow().clone()).unwrap_or_default()
}

/// Counts one call.
pub(super) fn tally_call(task: &str, usage: Usage) {
    // Fails without a surrounding tally, which is fine.
    let _ = TALLY.try_with(|tally| TaskUsage::add_usage(&mut tally.borrow_mut(), task, 1, usage));
}
