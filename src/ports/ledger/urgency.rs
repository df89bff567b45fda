//! Whether somebody waits for what is asked of the ledger.
//!
//! An adapter with few connections leaves most of them to those that somebody waits for: what a turn leaves to be done
//! comes in bursts, and would make whoever speaks or cuts in wait until all of it is done. (The next line waits for what
//! the last one taught, but only for a moment: `turn.wait_for_memory_ms`.)

/// How much of a hurry somebody is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Urgency {
    /// Nobody waits.
    Background,
    #[default]
    Usual,
    /// Short, and the background makes way for it.
    First,
}

tokio::task_local! {
    static URGENCY: Urgency;
}

/// Runs `work`, for which nobody waits.
pub async fn in_background<T>(work: impl Future<Output = T>) -> T {
    URGENCY.scope(Urgency::Background, work).await
}

/// Runs `work` which holds what somebody may wait for, whoever asked for it.
pub async fn urgently<T>(work: impl Future<Output = T>) -> T {
    URGENCY.scope(Urgency::Usual, work).await
}

/// Runs `work` that is short and that somebody waits for at this very moment: while it holds a connection, an adapter
/// with few begins little of what is done in the background.
pub async fn first_of_all<T>(work: impl Future<Output = T>) -> T {
    URGENCY.scope(Urgency::First, work).await
}

/// Carries to another task how urgent this one is.
pub fn as_here<F: Future>(work: F) -> impl Future<Output = F::Output> {
    URGENCY.scope(urgency(), work)
}

/// Whether this task is [`in_background`].
#[must_use]
pub fn is_in_background() -> bool {
    urgency() == Urgency::Background
}

/// Whether this task comes [`first_of_all`].
#[must_use]
pub fn is_first_of_all() -> bool {
    urgency() == Urgency::First
}

fn urgency() -> Urgency {
    URGENCY.try_with(|urgency| *urgency).unwrap_or_default()
}

#[cfg(test)]
mod tests {
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
        let [here, there] = first_of_all(async {
            let there = tokio::spawn(as_here(async { is_first_of_all() }));
            [is_first_of_all(), there.await.unwrap_or_default()]
        })
        .await;
        assert!(here && there && !is_first_of_all());
    }
}
