//! An index that is elsewhere, and beside it in this process how often each word occurs in each memory.
//!
//! How much a word tells depends on how many facts of a memory have it. An index such as Qdrant counts only
//! over everything that it holds, so the counting is done here, by the in-process index over points without
//! vectors: read from the ledger when a memory is first searched, kept up to date by the outbox, forgotten
//! when it was not used for long. So both kinds of index count alike.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    ids::FactId,
    memory::{
        fact::Viewpoint,
        keywords::{TermStatistics, TermWeights},
    },
    ports::{
        StoreResult,
        vectors::{
            Candidate, CandidateQuery, FactIndex, IndexPoint, IndexState, PrepareOutcome, SimilarFactsQuery,
            StoredPointPage,
        },
    },
    tenancy::TenantScope,
};

/// `points` is searched, `words` counts.
pub struct CountedFactIndex {
    points: Arc<dyn FactIndex>,
    words: Arc<dyn FactIndex>,
}

impl CountedFactIndex {
    /// `words`: [`InProcessFactIndex::new_term_counter`](super::fact_index::InProcessFactIndex::new_term_counter), or what tells other nodes
    /// as well.
    #[must_use]
    pub fn new(points: Arc<dyn FactIndex>, words: Arc<dyn FactIndex>) -> Self {
        Self { points, words }
    }
}

#[async_trait]
impl FactIndex for CountedFactIndex {
    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>> {
        self.points.propose_candidates(scope, proposal).await
    }
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        self.words.term_statistics(scope, viewpoint, terms).await
    }
    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        self.points.find_similar(scope, with).await
    }
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.points.upsert_points(scope, points).await?;
        self.words.upsert_points(scope, points).await
    }
    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.points.remove_points(scope, facts).await?;
        self.words.remove_points(scope, facts).await
    }
    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.points.count_points(scope).await
    }
    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.points.clear_tenant(scope).await?;
        self.words.clear_tenant(scope).await
    }
    fn is_shared(&self) -> bool {
        self.points.is_shared()
    }
    fn index_state(&self) -> IndexState {
        self.points.index_state()
    }
    async fn prepare_index(&self, may_make: bool) -> StoreResult<PrepareOutcome> {
        self.points.prepare_index(may_make).await
    }
    async fn adopt_index(&self) -> StoreResult<()> {
        self.points.adopt_index().await
    }
    async fn drop_replaced_index(&self) -> StoreResult<()> {
        self.points.drop_replaced_index().await
    }
    async fn is_current(&self) -> StoreResult<bool> {
        self.points.is_current().await
    }
    async fn list_stored_points(
        &self,
        scope: &TenantScope,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Option<StoredPointPage>> {
        self.points.list_stored_points(scope, after, limit).await
    }
}
