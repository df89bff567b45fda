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
    fairness_key::FairnessKey,
    readers::{ReadConnection, Readers},
    sql::scope::{LedgerLock, RowScope},
    writer::Writer,
};
use colloquy_core::ids::{TenantId, WorldId};
use colloquy_ports::{StoreResult, clock::Clock, ledger::metrics::LedgerMetrics};

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
