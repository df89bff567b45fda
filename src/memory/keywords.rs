//! Keyword terms of a text and how much of a query a fact covers (ALGORITHMS §2, PARTS "Korean keywords").

/// Weighted terms of a text, sorted by term hash, each once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TermWeights(pub Vec<(u64, f32)>);
