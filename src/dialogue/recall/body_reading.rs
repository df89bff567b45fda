//! Decides how many bodies of the ranking are read.
//!
//! A prompt takes the best few facts and a trace shows a few more, so lower ranks cost nothing. The prompt is the same
//! as with all bodies read, for any intent and any other content. This module decides only what is certain about a hit
//! without knowledge of intent and content.

use std::{collections::HashMap, sync::Arc};

use super::{
    hit::RecallHit,
    line_owners::LineOwners,
    ranking::{RankedCandidate, best_first, rank_body, recall_weights},
    request::RecallRequest,
    topic::{self, TopicRelevance},
};
use crate::{Services, disclosure::Disclosable, settings::RecallSettings};
use colloquy_core::ids::{DialogueKind, FactId};
use colloquy_memory::{
    agreement::{self, ComparedStatement},
    scoring::{diversify_order, dot_product},
};
use colloquy_ports::{
    StoreError,
    ledger::facts::{ConfirmedFact, RecallBody},
};

/// The number of candidates in a trace, and of bodies in a batch.
pub(crate) const MAX_TRACED: usize = 32;

/// Returns the number of hits that packing chooses from. Packing may need later hits if some of the best do not fit.
pub(crate) const fn max_packable(settings: &RecallSettings) -> usize {
    settings.top_k.saturating_mul(2)
}

/// Reorders `chosen`: a hit that resembles a better hit moves behind dissimilar hits. `diversity` in [0, 1] is the
/// strength.
pub(crate) fn diversify_hits(hits: &[RecallHit], chosen: Vec<usize>, diversity: f64) -> Vec<usize> {
    if diversity <= 0.0 {
        return chosen;
    }
    let candidates: Vec<(f64, &[f32])> = chosen
        .iter()
        .map(|&index| (hits[index].score.total, hits[index].body.embedding.as_ref()))
        .collect();
    let order = diversify_order(&candidates, 1.0 - diversity);
    debug_assert!(order.len() == chosen.len(), "a new order has all hits");
    order.into_iter().map(|place| chosen[place]).collect()
}

/// The raw cosine from which two hits may be duplicates, if they also agree: statements about different things are below
/// with most models.
pub(crate) const NEAR_DUPLICATE_COSINE: f32 = 0.95;

/// Returns the raw cosine from which two hits may be duplicates: the usual value, or the embedder's own "same" value if
/// higher. With some models, any two sentences have 0.95.
pub(crate) fn near_duplicate_cosine(services: &Services) -> f32 {
    let calibration = services.embedder.info().calibration;
    let same_cosine = calibration.cosine_at(calibration.same);
    NEAR_DUPLICATE_COSINE.max(same_cosine)
}

/// True if two bodies say the same, so that one suffices. Similarity alone is not enough: two players' names, or
/// "likes" and "does not like", differ in a word.
pub(crate) fn is_same_statement(a: &RecallBody, b: &RecallBody, cosine: f32) -> bool {
    dot_product(&a.embedding, &b.embedding) >= cosine
        && agreement::same_words(&a.subject, &b.subject)
        && agreement::same_words(&a.predicate, &b.predicate)
        && agreement::statements_agree(claim_of(a), claim_of(b))
}

fn claim_of(body: &RecallBody) -> ComparedStatement<'_> {
    ComparedStatement {
        object: &body.object,
        content: &body.view.content,
        polarity: body.polarity,
        tense: body.tense,
    }
}

/// Reads bodies, best first, until later hits cannot matter.
pub(super) async fn read_hits(
    services: &Services,
    request: &RecallRequest<'_>,
    ranked: Vec<RankedCandidate>,
) -> Result<Vec<RecallHit>, StoreError> {
    let cosine = near_duplicate_cosine(services);
    let calibration = services.embedder.info().calibration;
    let weights = recall_weights(services, request.world);
    let owners = LineOwners::find_in(request.line, request.viewpoint.player.as_ref());
    let usual_cosine = topic::median_cosine(ranked.iter().map(|ranked| ranked.cosine));
    let mut read_candidates: Vec<RankedCandidate> = Vec::with_capacity(ranked.len().min(MAX_TRACED));
    let mut hits: Vec<RecallHit> = Vec::new();
    let mut ranked = ranked.into_iter().peekable();
    while let Some(peeked) = ranked.peek() {
        // With its body read, a hit may have fallen behind facts that are not read yet.
        let settled_count = hits.partition_point(|hit| hit.score.total >= peeked.score.total);
        if is_enough(&services.settings.recall, cosine, &hits[..settled_count]) {
            break;
        }
        let batch: Vec<RankedCandidate> = ranked.by_ref().take(MAX_TRACED).collect();
        for ranked in read_batch(services, request, batch).await? {
            read_candidates.push(rank_for_owner(services, request, owners.as_ref(), ranked));
        }
        read_candidates.sort_by(best_first);
        hits = read_candidates
            .iter()
            .filter_map(|ranked| {
                Some(RecallHit {
                    body: ranked.body.clone()?,
                    score: ranked.score,
                    topic: TopicRelevance::from_score(&calibration, &weights, &ranked.score, usual_cosine)
                        .with_other_owner(ranked.is_of_other),
                })
            })
            .collect();
    }
    Ok(hits)
}

/// Reads the bodies of candidates. A fact that is gone or has changed since it was confirmed is left out, or scored
/// again.
async fn read_batch(
    services: &Services,
    request: &RecallRequest<'_>,
    batch: Vec<RankedCandidate>,
) -> Result<Vec<RankedCandidate>, StoreError> {
    let unread = batch.iter().filter(|ranked| ranked.body.is_none());
    let unread: Vec<Disclosable<ConfirmedFact>> = unread.map(|ranked| ranked.confirmed).collect();
    let bodies = services.memory_cache.read_open_bodies(services, request.scope, &unread);
    let bodies = bodies.await?.into_iter().map(|body| (body.id, body));
    let mut bodies: HashMap<FactId, Disclosable<Arc<RecallBody>>> = bodies.collect();
    let with_body = |ranked: RankedCandidate| {
        if ranked.body.is_some() {
            return Some(ranked);
        }
        let body = bodies.remove(&ranked.confirmed.fact)?;
        Some(if body.version == ranked.confirmed.version {
            RankedCandidate {
                body: Some(body),
                ..ranked
            }
        } else {
            rank_body(services, request, body, ranked.cosine)
        })
    };
    Ok(batch.into_iter().filter_map(with_body).collect())
}

/// Scores a fact again if the line means a thing like the fact's subject, but of another owner.
fn rank_for_owner(
    services: &Services,
    request: &RecallRequest<'_>,
    owners: Option<&LineOwners<'_>>,
    ranked: RankedCandidate,
) -> RankedCandidate {
    let Some((owners, body)) = owners.zip(ranked.body.as_ref()) else {
        return ranked;
    };
    let Some(terms) = owners.counted_terms(&body.subject, request.terms) else {
        return ranked;
    };
    let request = RecallRequest {
        terms: &terms,
        ..*request
    };
    RankedCandidate {
        is_of_other: true,
        ..rank_body(services, &request, body.clone(), ranked.cosine)
    }
}

/// True if these hits fill every prompt that they and worse hits could make.
pub(crate) fn is_enough(settings: &RecallSettings, near_duplicate_cosine: f32, hits: &[RecallHit]) -> bool {
    let mut best_matter = 0.0_f64;
    let certain = hits.iter().enumerate().filter(move |(index, hit)| {
        best_matter = best_matter.max(hit.topic.matter);
        // A hit is uncertain in four cases:
        // - The hit may get a slot of its own.
        // - The history may show the line that taught the fact.
        // - Small talk may have no use for the fact, or a question beside a better fact.
        // - A better hit may replace the hit, even a better hit that is left out itself.
        !hit.body.view.pinned
            && !hit.body.kind.may_stand()
            && hit
                .body
                .source
                .is_none_or(|(dialogue, _)| dialogue.kind() != DialogueKind::NpcConversation)
            && hit.topic.passes_every_gate(best_matter)
            && hit.topic.matter >= settings.min_score
            && hit.score.total >= settings.min_score
            && !hits[..*index]
                .iter()
                .any(|better| is_same_statement(&better.body, &hit.body, near_duplicate_cosine))
    });
    certain.take(max_packable(settings)).count() >= max_packable(settings)
}
