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
    /// True if the fact was shown as pinned at `at`.
    pub(super) fn is_pinned(&self, fact: usize, at: DateTime<Utc>) -> bool {
        self.is_pinned_in(&mut Vec::new(), fact, at)
    }

    /// `line`: the facts whose pins the query is about.
    fn is_pinned_in(&self, line: &mut Vec<usize>, fact: usize, at: DateTime<Utc>) -> bool {
        // A ring could only be a defect. A chain grows each time a person unpins a fact and the fact is stated again.
        if line.contains(&fact) || !self.was_ever_pinned(fact) {
            return false;
        }
        line.push(fact);
        let known = self.facts[fact].known;
        let edits = known.edits.iter().filter(|edit| edit.at <= at);
        let mut changes: Vec<_> = edits
            .filter_map(|edit| Some(((edit.at, edit.at), PinChange::To(edit.pinned?))))
            .collect();
        for folded in self.folded.get(&fact).into_iter().flatten() {
            if let Some(since) = self.is_folded_since(*folded, known.fact.id, at) {
                let said = self.facts[*folded].known.fact.valid_at;
                changes.push(((since, said), PinChange::Folded(*folded)));
            }
        }
        changes.sort_by_key(|(order, _)| *order);
        let pinned = changes
            .into_iter()
            .fold(known.fact.statement.pinned, |pinned, (_, change)| match change {
                PinChange::To(pinned) => pinned,
                PinChange::Folded(folded) => pinned || self.is_pinned_in(line, folded, at),
            });
        line.pop();
        pinned
    }

    /// True if a fact, or a fact that may be folded into it, was ever pinned: when stated, or by a person.
    fn was_ever_pinned(&self, fact: usize) -> bool {
        let known = self.facts[fact].known;
        known.fact.statement.pinned
            || known.edits.iter().any(|edit| edit.pinned == Some(true))
            || self.folded.contains_key(&fact)
    }

    /// Since when `fact` has been folded into `into`, if folded at `at`.
    fn is_folded_since(&self, fact: usize, into: FactId, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut stand = self
            .folds_of(fact)
            .filter(|fold| fold.since <= at && fold.until.is_none_or(|until| until > at));
        stand.find(|fold| fold.into == into).map(|fold| fold.since)
    }

    /// The folds of a fact, by the decisions of this replay and by the stored ends.
    fn folds_of(&self, fact: usize) -> impl Iterator<Item = FoldPeriod> {
        let ReplayedFact { known, ends, .. } = &self.facts[fact];
        let decided = ends.iter().map(|end| (end.reason, end.by, end.at, end.restored_at));
        let stored = known
            .ends
            .iter()
            .filter(|end| end.deciding_turn_since(self.timeline.since).is_none());
        let stored = stored.map(|end| (end.reason, end.by, end.at, end.restored_at));
        decided.chain(stored).filter_map(|(reason, by, since, until)| {
            let into = by.filter(|_| reason == InvalidReason::Duplicate)?;
            Some(FoldPeriod { into, since, until })
        })
    }

    /// Records the possible folds of the stored ends.
    pub(super) fn record_stored_folds(&mut self) {
        for fact in 0..self.facts.len() {
            for FoldPeriod { into, .. } in self.folds_of(fact).collect::<Vec<_>>() {
                self.record_fold(fact, into);
            }
        }
    }

    /// Records that `fact` may be folded into `into`, if the fold may protect `into`. Then follows the folds of `into`.
    pub(super) fn record_fold(&mut self, fact: usize, into: FactId) {
        let mut noting = vec![(fact, into)];
        while let Some((fact, into)) = noting.pop() {
            let Some(into) = self.at.get(&into).copied() else {
                continue;
            };
            if !self.was_ever_pinned(fact) {
                continue;
            }
            let folded = self.folded.entry(into).or_default();
            if !folded.contains(&fact) {
                folded.push(fact);
                noting.extend(self.folds_of(into).map(|fold| (into, fold.into)));
            }
        }
    }
}
