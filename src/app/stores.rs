//! The configured stores, and the services that the use cases need on top of them.

use std::{sync::Arc, time::Duration};

#[cfg(feature = "qdrant")]
use super::qdrant;
#[cfg(feature = "redis")]
use super::redis;
use super::{ledger, models};
use crate::config::{BufferSection, Config};
use colloquy_dialogue::{Services, prompt::Templates, recall::MemoryCache};
use colloquy_models::openai::HttpClient;
use colloquy_ports::{
    buffer::BufferStore,
    clock::{Clock, IdSource},
    disabled_tenants::DisabledTenants,
    vectors::{FactIndex, PointSource},
};
use colloquy_stores::in_process::{
    buffers::{BufferLimits, InProcessBuffers},
    counted_index::CountedFactIndex,
    fact_index::{FactIndexOptions, InProcessFactIndex},
};
use colloquy_telemetry as telemetry;

const MIB: u64 = 1024 * 1024;
/// Fact bodies cached on this node: two hundred for each of a thousand NPCs.
const CACHED_FACT_BODIES: u64 = 200_000;

/// The parts of the fact index.
pub(super) struct FactIndexes {
    /// The part in this process: the whole index, or only the word counts if the points are remote.
    pub local_index: Arc<dyn FactIndex>,
    /// The remote store of the points, if any.
    elsewhere: Option<Arc<dyn FactIndex>>,
}

impl FactIndexes {
    /// Passes every searched index through `wrap`.
    pub(super) fn try_map<E>(
        self,
        wrap: impl FnOnce(Arc<dyn FactIndex>) -> Result<Arc<dyn FactIndex>, E>,
    ) -> Result<Self, E> {
        let Self { local_index, elsewhere } = self;
        Ok(match elsewhere {
            Some(points) => Self {
                local_index,
                elsewhere: Some(wrap(points)?),
            },
            None => Self {
                local_index: wrap(local_index)?,
                elsewhere: None,
            },
        })
    }

    /// Returns one index over both parts. `local_index` is the part in this process, or a wrapper that also notifies
    /// other nodes.
    pub(super) fn with_held_index(&self, local_index: Arc<dyn FactIndex>) -> Arc<dyn FactIndex> {
        match &self.elsewhere {
            Some(points) => Arc::new(CountedFactIndex::new(points.clone(), local_index)),
            None => local_index,
        }
    }
}

/// Opens the stores and migrates the ledger's schema. Commands such as `reindex` need no actors and no server
/// besides.
///
/// # Errors
/// Names the store that cannot be opened or reached, for the operator.
pub async fn open_services(config: &Config, clock: Arc<dyn Clock>, ids: Arc<IdSource>) -> anyhow::Result<Services> {
    open_stores(config, clock, ids).await.map(|(services, _)| services)
}

/// Opens the stores as [`open_services`] does, and also returns the parts of the index.
pub(super) async fn open_stores(
    config: &Config,
    clock: Arc<dyn Clock>,
    ids: Arc<IdSource>,
) -> anyhow::Result<(Services, FactIndexes)> {
    let http = HttpClient::new()?.with_trace_headers(telemetry::outgoing_trace_headers);
    let embedder = models::connect_embedder(&config.embedder, &http).await?;
    let models = models::build_models(config, &http, &embedder.info().model, clock.clone())?;
    let prompts = Templates::load(config.prompt.templates_dir.as_deref())?;

    // Vectors of different lengths cannot be compared, even from the same model.
    let embedding_model = format!("{}@{}", embedder.info().model, embedder.info().dimensions);
    let (ledger, points) = ledger::open_ledger(config, embedding_model.clone(), clock.clone()).await?;
    let indexes = open_indexes(config, points, &embedding_model, embedder.info().dimensions)?;
    let buffers = open_buffers(&config.buffer).await?;
    let services = Services {
        settings: Arc::new(config.dialogue_settings()),
        ledger,
        buffers,
        index: indexes.with_held_index(indexes.local_index.clone()),
        embedder,
        models: Arc::new(models),
        prompts: Arc::new(prompts),
        memory_cache: Arc::new(MemoryCache::new(CACHED_FACT_BODIES)),
        reconcile_backoff: Arc::default(),
        disabled: DisabledTenants::default(),
        clock,
        ids,
    };
    Ok((services, indexes))
}

/// The server starts even if Qdrant is unreachable. The index is filled from the ledger later.
#[cfg_attr(
    not(feature = "qdrant"),
    expect(
        unused_variables,
        clippy::unnecessary_wraps,
        reason = "only Qdrant can fail, and keeps vectors of several models apart"
    )
)]
fn open_indexes(
    config: &Config,
    points: Arc<dyn PointSource>,
    embedding_model: &str,
    dimensions: usize,
) -> anyhow::Result<FactIndexes> {
    let section = &config.vectors;
    let memory = FactIndexOptions {
        memory_bytes: section.memory_mib * MIB,
    };
    #[cfg(feature = "qdrant")]
    if !section.is_embedded() {
        let index = qdrant::open_index(section, embedding_model, dimensions)?;
        return Ok(FactIndexes {
            local_index: Arc::new(InProcessFactIndex::new_term_counter(points, memory)),
            elsewhere: Some(Arc::new(index)),
        });
    }
    Ok(FactIndexes {
        local_index: Arc::new(InProcessFactIndex::new(points, memory)),
        elsewhere: None,
    })
}

/// The server starts even if Redis is unreachable. The ledger has the same data.
#[cfg_attr(not(feature = "redis"), expect(clippy::unused_async, reason = "only Redis is asked"))]
async fn open_buffers(section: &BufferSection) -> anyhow::Result<Arc<dyn BufferStore>> {
    let ttl = Duration::from_secs(section.ttl_s);
    #[cfg(feature = "redis")]
    if !section.is_in_process() {
        return redis::open_buffers(section, ttl).await;
    }
    Ok(Arc::new(InProcessBuffers::new(BufferLimits {
        max_bytes: section.memory_mib * MIB,
        ttl,
    })))
}
