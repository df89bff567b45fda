//! The recall score: one pure function over confirmed facts (ALGORITHMS §2).

use serde::{Deserialize, Serialize};

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
}
