//! Who was last known to own a dialogue, so that a request at the wrong node need not ask the ledger.
//!
//! A hint and nothing more: a stale one costs a hop, and no answer at all means to ask the ledger.

use async_trait::async_trait;

use super::StoreResult;
use crate::{
    ids::{DialogueId, NodeId},
    tenancy::TenantScope,
};

/// Owners of dialogues, forgotten after a while.
#[async_trait]
pub trait OwnerCache: Send + Sync {
    async fn load_owner(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Option<NodeId>>;
    async fn record_owner(&self, scope: &TenantScope, dialogue: DialogueId, node: NodeId) -> StoreResult<()>;
    async fn forget_owner(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<()>;
}
