//! After the embedder was changed: gives facts vectors of the one in use. Until then such facts are
//! found by words, importance and age, and by nothing else.

use super::{JobError, relay_outbox};
use crate::{
    dialogue::Services,
    ids::FactId,
    ports::{embedder::EmbedAs, llm::LlmError},
    tenancy::TenantScope,
};

/// Texts embedded in one call.
const BATCH: u32 = 32;

/// Embeds a tenant's facts that have no vector of the embedder in use, and indexes them. Returns how
/// many. What was done before a failure is kept.
pub async fn embed_missing(services: &Services, scope: &TenantScope) -> Result<u64, JobError> {
    let facts = &services.ledger.facts;
    let (mut after, mut done) = (None, 0);
    loop {
        let missing = facts.unembedded(scope, after, BATCH).await?;
        let Some((last, _)) = missing.last() else {
            return Ok(done);
        };
        after = Some(*last);
        let (ids, texts): (Vec<FactId>, Vec<String>) = missing.into_iter().unzip();
        let embedder = services.embedder.as_ref();
        let (vectors, _) = services.models.embed(scope, embedder, EmbedAs::Passage, &texts).await;
        let vectors = vectors?;
        if vectors.len() != ids.len() {
            let wrong = format!("{} vectors came back for {} texts", vectors.len(), ids.len());
            return Err(LlmError::Broken(wrong).into());
        }
        done += ids.len() as u64;
        let rows: Vec<(FactId, Vec<f32>)> = ids.into_iter().zip(vectors).collect();
        facts.put_embeddings(scope, &rows).await?;
        relay_outbox(services).await?;
    }
}

/// The same for every tenant that has such facts, in the background of a server: says so, and what
/// to do if it does not work.
pub async fn embed_missing_of_all(services: Services) {
    let tenants = match services.ledger.tenants.all().await {
        Ok(tenants) => tenants,
        Err(error) => {
            tracing::warn!(%error, "whether facts wait for a vector is not known");
            return;
        }
    };
    for tenant in tenants {
        let scope = TenantScope::new(tenant.id.clone());
        match services.ledger.facts.unembedded(&scope, None, 1).await {
            Ok(missing) if missing.is_empty() => continue,
            Ok(_) => tracing::warn!(
                tenant = %tenant.id,
                embedder = services.embedder.info().model,
                "the embedder was changed: facts that it has not embedded are found by words only until it has"
            ),
            Err(error) => {
                tracing::warn!(tenant = %tenant.id, %error, "whether facts wait for a vector is not known");
                continue;
            }
        }
        match embed_missing(&services, &scope).await {
            Ok(facts) => tracing::info!(tenant = %tenant.id, facts, "embedded what another embedder had made"),
            Err(error) => tracing::warn!(
                tenant = %tenant.id,
                %error,
                "facts of another embedder were not all embedded; run `colloquy reindex --embed`"
            ),
        }
    }
}
