//! Consolidation: older facts of an audience and a week with one subject and speaker become fewer facts, the conclusions
//! (docs/algorithms.md#consolidation).
//!
//! A group's conclusions depend only on the facts of the group that stand. A conclusion falls with any fact that the model
//! has read for it, and the rest of the group is consolidated again.

use std::{collections::BTreeSet, fmt::Write as _};

use chrono::{DateTime, Datelike, Days, NaiveTime, Utc};
use sha2::{Digest as _, Sha256};

use super::{
    agreement::{self, numbers_in},
    disclosure::audience::Audience,
    fact::{Cause, Fact, FactKind, Importance, Statement},
    keywords::sentence_key,
    party::subject_key,
};

/// The fewest facts of a group.
pub const MIN_FACTS: usize = 3;
/// The most facts of a group that a model reads: the oldest. The others stay as they are.
pub const MAX_FACTS: usize = 60;
/// The fewest premises of a conclusion.
pub const MIN_PREMISES: usize = 2;
/// The most conclusions of a group.
pub const MAX_CONCLUSIONS: usize = 12;

/// A week (UTC), from Monday on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Week {
    monday: DateTime<Utc>,
}

impl Week {
    /// Returns the week of a moment.
    #[must_use]
    pub fn of(moment: DateTime<Utc>) -> Self {
        let day = moment.date_naive();
        let since_monday = Days::new(u64::from(day.weekday().num_days_from_monday()));
        // The first days of the calendar are no Monday's.
        let monday = day.checked_sub_days(since_monday).unwrap_or(day);
        let week = Self {
            monday: monday.and_time(NaiveTime::MIN).and_utc(),
        };
        debug_assert!(
            week.monday <= moment && moment <= week.ends_at(),
            "a moment lies in its week"
        );
        week
    }

    #[must_use]
    pub const fn begins_at(self) -> DateTime<Utc> {
        self.monday
    }

    /// The first moment after the week.
    #[must_use]
    pub fn ends_at(self) -> DateTime<Utc> {
        self.monday
            .checked_add_days(Days::new(7))
            .unwrap_or(DateTime::<Utc>::MAX_UTC)
    }
}

/// True if consolidation may use a fact at `now`. What people and the game wrote, what is pinned, limits of safety, names,
/// open promises and secrets stay as they are. A conclusion is no premise of another.
#[must_use]
pub fn is_premise(fact: &Fact, now: DateTime<Utc>) -> bool {
    let statement = &fact.statement;
    matches!(fact.cause, Cause::Turn(_))
        && fact.invalid.is_none()
        && fact.expires_at.is_none_or(|end| end > now)
        && !fact.is_protected()
        && fact.corrects.is_none()
        && fact.locks.is_empty()
        && statement.kind != FactKind::Constraint
        && !statement.is_open_promise()
        && !super::aliases::states_name(statement)
        && !statement.tells_own_name()
}

/// Returns the hash of a sentence, in 32 hexadecimal digits.
#[must_use]
pub fn sentence_hash(sentence: &str) -> String {
    to_hex(&Sha256::digest(sentence.as_bytes()))
}

fn to_hex(digest: &[u8]) -> String {
    digest.iter().take(16).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the importance of a fact that a conclusion stands for: half, rounded up.
#[must_use]
pub fn lowered_importance(importance: Importance) -> Importance {
    let lowered = Importance::from_clamped(f64::from(importance.get().div_ceil(2)));
    debug_assert!(lowered <= importance, "a premise does not gain importance");
    lowered
}

/// The facts of an audience and a week with the same subject and speaker, in the order in which a model reads them.
#[derive(Debug, Clone, PartialEq)]
pub struct FactGroup {
    pub audience: Audience,
    pub week: Week,
    /// The subject, in the form for comparisons, and the speaker.
    pub about: String,
    /// Oldest first; at most [`MAX_FACTS`].
    pub facts: Vec<Fact>,
}

impl FactGroup {
    /// Returns the groups of facts with enough facts. Facts that are no premises at `now` are left out.
    #[must_use]
    pub fn from_facts(facts: Vec<Fact>, now: DateTime<Utc>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for fact in facts.into_iter().filter(|fact| is_premise(fact, now)) {
            let week = Week::of(fact.valid_at);
            let statement = &fact.statement;
            let topic = format!("{} | {}", subject_key(&statement.subject), statement.speaker);
            let is_of =
                |group: &&mut Self| group.week == week && group.about == topic && group.audience == fact.audience;
            let matching_group = groups.iter_mut().rev().find(is_of);
            match matching_group {
                Some(group) => group.facts.push(fact),
                None => groups.push(Self {
                    audience: fact.audience.clone(),
                    week,
                    about: topic,
                    facts: vec![fact],
                }),
            }
        }
        groups.retain(|group| group.facts.len() >= MIN_FACTS);
        for group in &mut groups {
            // The sentence orders facts of one turn: their ids depend on when they were learned.
            group
                .facts
                .sort_by(|a, b| (a.valid_at, &a.view.content, a.id).cmp(&(b.valid_at, &b.view.content, b.id)));
            group.facts.truncate(MAX_FACTS);
        }
        debug_assert!(
            groups
                .iter()
                .all(|group| (MIN_FACTS..=MAX_FACTS).contains(&group.facts.len())),
            "a group has neither too few facts nor too many"
        );
        groups
    }

    /// Returns the hash of the facts' ids and sentences, in 32 hexadecimal digits.
    #[must_use]
    pub fn material_hash(&self) -> String {
        let mut hasher = Sha256::new();
        for fact in &self.facts {
            hasher.update(fact.id.to_string());
            hasher.update(fact.view.content.as_bytes());
            hasher.update([0]);
        }
        to_hex(&hasher.finalize())
    }

    /// Returns the statement of a conclusion from the facts at `premises`. `None`: too few facts, an unknown place, a
    /// sentence that one of them says already, or a number that none of them has.
    #[must_use]
    pub fn conclude(&self, premises: &BTreeSet<usize>, sentence: ConcludedSentence) -> Option<Statement> {
        let facts: Vec<&Fact> = premises
            .iter()
            .map(|index| self.facts.get(*index))
            .collect::<Option<_>>()?;
        let of_first = &facts.first()?.statement;
        let key = sentence_key(&sentence.content);
        let says_nothing_new = facts.iter().any(|fact| sentence_key(&fact.view.content) == key);
        let has_own_number = numbers_in(&sentence.content)
            .iter()
            // "One" is seldom a number.
            .any(|number| number != "1" && !facts.iter().any(|fact| numbers_in(&fact.view.content).contains(number)));
        if facts.len() < MIN_PREMISES || says_nothing_new || has_own_number {
            return None;
        }
        let importance = facts.iter().map(|fact| importance_as_said(fact)).max()?;
        Some(Statement {
            subject: of_first.subject.clone(),
            predicate: sentence.predicate,
            object: sentence.object,
            polarity: agreement::polarity_of(&sentence.content),
            tense: agreement::tense_of(&sentence.content),
            content: sentence.content,
            keywords: sentence.keywords,
            speaker: of_first.speaker.clone(),
            kind: most_frequent_kind(&facts),
            importance,
            pinned: false,
        })
    }
}

/// A fact may be the premise of an older conclusion, which has lowered the view's importance.
fn importance_as_said(fact: &Fact) -> Importance {
    fact.statement.importance.max(fact.view.importance)
}

/// Returns the kind of most facts; of equally frequent kinds that of the last fact.
fn most_frequent_kind(facts: &[&Fact]) -> FactKind {
    let count = |kind: FactKind| facts.iter().filter(|fact| fact.statement.kind == kind).count();
    let kinds = facts.iter().map(|fact| fact.statement.kind);
    kinds.max_by_key(|kind| count(*kind)).unwrap_or(FactKind::Other)
}

/// What a model has made of several facts.
#[derive(Debug, Clone, PartialEq)]
pub struct ConcludedSentence {
    pub predicate: String,
    pub object: String,
    /// One self-contained sentence.
    pub content: String,
    pub keywords: Vec<String>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn week_begins_on_monday() {
        for (at, monday) in [
            ("2026-11-28T23:59:59Z", "2026-11-23T00:00:00Z"),
            ("2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z"),
            ("2026-11-22T23:59:59.999999Z", "2026-11-16T00:00:00Z"),
            ("1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z"),
        ] {
            let week = Week::of(at.parse().unwrap());
            assert_eq!(week.begins_at(), monday.parse::<DateTime<Utc>>().unwrap(), "{at}");
            assert_eq!(Week::of(week.ends_at()).begins_at(), week.ends_at());
        }
    }

    #[test]
    fn importance_is_halved() {
        let halves = (1..=10).map(|value| lowered_importance(Importance::new(value).unwrap()).get());
        assert_eq!(halves.collect::<Vec<_>>(), [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    }
}
