//! The readers: a small fixed number of connections.
//!
//! Not `sqlx::Pool`, which pings each returned connection. The ping is another trip to SQLite's thread per read, and
//! recall reads on the hot path. A local file needs no ping.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use parking_lot::Mutex;
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{connection::connect_to, fairness_key::FairnessKey};
use colloquy_core::shares::{FairPermit, FairPermits, PermitPriority};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::metrics::{GaugeGuard, LedgerMetrics},
};

pub(super) struct Readers {
    /// A permit for each connection; closed when the ledger closes.
    places: Arc<FairPermits<FairnessKey>>,
    free: Mutex<Vec<SqliteConnection>>,
    metrics: LedgerMetrics,
}

impl Readers {
    pub(super) async fn open(
        options: SqliteConnectOptions,
        count: u32,
        meters: LedgerMetrics,
    ) -> Result<Self, sqlx::Error> {
        let mut free = Vec::with_capacity(count as usize);
        for _ in 0..count {
            free.push(connect_to(options.clone()).await?);
        }
        Ok(Self {
            places: FairPermits::new(count as usize, count as usize),
            free: Mutex::new(free),
            metrics: meters,
        })
    }

    /// Waits for a free connection. Among waiting tenants, the tenant with the fewest connections goes first.
    pub(super) async fn acquire_connection(&self, holder: &FairnessKey) -> StoreResult<ReadConnection<'_>> {
        let waited = self.metrics.read_waits.start_timer();
        let place = self
            .places
            .acquire_permit(holder, PermitPriority::First)
            .await
            .ok_or_else(StoreError::ledger_closed)?;
        waited.observe_duration();
        let connection = self.free.lock().pop().ok_or_else(StoreError::ledger_closed)?;
        Ok(ReadConnection {
            connection: Some(connection),
            readers: self,
            _place: place,
            _busy: GaugeGuard::increment_gauge(&self.metrics.busy),
        })
    }

    /// Waits for running reads and closes every connection. Later reads fail.
    pub(super) async fn close(&self) {
        self.places.close().await;
        let free = std::mem::take(&mut *self.free.lock());
        for connection in free {
            if let Err(error) = connection.close().await {
                tracing::warn!(%error, "closing a reader of the ledger failed");
            }
        }
    }
}

/// A borrowed connection; dropping it returns the connection.
pub(super) struct ReadConnection<'r> {
    connection: Option<SqliteConnection>,
    readers: &'r Readers,
    // Dropped after `drop` below has returned the connection, so a permit always finds a connection.
    _place: FairPermit<FairnessKey>,
    _busy: GaugeGuard,
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
