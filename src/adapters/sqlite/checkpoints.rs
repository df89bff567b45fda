//! Checkpoints: what the write-ahead log holds goes to the database file, beside the writer.
//!
//! SQLite would have it done by whoever's commit fills the log: that one copies megabytes and waits for two
//! `fsync`s while all others wait for it. Here a connection of its own does so as the log grows. What is
//! written meanwhile is left over, and as long as anything is, the log is not begun anew: once it is long, the
//! writer is asked to copy the little that is left, between two transactions.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use sqlx::SqliteConnection;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};

use super::engine::store_error;
use crate::ports::StoreResult;

/// When what is copied. Pages are of 4 KiB.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckpointRules {
    /// How often it is looked at how much there is to copy, while anything is written.
    pub(super) look_every: Duration,
    /// How many pages in the log are worth copying.
    pub(super) pages: i64,
    /// How long a commit may wait to be copied, however little it is; and how long nothing is tried after a failure.
    /// Copying syncs the log first, so this also bounds what a power cut can take with `synchronous=NORMAL`, unless
    /// somebody reads for longer: what was written since they began is neither copied nor synced until they end.
    pub(super) max_delay: Duration,
    /// From how many pages on the log is to be begun anew.
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

/// From how many pages in the log (256 MiB) a commit copies them itself after all: SQLite's own rule, for when
/// nobody else has come to it.
pub(super) const FALL_BACK_PAGES: &str = "65536";

/// What the writer and the checkpoints tell each other.
#[derive(Debug, Default)]
pub(super) struct CheckpointSignals {
    committed: Notify,
    finish: AtomicBool,
}

impl CheckpointSignals {
    /// The writer has committed.
    pub(super) fn notify_committed(&self) {
        self.committed.notify_one();
    }

    /// Whether the writer is to copy what is left; asked for once.
    pub(super) fn take_finish_request(&self) -> bool {
        self.finish.load(Ordering::Relaxed) && self.finish.swap(false, Ordering::Relaxed)
    }

    /// Asks the writer to copy what is left.
    pub(super) fn request_finish(&self) {
        self.finish.store(true, Ordering::Relaxed);
    }
}

/// How long the log is, and how much of it is in the database file already; in pages. Both -1 where another connection
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

/// Waits no longer when the ledger closes: whoever closes it last copies what there is.
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
        // Somebody reads what is older: again, whether or not anything is written.
        signals.notify_committed();
    }
    if log.pages >= rules.restart_from_pages {
        // So that the writer has to copy only what is written while this does: not if somebody reads what is older.
        copy_wal(connection).await?;
        if read_wal_status(connection).await?.pages_left() < rules.pages {
            signals.request_finish();
        }
    }
    Ok(())
}

/// How far the log is, without doing anything to it.
async fn read_wal_status(connection: &mut SqliteConnection) -> StoreResult<WalStatus> {
    wal_status_after(connection, "PRAGMA wal_checkpoint(NOOP)").await
}

/// Copies what is in the log, but for what is written meanwhile or what somebody still reads past. Waits for nobody;
/// where somebody else copies, this does not.
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
