//! An index that takes nothing of one tenant.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use colloquy::{
    ids::FactId,
    ports::{
        StoreError, StoreResult,
        vectors::{Candidate, Comparison, FactIndex, IndexPoint, IndexState, Prepared, Proposal, StoredPoints},
    },
    tenancy::TenantScope,
};

/// For as long as it `refuses`.
pub struct Picky {
    pub index: Arc<dyn FactIndex>,
    pub refused: TenantScope,
    /// What it says to that.
    pub with: StoreError,
    pub refuses: AtomicBool,
}

#[async_trait]
impl FactIndex for Picky {
    async fn propose(&self, scope: &TenantScope, proposal: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        self.index.propose(scope, proposal).await
    }
    async fn similar(&self, scope: &TenantScope, with: Comparison<'_>) -> StoreResult<Vec<Candidate>> {
        self.index.similar(scope, with).await
    }
    async fn upsert(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        if *scope == self.refused && self.refuses.load(Ordering::SeqCst) {
            return Err(self.with.clone());
        }
        self.index.upsert(scope, points).await
    }
    async fn remove(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.index.remove(scope, facts).await
    }
    async fn count(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.index.count(scope).await
    }
    async fn clear(&self, scope: &TenantScope) -> StoreResult<()> {
        self.index.clear(scope).await
    }
    fn is_shared(&self) -> bool {
        self.index.is_shared()
    }
    fn state(&self) -> IndexState {
        self.index.state()
    }
    async fn prepare(&self, may_make: bool) -> StoreResult<Prepared> {
        self.index.prepare(may_make).await
    }
    async fn adopt(&self) -> StoreResult<()> {
        self.index.adopt().await
    }
    async fn retire(&self) -> StoreResult<()> {
        self.index.retire().await
    }
    async fn is_current(&self) -> StoreResult<bool> {
        self.index.is_current().await
    }
    async fn stored(&self, scope: &TenantScope, after: Option<&str>, limit: u32) -> StoreResult<Option<StoredPoints>> {
        self.index.stored(scope, after, limit).await
    }
}
