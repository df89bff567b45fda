//! The one writer: group commit.
//!
//! Owns the writing connection on a thread of its own, so that an acknowledged write depends on no
//! caller's runtime. Whatever waits is run in one transaction, each piece of work after the first in a
//! savepoint of its own, and acknowledged after the commit. Work that has been queued is done even if its caller
//! has gone away.

use std::panic::AssertUnwindSafe;

use futures_util::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use sqlx::{Connection as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use super::engine::store_error;
use crate::ports::{
    StoreError, StoreResult,
    ledger::meters::{Counted, LedgerMeters},
};
use prometheus::HistogramTimer;

/// Most pieces of work in one transaction: bounds how long the first waits for the last.
const MAX_GROUP: usize = 128;

// One hop to SQLite's thread per boundary, not two: sqlx runs all statements of a text. The first
// work needs no savepoint: there is nothing before it that its undoing could take along.
const BEGIN: &str = "BEGIN IMMEDIATE";
const SECOND: &str = "SAVEPOINT work";
const NEXT: &str = "RELEASE work; SAVEPOINT work";
const UNDO: &str = "ROLLBACK TO work";
/// Releases what savepoint there is, too.
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// The queue to the writer thread.
pub(super) struct Writer {
    queue: mpsc::Sender<Message>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    meters: LedgerMeters,
}

enum Message {
    Work(Box<dyn Work>),
    Close(oneshot::Sender<()>),
}

/// A queued write with its caller's type erased.
trait Work: Send {
    /// Runs it inside the open savepoint. `false`: undo the savepoint.
    fn run<'c>(&'c mut self, connection: &'c mut SqliteConnection) -> BoxFuture<'c, bool>;
    /// Tells the caller. `lost`: the transaction failed, whatever the work itself returned.
    fn acknowledge(self: Box<Self>, lost: Option<&StoreError>);
}

struct Typed<T, F> {
    work: Option<F>,
    result: StoreResult<T>,
    caller: oneshot::Sender<StoreResult<T>>,
    /// Until it is run.
    waited: Option<HistogramTimer>,
    counted: Counted,
}

impl<T, F> Typed<T, F>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
{
    fn boxed(work: F, caller: oneshot::Sender<StoreResult<T>>, meters: &LedgerMeters) -> Box<dyn Work> {
        Box::new(Self {
            work: Some(work),
            result: Err(StoreError::Unavailable("the write was not run".to_owned())),
            caller,
            waited: Some(meters.write_waits.start_timer()),
            counted: Counted::of(&meters.writes),
        })
    }
}

impl<T, F> Work for Typed<T, F>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
{
    fn run<'c>(&'c mut self, connection: &'c mut SqliteConnection) -> BoxFuture<'c, bool> {
        // Its wait is over.
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
    fn acknowledge(self: Box<Self>, lost: Option<&StoreError>) {
        let result = match lost {
            Some(error) => Err(error.clone()),
            None => self.result,
        };
        drop(self.counted);
        // A caller that has gone away does not change what is written.
        let _ = self.caller.send(result);
    }
}

impl Writer {
    /// Starts the thread; at most `queue` writes may wait.
    pub(super) fn start(connection: SqliteConnection, queue: usize, meters: LedgerMeters) -> StoreResult<Self> {
        let (sender, receiver) = mpsc::channel(queue.max(1));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| StoreError::Unavailable(format!("cannot start the ledger's writer: {error}")))?;
        let theirs = meters.clone();
        let thread = std::thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn(move || runtime.block_on(write_until_closed(connection, receiver, &theirs)))
            .map_err(|error| StoreError::Unavailable(format!("cannot start the ledger's writer: {error}")))?;
        Ok(Self {
            queue: sender,
            thread: Mutex::new(Some(thread)),
            meters,
        })
    }

    pub(super) async fn write<T, F>(&self, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let work = Typed::boxed(work, caller, &self.meters);
        self.queue.try_send(Message::Work(work)).map_err(|error| {
            StoreError::Unavailable(
                match error {
                    mpsc::error::TrySendError::Full(_) => "too many writes are waiting",
                    mpsc::error::TrySendError::Closed(_) => "the ledger is closed",
                }
                .to_owned(),
            )
        })?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Finishes what is queued and closes the connection. Later writes fail.
    pub(super) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.queue.send(Message::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
        // The thread has nothing left to do but return.
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the ledger's writer thread panicked");
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the ledger is closed".to_owned())
}

async fn write_until_closed(
    mut connection: SqliteConnection,
    mut queue: mpsc::Receiver<Message>,
    meters: &LedgerMeters,
) {
    let mut group: Vec<Box<dyn Work>> = Vec::with_capacity(MAX_GROUP);
    let mut close = None;
    while close.is_none() {
        let Some(first) = queue.recv().await else { break };
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Work(work) => group.push(work),
                Message::Close(done) => {
                    queue.close();
                    close = Some(done);
                }
            }
            next = if group.len() < MAX_GROUP {
                queue.try_recv().ok()
            } else {
                None
            };
        }
        while !group.is_empty() {
            let _took = meters.transactions.start_timer();
            #[expect(clippy::cast_precision_loss, reason = "at most MAX_GROUP")]
            meters.grouped.observe(group.len() as f64);
            group = commit_group(&mut connection, group).await;
        }
    }
    // Work that was sent between the close message and the closing of the queue.
    while let Ok(message) = queue.try_recv() {
        match message {
            Message::Work(work) => work.acknowledge(Some(&closed())),
            Message::Close(done) => drop(done.send(())),
        }
    }
    if let Err(error) = connection.close().await {
        tracing::warn!(%error, "closing the ledger's writer failed");
    }
    if let Some(done) = close {
        let _ = done.send(());
    }
}

/// Runs a group in one transaction and acknowledges it. Returns the work that was not begun,
/// because the whole transaction was given up on the way: it gets another one.
async fn commit_group(connection: &mut SqliteConnection, group: Vec<Box<dyn Work>>) -> Vec<Box<dyn Work>> {
    let mut waiting = group.into_iter();
    let mut done: Vec<Box<dyn Work>> = Vec::with_capacity(waiting.len());
    let mut lost = None;
    let mut boundary = BEGIN;
    while let Some(mut work) = waiting.next() {
        if let Err(error) = run(connection, boundary).await {
            // The transaction is gone, and with it everything that ran in it.
            done.push(work);
            if boundary == BEGIN {
                done.extend(waiting.by_ref());
            }
            lost = Some(error);
            break;
        }
        let keep = work.run(connection).await;
        if boundary == BEGIN && !keep {
            // Fails when SQLite rolled back by itself, which is just as well.
            let _ = run(connection, ROLLBACK).await;
            work.acknowledge(None);
            return waiting.collect();
        }
        done.push(work);
        if !keep && let Err(error) = run(connection, UNDO).await {
            lost = Some(error);
            break;
        }
        boundary = if boundary == BEGIN { SECOND } else { NEXT };
    }
    if lost.is_none() {
        lost = run(connection, COMMIT).await.err();
    }
    if let Some(error) = &lost {
        tracing::error!(%error, writes = done.len(), "a group of ledger writes was lost");
        // Fails when SQLite rolled back by itself, which is just as well.
        let _ = run(connection, ROLLBACK).await;
    }
    for work in done {
        work.acknowledge(lost.as_ref());
    }
    waiting.collect()
}

async fn run(connection: &mut SqliteConnection, statement: &'static str) -> StoreResult<()> {
    sqlx::query(statement)
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn table() -> (tempfile::TempDir, SqliteConnection) {
        use sqlx::ConnectOptions as _;
        let folder = tempfile::tempdir().unwrap();
        let mut connection = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(folder.path().join("t.db"))
            .create_if_missing(true)
            .connect()
            .await
            .unwrap();
        sqlx::query("CREATE TABLE t (n INTEGER NOT NULL UNIQUE)")
            .execute(&mut connection)
            .await
            .unwrap();
        (folder, connection)
    }

    fn insert(n: i64) -> Box<dyn Work> {
        let caller = oneshot::channel::<StoreResult<()>>().0;
        Typed::boxed(
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
            &LedgerMeters::default(),
        )
    }

    async fn numbers(connection: &mut SqliteConnection) -> Vec<i64> {
        sqlx::query_scalar("SELECT n FROM t ORDER BY n")
            .fetch_all(connection)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn one_failing_write_does_not_undo_its_neighbours() {
        let (_folder, mut connection) = table().await;
        let mut group: Vec<Box<dyn Work>> = vec![insert(1), insert(1), insert(2), insert(2), insert(3)];
        assert!(commit_group(&mut connection, group).await.is_empty());
        assert_eq!(numbers(&mut connection).await, [1, 2, 3]);
        // A first one that fails gives its transaction up; the others get the next.
        group = vec![insert(1), insert(4), insert(1), insert(5)];
        group = commit_group(&mut connection, group).await;
        assert_eq!((group.len(), numbers(&mut connection).await), (3, vec![1, 2, 3]));
        assert!(commit_group(&mut connection, group).await.is_empty());
        assert_eq!(numbers(&mut connection).await, [1, 2, 3, 4, 5]);
    }

    #[tokio::test]
    async fn work_that_panics_is_undone_and_the_writer_lives_on() {
        let (_folder, connection) = table().await;
        let writer = Writer::start(connection, 8, LedgerMeters::default()).unwrap();
        let error = writer
            .write(|connection| {
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
            .write(|connection| Box::pin(async move { Ok(numbers(connection).await) }))
            .await
            .unwrap();
        assert!(left.is_empty());
        writer.close().await;
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_closed_one_too() {
        let (_folder, connection) = table().await;
        let writer = Writer::start(connection, 1, LedgerMeters::default()).unwrap();
        let (started, has_started) = oneshot::channel::<()>();
        let (release, released) = oneshot::channel::<()>();
        let running = writer.write(move |_| {
            Box::pin(async move {
                started.send(()).unwrap();
                released.await.unwrap();
                Ok(())
            })
        });
        let (first, (waited, refused)) = tokio::join!(running, async {
            has_started.await.unwrap();
            let mut waiting = Box::pin(writer.write(|_| Box::pin(async { Ok(1) })));
            assert!(waiting.as_mut().now_or_never().is_none());
            let refused = writer.write(|_| Box::pin(async { Ok(2) })).await;
            release.send(()).unwrap();
            (waiting.await, refused)
        });
        first.unwrap();
        assert_eq!(waited.unwrap(), 1);
        assert!(matches!(refused, Err(StoreError::Unavailable(_))));
        writer.close().await;
        assert!(writer.write(|_| Box::pin(async { Ok(3) })).await.is_err());
    }

    #[tokio::test]
    async fn a_write_is_done_even_if_its_caller_goes_away() {
        let (_folder, connection) = table().await;
        let writer = Writer::start(connection, 8, LedgerMeters::default()).unwrap();
        let mut abandoned = Box::pin(writer.write(|connection| {
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
            .write(|connection| Box::pin(async move { Ok(numbers(connection).await) }))
            .await
            .unwrap();
        assert_eq!(left, [5]);
        writer.close().await;
    }
}
