//! The stores as configured, and what the use cases need on top of them.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use secrecy::ExposeSecret as _;

use super::{ledger, models};
use crate::{
    adapters::{
        in_process::{
            buffers::{BufferLimits, InProcessBuffers},
            fact_index::{FactIndexOptions, InProcessFactIndex},
        },
        openai::HttpClient,
        qdrant::{QdrantFactIndex, QdrantOptions},
        redis::{RedisOptions, buffers::RedisBuffers},
    },
    config::{BufferSection, Config},
    dialogue::{Services, prompt::Templates, recall::BodyCache},
    ports::{
        StoreError,
        buffer::BufferStore,
        clock::{Clock, IdSource},
        vectors::{FactIndex, PointSource},
    },
    telemetry,
};

const MIB: u64 = 1024 * 1024;

/// Opens the stores, bringing the ledger's schema up to date: all that a command such as `reindex`
/// needs, without actors and without a server.
///
/// # Errors
/// With what cannot be opened or reached, for the operator.
pub async fn open_services(config: &Config, clock: Arc<dyn Clock>, ids: Arc<IdSource>) -> anyhow::Result<Services> {
    let http = HttpClient::new()?.traced(telemetry::outgoing);
    let embedder = models::embedder(&config.embedder, &http).await?;
    let models = models::models(config, &http, &embedder.info().model, clock.clone())?;
    let prompts = Templates::load(config.prompt.templates_dir.as_deref())?;

    // The same model makes vectors of several lengths, which do not compare either.
    let embedding_model = format!("{}@{}", embedder.info().model, embedder.info().dimensions);
    let (ledger, points) = ledger::open(config, embedding_model.clone(), clock.clone()).await?;
    let index = index(config, points, embedding_model, embedder.info().dimensions)?;
    let buffers = buffers(&config.buffer).await?;
    Ok(Services {
        settings: Arc::new(config.dialogue()),
        ledger,
        buffers,
        index,
        embedder,
        models: Arc::new(models),
        prompts: Arc::new(prompts),
        bodies: Arc::new(BodyCache::new(config.recall.body_cache)),
        resting: Arc::default(),
        clock,
        ids,
    })
}

/// A Qdrant that is not there yet is no reason not to start either: it is filled from the ledger once it is.
fn index(
    config: &Config,
    points: Arc<dyn PointSource>,
    embedding_model: String,
    dimensions: usize,
) -> anyhow::Result<Arc<dyn FactIndex>> {
    let section = &config.vectors;
    if section.is_embedded() {
        let options = FactIndexOptions {
            memory_bytes: section.memory_mib * MIB,
        };
        return Ok(Arc::new(InProcessFactIndex::new(points, options)));
    }
    let options = QdrantOptions {
        url: section.url.clone(),
        api_key: section.api_key.clone(),
        collection: section.collection.clone(),
        timeout: Duration::from_millis(section.timeout_ms),
        write_timeout: Duration::from_millis(section.write_timeout_ms),
        hnsw_ef: section.hnsw_ef,
        embedding_model,
        dimensions,
    };
    let index = QdrantFactIndex::new(options).context("cannot use vectors.url")?;
    Ok(Arc::new(index))
}

/// A Redis that is not there yet is no reason not to start: what it keeps is also in the ledger.
async fn buffers(section: &BufferSection) -> anyhow::Result<Arc<dyn BufferStore>> {
    let (url, ttl) = (section.url.expose_secret(), Duration::from_secs(section.ttl_s));
    if url == "memory:" {
        return Ok(Arc::new(InProcessBuffers::new(BufferLimits {
            max_bytes: section.memory_mib * MIB,
            ttl,
        })));
    }
    let options = RedisOptions {
        url: url.to_owned(),
        cluster: section.cluster,
        timeout: Duration::from_millis(section.timeout_ms),
    };
    let buffers = RedisBuffers::new(&options, ttl).context("cannot use buffer.url")?;
    match buffers.ping().await {
        Ok(()) => {}
        Err(error @ StoreError::Unavailable(_)) => tracing::warn!(%error, "buffers are read from the ledger for now"),
        Err(error) => return Err(error).context("cannot use buffer.url"),
    }
    Ok(Arc::new(buffers))
}
