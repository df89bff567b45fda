//! Checkpoints of the write-ahead log (WAL): its pages are copied to the database file, beside the writer.
//!
//! By default SQLite checkpoints in the commit that fills the log. That commit copies megabytes and waits for two
//! `fsync`s while all other writes wait. Here a separate connection copies as the log grows. Pages written meanwhile
//! stay uncopied, and SQLite restarts the log only when no page is left. When the log is long, the writer copies the
//! few remaining pages between two transactions.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use sqlx::SqliteConnection;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};

use super::errors::store_error;
use colloquy_ports::StoreResult;

/// The checkpoint thresholds. A page has 4 KiB.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckpointRules {
    /// The interval between checks of the uncopied pages, while writes arrive.
    pub(super) look_every: Duration,
    /// The number of uncopied pages that starts a copy.
    pub(super) pages: i64,
    /// The longest wait of a commit for its copy, however small; also the pause after a failure. Copying syncs the log
    /// first, so this also bounds the loss in a power cut with `synchronous=NORMAL`. The exception is a longer read:
    /// commits made since the read began are neither copied nor synced until the read ends.
    pub(super) max_delay: Duration,
    /// The number of log pages from which the log is restarted.
    pub(super) restart_from_pages: i64,
}

impl Default for CheckpointRules {
    fn default() -> Self {
        Self {
            look_every: Duration::from_millis(200),
            pages: 1_000,
            max_delay: Duration::from_secs(5),
            restart_from_pages: 16_384,
        }
    }
}

/// The number of log pages (256 MiB) from which a commit copies them itself: SQLite's own rule, as a fallback.
pub(super) const FALL_BACK_PAGES: &str = "65536";

/// Signals between the writer and the checkpoints.
#[derive(Debug, Default)]
pub(super) struct CheckpointSignals {
    committed: Notify,
    finish: AtomicBool,
}

impl CheckpointSignals {
    /// Signals that the writer has committed.
    pub(super) fn notify_committed(&self) {
        self.committed.notify_one();
    }

    /// Returns whether the writer should copy the remaining pages; clears the request.
    pub(super) fn take_finish_request(&self) -> bool {
        self.finish.load(Ordering::Relaxed) && self.finish.swap(false, Ordering::Relaxed)
    }

    /// Asks the writer to copy the remaining pages.
    pub(super) fn request_finish(&self) {
        self.finish.store(true, Ordering::Relaxed);
    }
}

/// The length of the log, and the part already copied to the database file, in pages. Both are -1 if another connection
/// was copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WalStatus {
    pub(super) pages: i64,
    copied: i64,
}

impl WalStatus {
    fn pages_left(self) -> i64 {
        self.pages - self.copied
    }
}

/// Copies for as long as the ledger is open.
pub(super) async fn run_checkpoints(
    mut connection: SqliteConnection,
    rules: CheckpointRules,
    signals: &CheckpointSignals,
    mut closing: watch::Receiver<bool>,
) {
    while !*closing.borrow_and_update() {
        tokio::select! {
            () = signals.committed.notified() => {}
            _ = closing.changed() => break,
        }
        if let Err(error) = copy_when_due(&mut connection, rules, signals, &mut closing).await {
            tracing::warn!(%error, "a checkpoint of the ledger failed; the next one copies what it did not");
            tokio::select! {
                () = sleep(rules.max_delay) => signals.notify_committed(),
                _ = closing.changed() => break,
            }
        }
    }
    if let Err(error) = sqlx::Connection::close(connection).await {
        tracing::warn!(%error, "closing the ledger's checkpoints failed");
    }
}

/// Waits for a threshold, then copies. Returns early when the ledger closes: the last connection to close copies the
/// rest.
async fn copy_when_due(
    connection: &mut SqliteConnection,
    rules: CheckpointRules,
    signals: &CheckpointSignals,
    closing: &mut watch::Receiver<bool>,
) -> StoreResult<()> {
    let since = Instant::now();
    let mut next = since;
    loop {
        next += rules.look_every;
        tokio::select! {
            () = sleep_until(next) => {}
            _ = closing.changed() => return Ok(()),
        }
        if read_wal_status(connection).await?.pages_left() >= rules.pages || since.elapsed() >= rules.max_delay {
            break;
        }
    }
    let log = copy_wal(connection).await?;
    if log.pages_left() > 0 {
        // A reader needs an older state: try again, even without new writes.
        signals.notify_committed();
    }
    if log.pages >= rules.restart_from_pages {
        // A second copy leaves the writer only the pages written during the copy, unless a reader needs an older state.
        copy_wal(connection).await?;
        if read_wal_status(connection).await?.pages_left() < rules.pages {
            signals.request_finish();
        }
    }
    Ok(())
}

/// Returns the state of the log without changing it.
async fn read_wal_status(connection: &mut SqliteConnection) -> StoreResult<WalStatus> {
    wal_status_after(connection, "PRAGMA wal_checkpoint(NOOP)").await
}

/// Copies the log, except pages that are written meanwhile or come after a running read. Never waits, and does nothing
/// if another connection is copying.
pub(super) async fn copy_wal(connection: &mut SqliteConnection) -> StoreResult<WalStatus> {
    wal_status_after(connection, "PRAGMA wal_checkpoint(PASSIVE)").await
}

async fn wal_status_after(connection: &mut SqliteConnection, pragma: &'static str) -> StoreResult<WalStatus> {
    let (_busy, pages, copied) = sqlx::query_as::<_, (i64, i64, i64)>(pragma)
        .fetch_one(connection)
        .await
        .map_err(store_error)?;
    Ok(WalStatus { pages, copied })
}
