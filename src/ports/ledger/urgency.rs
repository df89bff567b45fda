//! Whether somebody waits for what is asked of the ledger.
//!
//! Adapters with few connections leave most of them to those that somebody waits for: what a turn leaves to be done
//! comes in bursts, and would make whoever speaks or cuts in wait until all of it is done.

tokio::task_local! {
    static BACKGROUND: ();
}

/// Runs `work`, for which nobody waits.
pub async fn in_background<T>(work: impl Future<Output = T>) -> T {
    BACKGROUND.scope((), work).await
}

/// Whether this task is [`in_background`].
#[must_use]
pub fn is_in_background() -> bool {
    BACKGROUND.try_with(|()| ()).is_ok()
}
