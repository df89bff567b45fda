//! Why facts end.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};
use utoipa::ToSchema;

/// Why a fact stopped being valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, IntoStaticStr, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum InvalidReason {
    /// A newer fact says the same. The view folds the two facts.
    Duplicate,
    /// A newer fact contradicts this fact, or says the same and has fewer locks.
    Superseded,
    /// The player asked to forget the fact.
    Forgotten,
    /// The turn was rewound.
    Unsaid,
    /// The fact only repeats the speaker's prompt, so it is no news; or it repeats a promise that has fewer locks. The
    /// view does not fold an echo. The fact becomes valid as soon as the repeated fact is no longer valid.
    Echo,
    /// A person removed the fact over REST.
    Removed,
    /// A person wrote over REST until when the fact was true.
    Ended,
    /// A premise is gone, or its sentence has changed; or the facts were consolidated again.
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
        self.into_str()
    }
    /// The inverse of [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}
