//! The timeline of a memory: its statements in order (docs/algorithms.md#dedupe-and-conflict,
//! docs/internals/rewinds.md).
//!
//! This module decides which facts end. It replays the statements since a moment, and compares each statement with the
//! facts that held at its time. The outcome depends only on what stands, not on when a job ran or what was unsaid in
//! between. One algorithm therefore serves a new turn, a late job, and a memory after a rewind.

mod endings;
mod judge_questions;
mod known_fact;
mod name_history;
mod nearest;
mod overlaps;
mod pins;
mod repetitions;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

pub use self::known_fact::{KnownFact, PastEdit, StoredEnd};
pub use self::{
    judge_questions::{JudgeBudget, JudgeBudgetShare},
    name_history::NameHistory,
    nearest::PreparedTimeline,
    overlaps::{AudienceOverlap, FactReplacement},
};
use self::{nearest::NearFact, repetitions::end_of_pair};
use super::{
    agreement,
    aliases::NameAliases,
    disclosure::audience::Audience,
    fact::{Fact, InvalidReason, Statement},
    keywords::TermWeights,
    party,
    reconcile::{Decision, JudgeVerdict, Relation, decide_about_old},
};
use colloquy_core::ids::{FactId, InvalidationId, PlayerId, TurnId};

/// The number of facts compared with each statement, nearest first.
pub const MAX_NEAREST: usize = 16;
/// The number for a statement that names a topic. The further facts count only if they concern the same matter.
pub const MAX_NEAREST_OF_TOPIC: usize = 64;

/// The effects of a turn, besides the facts caused by the turn.
#[derive(Debug, Clone, PartialEq)]
pub struct SpokenTurn {
    pub turn: TurnId,
    pub committed_at: DateTime<Utc>,
    /// The NPC's partner in the dialogue.
    pub player: Option<PlayerId>,
    pub forget: Vec<ForgetRequest>,
    pub ends: Vec<PromiseEnd>,
    /// Facts in the turn's prompt.
    pub injected: Vec<FactId>,
    /// The share of the judge's budget for this memory's part of the turn.
    pub judge_share: JudgeBudgetShare,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseEnd {
    pub fact: FactId,
    /// One of [`InvalidReason::ENDS_OF_PROMISES`].
    pub how: InvalidReason,
}

/// A request such as "Forget that", in words.
#[derive(Debug, Clone, PartialEq)]
pub struct ForgetRequest {
    pub terms: TermWeights,
    pub vector: Vec<f32>,
}

/// The part of a memory since a moment: every fact stated or ended since then, and older facts that may be near such
/// facts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeline {
    pub since: DateTime<Utc>,
    /// The audience of the memory; `None`: no audience, and no decisions about other memories.
    pub audience: Option<Audience>,
    pub known_facts: Vec<KnownFact>,
    pub turns: Vec<SpokenTurn>,
    /// Facts of other memories, and conclusions of this one: facts in prompts, to recognise repetitions, and the facts of
    /// `overlaps`.
    pub other_memories: HashMap<FactId, Fact>,
    /// Facts of other memories that are near facts of this memory.
    pub overlaps: Vec<AudienceOverlap>,
}

impl Timeline {
    /// The facts of this memory that turns stated since `since`.
    pub fn facts_said_since(&self) -> impl Iterator<Item = FactId> {
        let since = self.since;
        let own_facts = self
            .known_facts
            .iter()
            .filter(move |known_fact| !known_fact.foreign && known_fact.fact.valid_at >= since);
        own_facts.map(|known_fact| known_fact.fact.id)
    }
}

/// A decided invalidation of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecidedEnd {
    pub fact: FactId,
    pub reason: InvalidReason,
    pub ended_by: Option<FactId>,
    pub turn: TurnId,
    pub ended_at: DateTime<Utc>,
    pub restored_at: Option<DateTime<Utc>>,
}

/// A protected fact that a newer fact contradicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlaggedFact {
    pub fact: FactId,
    pub statement: FactId,
    pub turn: TurnId,
}

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimelineResolution {
    /// Decided invalidations that are not stored yet.
    pub ends: Vec<DecidedEnd>,
    /// Stored invalidations that no longer apply.
    pub lifts: Vec<InvalidationId>,
    /// All flags of the replayed turns.
    pub flags: Vec<FlaggedFact>,
    /// Pairs of an older and a newer fact without a verdict, or without one yet. An existing flag of such a pair stays.
    pub undecided_pairs: BTreeSet<(FactId, FactId)>,
    /// Replacements that are not stored yet, for readers who may know both facts.
    pub replaced: Vec<FactReplacement>,
    /// Pairs without a judge's verdict. While the list is not empty, the result is provisional.
    pub unjudged: Vec<UnjudgedPair>,
}

impl TimelineResolution {
    /// True if stored ends or replacements have to change.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.ends.is_empty() || !self.lifts.is_empty() || !self.replaced.is_empty()
    }
}

/// Two statements for a judge to compare.
#[derive(Debug, Clone, PartialEq)]
pub struct UnjudgedPair {
    pub older: Statement,
    pub newer: Statement,
    /// The cosine of the two vectors, in [-1, 1].
    pub cosine: f32,
}

/// A judge's answer about an older and a newer statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JudgeAnswer {
    Verdict(JudgeVerdict),
    /// The judge was asked and gave no answer: no fact changes.
    NoAnswer,
    NotAsked,
}

impl PreparedTimeline {
    /// Replays the timeline and returns the decided state.
    pub fn reconcile_timeline(
        &self,
        room: &JudgeBudget,
        judged: impl FnMut(&Statement, &Statement) -> JudgeAnswer,
    ) -> TimelineResolution {
        let mut run = TimelineReplay::new(self, room, judged);
        for event in run.timeline_events() {
            match event {
                TimelineEvent::Said { turn, said } => run.replay_turn(turn, said),
                TimelineEvent::Restored { fact, at } => run.replay_restore(fact, at),
            }
        }
        run.into_resolution()
    }
}

#[derive(Clone, Copy)]
enum TimelineEvent<'a> {
    Said { turn: TurnId, said: Option<&'a SpokenTurn> },
    Restored { fact: usize, at: DateTime<Utc> },
}

/// The state of a fact at the current moment of the replay.
struct ReplayedFact<'a> {
    known_fact: &'a KnownFact,
    ends: Vec<DecidedEnd>,
    /// True once the replay reached the fact's turn.
    entered: bool,
}

struct TimelineReplay<'a, J> {
    prepared: &'a PreparedTimeline,
    timeline: &'a Timeline,
    room: &'a JudgeBudget,
    naming: NameHistory<'a>,
    judged: J,
    facts: Vec<ReplayedFact<'a>>,
    positions: HashMap<FactId, usize>,
    /// For each fact, the facts that may be folded into it and may protect it, in the replayed part.
    folded: HashMap<usize, Vec<usize>>,
    /// The facts of each replayed turn.
    of_turn: HashMap<TurnId, Vec<usize>>,
    flags: Vec<FlaggedFact>,
    undecided_pairs: BTreeSet<(FactId, FactId)>,
    unjudged: Vec<UnjudgedPair>,
    /// The tokens that are left of the budget for questions.
    remaining_tokens: u32,
    /// Ended promises of other memories.
    ends_elsewhere: Vec<DecidedEnd>,
    replaced: Vec<FactReplacement>,
}

impl<'a, J: FnMut(&Statement, &Statement) -> JudgeAnswer> TimelineReplay<'a, J> {
    fn new(prepared: &'a PreparedTimeline, room: &'a JudgeBudget, judged: J) -> Self {
        let timeline = prepared.timeline();
        let mut of_turn: HashMap<TurnId, Vec<usize>> = HashMap::new();
        let mut positions = HashMap::new();
        let facts = timeline
            .known_facts
            .iter()
            .enumerate()
            .map(|(nth, known_fact)| {
                let entered = known_fact.fact.valid_at < timeline.since;
                positions.insert(known_fact.fact.id, nth);
                if !entered && let Some(turn) = turn_that_said(&known_fact.fact) {
                    of_turn.entry(turn).or_default().push(nth);
                }
                ReplayedFact {
                    entered: entered || turn_that_said(&known_fact.fact).is_none(),
                    ends: Vec::new(),
                    known_fact,
                }
            })
            .collect();
        let mut run = Self {
            prepared,
            timeline,
            room,
            naming: NameHistory::from_known(&timeline.known_facts),
            judged,
            facts,
            positions,
            folded: HashMap::new(),
            of_turn,
            flags: Vec::new(),
            undecided_pairs: BTreeSet::new(),
            unjudged: Vec::new(),
            remaining_tokens: room.tokens,
            ends_elsewhere: Vec::new(),
            replaced: Vec::new(),
        };
        run.record_stored_folds();
        run
    }

    fn timeline_events(&self) -> Vec<TimelineEvent<'a>> {
        let turns_by_id: HashMap<TurnId, &'a SpokenTurn> = self
            .timeline
            .turns
            .iter()
            .map(|spoken_turn| (spoken_turn.turn, spoken_turn))
            .collect();
        let mut turns: BTreeMap<(DateTime<Utc>, TurnId), Option<&'a SpokenTurn>> = BTreeMap::new();
        for (turn, facts) in &self.of_turn {
            let moment = self.facts[facts[0]].known_fact.fact.valid_at;
            turns.insert((moment, *turn), turns_by_id.get(turn).copied());
        }
        for spoken_turn in &self.timeline.turns {
            if spoken_turn.committed_at >= self.timeline.since && !self.of_turn.contains_key(&spoken_turn.turn) {
                turns.insert((spoken_turn.committed_at, spoken_turn.turn), Some(spoken_turn));
            }
        }
        let mut events: Vec<(DateTime<Utc>, TimelineEvent<'a>)> = turns
            .into_iter()
            .map(|((moment, turn), spoken_turn)| {
                (
                    moment,
                    TimelineEvent::Said {
                        turn,
                        said: spoken_turn,
                    },
                )
            })
            .collect();
        for (fact, state) in self.facts.iter().enumerate() {
            for edit in state
                .known_fact
                .edits
                .iter()
                .filter(|edit| edit.edited_at >= self.timeline.since)
            {
                if edit.restored {
                    events.push((
                        edit.edited_at,
                        TimelineEvent::Restored {
                            fact,
                            at: edit.edited_at,
                        },
                    ));
                }
            }
        }
        // The sort is stable: statements come before corrections of the same moment.
        events.sort_by_key(|(moment, _)| *moment);
        events.into_iter().map(|(_, event)| event).collect()
    }

    fn replay_turn(&mut self, turn: TurnId, spoken_turn: Option<&'a SpokenTurn>) {
        let new_facts = self.of_turn.get(&turn).cloned().unwrap_or_default();
        let moment = spoken_turn.map_or_else(
            || self.facts[new_facts[0]].known_fact.fact.valid_at,
            |spoken_turn| spoken_turn.committed_at,
        );
        let injected: HashSet<FactId> = spoken_turn
            .into_iter()
            .flat_map(|spoken_turn| &spoken_turn.injected)
            .copied()
            .filter(|fact| self.positions.contains_key(fact) || self.timeline.other_memories.contains_key(fact))
            .collect();
        // Ends come first: an ended promise is neither repeated nor contradicted by the turn's statements.
        for ending in spoken_turn.into_iter().flat_map(|spoken_turn| &spoken_turn.ends) {
            self.end_promise(*ending, &new_facts, turn, moment);
        }
        let names = self.naming.aliases_at(moment);
        let mut near_facts = Vec::with_capacity(new_facts.len());
        for fact in &new_facts {
            let repeated = self.repeated_fact(&self.facts[*fact].known_fact.fact.statement, &injected, moment, &names);
            if let Some(original) = repeated {
                self.end_as_echo(*fact, original, turn, moment);
            } else if let Some(first) = self.duplicate_in_turn(*fact, &new_facts) {
                self.end_as_duplicate(*fact, first, turn, moment);
            } else {
                near_facts.push((*fact, self.facts_near(*fact, moment, &injected)));
            }
        }
        let share = spoken_turn.map_or(JudgeBudgetShare::WHOLE, |spoken_turn| spoken_turn.judge_share);
        let questions = self.choose_questions(&near_facts, share.share_of(self.room.tokens));
        for (fact, near_facts) in near_facts {
            self.add_statement(fact, turn, moment, &injected, near_facts, &questions);
        }
        if let Some(spoken_turn) = spoken_turn {
            for (nth, request) in spoken_turn.forget.iter().enumerate() {
                self.forget_meant_fact(request, nth, spoken_turn);
            }
        }
        for fact in new_facts {
            self.facts[fact].entered = true;
        }
    }

    /// Applies one new statement to the facts that held before its turn. `questions`: pairs of older and newer facts
    /// for a judge.
    fn add_statement(
        &mut self,
        new: usize,
        turn: TurnId,
        moment: DateTime<Utc>,
        injected: &HashSet<FactId>,
        near_facts: Vec<NearFact>,
        questions: &HashSet<(usize, usize)>,
    ) {
        let fact = &self.facts[new].known_fact.fact;
        let statement = &fact.statement;
        let mut ends = Vec::new();
        let mut flags = Vec::new();
        for near @ NearFact { old, .. } in near_facts {
            // An earlier statement of the same turn may have ended the old fact.
            if !self.holds_at(old, moment) {
                continue;
            }
            let old_fact = &self.facts[old].known_fact.fact;
            let flag = FlaggedFact {
                fact: old_fact.id,
                statement: fact.id,
                turn,
            };
            let verdict = self.find_verdict(near, new, questions);
            if self.facts[old].known_fact.foreign {
                flags.extend(Some(flag).filter(|_| verdict == Some(JudgeVerdict::Contradicts)));
                continue;
            }
            let is_same = near.relation == Relation::Same || verdict == Some(JudgeVerdict::Same);
            if is_same && injected.contains(&old_fact.id) && !party::is_player(&statement.speaker) {
                if !brings_news(statement, &old_fact.statement) {
                    // The NPC repeated its prompt, in the same or other words.
                    self.end_as_echo(new, old_fact.id, turn, moment);
                    return;
                }
                if statement.speaker != old_fact.statement.speaker {
                    // The NPC's addition replaces nobody else's words.
                    continue;
                }
            }
            let protected = self.is_protected(old, moment);
            let decision = decide_about_old(statement, &old_fact.statement, protected, near.relation, verdict);
            // Readers of the old fact may not hear of the new one.
            if decision == Decision::FlagOld && fact.locks.are_subset_of(&old_fact.locks) {
                flags.push(flag);
            }
            if let Some((ended_fact, reason, ended_by)) = end_of_pair(fact, old_fact, decision, protected) {
                let is_new = ended_fact == fact.id;
                ends.push((if is_new { new } else { old }, reason, ended_by));
                if is_new {
                    break;
                }
            }
        }
        self.flags.extend(flags);
        for (position, reason, ended_by) in ends {
            self.end_by_fact(position, reason, ended_by, turn, moment);
        }
    }

    /// The verdict of the rules about a pair, or the judge's.
    fn find_verdict(
        &mut self,
        near: NearFact,
        new: usize,
        questions: &HashSet<(usize, usize)>,
    ) -> Option<JudgeVerdict> {
        if near.relation != Relation::Judge {
            return None;
        }
        let ruled = self.rule_verdict(near.old, new);
        if ruled.is_none() && questions.contains(&(near.old, new)) {
            return self.judge_pair(near.old, new, near.cosine);
        }
        ruled
    }

    /// The nearest facts that hold at `moment` and that a statement may affect, nearest first.
    fn facts_near(&self, new: usize, moment: DateTime<Utc>, injected: &HashSet<FactId>) -> Vec<NearFact> {
        let near = self.prepared.near_facts(new).iter();
        let is_considered = |near: &&NearFact| {
            let known_fact = self.facts[near.old].known_fact;
            // Of other memories, only facts in the prompt count: they are equal in every replay.
            self.holds_at(near.old, moment) && (!known_fact.foreign || injected.contains(&known_fact.fact.id))
        };
        // The places count over all near facts, as an index proposes them.
        let places = near.filter(is_considered).take(MAX_NEAREST_OF_TOPIC).enumerate();
        let counts = places.filter(|(place, near)| *place < MAX_NEAREST || near.is_one_matter);
        let near = counts.map(|(_, near)| *near);
        near.filter(|near| near.relation != Relation::Independent).collect()
    }

    /// The judge's verdict about two facts, or a stored verdict. Without a verdict no fact changes.
    fn judge_pair(&mut self, old: usize, new: usize, cosine: f32) -> Option<JudgeVerdict> {
        let fact_at = |fact: usize| &self.facts[fact].known_fact.fact;
        let older = fact_at(old);
        let newer = fact_at(new);
        let judged = (self.judged)(&older.statement, &newer.statement);
        if let JudgeAnswer::Verdict(verdict) = judged {
            return Some(verdict);
        }
        let before = self.stored_verdict(old, new);
        if before.is_none() {
            self.undecided_pairs.insert((older.id, newer.id));
            if judged == JudgeAnswer::NotAsked {
                self.unjudged.push(UnjudgedPair {
                    older: older.statement.clone(),
                    newer: newer.statement.clone(),
                    cosine,
                });
            }
        }
        before
    }

    /// The verdict behind the stored end of one of two facts by the other.
    fn stored_verdict(&self, old: usize, new: usize) -> Option<JudgeVerdict> {
        let reason_of_end = |ended_fact: usize, other: usize| {
            let ends = &self.facts[ended_fact].known_fact.ends;
            let other = self.facts[other].known_fact.fact.id;
            let mut of_turns = ends.iter().filter(|end| end.turn.is_some());
            of_turns.find(|end| end.ended_by == Some(other)).map(|end| end.reason)
        };
        match reason_of_end(old, new).or_else(|| reason_of_end(new, old))? {
            InvalidReason::Superseded => Some(JudgeVerdict::Contradicts),
            InvalidReason::Duplicate | InvalidReason::Echo => Some(JudgeVerdict::Same),
            _ => None,
        }
    }

    fn replay_restore(&mut self, fact: usize, moment: DateTime<Utc>) {
        for end in &mut self.facts[fact].ends {
            end.restored_at.get_or_insert(moment);
        }
    }

    /// True if a fact was stated before the replayed turn and holds at its moment.
    fn holds_at(&self, fact: usize, moment: DateTime<Utc>) -> bool {
        let ReplayedFact {
            known_fact,
            ends,
            entered,
            ..
        } = &self.facts[fact];
        *entered && known_fact.may_hold(self.timeline.since, moment) && ends.iter().all(|end| end.restored_at.is_some())
    }

    fn is_protected(&self, fact: usize, moment: DateTime<Utc>) -> bool {
        self.facts[fact].known_fact.fact.authored || self.is_pinned(fact, moment)
    }

    /// Returns the necessary changes of the stored state.
    fn into_resolution(mut self) -> TimelineResolution {
        let mut resolution = TimelineResolution {
            ends: std::mem::take(&mut self.ends_elsewhere),
            replaced: self.find_replacements(),
            flags: std::mem::take(&mut self.flags),
            undecided_pairs: std::mem::take(&mut self.undecided_pairs),
            unjudged: std::mem::take(&mut self.unjudged),
            ..TimelineResolution::default()
        };
        for state in self.facts.iter().filter(|state| !state.known_fact.foreign) {
            let mut new_ends = state.ends.clone();
            for stored in &state.known_fact.ends {
                let Some(turn) = stored.deciding_turn_since(self.timeline.since) else {
                    continue;
                };
                let matching = new_ends.iter().position(|end| {
                    (end.reason, end.ended_by, end.turn, end.restored_at)
                        == (stored.reason, stored.ended_by, turn, stored.restored_at)
                });
                match matching {
                    Some(index) => {
                        new_ends.swap_remove(index);
                    }
                    None => resolution.lifts.push(stored.id),
                }
            }
            resolution.ends.extend(new_ends);
        }
        debug_assert!(
            resolution.ends.iter().all(|end| end.ended_by != Some(end.fact)),
            "no fact ends itself"
        );
        resolution
    }
}

/// True if an NPC's repetition of its prompt adds something: a day, a number or a name, or new words for its own promise.
fn brings_news(new: &Statement, old: &Statement) -> bool {
    let renews_promise = new.is_open_promise() && old.is_open_promise() && new.speaker == old.speaker;
    agreement::adds_details(&new.content, &old.content)
        || renews_promise && !agreement::adds_details(&old.content, &new.content)
}

/// The turn that stated a fact; `None`: a person wrote or corrected the fact.
fn turn_that_said(fact: &Fact) -> Option<TurnId> {
    match fact.cause {
        super::fact::Cause::Turn(turn) if fact.corrects.is_none() => Some(turn),
        _ => None,
    }
}

/// True if the player may take the fact back. The fact is about the player, or the player said it privately about
/// somebody else. A statement before listeners counts only if `names` know its subject as the player or the player's.
fn is_players_own(fact: &Fact, player: Option<&PlayerId>, names: &NameAliases) -> bool {
    let Some(player) = player else {
        return false;
    };
    let subject = fact.statement.subject.as_str();
    if let Some(owner) = party::owner_id(subject) {
        return owner == player.as_str();
    }
    let is_players = |name: &str| party::owner_id(name) == Some(player.as_str());
    names.other_names(subject).any(is_players)
        || fact.audience.private_to.as_ref() == Some(player) && is_players(&fact.statement.speaker)
}

#[cfg(test)]
mod tests;
