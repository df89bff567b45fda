//! The in-process index of one node among several. Every change goes to the indexes of the other nodes, too.
//!
//! A change of a point counts as done once every live node has it, so the outbox repeats changes that a node missed. A
//! new or revived node loads its partitions from the ledger.
//!
//! The node's own relay and the notices of other nodes write to the same index. The last writer must also be the last
//! reader of the ledger. Therefore reading and writing are one step here, and a writer's points serve only as names of
//! facts.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use tokio::sync::Mutex;

use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::{
    disclosure::audience::Viewpoint,
    keywords::{TermStatistics, TermWeights},
};
use colloquy_ports::{
    StoreResult,
    ledger::{facts::FactStore, priority::with_interactive_priority},
    peers::{LocalIndex, Notice, Peers},
    vectors::{Candidate, CandidateQuery, FactIndex, IndexPoint, SimilarFactsQuery},
};

/// This node's index. Its contents always match a read of the ledger with no other write in between.
pub struct LocalFactIndex {
    index: Arc<dyn FactIndex>,
    facts: Arc<dyn FactStore>,
    /// Locked from the read of the ledger to the end of the write.
    refreshing: Mutex<()>,
}

impl LocalFactIndex {
    /// Returns an index over `index`. `facts` must be the store of the ledger from which `index` is read.
    #[must_use]
    pub fn new(index: Arc<dyn FactIndex>, facts: Arc<dyn FactStore>) -> Self {
        Self {
            index,
            facts,
            refreshing: Mutex::new(()),
        }
    }
}

#[async_trait]
impl LocalIndex for LocalFactIndex {
    async fn refresh_facts(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        let _in_turn = self.refreshing.lock().await;
        // Other nodes wait for their turn, so this read must not be background work.
        let points = with_interactive_priority(self.facts.load_points(scope, facts)).await?;
        let valid: HashSet<FactId> = points.iter().map(|point| point.fact).collect();
        let invalid: Vec<FactId> = facts.iter().copied().filter(|fact| !valid.contains(fact)).collect();
        if !points.is_empty() {
            self.index.upsert_points(scope, &points).await?;
        }
        if !invalid.is_empty() {
            self.index.remove_points(scope, &invalid).await?;
        }
        Ok(())
    }
    async fn forget_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.index.clear_tenant(scope).await
    }
}

/// This node's index, with notices to the other nodes' indexes.
pub struct SharedFactIndex {
    local: Arc<LocalFactIndex>,
    peers: Arc<dyn Peers>,
}

impl SharedFactIndex {
    /// Returns an index over `local`, which also receives the notices of other nodes.
    #[must_use]
    pub fn new(local: Arc<LocalFactIndex>, peers: Arc<dyn Peers>) -> Self {
        Self { local, peers }
    }

    /// Refreshes facts here and on all live nodes.
    async fn refresh_everywhere(&self, scope: &TenantScope, facts: Vec<FactId>) -> StoreResult<()> {
        self.local.refresh_facts(scope, &facts).await?;
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
        self.local.index.propose_candidates(scope, proposal).await
    }
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        self.local.index.term_statistics(scope, viewpoint, terms).await
    }
    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        self.local.index.find_similar(scope, with).await
    }
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.refresh_everywhere(scope, points.iter().map(|point| point.fact).collect())
            .await
    }
    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.refresh_everywhere(scope, facts.to_vec()).await
    }
    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.local.index.count_points(scope).await
    }
    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.local.forget_tenant(scope).await?;
        let tenant = scope.tenant().clone();
        self.peers.notify_peers(&Notice::Cleared { tenant }).await
    }
}
