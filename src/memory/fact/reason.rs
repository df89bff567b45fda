//! Why facts end.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a fact stopped being valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvalidReason {
    /// A newer fact says the same. The view folds the two facts.
    Duplicate,
    /// A newer fact contradicts this fact.
    Superseded,
    /// The player asked to forget the fact.
    Forgotten,
    /// The turn was rewound.
    Unsaid,
    /// The fact only repeats the speaker's prompt, so it is no news. The view does not fold an echo. The fact becomes
    /// valid as soon as the repeated fact is no longer valid.
    Echo,
    /// A person removed the fact over REST.
    Removed,
    /// The only premise is gone.
    PremiseGone,
    /// The retention period passed.
    Expired,
    /// A promise was kept, or a goal reached.
    Fulfilled,
    /// The promise or goal was given up.
    GivenUp,
    /// The day of a promise passed without the promise being kept.
    Overdue,
}

impl InvalidReason {
    /// The ways in which a line can end a promise or a goal.
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
