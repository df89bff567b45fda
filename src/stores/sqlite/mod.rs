//! The ledger on SQLite: one file, no service.
//!
//! Owns the connections, the migrations and their order. The connections are a writer that groups waiting writes into
//! one transaction, a connection that copies the log to the database, and a few readers. The statements are in `sql`,
//! shared with Postgres.

mod backup;
mod checkpoints;
mod connection;
#[macro_use]
mod dialect;
mod engine;
mod errors;
mod fairness_key;
mod file;
mod joined_queries;
mod options;
#[cfg(test)]
mod plans;
mod readers;
#[path = "../sql/mod.rs"]
mod sql;
mod writer;

use std::sync::Arc;

use sqlx::{Connection as _, sqlite::SqliteConnectOptions};

pub use self::{
    backup::{back_up_database, restore_backup},
    file::check_path,
    options::SqliteOptions,
};
use self::{
    connection::{cannot_open, connect_options, connect_to, run_migrations},
    engine::Engine,
    errors::store_error,
    file::LockedFile,
    readers::Readers,
    writer::{Writer, WriterConnections},
};
use super::migrations;
use colloquy_core::ids::TenantId;
use colloquy_ports::{
    StoreResult,
    clock::Clock,
    ledger::{Ledger, metrics::LedgerMetrics},
    vectors::PointSource,
};

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
