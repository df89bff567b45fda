//! The ledger on SQLite: one file, no service.
//!
//! Owns the connections, the migrations and their order. The connections are a writer that groups waiting writes into
//! one transaction, a connection that copies the log to the database, and a few readers. The statements are in `sql`,
//! shared with Postgres.

mod backup;
mod checkpoints;
#[macro_use]
mod dialect;
mod engine;
mod file;
#[cfg(test)]
mod plans;
mod readers;
#[path = "../sql/mod.rs"]
mod sql;
mod writer;

use std::{path::Path, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection,
    migrate::MigrateError,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

pub use self::{
    backup::{back_up_database, restore_backup},
    file::check_path,
};
use self::{
    engine::{Engine, store_error},
    file::LockedFile,
    readers::Readers,
    writer::{Writer, WriterConnections},
};
use super::migrations;
use colloquy_core::ids::TenantId;
use colloquy_ports::{
    StoreError, StoreResult,
    clock::Clock,
    ledger::{Ledger, metrics::LedgerMetrics},
    vectors::PointSource,
};

/// The options of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// `synchronous=FULL`: acknowledged writes survive a power cut too. `false` (`NORMAL`): acknowledged writes survive
    /// a killed process.
    pub synchronous_full: bool,
    /// The number of reading connections beside the writer; 1–32.
    pub readers: u32,
    /// A statement's longest wait for another process's lock.
    pub busy_timeout: Duration,
    /// The most writes waiting for the writer; further writes are refused as unavailable.
    pub write_queue: usize,
    /// The name of the embedding model, stored with every embedding. Only embeddings with this name are read; facts
    /// with another model's embedding wait for `FactStore::store_embeddings`.
    pub embedding_model: String,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            synchronous_full: false,
            readers: 4,
            busy_timeout: Duration::from_secs(5),
            write_queue: 4_096,
            embedding_model: String::new(),
        }
    }
}

/// An open database. Clones are cheap. Dropping the last clone closes the database without flushing, so call
/// `Maintenance::close_connections` first.
#[derive(Clone)]
pub struct SqliteLedger {
    engine: Arc<Engine>,
}

/// Opens the database, creates its folder and file if missing, and migrates its schema.
///
/// `path_or_url` is `sqlite://…`, `sqlite:…` or a path. A database from a newer version of this program is refused and
/// left unchanged. A database that another process has open for writing is refused too.
pub async fn open_ledger(
    path_or_url: &str,
    options: SqliteOptions,
    clock: Arc<dyn Clock>,
) -> StoreResult<SqliteLedger> {
    let file = LockedFile::create_and_lock(path_or_url)?;
    let path = file.path.clone();
    let connect = connect_options(&path, &options);
    let mut first = connect_to(connect.clone())
        .await
        .map_err(|error| cannot_open(&path, &error))?;
    run_migrations(&mut first, &path).await?;

    let meters = LedgerMetrics::default();
    let copying = connect_to(connect.clone())
        .await
        .map_err(|error| cannot_open(&path, &error))?;
    let connections = WriterConnections {
        writing: first,
        copying,
        file: Some(file),
        checkpoints: checkpoints::CheckpointRules::default(),
    };
    let writer = Writer::start(connections, options.write_queue, meters.clone())?;
    let readers = Readers::open(
        // A reader empties its cache after each write of another connection. A large cache would only take longer.
        connect.pragma("query_only", "ON").pragma("cache_size", "-2000"),
        options.readers.clamp(1, 32),
        meters.clone(),
    )
    .await
    .map_err(|error| cannot_open(&path, &error))?;
    Ok(SqliteLedger {
        engine: Arc::new(Engine {
            writer,
            readers,
            clock,
            embedding_model: options.embedding_model.into(),
            metrics: meters,
        }),
    })
}

/// Migrates the schema and closes the database again. Returns the schema's version.
pub async fn migrate_schema(path_or_url: &str) -> StoreResult<i64> {
    let file = LockedFile::create_and_lock(path_or_url)?;
    let mut connection = connect_to(connect_options(&file.path, &SqliteOptions::default()))
        .await
        .map_err(|error| cannot_open(&file.path, &error))?;
    run_migrations(&mut connection, &file.path).await?;
    connection.close().await.map_err(store_error)?;
    Ok(migrations::latest_version(&migrations::SQLITE))
}

/// Returns whether an existing database has the tenant. The database and its schema are not changed.
///
/// # Errors
/// The database does not exist, or cannot be read.
pub async fn has_tenant(path_or_url: &str, tenant: &TenantId) -> StoreResult<bool> {
    let file = file::database_path(path_or_url)?;
    let options = SqliteConnectOptions::new().filename(&file).read_only(true);
    let mut connection = connect_to(options).await.map_err(|error| cannot_open(&file, &error))?;
    let result = sql::has_tenant(&mut connection, tenant).await;
    connection.close().await.map_err(store_error)?;
    result
}

impl SqliteLedger {
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

/// Sets no `mmap_size`: a reader drops its mapping after every commit, and page faults cost more than reads.
fn connect_options(file: &Path, options: &SqliteOptions) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(if options.synchronous_full {
            SqliteSynchronous::Full
        } else {
            SqliteSynchronous::Normal
        })
        .busy_timeout(options.busy_timeout)
        .foreign_keys(false)
        .pragma("temp_store", "MEMORY")
        .pragma("cache_size", "-32000")
        .pragma("wal_autocheckpoint", checkpoints::FALL_BACK_PAGES)
        .pragma("journal_size_limit", "134217728")
        .statement_cache_capacity(256)
        .row_buffer_size(256)
        .disable_statement_logging()
}

/// Boxed, like the migrations below: the compiler cannot see that sqlx's own futures are `Send` for every lifetime, and
/// `open_ledger` must be.
fn connect_to(options: SqliteConnectOptions) -> BoxFuture<'static, Result<SqliteConnection, sqlx::Error>> {
    Box::pin(async move { options.connect().await })
}

async fn run_migrations(connection: &mut SqliteConnection, file: &Path) -> StoreResult<()> {
    let migrating: BoxFuture<'_, Result<(), MigrateError>> =
        Box::pin(migrations::SQLITE.run_direct(None, &mut *connection, false));
    let mut migrated = migrating.await;
    if matches!(
        migrated,
        Err(MigrateError::VersionMismatch(migrations::REWORDED_VERSION))
    ) {
        let [own_checksum, other_checksum] = migrations::reworded_checksums(&migrations::SQLITE);
        let taking = sqlx::query(migrations::ADOPT_REWORDED)
            .bind(own_checksum)
            .bind(other_checksum);
        taking
            .execute(&mut *connection)
            .await
            .map_err(|error| cannot_open(file, &error))?;
        let retry: BoxFuture<'_, Result<(), MigrateError>> =
            Box::pin(migrations::SQLITE.run_direct(None, connection, false));
        migrated = retry.await;
    }
    migrated.map_err(|error| migrations::migration_error(&file.display().to_string(), &error))
}

fn cannot_open(file: &Path, error: &sqlx::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot open the database {}: {error}", file.display()))
}
