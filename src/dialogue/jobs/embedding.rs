//! Re-embeds facts, scenarios, lore and episodes after a change of the embedder. Until then, recall finds such facts only by
//! words, importance and age, and such scenarios and lore only by words.

use std::time::Duration;

use rand::seq::SliceRandom as _;

use super::{outbox::relay_outbox, outcome::JobError};
use crate::{
    Services,
    knowledge::{lore, scenarios},
    models::run_admitted,
};
use colloquy_core::{
    ids::{FactId, TenantId},
    scope::TenantScope,
};
use colloquy_ports::{StoreResult, ledger::priority::in_background, llm::LlmError};

/// The text of a call that only finds out whether the embedder answers.
const PROBE_TEXT: &str = "hello";
/// The number of texts in one call.
const EMBED_BATCH: u32 = 32;
/// The number of calls in a stretch. With three nodes, about a fifth of the calls are made twice.
const CALLS_PER_STRETCH: u32 = 32;
/// The pause before failed tenants are tried again.
const RETRY_TENANTS_AFTER: Duration = Duration::from_mins(1);
/// The time of a server's second pass. During a rollout, nodes with the previous embedder continue to write. Further
/// passes would let servers with two embedders undo each other's work forever.
const SECOND_PASS_AFTER: Duration = Duration::from_hours(1);

/// Embeds a tenant's scenarios, lore, facts and episodes without a vector of the present embedder, and indexes the
/// facts. Returns the total number. Work before a failure is stored. A refusal of a text is returned only if nothing
/// else failed. The operator wants this work: the tenant's budgets do not stop it.
pub async fn embed_missing(services: &Services, scope: &TenantScope) -> Result<u64, JobError> {
    run_admitted(async {
        let outcomes = [
            embed_scenarios(services, scope).await,
            embed_lore(services, scope).await,
            embed_facts(services, scope).await,
            embed_episodes(services, scope).await,
        ];
        let mut embedded_count = 0;
        let mut refused = None;
        for outcome in outcomes {
            match outcome {
                Ok(count) => embedded_count += count,
                Err(error) if is_refusal(&error) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        refused.map_or(Ok(embedded_count), Err)
    })
    .await
}

/// True if the embedder refuses a text. The same call would be refused again.
const fn is_refusal(error: &JobError) -> bool {
    matches!(error, JobError::Model(LlmError::Refused(_)))
}

/// Embeds facts stretch by stretch. The calls of a stretch run in random order: nodes that started together work on the
/// same stretch, but seldom on the same call. A text that the embedder refuses delays no other text.
async fn embed_facts(services: &Services, scope: &TenantScope) -> Result<u64, JobError> {
    let facts = &services.ledger.facts;
    let mut embedded_count = 0;
    let mut after = None;
    let mut refused = None;
    loop {
        let stretch = facts
            .list_unembedded(scope, after, CALLS_PER_STRETCH * EMBED_BATCH)
            .await?;
        let Some((end, _)) = stretch.last() else {
            return refused.map_or(Ok(embedded_count), Err);
        };
        let ends = stretch.chunks(EMBED_BATCH as usize).filter_map(|call| call.last());
        let mut calls: Vec<(Option<FactId>, FactId)> = Vec::new();
        for (last, _) in ends {
            calls.push((calls.last().map_or(after, |(_, previous)| Some(*previous)), *last));
        }
        after = Some(*end);
        calls.shuffle(&mut rand::rng());
        for (after, last) in calls {
            // Fewer facts are missing if another node has embedded some meanwhile.
            let mut missing = facts.list_unembedded(scope, after, EMBED_BATCH).await?;
            missing.retain(|(fact, _)| *fact <= last);
            if missing.is_empty() {
                continue;
            }
            let (count, refusal) = embed_and_store_facts(services, scope, missing).await?;
            embedded_count += count;
            refused = refusal.or(refused);
        }
    }
}

/// The vectors of texts, by the texts' ids, and the refusal of the others.
struct EmbeddedTexts<I> {
    vectors: Vec<(I, Vec<f32>)>,
    refusal: Option<JobError>,
}

/// Embeds texts in one call. After a refusal, the texts are embedded one by one, to find the refused text.
async fn embed_or_refuse<I: Copy>(
    services: &Services,
    scope: &TenantScope,
    missing: Vec<(I, String)>,
) -> Result<EmbeddedTexts<I>, JobError> {
    let mut embedded = EmbeddedTexts {
        vectors: Vec::with_capacity(missing.len()),
        refusal: None,
    };
    let mut calls = vec![missing];
    while let Some(call) = calls.pop() {
        let (ids, texts): (Vec<I>, Vec<String>) = call.iter().cloned().unzip();
        match services.embed_passages(scope, &texts).await {
            Ok(vectors) if vectors.len() != ids.len() => {
                let message = format!("{} vectors came back for {} texts", vectors.len(), ids.len());
                return Err(LlmError::Broken(message).into());
            }
            Ok(vectors) => embedded.vectors.extend(ids.into_iter().zip(vectors)),
            Err(error) if !error.is_transient() => {
                embedded.refusal = Some(error.into());
                if call.len() > 1 {
                    calls.extend(call.into_iter().map(|text| vec![text]));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(embedded)
}

/// Embeds facts. Returns the number of embedded facts, and the refusal of the others.
async fn embed_and_store_facts(
    services: &Services,
    scope: &TenantScope,
    missing: Vec<(FactId, String)>,
) -> Result<(u64, Option<JobError>), JobError> {
    let EmbeddedTexts { vectors, refusal } = embed_or_refuse(services, scope, missing).await?;
    if !vectors.is_empty() {
        services.ledger.facts.store_embeddings(scope, &vectors).await?;
        relay_outbox(services).await?;
    }
    Ok((vectors.len() as u64, refusal))
}

/// Embeds these facts of a tenant. A fact whose text the embedder refuses stays without a vector.
pub(crate) async fn embed_listed_facts(
    services: &Services,
    scope: &TenantScope,
    facts: Vec<(FactId, String)>,
) -> Result<(), JobError> {
    for call in facts.chunks(EMBED_BATCH as usize) {
        embed_and_store_facts(services, scope, call.to_vec()).await?;
    }
    Ok(())
}

/// Embeds what this node stored without vectors, if the embedder is back. Returns the tenants whose memories can now be
/// compared. Another node, or a restart, finds such facts by the marks of their memories, and such episodes by
/// [`run_embedding_backfill`].
pub async fn embed_backlog(services: &Services) -> Vec<TenantScope> {
    let tenants: Vec<TenantId> = services.memory_cache.unembedded.0.lock().iter().cloned().collect();
    let mut embedded = Vec::new();
    for tenant in tenants {
        let scope = TenantScope::new(tenant);
        // A short call finds out whether the embedder is back. To look for what lacks vectors costs much more.
        if services.embed_passages(&scope, &[PROBE_TEXT.to_owned()]).await.is_err() {
            continue;
        }
        services.memory_cache.unembedded.0.lock().remove(scope.tenant());
        match embed_missing(services, &scope).await {
            Ok(count) => {
                tracing::info!(tenant = %scope.tenant(), count, "embedded what was stored while the embedder was away");
            }
            Err(error) if is_refusal(&error) => {
                tracing::warn!(tenant = %scope.tenant(), %error, "the embedder refuses a text of an outage");
            }
            Err(error) => {
                tracing::warn!(tenant = %scope.tenant(), %error, "not all facts of an outage have a vector yet");
                services.memory_cache.unembedded.record_tenant(&scope);
                continue;
            }
        }
        embedded.push(scope);
    }
    if !embedded.is_empty() {
        // Marked memories that waited for the embedder are compared at once.
        services.reconcile_backoff.clear_all();
    }
    embedded
}

/// Embeds episodes. Until then, a turn finds them by age and importance alone. A text that the embedder refuses delays
/// no other text.
async fn embed_episodes(services: &Services, scope: &TenantScope) -> Result<u64, JobError> {
    let store = &services.ledger.episodes;
    let model = &services.embedder.info().model;
    let mut embedded_count = 0;
    let mut after = None;
    let mut refused = None;
    loop {
        let missing = store.list_unembedded(scope, model, after, EMBED_BATCH).await?;
        let Some((last, _)) = missing.last() else {
            return refused.map_or(Ok(embedded_count), Err);
        };
        after = Some(*last);
        let EmbeddedTexts { vectors, refusal } = embed_or_refuse(services, scope, missing).await?;
        embedded_count += vectors.len() as u64;
        refused = refusal.or(refused);
        store.store_embeddings(scope, model, &vectors).await?;
    }
}

async fn embed_scenarios(services: &Services, scope: &TenantScope) -> Result<u64, JobError> {
    let store = &services.ledger.scenarios;
    let model = &services.embedder.info().model;
    let mut embedded_count = 0;
    loop {
        let missing = store.list_unembedded(scope, model, EMBED_BATCH).await?;
        if missing.is_empty() {
            return Ok(embedded_count);
        }
        let embeddings = scenarios::embed_scenarios(services, scope, &missing).await?;
        if embeddings.len() != missing.len() {
            let message = format!("{} vectors came back for {} texts", embeddings.len(), missing.len());
            return Err(LlmError::Broken(message).into());
        }
        for (scenario, embedding) in missing.iter().zip(&embeddings) {
            store.store_embedding(scope, scenario, embedding).await?;
        }
        embedded_count += missing.len() as u64;
    }
}

async fn embed_lore(services: &Services, scope: &TenantScope) -> Result<u64, JobError> {
    let store = &services.ledger.lore;
    let model = &services.embedder.info().model;
    let mut embedded_count = 0;
    loop {
        let missing = store.list_unembedded(scope, model, EMBED_BATCH).await?;
        if missing.is_empty() {
            return Ok(embedded_count);
        }
        let embedded = lore::embed_lore(services, scope, missing).await?;
        store.store_embeddings(scope, &embedded).await?;
        embedded_count += embedded.len() as u64;
    }
}

/// Runs [`embed_missing`] for every tenant, in the background of a server, until all work is done.
pub async fn run_embedding_backfill(services: Services) {
    in_background(async {
        // A failing tenant must not delay the second pass of the other tenants.
        let first_pass = tokio::time::timeout(SECOND_PASS_AFTER, embed_all_tenants(&services));
        tokio::join!(first_pass, tokio::time::sleep(SECOND_PASS_AFTER)).0.ok();
        embed_all_tenants(&services).await;
    })
    .await;
}

async fn embed_all_tenants(services: &Services) {
    let mut remaining: Option<Vec<TenantId>> = None;
    loop {
        match embed_missing_of_tenants(services, remaining.take()).await {
            Ok(lagging) if lagging.is_empty() => return,
            Ok(lagging) => remaining = Some(lagging),
            Err(error) => tracing::warn!(%error, "whether facts wait for a vector is not known"),
        }
        tokio::time::sleep(RETRY_TENANTS_AFTER).await;
    }
}

/// Runs [`embed_missing`] for these tenants, or for all, and logs the work. Returns the failed tenants.
pub async fn embed_missing_of_tenants(
    services: &Services,
    tenants: Option<Vec<TenantId>>,
) -> StoreResult<Vec<TenantId>> {
    let tenants = if let Some(tenants) = tenants {
        tenants
    } else {
        let stored = services.ledger.tenants.list_all().await?;
        stored.into_iter().map(|tenant| tenant.id).collect()
    };
    let mut lagging = Vec::new();
    for tenant in tenants {
        let scope = TenantScope::new(tenant);
        let tenant = scope.tenant();
        let model = &services.embedder.info().model;
        let facts = services.ledger.facts.list_unembedded(&scope, None, 1);
        let scenarios = services.ledger.scenarios.list_unembedded(&scope, model, 1);
        let lore = services.ledger.lore.list_unembedded(&scope, model, 1);
        let episodes = services.ledger.episodes.list_unembedded(&scope, model, None, 1);
        match tokio::try_join!(facts, scenarios, lore, episodes) {
            Ok((facts, scenarios, lore, episodes))
                if facts.is_empty() && scenarios.is_empty() && lore.is_empty() && episodes.is_empty() =>
            {
                continue;
            }
            Ok(_) => tracing::warn!(
                %tenant,
                embedder = model,
                "what the embedder has not embedded is found by words only until it has"
            ),
            Err(error) => {
                tracing::warn!(%tenant, %error, "whether facts wait for a vector is not known");
                lagging.push(tenant.clone());
                continue;
            }
        }
        match embed_missing(services, &scope).await {
            Ok(facts) => tracing::info!(%tenant, facts, "embedded what another embedder had made"),
            Err(error) => {
                tracing::warn!(%tenant, %error, "facts of another embedder were not all embedded; they are tried again");
                lagging.push(tenant.clone());
            }
        }
    }
    Ok(lagging)
}
