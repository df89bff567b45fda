//! Recall: the index proposes, the ledger disposes, one pure function scores (ALGORITHMS §2).

mod cache;
mod search;

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, Utc};

pub use self::{
    cache::BodyCache,
    search::{SearchHit, search},
};
use super::Services;
use crate::{
    ids::FactId,
    memory::{
        authored::World,
        fact::Viewpoint,
        keywords::{self, TermWeights},
        scoring::{self, RecallPreset},
        summary::Summary,
        trace::ScoreParts,
    },
    ports::{
        StoreError,
        ledger::facts::RecallBody,
        vectors::{LegLimits, Proposal},
    },
    tenancy::TenantScope,
};

/// A body with its keyword terms, which are worked out once.
#[derive(Debug)]
pub(super) struct CachedBody {
    pub body: RecallBody,
    pub terms: TermWeights,
}

impl CachedBody {
    fn new(body: RecallBody) -> Self {
        Self {
            terms: keywords::document_terms(&body.view.content, &body.view.keywords),
            body,
        }
    }
}

/// A confirmed and scored fact.
#[derive(Debug, Clone)]
pub(super) struct Hit {
    pub cached: Arc<CachedBody>,
    pub score: ScoreParts,
}

/// In small talk a fact must share this much with the line, in words or in meaning; importance and
/// recency alone do not bring it up. On the scales of [`ScoreParts`].
const ON_TOPIC_KEYWORD: f64 = 0.15;
const ON_TOPIC_RELEVANCE: f64 = 0.35;

impl Hit {
    /// Whether it has to do with the line at all.
    pub(super) fn is_on_topic(&self) -> bool {
        self.score.keyword >= ON_TOPIC_KEYWORD || self.score.relevance >= ON_TOPIC_RELEVANCE
    }
}

/// What to look for, and through whose eyes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought<'a> {
    pub scope: &'a TenantScope,
    pub world: &'a World,
    pub viewpoint: &'a Viewpoint,
    /// A unit vector; `None`: the embedder failed, and keywords must do.
    pub embedding: Option<&'a [f32]>,
    pub terms: &'a TermWeights,
    pub limits: LegLimits,
    pub at: DateTime<Utc>,
}

/// Why recall came back without facts.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RecallError {
    /// The index is derived and may be away; the turn goes on without retrieved facts.
    #[error("the index did not answer: {0}")]
    Index(StoreError),
    #[error(transparent)]
    Ledger(StoreError),
}

/// Finds, confirms and scores; best first, everything that was confirmed.
pub(super) async fn recall(services: &Services, sought: Sought<'_>) -> Result<Vec<Hit>, RecallError> {
    let proposal = Proposal {
        viewpoint: sought.viewpoint,
        embedding: sought.embedding,
        terms: sought.terms,
        limits: sought.limits,
    };
    let candidates = services
        .index
        .propose(sought.scope, proposal)
        .await
        .map_err(RecallError::Index)?;
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let cosines: HashMap<FactId, f32> = candidates.iter().map(|found| (found.fact, found.cosine)).collect();
    let ids: Vec<FactId> = cosines.keys().copied().collect();
    let confirmed = services
        .ledger
        .facts
        .confirm(sought.scope, sought.viewpoint, &ids, sought.at)
        .await
        .map_err(RecallError::Ledger)?;
    let bodies = services
        .bodies
        .of(services, sought.scope, &confirmed)
        .await
        .map_err(RecallError::Ledger)?;
    let mut hits: Vec<Hit> = bodies
        .into_iter()
        .map(|cached| {
            let cosine = cosines.get(&cached.body.id).copied().unwrap_or_default();
            score(services, &sought, cached, cosine)
        })
        .collect();
    hits.sort_by(best_first);
    Ok(hits)
}

fn score(services: &Services, sought: &Sought<'_>, cached: Arc<CachedBody>, cosine: f32) -> Hit {
    let settings = &services.settings.recall;
    let body = &cached.body;
    let preset = sought.world.settings.recall.and_then(|recall| recall.preset);
    let weights = preset.map_or(settings.weights, RecallPreset::weights);
    let score = scoring::score(
        &weights,
        &services.embedder.info().calibration,
        cosine,
        keywords::coverage(sought.terms, &cached.terms),
        body.view.importance,
        days_between(body.valid_at, sought.at),
        sought
            .world
            .settings
            .recency_lambda_per_day
            .unwrap_or(settings.recency_lambda_per_day),
    );
    Hit { cached, score }
}

fn best_first(a: &Hit, b: &Hit) -> std::cmp::Ordering {
    let key = |hit: &Hit| (hit.score.total, hit.cached.body.valid_at, hit.cached.body.id);
    scoring::best_first(key(a), key(b))
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of centuries fit 52 bits")]
fn days_between(from: DateTime<Utc>, to: DateTime<Utc>) -> f64 {
    (to - from).num_milliseconds() as f64 / 86_400_000.0
}

/// Words of a line up to which it is short: alone it says too little to search with.
const SHORT_WORDS: usize = 2;
/// Characters of the last summary that go into a query.
const SUMMARY_CHARS: usize = 300;

/// What is searched for: the line and, when it is short or points back, the last summary.
pub(super) fn query_of(line: &str, summaries: &[Summary]) -> String {
    let short = line.split_whitespace().nth(SHORT_WORDS).is_none();
    match summaries.last() {
        Some(summary) if short || keywords::is_pointing(line) => {
            let context: String = summary.text.chars().take(SUMMARY_CHARS).collect();
            format!("{line}\n{context}")
        }
        _ => line.to_owned(),
    }
}

/// The candidates per leg of the configuration.
pub(super) fn limits(settings: &super::settings::RecallSettings) -> LegLimits {
    LegLimits {
        dense: settings.dense,
        sparse: settings.sparse,
        important: settings.important,
        recent: settings.recent,
    }
}
