//! Statements without news: an echo of the prompt, and a statement that a turn makes twice. Both compare the person,
//! not the name in the statement.

use std::collections::HashSet;

use chrono::{DateTime, Utc};

use super::{DecidedEnd, JudgeAnswer, TimelineReplay, wording_at};
use crate::{
    aliases::{self, NameAliases},
    fact::{InvalidReason, Statement},
    keywords, party,
    reconcile::Relation,
};
use colloquy_core::ids::{FactId, TurnId};

impl<J: FnMut(&Statement, &Statement) -> JudgeAnswer> TimelineReplay<'_, J> {
    pub(super) fn end_as_echo(&mut self, new: usize, original: FactId, turn: TurnId, at: DateTime<Utc>) {
        let fact = self.facts[new].known.fact.id;
        self.facts[new].ends.push(DecidedEnd {
            fact,
            reason: InvalidReason::Echo,
            by: Some(original),
            turn,
            at,
            restored_at: None,
        });
    }

    pub(super) fn end_as_duplicate(&mut self, new: usize, first: usize, turn: TurnId, at: DateTime<Utc>) {
        let [fact, by] = [new, first].map(|fact| self.facts[fact].known.fact.id);
        self.record_fold(new, by);
        self.facts[new].ends.push(DecidedEnd {
            fact,
            reason: InvalidReason::Duplicate,
            by: Some(by),
            turn,
            at,
            restored_at: None,
        });
    }

    /// The first fact of the same turn that says the same about the same person, under another name.
    pub(super) fn duplicate_in_turn(&self, fact: usize, new: &[usize]) -> Option<usize> {
        let beside = self
            .prepared
            .near_facts(fact)
            .iter()
            .filter(|near| near.relation == Relation::Same);
        let stands = |first: &usize| *first < fact && new.contains(first) && self.facts[*first].ends.is_empty();
        beside.map(|near| near.old).filter(stands).min()
    }

    /// The fact of the turn's prompt with the same sentence about the same person, under any name. Of several facts the
    /// first stated counts, because a cut turn is learned again later.
    pub(super) fn repeated_fact(
        &self,
        statement: &Statement,
        injected: &HashSet<FactId>,
        at: DateTime<Utc>,
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
        let same = |subject: &str, content: &str| {
            keys.contains(&party::subject_key(subject)) && gist_of(subject, content) == gist
        };
        let said = |fact: &FactId| {
            let known = self.at.get(fact).map(|place| self.facts[*place].known);
            let fact = known.map_or_else(|| self.timeline.other_memories.get(fact), |known| Some(&known.fact))?;
            if fact.is_conclusion() && fact.invalid.as_ref().is_some_and(|end| end.at <= at) {
                // The conclusion had fallen by then.
                return None;
            }
            let Statement { subject, content, .. } = &fact.statement;
            let is_same = same(subject, content) || known.is_some_and(|known| same(subject, wording_at(known, at).0));
            is_same.then_some((fact.valid_at, fact.id))
        };
        injected.iter().filter_map(said).min().map(|(_, original)| original)
    }
}
