//! Whether somebody waits for what is asked of the ledger.
//!
//! An adapter with few connections leaves most of them to those that somebody waits for: what a turn leaves to be done
//! comes in bursts, and would make whoever speaks or cuts in wait until all of it is done. (The next line waits for what
//! the last one taught, but only for a moment: `turn.wait_for_memory_ms`.)

tokio::task_local! {
    static BACKGROUND: bool;
}

/// Runs `work`, for which nobody waits.
pub async fn in_background<T>(work: impl Future<Output = T>) -> T {
    BACKGROUND.scope(true, work).await
}

/// Runs `work` which holds what somebody may wait for, whoever asked for it.
pub async fn urgently<T>(work: impl Future<Output = T>) -> T {
    BACKGROUND.scope(false, work).await
}

/// Carries to another task whether this one is [`in_background`].
pub fn as_here<F: Future>(work: F) -> impl Future<Output = F::Output> {
    BACKGROUND.scope(is_in_background(), work)
}

/// Whether this task is [`in_background`].
#[must_use]
pub fn is_in_background() -> bool {
    BACKGROUND.try_with(|background| *background).unwrap_or_default()
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
    }
}
