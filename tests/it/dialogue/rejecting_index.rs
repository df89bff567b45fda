//! An index that rejects all writes of one tenant.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use colloquy::{
    ids::FactId,
    ports::{
        StoreError, StoreResult,
        vectors::{
            Candidate, CandidateQuery, FactIndex, IndexPoint, IndexState, PrepareOutcome, SimilarFactsQuery,
            StoredPointPage,
        },
    },
    tenancy::TenantScope,
};

/// Rejects writes while `refuses` is true.
pub struct RejectingIndex {
    pub index: Arc<dyn FactIndex>,
    pub refused: TenantScope,
    /// The error returned for a rejected write.
    pub with: StoreError,
    pub refuses: AtomicBool,
}

#[async_trait]
impl FactIndex for RejectingIndex {
    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>> {
        self.index.propose_candidates(scope, proposal).await
    }
    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        self.index.find_similar(scope, with).await
    }
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        if *scope == self.refused && self.refuses.load(Ordering::SeqCst) {
            return Err(self.with.clone());
        }
        self.index.upsert_points(scope, points).await
    }
    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.index.remove_points(scope, facts).await
    }
    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.index.count_points(scope).await
    }
    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.index.clear_tenant(scope).await
    }
    fn is_shared(&self) -> bool {
        self.index.is_shared()
    }
    fn index_state(&self) -> IndexState {
        self.index.index_state()
    }
    async fn prepare_index(&self, may_make: bool) -> StoreResult<PrepareOutcome> {
        self.index.prepare_index(may_make).await
    }
    async fn adopt_index(&self) -> StoreResult<()> {
        self.index.adopt_index().await
    }
    async fn drop_replaced_index(&self) -> StoreResult<()> {
        self.index.drop_replaced_index().await
    }
    async fn is_current(&self) -> StoreResult<bool> {
        self.index.is_current().await
    }
    async fn list_stored_points(
        &self,
        scope: &TenantScope,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Option<StoredPointPage>> {
        self.index.list_stored_points(scope, after, limit).await
    }
}
