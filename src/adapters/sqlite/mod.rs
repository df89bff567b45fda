//! The ledger on SQLite: one file, no service.
//!
//! Owns the connections (one writer that groups waiting writes into one transaction, one that copies what
//! was written from the log to the database, a few readers), the migrations and their order. The
//! statements are those of `sql`, shared with Postgres.

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

use async_trait::async_trait;
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
    engine::{Engine, FairnessKey, store_error},
    file::LockedFile,
    readers::Readers,
    sql::RowScope,
    writer::{Writer, WriterConnections},
};
use super::migrations;
use crate::{
    ids::TenantId,
    ports::{
        StoreError, StoreResult,
        clock::Clock,
        ledger::{
            Ledger, Maintenance, PruneBefore,
            metrics::{Backlog, LedgerMetrics},
        },
        vectors::PointSource,
    },
    tenancy::TenantScope,
};

/// How the database is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// `synchronous=FULL`: acknowledged writes survive a power cut too. `false` (`NORMAL`): they
    /// survive a killed process.
    pub synchronous_full: bool,
    /// Connections that read beside the writer; 1–32.
    pub readers: u32,
    /// How long a statement waits for a lock held by another process.
    pub busy_timeout: Duration,
    /// Writes that may wait for the writer; more are refused as unavailable.
    pub write_queue: usize,
    /// The name kept beside every embedding: which model made it. Only embeddings of this name are
    /// read; facts that have another one wait for `FactStore::store_embeddings`.
    pub embedding_model: String,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            synchronous_full: false,
            readers: 2,
            busy_timeout: Duration::from_secs(5),
            write_queue: 4_096,
            embedding_model: String::new(),
        }
    }
}

/// An open database. Cheap to clone; the last clone's end closes it without flushing, so call
/// `Maintenance::close` first.
#[derive(Clone)]
pub struct SqliteLedger {
    engine: Arc<Engine>,
}

/// Opens the database, creating its folder and file, and brings its schema up to date.
///
/// `path_or_url` is `sqlite://…`, `sqlite:…` or a path. A database from a newer version of this
/// program is refused and left as it is, and so is one that another process has open for writing.
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
        connect.pragma("query_only", "ON").pragma("cache_size", "-8000"),
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

/// Brings the schema up to date and closes the database again. Returns the schema's version.
pub async fn migrate_schema(path_or_url: &str) -> StoreResult<i64> {
    let file = LockedFile::create_and_lock(path_or_url)?;
    let mut connection = connect_to(connect_options(&file.path, &SqliteOptions::default()))
        .await
        .map_err(|error| cannot_open(&file.path, &error))?;
    run_migrations(&mut connection, &file.path).await?;
    connection.close().await.map_err(store_error)?;
    Ok(migrations::latest_version(&migrations::SQLITE))
}

/// Whether a database that is there has this tenant, without changing it, its schema included.
///
/// # Errors
/// There is no such database, or it cannot be read.
pub async fn has_tenant(path_or_url: &str, tenant: &TenantId) -> StoreResult<bool> {
    let file = file::database_path(path_or_url)?;
    let options = SqliteConnectOptions::new().filename(&file).read_only(true);
    let mut connection = connect_to(options).await.map_err(|error| cannot_open(&file, &error))?;
    let found = sql::has_tenant(&mut connection, tenant).await;
    connection.close().await.map_err(store_error)?;
    found
}

impl SqliteLedger {
    /// The ledger port.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        sql::build_ledger(&self.engine, Arc::new(SqliteMaintenance(self.engine.clone())))
    }

    /// Where the in-process index loads a partition from.
    #[must_use]
    pub fn point_source(&self) -> Arc<dyn PointSource> {
        sql::point_source(&self.engine)
    }
}

struct SqliteMaintenance(Arc<Engine>);

#[async_trait]
impl Maintenance for SqliteMaintenance {
    async fn ping(&self) -> StoreResult<()> {
        let mut connection = self
            .0
            .readers
            .acquire_connection(&FairnessKey::from_scope(RowScope::All))
            .await?;
        sqlx::query("SELECT 1")
            .execute(&mut *connection)
            .await
            .map_err(store_error)?;
        Ok(())
    }
    async fn try_write(&self) -> StoreResult<()> {
        sql::try_write(&self.0).await
    }
    async fn load_backlog(&self) -> StoreResult<Backlog> {
        sql::load_backlog(&self.0).await
    }
    fn ledger_metrics(&self) -> &LedgerMetrics {
        &self.0.metrics
    }
    async fn prune_expired(&self, scope: &TenantScope, before: &PruneBefore, limit: u32) -> StoreResult<u64> {
        sql::prune_tenant(&self.0, scope.tenant(), before, limit).await
    }
    /// Nothing: without statistics a statement has the plan that its tests know (`plans.rs`), however many
    /// rows there are. With them it would have one that depends on when they were gathered.
    async fn count_grown_tables(&self) -> StoreResult<usize> {
        Ok(0)
    }
    async fn close_connections(&self) {
        self.0.readers.close().await;
        self.0.writer.close().await;
    }
}

/// No `mmap_size`: a reader gives its mapping up whenever somebody has committed, and page faults cost
/// more than reads.
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

/// Boxed, like the migrations below: the compiler cannot see that sqlx's own futures are `Send`
/// for every lifetime, and `open` must be.
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
        let [here, other] = migrations::reworded_checksums(&migrations::SQLITE);
        let taking = sqlx::query(migrations::ADOPT_REWORDED).bind(here).bind(other);
        taking
            .execute(&mut *connection)
            .await
            .map_err(|error| cannot_open(file, &error))?;
        let again: BoxFuture<'_, Result<(), MigrateError>> =
            Box::pin(migrations::SQLITE.run_direct(None, connection, false));
        migrated = again.await;
    }
    migrated.map_err(|error| migrations::migration_error(&file.display().to_string(), &error))
}

fn cannot_open(file: &Path, error: &sqlx::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot open the database {}: {error}", file.display()))
}
