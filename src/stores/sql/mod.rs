//! The ledger's SQL statements, written once for both engines.
//!
//! A file per aggregate holds the statements beside the code that runs them. No memory rule is decided here: folds come
//! from `memory::reconcile`.
//!
//! The folder is compiled twice: `stores/sqlite` and `stores/postgres` each include the folder as a child module by
//! path. The parent module supplies all engine parts under the same names, and `context.rs` lists them: the types of
//! `engine` (`Connection`, `Row`, `Db`, `Arguments`, `Engine`) and `store_error`. The macros of `dialect` supply the
//! few words on which the SQL dialects differ. The compiler therefore sees plain functions over one concrete driver. A
//! function generic over drivers needs about six bounds per statement, and sqlx's `Any` supports the column types of
//! neither engine. No file in the folder may name an engine by its path.
//!
//! Statements run through the macros of `statements`: `execute!`, `fetch_all!` and others.
//!
//! # Statements that both engines understand
//! - Lists are bound as JSON: `in_json_list!` tests membership; `json_texts_table!` and `json_arrays_table!` make
//!   tables. A list written by `ON CONFLICT DO UPDATE` has no duplicate rows and a fixed order.
//! - The rows found by a query with a LIMIT are selected through `in_subquery!`.
//! - Rows are looked up by a `row_key!` of `json_arrays_table!`, never by `value ->> n`: Postgres uses no index for
//!   `->>` (see the Postgres dialect).
//! - `value ->> n` is text on Postgres, so a number is cast: `CAST(value ->> 4 AS BIGINT)`. A sum is cast too.
//! - Numbers and moments are bound and read as `i64`. Flags are bound and read as `bool` and compared with `TRUE` and
//!   `FALSE`, in partial indexes too.
//! - Where SQLite must keep the join order, `CROSS JOIN` has its conditions in `WHERE`: SQLite allows `ON`, Postgres
//!   does not.
//! - `IS DISTINCT FROM` replaces `IS NOT`; `lower(..)` replaces a collation; every subquery in `FROM` has an alias.
//! - A `batch!` sends several statements in one trip, a [`JointRead`](joint_read::JointRead) several queries. A
//!   statement that must run after another has its own trip.
//! - A read followed by a write holds a [`LedgerLock`](scope::LedgerLock) or `for_update!` against other writers.
//!   SQLite has one writer; Postgres has many, and each statement sees all earlier commits. Work that starts with a
//!   memory lock or the state lock, in a world known beforehand, is written by `write_memory`. A statement that only
//!   updates rows from their own columns needs no lock.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of `Columns`, which has a lifetime, is no `ReadRow`"
)]

#[macro_use]
mod derived_tables;
#[macro_use]
mod statements;

mod actions;
mod audit;
mod authored;
mod authored_resource;
mod authored_size;
mod backlog;
mod context;
mod curation;
mod curator;
mod dialogues;
mod directives;
mod episodes;
mod facts;
mod idempotency;
mod insights;
mod job_calls;
mod job_fence;
mod jobs;
pub(super) mod joint_read;
mod leases;
mod lore;
mod meetings;
mod nodes;
mod outbox;
mod ownership;
mod pages;
mod prune;
mod revocations;
mod rewinds;
mod rows;
mod saves;
mod scenarios;
pub(super) mod scope;
mod state;
mod summaries;
mod tenants;
mod turn_memory;
mod turns;
mod usage;
mod webhooks;

use std::sync::Arc;

use async_trait::async_trait;

pub(super) use self::tenants::has_tenant;
use self::{
    context::{Engine, count_grown_tables},
    scope::RowScope,
};
use colloquy_core::scope::TenantScope;
use colloquy_ports::{
    StoreResult,
    ledger::{
        Ledger, Maintenance, PruneBefore,
        metrics::{Backlog, LedgerMetrics},
    },
    vectors::PointSource,
};

/// Returns all stores of the ledger on one engine.
pub(super) fn build_ledger(engine: &Arc<Engine>) -> Ledger {
    Ledger {
        tenants: Arc::new(tenants::SqlTenantStore(engine.clone())),
        authored: Arc::new(authored::SqlAuthoredStore(engine.clone())),
        lore: Arc::new(lore::SqlLoreStore(engine.clone())),
        scenarios: Arc::new(scenarios::SqlScenarioStore(engine.clone())),
        directives: Arc::new(directives::SqlDirectiveStore(engine.clone())),
        dialogues: Arc::new(dialogues::SqlDialogueStore(engine.clone())),
        turns: Arc::new(turns::SqlTurnStore(engine.clone())),
        turn_memory: Arc::new(turn_memory::SqlTurnMemoryStore(engine.clone())),
        episodes: Arc::new(episodes::SqlEpisodeStore(engine.clone())),
        facts: Arc::new(facts::SqlFactStore(engine.clone())),
        consolidation: Arc::new(facts::SqlFactStore(engine.clone())),
        summaries: Arc::new(summaries::SqlSummaryStore(engine.clone())),
        state: Arc::new(state::SqlStateStore(engine.clone())),
        actions: Arc::new(actions::SqlActionStore(engine.clone())),
        jobs: Arc::new(jobs::SqlJobStore::new(engine.clone())),
        curator: Arc::new(curator::SqlCuratorStore(engine.clone())),
        curation: Arc::new(curation::SqlCurationStore(engine.clone())),
        insights: Arc::new(insights::SqlInsightStore(engine.clone())),
        rewinds: Arc::new(rewinds::SqlRewindStore(engine.clone())),
        saves: Arc::new(saves::SqlSaveStore(engine.clone())),
        audit: Arc::new(audit::SqlAuditStore(engine.clone())),
        idempotency: Arc::new(idempotency::SqlIdempotencyStore(engine.clone())),
        usage: Arc::new(usage::SqlUsageStore(engine.clone())),
        revocations: Arc::new(revocations::SqlRevocationStore(engine.clone())),
        webhooks: Arc::new(webhooks::SqlWebhookStore(engine.clone())),
        nodes: Arc::new(nodes::SqlNodeStore(engine.clone())),
        maintenance: Arc::new(SqlMaintenance(engine.clone())),
    }
}

/// Returns the source from which the in-process index loads a partition.
pub(super) fn point_source(engine: &Arc<Engine>) -> Arc<dyn PointSource> {
    Arc::new(outbox::SqlPointSource(engine.clone()))
}

struct SqlMaintenance(Arc<Engine>);

#[async_trait]
impl Maintenance for SqlMaintenance {
    async fn ping(&self) -> StoreResult<()> {
        self.0.fetch_one(RowScope::All, bind!("SELECT 1"), |_| Ok(())).await
    }
    async fn try_write(&self) -> StoreResult<()> {
        const UPSERT_PROBE: &str =
            "INSERT INTO write_probe (id, at) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET at = excluded.at";
        let query = bind!(UPSERT_PROBE; rows::to_micros(self.0.clock.now()));
        self.0.execute(RowScope::All, query).await.map(drop)
    }
    async fn load_backlog(&self) -> StoreResult<Backlog> {
        backlog::measure_backlog(&self.0).await
    }
    fn ledger_metrics(&self) -> &LedgerMetrics {
        &self.0.metrics
    }
    async fn prune_expired(&self, scope: &TenantScope, before: &PruneBefore, limit: u32) -> StoreResult<u64> {
        prune::prune_expired(&self.0, scope.tenant(), before, limit).await
    }
    async fn count_grown_tables(&self) -> StoreResult<usize> {
        count_grown_tables(&self.0).await
    }
    async fn close_connections(&self) {
        self.0.close_connections().await;
    }
}
