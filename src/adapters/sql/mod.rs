//! The ledger's statements and what they mean, written once for both engines.
//!
//! One file per aggregate; each keeps its statements beside their use. Decides nothing about memory:
//! folds come from `memory::reconcile`.
//!
//! This folder is compiled twice: `adapters/sqlite` and `adapters/postgres` each take it in as a child
//! module by its path. What it needs of an engine it takes from its parent, by the same names: the
//! types of `engine` (`Connection`, `Row`, `Db`, `Arguments`, `Engine`), its `store_error`, and the
//! macros of `dialect`, which stand in for the few words that the two languages do not share. So the
//! compiler sees plain functions over one concrete driver: a function that is generic over drivers
//! needs about six bounds for every statement, and sqlx's `Any` knows neither of the column types.
//! Nothing in here may name an engine by its path.
//!
//! # Statements that both engines understand
//! - Lists are bound as JSON: `in_json_list!` to look for one of them, `json_texts_table!` and `json_arrays_table!` as tables. A list
//!   that an `ON CONFLICT DO UPDATE` writes names no row twice and is in a fixed order.
//! - The rows that a query with a LIMIT finds are looked for by `in_subquery!`.
//! - What rows of a table are looked for by is `row_key!` a row of `json_arrays_table!`, never `value ->> n`: on Postgres no
//!   index is used for that (see its dialect).
//! - `value ->> n` is a text on Postgres; what is none is cast: `CAST(value ->> 4 AS BIGINT)`. So is a sum.
//! - Numbers and moments are bound and read as `i64`. Flags are bound and read as `bool` and compared
//!   with `TRUE` and `FALSE`, in partial indexes too.
//! - `CROSS JOIN` with its conditions in `WHERE`, where SQLite is to keep the order: it allows `ON`,
//!   Postgres does not.
//! - `IS DISTINCT FROM` instead of `IS NOT`, `lower(..)` instead of a collation, an alias for every
//!   subquery in `FROM`.
//! - Several statements in one trip are a `batch!`; what may only come after another is a trip of its own.
//! - Whoever reads and then writes keeps others away in between, by [`LedgerLock`] or `for_update!`: on SQLite
//!   there is one writer, on Postgres there are many, and each statement sees what was committed before it. Work that
//!   begins with the lock of a memory, and knows the world before, is written by `write_memory`.
//!   A statement that changes rows by their own columns alone needs nothing of the kind.

mod audit;
mod authored;
mod backlog;
mod dialogues;
mod facts;
mod idempotency;
mod job_calls;
mod jobs;
mod leases;
mod meetings;
mod nodes;
mod outbox;
mod ownership;
mod prune;
mod revocations;
mod rewinds;
mod rows;
mod saves;
mod scenarios;
mod state;
mod summaries;
mod tenants;
mod turns;
mod usage;

use std::sync::Arc;

use super::engine::{Arguments, Connection, Db, Engine, Row, acquire_lock, store_error};
use crate::{
    ids::{DialogueId, NpcId, TenantId, TurnId, WorldId},
    ports::{
        StoreResult,
        ledger::{Ledger, Maintenance, PruneBefore, metrics::Backlog},
        vectors::PointSource,
    },
    tenancy::TenantScope,
};

/// Whose rows a piece of work may touch. Every statement names its tenant; Postgres enforces it once
/// more by row-level security.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowScope<'a> {
    Tenant(&'a TenantId),
    /// The server's own work over all tenants.
    All,
}

impl<'a> From<&'a TenantId> for RowScope<'a> {
    fn from(tenant: &'a TenantId) -> Self {
        Self::Tenant(tenant)
    }
}
impl<'a> From<&'a TenantScope> for RowScope<'a> {
    fn from(scope: &'a TenantScope) -> Self {
        Self::Tenant(scope.tenant())
    }
}

/// What one writer at a time may read and then write. Whoever needs several takes them in this order.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "SQLite has one writer and asks of none of them what it is")]
pub(super) enum LedgerLock<'a> {
    /// What people write about a world: its row and those of its NPCs.
    Authored(&'a WorldId),
    /// All that is remembered in a world, and which turns of it stand.
    Memory(&'a WorldId),
    /// What these NPCs remember, alone or with others. What others remember may be written meanwhile.
    MemoryOf(&'a WorldId, &'a [NpcId]),
    /// What is remembered of a dialogue by those who hear it, as [`Self::MemoryOf`]; and, where factions do, by everybody.
    MemoryIn(&'a WorldId, DialogueId),
    /// The dialogues of a world, against turns that would be committed meanwhile, and new ones.
    Dialogues(&'a WorldId),
    /// A new dialogue of a world. Any number may be made at the same time.
    NewDialogue(&'a WorldId),
    /// A turn, against whoever would join there.
    Turn(TurnId),
    /// The summaries of a dialogue.
    Summaries(DialogueId),
    /// The order of a world's changes of state: who has read up to one has read every one before it.
    State(&'a WorldId),
}

/// Every store of the ledger on one engine.
pub(super) fn build_ledger(engine: &Arc<Engine>, maintenance: Arc<dyn Maintenance>) -> Ledger {
    Ledger {
        tenants: Arc::new(tenants::SqlTenantStore(engine.clone())),
        authored: Arc::new(authored::SqlAuthoredStore(engine.clone())),
        scenarios: Arc::new(scenarios::SqlScenarioStore(engine.clone())),
        dialogues: Arc::new(dialogues::SqlDialogueStore(engine.clone())),
        facts: Arc::new(facts::SqlFactStore(engine.clone())),
        summaries: Arc::new(summaries::SqlSummaryStore(engine.clone())),
        state: Arc::new(state::SqlStateStore(engine.clone())),
        jobs: Arc::new(jobs::SqlJobStore(engine.clone())),
        rewinds: Arc::new(rewinds::SqlRewindStore(engine.clone())),
        saves: Arc::new(saves::SqlSaveStore(engine.clone())),
        audit: Arc::new(audit::SqlAuditStore(engine.clone())),
        idempotency: Arc::new(idempotency::SqlIdempotencyStore(engine.clone())),
        usage: Arc::new(usage::SqlUsageStore(engine.clone())),
        revocations: Arc::new(revocations::SqlRevocationStore(engine.clone())),
        nodes: Arc::new(nodes::SqlNodeStore(engine.clone())),
        maintenance,
    }
}

/// Where the in-process index loads a partition from.
pub(super) fn point_source(engine: &Arc<Engine>) -> Arc<dyn PointSource> {
    Arc::new(outbox::SqlPointSource(engine.clone()))
}

/// Whether there is this tenant.
pub(super) async fn has_tenant(connection: &mut Connection, tenant: &TenantId) -> StoreResult<bool> {
    tenants::has_tenant(connection, tenant).await
}

/// Deletes what has been kept long enough; see `Maintenance::prune`.
pub(super) async fn prune_tenant(
    engine: &Engine,
    tenant: &TenantId,
    before: &PruneBefore,
    limit: u32,
) -> StoreResult<u64> {
    prune::prune_expired(engine, tenant, before, limit).await
}

/// Writes one row; see `Maintenance::try_write`.
pub(super) async fn try_write(engine: &Engine) -> StoreResult<()> {
    const UPSERT_PROBE: &str =
        "INSERT INTO write_probe (id, at) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET at = excluded.at";
    let at = rows::to_micros(engine.clock.now());
    engine
        .write_statement(RowScope::All, move |connection| {
            Box::pin(async move {
                let written = sqlx::query(UPSERT_PROBE).bind(at).execute(connection).await;
                written.map(drop).map_err(store_error)
            })
        })
        .await
}

/// What waits in the queues; see `Maintenance::backlog`.
pub(super) async fn load_backlog(engine: &Engine) -> StoreResult<Backlog> {
    backlog::measure_backlog(engine).await
}
