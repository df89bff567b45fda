//! The stores in Redis, as configured by `[buffer]`.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use secrecy::ExposeSecret as _;

use crate::config::BufferSection;
use colloquy_ports::{StoreError, StoreResult, buffer::BufferStore, owners::OwnerCache};
use colloquy_stores::redis::{RedisOptions, buffers::RedisBuffers, owners::RedisOwners};

/// How long an owner is remembered. A stale owner costs one forwarded request, and is forgotten then.
const OWNER_CACHE_TTL: Duration = Duration::from_mins(1);

fn options(section: &BufferSection) -> RedisOptions {
    RedisOptions {
        url: section.url.expose_secret().to_owned(),
        cluster: section.cluster,
        timeout: Duration::from_millis(section.timeout_ms),
    }
}

/// Opens the buffers. A Redis that is down does not stop the start: the ledger has all that it keeps.
pub(super) async fn open_buffers(section: &BufferSection, ttl: Duration) -> anyhow::Result<Arc<dyn BufferStore>> {
    let buffers = RedisBuffers::new(&options(section), ttl).context("cannot use buffer.url")?;
    match buffers.ping().await {
        Ok(()) => {}
        Err(error @ StoreError::Unavailable(_)) => {
            tracing::warn!(%error, "the buffer store is unavailable; buffers are read from the ledger");
        }
        Err(error) => return Err(error).context("cannot use buffer.url"),
    }
    Ok(Arc::new(buffers))
}

/// Asks the Redis of the buffers.
pub(super) async fn ping(section: &BufferSection, ttl: Duration) -> StoreResult<()> {
    RedisBuffers::new(&options(section), ttl)?.ping().await
}

/// Opens the cache of dialogues' owners.
pub(super) fn open_owner_cache(section: &BufferSection) -> anyhow::Result<Arc<dyn OwnerCache>> {
    let owners = RedisOwners::new(&options(section), OWNER_CACHE_TTL).context("cannot use buffer.url")?;
    Ok(Arc::new(owners))
}
