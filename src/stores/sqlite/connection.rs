//! Opening connections, and the schema of a database.

use std::path::Path;

use futures_util::future::BoxFuture;
use sqlx::{
    ConnectOptions as _, SqliteConnection,
    migrate::MigrateError,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use super::{super::migrations, checkpoints, options::SqliteOptions};
use colloquy_ports::{StoreError, StoreResult};

/// Sets no `mmap_size`: a reader drops its mapping after every commit, and page faults cost more than reads.
pub(super) fn connect_options(file: &Path, options: &SqliteOptions) -> SqliteConnectOptions {
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
pub(super) fn connect_to(options: SqliteConnectOptions) -> BoxFuture<'static, Result<SqliteConnection, sqlx::Error>> {
    Box::pin(async move { options.connect().await })
}

pub(super) async fn run_migrations(connection: &mut SqliteConnection, file: &Path) -> StoreResult<()> {
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

pub(super) fn cannot_open(file: &Path, error: &sqlx::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot open the database {}: {error}", file.display()))
}
