//! Facts that a person should check (docs/memory.md#facts-to-check).

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{
    fact::{Fact, InvalidReason, Statement},
    keywords::sentence_key,
    party::subject_key,
};
use colloquy_core::{ids::FactId, scope::Role};

/// Longest reason of a decision, in characters.
pub const MAX_REASON_CHARS: usize = 300;
/// A fact is over-merged from this number of different sentences on.
pub const OVER_MERGED_SENTENCES: usize = 3;
/// A fact is over-merged from this number of different objects on.
pub const OVER_MERGED_OBJECTS: usize = 2;

/// Why a fact is flagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlagKind {
    /// A valid statement contradicts the pinned or authored fact.
    Contradicted,
    /// The fact contains personal data.
    Pii,
    /// The fact replaced several different statements, so meaning may be lost.
    OverMerged,
}

impl FlagKind {
    pub const ALL: [Self; 3] = [Self::Contradicted, Self::Pii, Self::OverMerged];

    /// The name on the wire and in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Contradicted => "contradicted",
            Self::Pii => "pii",
            Self::OverMerged => "over_merged",
        }
    }
    /// The inverse of [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flag| flag.as_str() == text)
    }
}

/// A person's decision about a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlagDecision {
    /// The flag is right. A contradicted fact ends, and the contradicting statements stay. Personal data is known and may
    /// stay. A merged fact stays as it is.
    Accepted,
    /// The fact was corrected.
    Corrected,
    /// The flag is wrong. The fact stays.
    Dismissed,
}

impl FlagDecision {
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Corrected, Self::Dismissed];

    /// The name on the wire and in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Corrected => "corrected",
            Self::Dismissed => "dismissed",
        }
    }
}

/// A decision with its author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedFlag {
    pub decision: FlagDecision,
    /// At most [`MAX_REASON_CHARS`] characters; may be empty.
    pub reason: String,
    /// The subject of the person's token.
    pub decided_by: String,
    pub role: Role,
    pub decided_at: DateTime<Utc>,
}

/// A decision about one statement of a flag.
#[derive(Debug, Clone, PartialEq)]
pub struct StatementDecision {
    /// The flagged fact.
    pub fact: FactId,
    /// The statement: the id of a fact, or the [kinds of personal data](pii_statement).
    pub statement: String,
    pub decided: DecidedFlag,
}

/// A flag with everything that a person needs for a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct FlagEntry {
    pub fact: Fact,
    pub flag: FlagKind,
    /// When the newest of the statements was found.
    pub flagged_at: DateTime<Utc>,
    /// Oldest first. `contradicted`: the contradicting statements. `over_merged`: the merged statements. `pii`: empty.
    pub statements: Vec<Fact>,
    /// `None`: open.
    pub decided: Option<DecidedFlag>,
}

/// The statement behind a `pii` flag: the kinds of personal data. A fact with other kinds is flagged again.
#[must_use]
pub fn pii_statement(fact: &Fact) -> String {
    fact.pii.join("+")
}

/// True if the statement of a fact still counts as said: its turn was not taken back.
#[must_use]
pub fn is_said(fact: &Fact) -> bool {
    fact.invalid
        .as_ref()
        .is_none_or(|invalid| invalid.reason != InvalidReason::Unsaid)
}

/// True if the statements, merged into one fact, may have lost meaning: at least [`OVER_MERGED_SENTENCES`] different
/// sentences, or at least [`OVER_MERGED_OBJECTS`] different objects. Case and punctuation do not count.
#[must_use]
pub fn is_over_merged<'s>(statements: impl IntoIterator<Item = &'s Statement>) -> bool {
    let mut sentences = BTreeSet::new();
    let mut objects = BTreeSet::new();
    for statement in statements {
        sentences.insert(sentence_key(&statement.content));
        objects.insert(subject_key(&statement.object));
    }
    sentences.len() >= OVER_MERGED_SENTENCES || objects.len() >= OVER_MERGED_OBJECTS
}

/// True if two statements have the same words by the same speaker.
#[must_use]
pub fn is_same_statement(statement: &Statement, other: &Statement) -> bool {
    statement.speaker == other.speaker
        && sentence_key(&statement.content) == sentence_key(&other.content)
        && subject_key(&statement.object) == subject_key(&other.object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{FactKind, Importance, Polarity, Tense};

    fn statement(object: &str, content: &str) -> Statement {
        Statement {
            subject: "player:p1".to_owned(),
            predicate: "like".to_owned(),
            object: object.to_owned(),
            content: content.to_owned(),
            keywords: Vec::new(),
            speaker: "player:p1".to_owned(),
            kind: FactKind::Preference,
            importance: Importance::DEFAULT,
            polarity: Polarity::Positive,
            tense: Tense::Present,
            pinned: false,
        }
    }

    #[test]
    fn repetitions_of_one_sentence_lose_no_meaning() {
        let said = [
            statement("grapes", "The player likes grapes."),
            statement("Grapes", "the player likes grapes"),
            statement("the grapes", "The player likes grapes!"),
            statement("grapes", "The player loves grapes."),
        ];
        assert!(!is_over_merged(&said));
    }

    #[test]
    fn three_sentences_or_two_objects_may_lose_meaning() {
        let sentences = ["likes grapes", "loves grapes", "is fond of grapes"].map(|said| statement("grapes", said));
        assert!(is_over_merged(&sentences));
        assert!(!is_over_merged(&sentences[..2]));
        let objects = [
            statement("grapes", "The player likes grapes."),
            statement("red grapes", "The player likes red grapes."),
        ];
        assert!(is_over_merged(&objects));
    }

    #[test]
    fn same_statement_has_the_same_words_and_speaker() {
        let said = statement("grapes", "The player likes grapes.");
        assert!(is_same_statement(
            &said,
            &statement("Grapes", "the player likes grapes")
        ));
        let other = Statement {
            speaker: "player:p2".to_owned(),
            ..said.clone()
        };
        assert!(!is_same_statement(&said, &other));
        assert!(!is_same_statement(
            &said,
            &statement("grapes", "The player eats grapes.")
        ));
    }
}
