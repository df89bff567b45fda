//! Recall: the index proposes, the ledger disposes, one pure function scores (ALGORITHMS §2).

use chrono::{DateTime, Utc};

use super::Services;
use crate::{
    memory::{
        authored::World,
        fact::{Fact, Viewpoint},
        trace::{CallTrace, ScoreParts},
    },
    ports::StoreError,
    tenancy::TenantScope,
};

/// Bodies of facts by (id, version), shared by every dialogue of this node.
pub struct BodyCache {}

impl BodyCache {
    /// Keeps at most `capacity` bodies.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        let _ = capacity;
        todo!()
    }
}

/// A hit of a designer's search.
#[derive(Debug, Clone)]
pub struct SearchHit {
    pub fact: Fact,
    pub score: ScoreParts,
}

/// Hybrid search for `GET …/facts?q=`: best first, at most `limit`, as of `at`.
pub async fn search(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    query: &str,
    at: DateTime<Utc>,
    limit: usize,
) -> Result<(Vec<SearchHit>, Vec<CallTrace>), StoreError> {
    let _ = (services, scope, world, viewpoint, query, at, limit);
    todo!()
}
