//! The ledger: the truth. One trait per aggregate, one file per trait.
//!
//! Writes that belong together are one method, which an adapter can make one transaction. Every method takes a
//! [`TenantScope`](colloquy_core::scope::TenantScope) and has the tenant in its `WHERE`. A foreign id is therefore not found.

pub mod actions;
pub mod audit;
pub mod authored;
pub mod consolidation;
pub mod curation;
pub mod curator;
pub mod dialogues;
pub mod directives;
pub mod episodes;
pub mod facts;
pub mod flags;
pub mod idempotency;
pub mod insights;
pub mod jobs;
pub mod lore;
pub mod metrics;
pub mod new_job;
pub mod nodes;
pub mod priority;
pub mod revocations;
pub mod rewinds;
pub mod saves;
pub mod scenarios;
pub mod state;
pub mod summaries;
pub mod tenants;
pub mod turn_memory;
pub mod usage;
pub mod webhooks;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::StoreResult;
use colloquy_core::scope::TenantScope;

/// The whole ledger, as one adapter provides it.
#[derive(Clone)]
pub struct Ledger {
    pub tenants: Arc<dyn tenants::TenantStore>,
    pub authored: Arc<dyn authored::AuthoredStore>,
    pub lore: Arc<dyn lore::LoreStore>,
    pub scenarios: Arc<dyn scenarios::ScenarioStore>,
    pub directives: Arc<dyn directives::DirectiveStore>,
    pub dialogues: Arc<dyn dialogues::DialogueStore>,
    pub turns: Arc<dyn dialogues::TurnStore>,
    pub turn_memory: Arc<dyn turn_memory::TurnMemoryStore>,
    pub episodes: Arc<dyn episodes::EpisodeStore>,
    pub facts: Arc<dyn facts::FactStore>,
    pub consolidation: Arc<dyn consolidation::ConsolidationStore>,
    pub summaries: Arc<dyn summaries::SummaryStore>,
    pub state: Arc<dyn state::StateStore>,
    pub actions: Arc<dyn actions::ActionStore>,
    pub jobs: Arc<dyn jobs::JobStore>,
    pub curator: Arc<dyn curator::CuratorStore>,
    pub curation: Arc<dyn curation::CurationStore>,
    pub insights: Arc<dyn insights::InsightStore>,
    pub rewinds: Arc<dyn rewinds::RewindStore>,
    pub saves: Arc<dyn saves::SaveStore>,
    pub audit: Arc<dyn audit::AuditStore>,
    pub idempotency: Arc<dyn idempotency::IdempotencyStore>,
    pub usage: Arc<dyn usage::UsageStore>,
    pub revocations: Arc<dyn revocations::RevocationStore>,
    pub webhooks: Arc<dyn webhooks::WebhookStore>,
    pub nodes: Arc<dyn nodes::NodeStore>,
    pub maintenance: Arc<dyn Maintenance>,
}

/// The age limits of [`Maintenance::prune_expired`]. Rows from before a limit may be deleted; `None` deletes no row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneBefore {
    /// For jobs, by their end. Unfinished jobs of any age stay.
    pub done_jobs: Option<DateTime<Utc>>,
    /// For traces, by the beginning of the turn.
    pub traces: Option<DateTime<Utc>>,
    /// For verdicts, by the last time of the verdict.
    pub verdicts: Option<DateTime<Utc>>,
    /// For unsaid turns in no save, with all their effects and the records of the rewinds, by the time of the rewind. A
    /// turn with an idempotency key loses all but its key and its id.
    pub unsaid: Option<DateTime<Utc>>,
    /// For sessions without a turn, in no save and not in a node's memory, by creation. Also for records of rewind
    /// requests that changed no turn.
    pub unchanged: Option<DateTime<Utc>>,
    /// For the usage of NPCs, by its day.
    pub npc_usage: Option<DateTime<Utc>>,
    /// For lines of the audit log. Lines of the last 30 days stay whatever the time.
    pub audit: Option<DateTime<Utc>>,
    /// For the usage of players, which counts only for its day.
    pub player_usage: Option<DateTime<Utc>>,
    /// For revocations, by the time of their expiry.
    pub revocations: Option<DateTime<Utc>>,
    /// For messages of webhooks, by the time of their event, and for attempts. Messages that wait for an enabled
    /// webhook stay.
    pub webhook_messages: Option<DateTime<Utc>>,
}

/// Operation and upkeep of the ledger.
#[async_trait]
pub trait Maintenance: Send + Sync {
    /// Makes one cheap round trip, for `/readyz`.
    async fn ping(&self) -> StoreResult<()>;
    /// Makes one small write, as durable as every other write, for `/readyz`.
    ///
    /// # Errors
    /// [`StoreError::NotWritable`](super::StoreError::NotWritable), with the reason.
    async fn try_write(&self) -> StoreResult<()>;
    /// Returns the lengths of the queues of all tenants, in one round trip.
    async fn load_backlog(&self) -> StoreResult<metrics::Backlog>;
    /// Returns the ledger metrics of this node.
    fn ledger_metrics(&self) -> &metrics::LedgerMetrics;
    /// Deletes the oldest expired rows, at most `limit` of each sort, and returns their number. With `limit` or more
    /// deleted rows, more expired rows may remain.
    async fn prune_expired(&self, scope: &TenantScope, before: &PruneBefore, limit: u32) -> StoreResult<u64>;
    /// Makes the engine count the rows of tables that have grown a lot since the last count, if its plans depend on
    /// counts. Cheap without growth. Only one node at a time counts; the other nodes skip the work. Returns the number
    /// of counted tables.
    async fn count_grown_tables(&self) -> StoreResult<usize>;
    /// Flushes buffered writes and closes every connection. Later calls fail.
    async fn close_connections(&self);
}
