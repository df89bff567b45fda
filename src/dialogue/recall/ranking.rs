//! The scores of confirmed facts.

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, Utc};

use super::request::RecallRequest;
use crate::{Services, disclosure::Disclosable};
use colloquy_memory::{
    authored::World,
    keywords::{self, FactTexts},
    scoring::{self, RecallWeights},
    trace::ScoreParts,
};
use colloquy_ports::{
    StoreError,
    ledger::facts::{ConfirmedFact, RecallBody},
    vectors::ScoreHint,
};

/// A confirmed and scored fact. The body may not have been read.
#[derive(Debug)]
pub(super) struct RankedCandidate {
    /// With the confirmed and scored version.
    pub(super) confirmed: Disclosable<ConfirmedFact>,
    pub(super) valid_at: DateTime<Utc>,
    pub(super) cosine: f32,
    pub(super) score: ScoreParts,
    pub(super) body: Option<Disclosable<Arc<RecallBody>>>,
    /// True if the line means a thing like the subject, but of another owner.
    pub(super) is_of_other: bool,
}

/// A proposed fact that the ledger confirmed.
#[derive(Debug)]
pub(super) struct ConfirmedCandidate {
    pub(super) confirmed: Disclosable<ConfirmedFact>,
    /// Of the proposal. 0 without an embedding.
    pub(super) cosine: f32,
    /// `None`: the index lacks the confirmed version.
    pub(super) hint: Option<ScoreHint>,
}

/// Scores the confirmed facts, best first. Reads a body only if the index lacks the confirmed version.
pub(super) async fn rank_candidates(
    services: &Services,
    request: &RecallRequest<'_>,
    candidates: Vec<ConfirmedCandidate>,
) -> Result<Vec<RankedCandidate>, StoreError> {
    let mut ranked = Vec::with_capacity(candidates.len());
    let mut unknown = Vec::new();
    let mut cosines = HashMap::new();
    for ConfirmedCandidate {
        confirmed,
        cosine,
        hint,
    } in candidates
    {
        if let Some(hint) = hint {
            ranked.push(RankedCandidate {
                confirmed,
                valid_at: hint.valid_at,
                cosine,
                score: score_candidate(services, request, cosine, &hint),
                body: None,
                is_of_other: false,
            });
        } else {
            cosines.insert(confirmed.fact, cosine);
            unknown.push(confirmed);
        }
    }
    for body in services
        .memory_cache
        .read_open_bodies(services, request.scope, &unknown)
        .await?
    {
        let cosine = cosines.get(&body.id).copied().unwrap_or_default();
        ranked.push(rank_body(services, request, body, cosine));
    }
    ranked.sort_by(best_first);
    Ok(ranked)
}

pub(super) fn rank_body(
    services: &Services,
    request: &RecallRequest<'_>,
    body: Disclosable<Arc<RecallBody>>,
    cosine: f32,
) -> RankedCandidate {
    let terms = keywords::fact_terms(FactTexts {
        content: &body.view.content,
        keywords: &body.view.keywords,
        subject: &body.subject,
        predicate: &body.predicate,
        object: &body.object,
    });
    let hint = ScoreHint {
        version: body.version,
        importance: body.view.importance,
        valid_at: body.valid_at,
        keyword: keywords::bm25_score(request.terms, &terms),
    };
    RankedCandidate {
        confirmed: body.as_ref().map(|body| ConfirmedFact {
            fact: body.id,
            version: body.version,
        }),
        valid_at: body.valid_at,
        cosine,
        score: score_candidate(services, request, cosine, &hint),
        body: Some(body),
        is_of_other: false,
    }
}

fn score_candidate(services: &Services, request: &RecallRequest<'_>, cosine: f32, hint: &ScoreHint) -> ScoreParts {
    let settings = &services.settings.recall;
    scoring::score_fact(
        &recall_weights(services, request.world),
        &services.embedder.info().calibration,
        cosine,
        keywords::keyword_factor(hint.keyword),
        hint.importance,
        request.age_of(hint.valid_at),
        request
            .world
            .settings
            .recency_lambda_per_day
            .unwrap_or(settings.recency_lambda_per_day),
    )
}

pub(super) fn recall_weights(services: &Services, world: &World) -> RecallWeights {
    let preset = world.settings.recall.and_then(|recall| recall.preset);
    services.settings.recall.weights_for(preset)
}

pub(super) fn best_first(a: &RankedCandidate, b: &RankedCandidate) -> std::cmp::Ordering {
    let key = |ranked: &RankedCandidate| (ranked.score.total, ranked.valid_at, ranked.confirmed.fact);
    scoring::compare_best_first(key(a), key(b))
}
