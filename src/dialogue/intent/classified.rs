//! The intent of a line, with its source.

use colloquy_memory::{keywords, trace::CallTrace, turn::Intent};

/// The value of [`ClassifiedIntent::source`] for an answer of the classifier.
pub(super) const INTENT_SOURCE_MODEL: &str = "model";
/// The value of [`ClassifiedIntent::source`] for an answer that the classifier gave for the replaced turn.
pub(super) const INTENT_SOURCE_REPLACED: &str = "model, for the replaced turn";

/// The value of [`ClassifiedIntent::source`] for the likeliest intent by the words of the line.
const INTENT_SOURCE_RULES: &str = "by rules";

/// The answer of the classifier, or the assumption in its place.
#[derive(Debug, Clone)]
pub(crate) struct ClassifiedIntent {
    pub intent: Intent,
    /// [`INTENT_SOURCE_MODEL`], [`INTENT_SOURCE_REPLACED`], or the reason why the classifier's answer was not used.
    pub source: String,
    /// True if the intent is unknown. The turn then leaves out no memory.
    pub in_full: bool,
    pub call: Option<CallTrace>,
}

impl ClassifiedIntent {
    /// False for small talk, which is not compared by meaning.
    pub fn is_about_something(&self) -> bool {
        self.in_full || self.intent != Intent::Chat
    }

    /// Returns the likeliest intent by the words of a line.
    pub fn by_rules(line: &str) -> Self {
        Self {
            intent: keywords::expected_intent(line),
            source: INTENT_SOURCE_RULES.to_owned(),
            in_full: false,
            call: None,
        }
    }

    /// True if a turn with either intent gathers the same.
    pub fn needs_same_as(&self, other: &Self) -> bool {
        (self.intent, self.in_full) == (other.intent, other.in_full)
    }

    /// Returns an intent that recalls in full, because a failed classifier must not hide memories.
    pub(super) fn assume_full_recall(reason: impl std::fmt::Display, call: Option<CallTrace>) -> Self {
        Self {
            intent: Intent::Memory,
            source: format!("recall in full: {reason}"),
            in_full: true,
            call,
        }
    }
}
