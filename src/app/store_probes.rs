//! Questions to the configured stores that change nothing, for `colloquy doctor`.

use std::path::PathBuf;
#[cfg(feature = "redis")]
use std::time::Duration;

use chrono::{DateTime, Utc};
use secrecy::ExposeSecret as _;

#[cfg(feature = "qdrant")]
use super::qdrant;
#[cfg(feature = "redis")]
use super::redis;
use super::{demo, ledger};
use crate::config::Config;
#[cfg(feature = "qdrant")]
use colloquy_ports::vectors::FactIndex as _;
use colloquy_ports::{StoreError, StoreResult};
#[cfg(feature = "postgres")]
use colloquy_stores::postgres;

/// Reads a row of the ledger.
///
/// # Errors
/// The ledger does not exist yet, is of another version, or cannot be read.
pub async fn read_ledger(config: &Config) -> StoreResult<()> {
    let tenant = demo::TENANT
        .parse()
        .map_err(|_| StoreError::Rejected("the name of the demo's tenant".to_owned()))?;
    ledger::has_tenant(config, &tenant).await.map(drop)
}

/// Returns the file of an embedded ledger; `None` for Postgres.
#[must_use]
pub fn ledger_file(config: &Config) -> Option<PathBuf> {
    let url = config.ledger_url();
    let path = url.expose_secret().strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    Some(path.split('?').next().unwrap_or(path).into())
}

/// Returns the time of the ledger's own clock; `None` for an embedded ledger, which has none.
///
/// # Errors
/// The ledger cannot be asked.
#[cfg_attr(
    not(feature = "postgres"),
    expect(clippy::unused_async, reason = "only Postgres has a clock of its own")
)]
pub async fn ledger_time(config: &Config) -> StoreResult<Option<DateTime<Utc>>> {
    #[cfg(feature = "postgres")]
    if ledger::is_postgres(config) {
        return postgres::ledger_time(config.ledger_url().expose_secret())
            .await
            .map(Some);
    }
    let _ = config;
    Ok(None)
}

/// Asks Redis, if buffers are in Redis. True if there is a Redis to ask.
///
/// # Errors
/// Redis does not answer, or refuses.
#[cfg_attr(not(feature = "redis"), expect(clippy::unused_async, reason = "only Redis is asked"))]
pub async fn ping_buffers(config: &Config) -> StoreResult<bool> {
    #[cfg(feature = "redis")]
    if !config.buffer.is_in_process() {
        return redis::ping(&config.buffer, Duration::from_secs(config.buffer.ttl_s))
            .await
            .map(|()| true);
    }
    let _ = config;
    Ok(false)
}

/// Asks Qdrant, if the index is in Qdrant. Nothing is made there. True if there is a Qdrant to ask.
///
/// # Errors
/// Qdrant does not answer, or refuses.
#[cfg_attr(
    not(feature = "qdrant"),
    expect(clippy::unused_async, reason = "only Qdrant is asked")
)]
pub async fn ping_index(config: &Config, dimensions: usize) -> StoreResult<bool> {
    #[cfg(feature = "qdrant")]
    if !config.vectors.is_embedded() {
        let model = config.embedder.model.as_deref().unwrap_or("offline");
        let index = qdrant::open_index(&config.vectors, model, dimensions)
            .map_err(|error| StoreError::Rejected(error.to_string()))?;
        return index.prepare_index(false).await.map(|_| true);
    }
    let _ = (config, dimensions);
    Ok(false)
}
