//! What people pinned: it is protected, and so is what it was folded into.
//!
//! At any moment this goes by the rule by which a fact shows whether it is pinned: what it was when it was said, and
//! then, in the order in which they happened, what people said of it and what was folded into it.

use chrono::{DateTime, Utc};

use super::{Judged, Known, Run};
use crate::{
    ids::FactId,
    memory::fact::{InvalidReason, Statement},
};

/// Whether a fact was pinned when it was said, or by a person at any time.
pub(super) fn was_ever_pinned(known: &Known) -> bool {
    known.fact.statement.pinned || known.edits.iter().any(|edit| edit.pinned == Some(true))
}

/// What changes whether a fact is pinned.
enum Change {
    To(bool),
    Folded(usize),
}

impl<J: FnMut(&Statement, &Statement) -> Judged> Run<'_, J> {
    /// Whether a fact showed at `at` that it is pinned.
    pub(super) fn is_pinned(&self, fact: usize, at: DateTime<Utc>) -> bool {
        self.is_pinned_in(&mut Vec::new(), fact, at)
    }

    /// `line`: what it is asked for.
    fn is_pinned_in(&self, line: &mut Vec<usize>, fact: usize, at: DateTime<Utc>) -> bool {
        // A ring could only be a defect. Chains are as long as people unpinned what then was said again.
        if !self.may_be_pinned.contains(&fact) || line.contains(&fact) {
            return false;
        }
        line.push(fact);
        let known = self.facts[fact].known;
        let edits = known.edits.iter().filter(|edit| edit.at <= at);
        let mut changes: Vec<_> = edits
            .filter_map(|edit| Some(((edit.at, edit.at), Change::To(edit.pinned?))))
            .collect();
        for folded in self.folded.get(&fact).into_iter().flatten() {
            if let Some(since) = self.is_folded_since(*folded, fact, at) {
                let said = self.facts[*folded].known.fact.valid_at;
                changes.push(((since, said), Change::Folded(*folded)));
            }
        }
        changes.sort_by_key(|(order, _)| *order);
        let pinned = changes
            .into_iter()
            .fold(known.fact.statement.pinned, |pinned, (_, change)| match change {
                Change::To(pinned) => pinned,
                Change::Folded(folded) => pinned || self.is_pinned_in(line, folded, at),
            });
        line.pop();
        pinned
    }

    /// Since when `fact` has been folded into `into`, if it is at `at`.
    fn is_folded_since(&self, fact: usize, into: usize, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let (state, into) = (&self.facts[fact], self.facts[into].known.fact.id);
        let decided = state.ends.iter().filter(|end| end.restored_at.is_none());
        let decided = decided.map(|end| (end.reason, end.by, end.at));
        let stored = state
            .known
            .ends
            .iter()
            .filter(|end| self.decided_here(end).is_none())
            .filter(|end| end.at <= at && end.restored_at.is_none_or(|restored| restored > at));
        let mut all = decided.chain(stored.map(|end| (end.reason, end.by, end.at)));
        all.find(|(reason, by, _)| *reason == InvalidReason::Duplicate && *by == Some(into))
            .map(|(_, _, since)| since)
    }

    /// Notes which facts may be folded into which, by what is stored.
    pub(super) fn note_stored_folds(&mut self) {
        for fact in 0..self.facts.len() {
            let ends = self.facts[fact].known.ends.iter();
            let folds = ends.filter(|end| end.reason == InvalidReason::Duplicate && self.decided_here(end).is_none());
            for into in folds.filter_map(|end| end.by).collect::<Vec<_>>() {
                self.note_fold(fact, into);
            }
        }
    }

    pub(super) fn note_fold(&mut self, fact: usize, into: FactId) {
        let Some(into) = self.at.get(&into).copied() else {
            return;
        };
        self.folded.entry(into).or_default().push(fact);
        self.folds_into.entry(fact).or_default().push(into);
        let mut reached = if self.may_be_pinned.contains(&fact) {
            vec![into]
        } else {
            vec![]
        };
        while let Some(next) = reached.pop() {
            if self.may_be_pinned.insert(next) {
                reached.extend(self.folds_into.get(&next).into_iter().flatten());
            }
        }
    }
}
