//! Dedupe and conflict: what a new statement does to what is known (ALGORITHMS §1).

use serde::{Deserialize, Serialize};

/// A judge's answer about an older and a newer statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Same,
    Contradicts,
    Independent,
}

impl Verdict {
    /// The name in prompts and in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Contradicts => "contradicts",
            Self::Independent => "independent",
        }
    }
    /// The inverse of [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Same, Self::Contradicts, Self::Independent]
            .into_iter()
            .find(|verdict| verdict.as_str() == text)
    }
}
