//! Facts of other memories that somebody may know beside those of this one: told to a player alone, and changed where others
//! hear it, or the other way round. The newer one replaces the older for whoever may know both; for all others the older
//! stands. The same goes for what a person writes of what was told before.
//!
//! Which of two is the newer one, and whether they contradict each other, depends on the two alone. So a pair is the same
//! whichever of them was learned first, and it counts only as long as both are valid: that is looked at when they are read.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};

use super::{End, Ending, Flagged, Judged, Run, Timeline, Unasked, near::relation, said_by};
use crate::{
    ids::{FactId, TurnId},
    memory::{
        calibration::Calibration,
        fact::{Fact, InvalidReason, Statement},
        reconcile::{Decision, Gist, Relation, Verdict, clear_verdict, decide},
    },
};

/// A fact of this memory and one of another, of one subject and near each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overlap {
    pub here: FactId,
    /// One of [`Timeline::elsewhere`], or what was told in this memory before a person wrote `here`.
    pub there: FactId,
    /// Of their vectors, in [-1, 1].
    pub cosine: f32,
}

/// That a newer fact replaces an older one of another memory for whoever may know both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Replaced {
    pub fact: FactId,
    pub by: FactId,
}

/// The pairs of a timeline that a rule or a judge has to decide about, the nearest first.
pub(super) fn comparable(calibration: &Calibration, timeline: &Timeline) -> Vec<Overlap> {
    let mut pairs: Vec<Overlap> = timeline.overlaps.clone();
    let facts = Facts::of(timeline);
    pairs.retain(|pair| {
        let Some((older, newer)) = facts.in_order(pair) else {
            return false;
        };
        let in_one_memory = !timeline.elsewhere.contains_key(&pair.there);
        // What authors wrote is theirs to change; what is said in one memory is gone through in its order.
        if newer.authored && older.authored || in_one_memory && said_by(newer).is_some() {
            return false;
        }
        let common = || Gist::of(&newer.statement).common(&Gist::of(&older.statement));
        relation(calibration, newer, older, pair.cosine, common) == Relation::Judge
    });
    pairs.sort_by(|a, b| {
        let nearest = b.cosine.total_cmp(&a.cosine);
        nearest.then((a.here, a.there).cmp(&(b.here, b.there)))
    });
    pairs.dedup_by_key(|pair| (pair.here, pair.there));
    pairs
}

/// The facts that pairs name.
struct Facts<'t>(HashMap<FactId, &'t Fact>);

impl<'t> Facts<'t> {
    fn of(timeline: &'t Timeline) -> Self {
        if timeline.overlaps.is_empty() {
            return Self(HashMap::new());
        }
        let known = timeline.known.iter().map(|known| &known.fact);
        let facts = known.chain(timeline.elsewhere.values());
        Self(facts.map(|fact| (fact.id, fact)).collect())
    }

    /// The older and the newer fact of a pair.
    fn in_order(&self, pair: &Overlap) -> Option<(&'t Fact, &'t Fact)> {
        let (here, there) = (*self.0.get(&pair.here)?, *self.0.get(&pair.there)?);
        let here_is_older = (here.valid_at, here.id) < (there.valid_at, there.id);
        Some(if here_is_older { (here, there) } else { (there, here) })
    }
}

impl<J: FnMut(&Statement, &Statement) -> Judged> Run<'_, J> {
    /// What replaces what, of facts that nothing has ended. A judge is asked as far as the last turn left room.
    pub(super) fn overlapping(&mut self) -> Vec<Replaced> {
        let mut replaced = std::mem::take(&mut self.replaced);
        let facts = Facts::of(self.timeline);
        for pair in self.prepared.overlaps() {
            let Some((older, newer)) = facts.in_order(pair) else {
                continue;
            };
            if !self.stands_at_last(pair.here) || !self.stands_at_last(pair.there) {
                continue;
            }
            let gists = (Gist::of(&newer.statement), Gist::of(&older.statement));
            let clear = clear_verdict((&newer.statement, &gists.0), (&older.statement, &gists.1));
            let verdict = match clear {
                Some(verdict) => Some(verdict),
                None => self.judge_overlap(older, newer, pair.cosine),
            };
            // What a person pinned since stays as well: that is looked at when it is read.
            let is_protected = older.authored || older.statement.pinned;
            match decide(
                &newer.statement,
                &older.statement,
                is_protected,
                Relation::Judge,
                verdict,
            ) {
                Decision::InvalidateOld(InvalidReason::Superseded) => replaced.push(Replaced {
                    fact: older.id,
                    by: newer.id,
                }),
                Decision::FlagOld => {
                    let (fact, by) = (older.id, newer.id);
                    self.flags.extend(said_by(newer).map(|turn| Flagged { fact, by, turn }));
                }
                _ => {}
            }
        }
        let mut seen = HashSet::new();
        replaced.retain(|pair| !self.replaces_already(*pair) && seen.insert((pair.fact, pair.by)));
        replaced
    }

    /// A turn says that a promise of another memory is over. Where all players to whom the promise is known hear that, it has
    /// ended, for other NPCs as well; else what the turn says of it replaces it for those who do.
    pub(super) fn end_promise_elsewhere(&mut self, ending: Ending, new: &[usize], turn: TurnId, at: DateTime<Utc>) {
        let here = self.timeline.audience.as_ref();
        let there = self.timeline.elsewhere.get(&ending.fact);
        let Some((here, promise)) = here.zip(there.filter(|fact| fact.invalid.is_none())) else {
            return;
        };
        if !here.overlaps(&promise.audience) {
            return;
        }
        let said = self.first_said(new);
        if promise.is_protected() {
            let flagged = said.map(|by| Flagged {
                fact: promise.id,
                by,
                turn,
            });
            self.flags.extend(flagged);
        } else if here.private_to.is_none() || here.private_to == promise.audience.private_to {
            self.ends_elsewhere.push(End {
                fact: promise.id,
                reason: ending.how,
                by: None,
                turn,
                at,
                restored_at: None,
            });
        } else {
            let fact = promise.id;
            self.replaced.extend(said.map(|by| Replaced { fact, by }));
        }
    }

    /// The same one of a turn's facts wherever it is decided, however they came in.
    pub(super) fn first_said(&self, new: &[usize]) -> Option<FactId> {
        let said = new.iter().map(|fact| &self.facts[*fact].known.fact);
        let first = said.min_by(|a, b| (&a.statement.content, a.id).cmp(&(&b.statement.content, b.id)));
        first.map(|fact| fact.id)
    }

    fn judge_overlap(&mut self, older: &Fact, newer: &Fact, cosine: f32) -> Option<Verdict> {
        let tokens = self.room.tokens_of(&older.statement, &newer.statement);
        self.left = self.left.checked_sub(tokens)?;
        match (self.judged)(&older.statement, &newer.statement) {
            Judged::Said(verdict) => Some(verdict),
            Judged::Silent => None,
            Judged::Unasked => {
                self.unasked.push(Unasked {
                    older: older.statement.clone(),
                    newer: newer.statement.clone(),
                    cosine,
                });
                None
            }
        }
    }

    /// Whether nothing ends a fact, as far as this was gone through.
    fn stands_at_last(&self, fact: FactId) -> bool {
        if let Some(there) = self.timeline.elsewhere.get(&fact) {
            return there.invalid.is_none();
        }
        let Some(state) = self.at.get(&fact).map(|place| &self.facts[*place]) else {
            return false;
        };
        let stored = &state.known.ends;
        state.ends.iter().all(|end| end.restored_at.is_some())
            && stored
                .iter()
                .filter(|end| end.decided_since(self.timeline.since).is_none())
                .all(|end| end.restored_at.is_some())
    }

    fn replaces_already(&self, Replaced { fact, by }: Replaced) -> bool {
        let here = self.at.get(&fact).map(|place| &self.facts[*place].known.fact);
        let known = here.or_else(|| self.timeline.elsewhere.get(&fact));
        known.is_some_and(|known| known.replaced_by.contains(&by))
    }
}
