//! After the embedder was changed: gives facts and scenarios vectors of the one in use. Until then such facts are
//! found by words, importance and age, and by nothing else; such scenarios by words.

use super::{JobError, relay_outbox};
use crate::{
    dialogue::{Services, scenarios},
    ids::FactId,
    ports::{embedder::EmbedAs, llm::LlmError},
    tenancy::TenantScope,
};

/// Texts embedded in one call.
const BATCH: u32 = 32;

/// Embeds a tenant's facts that have no vector of the embedder in use, and indexes them, and its scenarios. Returns how
/// many of both. What was done before a failure is kept.
pub async fn embed_missing(services: &Services, scope: &TenantScope) -> Result<u64, JobError> {
    let facts = &services.ledger.facts;
    let (mut after, mut done) = (None, embed_scenarios(services, scope).await?);
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

async fn embed_scenarios(services: &Services, scope: &TenantScope) -> Result<u64, JobError> {
    let (store, model) = (&services.ledger.scenarios, &services.embedder.info().model);
    let mut done = 0;
    loop {
        let missing = store.unembedded(scope, model, BATCH).await?;
        if missing.is_empty() {
            return Ok(done);
        }
        let embeddings = scenarios::embed(services, scope, &missing).await?;
        if embeddings.len() != missing.len() {
            let wrong = format!("{} vectors came back for {} texts", embeddings.len(), missing.len());
            return Err(LlmError::Broken(wrong).into());
        }
        for (scenario, embedding) in missing.iter().zip(&embeddings) {
            store.embed(scope, scenario, embedding).await?;
        }
        done += missing.len() as u64;
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
        let model = &services.embedder.info().model;
        let facts = services.ledger.facts.unembedded(&scope, None, 1);
        let scenarios = services.ledger.scenarios.unembedded(&scope, model, 1);
        match tokio::try_join!(facts, scenarios) {
            Ok((facts, scenarios)) if facts.is_empty() && scenarios.is_empty() => continue,
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
