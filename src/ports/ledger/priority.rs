//! The priority of work on the ledger: whether a caller waits for the result.
//!
//! An adapter with few connections reserves most of them for work with a waiting caller. Work after turns comes in
//! bursts; without the reserve, a player who speaks or interrupts would wait for all of it. (The next line waits for
//! the last turn's facts, but only for a moment: `turn.wait_for_memory_ms`.) During an interrupt, less urgent work
//! pauses for some milliseconds: on few cores, each statement beside the interrupt's statements delays the interrupt.

use std::{sync::LazyLock, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

/// How urgent work is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Priority {
    /// No caller waits.
    Background,
    /// A caller waits, but would not notice some milliseconds.
    Deferred,
    #[default]
    Interactive,
    /// Short work, for which `Background` and `Deferred` work pauses.
    Urgent,
}

tokio::task_local! {
    static CURRENT_PRIORITY: Priority;
}

/// The urgent work of this process, for all ledgers.
static URGENT_WORK: LazyLock<UrgentWork> = LazyLock::new(|| UrgentWork::new(MAX_YIELD));

/// Runs `work` without a waiting caller.
pub async fn in_background<T>(work: impl Future<Output = T>) -> T {
    CURRENT_PRIORITY.scope(Priority::Background, work).await
}

/// Runs `work` for a caller who would not notice some milliseconds.
pub async fn with_deferred_priority<T>(work: impl Future<Output = T>) -> T {
    CURRENT_PRIORITY.scope(Priority::Deferred, work).await
}

/// Runs `work` that holds a resource for which a caller may wait, at normal priority.
pub async fn with_interactive_priority<T>(work: impl Future<Output = T>) -> T {
    CURRENT_PRIORITY.scope(Priority::Interactive, work).await
}

/// Runs short `work` for a caller who waits right now. Until the end of `work`, an adapter with few connections begins
/// little work of [`in_background`] or [`with_deferred_priority`].
pub async fn with_urgent_priority<T>(work: impl Future<Output = T>) -> T {
    let _hurrying = URGENT_WORK.track_work();
    CURRENT_PRIORITY.scope(Priority::Urgent, work).await
}

/// Carries the priority of this task to another task.
pub fn with_current_priority<F: Future>(work: F) -> impl Future<Output = F::Output> {
    CURRENT_PRIORITY.scope(current_priority(), work)
}

/// True if this task runs [`in_background`].
#[must_use]
pub fn is_in_background() -> bool {
    current_priority() == Priority::Background
}

/// Waits, for a limited time, while work runs [`with_urgent_priority`]. Only background and deferred tasks wait.
pub async fn yield_to_urgent() {
    if matches!(current_priority(), Priority::Background | Priority::Deferred) {
        URGENT_WORK.wait_until_idle().await;
    }
}

/// Returns the priority of this task.
#[must_use]
pub fn current_priority() -> Priority {
    CURRENT_PRIORITY.try_with(|urgency| *urgency).unwrap_or_default()
}

/// The limit of a wait for urgent work, longer than one piece of urgent work takes. After a full wait, no task waits
/// again for the same time. Other work therefore has at least half of the time, for any amount of urgent work.
const MAX_YIELD: Duration = Duration::from_millis(25);

/// Counts running urgent work.
struct UrgentWork {
    patience: Duration,
    running: watch::Sender<usize>,
    /// The end of the time in which no task waits.
    waited_enough: Mutex<Option<Instant>>,
}

impl UrgentWork {
    fn new(patience: Duration) -> Self {
        Self {
            patience,
            running: watch::Sender::default(),
            waited_enough: Mutex::default(),
        }
    }

    /// Counts one more piece of work until the guard is dropped.
    fn track_work(&self) -> UrgentWorkGuard<'_> {
        self.running.send_modify(|running| *running += 1);
        UrgentWorkGuard(self)
    }

    /// Waits until no urgent work runs, at most for `patience`.
    async fn wait_until_idle(&self) {
        if self.waited_enough.lock().is_some_and(|until| Instant::now() < until) {
            return;
        }
        let mut running = self.running.subscribe();
        let idle = running.wait_for(|running| *running == 0);
        if timeout(self.patience, idle).await.is_err() {
            self.waited_enough.lock().replace(Instant::now() + self.patience);
        }
    }
}

/// The guard of [`UrgentWork::track_work`].
struct UrgentWorkGuard<'h>(&'h UrgentWork);

impl Drop for UrgentWorkGuard<'_> {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn interactive_priority_is_inherited_by_nested_calls() {
        assert!(!is_in_background());
        in_background(async {
            assert!(is_in_background());
            with_interactive_priority(async { assert!(!is_in_background()) }).await;
            assert!(is_in_background());
        })
        .await;
        assert!(!is_in_background());
        let there =
            in_background(async { tokio::spawn(with_current_priority(async { is_in_background() })).await }).await;
        assert!(there.is_ok_and(|there| there) && !is_in_background());
    }

    #[tokio::test]
    async fn background_work_yields_to_interactive_work_only() {
        let waits = || async { yield_to_urgent().now_or_never().is_none() };
        with_urgent_priority(async {
            assert!(!waits().await);
            assert!(!with_interactive_priority(waits()).await);
            assert!(with_deferred_priority(waits()).await);
            assert!(in_background(waits()).await);
        })
        .await;
        assert!(!in_background(waits()).await);
    }

    #[tokio::test]
    async fn background_work_waits_for_interactive_work_up_to_a_limit() {
        // Long enough for the slowest machine.
        const LONG: Duration = Duration::from_millis(500);
        let hurry = Arc::new(UrgentWork::new(LONG));
        let passes = || hurry.wait_until_idle().now_or_never().is_some();
        assert!(passes());

        let (first, second) = (hurry.track_work(), hurry.track_work());
        assert!(!passes());
        drop(first);
        assert!(!passes());
        let waiting = tokio::spawn({
            let hurry = hurry.clone();
            async move { hurry.wait_until_idle().await }
        });
        drop(second);
        assert!(passes());
        assert!(waiting.await.is_ok());

        // Endless urgent work has half of the time: after a full wait, the waiting task and the next tasks continue.
        let _endless = hurry.track_work();
        assert!(!passes());
        hurry.wait_until_idle().await;
        assert!(passes());
        tokio::time::sleep(LONG).await;
        assert!(!passes());
    }
}
