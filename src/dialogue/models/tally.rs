//! What the calls of one piece of work come to, for whoever it is done for.

use std::cell::RefCell;

use crate::memory::{trace::TaskUsage, turn::Usage};

tokio::task_local! {
    static TALLY: RefCell<Vec<TaskUsage>>;
}

/// Does `work`, keeping count of the calls that it makes; not of those that it has others make, in tasks of their own.
pub async fn with_usage_tally<F: Future>(work: F) -> F::Output {
    TALLY.scope(RefCell::default(), work).await
}

/// What the work around this has used so far, by task; nothing where nobody keeps count.
#[must_use]
pub fn tallied_usage() -> Vec<TaskUsage> {
    TALLY.try_with(|tally| tally.borrow().clone()).unwrap_or_default()
}

/// Counts one call.
pub(super) fn tally_call(task: &str, usage: Usage) {
    // Nobody may be counting.
    let _ = TALLY.try_with(|tally| TaskUsage::add_usage(&mut tally.borrow_mut(), task, 1, usage));
}
