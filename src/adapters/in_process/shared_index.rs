//! The in-process index of one node among several: what is moved into it is moved into those of the
//! others, too.
//!
//! A point counts as moved once every node that lives has it, so the outbox repeats what one of them
//! missed. A node that joins, or comes back from the dead, loads its partitions from the ledger.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    ids::{FactId, WorldId},
    memory::fact::Audience,
    ports::{
        StoreResult,
        peers::{Notice, Peers},
        vectors::{Candidate, FactIndex, IndexPoint, Proposal},
    },
    tenancy::TenantScope,
};

/// This node's index, and the way to the others'.
pub struct SharedFactIndex {
    own: Arc<dyn FactIndex>,
    peers: Arc<dyn Peers>,
}

impl SharedFactIndex {
    /// `own` is what other nodes' notices are applied to.
    #[must_use]
    pub fn new(own: Arc<dyn FactIndex>, peers: Arc<dyn Peers>) -> Self {
        Self { own, peers }
    }

    async fn tell(&self, scope: &TenantScope, facts: Vec<FactId>) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        self.peers.tell(&Notice::Indexed { tenant, facts }).await
    }
}

#[async_trait]
impl FactIndex for SharedFactIndex {
    async fn propose(&self, scope: &TenantScope, proposal: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        self.own.propose(scope, proposal).await
    }
    async fn similar(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        audience: &Audience,
        embedding: &[f32],
        min_cosine: f32,
        limit: usize,
    ) -> StoreResult<Vec<Candidate>> {
        self.own
            .similar(scope, world, audience, embedding, min_cosine, limit)
            .await
    }
    async fn upsert(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        self.own.upsert(scope, points).await?;
        self.tell(scope, points.iter().map(|point| point.fact).collect()).await
    }
    async fn remove(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        self.own.remove(scope, facts).await?;
        self.tell(scope, facts.to_vec()).await
    }
    async fn count(&self, scope: &TenantScope) -> StoreResult<u64> {
        self.own.count(scope).await
    }
    async fn clear(&self, scope: &TenantScope) -> StoreResult<()> {
        self.own.clear(scope).await?;
        let tenant = scope.tenant().clone();
        self.peers.tell(&Notice::Cleared { tenant }).await
    }
}
