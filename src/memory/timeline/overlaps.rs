//! Facts of other memories that some reader may know together with facts of this memory. Example: a fact told in
//! private and changed in public, or the reverse. The newer fact replaces the older for readers who may know both. For
//! all other readers the older fact stays. The same holds when a person writes about an earlier fact.
//!
//! The order of two facts, and whether they contradict each other, depends only on the two facts. A pair is therefore
//! the same whichever fact was learned first. The pair counts only while both facts are valid, which readers check.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};

use super::{
    DecidedEnd, FlaggedFact, JudgeAnswer, PromiseEnd, Timeline, TimelineReplay, UnjudgedPair,
    nearest::relation_between, turn_that_said,
};
use crate::{
    calibration::Calibration,
    fact::{Fact, InvalidReason, Statement},
    reconcile::{Decision, JudgeVerdict, Relation, StatementFeatures, decide_about_old, verdict_by_rules},
};
use colloquy_core::ids::{FactId, TurnId};

/// A fact of this memory and a fact of another memory, about one subject and near each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AudienceOverlap {
    pub local_fact: FactId,
    /// A fact in [`Timeline::other_memories`], or a fact of this memory from before a person wrote `local_fact`.
    pub foreign_fact: FactId,
    /// The cosine of the two vectors, in [-1, 1].
    pub cosine: f32,
}

/// A newer fact replaces an older fact of another memory, for readers who may know both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FactReplacement {
    pub fact: FactId,
    pub successor: FactId,
}

/// The pairs of a timeline that need a rule or a judge, nearest first.
pub(super) fn comparable_pairs(calibration: &Calibration, timeline: &Timeline) -> Vec<AudienceOverlap> {
    let mut pairs: Vec<AudienceOverlap> = timeline.overlaps.clone();
    let facts = FactLookup::of_timeline(timeline);
    pairs.retain(|pair| {
        let Some((older, newer)) = facts.in_order(pair) else {
            return false;
        };
        let in_one_memory = !timeline.other_memories.contains_key(&pair.foreign_fact);
        // Authors change authored facts themselves, and the replay already orders the statements of one memory.
        if newer.authored && older.authored || in_one_memory && turn_that_said(newer).is_some() {
            return false;
        }
        let common = || {
            StatementFeatures::from_statement(&newer.statement)
                .common_matter(&StatementFeatures::from_statement(&older.statement))
        };
        relation_between(calibration, newer, older, pair.cosine, common) == Relation::Judge
    });
    pairs.sort_by(|a, b| {
        let nearest = b.cosine.total_cmp(&a.cosine);
        nearest.then((a.local_fact, a.foreign_fact).cmp(&(b.local_fact, b.foreign_fact)))
    });
    pairs.dedup_by_key(|pair| (pair.local_fact, pair.foreign_fact));
    pairs
}

/// The facts of pairs.
struct FactLookup<'t>(HashMap<FactId, &'t Fact>);

impl<'t> FactLookup<'t> {
    fn of_timeline(timeline: &'t Timeline) -> Self {
        if timeline.overlaps.is_empty() {
            return Self(HashMap::new());
        }
        let own_facts = timeline.known_facts.iter().map(|known_fact| &known_fact.fact);
        let facts = own_facts.chain(timeline.other_memories.values());
        Self(facts.map(|fact| (fact.id, fact)).collect())
    }

    /// The older and the newer fact of a pair.
    fn in_order(&self, pair: &AudienceOverlap) -> Option<(&'t Fact, &'t Fact)> {
        let local_fact = *self.0.get(&pair.local_fact)?;
        let foreign_fact = *self.0.get(&pair.foreign_fact)?;
        let here_is_older = (local_fact.valid_at, local_fact.id) < (foreign_fact.valid_at, foreign_fact.id);
        Some(if here_is_older {
            (local_fact, foreign_fact)
        } else {
            (foreign_fact, local_fact)
        })
    }
}

impl<J: FnMut(&Statement, &Statement) -> JudgeAnswer> TimelineReplay<'_, J> {
    /// Finds replacements among facts without an end. The questions to a judge have a budget of their own, so that the
    /// answer does not depend on the memory from which the pairs are seen.
    pub(super) fn find_replacements(&mut self) -> Vec<FactReplacement> {
        debug_assert!(
            self.facts
                .iter()
                .flat_map(|state| &state.ends)
                .all(|end| end.ended_at >= self.timeline.since),
            "a replay decides no end before its start"
        );
        self.remaining_tokens = self.room.tokens;
        let mut replaced = std::mem::take(&mut self.replaced);
        let facts = FactLookup::of_timeline(self.timeline);
        for pair in self.prepared.overlap_pairs() {
            let Some((older, newer)) = facts.in_order(pair) else {
                continue;
            };
            if !self.is_unended(pair.local_fact) || !self.is_unended(pair.foreign_fact) {
                continue;
            }
            let newer_features = StatementFeatures::from_statement(&newer.statement);
            let older_features = StatementFeatures::from_statement(&older.statement);
            let rule_verdict = verdict_by_rules(&newer.statement, &newer_features, &older.statement, &older_features);
            let verdict = match rule_verdict {
                Some(verdict) => Some(verdict),
                None => self.judge_overlap(older, newer, pair.cosine),
            };
            // A later pin by a person protects too; readers check for it.
            let is_protected = older.authored || older.statement.pinned;
            match decide_about_old(
                &newer.statement,
                &older.statement,
                is_protected,
                Relation::Judge,
                verdict,
            ) {
                Decision::InvalidateOld(InvalidReason::Superseded) => replaced.push(FactReplacement {
                    fact: older.id,
                    successor: newer.id,
                }),
                Decision::FlagOld => {
                    self.flags.extend(turn_that_said(newer).map(|turn| FlaggedFact {
                        fact: older.id,
                        statement: newer.id,
                        turn,
                    }));
                }
                _ => {}
            }
        }
        let mut seen_pairs = HashSet::new();
        replaced.retain(|pair| !self.is_replacement_stored(*pair) && seen_pairs.insert((pair.fact, pair.successor)));
        replaced
    }

    /// Ends a promise of another memory. If all players who know the promise hear the turn, the promise ends for all
    /// NPCs. Otherwise the turn's statement replaces the promise for the listeners.
    pub(super) fn end_promise_of_other_memory(
        &mut self,
        ending: PromiseEnd,
        new: &[usize],
        turn: TurnId,
        moment: DateTime<Utc>,
    ) {
        let audience = self.timeline.audience.as_ref();
        let foreign_promise = self.timeline.other_memories.get(&ending.fact);
        // A promise that was removed after the turn still held in the turn.
        let was_valid = |fact: &&Fact| {
            fact.invalid
                .as_ref()
                .is_none_or(|invalidation| invalidation.ended_at > moment)
        };
        let Some((audience, promise)) = audience.zip(foreign_promise.filter(was_valid)) else {
            return;
        };
        if !audience.overlaps_audience(&promise.audience) {
            return;
        }
        let cause = self.representative_fact(new);
        if promise.is_protected() {
            let flagged = cause.map(|cause| FlaggedFact {
                fact: promise.id,
                statement: cause,
                turn,
            });
            self.flags.extend(flagged);
        } else if audience.private_to.is_none() || audience.private_to == promise.audience.private_to {
            self.ends_elsewhere.push(DecidedEnd {
                fact: promise.id,
                reason: ending.how,
                ended_by: None,
                turn,
                ended_at: moment,
                restored_at: None,
            });
        } else {
            let fact = promise.id;
            self.replaced
                .extend(cause.map(|cause| FactReplacement { fact, successor: cause }));
        }
    }

    /// Returns the same fact of a turn in every replay, in any order of arrival.
    pub(super) fn representative_fact(&self, new: &[usize]) -> Option<FactId> {
        let facts = new.iter().map(|fact| &self.facts[*fact].known_fact.fact);
        let first = facts.min_by(|a, b| (&a.statement.content, a.id).cmp(&(&b.statement.content, b.id)));
        first.map(|fact| fact.id)
    }

    fn judge_overlap(&mut self, older: &Fact, newer: &Fact, cosine: f32) -> Option<JudgeVerdict> {
        let tokens = self.room.pair_tokens(&older.statement, &newer.statement);
        self.remaining_tokens = self.remaining_tokens.checked_sub(tokens)?;
        match (self.judged)(&older.statement, &newer.statement) {
            JudgeAnswer::Verdict(verdict) => Some(verdict),
            JudgeAnswer::NoAnswer => None,
            JudgeAnswer::NotAsked => {
                self.unjudged.push(UnjudgedPair {
                    older: older.statement.clone(),
                    newer: newer.statement.clone(),
                    cosine,
                });
                None
            }
        }
    }

    /// True if no end of a fact counts, in the replayed part.
    fn is_unended(&self, fact: FactId) -> bool {
        if let Some(foreign_fact) = self.timeline.other_memories.get(&fact) {
            return foreign_fact.invalid.is_none();
        }
        let Some(state) = self.positions.get(&fact).map(|place| &self.facts[*place]) else {
            return false;
        };
        let stored = &state.known_fact.ends;
        state.ends.iter().all(|end| end.restored_at.is_some())
            && stored
                .iter()
                .filter(|end| end.deciding_turn_since(self.timeline.since).is_none())
                .all(|end| end.restored_at.is_some())
    }

    fn is_replacement_stored(&self, FactReplacement { fact, successor }: FactReplacement) -> bool {
        let local_fact = self
            .positions
            .get(&fact)
            .map(|place| &self.facts[*place].known_fact.fact);
        let replaced_fact = local_fact.or_else(|| self.timeline.other_memories.get(&fact));
        replaced_fact.is_some_and(|replaced_fact| replaced_fact.replaced_by.contains(&successor))
    }
}
