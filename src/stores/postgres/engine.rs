//! The engine for the shared statements: Postgres's types, and transactions on pooled connections.
//!
//! All work runs on the ledger's own threads. Acknowledged writes therefore depend on no caller's runtime, and
//! connections depend on no busy thread.

use std::{collections::BTreeSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
pub(super) use sqlx::{
    Postgres as Db,
    postgres::{PgArguments as Arguments, PgRow as Row},
};

pub(super) use super::connection::Connection;
use super::{
    errors::store_error,
    pool::{LeasedConnection, Pool},
    raw_statement::execute_raw,
    sql::scope::{LedgerLock, RowScope},
    statistics::Statistics,
    world_queues::{WorldWriteQueue, WorldWriteQueues},
};
use colloquy_core::{
    ids::{NpcId, TenantId, WorldId},
    shares::Shares,
};
use colloquy_ports::{
    StoreError, StoreResult,
    clock::Clock,
    ledger::{
        metrics::{GaugeGuard, LedgerMetrics},
        priority::with_current_priority,
    },
};

/// The most attempts for work that collides with other writers.
const MAX_WRITE_ATTEMPTS: u32 = 6;
/// The delay before the second attempt; doubles with each further attempt.
const RETRY_WRITE_DELAY: Duration = Duration::from_millis(8);

/// The shared parts of all stores of a ledger.
pub(crate) struct Engine {
    pub(super) pool: Arc<Pool>,
    pub(super) runtime: LedgerRuntime,
    pub(super) worlds: WorldWriteQueues,
    /// A share for each write that runs or waits.
    pub(super) queue: Arc<Shares<Arc<str>>>,
    pub(super) statistics: Statistics,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) embedding_model: Arc<str>,
    pub(super) metrics: LedgerMetrics,
}

/// The ledger's threads; they end when the last user of the ledger is gone.
pub(super) struct LedgerRuntime(Option<tokio::runtime::Runtime>);

impl LedgerRuntime {
    pub(super) fn start() -> StoreResult<Self> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("ledger")
            .enable_all()
            .build()
            .map(|runtime| Self(Some(runtime)))
            .map_err(|error| StoreError::Unavailable(format!("cannot start the ledger's threads: {error}")))
    }
    pub(super) fn handle(&self) -> tokio::runtime::Handle {
        self.0.as_ref().expect("taken only when dropped").handle().clone()
    }
}

impl Drop for LedgerRuntime {
    fn drop(&mut self) {
        // Does not wait: this may be the thread of another runtime, which must not block.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Engine {
    /// Runs `work` in a transaction of its own and returns the result once it is durable. The work runs even if the
    /// caller goes away. An `Err` of the work rolls back its writes. The work runs again if the database cancelled it
    /// in favour of another transaction.
    pub(super) async fn write_transaction<'r, T, F>(&self, reach: impl Into<RowScope<'r>>, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        self.write_in_queue(None, WriteUnit::Transaction, reach.into(), work)
            .await
    }

    /// Runs work of which at most one statement writes, without an explicit transaction. If the connection is lost, the
    /// work runs once more. The work must tolerate that repetition, because the first run may have succeeded.
    pub(super) async fn write_statement<'r, T, F>(&self, reach: impl Into<RowScope<'r>>, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        self.write_in_queue(None, WriteUnit::Statement, reach.into(), work)
            .await
    }

    /// Runs work that begins with a memory lock or the state lock of this world, as [`Self::write_transaction`] does. While many writes
    /// of this node to the world are running, the work waits without a connection.
    pub(super) async fn write_memory<T, F>(&self, tenant: &TenantId, world: &WorldId, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        let queue = self.worlds.queue_of_world(tenant, world);
        self.write_in_queue(Some(queue), WriteUnit::Transaction, tenant.into(), work)
            .await
    }

    async fn write_in_queue<T, F>(
        &self,
        queue: Option<Arc<WorldWriteQueue>>,
        span: WriteUnit,
        reach: RowScope<'_>,
        work: F,
    ) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        if self.pool.is_closed() {
            return Err(StoreError::ledger_closed());
        }
        let marker: Arc<str> = tenant_marker(reach).into();
        let Ok(_queued) = self.queue.acquire_share(&marker) else {
            self.metrics.writes_refused.inc();
            return Err(StoreError::Unavailable("too many writes are waiting".to_owned()));
        };
        let counted = GaugeGuard::increment_gauge(&self.metrics.writes);
        let pool = self.pool.clone();
        let writing = async move {
            let _counted = counted;
            let _turn = match &queue {
                Some(queue) => pool.wait_for_writer(queue.acquire_slot()).await?,
                None => None,
            };
            let begin_sql = begin_statement(&marker);
            let mut pause = RETRY_WRITE_DELAY;
            let mut attempt = 1;
            // A single statement may be the first to find its connection lost. For transactions, BEGIN finds the loss.
            let mut trusts = matches!(span, WriteUnit::Statement);
            loop {
                let outcome = match span {
                    WriteUnit::Transaction => run_transaction(&pool, &marker, &begin_sql, work.clone()).await,
                    WriteUnit::Statement => run_statement(&pool, &marker, work.clone()).await,
                };
                match outcome {
                    Err(StoreError::Disconnected(_)) if trusts => {
                        // All connections are checked before their next use.
                        trusts = false;
                        continue;
                    }
                    Err(StoreError::Collided(reason)) if attempt < MAX_WRITE_ATTEMPTS => {
                        tracing::debug!(attempt, why = %reason, "a ledger write is run again");
                    }
                    result => return result,
                }
                tokio::time::sleep(pause).await;
                (attempt, pause) = (attempt + 1, pause * 2);
            }
        };
        self.runtime
            .handle()
            .spawn(with_current_priority(writing))
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("the ledger is closed".to_owned())))
    }

    pub(super) async fn close_connections(&self) {
        self.pool.close().await;
    }

    /// Returns a connection, for one or more queries in a row.
    pub(super) async fn acquire_reader<'r>(&self, reach: impl Into<RowScope<'r>>) -> StoreResult<LeasedConnection> {
        self.pool.acquire_reader(tenant_marker(reach.into())).await
    }
}

/// Analyses tables that have grown; see `Maintenance::count_grown_tables`.
pub(super) async fn count_grown_tables(engine: &Engine) -> StoreResult<usize> {
    engine.statistics.analyse_grown_tables(engine).await
}

/// Returns the value of `colloquy.tenant`; the policies of `migrations/postgres` compare the value with each row.
pub(super) fn tenant_marker(reach: RowScope<'_>) -> &str {
    match reach {
        RowScope::Tenant(tenant) => tenant.as_str(),
        // Not a tenant id: tenant ids begin with a letter or a digit.
        RowScope::All => "*",
    }
}

/// Returns two statements in one trip, which need no plan. A tenant id has no character that a literal must escape.
fn begin_statement(marker: &str) -> Arc<str> {
    format!("BEGIN; SET LOCAL colloquy.tenant = '{marker}'").into()
}

/// The unit that becomes durable at once.
#[derive(Debug, Clone, Copy)]
enum WriteUnit {
    Transaction,
    Statement,
}

async fn run_statement<T, F>(pool: &Arc<Pool>, marker: &str, work: F) -> StoreResult<T>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
{
    let mut lease = pool.acquire_for_statement(marker).await?;
    let _took = pool.metrics.transactions.start_timer();
    let result = run_catching_panics(&mut lease, work).await;
    if lease.is_outstanding() {
        return result.and_then(|_| Err(no_answer_error()));
    }
    if result.is_ok() {
        pool.metrics.grouped.observe(1.0);
    }
    result
}

/// Returns the result of the work, or an error if the work panicked.
async fn run_catching_panics<T, F>(connection: &mut Connection, work: F) -> StoreResult<T>
where
    F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
{
    AssertUnwindSafe(async { work(connection).await })
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(StoreError::Rejected("a write panicked".to_owned())))
}

fn no_answer_error() -> StoreError {
    StoreError::Unavailable("the database did not answer in time".to_owned())
}

async fn run_transaction<T, F>(pool: &Arc<Pool>, marker: &str, begin_sql: &Arc<str>, work: F) -> StoreResult<T>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
{
    let mut lease = pool.acquire_for_transaction(marker, begin_sql).await?;
    let timer = pool.metrics.transactions.start_timer();
    let result = run_catching_panics(&mut lease, work).await;
    if lease.is_outstanding() {
        // No further statement is sent: the server rolls back once it notices that the client is gone.
        timer.observe_duration();
        return result.and_then(|_| Err(no_answer_error()));
    }
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let end_result = execute_raw(&mut lease, end.into()).await;
    timer.observe_duration();
    match (result, end_result) {
        (result, Ok(())) => {
            lease.return_to_pool();
            if result.is_ok() {
                pool.metrics.grouped.observe(1.0);
            }
            result
        }
        // The outcome of the commit is unknown, so the connection is not used again.
        (Ok(_), Err(error)) | (Err(error), Err(_)) => Err(error),
    }
}

/// Locks data against other writers until the transaction ends; afterwards the transaction sees their commits.
pub(super) async fn acquire_lock(
    connection: &mut Connection,
    tenant: &TenantId,
    lock: LedgerLock<'_>,
) -> StoreResult<()> {
    const LOCK_BY_NAME: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    const LOCK_SHARED_BY_NAME: &str = "SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 0))";
    // Statements below that lock several rows lock them in the same order in all transactions. Locks the world's memory
    // and common knowledge shared, and each NPC's memory exclusively.
    const LOCK_MEMORY_OF_NPCS: &str = "SELECT pg_advisory_xact_lock_shared(hashtextextended(v.name, 0))
        FROM unnest($1) v (name)
        UNION ALL SELECT pg_advisory_xact_lock(hashtextextended(v.name, 0)) FROM unnest($2) v (name)";
    const LOCK_MEMORY_OF_HEARERS: &str = "SELECT pg_advisory_xact_lock_shared(hashtextextended($3, 0))
        UNION ALL SELECT pg_advisory_xact_lock(hashtextextended($3 || ' ' || n.name, 0)) FROM (
            SELECT DISTINCT v.name COLLATE \"C\" AS name FROM dialogues d CROSS JOIN LATERAL (
                SELECT jsonb_array_elements_text(d.npcs::jsonb || d.witnesses::jsonb)
                UNION ALL SELECT '' WHERE COALESCE(d.options::jsonb -> 'factions', '[]') <> '[]') v (name)
            WHERE d.tenant = $1 AND d.id = $2 ORDER BY name) n";
    const LOCK_DIALOGUES: &str = "SELECT 1 FROM dialogues WHERE tenant = $1 AND world = $2 ORDER BY id FOR UPDATE";
    const LOCK_TURN: &str = "SELECT 1 FROM turns WHERE tenant = $1 AND id = $2 FOR UPDATE";
    let lock_name = |kind: &str, object: &str| format!("colloquy {kind} {tenant} {object}");
    let memory = |world: &WorldId, npc: &str| lock_name("memory", &format!("{world} {npc}"));
    let named_lock = |kind: &str, object: &str| sqlx::query(LOCK_BY_NAME).bind(lock_name(kind, object));
    if let LedgerLock::Dialogues(world) = lock {
        let statement = named_lock("dialogues", world.as_str());
        statement.execute(&mut *connection).await.map_err(store_error)?;
    }
    let query = match lock {
        LedgerLock::TenantSettings => named_lock("tenant_settings", ""),
        LedgerLock::Authored(world) => named_lock("authored", world.as_str()),
        LedgerLock::Memory(world) => named_lock("memory", world.as_str()),
        LedgerLock::MemoryOf(world, npcs) => {
            let npcs: BTreeSet<&str> = npcs.iter().map(NpcId::as_str).collect();
            sqlx::query(LOCK_MEMORY_OF_NPCS)
                .bind(vec![lock_name("memory", world.as_str()), memory(world, "")])
                .bind(npcs.into_iter().map(|npc| memory(world, npc)).collect::<Vec<String>>())
        }
        LedgerLock::MemoryIn(world, dialogue) => sqlx::query(LOCK_MEMORY_OF_HEARERS)
            .bind(tenant.as_str())
            .bind(dialogue.to_string())
            .bind(lock_name("memory", world.as_str())),
        LedgerLock::State(world) => named_lock("state", world.as_str()),
        LedgerLock::Summaries(dialogue) => named_lock("summaries", &dialogue.to_string()),
        LedgerLock::Curation(dialogue) => named_lock("curation", &dialogue.to_string()),
        LedgerLock::NewDialogue(world) => sqlx::query(LOCK_SHARED_BY_NAME).bind(lock_name("dialogues", world.as_str())),
        LedgerLock::Dialogues(world) => sqlx::query(LOCK_DIALOGUES).bind(tenant.as_str()).bind(world.as_str()),
        LedgerLock::Turn(turn) => sqlx::query(LOCK_TURN).bind(tenant.as_str()).bind(turn.to_string()),
    };
    query.execute(connection).await.map(drop).map_err(store_error)
}
