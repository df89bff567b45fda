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
