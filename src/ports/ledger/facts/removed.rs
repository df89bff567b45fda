//! Statements whose words no longer hold: a player asked to forget them, or a person removed or corrected them.

use std::{collections::HashMap, hash::BuildHasher};

use chrono::{DateTime, Utc};

use colloquy_core::ids::{DialogueId, FactId};
use colloquy_memory::fact::{Fact, InvalidReason};

/// A sentence of a fact which a player asked to forget, or which a person removed or corrected, and the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedStatement {
    pub fact: FactId,
    pub content: String,
    /// The requests to forget that ended the fact, in the extraction's words. A request may name what the fact does
    /// not.
    pub requests: Vec<String>,
    pub at: DateTime<Utc>,
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

/// Lists the removed statements of facts as of `at`, latest first, without the requests to forget ([`add_requests`]).
/// `successors` has the facts that ended others as `superseded`, by id.
#[must_use]
pub fn list_removed_statements<S: BuildHasher>(
    facts: &[Fact],
    successors: &HashMap<FactId, Fact, S>,
    at: DateTime<Utc>,
) -> Vec<RemovedStatement> {
    let mut removed: Vec<RemovedStatement> = Vec::new();
    for fact in facts {
        let ended = fact.invalid.as_ref().filter(|ended| ended.at <= at);
        let latest = latest_version(fact, successors, at);
        let statement = |content: &str, removed_at, is_forgotten| RemovedStatement {
            fact: fact.id,
            content: content.to_owned(),
            requests: Vec::new(),
            at: removed_at,
            correction: latest.map(|latest| latest.content_at(at).to_owned()),
            source: fact.source,
            is_original: fact.corrects.is_none() && content == fact.statement.content,
            is_forgotten,
            is_locked: !fact.locks.is_empty() || latest.is_some_and(|latest| !latest.locks.is_empty()),
        };
        let earlier = fact.earlier_wordings.iter().filter(|wording| wording.until <= at);
        removed.extend(earlier.map(|wording| statement(&wording.content, wording.until, false)));
        let Some(ended) = ended else { continue };
        let is_taken_out = matches!(ended.reason, InvalidReason::Forgotten | InvalidReason::Removed)
            || corrected_by(fact, successors, at).is_some();
        if is_taken_out {
            let is_forgotten = ended.reason == InvalidReason::Forgotten;
            removed.push(statement(fact.content_at(at), ended.at, is_forgotten));
        }
    }
    removed.sort_by_key(|statement| std::cmp::Reverse(statement.at));
    removed
}

/// Adds the requests to forget of the facts to their statements.
pub fn add_requests<S: BuildHasher>(statements: &mut [RemovedStatement], requests: &HashMap<FactId, Vec<String>, S>) {
    for statement in statements.iter_mut().filter(|statement| statement.is_forgotten) {
        statement.requests = requests.get(&statement.fact).cloned().unwrap_or_default();
    }
}

/// Returns the fact that had replaced `fact` at `at`, by a person's correction or as the word of an author.
fn corrected_by<'a, S: BuildHasher>(
    fact: &Fact,
    successors: &'a HashMap<FactId, Fact, S>,
    at: DateTime<Utc>,
) -> Option<&'a Fact> {
    let ended = fact.invalid.as_ref().filter(|ended| ended.at <= at)?;
    let by = successors.get(&ended.by?)?;
    let is_correction = by.corrects == Some(fact.id) || by.authored;
    (ended.reason == InvalidReason::Superseded && is_correction).then_some(by)
}

/// Returns the version of a fact that was valid at `at`: the fact, or the last of its corrections.
fn latest_version<'a, S: BuildHasher>(
    fact: &'a Fact,
    successors: &'a HashMap<FactId, Fact, S>,
    at: DateTime<Utc>,
) -> Option<&'a Fact> {
    let mut latest = fact;
    // Each step follows another successor, so a ring ends too.
    for _ in 0..=successors.len() {
        match corrected_by(latest, successors, at) {
            Some(next) => latest = next,
            None => {
                return latest
                    .invalid
                    .as_ref()
                    .is_none_or(|ended| ended.at > at)
                    .then_some(latest);
            }
        }
    }
    None
}
