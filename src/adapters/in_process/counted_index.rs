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
        vectors::{Candidate, Comparison, FactIndex, IndexPoint, IndexState, Prepared, Proposal, StoredPoints},
    },
    tenancy::TenantScope,
};

/// `points` is searched, `words` counts.
pub struct CountedFactIndex {
    points: Arc<dyn FactIndex>,
    words: Arc<dyn FactIndex>,
}

impl CountedFactIndex {
    /// `words`: [`InProcessFactIndex::counting`](super::fact_index::InProcessFactIndex::counting), or what tells other nodes
    /// as well.
    #[must_use]
    pub fn new(points: Arc<dyn FactIndex>, words: Arc<dyn FactIndex>) -> Self {
        Self { points, words }
    }
}

#[async_trait]
impl FactIndex for CountedFactIndex {
    async fn propose(&self, scope: &TenantScope, proposal: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        self.points.propose(scope, proposal).await
    }
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        self.words.term_statistics(scope, viewpoint, terms).await
    }
    async fn similar(&self, scope: &TenantScope, with: Comparison<'_>) -> StoreResult<Vec<Candidate>> {
        self.points.similar(scope, with).await
    }
    async fn upsert(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.points.upsert(scope, points).await?;
        self.words.upsert(scope, points).await
    }
    async fn remove(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.points.remove(scope, facts).await?;
        self.words.remove(scope, facts).await
    }
    async fn count(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.points.count(scope).await
    }
    async fn clear(&self, scope: &TenantScope) -> StoreResult<()> {
        self.points.clear(scope).await?;
        self.words.clear(scope).await
    }
    fn is_shared(&self) -> bool {
        self.points.is_shared()
    }
    fn state(&self) -> IndexState {
        self.points.state()
    }
    async fn prepare(&self, may_make: bool) -> StoreResult<Prepared> {
        self.points.prepare(may_make).await
    }
    async fn adopt(&self) -> StoreResult<()> {
        self.points.adopt().await
    }
    async fn retire(&self) -> StoreResult<()> {
        self.points.retire().await
    }
    async fn is_current(&self) -> StoreResult<bool> {
        self.points.is_current().await
    }
    async fn stored(&self, scope: &TenantScope, after: Option<&str>, limit: u32) -> StoreResult<Option<StoredPoints>> {
        self.points.stored(scope, after, limit).await
    }
}
