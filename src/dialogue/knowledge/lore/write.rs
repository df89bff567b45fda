//! Writes of lore: every entry gets its vector before the write.

use crate::{Services, remember::ManualEditError};
use colloquy_core::{ids::WorldId, scope::TenantScope};
use colloquy_memory::lore::LoreEntry;
use colloquy_ports::{
    ledger::{
        audit::Edit,
        authored::PutOutcome,
        lore::{EmbeddedLore, ImportOutcome},
        scenarios::Embedding,
    },
    llm::LlmError,
};

/// The number of texts in one call of the embedder.
const EMBED_BATCH: usize = 32;

/// Embeds and writes an entry. An entry that the ledger would refuse is not embedded.
///
/// # Errors
/// The embedder or the ledger failed.
pub async fn write_lore(
    services: &Services,
    scope: &TenantScope,
    entry: LoreEntry,
    if_version: Option<u32>,
    edit: &Edit,
) -> Result<PutOutcome, ManualEditError> {
    let store = &services.ledger.lore;
    if let Some(refused) = store.check_put(scope, &entry, if_version).await? {
        return Ok(refused);
    }
    let embedded = embed_lore(services, scope, vec![entry]).await?;
    let Some(lore) = embedded.first() else {
        return Err(LlmError::Broken("no vector came back".to_owned()).into());
    };
    Ok(store.put_lore(scope, lore, if_version, edit).await?)
}

/// Embeds and writes entries of one world, all or none. The ids differ.
///
/// # Errors
/// The embedder or the ledger failed.
pub async fn import_lore(
    services: &Services,
    scope: &TenantScope,
    world: &WorldId,
    entries: Vec<LoreEntry>,
    edit: &Edit,
) -> Result<ImportOutcome, ManualEditError> {
    let embedded = embed_lore(services, scope, entries).await?;
    Ok(services.ledger.lore.import_lore(scope, world, &embedded, edit).await?)
}

/// Returns the entries with their vectors, in the same order.
///
/// # Errors
/// The embedder failed.
pub async fn embed_lore(
    services: &Services,
    scope: &TenantScope,
    entries: Vec<LoreEntry>,
) -> Result<Vec<EmbeddedLore>, LlmError> {
    let model = &services.embedder.info().model;
    let mut vectors = Vec::with_capacity(entries.len());
    for batch in entries.chunks(EMBED_BATCH) {
        let texts: Vec<String> = batch.iter().map(|entry| entry.text.embedded_text()).collect();
        let batch_vectors = services.embed_passages(scope, &texts).await?;
        if batch_vectors.len() != texts.len() {
            let message = format!("{} vectors came back for {} texts", batch_vectors.len(), texts.len());
            return Err(LlmError::Broken(message));
        }
        vectors.extend(batch_vectors);
    }
    let embedded = entries.into_iter().zip(vectors).map(|(entry, vector)| EmbeddedLore {
        entry,
        embedding: Embedding {
            model: model.clone(),
            vector,
        },
    });
    Ok(embedded.collect())
}
