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
pub enum Urgency {
    /// Nobody waits.
    Background,
    /// Somebody waits, and would not notice some milliseconds.
    Patient,
    #[default]
    Usual,
    /// Short, and the first two make way for it.
    First,
}

tokio::task_local! {
    static URGENCY: Urgency;
}

/// Those who come first of all in this process, whatever they ask of which ledger.
static FIRST: LazyLock<Hurry> = LazyLock::new(|| Hurry::new(PATIENCE));

/// Runs `work`, for which nobody waits.
pub async fn in_background<T>(work: impl Future<Output = T>) -> T {
    URGENCY.scope(Urgency::Background, work).await
}

/// Runs `work` that somebody waits for, who would not notice some milliseconds.
pub async fn patiently<T>(work: impl Future<Output = T>) -> T {
    URGENCY.scope(Urgency::Patient, work).await
}

/// Runs `work` which holds what somebody may wait for, whoever asked for it.
pub async fn urgently<T>(work: impl Future<Output = T>) -> T {
    URGENCY.scope(Urgency::Usual, work).await
}

/// Runs `work` that is short and that somebody waits for at this very moment: until it ends, an adapter with few
/// connections begins little of what is done [`in_background`] or [`patiently`].
pub async fn first_of_all<T>(work: impl Future<Output = T>) -> T {
    let _hurrying = FIRST.begin();
    URGENCY.scope(Urgency::First, work).await
}

/// Carries to another task how urgent this one is.
pub fn as_here<F: Future>(work: F) -> impl Future<Output = F::Output> {
    URGENCY.scope(here(), work)
}

/// Whether this task is [`in_background`].
#[must_use]
pub fn is_in_background() -> bool {
    here() == Urgency::Background
}

/// Waits while somebody comes [`first_of_all`], but not for long, if this task is one that makes way.
pub async fn make_way() {
    if matches!(here(), Urgency::Background | Urgency::Patient) {
        FIRST.pass().await;
    }
}

/// How much of a hurry this task is in.
#[must_use]
pub fn here() -> Urgency {
    URGENCY.try_with(|urgency| *urgency).unwrap_or_default()
}

/// For how long others wait for those who come first: longer than one of them takes. After so long nothing waits for as
/// long again, so that at least half of the time is the others', however many there are and whose ever they are.
const PATIENCE: Duration = Duration::from_millis(25);

/// How many come first.
struct Hurry {
    patience: Duration,
    running: watch::Sender<usize>,
    /// Until when nothing waits any more.
    waited_enough: Mutex<Option<Instant>>,
}

impl Hurry {
    fn new(patience: Duration) -> Self {
        Self {
            patience,
            running: watch::Sender::default(),
            waited_enough: Mutex::default(),
        }
    }

    /// One more, until that is dropped.
    fn begin(&self) -> Hurrying<'_> {
        self.running.send_modify(|running| *running += 1);
        Hurrying(self)
    }

    /// Waits until there is none, or a while.
    async fn pass(&self) {
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

/// See [`Hurry::begin`].
struct Hurrying<'h>(&'h Hurry);

impl Drop for Hurrying<'_> {
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
    async fn what_is_urgent_stays_so_wherever_it_is_asked_for() {
        assert!(!is_in_background());
        in_background(async {
            assert!(is_in_background());
            urgently(async { assert!(!is_in_background()) }).await;
            assert!(is_in_background());
        })
        .await;
        assert!(!is_in_background());
        let there = in_background(async { tokio::spawn(as_here(async { is_in_background() })).await }).await;
        assert!(there.is_ok_and(|there| there) && !is_in_background());
    }

    #[tokio::test]
    async fn what_can_wait_makes_way_for_who_comes_first_and_nothing_else_does() {
        let waits = || async { make_way().now_or_never().is_none() };
        first_of_all(async {
            assert!(!waits().await);
            assert!(!urgently(waits()).await);
            assert!(patiently(waits()).await);
            assert!(in_background(waits()).await);
        })
        .await;
        assert!(!in_background(waits()).await);
    }

    #[tokio::test]
    async fn nothing_begins_while_somebody_hurries_but_not_for_ever() {
        // However slow this machine is.
        const LONG: Duration = Duration::from_millis(500);
        let hurry = Arc::new(Hurry::new(LONG));
        let passes = || hurry.pass().now_or_never().is_some();
        assert!(passes());

        let (first, second) = (hurry.begin(), hurry.begin());
        assert!(!passes());
        drop(first);
        assert!(!passes());
        let waiting = tokio::spawn({
            let hurry = hurry.clone();
            async move { hurry.pass().await }
        });
        drop(second);
        assert!(passes());
        assert!(waiting.await.is_ok());

        // Whoever never ends has half of the time: what waited for so long, and what comes next, goes on.
        let _endless = hurry.begin();
        assert!(!passes());
        hurry.pass().await;
        assert!(passes());
        tokio::time::sleep(LONG).await;
        assert!(!passes());
    }
}
