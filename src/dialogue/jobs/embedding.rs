//! After the embedder was changed: gives facts and scenarios vectors of the one in use. Until then such facts are
//! found by words, importance and age, and by nothing else; such scenarios by words.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use super::{JobError, relay_outbox};
use crate::{
    dialogue::{Services, scenarios},
    ids::{FactId, TenantId},
    ports::{StoreResult, embedder::EmbedAs, ledger::urgency::in_background, llm::LlmError},
    tenancy::TenantScope,
};

/// Texts embedded in one call.
const BATCH: u32 = 32;
/// How long tenants with whom it did not work are left alone.
const AGAIN_AFTER: Duration = Duration::from_mins(1);
/// When a server looks once more: until a rollout is over, nodes that run with the embedder of before go on writing. Not
/// again and again, or servers with two embedders would undo each other's work for good.
const ONCE_MORE_AFTER: Duration = Duration::from_hours(1);

/// Embeds a tenant's facts that have no vector of the embedder in use, and indexes them, and its scenarios. Returns how
/// many of both. What was done before a failure is kept.
pub async fn embed_missing(services: &Services, scope: &TenantScope) -> Result<u64, JobError> {
    let mut done = embed_scenarios(services, scope).await?;
    // Nodes that are started together begin elsewhere, so that nearly nothing is embedded by two of them.
    let begin = somewhere(services, scope).await?;
    for after in [begin, None] {
        done += embed_facts(services, scope, after).await?;
    }
    Ok(done)
}

/// A random moment, as an id, between the first fact without a vector and now.
async fn somewhere(services: &Services, scope: &TenantScope) -> StoreResult<Option<FactId>> {
    let missing = services.ledger.facts.unembedded(scope, None, 1).await?;
    let now: FactId = services.ids.next();
    Ok(missing.first().map(|(first, _)| {
        let span = now.as_u128().saturating_sub(first.as_u128());
        let random = u128::from(RandomState::new().hash_one(0) >> u32::BITS);
        FactId::from_u128(first.as_u128() + (span >> u32::BITS) * random)
    }))
}

async fn embed_facts(services: &Services, scope: &TenantScope, mut after: Option<FactId>) -> Result<u64, JobError> {
    let (facts, mut done) = (&services.ledger.facts, 0);
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

/// The same for every tenant, in the background of a server, until all of it is done.
pub async fn keep_embedded(services: Services) {
    in_background(async {
        embed_all(&services).await;
        tokio::time::sleep(ONCE_MORE_AFTER).await;
        embed_all(&services).await;
    })
    .await;
}

async fn embed_all(services: &Services) {
    let mut left: Option<Vec<TenantId>> = None;
    loop {
        match embed_missing_of(services, left.take()).await {
            Ok(behind) if behind.is_empty() => return,
            Ok(behind) => left = Some(behind),
            Err(error) => tracing::warn!(%error, "whether facts wait for a vector is not known"),
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// [`embed_missing`] of these tenants, or of all; says so. Returns those with whom it did not work.
pub async fn embed_missing_of(services: &Services, tenants: Option<Vec<TenantId>>) -> StoreResult<Vec<TenantId>> {
    let tenants = if let Some(tenants) = tenants {
        tenants
    } else {
        let all = services.ledger.tenants.all().await?;
        all.into_iter().map(|tenant| tenant.id).collect()
    };
    let mut behind = Vec::new();
    for tenant in tenants {
        let scope = TenantScope::new(tenant);
        let tenant = scope.tenant();
        let model = &services.embedder.info().model;
        let facts = services.ledger.facts.unembedded(&scope, None, 1);
        let scenarios = services.ledger.scenarios.unembedded(&scope, model, 1);
        match tokio::try_join!(facts, scenarios) {
            Ok((facts, scenarios)) if facts.is_empty() && scenarios.is_empty() => continue,
            Ok(_) => tracing::warn!(
                %tenant,
                embedder = model,
                "the embedder was changed: facts that it has not embedded are found by words only until it has"
            ),
            Err(error) => {
                tracing::warn!(%tenant, %error, "whether facts wait for a vector is not known");
                behind.push(tenant.clone());
                continue;
            }
        }
        match embed_missing(services, &scope).await {
            Ok(facts) => tracing::info!(%tenant, facts, "embedded what another embedder had made"),
            Err(error) => {
                tracing::warn!(%tenant, %error, "facts of another embedder were not all embedded; they are tried again");
                behind.push(tenant.clone());
            }
        }
    }
    Ok(behind)
}
