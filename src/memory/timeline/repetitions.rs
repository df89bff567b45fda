//! Statements without news: an echo of the prompt, and a statement that a turn makes twice. Both compare the person,
//! not the name in the statement. Also: statements that say the same, of which some readers may not read one.

use std::collections::HashSet;

use chrono::{DateTime, Utc};

use super::{DecidedEnd, JudgeAnswer, TimelineReplay};
use crate::{
    agreement,
    aliases::{self, NameAliases},
    fact::{Fact, InvalidReason, Statement},
    keywords, party,
    reconcile::{Decision, Relation},
};
use colloquy_core::ids::{FactId, TurnId};

/// True if a new promise repeats an old promise of its maker, and has more locks. The old promise has all its days,
/// numbers and names.
pub(super) fn repeats_with_more_locks(new: &Fact, old: &Fact) -> bool {
    let newer = &new.statement;
    let older = &old.statement;
    old.locks != new.locks
        && old.locks.are_subset_of(&new.locks)
        && newer.speaker == older.speaker
        && newer.is_open_promise()
        && older.is_open_promise()
        && !agreement::adds_details(&newer.content, &older.content)
}

/// How one of two facts with different locks that say the same ends: the fact, the reason, and the fact that stays.
/// `None`: both stay.
///
/// The fact that stays has a part of the locks of the ended fact, and all its days, numbers and names. So every reader
/// of the ended fact may read the fact that stays, and misses nothing. Neither end folds a text: a fold would show one
/// fact to readers of the other fact.
pub(super) fn end_across_locks(
    new: &Fact,
    old: &Fact,
    is_old_protected: bool,
) -> Option<(FactId, InvalidReason, FactId)> {
    let newer = &new.statement;
    let older = &old.statement;
    if repeats_with_more_locks(new, old) {
        return Some((new.id, InvalidReason::Echo, old.id));
    }
    let replaces = !is_old_protected
        && new.locks.are_subset_of(&old.locks)
        && newer.speaker == older.speaker
        && !agreement::adds_details(&older.content, &newer.content);
    replaces.then_some((old.id, InvalidReason::Superseded, new.id))
}

/// How one of two facts ends by a decision about them, as in [`end_across_locks`].
pub(super) fn end_of_pair(
    new: &Fact,
    old: &Fact,
    decision: Decision,
    is_old_protected: bool,
) -> Option<(FactId, InvalidReason, FactId)> {
    match decision {
        Decision::InvalidateOld(InvalidReason::Duplicate) | Decision::FoldNewIntoOld if new.locks != old.locks => {
            end_across_locks(new, old, is_old_protected)
        }
        // Readers of the old fact may not hear of the new one.
        Decision::InvalidateOld(_) if !new.locks.are_subset_of(&old.locks) => None,
        Decision::InvalidateOld(reason) => Some((old.id, reason, new.id)),
        Decision::FoldNewIntoOld => Some((new.id, InvalidReason::Duplicate, old.id)),
        Decision::FlagOld | Decision::KeepBoth => None,
    }
}

impl<J: FnMut(&Statement, &Statement) -> JudgeAnswer> TimelineReplay<'_, J> {
    /// Ends the fact at `position` by the fact `ended_by`.
    pub(super) fn end_by_fact(
        &mut self,
        position: usize,
        reason: InvalidReason,
        ended_by: FactId,
        turn: TurnId,
        moment: DateTime<Utc>,
    ) {
        if reason == InvalidReason::Duplicate {
            self.record_fold(position, ended_by);
        }
        let fact = self.facts[position].known_fact.fact.id;
        self.facts[position].ends.push(DecidedEnd {
            fact,
            reason,
            ended_by: Some(ended_by),
            turn,
            ended_at: moment,
            restored_at: None,
        });
    }

    pub(super) fn end_as_echo(&mut self, new: usize, original: FactId, turn: TurnId, moment: DateTime<Utc>) {
        self.end_by_fact(new, InvalidReason::Echo, original, turn, moment);
    }

    pub(super) fn end_as_duplicate(&mut self, new: usize, first: usize, turn: TurnId, moment: DateTime<Utc>) {
        let original = self.facts[first].known_fact.fact.id;
        self.end_by_fact(new, InvalidReason::Duplicate, original, turn, moment);
    }

    /// The first fact of the same turn that says the same about the same person, under another name.
    pub(super) fn duplicate_in_turn(&self, fact: usize, new: &[usize]) -> Option<usize> {
        let locks = |fact: usize| &self.facts[fact].known_fact.fact.locks;
        let repetitions = self
            .prepared
            .near_facts(fact)
            .iter()
            .filter(|near| near.relation == Relation::Same && locks(near.old) == locks(fact));
        let is_first = |first: &usize| *first < fact && new.contains(first) && self.facts[*first].ends.is_empty();
        repetitions.map(|near| near.old).filter(is_first).min()
    }

    /// The fact of the turn's prompt with the same sentence about the same person, under any name. Of several facts the
    /// first stated counts, because a cut turn is learned again later.
    pub(super) fn repeated_fact(
        &self,
        statement: &Statement,
        injected: &HashSet<FactId>,
        moment: DateTime<Utc>,
        names: &NameAliases,
    ) -> Option<FactId> {
        if injected.is_empty() {
            return None;
        }
        let keys = names.keys_of(&statement.subject);
        // Two sentences that name a person differ in the name alone.
        let is_naming = aliases::is_naming_predicate(&statement.predicate);
        let gist_of = |subject: &str, content: &str| {
            if is_naming {
                keywords::sentence_key(content)
            } else {
                names.sentence_key_for(subject, content)
            }
        };
        let gist = gist_of(&statement.subject, &statement.content);
        let is_same_sentence = |subject: &str, content: &str| {
            keys.contains(&party::subject_key(subject)) && gist_of(subject, content) == gist
        };
        let same_fact = |fact: &FactId| {
            let known_fact = self.positions.get(fact).map(|place| self.facts[*place].known_fact);
            let fact = known_fact.map_or_else(
                || self.timeline.other_memories.get(fact),
                |known_fact| Some(&known_fact.fact),
            )?;
            if fact.is_conclusion() && fact.invalid.as_ref().is_some_and(|end| end.ended_at <= moment) {
                // The conclusion had fallen by then.
                return None;
            }
            let Statement { subject, content, .. } = &fact.statement;
            let is_same = is_same_sentence(subject, content)
                || known_fact.is_some_and(|known_fact| is_same_sentence(subject, known_fact.wording_at(moment).0));
            is_same.then_some((fact.valid_at, fact.id))
        };
        injected
            .iter()
            .filter_map(same_fact)
            .min()
            .map(|(_, original)| original)
    }
}
