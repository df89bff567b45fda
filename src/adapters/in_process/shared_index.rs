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
        ledger::{facts::FactStore, urgency::urgently},
        peers::{Notice, OwnIndex, Peers},
        vectors::{Candidate, Comparison, FactIndex, IndexPoint, Proposal},
    },
    tenancy::TenantScope,
};

/// What this node holds of the index, always as of a look at the ledger that no other write came between.
pub struct OwnFactIndex {
    held: Arc<dyn FactIndex>,
    facts: Arc<dyn FactStore>,
    /// Held from the look at the ledger to the end of the write.
    refreshing: Mutex<()>,
}

impl OwnFactIndex {
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
impl OwnIndex for OwnFactIndex {
    async fn refresh(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        let _in_turn = self.refreshing.lock().await;
        // Other nodes wait for their turn.
        let points = urgently(self.facts.points(scope, facts)).await?;
        let valid: HashSet<FactId> = points.iter().map(|point| point.fact).collect();
        let gone: Vec<FactId> = facts.iter().copied().filter(|fact| !valid.contains(fact)).collect();
        if !points.is_empty() {
            self.held.upsert(scope, &points).await?;
        }
        if !gone.is_empty() {
            self.held.remove(scope, &gone).await?;
        }
        Ok(())
    }
    async fn forget(&self, scope: &TenantScope) -> StoreResult<()> {
        self.held.clear(scope).await
    }
}

/// This node's index, and the way to the others'.
pub struct SharedFactIndex {
    own: Arc<OwnFactIndex>,
    peers: Arc<dyn Peers>,
}

impl SharedFactIndex {
    /// `own` is what other nodes' notices are applied to.
    #[must_use]
    pub fn new(own: Arc<OwnFactIndex>, peers: Arc<dyn Peers>) -> Self {
        Self { own, peers }
    }

    /// Here and everywhere.
    async fn moved(&self, scope: &TenantScope, facts: Vec<FactId>) -> StoreResult<()> {
        self.own.refresh(scope, &facts).await?;
        let tenant = scope.tenant().clone();
        self.peers.tell(&Notice::Indexed { tenant, facts }).await
    }
}

#[async_trait]
impl FactIndex for SharedFactIndex {
    async fn propose(&self, scope: &TenantScope, proposal: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        self.own.held.propose(scope, proposal).await
    }
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        self.own.held.term_statistics(scope, viewpoint, terms).await
    }
    async fn similar(&self, scope: &TenantScope, with: Comparison<'_>) -> StoreResult<Vec<Candidate>> {
        self.own.held.similar(scope, with).await
    }
    async fn upsert(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.moved(scope, points.iter().map(|point| point.fact).collect()).await
    }
    async fn remove(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.moved(scope, facts.to_vec()).await
    }
    async fn count(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.own.held.count(scope).await
    }
    async fn clear(&self, scope: &TenantScope) -> StoreResult<()> {
        self.own.forget(scope).await?;
        let tenant = scope.tenant().clone();
        self.peers.tell(&Notice::Cleared { tenant }).await
    }
}
