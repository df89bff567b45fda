//! Recall while the index is away: the ledger's own words, most important and newest facts.
//!
//! What a prompt gets is found less well and never less safely: the ledger keeps to validity, audience and
//! privacy, and what it gives is confirmed like anything else that was proposed.

use std::cmp::Reverse;

use super::Sought;
use crate::{
    dialogue::Services,
    memory::keywords,
    ports::{
        StoreError, StoreResult,
        ledger::facts::Worded,
        vectors::{Candidate, Hint, LegLimits},
    },
};

/// Facts looked through of each knower and privacy, newest first. More would make each turn slow just when
/// the ledger has more to do than usual.
const LOOKED_THROUGH: u32 = 1_000;

/// The candidates that words, importance and age propose.
pub(super) async fn propose(services: &Services, sought: &Sought<'_>) -> StoreResult<Vec<Candidate>> {
    let facts = &services.ledger.facts;
    let worded = facts
        .worded(sought.scope, sought.viewpoint, sought.at, LOOKED_THROUGH)
        .await?;
    let (terms, limits) = (sought.terms.clone(), sought.limits);
    // Up to some thousands of texts: no dialogue of this thread is to wait for that.
    tokio::task::spawn_blocking(move || {
        let hints = worded.iter().map(|fact| hint(fact, &terms)).collect();
        choose(hints, limits)
    })
    .await
    .map_err(|error| StoreError::Unavailable(format!("the ledger's facts were not gone through: {error}")))
}

fn hint(worded: &Worded, terms: &keywords::TermWeights) -> Candidate {
    let of_fact = keywords::fact_terms(&worded.content, &worded.keywords);
    Candidate {
        fact: worded.fact,
        cosine: 0.0,
        hint: Some(Hint {
            version: worded.version,
            importance: worded.importance,
            valid_at: worded.valid_at,
            keyword: keywords::bm25(terms, &of_fact),
        }),
    }
}

/// The union of the legs. Those that would be nearest in meaning are made up for by as many by words.
fn choose(mut all: Vec<Candidate>, limits: LegLimits) -> Vec<Candidate> {
    let mut chosen = Vec::new();
    let mut take = |limit: usize, of: &dyn Fn(&Hint) -> Option<Rank>| {
        all.sort_by_key(|candidate| Reverse((candidate.hint.as_ref().and_then(of), candidate.fact)));
        let worth = all
            .iter()
            .take_while(|candidate| candidate.hint.as_ref().and_then(of).is_some());
        let count = worth.count().min(limit);
        chosen.extend(all.drain(..count));
    };
    take(limits.sparse.saturating_add(limits.dense), &|hint| {
        (hint.keyword > 0.0).then(|| Rank(hint.keyword, hint.valid_at.timestamp_micros()))
    });
    take(limits.important, &|hint| {
        Some(Rank(hint.importance.get().into(), hint.valid_at.timestamp_micros()))
    });
    take(limits.recent, &|hint| Some(Rank(0.0, hint.valid_at.timestamp_micros())));
    chosen
}

/// A share that is a number, and then an age.
struct Rank(f64, i64);

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Rank {}
impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Rank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::{ids::FactId, memory::fact::Importance};

    fn candidate(n: u128, keyword: f64, importance: u8, day: i64) -> Candidate {
        Candidate {
            fact: FactId::from_u128(n),
            cosine: 0.0,
            hint: Some(Hint {
                version: 1,
                importance: Importance::clamped(importance.into()),
                valid_at: DateTime::from_timestamp(day * 86_400, 0).unwrap_or_default(),
                keyword,
            }),
        }
    }

    fn chosen(all: &[Candidate], limits: LegLimits) -> Vec<u128> {
        let mut chosen: Vec<u128> = choose(all.to_vec(), limits)
            .into_iter()
            .map(|candidate| candidate.fact.as_u128())
            .collect();
        chosen.sort_unstable();
        chosen
    }

    #[test]
    fn each_leg_takes_its_best() {
        let all = [
            candidate(1, 0.9, 1, 1),
            candidate(2, 0.2, 1, 2),
            candidate(3, 0.0, 9, 3),
            candidate(4, 0.0, 8, 4),
            candidate(5, 0.0, 1, 9),
            candidate(6, 0.0, 1, 8),
        ];
        let limits = LegLimits {
            dense: 0,
            sparse: 1,
            important: 1,
            recent: 1,
        };
        assert_eq!(chosen(&all, limits), [1, 3, 5]);
        // What shares no word is not proposed for its words.
        let by_words = LegLimits {
            dense: 5,
            sparse: 5,
            important: 0,
            recent: 0,
        };
        assert_eq!(chosen(&all, by_words), [1, 2]);
        assert_eq!(chosen(&[], LegLimits::default()), [0_u128; 0]);
    }
}
