//! What people pinned: it is protected, and so is what it was folded into.
//!
//! At any moment this goes by the rule by which a fact shows whether it is pinned: what it was when it was said, and
//! then, in the order in which they happened, what people said of it and what was folded into it.

use chrono::{DateTime, Utc};

use super::{JudgeAnswer, ReplayedFact, TimelineReplay};
use crate::{
    ids::FactId,
    memory::fact::{InvalidReason, Statement},
};

/// What changes whether a fact is pinned.
enum PinChange {
    To(bool),
    Folded(usize),
}

/// That a fact is, or was, folded into another.
struct FoldPeriod {
    into: FactId,
    since: DateTime<Utc>,
    /// When a person put it back.
    until: Option<DateTime<Utc>>,
}

impl<J: FnMut(&Statement, &Statement) -> JudgeAnswer> TimelineReplay<'_, J> {
    /// Whether a fact showed at `at` that it is pinned.
    pub(super) fn is_pinned(&self, fact: usize, at: DateTime<Utc>) -> bool {
        self.is_pinned_in(&mut Vec::new(), fact, at)
    }

    /// `line`: what it is asked for.
    fn is_pinned_in(&self, line: &mut Vec<usize>, fact: usize, at: DateTime<Utc>) -> bool {
        // A ring could only be a defect. Chains are as long as people unpinned what then was said again.
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

    /// Whether a fact was pinned when it was said, or by a person at any time; or anything was that may be folded into it.
    fn was_ever_pinned(&self, fact: usize) -> bool {
        let known = self.facts[fact].known;
        known.fact.statement.pinned
            || known.edits.iter().any(|edit| edit.pinned == Some(true))
            || self.folded.contains_key(&fact)
    }

    /// Since when `fact` has been folded into `into`, if it is at `at`.
    fn is_folded_since(&self, fact: usize, into: FactId, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut stand = self
            .folds_of(fact)
            .filter(|fold| fold.since <= at && fold.until.is_none_or(|until| until > at));
        stand.find(|fold| fold.into == into).map(|fold| fold.since)
    }

    /// What a fact is, or was, folded into, by what is decided here and by what is stored.
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

    /// Notes what may be folded into what, by what is stored.
    pub(super) fn record_stored_folds(&mut self) {
        for fact in 0..self.facts.len() {
            for FoldPeriod { into, .. } in self.folds_of(fact).collect::<Vec<_>>() {
                self.record_fold(fact, into);
            }
        }
    }

    /// Notes that `fact` may be folded into `into`, if that may come to protect it; and then what that is folded into.
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
