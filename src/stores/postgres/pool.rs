//! The connection pool.
//!
//! Not `sqlx::Pool`, which pings the server whenever a connection is returned: another trip per statement. `sqlx::Pool`
//! also does not know the tenant that a connection is set to. Here a recently used connection is trusted, unless a
//! connection was lost since. A read gets a connection that is already set to its tenant, if possible.
//!
//! Among several connections, work gets one with the same previous use ([`ConnectionUse`]). A connection plans a
//! statement on its first run, and again after each analysis of the tables. For a rewind, planning takes longer than
//! the rewind.

use std::{
    future::Future,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use super::{
    connection::Connection,
    errors::{connect_error, connections_lost, record_connection_loss, store_error},
    raw_statement::execute_raw,
};
use colloquy_core::shares::{FairPermit, FairPermits, PermitPriority};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::{
        metrics::{GaugeGuard, LedgerMetrics},
        priority::{self, Priority, is_in_background, yield_to_urgent},
    },
};
use prometheus::Histogram;

/// The idle time after which a connection is pinged before use.
const TRUSTED_FOR: Duration = Duration::from_secs(10);
/// The time after a refused connection attempt in which the pool lends connections of other uses and opens none.
const CROWDED_FOR: Duration = Duration::from_secs(30);
/// The number of connections kept for urgent work. Urgent work waits at most [`URGENT_PATIENCE`], about the time to
/// plan its statements again. If another free connection has done urgent work, there is no wait.
const URGENT_CONNECTIONS: usize = 2;
const URGENT_PATIENCE: Duration = Duration::from_millis(15);
/// The time for a connection to answer a ping or to close. At most half of the pool's patience, which leaves time for a
/// new connection.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) struct Pool {
    options: PgConnectOptions,
    /// A permit for each connection; closed when the ledger closes. Among waiting tenants, the tenant with the fewest
    /// goes first.
    places: Arc<FairPermits<Arc<str>>>,
    size: u32,
    /// Permits for background work, which may use only this part of the connections.
    background: Arc<FairPermits<Arc<str>>>,
    background_size: u32,
    /// A permit for each connection that has planned the statements of urgent work.
    ready: Arc<Semaphore>,
    /// The time to wait for a free connection, and then for a connection that answers.
    patience: Duration,
    /// The time limit of a statement, including the network.
    statement_limit: Duration,
    free: Mutex<Vec<PooledConnection>>,
    /// The moment of the last refused connection attempt.
    crowded: Mutex<Option<Instant>>,
    /// The runtime that watches the connections' sockets.
    runtime: Handle,
    pub(super) metrics: LedgerMetrics,
}

/// The use of a connection. Different uses seldom share statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionUse {
    /// Rewinds and interrupts.
    Urgent,
    Background,
    Other,
}

impl ConnectionUse {
    fn of_current_task() -> Self {
        match priority::current_priority() {
            Priority::Urgent => Self::Urgent,
            Priority::Background => Self::Background,
            Priority::Interactive | Priority::Deferred => Self::Other,
        }
    }
}

struct PooledConnection {
    connection: Connection,
    used_for: ConnectionUse,
    /// The value of `colloquy.tenant` in the session, and in a transaction until the transaction sets its own.
    marker: String,
    used: Instant,
    /// The number of lost connections when this connection last answered.
    lost: u64,
}

impl Pool {
    pub(super) fn new(
        options: PgConnectOptions,
        size: u32,
        background_size: u32,
        patience: Duration,
        statement_limit: Duration,
        runtime: Handle,
        meters: LedgerMetrics,
    ) -> Self {
        Self {
            options,
            places: FairPermits::new(size as usize, size as usize),
            size,
            background: FairPermits::new(background_size as usize, background_size as usize),
            background_size,
            ready: Arc::new(Semaphore::new(URGENT_CONNECTIONS)),
            patience,
            statement_limit,
            free: Mutex::new(Vec::new()),
            crowded: Mutex::new(None),
            runtime,
            metrics: meters,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.places.is_closed()
    }

    /// Returns a connection for queries outside a transaction, set to `marker`. Dropping it returns the connection.
    pub(super) async fn acquire_reader(self: &Arc<Self>, marker: &str) -> StoreResult<LeasedConnection> {
        self.acquire_for_tenant(marker, &self.metrics.read_waits).await
    }

    /// Returns a connection as [`Self::acquire_reader`] does, for a statement that writes.
    pub(super) async fn acquire_for_statement(self: &Arc<Self>, marker: &str) -> StoreResult<LeasedConnection> {
        self.acquire_for_tenant(marker, &self.metrics.write_waits).await
    }

    async fn acquire_for_tenant(self: &Arc<Self>, marker: &str, waits: &Histogram) -> StoreResult<LeasedConnection> {
        let permit = self.acquire_permit(marker, waits).await?;
        let connecting = async {
            loop {
                let (mut pooled, is_new) = self.take_connection(Some(marker)).await?;
                if pooled.marker != marker {
                    let result = sqlx::query("SELECT set_config('colloquy.tenant', $1, false)")
                        .bind(marker)
                        .execute(&mut pooled.connection)
                        .await;
                    match result {
                        Ok(_) => marker.clone_into(&mut pooled.marker),
                        Err(error) if is_new => return Err(store_error(error)),
                        Err(error) => {
                            let _lost = store_error(error);
                            continue;
                        }
                    }
                }
                return Ok(pooled);
            }
        };
        let pooled = self.within_patience(connecting).await?;
        Ok(self.lease_connection(pooled, permit, true))
    }

    /// Returns a connection in a transaction opened by `begin_sql`, for `marker`. Dropping it closes the connection,
    /// unless [`LeasedConnection::return_to_pool`] was called. A lost connection is replaced, because no work has run
    /// on it yet.
    pub(super) async fn acquire_for_transaction(
        self: &Arc<Self>,
        marker: &str,
        begin_sql: &Arc<str>,
    ) -> StoreResult<LeasedConnection> {
        let permit = self.acquire_permit(marker, &self.metrics.write_waits).await?;
        let opened = async {
            loop {
                let (mut pooled, is_new) = self.take_connection(None).await?;
                match execute_raw(&mut pooled.connection, begin_sql.clone()).await {
                    Ok(()) => return Ok(pooled),
                    Err(error) if is_new => return Err(error),
                    Err(_) => {}
                }
            }
        };
        let pooled = self.within_patience(opened).await?;
        Ok(self.lease_connection(pooled, permit, false))
    }

    /// Limits the total time to get an answering connection. After the limit, the current connection is closed.
    async fn within_patience<T>(&self, getting: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        timeout(self.patience, getting).await.unwrap_or_else(|_| {
            record_connection_loss();
            Err(self.no_answer_error())
        })
    }

    /// Waits for another writer, at most as long as for a lock in the database.
    pub(super) async fn wait_for_writer<T>(&self, other: impl Future<Output = T>) -> StoreResult<T> {
        timeout(self.statement_limit, other).await.map_err(|_| {
            StoreError::Unavailable(format!(
                "others have been writing to the same world for {:?}",
                self.statement_limit
            ))
        })
    }

    fn no_answer_error(&self) -> StoreError {
        StoreError::Unavailable(format!("the database did not answer within {:?}", self.patience))
    }

    fn lease_connection(
        self: &Arc<Self>,
        mut pooled: PooledConnection,
        permit: ConnectionPermit,
        reusable: bool,
    ) -> LeasedConnection {
        pooled.used_for = ConnectionUse::of_current_task();
        LeasedConnection {
            pooled: Some(pooled),
            pool: self.clone(),
            reusable,
            _permit: permit,
            _busy: GaugeGuard::increment_gauge(&self.metrics.busy),
        }
    }

    /// Returns a permit to use a connection for `marker`. The wait is measured even if it fails.
    async fn acquire_permit(&self, marker: &str, waits: &Histogram) -> StoreResult<ConnectionPermit> {
        let busy = |connections: u32, patience: Duration| {
            StoreError::Unavailable(format!(
                "all {connections} connections to the database have been busy for {patience:?}"
            ))
        };
        let holder: Arc<str> = marker.into();
        // No caller waits for background work, so the patience is longer. All permit holders have deadlines.
        let background = if is_in_background() {
            let _waited = self.metrics.background_waits.start_timer();
            let permit = timeout(
                self.statement_limit,
                self.background.acquire_permit(&holder, PermitPriority::First),
            )
            .await;
            let permit = permit.map_err(|_| busy(self.background_size, self.statement_limit))?;
            yield_to_urgent().await;
            Some(permit)
        } else {
            None
        };
        let _waited = waits.start_timer();
        if background.is_none() {
            yield_to_urgent().await;
        }
        let ready = match ConnectionUse::of_current_task() {
            ConnectionUse::Urgent => {
                let patience = if self.has_urgent_connection() {
                    Duration::ZERO
                } else {
                    URGENT_PATIENCE
                };
                timeout(patience, self.ready.clone().acquire_owned()).await.ok()
            }
            ConnectionUse::Background | ConnectionUse::Other => None,
        };
        let permit = timeout(
            self.patience,
            self.places.acquire_permit(&holder, PermitPriority::First),
        )
        .await;
        let permit = permit.map_err(|_| busy(self.size, self.patience))?;
        Ok(ConnectionPermit {
            _connection: permit.ok_or_else(StoreError::ledger_closed)?,
            _background: background
                .map(|place| place.ok_or_else(StoreError::ledger_closed))
                .transpose()?,
            _ready: ready.transpose().map_err(|_| StoreError::ledger_closed())?,
        })
    }

    /// Returns a working connection, and whether the connection is new.
    async fn take_connection(&self, marker: Option<&str>) -> StoreResult<(PooledConnection, bool)> {
        loop {
            let mut pooled = match self.take_free_connection(marker) {
                Some(pooled) => pooled,
                None => match self.open_connection().await {
                    Ok(pooled) => return Ok((pooled, true)),
                    // The server may accept no more connections, so a connection of another use is taken.
                    Err(error) => {
                        let free = self.free.lock().pop();
                        self.crowded.lock().replace(Instant::now());
                        free.ok_or(error)?
                    }
                },
            };
            let loss_count = connections_lost();
            if pooled.lost == loss_count && pooled.used.elapsed() < TRUSTED_FOR {
                return Ok((pooled, false));
            }
            if pooled.connection.is_answering(self.ping_limit()).await {
                pooled.lost = loss_count;
                return Ok((pooled, false));
            }
            // The other idle connections are probably lost too: pinging each in turn would exceed every caller's
            // patience.
            record_connection_loss();
            let is_trusted =
                |pooled: &PooledConnection| pooled.lost == loss_count && pooled.used.elapsed() < TRUSTED_FOR;
            self.free.lock().retain(is_trusted);
        }
    }

    /// Returns whether a free connection has done urgent work before.
    fn has_urgent_connection(&self) -> bool {
        self.free
            .lock()
            .iter()
            .any(|pooled| pooled.used_for == ConnectionUse::Urgent)
    }

    fn ping_limit(&self) -> Duration {
        PING_TIMEOUT.min(self.patience / 2)
    }

    /// Takes the free connection last used for the same purpose and set to `marker`, or not set yet. Without a match,
    /// `None` asks for a new connection if the pool has room, because another use would miss the taken connection. In a
    /// full pool, takes the connection that its own use misses least.
    fn take_free_connection(&self, marker: Option<&str>) -> Option<PooledConnection> {
        let like = ConnectionUse::of_current_task();
        let mut free = self.free.lock();
        let set_to = |pooled: &PooledConnection, to: &str| marker.is_none() || pooled.marker == to;
        let wanted_marker = marker.unwrap_or_default();
        let index_of_like = |to| {
            free.iter()
                .rposition(|pooled| pooled.used_for == like && set_to(pooled, to))
        };
        // Setting the tenant takes a trip, which costs less than planning a rewind on another connection.
        let any = || match like {
            ConnectionUse::Urgent => free.iter().rposition(|pooled| pooled.used_for == like),
            ConnectionUse::Background | ConnectionUse::Other => None,
        };
        if let Some(index) = index_of_like(wanted_marker).or_else(|| index_of_like("")).or_else(any) {
            return Some(free.remove(index));
        }
        let lent = self.places.held_count();
        // The caller's permit is included.
        let open = lent.saturating_sub(1) + free.len();
        let crowded = self.crowded.lock().is_some_and(|since| since.elapsed() < CROWDED_FOR);
        if open < self.size as usize && !crowded {
            return None;
        }
        let is_spare = |pooled: &PooledConnection| pooled.used_for != ConnectionUse::Urgent;
        let index_of_spare = |to| free.iter().position(|pooled| is_spare(pooled) && set_to(pooled, to));
        let index = index_of_spare(wanted_marker)
            .or_else(|| index_of_spare(""))
            .or_else(|| free.iter().position(is_spare))
            .unwrap_or(0);
        (!free.is_empty()).then(|| free.remove(index))
    }

    async fn open_connection(&self) -> StoreResult<PooledConnection> {
        let loss_count = connections_lost();
        let options = self.options.clone();
        let patience = self.patience;
        // In the ledger's runtime, which then watches the socket. If the caller goes away, the connection ends there.
        let connecting = self
            .runtime
            .spawn(async move { timeout(patience, options.connect()).await });
        match connecting.await {
            Ok(Ok(Ok(connection))) => Ok(PooledConnection {
                connection: Connection::new(connection, self.statement_limit),
                used_for: ConnectionUse::of_current_task(),
                marker: String::new(),
                used: Instant::now(),
                lost: loss_count,
            }),
            Ok(Ok(Err(error))) => Err(connect_error(error)),
            Ok(Err(_)) => Err(self.no_answer_error()),
            Err(_) => Err(StoreError::ledger_closed()),
        }
    }

    /// Waits for running work and closes every connection. Later uses fail.
    pub(super) async fn close(&self) {
        self.places.close().await;
        let free = std::mem::take(&mut *self.free.lock());
        for pooled in free {
            if let Err(error) = pooled.connection.close(self.ping_limit()).await {
                tracing::debug!(%error, "closing a connection of the ledger failed");
            }
        }
    }
}

/// A permit to use a connection.
struct ConnectionPermit {
    _connection: FairPermit<Arc<str>>,
    _background: Option<FairPermit<Arc<str>>>,
    _ready: Option<OwnedSemaphorePermit>,
}

/// A borrowed connection.
pub(super) struct LeasedConnection {
    pooled: Option<PooledConnection>,
    pool: Arc<Pool>,
    reusable: bool,
    // Dropped after `drop` below has returned the connection.
    _permit: ConnectionPermit,
    _busy: GaugeGuard,
}

impl LeasedConnection {
    /// Returns the connection after its transaction has ended.
    pub(super) fn return_to_pool(mut self) {
        self.reusable = true;
    }
}

impl Deref for LeasedConnection {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        &self.pooled.as_ref().expect("taken only when dropped").connection
    }
}
impl DerefMut for LeasedConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.pooled.as_mut().expect("taken only when dropped").connection
    }
}
impl Drop for LeasedConnection {
    fn drop(&mut self) {
        if let Some(mut pooled) = self.pooled.take()
            && self.reusable
            && !pooled.connection.is_outstanding()
        {
            pooled.used = Instant::now();
            self.pool.free.lock().push(pooled);
        }
    }
}
