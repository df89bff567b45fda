//! What people pinned: it is protected, and so is what it was folded into.

use chrono::{DateTime, Utc};

use super::{Judged, Known, Run, State};
use crate::memory::fact::{InvalidReason, Statement};

impl<J: FnMut(&Statement, &Statement) -> Judged> Run<'_, J> {
    pub(super) fn pin(&mut self, fact: usize, pinned: bool, at: DateTime<Utc>) {
        self.facts[fact].pinned = pinned;
        self.spread_pins(at);
    }

    /// What a fact shows as it is now may come from pins that people gave, since the moment, to what had been folded into
    /// it before.
    pub(super) fn forget_later_pins(&mut self) {
        let since = self.timeline.since;
        let pinned_later = |known: &Known| {
            let mut edits = known.edits.iter();
            edits.any(|edit| edit.at >= since && edit.pinned.is_some())
        };
        for fact in 0..self.facts.len() {
            if pinned_later(self.facts[fact].known) {
                for folded_into in self.folded_into(fact, since) {
                    let state = &mut self.facts[folded_into];
                    state.pinned = pinned_itself(state.known, since);
                }
            }
        }
    }

    /// What is folded into a fact protects it as if it were pinned itself.
    pub(super) fn spread_pins(&mut self, at: DateTime<Utc>) {
        for state in &mut self.facts {
            state.holds_pinned = false;
        }
        for fact in 0..self.facts.len() {
            if self.facts[fact].pinned {
                for folded_into in self.folded_into(fact, at) {
                    self.facts[folded_into].holds_pinned = true;
                }
            }
        }
    }

    /// What a fact is folded into at a moment, what that is folded into, and so on.
    fn folded_into(&self, fact: usize, at: DateTime<Utc>) -> Vec<usize> {
        let mut line = Vec::new();
        let mut last = fact;
        while let Some(next) = self.folds_into(last, at) {
            // A ring could only be a defect.
            if next == fact || line.contains(&next) {
                break;
            }
            line.push(next);
            last = next;
        }
        line
    }

    fn folds_into(&self, fact: usize, at: DateTime<Utc>) -> Option<usize> {
        let State { known, ends, .. } = &self.facts[fact];
        let decided = ends.iter().filter(|end| end.restored_at.is_none());
        let decided = decided.map(|end| (end.reason, end.by));
        let stored = known.ends.iter().filter(|end| self.decided_here(end).is_none());
        let stored = stored.filter(|end| end.at <= at && end.restored_at.is_none_or(|restored| restored > at));
        let mut all = decided.chain(stored.map(|end| (end.reason, end.by)));
        let (_, by) = all.find(|(reason, by)| *reason == InvalidReason::Duplicate && by.is_some())?;
        self.at.get(&by?).copied()
    }

    pub(super) fn is_pinned(&self, fact: usize) -> bool {
        self.facts[fact].pinned || self.facts[fact].holds_pinned
    }
}

/// Whether a fact was pinned before `since`. One to which nothing happened since is as it is now.
pub(super) fn pinned_before(known: &Known, since: DateTime<Utc>) -> bool {
    if known.fact.valid_at < since && known.ends.is_empty() && known.edits.is_empty() {
        return known.fact.view.pinned || known.fact.statement.pinned;
    }
    pinned_itself(known, since)
}

/// The same, of the fact alone.
fn pinned_itself(known: &Known, since: DateTime<Utc>) -> bool {
    known
        .edits
        .iter()
        .filter(|edit| edit.at < since)
        .filter_map(|edit| edit.pinned)
        .next_back()
        .unwrap_or(known.fact.statement.pinned)
}
