//! A remote index, combined with local counts of words per memory.
//!
//! The information of a word depends on the number of facts with the word in a memory. An index like Qdrant only counts
//! over all its points. Therefore an in-process index over points without vectors counts here. The ledger fills a
//! memory on the first search, and the outbox keeps the memory up to date. A long time without use drops the memory.
//! Both kinds of index thus count alike.

use std::sync::Arc;

use async_trait::async_trait;

use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::{
    disclosure::audience::Viewpoint,
    keywords::{TermStatistics, TermWeights},
};
use colloquy_ports::{
    StoreResult,
    vectors::{Candidate, CandidateQuery, FactIndex, IndexPoint, SimilarFactsQuery},
};

/// Searches `points` and counts in `words`.
pub struct CountedFactIndex {
    points: Arc<dyn FactIndex>,
    words: Arc<dyn FactIndex>,
}

impl CountedFactIndex {
    /// `words` is [`InProcessFactIndex::new_term_counter`](super::fact_index::InProcessFactIndex::new_term_counter), or
    /// an index over it that also notifies other nodes.
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
    fn stored_in(&self) -> Option<&dyn FactIndex> {
        Some(&*self.points)
    }
}
