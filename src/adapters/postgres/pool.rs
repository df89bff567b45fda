//! The connections.
//!
//! Not `sqlx::Pool`: that asks the server whenever a connection is given back, which is one more trip per
//! statement, and it knows nothing of the tenant a connection is set to. Here a connection that was just
//! used is trusted, unless one was lost since, and whoever reads gets one that is set to its tenant already
//! where there is one.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::engine::{lost, store_error};
use crate::ports::{
    StoreError, StoreResult,
    ledger::meters::{Counted, LedgerMeters},
};
use prometheus::Histogram;

/// A connection that nobody used for this long is asked whether it is there.
const TRUSTED_FOR: Duration = Duration::from_secs(10);
/// How long it may take to answer that.
const PING: Duration = Duration::from_secs(3);

pub(super) struct Pool {
    options: PgConnectOptions,
    /// As many permits as connections; closed when the ledger closes.
    permits: Arc<Semaphore>,
    size: u32,
    /// How long to wait for a free connection, and for a new one.
    patience: Duration,
    free: Mutex<Vec<Pooled>>,
    /// Where the sockets of the connections are watched.
    runtime: Handle,
    pub(super) meters: LedgerMeters,
}

struct Pooled {
    connection: PgConnection,
    /// What `colloquy.tenant` of the session is set to, and so the transaction's before one sets it.
    marker: String,
    used: Instant,
    /// How many connections had been lost when this one was last known to be there.
    lost: u64,
}

impl Pool {
    pub(super) fn new(
        options: PgConnectOptions,
        size: u32,
        patience: Duration,
        runtime: Handle,
        meters: LedgerMeters,
    ) -> Self {
        Self {
            options,
            permits: Arc::new(Semaphore::new(size as usize)),
            size,
            patience,
            free: Mutex::new(Vec::new()),
            runtime,
            meters,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.permits.is_closed()
    }

    /// A connection for statements outside a transaction, set to `marker`. It is given back when dropped.
    pub(super) async fn reading(self: &Arc<Self>, marker: &str) -> StoreResult<Lease> {
        let permit = self.permit(&self.meters.read_waits).await?;
        loop {
            let (mut pooled, new) = self.take(Some(marker)).await?;
            if pooled.marker != marker {
                let set = sqlx::query("SELECT set_config('colloquy.tenant', $1, false)")
                    .bind(marker)
                    .execute(&mut pooled.connection)
                    .await;
                if let Err(error) = set {
                    if new {
                        return Err(store_error(error));
                    }
                    continue;
                }
                marker.clone_into(&mut pooled.marker);
            }
            return Ok(self.lease(pooled, permit, new, true));
        }
    }

    /// A connection for one transaction. Unless [`Lease::give_back`] is called, it is closed when dropped.
    pub(super) async fn writing(self: &Arc<Self>) -> StoreResult<Lease> {
        let permit = self.permit(&self.meters.write_waits).await?;
        let (pooled, new) = self.take(None).await?;
        Ok(self.lease(pooled, permit, new, false))
    }

    fn lease(self: &Arc<Self>, pooled: Pooled, permit: OwnedSemaphorePermit, new: bool, reusable: bool) -> Lease {
        Lease {
            pooled: Some(pooled),
            pool: self.clone(),
            new,
            reusable,
            _permit: permit,
            _busy: Counted::of(&self.meters.busy),
        }
    }

    /// Leave to use a connection. Whoever waits in vain is among the waits too.
    async fn permit(&self, waits: &Histogram) -> StoreResult<OwnedSemaphorePermit> {
        let _waited = waits.start_timer();
        let permit = tokio::time::timeout(self.patience, self.permits.clone().acquire_owned());
        match permit.await {
            Ok(permit) => permit.map_err(|_| closed()),
            Err(_) => Err(StoreError::Unavailable(format!(
                "all {} connections to the database have been busy for {:?}",
                self.size, self.patience
            ))),
        }
    }

    /// A connection that is there, and whether it is new.
    async fn take(&self, marker: Option<&str>) -> StoreResult<(Pooled, bool)> {
        loop {
            let Some(mut pooled) = self.free_one(marker) else {
                return Ok((self.connect().await?, true));
            };
            let known = lost();
            if pooled.lost == known && pooled.used.elapsed() < TRUSTED_FOR {
                return Ok((pooled, false));
            }
            if let Ok(Ok(())) = tokio::time::timeout(PING, pooled.connection.ping()).await {
                pooled.lost = known;
                return Ok((pooled, false));
            }
        }
    }

    /// The one that was used last, if it can be of those that are set to `marker`.
    fn free_one(&self, marker: Option<&str>) -> Option<Pooled> {
        let mut free = self.free.lock();
        match marker.and_then(|marker| free.iter().rposition(|pooled| pooled.marker == marker)) {
            Some(at) => Some(free.remove(at)),
            None => free.pop(),
        }
    }

    async fn connect(&self) -> StoreResult<Pooled> {
        let known = lost();
        let options = self.options.clone();
        // In the ledger's runtime, which watches the socket from then on.
        let connecting = self.runtime.spawn(async move { options.connect().await });
        match tokio::time::timeout(self.patience, connecting).await {
            Ok(Ok(Ok(connection))) => Ok(Pooled {
                connection,
                marker: String::new(),
                used: Instant::now(),
                lost: known,
            }),
            Ok(Ok(Err(error))) => Err(store_error(error)),
            Ok(Err(_)) => Err(closed()),
            Err(_) => Err(StoreError::Unavailable(format!(
                "the database did not answer within {:?}",
                self.patience
            ))),
        }
    }

    /// Waits for what runs and closes every connection. Later uses fail.
    pub(super) async fn close(&self) {
        if let Ok(all) = self.permits.acquire_many(self.size).await {
            self.permits.close();
            drop(all);
        }
        let free = std::mem::take(&mut *self.free.lock());
        for pooled in free {
            if let Err(error) = pooled.connection.close().await {
                tracing::debug!(%error, "closing a connection of the ledger failed");
            }
        }
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the ledger is closed".to_owned())
}

/// A connection on loan.
pub(super) struct Lease {
    pooled: Option<Pooled>,
    pool: Arc<Pool>,
    new: bool,
    reusable: bool,
    // Dropped after `drop` below has put the connection back.
    _permit: OwnedSemaphorePermit,
    _busy: Counted,
}

impl Lease {
    /// Whether it was opened for this loan.
    pub(super) fn is_new(&self) -> bool {
        self.new
    }
    /// Its transaction has ended.
    pub(super) fn give_back(mut self) {
        self.reusable = true;
    }
}

impl Deref for Lease {
    type Target = PgConnection;
    fn deref(&self) -> &PgConnection {
        &self.pooled.as_ref().expect("taken only when dropped").connection
    }
}
impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.pooled.as_mut().expect("taken only when dropped").connection
    }
}
impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(mut pooled) = self.pooled.take()
            && self.reusable
        {
            pooled.used = Instant::now();
            self.pool.free.lock().push(pooled);
        }
    }
}
