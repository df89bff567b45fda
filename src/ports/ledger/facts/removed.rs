//! Statements whose words no longer hold: a player asked to forget them, or a person removed or corrected them.

use std::{collections::HashMap, hash::BuildHasher};

use chrono::{DateTime, Utc};

use colloquy_core::ids::{DialogueId, FactId};
use colloquy_memory::fact::{EarlierWording, Fact, InvalidReason};

/// A sentence of a fact which a player asked to forget, or which a person removed or corrected, and the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedStatement {
    pub fact: FactId,
    pub content: String,
    /// The requests to forget that ended the fact, in the extraction's words. A request may name what the fact does
    /// not.
    pub requests: Vec<String>,
    pub removed_at: DateTime<Utc>,
    /// The sentence that holds instead. `None`: no sentence does.
    pub correction: Option<String>,
    /// The turn that taught the fact.
    pub source: Option<(DialogueId, u32)>,
    /// True if the turn said this sentence. False: a person wrote it over an earlier one.
    pub is_original: bool,
    /// True if the player asked to forget the fact. False: a person edited the memory.
    pub is_forgotten: bool,
    /// True if some players may not hear of the fact or of the correction.
    pub is_locked: bool,
}

/// Lists the removed statements of facts as of `as_of`, latest first, without the requests to forget
/// ([`add_requests`]). `successors` has the facts that ended others as `superseded`, by id.
#[must_use]
pub fn list_removed_statements<S: BuildHasher>(
    facts: &[Fact],
    successors: &HashMap<FactId, Fact, S>,
    as_of: DateTime<Utc>,
) -> Vec<RemovedStatement> {
    let mut removed: Vec<RemovedStatement> = Vec::new();
    for fact in facts {
        let invalidation = fact
            .invalid
            .as_ref()
            .filter(|invalidation| invalidation.ended_at <= as_of);
        let latest = latest_version(fact, successors, as_of);
        let statement = |content: &str, removed_at, is_forgotten| RemovedStatement {
            fact: fact.id,
            content: content.to_owned(),
            requests: Vec::new(),
            removed_at,
            correction: latest.map(|latest| latest.content_at(as_of).to_owned()),
            source: fact.source,
            is_original: fact.corrects.is_none() && content == fact.statement.content,
            is_forgotten,
            is_locked: !fact.locks.is_empty() || latest.is_some_and(|latest| !latest.locks.is_empty()),
        };
        let current_content = fact.content_at(as_of);
        let earlier: Vec<&EarlierWording> = fact
            .earlier_wordings
            .iter()
            .filter(|wording| wording.until <= as_of)
            .collect();
        for (index, wording) in earlier.iter().enumerate() {
            // A person may have restored the sentence.
            let mut later = earlier[index + 1..]
                .iter()
                .map(|later| later.content.as_str())
                .chain([current_content]);
            if later.all(|content| content != wording.content) {
                removed.push(statement(&wording.content, wording.until, false));
            }
        }
        let Some(invalidation) = invalidation else { continue };
        let is_taken_out = matches!(invalidation.reason, InvalidReason::Forgotten | InvalidReason::Removed)
            || corrected_by(fact, successors, as_of).is_some();
        if is_taken_out {
            let is_forgotten = invalidation.reason == InvalidReason::Forgotten;
            removed.push(statement(current_content, invalidation.ended_at, is_forgotten));
        }
    }
    removed.sort_by_key(|statement| std::cmp::Reverse(statement.removed_at));
    debug_assert!(
        removed.iter().all(|statement| statement.removed_at <= as_of),
        "a statement is removed by the time that is asked for"
    );
    removed
}

/// Adds the requests to forget of the facts to their statements.
pub fn add_requests<S: BuildHasher>(statements: &mut [RemovedStatement], requests: &HashMap<FactId, Vec<String>, S>) {
    for statement in statements.iter_mut().filter(|statement| statement.is_forgotten) {
        statement.requests = requests.get(&statement.fact).cloned().unwrap_or_default();
    }
}

/// The end of a fact as `superseded` by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supersession {
    pub fact: FactId,
    pub successor: FactId,
}

impl Supersession {
    /// Returns the supersession of a fact, if another fact superseded it.
    #[must_use]
    pub fn of_fact(fact: &Fact) -> Option<Self> {
        let invalidation = fact.invalid.as_ref()?;
        let successor = invalidation
            .ended_by
            .filter(|_| invalidation.reason == InvalidReason::Superseded)?;
        Some(Self {
            fact: fact.id,
            successor,
        })
    }
    fn is_correction_by(self, successor: &Fact) -> bool {
        self.successor == successor.id && is_correction_of(successor, self.fact)
    }
}

/// Returns the supersessions of those of `successors` that are corrections by `steps`. [`list_removed_statements`]
/// follows no other successor.
#[must_use]
pub fn list_next_corrections(steps: &[Supersession], successors: &[Fact]) -> Vec<Supersession> {
    let is_correction = |successor: &&Fact| steps.iter().any(|step| step.is_correction_by(successor));
    let corrections = successors.iter().filter(is_correction);
    corrections.filter_map(Supersession::of_fact).collect()
}

/// True for a person's correction of a fact, and for the word of an author in its place.
fn is_correction_of(successor: &Fact, fact: FactId) -> bool {
    successor.corrects == Some(fact) || successor.authored
}

/// Returns the fact that had replaced `fact` at `as_of`, by a person's correction or as the word of an author.
fn corrected_by<'a, S: BuildHasher>(
    fact: &Fact,
    successors: &'a HashMap<FactId, Fact, S>,
    as_of: DateTime<Utc>,
) -> Option<&'a Fact> {
    fact.invalid
        .as_ref()
        .filter(|invalidation| invalidation.ended_at <= as_of)?;
    let successor = successors.get(&Supersession::of_fact(fact)?.successor)?;
    is_correction_of(successor, fact.id).then_some(successor)
}

/// Returns the version of a fact that was valid at `as_of`: the fact, or the last of its corrections.
fn latest_version<'a, S: BuildHasher>(
    fact: &'a Fact,
    successors: &'a HashMap<FactId, Fact, S>,
    as_of: DateTime<Utc>,
) -> Option<&'a Fact> {
    let mut latest = fact;
    // Each step follows another successor, so a ring ends too.
    for _ in 0..=successors.len() {
        match corrected_by(latest, successors, as_of) {
            Some(next) => latest = next,
            None => {
                return latest
                    .invalid
                    .as_ref()
                    .is_none_or(|invalidation| invalidation.ended_at > as_of)
                    .then_some(latest);
            }
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use colloquy_core::ids::EditId;
    use colloquy_memory::{
        disclosure::{
            audience::{Audience, Knower},
            locks::DisclosureLocks,
        },
        fact::{Cause, EffectiveInvalidation, FactKind, FoldedFact, Importance, Polarity, Statement, Tense},
    };

    fn second(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    /// Returns a fact with the sentence "A" at first, and these sentences later. Each has its time.
    fn edited_fact(edits: &[(i64, &str)]) -> Fact {
        let statement = Statement {
            subject: "player".to_owned(),
            predicate: "like".to_owned(),
            object: "plums".to_owned(),
            content: "A".to_owned(),
            keywords: Vec::new(),
            speaker: "player".to_owned(),
            kind: FactKind::Preference,
            importance: Importance::DEFAULT,
            polarity: Polarity::Positive,
            tense: Tense::Present,
            pinned: false,
        };
        let mut view = FoldedFact::from_statement(&statement);
        let earlier_wordings = edits.iter().map(|(at, content)| EarlierWording {
            content: std::mem::replace(&mut view.content, (*content).to_owned()),
            until: second(*at),
        });
        let earlier_wordings = earlier_wordings.collect();
        Fact {
            id: FactId::from_u128(1),
            world: "vale".parse().unwrap(),
            audience: Audience {
                knowers: BTreeSet::from([Knower::World]),
                private_to: None,
            },
            locks: DisclosureLocks::default(),
            replaced_by: Vec::new(),
            statement,
            view,
            valid_at: second(0),
            invalid: None,
            expires_at: None,
            cause: Cause::Edit(EditId::from_u128(2)),
            source: None,
            derived_from: Vec::new(),
            pii: Vec::new(),
            authored: true,
            corrects: None,
            earlier_wordings,
            version: 1,
        }
    }

    #[test]
    fn only_corrections_are_followed() {
        let ended = |id: u128, by: u128| Fact {
            id: FactId::from_u128(id),
            authored: false,
            invalid: Some(EffectiveInvalidation {
                ended_at: second(1),
                reason: InvalidReason::Superseded,
                ended_by: Some(FactId::from_u128(by)),
            }),
            ..edited_fact(&[])
        };
        let step = |fact: u128, by: u128| Supersession {
            fact: FactId::from_u128(fact),
            successor: FactId::from_u128(by),
        };
        let learned = ended(2, 3);
        let corrected = Fact {
            corrects: Some(FactId::from_u128(1)),
            ..ended(4, 5)
        };
        let authored = Fact {
            authored: true,
            ..ended(6, 7)
        };
        let successors = [learned, corrected, authored, edited_fact(&[])];
        let steps = [step(1, 2), step(1, 4), step(9, 6)];
        assert_eq!(list_next_corrections(&steps, &successors), [step(4, 5), step(6, 7)]);
        let of_another = [step(9, 4)];
        assert_eq!(list_next_corrections(&of_another, &successors), []);
    }

    #[test]
    fn sentence_that_a_person_restored_is_removed_only_while_another_held() {
        let removed = |edits: &[(i64, &str)], at| -> Vec<(String, i64, String)> {
            let facts = [edited_fact(edits)];
            let listed = list_removed_statements(&facts, &HashMap::<FactId, Fact>::new(), second(at));
            let rows = listed.into_iter().map(|statement| {
                (
                    statement.content,
                    statement.removed_at.timestamp(),
                    statement.correction.unwrap(),
                )
            });
            rows.collect()
        };
        let row = |content: &str, at: i64, correction: &str| (content.to_owned(), at, correction.to_owned());
        let restored = [(10, "B"), (20, "A")];
        assert!(removed(&restored, 5).is_empty());
        assert_eq!(removed(&restored, 15), [row("A", 10, "B")]);
        assert_eq!(removed(&restored, 25), [row("B", 20, "A")]);
        let replaced_again = [(10, "B"), (20, "A"), (30, "C")];
        assert_eq!(removed(&replaced_again, 35), [row("A", 30, "C"), row("B", 20, "C")]);
    }
}
