//! The NPC and the player for which a piece of work calls models.

use colloquy_core::ids::PlayerId;
use colloquy_ports::ledger::usage::UsageOwner;

/// For whom models are called.
#[derive(Debug, Clone, Default)]
pub(super) struct CallOwner {
    /// `None`: the work is for no single NPC.
    pub npc: Option<UsageOwner>,
    /// The player of the session. `None`: the work is for no single player.
    pub player: Option<PlayerId>,
}

tokio::task_local! {
    static OWNER: CallOwner;
}

/// Runs `work`, whose model calls are counted for `owner`, and for the share of `player` in the tenant's budgets. Calls in
/// spawned tasks are not included.
pub(crate) async fn with_usage_owner<F: Future>(owner: UsageOwner, player: Option<PlayerId>, work: F) -> F::Output {
    let owner = CallOwner {
        npc: Some(owner),
        player,
    };
    OWNER.scope(owner, work).await
}

/// Returns the owner of the surrounding work.
pub(super) fn current_owner() -> CallOwner {
    OWNER.try_with(Clone::clone).unwrap_or_default()
}
