//! The ledger: the truth. One trait per aggregate, one file each.
//!
//! Whatever belongs together is one method, so that each adapter can make it one transaction.
//! Every method takes a [`TenantScope`](crate::tenancy::TenantScope) and has the tenant in its
//! `WHERE`; a foreign id is simply not found.

pub mod audit;
pub mod authored;
pub mod dialogues;
pub mod facts;
pub mod idempotency;
pub mod jobs;
pub mod metrics;
pub mod nodes;
pub mod priority;
pub mod revocations;
pub mod rewinds;
pub mod saves;
pub mod scenarios;
pub mod state;
pub mod summaries;
pub mod tenants;
pub mod usage;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::StoreResult;
use crate::tenancy::TenantScope;

/// The whole ledger, as one adapter provides it.
#[derive(Clone)]
pub struct Ledger {
    pub tenants: Arc<dyn tenants::TenantStore>,
    pub authored: Arc<dyn authored::AuthoredStore>,
    pub scenarios: Arc<dyn scenarios::ScenarioStore>,
    pub dialogues: Arc<dyn dialogues::DialogueStore>,
    pub facts: Arc<dyn facts::FactStore>,
    pub summaries: Arc<dyn summaries::SummaryStore>,
    pub state: Arc<dyn state::StateStore>,
    pub jobs: Arc<dyn jobs::JobStore>,
    pub rewinds: Arc<dyn rewinds::RewindStore>,
    pub saves: Arc<dyn saves::SaveStore>,
    pub audit: Arc<dyn audit::AuditStore>,
    pub idempotency: Arc<dyn idempotency::IdempotencyStore>,
    pub usage: Arc<dyn usage::UsageStore>,
    pub revocations: Arc<dyn revocations::RevocationStore>,
    pub nodes: Arc<dyn nodes::NodeStore>,
    pub maintenance: Arc<dyn Maintenance>,
}

/// What [`Maintenance::prune_expired`] may delete: what is older than these times. `None`: nothing of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneBefore {
    /// Jobs that were done before. Others stay, whatever their age.
    pub done_jobs: Option<DateTime<Utc>>,
    /// Traces of turns that began before.
    pub traces: Option<DateTime<Utc>>,
    /// Verdicts that were last given before.
    pub verdicts: Option<DateTime<Utc>>,
    /// Turns that were unsaid before and that no save has, with everything they caused; and what is kept
    /// about the moves that unsaid them. A turn that has a key keeps it and its id, and nothing else.
    pub unsaid: Option<DateTime<Utc>>,
    /// Sessions made before in which nothing was ever said, that no save has and no node has in memory; and what was kept of
    /// those who asked before to take something back, and there was nothing.
    pub unchanged: Option<DateTime<Utc>>,
    /// Revocations that no longer mattered then.
    pub revocations: Option<DateTime<Utc>>,
}

/// The ledger as a machine that runs.
#[async_trait]
pub trait Maintenance: Send + Sync {
    /// One cheap round trip, for `/readyz`.
    async fn ping(&self) -> StoreResult<()>;
    /// One small write that becomes durable as every other does, for `/readyz`.
    ///
    /// # Errors
    /// [`StoreError::NotWritable`](super::StoreError::NotWritable): it says why.
    async fn try_write(&self) -> StoreResult<()>;
    /// What waits in the queues of all tenants; one round trip.
    async fn load_backlog(&self) -> StoreResult<metrics::Backlog>;
    /// What this node's ledger measures of itself.
    fn ledger_metrics(&self) -> &metrics::LedgerMetrics;
    /// Deletes the oldest of what is too old, at most `limit` rows of each sort. Returns how many were
    /// deleted; there may be more if it is `limit` or above.
    async fn prune_expired(&self, scope: &TenantScope, before: &PruneBefore, limit: u32) -> StoreResult<u64>;
    /// Has the engine count the rows of tables that have grown a lot since it last did, where its plans
    /// depend on that. Cheap where none has; one node at a time does it, the others find nothing to do.
    /// Returns how many tables were counted.
    async fn count_grown_tables(&self) -> StoreResult<usize>;
    /// Flushes what is buffered and closes every connection. Later calls fail.
    async fn close_connections(&self);
}
