//! The NPC for which a piece of work calls models.

use colloquy_ports::ledger::usage::UsageOwner;

tokio::task_local! {
    static OWNER: UsageOwner;
}

/// Runs `work`, whose model calls are counted for `owner`. Calls in spawned tasks are not included.
pub(crate) async fn with_usage_owner<F: Future>(owner: UsageOwner, work: F) -> F::Output {
    OWNER.scope(owner, work).await
}

/// Returns the owner of the surrounding work. `None`: the work is for no single NPC.
pub(super) fn current_owner() -> Option<UsageOwner> {
    OWNER.try_with(Clone::clone).ok()
}
