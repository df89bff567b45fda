//! What one node tells the others, so that they need not find out for themselves.
//!
//! Nothing depends on a notice for being right but the in-process index, which repeats its notices
//! until every node that lives has them: everything else is fenced in the ledger or read again after a
//! while.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{
    StoreResult,
    ledger::{revocations::Revocation, saves::RestoredDialogue},
};
use crate::{
    ids::{DialogueId, FactId, TenantId, WorldId},
    tenancy::TenantScope,
};

/// What happened here and concerns what others hold in memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Notice {
    /// A save of a world was loaded.
    Restored {
        tenant: TenantId,
        dialogues: Vec<RestoredDialogue>,
    },
    /// Sessions were closed, since the turns from which they were joined were taken back.
    Closed {
        tenant: TenantId,
        sessions: Vec<DialogueId>,
    },
    /// A world or an NPC of it was edited.
    Authored { tenant: TenantId, world: WorldId },
    /// The ledger knows something new of these facts.
    Indexed { tenant: TenantId, facts: Vec<FactId> },
    /// The tenant's index is built anew.
    Cleared { tenant: TenantId },
    /// A tenant was disabled or enabled.
    Tenant { tenant: TenantId, enabled: bool },
    /// Tokens were revoked.
    Revoked { revocation: Revocation },
}

/// What this node itself holds of the index, as far as others tell it to look.
#[async_trait]
pub trait LocalIndex: Send + Sync {
    /// Has it hold of these facts what the ledger says of them now.
    async fn refresh_facts(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()>;
    /// Forgets a tenant's; it is read from the ledger when it is used.
    async fn forget_tenant(&self, scope: &TenantScope) -> StoreResult<()>;
}

/// The other nodes.
#[async_trait]
pub trait Peers: Send + Sync {
    /// Tells every node that lives. `Ok`: all of them have done what follows from it.
    ///
    /// # Errors
    /// [`super::StoreError::Unavailable`]: at least one could not be told.
    async fn notify_peers(&self, notice: &Notice) -> StoreResult<()>;
}
