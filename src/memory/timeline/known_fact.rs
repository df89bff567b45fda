//! A fact as a timeline has it: what happened to it, and when it may have held.

use chrono::{DateTime, Utc};

use super::vector_at;
use crate::{
    ids::{FactId, InvalidationId, TurnId},
    memory::fact::{Fact, InvalidReason},
};

/// A fact with what happened to it.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownFact {
    pub fact: Fact,
    /// The unit vector of its wording, as it is now.
    pub vector: Vec<f32>,
    /// When it was said, or written: a person may write what has been true for long.
    pub written_at: DateTime<Utc>,
    /// People's edits, oldest first.
    pub edits: Vec<PastEdit>,
    /// Why it is not, or was not, valid. Without what a rewind took back.
    pub ends: Vec<StoredEnd>,
    /// It is of another memory, and a person wrote it: what contradicts it flags it, and nothing else is decided about it here.
    pub foreign: bool,
}

impl KnownFact {
    /// From when on it takes part: before it is written nothing can touch it, however long it has been true.
    pub(super) fn begins_at(&self) -> DateTime<Utc> {
        self.fact.valid_at.max(self.written_at)
    }

    /// Whether it held at `at`, unless what was said since `since` had ended it by then.
    pub(super) fn may_hold(&self, since: DateTime<Utc>, at: DateTime<Utc>) -> bool {
        self.begins_at() <= at
            && self.fact.expires_at.is_none_or(|end| end > at)
            && self
                .ends
                .iter()
                .filter(|end| end.deciding_turn_since(since).is_none())
                .all(|end| end.at > at || end.restored_at.is_some_and(|restored| restored <= at))
    }

    /// Whether it was said since `since`, or something said since then had ended it: it may be valid now, and not have been.
    #[must_use]
    pub fn may_be_valid_again(&self, since: DateTime<Utc>) -> bool {
        let is_ended = || self.ends.iter().any(|end| end.deciding_turn_since(since).is_some());
        !self.foreign && (self.fact.valid_at >= since || is_ended())
    }

    /// The vector of the words in which it was said.
    #[must_use]
    pub fn vector_as_said(&self) -> &[f32] {
        vector_at(self, self.fact.valid_at)
    }
}

/// What a person's edit changed, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PastEdit {
    pub at: DateTime<Utc>,
    /// The vector until then, where the edit changed the wording.
    pub vector_before: Option<Vec<f32>>,
    /// What it made of the sentence, and of the keywords.
    pub content: Option<String>,
    pub keywords: Option<Vec<String>>,
    pub pinned: Option<bool>,
    /// The edit put an ended fact back.
    pub restored: bool,
}

/// A stored reason why a fact is not valid.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEnd {
    pub id: InvalidationId,
    pub reason: InvalidReason,
    pub by: Option<FactId>,
    /// The turn that caused it; `None`: a person, a rule or a turn of another memory did, and it is not decided here.
    pub turn: Option<TurnId>,
    pub at: DateTime<Utc>,
    /// When a person put the fact back.
    pub restored_at: Option<DateTime<Utc>>,
}

impl StoredEnd {
    /// The turn that caused it, if that is of those gone through from `since` on.
    pub(super) fn deciding_turn_since(&self, since: DateTime<Utc>) -> Option<TurnId> {
        self.turn.filter(|_| self.at >= since)
    }
}
