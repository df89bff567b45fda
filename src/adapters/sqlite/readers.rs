//! The readers: a fixed handful of connections.
//!
//! Not `sqlx::Pool`: that pings a connection whenever it is returned, which is one more trip to
//! SQLite's thread per read, and recall reads on the hot path. A local file needs no ping.

use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::ports::{
    StoreError, StoreResult,
    ledger::meters::{Counted, LedgerMeters},
};

pub(super) struct Readers {
    /// As many permits as connections; closed when the ledger closes.
    permits: Semaphore,
    free: Mutex<Vec<SqliteConnection>>,
    count: u32,
    meters: LedgerMeters,
}

impl Readers {
    pub(super) async fn open(
        options: SqliteConnectOptions,
        count: u32,
        meters: LedgerMeters,
    ) -> Result<Self, sqlx::Error> {
        let mut free = Vec::with_capacity(count as usize);
        for _ in 0..count {
            free.push(super::connect_to(options.clone()).await?);
        }
        Ok(Self {
            permits: Semaphore::new(count as usize),
            free: Mutex::new(free),
            count,
            meters,
        })
    }

    /// Waits for a free connection.
    pub(super) async fn acquire(&self) -> StoreResult<ReadConnection<'_>> {
        let waited = self.meters.read_waits.start_timer();
        let permit = self.permits.acquire().await.map_err(|_| closed())?;
        waited.observe_duration();
        let connection = self.free.lock().pop().ok_or_else(closed)?;
        Ok(ReadConnection {
            connection: Some(connection),
            readers: self,
            _permit: permit,
            _busy: Counted::of(&self.meters.busy),
        })
    }

    /// Waits for running reads and closes every connection. Later reads fail.
    pub(super) async fn close(&self) {
        if let Ok(all) = self.permits.acquire_many(self.count).await {
            self.permits.close();
            drop(all);
        }
        let free = std::mem::take(&mut *self.free.lock());
        for connection in free {
            if let Err(error) = connection.close().await {
                tracing::warn!(%error, "closing a reader of the ledger failed");
            }
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the ledger is closed".to_owned())
}

/// A connection on loan; it goes back when this is dropped.
pub(super) struct ReadConnection<'r> {
    connection: Option<SqliteConnection>,
    readers: &'r Readers,
    // Dropped after `drop` below has put the connection back, so a permit always finds one.
    _permit: SemaphorePermit<'r>,
    _busy: Counted,
}

impl Deref for ReadConnection<'_> {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        self.connection.as_ref().expect("taken only when dropped")
    }
}
impl DerefMut for ReadConnection<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        self.connection.as_mut().expect("taken only when dropped")
    }
}
impl Drop for ReadConnection<'_> {
    fn drop(&mut self) {
        self.readers.free.lock().extend(self.connection.take());
    }
}
