//! The single writer, with group commit.
//!
//! Owns the writing connection on a separate thread. Acknowledged writes therefore do not depend on a caller's runtime.
//! Waiting writes run in one transaction and are acknowledged after the commit. Each write after the first has a
//! savepoint of its own. Queued writes run even if their callers have gone away. The thread also runs the checkpoints,
//! which follow the writes.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use sqlx::{Connection as _, SqliteConnection};
use tokio::sync::{oneshot, watch};

use super::{
    checkpoints::{self, CheckpointSignals},
    errors::store_error,
    fairness_key::FairnessKey,
    file::LockedFile,
};
use colloquy_core::shares::{FairQueue, NotQueued};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::metrics::{GaugeGuard, LedgerMetrics},
};
use prometheus::HistogramTimer;

/// The most writes in one transaction: limits how long the first write waits for the last.
const MAX_GROUP: usize = 128;

// Each boundary takes one hop to SQLite's thread, not two: sqlx runs all statements of a text. The first write needs no
// savepoint, because a rollback cannot take earlier writes along.
const BEGIN: &str = "BEGIN IMMEDIATE";
const OPEN_SAVEPOINT: &str = "SAVEPOINT work";
const NEXT_SAVEPOINT: &str = "RELEASE work; SAVEPOINT work";
const UNDO_SAVEPOINT: &str = "ROLLBACK TO work";
/// Also releases an open savepoint.
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// The queue to the writer thread.
pub(super) struct Writer {
    queue: Arc<WriteQueue>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    metrics: LedgerMetrics,
}

/// A queue in which tenants take turns: a tenant with many writes does not delay other tenants.
type WriteQueue = FairQueue<FairnessKey, Box<dyn QueuedWrite>>;

/// A queued write with its caller's type erased.
trait QueuedWrite: Send {
    /// Runs the write inside the open savepoint. `false`: undo the savepoint.
    fn run<'c>(&'c mut self, connection: &'c mut SqliteConnection) -> BoxFuture<'c, bool>;
    /// Sends the result to the caller. `loss` means that the transaction failed, even if the write itself succeeded.
    fn acknowledge_caller(self: Box<Self>, loss: Option<&StoreError>);
}

struct TypedWrite<T, F> {
    work: Option<F>,
    result: StoreResult<T>,
    caller: oneshot::Sender<StoreResult<T>>,
    /// Runs until the write starts.
    waited: Option<HistogramTimer>,
    counted: GaugeGuard,
}

impl<T, F> TypedWrite<T, F>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
{
    fn new_boxed(work: F, caller: oneshot::Sender<StoreResult<T>>, meters: &LedgerMetrics) -> Box<dyn QueuedWrite> {
        Box::new(Self {
            work: Some(work),
            result: Err(StoreError::Unavailable("the write was not run".to_owned())),
            caller,
            waited: Some(meters.write_waits.start_timer()),
            counted: GaugeGuard::increment_gauge(&meters.writes),
        })
    }
}

impl<T, F> QueuedWrite for TypedWrite<T, F>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
{
    fn run<'c>(&'c mut self, connection: &'c mut SqliteConnection) -> BoxFuture<'c, bool> {
        // The wait is over.
        drop(self.waited.take());
        Box::pin(async move {
            if let Some(work) = self.work.take() {
                self.result = AssertUnwindSafe(async { work(connection).await })
                    .catch_unwind()
                    .await
                    .unwrap_or_else(|_| Err(StoreError::Rejected("a write panicked".to_owned())));
            }
            self.result.is_ok()
        })
    }
    fn acknowledge_caller(self: Box<Self>, loss: Option<&StoreError>) {
        let result = match loss {
            Some(error) => Err(error.clone()),
            None => self.result,
        };
        drop(self.counted);
        // A caller that has gone away does not change the written data.
        let _ = self.caller.send(result);
    }
}

/// The connections of the thread, and the rules for checkpoints.
pub(super) struct WriterConnections {
    pub(super) writing: SqliteConnection,
    pub(super) copying: SqliteConnection,
    /// The database's lock, released after the last connection closes. `None`: no other process uses the file.
    pub(super) file: Option<LockedFile>,
    pub(super) checkpoints: checkpoints::CheckpointRules,
}

impl Writer {
    /// Starts the thread; at most `queue` writes may wait.
    pub(super) fn start(connections: WriterConnections, queue: usize, meters: LedgerMetrics) -> StoreResult<Self> {
        let queue = Arc::new(WriteQueue::new(queue));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| StoreError::Unavailable(format!("cannot start the ledger's writer: {error}")))?;
        let thread_meters = meters.clone();
        let thread_queue = queue.clone();
        let thread = std::thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn(move || runtime.block_on(write_and_checkpoint(connections, &thread_queue, &thread_meters)))
            .map_err(|error| StoreError::Unavailable(format!("cannot start the ledger's writer: {error}")))?;
        Ok(Self {
            queue,
            thread: Mutex::new(Some(thread)),
            metrics: meters,
        })
    }

    pub(super) async fn write_queued<T, F>(&self, holder: &FairnessKey, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let work = TypedWrite::new_boxed(work, caller, &self.metrics);
        self.queue.push(holder, work).map_err(|error| match error {
            NotQueued::Full => {
                self.metrics.writes_refused.inc();
                StoreError::Unavailable("too many writes are waiting".to_owned())
            }
            NotQueued::Closed => StoreError::ledger_closed(),
        })?;
        answer.await.unwrap_or_else(|_| Err(StoreError::ledger_closed()))
    }

    /// Finishes the queued writes and closes the connection. Later writes fail.
    pub(super) async fn close(&self) {
        self.queue.close();
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        let joined = tokio::task::spawn_blocking(move || thread.join().is_ok());
        if !joined.await.unwrap_or(false) {
            tracing::error!("the ledger's writer thread panicked");
        }
    }
}

async fn write_and_checkpoint(connections: WriterConnections, queue: &WriteQueue, meters: &LedgerMetrics) {
    let signals = CheckpointSignals::default();
    let (closing, closed) = watch::channel(false);
    let copying = checkpoints::run_checkpoints(connections.copying, connections.checkpoints, &signals, closed);
    let writing = async {
        let connection = write_until_closed(connections.writing, queue, &signals, meters).await;
        closing.send_replace(true);
        connection
    };
    let (connection, ()) = tokio::join!(writing, copying);
    // The last connection to close copies the remaining pages and deletes the log.
    if let Err(error) = connection.close().await {
        tracing::warn!(%error, "closing the ledger's writer failed");
    }
    drop(connections.file);
}

/// Writes groups until the queue closes, then returns the connection.
async fn write_until_closed(
    mut connection: SqliteConnection,
    queue: &WriteQueue,
    signals: &CheckpointSignals,
    meters: &LedgerMetrics,
) -> SqliteConnection {
    let mut group: Vec<Box<dyn QueuedWrite>> = Vec::with_capacity(MAX_GROUP);
    while let Some(first) = queue.pop().await {
        group.push(first);
        while group.len() < MAX_GROUP
            && let Some(work) = queue.try_pop()
        {
            group.push(work);
        }
        while !group.is_empty() {
            let _took = meters.transactions.start_timer();
            group = commit_group(&mut connection, group, meters).await;
            signals.notify_committed();
        }
        if signals.take_finish_request() {
            match checkpoints::copy_wal(&mut connection).await {
                Ok(log) if log.pages < 0 => signals.request_finish(),
                Ok(log) => tracing::debug!(?log, "the ledger's log is begun anew if nothing is left of it"),
                Err(error) => tracing::warn!(%error, "the ledger's log could not be begun anew"),
            }
        }
    }
    connection
}

/// Runs a group in one transaction and acknowledges it. Returns the writes that did not start because the transaction
/// was rolled back; they get another transaction.
async fn commit_group(
    connection: &mut SqliteConnection,
    group: Vec<Box<dyn QueuedWrite>>,
    meters: &LedgerMetrics,
) -> Vec<Box<dyn QueuedWrite>> {
    debug_assert!(!group.is_empty(), "a transaction has a write");
    debug_assert!(group.len() <= MAX_GROUP, "a transaction has a bounded number of writes");
    let group_len = group.len();
    let mut remaining = group.into_iter();
    let mut finished: Vec<Box<dyn QueuedWrite>> = Vec::with_capacity(remaining.len());
    let mut loss = None;
    let mut boundary = BEGIN;
    while let Some(mut work) = remaining.next() {
        if let Err(error) = execute_statement(connection, boundary).await {
            // The transaction and all writes in it are lost.
            finished.push(work);
            if boundary == BEGIN {
                finished.extend(remaining.by_ref());
            }
            loss = Some(error);
            break;
        }
        let keep = work.run(connection).await;
        if boundary == BEGIN && !keep {
            // Fails if SQLite rolled back by itself, which is fine.
            let _ = execute_statement(connection, ROLLBACK).await;
            work.acknowledge_caller(None);
            return remaining.collect();
        }
        finished.push(work);
        if !keep && let Err(error) = execute_statement(connection, UNDO_SAVEPOINT).await {
            loss = Some(error);
            break;
        }
        boundary = if boundary == BEGIN {
            OPEN_SAVEPOINT
        } else {
            NEXT_SAVEPOINT
        };
    }
    if loss.is_none() {
        loss = execute_statement(connection, COMMIT).await.err();
    }
    if let Some(error) = &loss {
        tracing::error!(%error, writes = finished.len(), "a group of ledger writes was lost");
        // Fails if SQLite rolled back by itself, which is fine.
        let _ = execute_statement(connection, ROLLBACK).await;
    } else {
        #[expect(clippy::cast_precision_loss, reason = "at most MAX_GROUP")]
        meters.grouped.observe(finished.len() as f64);
    }
    debug_assert!(
        !finished.is_empty() && finished.len() + remaining.len() == group_len,
        "each write ends, or gets another transaction"
    );
    for work in finished {
        work.acknowledge_caller(loss.as_ref());
    }
    remaining.collect()
}

async fn execute_statement(connection: &mut SqliteConnection, statement: &'static str) -> StoreResult<()> {
    sqlx::query(statement)
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{path::Path, time::Duration};

    use sqlx::{
        ConnectOptions as _,
        sqlite::{SqliteConnectOptions, SqliteJournalMode},
    };
    use tokio::time::Instant;

    use super::*;

    async fn connect(folder: &Path) -> SqliteConnection {
        SqliteConnectOptions::new()
            .filename(folder.join("t.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // Only this program's checkpoints.
            .pragma("wal_autocheckpoint", "0")
            .connect()
            .await
            .unwrap()
    }

    async fn table() -> (tempfile::TempDir, SqliteConnection) {
        let folder = tempfile::tempdir().unwrap();
        let mut connection = connect(folder.path()).await;
        sqlx::query("CREATE TABLE t (n INTEGER NOT NULL UNIQUE)")
            .execute(&mut connection)
            .await
            .unwrap();
        (folder, connection)
    }

    async fn started(queue: usize, checkpoints: checkpoints::CheckpointRules) -> (tempfile::TempDir, Writer) {
        let (folder, writing) = table().await;
        let connections = WriterConnections {
            writing,
            copying: connect(folder.path()).await,
            file: None,
            checkpoints,
        };
        let writer = Writer::start(connections, queue, LedgerMetrics::default()).unwrap();
        (folder, writer)
    }

    fn server() -> FairnessKey {
        FairnessKey::from_scope(super::super::sql::scope::RowScope::All)
    }

    fn insert(n: i64) -> Box<dyn QueuedWrite> {
        let caller = oneshot::channel::<StoreResult<()>>().0;
        TypedWrite::new_boxed(
            move |connection| {
                Box::pin(async move {
                    sqlx::query("INSERT INTO t (n) VALUES ($1)")
                        .bind(n)
                        .execute(connection)
                        .await
                        .map(drop)
                        .map_err(store_error)
                })
            },
            caller,
            &LedgerMetrics::default(),
        )
    }

    async fn numbers(connection: &mut SqliteConnection) -> Vec<i64> {
        sqlx::query_scalar("SELECT n FROM t ORDER BY n")
            .fetch_all(connection)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn failed_write_does_not_undo_its_batch_neighbours() {
        let (_folder, mut connection) = table().await;
        let mut group: Vec<Box<dyn QueuedWrite>> = vec![insert(1), insert(1), insert(2), insert(2), insert(3)];
        let meters = LedgerMetrics::default();
        assert!(commit_group(&mut connection, group, &meters).await.is_empty());
        assert_eq!(numbers(&mut connection).await, [1, 2, 3]);
        // A failing first write rolls back its transaction; the other writes run in the next.
        group = vec![insert(1), insert(4), insert(1), insert(5)];
        group = commit_group(&mut connection, group, &meters).await;
        assert_eq!((group.len(), numbers(&mut connection).await), (3, vec![1, 2, 3]));
        assert!(commit_group(&mut connection, group, &meters).await.is_empty());
        assert_eq!(numbers(&mut connection).await, [1, 2, 3, 4, 5]);
    }

    #[tokio::test]
    async fn panicking_write_is_rolled_back_and_the_writer_survives() {
        let (_folder, writer) = started(8, checkpoints::CheckpointRules::default()).await;
        let error = writer
            .write_queued(&server(), |connection| {
                Box::pin(async move {
                    sqlx::query("INSERT INTO t (n) VALUES (7)")
                        .execute(&mut *connection)
                        .await
                        .unwrap();
                    assert!(numbers(connection).await != [7], "on purpose");
                    Ok(())
                })
            })
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::Rejected(_)), "{error}");
        let left = writer
            .write_queued(&server(), |connection| {
                Box::pin(async move { Ok(numbers(connection).await) })
            })
            .await
            .unwrap();
        assert!(left.is_empty());
        writer.close().await;
    }

    #[tokio::test]
    async fn write_queue_refuses_when_full_or_closed() {
        let (_folder, writer) = started(1, checkpoints::CheckpointRules::default()).await;
        let (started, has_started) = oneshot::channel::<()>();
        let (release, released) = oneshot::channel::<()>();
        let holder = server();
        let running = writer.write_queued(&holder, move |_| {
            Box::pin(async move {
                started.send(()).unwrap();
                released.await.unwrap();
                Ok(())
            })
        });
        let (first, (waited, refused)) = tokio::join!(running, async {
            has_started.await.unwrap();
            let mut waiting = Box::pin(writer.write_queued(&holder, |_| Box::pin(async { Ok(1) })));
            assert!(waiting.as_mut().now_or_never().is_none());
            let refused = writer.write_queued(&server(), |_| Box::pin(async { Ok(2) })).await;
            release.send(()).unwrap();
            (waiting.await, refused)
        });
        first.unwrap();
        assert_eq!(waited.unwrap(), 1);
        assert!(matches!(refused, Err(StoreError::Unavailable(_))));
        writer.close().await;
        assert!(
            writer
                .write_queued(&server(), |_| Box::pin(async { Ok(3) }))
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn write_completes_after_its_caller_is_dropped() {
        let (_folder, writer) = started(8, checkpoints::CheckpointRules::default()).await;
        let holder = server();
        let mut abandoned = Box::pin(writer.write_queued(&holder, |connection| {
            Box::pin(async move {
                sqlx::query("INSERT INTO t (n) VALUES (5)")
                    .execute(connection)
                    .await
                    .map(drop)
                    .map_err(store_error)
            })
        }));
        let _ = abandoned.as_mut().now_or_never();
        drop(abandoned);
        let left = writer
            .write_queued(&server(), |connection| {
                Box::pin(async move { Ok(numbers(connection).await) })
            })
            .await
            .unwrap();
        assert_eq!(left, [5]);
        writer.close().await;
    }

    async fn execute(writer: &Writer, statement: &'static str) {
        writer
            .write_queued(&server(), move |connection| {
                Box::pin(async move {
                    sqlx::query(statement)
                        .execute(connection)
                        .await
                        .map(drop)
                        .map_err(store_error)
                })
            })
            .await
            .unwrap();
    }

    /// In bytes.
    fn length_of_log(folder: &Path) -> u64 {
        std::fs::metadata(folder.join("t.db-wal")).unwrap().len()
    }

    /// Writes 64 KiB and returns the new length of the log.
    async fn grow(writer: &Writer, folder: &Path) -> u64 {
        execute(writer, "INSERT INTO pages (what) VALUES (randomblob(65536))").await;
        length_of_log(folder)
    }

    #[tokio::test]
    async fn write_ahead_log_stays_short_under_load() {
        const MIB: u64 = 1 << 20;
        let rules = checkpoints::CheckpointRules {
            look_every: Duration::from_millis(1),
            pages: 64,
            max_delay: Duration::from_hours(1),
            restart_from_pages: 256,
        };
        let (folder, writer) = started(8, rules).await;
        execute(&writer, "CREATE TABLE pages (what BLOB NOT NULL)").await;

        // A reader of an old state keeps the state in the log, and no write waits for the reader.
        let mut reader = connect(folder.path()).await;
        let mut reading = reader.begin().await.unwrap();
        let rows = async |connection: &mut SqliteConnection| -> i64 {
            sqlx::query_scalar("SELECT count(*) FROM pages")
                .fetch_one(connection)
                .await
                .unwrap()
        };
        assert_eq!(rows(&mut *reading).await, 0);
        let mut longest = 0;
        for _ in 0..80 {
            longest = grow(&writer, folder.path()).await;
        }
        assert!(longest > 5 * MIB, "{longest}");
        assert_eq!(rows(&mut *reading).await, 0);
        reading.rollback().await.unwrap();

        // Without the reader the log is reused, even by writes without a pause: new writes do not make it longer.
        let deadline = Instant::now() + Duration::from_mins(1);
        let mut written = 80;
        while grow(&writer, folder.path()).await > longest {
            written += 1;
            longest = length_of_log(folder.path());
            assert!(Instant::now() < deadline, "{longest} bytes");
        }
        written += 1;
        // The last connection to close deletes the log, and all rows are in the database.
        reader.close().await.unwrap();
        writer.close().await;
        assert!(!folder.path().join("t.db-wal").exists());
        let mut connection = connect(folder.path()).await;
        assert_eq!(rows(&mut connection).await, written);
    }

    #[tokio::test]
    async fn checkpoint_copies_a_lone_commit_too() {
        let rules = checkpoints::CheckpointRules {
            look_every: Duration::from_millis(1),
            max_delay: Duration::from_millis(20),
            ..checkpoints::CheckpointRules::default()
        };
        let (folder, writer) = started(8, rules).await;
        execute(&writer, "INSERT INTO t (n) VALUES (5)").await;
        // Until the database file alone has the row. The copy may be taken in the middle of a checkpoint.
        let alone = folder.path().join("alone.db");
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            std::fs::copy(folder.path().join("t.db"), &alone).unwrap();
            let options = SqliteConnectOptions::new()
                .filename(&alone)
                .journal_mode(SqliteJournalMode::Off);
            let found = match options.connect().await {
                Ok(mut connection) => {
                    sqlx::query_scalar::<_, i64>("SELECT n FROM t")
                        .fetch_all(&mut connection)
                        .await
                }
                Err(error) => Err(error),
            };
            if found.is_ok_and(|numbers| numbers == [5]) {
                break;
            }
            assert!(Instant::now() < deadline, "the commit is in the log only");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        writer.close().await;
    }
}
