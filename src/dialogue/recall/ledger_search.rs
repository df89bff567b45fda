//! Recall while the index is away, or lacks facts of an outage: the ledger finds facts by words, importance and age, and
//! by meaning among the newest.
//!
//! The results are less relevant but equally safe. The ledger enforces validity, audience and privacy, and its
//! proposals are confirmed like all others.

use std::{cmp::Reverse, collections::HashMap};

use super::request::RecallRequest;
use crate::Services;
use colloquy_core::ids::FactId;
use colloquy_memory::{
    keywords::{self, FactTexts},
    scoring::dot_product,
};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::facts::{ConfirmedFact, KeywordFact},
    vectors::{Candidate, CandidateLimits, ScoreHint},
};

/// The number of facts scanned per knower and privacy, newest first. More would slow each turn when the ledger is
/// busiest.
const MAX_FACTS_SCANNED: u32 = 1_000;
/// The number of newest facts whose vectors are compared with the line. A turn then reads few vectors that the node
/// does not have in its memory.
const MAX_VECTORS_COMPARED: usize = 256;

/// Returns the candidates by words, importance and age, and the nearest of the newest facts, with exact cosines.
pub(super) async fn propose_from_ledger(
    services: &Services,
    request: &RecallRequest<'_>,
) -> StoreResult<Vec<Candidate>> {
    let facts = &services.ledger.facts;
    let keyword_facts = facts
        .list_keyword_facts(request.scope, request.viewpoint, request.moment, MAX_FACTS_SCANNED)
        .await?;
    let newest = match request.embedding {
        Some(query) => compare_newest(services, request, query, &keyword_facts).await?,
        None => HashMap::new(),
    };
    let terms = request.terms.clone();
    let limits = request.limits;
    // The scan covers up to some thousands of texts, and no dialogue on this thread may wait for it.
    let mut chosen = tokio::task::spawn_blocking(move || {
        let hints = keyword_facts
            .iter()
            .map(|fact| to_candidate(fact, &terms, &newest))
            .collect();
        choose_candidates(hints, limits)
    })
    .await
    .map_err(|error| StoreError::Unavailable(format!("the ledger's facts were not gone through: {error}")))?;
    if let Some(query) = request.embedding {
        add_cosines(services, request, query, &mut chosen).await?;
    }
    Ok(chosen)
}

/// Returns the cosines of the newest facts with the query. Facts without a vector are left out.
async fn compare_newest(
    services: &Services,
    request: &RecallRequest<'_>,
    query: &[f32],
    keyword_facts: &[KeywordFact],
) -> StoreResult<HashMap<FactId, f32>> {
    let mut newest: Vec<&KeywordFact> = keyword_facts.iter().collect();
    newest.sort_by_key(|fact| Reverse((fact.valid_at, fact.fact)));
    newest.truncate(MAX_VECTORS_COMPARED);
    let newest: Vec<ConfirmedFact> = newest.into_iter().map(KeywordFact::as_confirmed).collect();
    read_cosines(services, request, query, &newest).await
}

/// Sets the cosines of candidates that were chosen by words or importance.
async fn add_cosines(
    services: &Services,
    request: &RecallRequest<'_>,
    query: &[f32],
    chosen: &mut [Candidate],
) -> StoreResult<()> {
    let versions = chosen.iter().filter_map(|candidate| {
        let version = candidate.hint?.version;
        Some(ConfirmedFact {
            fact: candidate.fact,
            version,
        })
    });
    let cosines = read_cosines(services, request, query, &versions.collect::<Vec<_>>()).await?;
    for candidate in chosen {
        candidate.cosine = cosines.get(&candidate.fact).copied().unwrap_or_default();
    }
    Ok(())
}

/// Reads the vectors of facts through the cache of bodies.
async fn read_cosines(
    services: &Services,
    request: &RecallRequest<'_>,
    query: &[f32],
    facts: &[ConfirmedFact],
) -> StoreResult<HashMap<FactId, f32>> {
    let bodies = services
        .memory_cache
        .read_bodies(services, request.scope, facts)
        .await?;
    let comparable = bodies.iter().filter(|body| body.embedding.len() == query.len());
    Ok(comparable
        .map(|body| (body.id, dot_product(query, &body.embedding)))
        .collect())
}

fn to_candidate(worded: &KeywordFact, terms: &keywords::TermWeights, cosines: &HashMap<FactId, f32>) -> Candidate {
    let of_fact = keywords::fact_terms(FactTexts {
        content: &worded.content,
        keywords: &worded.keywords,
        subject: &worded.subject,
        predicate: &worded.predicate,
        object: &worded.object,
    });
    Candidate {
        fact: worded.fact,
        cosine: cosines.get(&worded.fact).copied().unwrap_or_default(),
        hint: Some(ScoreHint {
            version: worded.version,
            importance: worded.importance,
            valid_at: worded.valid_at,
            keyword: keywords::bm25_score(terms, &of_fact),
        }),
    }
}

/// Returns the union of the legs. Further candidates by words fill the leg by meaning, if few facts have a cosine
/// above 0.
fn choose_candidates(mut candidates: Vec<Candidate>, limits: CandidateLimits) -> Vec<Candidate> {
    candidates.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then(a.fact.cmp(&b.fact)));
    let dense_count = candidates
        .iter()
        .take_while(|candidate| candidate.cosine > 0.0)
        .count()
        .min(limits.dense);
    let mut chosen: Vec<Candidate> = candidates.drain(..dense_count).collect();
    let mut take = |limit: usize, rank_of: &dyn Fn(&ScoreHint) -> Option<KeywordRank>| {
        candidates.sort_by_key(|candidate| Reverse((candidate.hint.as_ref().and_then(rank_of), candidate.fact)));
        let worth = candidates
            .iter()
            .take_while(|candidate| candidate.hint.as_ref().and_then(rank_of).is_some());
        let count = worth.count().min(limit);
        chosen.extend(candidates.drain(..count));
    };
    take(limits.sparse.saturating_add(limits.dense - dense_count), &|hint| {
        (hint.keyword > 0.0).then(|| KeywordRank(hint.keyword, hint.valid_at.timestamp_micros()))
    });
    take(limits.important, &|hint| {
        Some(KeywordRank(
            hint.importance.get().into(),
            hint.valid_at.timestamp_micros(),
        ))
    });
    take(limits.recent, &|hint| {
        Some(KeywordRank(0.0, hint.valid_at.timestamp_micros()))
    });
    chosen
}

/// A sort key: a score, then a time.
struct KeywordRank(f64, i64);

impl PartialEq for KeywordRank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for KeywordRank {}
impl PartialOrd for KeywordRank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for KeywordRank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use colloquy_core::ids::FactId;
    use colloquy_memory::fact::Importance;

    fn candidate(n: u128, keyword: f64, importance: u8, day: i64) -> Candidate {
        Candidate {
            fact: FactId::from_u128(n),
            cosine: 0.0,
            hint: Some(ScoreHint {
                version: 1,
                importance: Importance::from_clamped(importance.into()),
                valid_at: DateTime::from_timestamp(day * 86_400, 0).unwrap_or_default(),
                keyword,
            }),
        }
    }

    fn chosen(all: &[Candidate], limits: CandidateLimits) -> Vec<u128> {
        let mut chosen: Vec<u128> = choose_candidates(all.to_vec(), limits)
            .into_iter()
            .map(|candidate| candidate.fact.as_u128())
            .collect();
        chosen.sort_unstable();
        chosen
    }

    #[test]
    fn recall_sources_each_contribute_their_best() {
        let all = [
            candidate(1, 0.9, 1, 1),
            candidate(2, 0.2, 1, 2),
            candidate(3, 0.0, 9, 3),
            candidate(4, 0.0, 8, 4),
            candidate(5, 0.0, 1, 9),
            candidate(6, 0.0, 1, 8),
        ];
        let limits = CandidateLimits {
            dense: 0,
            sparse: 1,
            important: 1,
            recent: 1,
        };
        assert_eq!(chosen(&all, limits), [1, 3, 5]);
        // A fact without a common word is not proposed by words.
        let by_words = CandidateLimits {
            dense: 5,
            sparse: 5,
            important: 0,
            recent: 0,
        };
        assert_eq!(chosen(&all, by_words), [1, 2]);
        assert_eq!(chosen(&[], CandidateLimits::default()), [0_u128; 0]);
    }

    #[test]
    fn nearest_facts_are_proposed_without_a_common_word() {
        let near = |n, cosine| Candidate {
            cosine,
            ..candidate(n, 0.0, 1, 1)
        };
        let all = [
            near(1, 0.9),
            near(2, 0.7),
            near(3, 0.2),
            candidate(4, 0.5, 1, 1),
            near(5, -0.1),
        ];
        let limits = CandidateLimits {
            dense: 2,
            sparse: 2,
            important: 0,
            recent: 0,
        };
        assert_eq!(chosen(&all, limits), [1, 2, 4]);
        // The rest of the leg by meaning goes to words.
        let wide = CandidateLimits {
            dense: 4,
            sparse: 0,
            ..limits
        };
        assert_eq!(chosen(&all, wide), [1, 2, 3, 4]);
    }
}
