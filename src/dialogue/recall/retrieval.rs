//! Recall for a line: the index proposes facts, the ledger confirms them.

use std::collections::HashMap;

use super::{
    body_reading,
    hit::RecallHit,
    ledger_search,
    ranking::{ConfirmedCandidate, rank_candidates},
    request::{RecallRequest, RecallResult},
};
use crate::{Services, disclosure::Gate};
use colloquy_core::ids::FactId;
use colloquy_memory::{
    game_clock::GameClock,
    keywords::{self, TermWeights},
};
use colloquy_ports::{
    StoreError,
    vectors::{Candidate, CandidateQuery},
};

/// Finds, confirms and scores facts, best first. Reads only as many bodies as a prompt or a trace can hold.
///
/// The world's clock is read while the ledger confirms: only scores need the clock.
///
/// # Errors
/// If the ledger does not answer. The index is derived and may be away.
pub(crate) async fn recall_facts<'a>(
    services: &Services,
    request: RecallRequest<'a>,
    clock: impl Future<Output = Result<Option<GameClock<'a>>, StoreError>>,
) -> Result<RecallResult<RecallHit>, StoreError> {
    let terms = weigh_terms(services, &request).await;
    let mut request = RecallRequest {
        terms: &terms,
        ..request
    };
    let (proposed, clock) = tokio::try_join!(propose_confirmed(services, &request), clock)?;
    request.set_clock(clock);
    let ranked = rank_candidates(services, &request, proposed.facts).await?;
    Ok(RecallResult {
        found_count: ranked.len(),
        facts: body_reading::read_hits(services, &request, ranked).await?,
        without_index: proposed.without_index,
    })
}

/// Weighs the terms by the searched memory. If the index cannot count them, each term counts as rare.
pub(super) async fn weigh_terms(services: &Services, request: &RecallRequest<'_>) -> TermWeights {
    let counted = services
        .index
        .term_statistics(request.scope, request.viewpoint, request.terms);
    let statistics = counted.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "words were not counted; each counts as rare");
        keywords::TermStatistics::default()
    });
    statistics.weigh_query(request.terms)
}

/// Returns the facts that the index proposes for weighed terms and the ledger confirms, in any order.
pub(super) async fn propose_confirmed(
    services: &Services,
    request: &RecallRequest<'_>,
) -> Result<RecallResult<ConfirmedCandidate>, StoreError> {
    let proposal = CandidateQuery {
        viewpoint: request.viewpoint,
        embedding: request.embedding,
        terms: request.terms,
        limits: request.limits,
    };
    let answer = if services.memory_cache.relays.has_backlog(request.scope.tenant()) {
        // Facts that were taught during an outage must not be missed until the index has them.
        Err(StoreError::Unavailable("it lacks facts of an outage".to_owned()))
    } else {
        services.index.propose_candidates(request.scope, proposal).await
    };
    let (proposed, without_index) = match answer {
        Ok(proposed) => (proposed, None),
        Err(error) => (
            ledger_search::propose_from_ledger(services, request).await?,
            Some(error),
        ),
    };
    let facts = confirm_candidates(services, request, proposed).await?;
    Ok(RecallResult {
        found_count: facts.len(),
        facts,
        without_index,
    })
}

async fn confirm_candidates(
    services: &Services,
    request: &RecallRequest<'_>,
    proposed: Vec<Candidate>,
) -> Result<Vec<ConfirmedCandidate>, StoreError> {
    let mut candidates: HashMap<FactId, Candidate> = proposed
        .into_iter()
        .map(|candidate| (candidate.fact, candidate))
        .collect();
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<FactId> = candidates.keys().copied().collect();
    let RecallRequest {
        scope,
        world,
        viewpoint,
        ..
    } = *request;
    let gate = Gate::new(services, scope, world, viewpoint);
    let confirmed = gate.confirm_facts(&ids, request.moment).await?;
    let with_hint = confirmed.into_iter().map(|confirmed| {
        let candidate = candidates.remove(&confirmed.fact);
        let hint = candidate.as_ref().and_then(|candidate| candidate.hint);
        ConfirmedCandidate {
            cosine: candidate.map_or(0.0, |candidate| candidate.cosine),
            hint: hint.filter(|hint| hint.version == confirmed.version),
            confirmed,
        }
    });
    Ok(with_hint.collect())
}
