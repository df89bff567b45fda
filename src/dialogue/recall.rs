//! Recall (docs/algorithms.md#recall). The index proposes facts, the ledger confirms, and a pure function scores.

mod body_reading;
mod cache;
mod ledger_search;
mod line_owners;
mod names;
mod query;
mod search;
mod topic;

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, Utc};

pub use self::{
    cache::{MemoryCache, StatePosition},
    search::{SearchHit, search_facts, shown_facts},
};
use super::{Services, locks};
#[cfg(test)]
pub(super) use body_reading::is_enough;
pub(super) use body_reading::{MAX_TRACED, diversify_hits, is_same_statement, max_packable, near_duplicate_cosine};
use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::{
    authored::World,
    calendar::{GameMoment, GameTime, NamedPeriod},
    fact::Viewpoint,
    game_clock::GameClock,
    keywords::{self, FactTexts, TermWeights},
    scoring::{self, FactAge, RecallWeights},
    trace::{CandidateFate, ScoreParts, TopicGate},
};
use colloquy_ports::{
    StoreError,
    ledger::facts::{ConfirmedFact, FactConfirmation, RecallBody},
    vectors::{Candidate, CandidateLimits, CandidateQuery, ScoreHint},
};
pub(super) use names::{merge_open_names, read_names};
pub(super) use query::SearchQuery;
use query::SpokenLine;
pub(super) use search::body_of;
pub(super) use topic::{TopicRelevance, admit_hits, gate_for_turn};

/// A confirmed and scored fact, with its body.
#[derive(Debug, Clone)]
pub(super) struct RecallHit {
    pub body: Arc<RecallBody>,
    pub score: ScoreParts,
    pub topic: TopicRelevance,
}

impl RecallHit {
    /// Why the hit is too weak for a prompt, if it is. `is_admitted` is of [`admit_hits`].
    pub(super) fn weakness(&self, is_admitted: bool, gate: TopicGate, min_score: f64) -> Option<CandidateFate> {
        if self.score.total < min_score {
            Some(CandidateFate::TooWeak)
        } else if !is_admitted {
            Some(CandidateFate::OffTopic)
        } else {
            (gate != TopicGate::Open && self.topic.matter < min_score).then_some(CandidateFate::TooWeak)
        }
    }
}

/// A confirmed and scored fact. The body may not have been read.
#[derive(Debug)]
struct RankedCandidate {
    fact: FactId,
    /// The confirmed and scored version.
    version: u32,
    valid_at: DateTime<Utc>,
    cosine: f32,
    score: ScoreParts,
    body: Option<Arc<RecallBody>>,
    /// True if the line means a thing like the subject, but of another owner.
    is_of_other: bool,
}

/// A search, with its viewpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecallRequest<'a> {
    pub scope: &'a TenantScope,
    pub world: &'a World,
    pub viewpoint: &'a Viewpoint,
    /// A unit vector. `None`: the embedder failed, and keywords must suffice.
    pub embedding: Option<&'a [f32]>,
    /// The terms with their general weights, independent of the searched memory.
    pub terms: &'a TermWeights,
    pub limits: CandidateLimits,
    pub at: DateTime<Utc>,
    /// The line, which may name a time, and things of its speaker or its listener.
    pub line: SpokenLine<'a>,
    pub clock: RecallClock<'a>,
}

/// The time by which facts age.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecallClock<'a> {
    /// The clock of the world; `None`: real time.
    game: Option<GameClock<'a>>,
    /// The past days that the line names.
    named: Option<NamedPeriod>,
}

/// The result of recall, with or without the index.
#[derive(Debug)]
pub(super) struct RecallResult<T> {
    /// The facts, best first.
    pub facts: Vec<T>,
    /// The number of found facts, of which `facts` may have only the best.
    pub found: usize,
    /// The error of the index, if the index did not answer. The ledger was then searched.
    pub without_index: Option<StoreError>,
}

/// Finds, confirms and scores facts, best first. Reads only as many bodies as a prompt or a trace can hold.
///
/// The world's clock is read while the ledger confirms: only scores need the clock.
///
/// # Errors
/// If the ledger does not answer. The index is derived and may be away.
pub(super) async fn recall_facts<'a>(
    services: &Services,
    sought: RecallRequest<'a>,
    clock: impl Future<Output = Result<Option<GameClock<'a>>, StoreError>>,
) -> Result<RecallResult<RecallHit>, StoreError> {
    let terms = weigh_terms(services, &sought).await;
    let mut sought = RecallRequest {
        terms: &terms,
        ..sought
    };
    let (proposed, clock) = tokio::try_join!(propose_confirmed(services, &sought), clock)?;
    sought.set_clock(clock);
    let ranked = rank_candidates(services, &sought, proposed.facts).await?;
    Ok(RecallResult {
        found: ranked.len(),
        facts: body_reading::read_hits(services, &sought, ranked).await?,
        without_index: proposed.without_index,
    })
}

/// Weighs the terms by the searched memory. If the index cannot count them, each term counts as rare.
async fn weigh_terms(services: &Services, sought: &RecallRequest<'_>) -> TermWeights {
    let counted = services
        .index
        .term_statistics(sought.scope, sought.viewpoint, sought.terms);
    let statistics = counted.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "words were not counted; each counts as rare");
        keywords::TermStatistics::default()
    });
    statistics.weigh_query(sought.terms)
}

/// A proposed fact that the ledger confirmed.
#[derive(Debug)]
struct ConfirmedCandidate {
    confirmed: ConfirmedFact,
    /// Of the proposal. 0 without an embedding.
    cosine: f32,
    /// `None`: the index lacks the confirmed version.
    hint: Option<ScoreHint>,
}

/// Returns the facts that the index proposes for weighed terms and the ledger confirms, in any order.
async fn propose_confirmed(
    services: &Services,
    sought: &RecallRequest<'_>,
) -> Result<RecallResult<ConfirmedCandidate>, StoreError> {
    let proposal = CandidateQuery {
        viewpoint: sought.viewpoint,
        embedding: sought.embedding,
        terms: sought.terms,
        limits: sought.limits,
    };
    let answer = if services.memory_cache.relays.has_backlog(sought.scope.tenant()) {
        // Facts that were taught during an outage must not be missed until the index has them.
        Err(StoreError::Unavailable("it lacks facts of an outage".to_owned()))
    } else {
        services.index.propose_candidates(sought.scope, proposal).await
    };
    let (proposed, without_index) = match answer {
        Ok(proposed) => (proposed, None),
        Err(error) => (ledger_search::propose_from_ledger(services, sought).await?, Some(error)),
    };
    let facts = confirm_candidates(services, sought, proposed).await?;
    Ok(RecallResult {
        found: facts.len(),
        facts,
        without_index,
    })
}

async fn confirm_candidates(
    services: &Services,
    sought: &RecallRequest<'_>,
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
    } = *sought;
    let FactConfirmation { open, locked } = services
        .ledger
        .facts
        .confirm_facts(scope, viewpoint, &ids, sought.at)
        .await?;
    let mut confirmed = open;
    if !locked.is_empty() {
        confirmed.extend(locks::filter_open(services, scope, world, viewpoint, locked).await?);
    }
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

/// Scores the confirmed facts, best first. Reads a body only if the index lacks the confirmed version.
async fn rank_candidates(
    services: &Services,
    sought: &RecallRequest<'_>,
    candidates: Vec<ConfirmedCandidate>,
) -> Result<Vec<RankedCandidate>, StoreError> {
    let mut ranked = Vec::with_capacity(candidates.len());
    let (mut unknown, mut cosines) = (Vec::new(), HashMap::new());
    for ConfirmedCandidate {
        confirmed,
        cosine,
        hint,
    } in candidates
    {
        if let Some(hint) = hint {
            ranked.push(RankedCandidate {
                fact: confirmed.fact,
                version: confirmed.version,
                valid_at: hint.valid_at,
                cosine,
                score: score_candidate(services, sought, cosine, &hint),
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
        .read_bodies(services, sought.scope, &unknown)
        .await?
    {
        let cosine = cosines.get(&body.id).copied().unwrap_or_default();
        ranked.push(rank_body(services, sought, body, cosine));
    }
    ranked.sort_by(best_first);
    Ok(ranked)
}

fn rank_body(services: &Services, sought: &RecallRequest<'_>, body: Arc<RecallBody>, cosine: f32) -> RankedCandidate {
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
        keyword: keywords::bm25_score(sought.terms, &terms),
    };
    RankedCandidate {
        fact: body.id,
        version: body.version,
        valid_at: body.valid_at,
        cosine,
        score: score_candidate(services, sought, cosine, &hint),
        body: Some(body),
        is_of_other: false,
    }
}

fn score_candidate(services: &Services, sought: &RecallRequest<'_>, cosine: f32, of: &ScoreHint) -> ScoreParts {
    let settings = &services.settings.recall;
    scoring::score_fact(
        &recall_weights(services, sought.world),
        &services.embedder.info().calibration,
        cosine,
        keywords::keyword_factor(of.keyword),
        of.importance,
        sought.age_of(of.valid_at),
        sought
            .world
            .settings
            .recency_lambda_per_day
            .unwrap_or(settings.recency_lambda_per_day),
    )
}

fn recall_weights(services: &Services, world: &World) -> RecallWeights {
    let preset = world.settings.recall.and_then(|recall| recall.preset);
    services.settings.recall.weights_for(preset)
}

fn best_first(a: &RankedCandidate, b: &RankedCandidate) -> std::cmp::Ordering {
    let key = |ranked: &RankedCandidate| (ranked.score.total, ranked.valid_at, ranked.fact);
    scoring::compare_best_first(key(a), key(b))
}

impl<'a> RecallRequest<'a> {
    /// Sets the clock, and looks for a time in the line.
    fn set_clock(&mut self, game: Option<GameClock<'a>>) {
        let today = match game {
            Some(clock) => clock.game_time_now(self.at),
            None => GameMoment::from_real(self.at),
        };
        let named = NamedPeriod::in_line(self.line.text, today);
        self.clock = RecallClock { game, named };
    }

    /// The age of a fact in days of the game, or in real days without a clock.
    fn age_of(&self, from: DateTime<Utc>) -> FactAge {
        let RecallClock { game, named } = self.clock;
        if let Some(named) = named {
            let then = game.map_or_else(|| GameTime::from_real(from), |clock| clock.game_time_at(from).time);
            return FactAge::FromNamedTime(named.days_from(then));
        }
        FactAge::Days(match game {
            Some(clock) => {
                let (then, now) = (clock.game_time_at(from).time, clock.game_time_now(self.at).time);
                now.days_since(then)
            }
            None => days_between(from, self.at),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of centuries fit 52 bits")]
fn days_between(from: DateTime<Utc>, to: DateTime<Utc>) -> f64 {
    (to - from).num_milliseconds() as f64 / 86_400_000.0
}

/// Returns the configured numbers of candidates per leg.
pub(super) fn leg_limits(settings: &super::settings::RecallSettings) -> CandidateLimits {
    CandidateLimits {
        dense: settings.dense,
        sparse: settings.sparse,
        important: settings.important,
        recent: settings.recent,
    }
}
