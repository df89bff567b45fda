//! The fact index in Qdrant, as configured.

use std::time::Duration;

use anyhow::Context as _;

use crate::config::VectorsSection;
use colloquy_stores::qdrant::{QdrantFactIndex, QdrantOptions};

/// Time limit of a write, and of a change of collections. No line waits for a write, so that the time is twenty times
/// the default of a search.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to the Qdrant at `vectors.url` on first use. The index holds vectors of `embedding_model` with
/// `dimensions` numbers each.
pub(super) fn open_index(
    section: &VectorsSection,
    embedding_model: &str,
    dimensions: usize,
) -> anyhow::Result<QdrantFactIndex> {
    let options = QdrantOptions {
        url: section.url.clone(),
        api_key: section.api_key.clone(),
        collection: section.collection.clone(),
        timeout: Duration::from_millis(section.timeout_ms),
        write_timeout: WRITE_TIMEOUT,
        embedding_model: embedding_model.to_owned(),
        dimensions,
    };
    QdrantFactIndex::new(options).context("cannot use vectors.url")
}
