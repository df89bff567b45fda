//! Notices from one node to the other nodes, which then need not find out by themselves.
//!
//! Only the in-process index needs notices for correctness, and repeats them until every live node has them. All other
//! state is fenced in the ledger, or read again after a while.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{
    StoreResult,
    ledger::{revocations::Revocation, saves::RestoredDialogue},
};
use colloquy_core::{
    ids::{DialogueId, FactId, TenantId, WorldId},
    scope::TenantScope,
};

/// An event on this node that concerns the memory of other nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Notice {
    /// A save of a world was restored.
    Restored {
        tenant: TenantId,
        dialogues: Vec<RestoredDialogue>,
    },
    /// Sessions were closed, because a rewind removed the turns from which players joined.
    Closed {
        tenant: TenantId,
        sessions: Vec<DialogueId>,
    },
    /// A world, or an NPC of a world, was edited.
    Authored { tenant: TenantId, world: WorldId },
    /// The ledger has new data about these facts.
    Indexed { tenant: TenantId, facts: Vec<FactId> },
    /// The tenant's index is being rebuilt.
    Cleared { tenant: TenantId },
    /// A tenant was disabled or enabled.
    Tenant { tenant: TenantId, enabled: bool },
    /// Tokens were revoked.
    Revoked { revocation: Revocation },
}

/// This node's own part of the index, for notices of other nodes.
#[async_trait]
pub trait LocalIndex: Send + Sync {
    /// Reloads these facts from the ledger.
    async fn refresh_facts(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()>;
    /// Drops a tenant's partitions. The next use reads them from the ledger.
    async fn forget_tenant(&self, scope: &TenantScope) -> StoreResult<()>;
}

/// The other nodes.
#[async_trait]
pub trait Peers: Send + Sync {
    /// Notifies every live node. `Ok` means that all live nodes have acted on the notice.
    ///
    /// # Errors
    /// [`super::StoreError::Unavailable`]: at least one node did not get the notice.
    async fn notify_peers(&self, notice: &Notice) -> StoreResult<()>;
}
