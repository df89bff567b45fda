//! What the shared statements run on: Postgres's types, and transactions on pooled connections.
//!
//! Everything runs on threads of the ledger's own, so that an acknowledged write depends on no caller's
//! runtime and no connection on a thread that is busy with something else.

use std::{
    collections::BTreeSet,
    io::ErrorKind,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
pub(super) use sqlx::{
    Postgres as Db,
    postgres::{PgArguments as Arguments, PgRow as Row},
};

pub(super) use super::connection::Connection;
use super::{
    pool::{Lease, Pool},
    sql::{Lock, Reach},
    worlds::{Queue, Worlds},
};
use crate::{
    ids::{NpcId, TenantId, WorldId},
    ports::{
        StoreError, StoreResult,
        clock::Clock,
        ledger::{
            meters::{Counted, LedgerMeters},
            urgency::as_here,
        },
    },
    shares::Shares,
};

/// How often work is run at most, when other writers get in its way.
const ATTEMPTS: u32 = 6;
/// Before the second attempt; doubles from there.
const PAUSE: Duration = Duration::from_millis(8);
/// What the message of such a failure begins with: whoever reports it to a caller needs no more, and
/// whoever can run the work again sees that it may.
const COLLIDED: &str = "two writers were in each other's way: ";
/// The same of a connection that ended while it was used; not of one that was only silent.
const LOST_IT: &str = "the connection to the database was lost: ";

/// What every store of this ledger shares.
pub(crate) struct Engine {
    pub(super) pool: Arc<Pool>,
    pub(super) runtime: Threads,
    pub(super) worlds: Worlds,
    /// A place for each write that runs or waits.
    pub(super) queue: Arc<Shares<Arc<str>>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) embedding_model: Arc<str>,
    pub(super) meters: LedgerMeters,
}

/// The ledger's threads; they end when the last user of the ledger is gone.
pub(super) struct Threads(Option<tokio::runtime::Runtime>);

impl Threads {
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

impl Drop for Threads {
    fn drop(&mut self) {
        // Not waited for: this may be the thread of another runtime, which must not block.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Engine {
    /// Runs `work` in a transaction of its own and returns its result once that is durable. The work
    /// is done even if the caller goes away. An `Err` of the work undoes what it wrote. It is run
    /// again where the database gave it up in favour of another's.
    pub(super) async fn write<'r, T, F>(&self, reach: impl Into<Reach<'r>>, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        self.write_after(None, Span::Transaction, reach.into(), work).await
    }

    /// As [`Self::write`], for work of which one statement writes at most: that is a transaction of its own. Should its
    /// connection be lost it is run once more, and must bear that: it may have been done the first time.
    pub(super) async fn write_once<'r, T, F>(&self, reach: impl Into<Reach<'r>>, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        self.write_after(None, Span::Statement, reach.into(), work).await
    }

    /// As [`Self::write`], for work that begins with the lock of a memory of this world: while many others of this node
    /// write there, it waits without a connection.
    pub(super) async fn write_memory<T, F>(&self, tenant: &TenantId, world: &WorldId, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        let queue = self.worlds.queue(tenant, world);
        self.write_after(Some(queue), Span::Transaction, tenant.into(), work)
            .await
    }

    async fn write_after<T, F>(
        &self,
        queue: Option<Arc<Queue>>,
        span: Span,
        reach: Reach<'_>,
        work: F,
    ) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        if self.pool.is_closed() {
            return Err(super::pool::closed());
        }
        let marker: Arc<str> = marker(reach).into();
        let Ok(_queued) = self.queue.take(&marker) else {
            self.meters.writes_refused.inc();
            return Err(StoreError::Unavailable("too many writes are waiting".to_owned()));
        };
        let counted = Counted::of(&self.meters.writes);
        let pool = self.pool.clone();
        let writing = async move {
            let _counted = counted;
            let _turn = match &queue {
                Some(queue) => pool.wait_for(queue.wait()).await?,
                None => None,
            };
            let begin = begin(&marker);
            let mut pause = PAUSE;
            let mut attempt = 1;
            // Its statement may be the first to find that its connection is lost. BEGIN finds that for the others.
            let mut trusts = matches!(span, Span::Statement);
            loop {
                let written = match span {
                    Span::Transaction => transact(&pool, &marker, &begin, work.clone()).await,
                    Span::Statement => state(&pool, &marker, work.clone()).await,
                };
                match written {
                    Err(StoreError::Unavailable(why)) if trusts && why.starts_with(LOST_IT) => {
                        // All are looked at before they are used again.
                        trusts = false;
                        continue;
                    }
                    Err(StoreError::Unavailable(why)) if why.starts_with(COLLIDED) && attempt < ATTEMPTS => {
                        tracing::debug!(attempt, %why, "a ledger write is run again");
                    }
                    result => return result,
                }
                tokio::time::sleep(pause).await;
                (attempt, pause) = (attempt + 1, pause * 2);
            }
        };
        self.runtime
            .handle()
            .spawn(as_here(writing))
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("the ledger is closed".to_owned())))
    }

    /// A connection, for one or more queries in a row.
    pub(super) async fn read<'r>(&self, reach: impl Into<Reach<'r>>) -> StoreResult<Lease> {
        self.pool.reading(marker(reach.into())).await
    }
}

/// What `colloquy.tenant` is set to; the policies of `migrations/postgres` compare it with each row.
pub(super) fn marker(reach: Reach<'_>) -> &str {
    match reach {
        Reach::Tenant(tenant) => tenant.as_str(),
        // No tenant id: those begin with a letter or a digit.
        Reach::All => "*",
    }
}

/// Two statements in one trip, which need no plan. A tenant id has no character that a literal would have to escape.
fn begin(marker: &str) -> Arc<str> {
    format!("BEGIN; SET LOCAL colloquy.tenant = '{marker}'").into()
}

/// What becomes durable at once.
#[derive(Debug, Clone, Copy)]
enum Span {
    Transaction,
    Statement,
}

async fn state<T, F>(pool: &Arc<Pool>, marker: &str, work: F) -> StoreResult<T>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
{
    let mut lease = pool.stating(marker).await?;
    let _took = pool.meters.transactions.start_timer();
    let result = answer(&mut lease, work).await;
    if lease.is_outstanding() {
        return result.and_then(|_| Err(no_answer()));
    }
    if result.is_ok() {
        pool.meters.grouped.observe(1.0);
    }
    result
}

/// What the work comes to, or that it panicked.
async fn answer<T, F>(connection: &mut Connection, work: F) -> StoreResult<T>
where
    F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
{
    AssertUnwindSafe(async { work(connection).await })
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(StoreError::Rejected("a write panicked".to_owned())))
}

fn no_answer() -> StoreError {
    StoreError::Unavailable("the database did not answer in time".to_owned())
}

async fn transact<T, F>(pool: &Arc<Pool>, marker: &str, begin: &Arc<str>, work: F) -> StoreResult<T>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
{
    let mut lease = pool.writing(marker, begin).await?;
    let took = pool.meters.transactions.start_timer();
    let result = answer(&mut lease, work).await;
    if lease.is_outstanding() {
        // Nothing more is asked of it: the server rolls back once it finds that nobody is there.
        took.observe_duration();
        return result.and_then(|_| Err(no_answer()));
    }
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = run(&mut lease, end.into()).await;
    took.observe_duration();
    match (result, ended) {
        (result, Ok(())) => {
            lease.give_back();
            if result.is_ok() {
                pool.meters.grouped.observe(1.0);
            }
            result
        }
        // Whether it was committed is not known; the connection is not used again.
        (Ok(_), Err(error)) | (Err(error), Err(_)) => Err(error),
    }
}

pub(super) async fn run(connection: &mut Connection, statement: Arc<str>) -> StoreResult<()> {
    // Not a prepared statement: those are one at a time.
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

/// Keeps other writers away from something until the transaction ends; sees what they had done.
pub(super) async fn lock(connection: &mut Connection, tenant: &TenantId, lock: Lock<'_>) -> StoreResult<()> {
    const NAMED: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    const SHARED: &str = "SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 0))";
    // Below, what is asked for by several rows is asked for in their order, which is the same for everybody.
    // The world's memory beside others, what everybody knows too, and each NPC's alone.
    const MEMORY_OF: &str = "SELECT pg_advisory_xact_lock_shared(hashtextextended(v.name, 0))
        FROM unnest($1) v (name)
        UNION ALL SELECT pg_advisory_xact_lock(hashtextextended(v.name, 0)) FROM unnest($2) v (name)";
    const MEMORY_IN: &str = "SELECT pg_advisory_xact_lock_shared(hashtextextended($3, 0))
        UNION ALL SELECT pg_advisory_xact_lock(hashtextextended($3 || ' ' || n.name, 0)) FROM (
            SELECT DISTINCT v.name COLLATE \"C\" AS name FROM dialogues d CROSS JOIN LATERAL (
                SELECT jsonb_array_elements_text(d.npcs::jsonb || d.witnesses::jsonb)
                UNION ALL SELECT '' WHERE COALESCE(d.options::jsonb -> 'factions', '[]') <> '[]') v (name)
            WHERE d.tenant = $1 AND d.id = $2 ORDER BY name) n";
    const DIALOGUES: &str = "SELECT 1 FROM dialogues WHERE tenant = $1 AND world = $2 ORDER BY id FOR UPDATE";
    const TURN: &str = "SELECT 1 FROM turns WHERE tenant = $1 AND id = $2 FOR UPDATE";
    let name = |what: &str, of: &str| format!("colloquy {what} {tenant} {of}");
    let memory = |world: &WorldId, npc: &str| name("memory", &format!("{world} {npc}"));
    let named = |what: &str, of: &str| sqlx::query(NAMED).bind(name(what, of));
    if let Lock::Dialogues(world) = lock {
        let all = named("dialogues", world.as_str());
        all.execute(&mut *connection).await.map_err(store_error)?;
    }
    let query = match lock {
        Lock::Authored(world) => named("authored", world.as_str()),
        Lock::Memory(world) => named("memory", world.as_str()),
        Lock::MemoryOf(world, npcs) => {
            let npcs: BTreeSet<&str> = npcs.iter().map(NpcId::as_str).collect();
            sqlx::query(MEMORY_OF)
                .bind(vec![name("memory", world.as_str()), memory(world, "")])
                .bind(npcs.into_iter().map(|npc| memory(world, npc)).collect::<Vec<String>>())
        }
        Lock::MemoryIn(world, dialogue) => sqlx::query(MEMORY_IN)
            .bind(tenant.as_str())
            .bind(dialogue.to_string())
            .bind(name("memory", world.as_str())),
        Lock::State(world) => named("state", world.as_str()),
        Lock::Summaries(dialogue) => named("summaries", &dialogue.to_string()),
        Lock::NewDialogue(world) => sqlx::query(SHARED).bind(name("dialogues", world.as_str())),
        Lock::Dialogues(world) => sqlx::query(DIALOGUES).bind(tenant.as_str()).bind(world.as_str()),
        Lock::Turn(turn) => sqlx::query(TURN).bind(tenant.as_str()).bind(turn.to_string()),
    };
    query.execute(connection).await.map(drop).map_err(store_error)
}

/// How often a connection was lost. Which one a statement ran on is not known where its error is: all
/// are looked at before they are used again.
static LOST: AtomicU64 = AtomicU64::new(0);

pub(super) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// A connection was lost, or found to be.
pub(super) fn note_loss() {
    LOST.fetch_add(1, Ordering::Relaxed);
}

/// What a failed statement means to a caller.
pub(super) fn store_error(error: sqlx::Error) -> StoreError {
    meaning(error, LOST_IT)
}

/// As [`store_error`], of an attempt to connect.
pub(super) fn connect_error(error: sqlx::Error) -> StoreError {
    meaning(error, "")
}

/// `lost`: what a connection's end is called.
fn meaning(error: sqlx::Error, lost: &str) -> StoreError {
    match error {
        sqlx::Error::Database(database) => {
            // SQLSTATE; see "PostgreSQL Error Codes".
            let code = database.code().unwrap_or_default().into_owned();
            match code.as_str() {
                // Serialization failure, deadlock.
                "40001" | "40P01" => StoreError::Unavailable(format!("{COLLIDED}{database}")),
                "25006" => StoreError::NotWritable("the database is read-only, or in recovery as a standby".to_owned()),
                "53100" => StoreError::NotWritable("the disk of the database is full".to_owned()),
                // Cancelled (a timeout), lock not available.
                "57014" | "55P03" => StoreError::Unavailable(database.to_string()),
                // A transaction that idled or took too long, and the session with it; and the classes connection,
                // authorization, resources, administrator, system.
                code if ["25P03", "25P04"].contains(&code)
                    || ["08", "28", "53", "57", "58"].contains(&code.get(..2).unwrap_or_default()) =>
                {
                    note_loss();
                    StoreError::Unavailable(format!("{lost}{database}"))
                }
                // Data or index corrupted.
                "XX001" | "XX002" => StoreError::Corrupt(database.to_string()),
                _ => StoreError::Rejected(database.to_string()),
            }
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
            StoreError::Corrupt(error.to_string())
        }
        sqlx::Error::Encode(_) => StoreError::Rejected(error.to_string()),
        sqlx::Error::Io(silence) if silence.kind() == ErrorKind::TimedOut => {
            note_loss();
            StoreError::Unavailable(silence.to_string())
        }
        other => {
            note_loss();
            StoreError::Unavailable(format!("{lost}{other}"))
        }
    }
}
