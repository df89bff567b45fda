//! "Forget that": which of the player's own facts is meant, among those that are known and among those
//! that were said before and land later.

use std::collections::HashMap;

use super::extraction::Fresh;
use crate::{
    dialogue::{
        Services,
        jobs::{JobError, Said},
    },
    ids::{FactId, PlayerId},
    memory::{
        fact::{Audience, Fact, Statement},
        keywords::{self, TermWeights},
        party,
        scoring::dot,
    },
    ports::{embedder::EmbedAs, ledger::facts::ForgetRequest},
    tenancy::TenantScope,
};

/// Facts looked at per request.
const NEIGHBOURS: usize = 8;
/// Share of the request's informative words that the fact must have. Forgetting the wrong thing is
/// worse than not forgetting.
const MIN_COVERAGE: f64 = 0.5;
/// Later requests that a turn's facts are held against.
const LATER_REQUESTS: u32 = 50;

/// For each request the one fact it names, if it is the player's own and nothing protects it.
pub(super) async fn found(
    services: &Services,
    scope: &TenantScope,
    said: &Said,
    audience: &Audience,
    requests: &[String],
) -> Result<Vec<Fact>, JobError> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let vectors = embedded(services, scope, requests).await?;
    let calibration = services.embedder.info().calibration;
    let least = calibration.cosine_at(calibration.related);
    let mut meant: Vec<Fact> = Vec::new();
    for (request, vector) in requests.iter().zip(vectors) {
        let terms = keywords::query_terms(request);
        let near = services
            .index
            .similar(scope, &said.world.id, audience, &vector, least, NEIGHBOURS)
            .await?;
        for candidate in near {
            let Some(fact) = services.ledger.facts.get(scope, candidate.fact).await? else {
                continue;
            };
            let named = names(&terms, &fact.view.content, &fact.view.keywords);
            let own = fact.audience == *audience && is_own(&fact.statement, audience, said.turn.player.as_ref());
            let free = fact.invalid.is_none() && !fact.is_protected() && fact.valid_at < said.turn.committed_at;
            if named && own && free && meant.iter().all(|other| other.id != fact.id) {
                meant.push(fact);
                break;
            }
        }
    }
    Ok(meant)
}

/// Which of the facts of an earlier turn a later one has asked to forget: the turn's extraction had to
/// wait, or was given up and is tried again.
///
/// A request that has ended a fact is taken to have meant that one, and reaches only what says the same.
pub(super) async fn forgotten_since(
    services: &Services,
    scope: &TenantScope,
    said: &Said,
    audience: &Audience,
    learned: &[Fresh],
) -> Result<HashMap<FactId, ForgetRequest>, JobError> {
    let mut forgotten = HashMap::new();
    if learned.is_empty() {
        return Ok(forgotten);
    }
    let (world, since) = (&said.world.id, said.turn.committed_at);
    let facts = &services.ledger.facts;
    let requests = facts
        .forget_requests(scope, world, audience, since, LATER_REQUESTS)
        .await?;
    if requests.is_empty() {
        return Ok(forgotten);
    }
    let texts: Vec<String> = requests.iter().map(|request| request.text.clone()).collect();
    let vectors = embedded(services, scope, &texts).await?;
    let calibration = services.embedder.info().calibration;
    for (request, vector) in requests.into_iter().zip(vectors) {
        let terms = keywords::query_terms(&request.text);
        let least = calibration.cosine_at(if request.met {
            calibration.same
        } else {
            calibration.related
        });
        for fresh in learned {
            let statement = &fresh.statement;
            let meant = dot(&fresh.embedding, &vector) >= least
                && names(&terms, &statement.content, &statement.keywords)
                && is_own(statement, audience, request.player.as_ref())
                && !statement.pinned;
            if meant {
                forgotten.entry(fresh.id).or_insert_with(|| request.clone());
            }
        }
    }
    Ok(forgotten)
}

async fn embedded(services: &Services, scope: &TenantScope, texts: &[String]) -> Result<Vec<Vec<f32>>, JobError> {
    let (vectors, _) = services
        .models
        .embed(scope, services.embedder.as_ref(), EmbedAs::Passage, texts)
        .await;
    Ok(vectors?)
}

/// Whether a fact has enough of a request's words.
fn names(request: &TermWeights, content: &str, keywords: &[String]) -> bool {
    keywords::coverage(request, &keywords::document_terms(content, keywords)) >= MIN_COVERAGE
}

/// Whether a statement is the player's to take back: it is about the player, or the player said it of
/// somebody else in private. What is said where others hear it is not one player's alone.
fn is_own(statement: &Statement, audience: &Audience, player: Option<&PlayerId>) -> bool {
    let Some(player) = player else {
        return false;
    };
    match party::owner(&statement.subject) {
        Some(owner) => owner == player.as_str(),
        None => {
            audience.private_to.as_ref() == Some(player) && party::owner(&statement.speaker) == Some(player.as_str())
        }
    }
}
