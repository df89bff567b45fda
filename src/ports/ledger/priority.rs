//! Whether somebody waits for what is asked of the ledger.
//!
//! An adapter with few connections leaves most of them to those that somebody waits for: what a turn leaves to be done
//! comes in bursts, and would make whoever speaks or cuts in wait until all of it is done. (The next line waits for what
//! the last one taught, but only for a moment: `turn.wait_for_memory_ms`.) And while somebody cuts in, what can wait for
//! some milliseconds does: on few cores, each statement that runs beside theirs makes them wait.

use std::{sync::LazyLock, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

/// How much of a hurry somebody is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Priority {
    /// Nobody waits.
    Background,
    /// Somebody waits, and would not notice some milliseconds.
    Deferred,
    #[default]
    Interactive,
    /// Short, and the first two make way for it.
    Urgent,
}

tokio::task_local! {
    static CURRENT_PRIORITY: Priority;
}

/// Those who come first of all in this process, whatever they ask of which ledger.
static URGENT_WORK: LazyLock<UrgentWork> = LazyLock::new(|| UrgentWork::new(MAX_YIELD));

/// Runs `work`, for which nobody waits.
pub async fn in_background<T>(work: impl Future<Output = T>) -> T {
    CURRENT_PRIORITY.scope(Priority::Background, work).await
}

/// Runs `work` that somebody waits for, who would not notice some milliseconds.
pub async fn with_deferred_priority<T>(work: impl Future<Output = T>) -> T {
    CURRENT_PRIORITY.scope(Priority::Deferred, work).await
}

/// Runs `work` which holds what somebody may wait for, whoever asked for it.
pub async fn with_interactive_priority<T>(work: impl Future<Output = T>) -> T {
    CURRENT_PRIORITY.scope(Priority::Interactive, work).await
}

/// Runs `work` that is short and that somebody waits for at this very moment: until it ends, an adapter with few
/// connections begins little of what is done [`in_background`] or [`with_deferred_priority`].
pub async fn with_urgent_priority<T>(work: impl Future<Output = T>) -> T {
    let _hurrying = URGENT_WORK.track_work();
    CURRENT_PRIORITY.scope(Priority::Urgent, work).await
}

/// Carries to another task how urgent this one is.
pub fn with_current_priority<F: Future>(work: F) -> impl Future<Output = F::Output> {
    CURRENT_PRIORITY.scope(current_priority(), work)
}

/// Whether this task is [`in_background`].
#[must_use]
pub fn is_in_background() -> bool {
    current_priority() == Priority::Background
}

/// Waits while somebody comes [`with_urgent_priority`], but not for long, if this task is one that makes way.
pub async fn yield_to_urgent() {
    if matches!(current_priority(), Priority::Background | Priority::Deferred) {
        URGENT_WORK.wait_until_idle().await;
    }
}

/// How much of a hurry this task is in.
#[must_use]
pub fn current_priority() -> Priority {
    CURRENT_PRIORITY.try_with(|urgency| *urgency).unwrap_or_default()
}

/// For how long others wait for those who come first: longer than one of them takes. After so long nothing waits for as
/// long again, so that at least half of the time is the others', however many there are and whose ever they are.
const MAX_YIELD: Duration = Duration::from_millis(25);

/// How many come first.
struct UrgentWork {
    patience: Duration,
    running: watch::Sender<usize>,
    /// Until when nothing waits any more.
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

    /// One more, until that is dropped.
    fn track_work(&self) -> UrgentWorkGuard<'_> {
        self.running.send_modify(|running| *running += 1);
        UrgentWorkGuard(self)
    }

    /// Waits until there is none, or a while.
    async fn wait_until_idle(&self) {
        if self.waited_enough.lock().is_some_and(|until| Instant::now() < until) {
            return;
        }
        let mut running = self.running.subscribe();
        let none = running.wait_for(|running| *running == 0);
        if timeout(self.patience, none).await.is_err() {
            self.waited_enough.lock().replace(Instant::now() + self.patience);
        }
    }
}

/// See [`UrgentWork::track_work`].
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
        // However slow this machine is.
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

        // Whoever never ends has half of the time: what waited for so long, and what comes next, goes on.
        let _endless = hurry.track_work();
        assert!(!passes());
        hurry.wait_until_idle().await;
        assert!(passes());
        tokio::time::sleep(LONG).await;
        assert!(!passes());
    }
}
