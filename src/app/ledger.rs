//! The configured ledger: SQLite or Postgres, chosen by its URL.

use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::time::Duration;

use anyhow::Context;
use secrecy::ExposeSecret as _;

use crate::config::{Config, Synchronous};
use colloquy_core::ids::TenantId;
use colloquy_ports::{StoreResult, clock::Clock, ledger::Ledger, vectors::PointSource};
#[cfg(feature = "postgres")]
use colloquy_stores::postgres::{self, PostgresOptions};
use colloquy_stores::sqlite::{self, SqliteOptions};

/// Opens the ledger and migrates its schema. Only vectors of `embedding_model` are read. Also returns the source from
/// which the in-process index loads its points.
pub(super) async fn open_ledger(
    config: &Config,
    embedding_model: String,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<(Ledger, Arc<dyn PointSource>)> {
    let url = config.ledger_url();
    let cannot_open = || format!("cannot open the ledger {}", config.ledger_name());
    #[cfg(feature = "postgres")]
    if is_postgres(config) {
        let options = PostgresOptions {
            connections: config.ledger.connections,
            background_connections: config.ledger.background_connections,
            statement_timeout: Duration::from_millis(config.ledger.statement_timeout_ms),
            write_queue: config.ledger.write_queue,
            embedding_model,
            ..PostgresOptions::default()
        };
        let ledger = postgres::open_ledger(url.expose_secret(), options, clock)
            .await
            .with_context(cannot_open)?;
        return Ok((ledger.ledger(), ledger.point_source()));
    }
    let options = SqliteOptions {
        synchronous_full: config.ledger.synchronous == Synchronous::Full,
        readers: config.ledger.readers,
        write_queue: config.ledger.write_queue,
        embedding_model,
        ..SqliteOptions::default()
    };
    let ledger = sqlite::open_ledger(url.expose_secret(), options, clock)
        .await
        .with_context(cannot_open)?;
    Ok((ledger.ledger(), ledger.point_source()))
}

/// Checks the ledger's URL without connecting.
pub(super) fn check_url(config: &Config) -> StoreResult<()> {
    let url = config.ledger_url();
    #[cfg(feature = "postgres")]
    if is_postgres(config) {
        return postgres::check_url(url.expose_secret());
    }
    sqlite::check_path(url.expose_secret())
}

/// Migrates the ledger's schema and does no other work. Returns the schema's version.
///
/// # Errors
/// If the ledger cannot be opened, or belongs to a newer program.
pub async fn migrate_schema(config: &Config) -> StoreResult<i64> {
    let url = config.ledger_url();
    #[cfg(feature = "postgres")]
    if is_postgres(config) {
        return postgres::migrate_schema(url.expose_secret()).await;
    }
    sqlite::migrate_schema(url.expose_secret()).await
}

/// True if the ledger has this tenant. Changes no data.
///
/// # Errors
/// If there is no ledger yet, or the ledger cannot be read.
pub async fn has_tenant(config: &Config, tenant: &TenantId) -> StoreResult<bool> {
    let url = config.ledger_url();
    #[cfg(feature = "postgres")]
    if is_postgres(config) {
        return postgres::has_tenant(url.expose_secret(), tenant).await;
    }
    sqlite::has_tenant(url.expose_secret(), tenant).await
}

pub(super) fn is_postgres(config: &Config) -> bool {
    let url = config.ledger_url();
    let url = url.expose_secret();
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}
