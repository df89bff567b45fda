//! "Forget that": which of the player's own facts is meant.

use crate::{
    dialogue::{
        Services,
        jobs::{JobError, Said},
        remember::extraction::PLAYER,
    },
    memory::{
        fact::{Audience, Fact},
        keywords,
    },
    ports::embedder::EmbedAs,
    tenancy::TenantScope,
};

/// Facts looked at per request.
const NEIGHBOURS: usize = 8;
/// Share of the request's informative words that the fact must have. Forgetting the wrong thing is
/// worse than not forgetting.
const MIN_COVERAGE: f64 = 0.5;

/// For each request the one fact it names, if the player said that fact and nothing protects it.
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
            let own = fact.statement.speaker == PLAYER && fact.audience == *audience;
            let free = fact.invalid.is_none() && !fact.is_protected() && fact.valid_at < said.turn.committed_at;
            if named && own && free && meant.iter().all(|other| other.id != fact.id) {
                meant.push(fact);
                break;
            }
        }
    }
    Ok(meant)
}
