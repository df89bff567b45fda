//! The last known owners of dialogues. A request at the wrong node can find its owner here without the ledger.
//!
//! An entry is only a hint. A stale entry costs a hop; without an entry, the caller asks the ledger.

use async_trait::async_trait;

use super::StoreResult;
use colloquy_core::{
    ids::{DialogueId, NodeId},
    scope::TenantScope,
};

/// Stores owners of dialogues for a limited time.
#[async_trait]
pub trait OwnerCache: Send + Sync {
    async fn load_owner(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Option<NodeId>>;
    async fn record_owner(&self, scope: &TenantScope, dialogue: DialogueId, node: NodeId) -> StoreResult<()>;
    async fn forget_owner(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<()>;
}
