//! A fact of a timeline: its history, and when the fact may have held.

use chrono::{DateTime, Utc};

use crate::{
    embedded_text::embedded_fact_text,
    fact::{Fact, InvalidReason},
};
use colloquy_core::ids::{FactId, InvalidationId, TurnId};

/// A fact with its history.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownFact {
    pub fact: Fact,
    /// The unit vector of the present wording.
    pub vector: Vec<f32>,
    /// When the fact was stated or written. A person may write a fact that has been true for a long time.
    pub written_at: DateTime<Utc>,
    /// People's edits, oldest first.
    pub edits: Vec<PastEdit>,
    /// The reasons why the fact is or was invalid, without rewound reasons.
    pub ends: Vec<StoredEnd>,
    /// A person's fact of another memory. A contradicting statement flags the fact; no other decision about the fact is
    /// made.
    pub foreign: bool,
}

impl KnownFact {
    /// The start of the fact in the replay. Before it is written a fact cannot be affected, however long it has been
    /// true.
    pub(super) fn begins_at(&self) -> DateTime<Utc> {
        self.fact.valid_at.max(self.written_at)
    }

    /// True if the fact held at `moment`, not counting ends by turns since `since`.
    pub(super) fn may_hold(&self, since: DateTime<Utc>, moment: DateTime<Utc>) -> bool {
        self.begins_at() <= moment
            && self
                .fact
                .expires_at
                .is_none_or(|end| end > moment || self.fact.view.pinned)
            && self
                .ends
                .iter()
                .filter(|end| end.deciding_turn_since(since).is_none())
                .all(|end| end.ended_at > moment || end.restored_at.is_some_and(|restored| restored <= moment))
    }

    /// True if the fact was stated since `since`, or a turn since then had ended it. Such a fact may become valid now.
    #[must_use]
    pub fn may_be_valid_again(&self, since: DateTime<Utc>) -> bool {
        let is_ended = || self.ends.iter().any(|end| end.deciding_turn_since(since).is_some());
        !self.foreign && (self.fact.valid_at >= since || is_ended())
    }

    /// The vector of the fact's wording at `moment`.
    pub(super) fn vector_at(&self, moment: DateTime<Utc>) -> &[f32] {
        self.edits
            .iter()
            .filter(|edit| edit.edited_at > moment)
            .find_map(|edit| edit.vector_before.as_deref())
            .unwrap_or(&self.vector)
    }

    /// The sentence and the keywords of the fact at `moment`, the base of its vector. Folded duplicates are not
    /// included.
    pub(super) fn wording_at(&self, moment: DateTime<Utc>) -> (&str, &[String]) {
        debug_assert!(
            self.edits.is_sorted_by_key(|edit| edit.edited_at),
            "the edits of a fact are in the order of time"
        );
        let statement = &self.fact.statement;
        let until = || self.edits.iter().rev().filter(|edit| edit.edited_at <= moment);
        let content = until().find_map(|edit| edit.content.as_deref());
        let keywords = until().find_map(|edit| edit.keywords.as_deref());
        (
            content.unwrap_or(&statement.content),
            keywords.unwrap_or(&statement.keywords),
        )
    }

    /// The text of the present wording, from which its vector is made.
    #[must_use]
    pub fn embedded_text(&self) -> String {
        let (content, keywords) = self.wording_at(DateTime::<Utc>::MAX_UTC);
        embedded_fact_text(&self.fact.statement.subject, content, keywords)
    }

    /// The vector of the original wording.
    #[must_use]
    pub fn vector_as_said(&self) -> &[f32] {
        self.vector_at(self.fact.valid_at)
    }
}

/// The relevant changes of a person's edit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PastEdit {
    pub edited_at: DateTime<Utc>,
    /// The vector before the edit, if the edit changed the wording.
    pub vector_before: Option<Vec<f32>>,
    /// The new sentence, and the new keywords.
    pub content: Option<String>,
    pub keywords: Option<Vec<String>>,
    pub pinned: Option<bool>,
    /// True if the edit restored an ended fact.
    pub restored: bool,
}

/// A stored invalidation of a fact.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEnd {
    pub id: InvalidationId,
    pub reason: InvalidReason,
    pub ended_by: Option<FactId>,
    /// The turn that caused the end. `None`: a person, a rule or a turn of another memory caused it, and the replay
    /// does not decide it.
    pub turn: Option<TurnId>,
    pub ended_at: DateTime<Utc>,
    /// When a person restored the fact.
    pub restored_at: Option<DateTime<Utc>>,
}

impl StoredEnd {
    /// The turn that caused the end, if the replay from `since` includes that turn.
    pub(super) fn deciding_turn_since(&self, since: DateTime<Utc>) -> Option<TurnId> {
        self.turn.filter(|_| self.ended_at >= since)
    }
}
