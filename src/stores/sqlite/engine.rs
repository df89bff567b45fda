//! The engine for the shared statements: SQLite's types, with the writer and the readers.

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use futures_util::future::BoxFuture;
pub(super) use sqlx::{
    Sqlite as Db, SqliteConnection as Connection,
    sqlite::{SqliteArguments as Arguments, SqliteRow as Row},
};

use super::{
    readers::{ReadConnection, Readers},
    sql::{LedgerLock, RowScope},
    writer::Writer,
};
use colloquy_core::ids::{TenantId, WorldId};
use colloquy_ports::{StoreError, StoreResult, clock::Clock, ledger::metrics::LedgerMetrics};

/// The key of a fair queue: a tenant, or the server itself (`None`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FairnessKey(Option<TenantId>);

impl FairnessKey {
    pub(super) fn from_scope(reach: RowScope<'_>) -> Self {
        match reach {
            RowScope::Tenant(tenant) => Self(Some(tenant.clone())),
            RowScope::All => Self(None),
        }
    }
}

/// The shared parts of all stores of a ledger.
pub(crate) struct Engine {
    pub(super) writer: Writer,
    pub(super) readers: Readers,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) embedding_model: Arc<str>,
    pub(super) metrics: LedgerMetrics,
}

impl Engine {
    /// Runs `work` in the writer's next transaction and returns the result once it is durable. The work runs even if
    /// the caller goes away. An `Err` of the work rolls back only the work's own writes.
    ///
    /// `Clone`, because another engine may have to run the work a second time.
    pub(super) async fn write_transaction<'r, T, F>(&self, reach: impl Into<RowScope<'r>>, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        self.writer
            .write_queued(&FairnessKey::from_scope(reach.into()), work)
            .await
    }

    /// Runs a single statement as [`Self::write_transaction`] does.
    pub(super) async fn write_statement<'r, T, F>(&self, reach: impl Into<RowScope<'r>>, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        self.write_transaction(reach, work).await
    }

    /// Runs a write to a world's memory as [`Self::write_transaction`] does. SQLite has a single writer.
    pub(super) async fn write_memory<T, F>(&self, tenant: &TenantId, _world: &WorldId, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, StoreResult<T>> + Clone + Send + 'static,
    {
        self.write_transaction(tenant, work).await
    }

    pub(super) async fn close_connections(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Returns a reader, for one or more queries in a row.
    pub(super) async fn acquire_reader<'r>(&self, reach: impl Into<RowScope<'r>>) -> StoreResult<ReadConnection<'_>> {
        self.readers
            .acquire_connection(&FairnessKey::from_scope(reach.into()))
            .await
    }
}

/// Locks data against other writers until the transaction ends. SQLite has a single writer, so no lock is needed.
pub(super) fn acquire_lock(_: &mut Connection, _: &TenantId, _: LedgerLock<'_>) -> Ready<StoreResult<()>> {
    ready(Ok(()))
}

/// Gathers no statistics and returns 0. Without statistics every statement has the plan that the tests check
/// (`plans.rs`), however large the tables are. With statistics the plan would depend on when they were gathered.
pub(super) fn count_grown_tables(_: &Engine) -> Ready<StoreResult<usize>> {
    ready(Ok(0))
}

/// Maps a failed statement to the error that a caller acts on.
pub(super) fn store_error(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(database) => {
            // The low byte is the primary result code; codes as in sqlite3.h.
            let code = database.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(0);
            match (code & 0xff, code) {
                // FULL
                (13, _) => StoreError::NotWritable("the disk of the ledger is full".to_owned()),
                // READONLY
                (8, _) => StoreError::NotWritable("the ledger's file or its file system is read-only".to_owned()),
                // IOERR_WRITE, _FSYNC, _DIR_FSYNC, _TRUNCATE, _SHMSIZE: a quota, or a file system that turned read-only
                (_, 778 | 1034 | 1290 | 1546 | 4874) => {
                    StoreError::NotWritable(format!("writing to the ledger's file failed ({database})"))
                }
                // BUSY, LOCKED, NOMEM, IOERR, CANTOPEN
                (5 | 6 | 7 | 10 | 14, _) => StoreError::Unavailable(database.to_string()),
                // CORRUPT, NOTADB
                (11 | 26, _) => StoreError::Corrupt(database.to_string()),
                _ => StoreError::Rejected(database.to_string()),
            }
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
            StoreError::Corrupt(error.to_string())
        }
        other => StoreError::Unavailable(other.to_string()),
    }
}
