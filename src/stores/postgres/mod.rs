//! The ledger on Postgres: many nodes, one database.
//!
//! Owns the connections, the migrations and the tenant that row-level security lets a connection see. The statements
//! are in `sql`, shared with SQLite.

#[macro_use]
mod dialect;
mod connection;
mod engine;
mod errors;
mod joined_queries;
mod pool;
mod raw_statement;
#[path = "../sql/mod.rs"]
#[expect(
    clippy::duplicate_mod,
    reason = "one source for both engines; see the folder's own documentation"
)]
mod sql;
mod statistics;
mod world_queues;

use std::{str::FromStr as _, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, migrate::MigrateError, postgres::PgConnectOptions};

use self::{
    connection::Connection,
    engine::{Engine, LedgerRuntime, tenant_marker},
    errors::store_error,
    pool::Pool,
    statistics::Statistics,
    world_queues::WorldWriteQueues,
};
use super::migrations;
use colloquy_core::{ids::TenantId, shares::Shares};
use colloquy_ports::{
    StoreError, StoreResult,
    clock::Clock,
    ledger::{Ledger, metrics::LedgerMetrics},
    vectors::PointSource,
};

/// The options of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    /// The most connections; 1–1000. Connections are opened when needed.
    pub connections: u32,
    /// The connections that background work ([`in_background`]) may use at once: 1 to `connections` - 1, or 1 if there
    /// is only one connection. A single world may use all of them but one. Background work waits for a connection as
    /// long as a statement may run. On two cores shared with the whole server, interrupts waited less with two than
    /// with four (p99 50 and 59 ms). No jobs piled up.
    ///
    /// [`in_background`]: colloquy_ports::ledger::priority::in_background
    pub background_connections: u32,
    /// A call's longest wait for a free connection, and then for an answering connection; 5 s, a sixth of a statement's
    /// default.
    pub acquire_timeout: Duration,
    /// The time limit of a statement, including waits for locks. The server enforces the limit. If a statement has no
    /// answer after this limit plus `acquire_timeout`, its connection is abandoned.
    pub statement_timeout: Duration,
    /// The most writes running or waiting; further writes are refused as unavailable.
    pub write_queue: usize,
    /// The name of the embedding model, stored with every embedding. Only embeddings with this name are read; facts
    /// with another model's embedding wait for `FactStore::store_embeddings`.
    pub embedding_model: String,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 16,
            background_connections: 2,
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            write_queue: 4_096,
            embedding_model: String::new(),
        }
    }
}

/// An open database. Clones are cheap. Call `Maintenance::close_connections` before dropping the last clone, so that
/// running writes finish.
#[derive(Clone)]
pub struct PostgresLedger {
    engine: Arc<Engine>,
}

/// Connects and migrates the schema, one node at a time.
///
/// `url` is `postgres://user:password@host:port/database`, with the parameters of libpq that sqlx knows, such as
/// `sslmode`.
///
/// # Errors
/// The database cannot be reached, or its schema is from a newer version of this program and stays unchanged. No
/// message contains the password.
pub async fn open_ledger(url: &str, options: PostgresOptions, clock: Arc<dyn Clock>) -> StoreResult<PostgresLedger> {
    let connect = connect_options(url)?;
    let mut first = connect_to(&connect).await?;
    run_migrations(&mut first).await?;
    warn_if_superuser(&mut first).await?;
    first.close().await.map_err(store_error)?;

    let runtime = LedgerRuntime::start()?;
    let timeout = options.statement_timeout.as_millis().to_string();
    let connect = connect.options([
        ("statement_timeout", timeout.as_str()),
        // A hung or frozen process in a transaction would keep its locks, and no node could take over its dialogues.
        ("idle_in_transaction_session_timeout", "5000"),
        // A silently vanished node must not be waited for either: values in seconds, the last in milliseconds.
        ("tcp_keepalives_idle", "10"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "20000"),
        // Compiling a plan takes longer than any of the ledger's statements runs.
        ("jit", "off"),
        // Every statement looks up a few rows by key, so no statement gains from a table scan. The default, for
        // spinning disks, makes some statements scan tables of up to about ten thousand rows.
        ("random_page_cost", "1.1"),
        // No statement gains from a plan for its bound values, and planning takes longer than running.
        ("plan_cache_mode", "force_generic_plan"),
        // The statements name their tables in the order of the lookups.
        ("join_collapse_limit", "1"),
    ]);
    let meters = LedgerMetrics::default();
    let connections = options.connections.clamp(1, 1_000);
    let background = options.background_connections.clamp(1, (connections - 1).max(1));
    let pool = Pool::new(
        connect,
        connections,
        background,
        options.acquire_timeout,
        options.statement_timeout + options.acquire_timeout,
        runtime.handle(),
        meters.clone(),
    );
    Ok(PostgresLedger {
        engine: Arc::new(Engine {
            pool: Arc::new(pool),
            runtime,
            worlds: WorldWriteQueues::new(connections, background),
            queue: Shares::new("writes", options.write_queue.max(1)),
            statistics: Statistics::default(),
            clock,
            embedding_model: options.embedding_model.into(),
            metrics: meters,
        }),
    })
}

/// Migrates the schema and returns its version.
///
/// # Errors
/// The same as for [`open_ledger`].
pub async fn migrate_schema(url: &str) -> StoreResult<i64> {
    let mut connection = connect_to(&connect_options(url)?).await?;
    run_migrations(&mut connection).await?;
    connection.close().await.map_err(store_error)?;
    Ok(migrations::latest_version(&migrations::POSTGRES))
}

/// Returns whether an existing database has the tenant. The database and its schema are not changed.
///
/// # Errors
/// The database does not exist, contains no ledger, or cannot be read.
pub async fn has_tenant(url: &str, tenant: &TenantId) -> StoreResult<bool> {
    let connection = connect_to(&connect_options(url)?).await?;
    let mut connection = Connection::new(connection, PostgresOptions::default().statement_timeout);
    sqlx::query("SELECT set_config('colloquy.tenant', $1, false)")
        .bind(tenant_marker(tenant.into()))
        .execute(&mut connection)
        .await
        .map_err(store_error)?;
    let result = sql::has_tenant(&mut connection, tenant).await;
    connection
        .close(PostgresOptions::default().acquire_timeout)
        .await
        .map_err(store_error)?;
    result
}

/// Returns the time of the database's clock. The database and its schema are not changed.
///
/// # Errors
/// The database cannot be reached or read.
pub async fn ledger_time(url: &str) -> StoreResult<DateTime<Utc>> {
    let connection = connect_to(&connect_options(url)?).await?;
    let mut connection = Connection::new(connection, PostgresOptions::default().statement_timeout);
    let micros: Result<i64, StoreError> =
        sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
            .fetch_one(&mut connection)
            .await
            .map_err(store_error);
    connection
        .close(PostgresOptions::default().acquire_timeout)
        .await
        .map_err(store_error)?;
    DateTime::from_timestamp_micros(micros?)
        .ok_or_else(|| StoreError::Corrupt("the database's time is out of range".to_owned()))
}

impl PostgresLedger {
    /// Returns the ledger port.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        sql::build_ledger(&self.engine)
    }

    /// Returns the source from which the in-process index loads a partition.
    #[must_use]
    pub fn point_source(&self) -> Arc<dyn PointSource> {
        sql::point_source(&self.engine)
    }
}

/// Checks that a URL can be parsed, without connecting.
///
/// # Errors
/// [`StoreError::Rejected`], without the password.
pub fn check_url(url: &str) -> StoreResult<()> {
    connect_options(url).map(drop)
}

fn connect_options(url: &str) -> StoreResult<PgConnectOptions> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(StoreError::Rejected(
            "the ledger's URL must be postgres://user:password@host:port/database".to_owned(),
        ));
    }
    let options = PgConnectOptions::from_str(url)
        // The parser's own message may quote the URL with the password.
        .map_err(|_| StoreError::Rejected("the ledger's URL cannot be read".to_owned()))?;
    Ok(options
        .application_name("colloquy")
        .statement_cache_capacity(512)
        .disable_statement_logging())
}

/// Boxed, like the migrations below: the compiler cannot see that sqlx's own futures are `Send` for every lifetime, and
/// `open_ledger` must be.
fn connect_to(options: &PgConnectOptions) -> BoxFuture<'_, StoreResult<PgConnection>> {
    Box::pin(async move {
        options
            .connect()
            .await
            .map_err(|error| StoreError::Unavailable(format!("cannot connect to the database: {error}")))
    })
}

/// Migrates under an advisory lock: nodes starting together wait for the first.
async fn run_migrations(connection: &mut PgConnection) -> StoreResult<()> {
    sqlx::query("SELECT set_config('colloquy.tenant', '*', false)")
        .execute(&mut *connection)
        .await
        .map_err(store_error)?;
    let name: String = sqlx::query_scalar("SELECT current_database()::text")
        .fetch_one(&mut *connection)
        .await
        .map_err(store_error)?;
    let migrating: BoxFuture<'_, Result<(), MigrateError>> =
        Box::pin(migrations::POSTGRES.run_direct(None, &mut *connection, false));
    let mut migrated = migrating.await;
    if matches!(
        migrated,
        Err(MigrateError::VersionMismatch(migrations::REWORDED_VERSION))
    ) {
        let [own_checksum, other_checksum] = migrations::reworded_checksums(&migrations::POSTGRES);
        let taking = sqlx::query(migrations::ADOPT_REWORDED)
            .bind(own_checksum)
            .bind(other_checksum);
        taking.execute(&mut *connection).await.map_err(store_error)?;
        let retry: BoxFuture<'_, Result<(), MigrateError>> =
            Box::pin(migrations::POSTGRES.run_direct(None, connection, false));
        migrated = retry.await;
    }
    migrated.map_err(|error| migrations::migration_error(&name, &error))
}

/// Row-level security binds every role except superusers and roles with BYPASSRLS.
async fn warn_if_superuser(connection: &mut PgConnection) -> StoreResult<()> {
    let above: bool = sqlx::query_scalar("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
        .fetch_one(connection)
        .await
        .map_err(store_error)?;
    if above {
        tracing::warn!(
            "the database role is a superuser or has BYPASSRLS, so row-level security does not keep tenants \
             apart a second time: give this server a role of its own that owns its database and has neither"
        );
    }
    Ok(())
}
