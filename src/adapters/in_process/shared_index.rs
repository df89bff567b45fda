//! The in-process index of one node among several: what is moved into it is moved into those of the
//! others, too.
//!
//! A point counts as moved once every node that lives has it, so the outbox repeats what one of them
//! missed. A node that joins, or comes back from the dead, loads its partitions from the ledger.
//!
//! Its own relay and the notices of others write to the same index, each with what it has just read. So that the last to
//! write is also the last to have read, reading and writing are one step here: what a writer brought along is only taken
//! as the names of the facts.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::{
    ids::FactId,
    memory::{
        fact::Viewpoint,
        keywords::{TermStatistics, TermWeights},
    },
    ports::{
        StoreResult,
        ledger::{facts::FactStore, priority::with_interactive_priority},
        peers::{LocalIndex, Notice, Peers},
        vectors::{Candidate, CandidateQuery, FactIndex, IndexPoint, SimilarFactsQuery},
    },
    tenancy::TenantScope,
};

/// What this node holds of the index, always as of a look at the ledger that no other write came between.
pub struct LocalFactIndex {
    held: Arc<dyn FactIndex>,
    facts: Arc<dyn FactStore>,
    /// Held from the look at the ledger to the end of the write.
    refreshing: Mutex<()>,
}

impl LocalFactIndex {
    /// `facts` are those of the ledger that `held` is read from.
    #[must_use]
    pub fn new(held: Arc<dyn FactIndex>, facts: Arc<dyn FactStore>) -> Self {
        Self {
            held,
            facts,
            refreshing: Mutex::new(()),
        }
    }
}

#[async_trait]
impl LocalIndex for LocalFactIndex {
    async fn refresh_facts(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        let _in_turn = self.refreshing.lock().await;
        // Other nodes wait for their turn.
        let points = with_interactive_priority(self.facts.load_points(scope, facts)).await?;
        let valid: HashSet<FactId> = points.iter().map(|point| point.fact).collect();
        let gone: Vec<FactId> = facts.iter().copied().filter(|fact| !valid.contains(fact)).collect();
        if !points.is_empty() {
            self.held.upsert_points(scope, &points).await?;
        }
        if !gone.is_empty() {
            self.held.remove_points(scope, &gone).await?;
        }
        Ok(())
    }
    async fn forget_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.held.clear_tenant(scope).await
    }
}

/// This node's index, and the way to the others'.
pub struct SharedFactIndex {
    own: Arc<LocalFactIndex>,
    peers: Arc<dyn Peers>,
}

impl SharedFactIndex {
    /// `own` is what other nodes' notices are applied to.
    #[must_use]
    pub fn new(own: Arc<LocalFactIndex>, peers: Arc<dyn Peers>) -> Self {
        Self { own, peers }
    }

    /// Here and everywhere.
    async fn refresh_everywhere(&self, scope: &TenantScope, facts: Vec<FactId>) -> StoreResult<()> {
        self.own.refresh_facts(scope, &facts).await?;
        let tenant = scope.tenant().clone();
        self.peers.notify_peers(&Notice::Indexed { tenant, facts }).await
    }
}

#[async_trait]
impl FactIndex for SharedFactIndex {
    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>> {
        self.own.held.propose_candidates(scope, proposal).await
    }
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        self.own.held.term_statistics(scope, viewpoint, terms).await
    }
    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        self.own.held.find_similar(scope, with).await
    }
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.refresh_everywhere(scope, points.iter().map(|point| point.fact).collect())
            .await
    }
    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.refresh_everywhere(scope, facts.to_vec()).await
    }
    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.own.held.count_points(scope).await
    }
    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.own.forget_tenant(scope).await?;
        let tenant = scope.tenant().clone();
        self.peers.notify_peers(&Notice::Cleared { tenant }).await
    }
}
