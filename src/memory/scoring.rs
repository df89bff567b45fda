//! The recall score: one pure function over confirmed facts (ALGORITHMS §2).

use std::cmp::Ordering;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{calibration::Calibration, fact::Importance, trace::ScoreParts};
use crate::ids::FactId;

/// Weights of the four factors; each in [0, 1], summing to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallWeights {
    pub recency: f64,
    pub importance: f64,
    pub relevance: f64,
    pub keyword: f64,
}

impl RecallWeights {
    /// The four-factor default.
    pub const FOUR_FACTOR: Self = Self {
        recency: 0.15,
        importance: 0.15,
        relevance: 0.50,
        keyword: 0.20,
    };
    /// The `rag` preset (004): similarity, time decay, importance.
    pub const RAG: Self = Self {
        recency: 0.2,
        importance: 0.1,
        relevance: 0.7,
        keyword: 0.0,
    };

    /// Each weight in [0, 1], together 1 (± 0.001).
    ///
    /// # Errors
    /// Says which weight is wrong, in words fit for a configuration error.
    pub fn validate(&self) -> Result<(), String> {
        let parts = [
            ("recency", self.recency),
            ("importance", self.importance),
            ("relevance", self.relevance),
            ("keyword", self.keyword),
        ];
        for (name, value) in parts {
            if !(0.0..=1.0).contains(&value) {
                return Err(format!("recall weight `{name}` must be between 0 and 1, not {value}"));
            }
        }
        let sum: f64 = parts.iter().map(|part| part.1).sum();
        if (sum - 1.0).abs() > 0.001 {
            return Err(format!("recall weights must add up to 1, not {sum:.3}"));
        }
        Ok(())
    }
}

/// Scores one confirmed fact for one query. Every part is in [0, 1]; what is not a number counts as 0.
///
/// `age_days` below 0 (a fact dated ahead of an as-of query) counts as 0; `keyword` is a
/// [`coverage`](super::keywords::coverage).
#[must_use]
pub fn score(
    weights: &RecallWeights,
    calibration: &Calibration,
    cosine: f32,
    keyword: f64,
    importance: Importance,
    age_days: f64,
    lambda_per_day: f64,
) -> ScoreParts {
    let cosine = if cosine.is_finite() {
        cosine.clamp(-1.0, 1.0)
    } else {
        0.0
    };
    let recency = share((-lambda_per_day.max(0.0) * age_days.max(0.0)).exp());
    let importance = f64::from(importance.get()) / 10.0;
    let relevance = share(calibration.relevance(cosine));
    let keyword = share(keyword);
    let total = share(
        weights.recency * recency
            + weights.importance * importance
            + weights.relevance * relevance
            + weights.keyword * keyword,
    );
    ScoreParts {
        recency,
        importance,
        relevance,
        keyword,
        total,
        cosine: f64::from(cosine),
    }
}

/// Into [0, 1]; NaN is 0.
fn share(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

/// Better scores first; of equal ones the newer, then the smaller id. A total order.
#[must_use]
pub fn best_first(a: (f64, DateTime<Utc>, FactId), b: (f64, DateTime<Utc>, FactId)) -> Ordering {
    b.0.total_cmp(&a.0)
        .then_with(|| b.1.cmp(&a.1))
        .then_with(|| a.2.cmp(&b.2))
}

/// Reorders candidates so that what resembles an earlier pick comes later (maximal marginal relevance).
///
/// `candidates` are (score in [0, 1], unit vector), best first; `lambda` in [0, 1] is the share of
/// the score against dissimilarity: 1 keeps the order. Returns positions in `candidates`, all of them.
#[must_use]
pub fn diversify(candidates: &[(f64, &[f32])], lambda: f64) -> Vec<usize> {
    let lambda = share(lambda);
    let mut left: Vec<usize> = (0..candidates.len()).collect();
    // Similarity of each candidate to the nearest one picked so far.
    let mut nearest = vec![0.0_f64; candidates.len()];
    let mut order = Vec::with_capacity(candidates.len());
    while !left.is_empty() {
        let value = |at: usize| lambda * share(candidates[at].0) - (1.0 - lambda) * nearest[at];
        let mut best = 0;
        for at in 1..left.len() {
            if value(left[at]) > value(left[best]) {
                best = at;
            }
        }
        let pick = left.remove(best);
        order.push(pick);
        for &at in &left {
            nearest[at] = nearest[at].max(share(f64::from(dot(candidates[at].1, candidates[pick].1))));
        }
    }
    order
}

/// The cosine of two unit vectors; 0 for vectors of different length.
#[must_use]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    if a.len() == b.len() {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    } else {
        0.0
    }
}
