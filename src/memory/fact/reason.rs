//! Why facts end.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a fact stopped being valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvalidReason {
    /// A newer fact says the same; the view folds the two.
    Duplicate,
    /// A newer fact contradicts it.
    Superseded,
    /// The player asked to forget it.
    Forgotten,
    /// Its turn was rewound.
    Unsaid,
    /// It only repeats what the speaker's prompt had said: no news. Not folded, and valid as soon as
    /// what it repeated is not.
    Echo,
    /// A person took it out over REST.
    Removed,
    /// Its only premise is gone.
    PremiseGone,
    /// Its retention period passed.
    Expired,
    /// A promise was kept, or a goal reached.
    Fulfilled,
    /// A promise or a goal was taken back.
    GivenUp,
    /// The day of a promise passed, and it was not kept.
    Overdue,
}

impl InvalidReason {
    /// How a promise or a goal can end by what is said.
    pub const ENDS_OF_PROMISES: [Self; 3] = [Self::Fulfilled, Self::GivenUp, Self::Overdue];

    /// The name on the wire and in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Superseded => "superseded",
            Self::Forgotten => "forgotten",
            Self::Unsaid => "unsaid",
            Self::Echo => "echo",
            Self::Removed => "removed",
            Self::PremiseGone => "premise_gone",
            Self::Expired => "expired",
            Self::Fulfilled => "fulfilled",
            Self::GivenUp => "given_up",
            Self::Overdue => "overdue",
        }
    }
    /// The inverse of [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Duplicate,
            Self::Superseded,
            Self::Forgotten,
            Self::Unsaid,
            Self::Echo,
            Self::Removed,
            Self::PremiseGone,
            Self::Expired,
            Self::Fulfilled,
            Self::GivenUp,
            Self::Overdue,
        ]
        .into_iter()
        .find(|reason| reason.as_str() == text)
    }
}
