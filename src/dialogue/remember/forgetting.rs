//! "Forget that": which of the player's own facts is meant.

use crate::{
    dialogue::{
        Services,
        jobs::{JobError, Said},
    },
    ids::PlayerId,
    memory::{
        fact::{Audience, Fact},
        keywords, party,
    },
    ports::embedder::EmbedAs,
    tenancy::TenantScope,
};

/// Facts looked at per request.
const NEIGHBOURS: usize = 8;
/// Share of the request's informative words that the fact must have. Forgetting the wrong thing is
/// worse than not forgetting.
const MIN_COVERAGE: f64 = 0.5;

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
    let (vectors, _) = services
        .models
        .embed(scope, services.embedder.as_ref(), EmbedAs::Passage, requests)
        .await;
    let calibration = services.embedder.info().calibration;
    let least = calibration.cosine_at(calibration.related);
    let mut meant: Vec<Fact> = Vec::new();
    for (request, vector) in requests.iter().zip(vectors?) {
        let terms = keywords::query_terms(request);
        let near = services
            .index
            .similar(scope, &said.world.id, audience, &vector, least, NEIGHBOURS)
            .await?;
        for candidate in near {
            let Some(fact) = services.ledger.facts.get(scope, candidate.fact).await? else {
                continue;
            };
            let named = keywords::coverage(
                &terms,
                &keywords::document_terms(&fact.view.content, &fact.view.keywords),
            ) >= MIN_COVERAGE;
            let own = fact.audience == *audience && is_own(&fact, said.turn.player.as_ref());
            let free = fact.invalid.is_none() && !fact.is_protected() && fact.valid_at < said.turn.committed_at;
            if named && own && free && meant.iter().all(|other| other.id != fact.id) {
                meant.push(fact);
                break;
            }
        }
    }
    Ok(meant)
}

/// Whether a fact is the player's to take back: it is about the player, or the player said it of
/// somebody else in private. What is said where others hear it is not one player's alone.
fn is_own(fact: &Fact, player: Option<&PlayerId>) -> bool {
    let Some(player) = player else {
        return false;
    };
    match party::owner(&fact.statement.subject) {
        Some(owner) => owner == player.as_str(),
        None => {
            fact.audience.private_to.as_ref() == Some(player)
                && party::owner(&fact.statement.speaker) == Some(player.as_str())
        }
    }
}
