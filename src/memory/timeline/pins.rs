//! Facts that people pinned. A pin protects the fact and the facts that it was folded into.
//!
//! At each moment the rule for showing pins applies. It starts with the fact as stated, then applies people's edits and
//! the folds into the fact, in order of time.

use chrono::{DateTime, Utc};

use super::{JudgeAnswer, ReplayedFact, TimelineReplay};
use crate::fact::{InvalidReason, Statement};
use colloquy_core::ids::FactId;

/// A change to whether a fact is pinned.
enum PinChange {
    To(bool),
    Folded(usize),
}

/// The period in which a fact is folded into another fact.
struct FoldPeriod {
    into: FactId,
    since: DateTime<Utc>,
    /// When a person restored the fact.
    until: Option<DateTime<Utc>>,
}

impl<J: FnMut(&Statement, &Statement) -> JudgeAnswer> TimelineReplay<'_, J> {
    /// True if the fact was shown as pinned at `moment`.
    pub(super) fn is_pinned(&self, fact: usize, moment: DateTime<Utc>) -> bool {
        self.is_pinned_in(&mut Vec::new(), fact, moment)
    }

    /// `line`: the facts whose pins the query is about.
    fn is_pinned_in(&self, line: &mut Vec<usize>, fact: usize, moment: DateTime<Utc>) -> bool {
        // A ring could only be a defect. A chain grows each time a person unpins a fact and the fact is stated again.
        if line.contains(&fact) || !self.was_ever_pinned(fact) {
            return false;
        }
        line.push(fact);
        let known_fact = self.facts[fact].known_fact;
        let edits = known_fact.edits.iter().filter(|edit| edit.edited_at <= moment);
        let mut changes: Vec<_> = edits
            .filter_map(|edit| Some(((edit.edited_at, edit.edited_at), PinChange::To(edit.pinned?))))
            .collect();
        for folded in self.folded.get(&fact).into_iter().flatten() {
            if let Some(since) = self.is_folded_since(*folded, known_fact.fact.id, moment) {
                let stated_at = self.facts[*folded].known_fact.fact.valid_at;
                changes.push(((since, stated_at), PinChange::Folded(*folded)));
            }
        }
        changes.sort_by_key(|(order, _)| *order);
        let pinned = changes
            .into_iter()
            .fold(known_fact.fact.statement.pinned, |pinned, (_, change)| match change {
                PinChange::To(pinned) => pinned,
                PinChange::Folded(folded) => pinned || self.is_pinned_in(line, folded, moment),
            });
        line.pop();
        pinned
    }

    /// True if a fact, or a fact that may be folded into it, was ever pinned: when stated, or by a person.
    fn was_ever_pinned(&self, fact: usize) -> bool {
        let known_fact = self.facts[fact].known_fact;
        known_fact.fact.statement.pinned
            || known_fact.edits.iter().any(|edit| edit.pinned == Some(true))
            || self.folded.contains_key(&fact)
    }

    /// Since when `fact` has been folded into `into`, if folded at `moment`.
    fn is_folded_since(&self, fact: usize, into: FactId, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut folds = self
            .folds_of(fact)
            .filter(|fold| fold.since <= moment && fold.until.is_none_or(|until| until > moment));
        folds.find(|fold| fold.into == into).map(|fold| fold.since)
    }

    /// The folds of a fact, by the decisions of this replay and by the stored ends.
    fn folds_of(&self, fact: usize) -> impl Iterator<Item = FoldPeriod> {
        let ReplayedFact { known_fact, ends, .. } = &self.facts[fact];
        let decided = ends
            .iter()
            .map(|end| (end.reason, end.ended_by, end.ended_at, end.restored_at));
        let stored = known_fact
            .ends
            .iter()
            .filter(|end| end.deciding_turn_since(self.timeline.since).is_none());
        let stored = stored.map(|end| (end.reason, end.ended_by, end.ended_at, end.restored_at));
        decided.chain(stored).filter_map(|(reason, original, since, until)| {
            let into = original.filter(|_| reason == InvalidReason::Duplicate)?;
            Some(FoldPeriod { into, since, until })
        })
    }

    /// Records the possible folds of the stored ends.
    pub(super) fn record_stored_folds(&mut self) {
        debug_assert!(
            self.positions.len() == self.facts.len(),
            "each fact of a timeline has one place"
        );
        for fact in 0..self.facts.len() {
            for FoldPeriod { into, .. } in self.folds_of(fact).collect::<Vec<_>>() {
                self.record_fold(fact, into);
            }
        }
    }

    /// Records that `fact` may be folded into `original`, if the fold may protect `original`. Then follows the folds of
    /// `original`.
    pub(super) fn record_fold(&mut self, fact: usize, original: FactId) {
        let mut noting = vec![(fact, original)];
        while let Some((fact, original)) = noting.pop() {
            let Some(position) = self.positions.get(&original).copied() else {
                continue;
            };
            if !self.was_ever_pinned(fact) {
                continue;
            }
            let folded = self.folded.entry(position).or_default();
            if !folded.contains(&fact) {
                folded.push(fact);
                noting.extend(self.folds_of(position).map(|fold| (position, fold.into)));
            }
        }
    }
}
