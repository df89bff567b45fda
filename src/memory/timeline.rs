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
use self::{nearest::NearFact, repetitions::end_across_locks};
use super::{
    agreement,
    aliases::NameAliases,
    fact::{Audience, Fact, InvalidReason, Statement},
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
    pub at: DateTime<Utc>,
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
    pub known: Vec<KnownFact>,
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
        let own = self
            .known
            .iter()
            .filter(move |known| !known.foreign && known.fact.valid_at >= since);
        own.map(|known| known.fact.id)
    }
}

/// A decided invalidation of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecidedEnd {
    pub fact: FactId,
    pub reason: InvalidReason,
    pub by: Option<FactId>,
    pub turn: TurnId,
    pub at: DateTime<Utc>,
    pub restored_at: Option<DateTime<Utc>>,
}

/// A protected fact that a newer fact contradicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlaggedFact {
    pub fact: FactId,
    pub by: FactId,
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
    known: &'a KnownFact,
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
    at: HashMap<FactId, usize>,
    /// For each fact, the facts that may be folded into it and may protect it, in the replayed part.
    folded: HashMap<usize, Vec<usize>>,
    /// The facts of each replayed turn.
    of_turn: HashMap<TurnId, Vec<usize>>,
    flags: Vec<FlaggedFact>,
    undecided_pairs: BTreeSet<(FactId, FactId)>,
    unjudged: Vec<UnjudgedPair>,
    /// The tokens that are left of the budget for questions.
    left: u32,
    /// Ended promises of other memories.
    ends_elsewhere: Vec<DecidedEnd>,
    replaced: Vec<FactReplacement>,
}

impl<'a, J: FnMut(&Statement, &Statement) -> JudgeAnswer> TimelineReplay<'a, J> {
    fn new(prepared: &'a PreparedTimeline, room: &'a JudgeBudget, judged: J) -> Self {
        let timeline = prepared.timeline();
        let mut of_turn: HashMap<TurnId, Vec<usize>> = HashMap::new();
        let mut at = HashMap::new();
        let facts = timeline
            .known
            .iter()
            .enumerate()
            .map(|(nth, known)| {
                let entered = known.fact.valid_at < timeline.since;
                at.insert(known.fact.id, nth);
                if !entered && let Some(turn) = turn_that_said(&known.fact) {
                    of_turn.entry(turn).or_default().push(nth);
                }
                ReplayedFact {
                    entered: entered || turn_that_said(&known.fact).is_none(),
                    ends: Vec::new(),
                    known,
                }
            })
            .collect();
        let mut run = Self {
            prepared,
            timeline,
            room,
            naming: NameHistory::from_known(&timeline.known),
            judged,
            facts,
            at,
            folded: HashMap::new(),
            of_turn,
            flags: Vec::new(),
            undecided_pairs: BTreeSet::new(),
            unjudged: Vec::new(),
            left: room.tokens,
            ends_elsewhere: Vec::new(),
            replaced: Vec::new(),
        };
        run.record_stored_folds();
        run
    }

    fn timeline_events(&self) -> Vec<TimelineEvent<'a>> {
        let said: HashMap<TurnId, &'a SpokenTurn> = self.timeline.turns.iter().map(|said| (said.turn, said)).collect();
        let mut turns: BTreeMap<(DateTime<Utc>, TurnId), Option<&'a SpokenTurn>> = BTreeMap::new();
        for (turn, facts) in &self.of_turn {
            let at = self.facts[facts[0]].known.fact.valid_at;
            turns.insert((at, *turn), said.get(turn).copied());
        }
        for said in &self.timeline.turns {
            if said.at >= self.timeline.since && !self.of_turn.contains_key(&said.turn) {
                turns.insert((said.at, said.turn), Some(said));
            }
        }
        let mut events: Vec<(DateTime<Utc>, TimelineEvent<'a>)> = turns
            .into_iter()
            .map(|((at, turn), said)| (at, TimelineEvent::Said { turn, said }))
            .collect();
        for (fact, state) in self.facts.iter().enumerate() {
            for edit in state.known.edits.iter().filter(|edit| edit.at >= self.timeline.since) {
                if edit.restored {
                    events.push((edit.at, TimelineEvent::Restored { fact, at: edit.at }));
                }
            }
        }
        // The sort is stable: statements come before corrections of the same moment.
        events.sort_by_key(|(at, _)| *at);
        events.into_iter().map(|(_, event)| event).collect()
    }

    fn replay_turn(&mut self, turn: TurnId, said: Option<&'a SpokenTurn>) {
        let new = self.of_turn.get(&turn).cloned().unwrap_or_default();
        let at = said.map_or_else(|| self.facts[new[0]].known.fact.valid_at, |said| said.at);
        let injected: HashSet<FactId> = said
            .into_iter()
            .flat_map(|said| &said.injected)
            .copied()
            .filter(|fact| self.at.contains_key(fact) || self.timeline.other_memories.contains_key(fact))
            .collect();
        // Ends come first: an ended promise is neither repeated nor contradicted by the turn's statements.
        for ending in said.into_iter().flat_map(|said| &said.ends) {
            self.end_promise(*ending, &new, turn, at);
        }
        let names = self.naming.aliases_at(at);
        let mut near = Vec::with_capacity(new.len());
        for fact in &new {
            let repeated = self.repeated_fact(&self.facts[*fact].known.fact.statement, &injected, at, &names);
            if let Some(original) = repeated {
                self.end_as_echo(*fact, original, turn, at);
            } else if let Some(first) = self.duplicate_in_turn(*fact, &new) {
                self.end_as_duplicate(*fact, first, turn, at);
            } else {
                near.push((*fact, self.facts_near(*fact, at, &injected)));
            }
        }
        let share = said.map_or(JudgeBudgetShare::WHOLE, |said| said.judge_share);
        let asked = self.choose_questions(&near, share.share_of(self.room.tokens));
        for (fact, near) in near {
            self.add_statement(fact, turn, at, &injected, near, &asked);
        }
        if let Some(said) = said {
            for (nth, request) in said.forget.iter().enumerate() {
                self.forget_meant_fact(request, nth, said);
            }
        }
        for fact in new {
            self.facts[fact].entered = true;
        }
    }

    /// Applies one new statement to the facts that held before its turn. `asked`: pairs of older and newer facts for a
    /// judge.
    fn add_statement(
        &mut self,
        new: usize,
        turn: TurnId,
        at: DateTime<Utc>,
        injected: &HashSet<FactId>,
        near: Vec<NearFact>,
        asked: &HashSet<(usize, usize)>,
    ) {
        let fact = &self.facts[new].known.fact;
        let (id, statement) = (fact.id, &fact.statement);
        let end = |fact, reason, by| DecidedEnd {
            fact,
            reason,
            by: Some(by),
            turn,
            at,
            restored_at: None,
        };
        let mut ends = Vec::new();
        let mut flags = Vec::new();
        for NearFact {
            old, cosine, relation, ..
        } in near
        {
            // An earlier statement of the same turn may have ended the old fact.
            if !self.holds_at(old, at) {
                continue;
            }
            let known = &self.facts[old].known.fact;
            let verdict = match relation {
                Relation::Judge => match self.rule_verdict(old, new) {
                    Some(verdict) => Some(verdict),
                    None if asked.contains(&(old, new)) => self.judge_pair(old, new, cosine),
                    None => None,
                },
                Relation::Same | Relation::Independent => None,
            };
            let same = relation == Relation::Same || verdict == Some(JudgeVerdict::Same);
            if self.facts[old].known.foreign {
                if verdict == Some(JudgeVerdict::Contradicts) {
                    flags.push(FlaggedFact {
                        fact: known.id,
                        by: id,
                        turn,
                    });
                }
                continue;
            }
            if same && injected.contains(&known.id) && !party::is_player(&statement.speaker) {
                if !brings_news(statement, &known.statement) {
                    // The NPC repeated its prompt, in the same or other words.
                    let original = known.id;
                    self.end_as_echo(new, original, turn, at);
                    return;
                }
                if statement.speaker != known.statement.speaker {
                    // The NPC's addition replaces nobody else's words.
                    continue;
                }
            }
            let protected = self.is_protected(old, at);
            match decide_about_old(statement, &known.statement, protected, relation, verdict) {
                Decision::InvalidateOld(InvalidReason::Duplicate) | Decision::FoldNewIntoOld
                    if fact.locks != known.locks =>
                {
                    if let Some((ended, reason, by)) = end_across_locks(fact, known, protected) {
                        let is_new = ended == id;
                        ends.push((if is_new { new } else { old }, end(ended, reason, by)));
                        if is_new {
                            break;
                        }
                    }
                }
                // Readers of the old fact may not hear of the new one.
                Decision::InvalidateOld(_) | Decision::FlagOld if !fact.locks.are_subset_of(&known.locks) => {}
                Decision::InvalidateOld(reason) => ends.push((old, end(known.id, reason, id))),
                Decision::FoldNewIntoOld => {
                    ends.push((new, end(id, InvalidReason::Duplicate, known.id)));
                    break;
                }
                Decision::FlagOld => flags.push(FlaggedFact {
                    fact: known.id,
                    by: id,
                    turn,
                }),
                Decision::KeepBoth => {}
            }
        }
        self.flags.extend(flags);
        for (ended, end) in ends {
            if let (InvalidReason::Duplicate, Some(into)) = (end.reason, end.by) {
                self.record_fold(ended, into);
            }
            self.facts[ended].ends.push(end);
        }
    }

    /// The nearest facts that hold at `at` and that a statement may affect, nearest first.
    fn facts_near(&self, new: usize, at: DateTime<Utc>, injected: &HashSet<FactId>) -> Vec<NearFact> {
        let near = self.prepared.near_facts(new).iter();
        let seen = |near: &&NearFact| {
            let known = self.facts[near.old].known;
            // Of other memories, only facts in the prompt count: they are equal in every replay.
            self.holds_at(near.old, at) && (!known.foreign || injected.contains(&known.fact.id))
        };
        // The places count over all near facts, as an index proposes them.
        let places = near.filter(seen).take(MAX_NEAREST_OF_TOPIC).enumerate();
        let counts = places.filter(|(place, near)| *place < MAX_NEAREST || near.is_one_matter);
        let near = counts.map(|(_, near)| *near);
        near.filter(|near| near.relation != Relation::Independent).collect()
    }

    /// The judge's verdict about two facts, or a stored verdict. Without a verdict no fact changes.
    fn judge_pair(&mut self, old: usize, new: usize, cosine: f32) -> Option<JudgeVerdict> {
        let of = |fact: usize| &self.facts[fact].known.fact;
        let (older, newer) = (of(old), of(new));
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
        let by = |ended: usize, other: usize| {
            let (ends, other) = (&self.facts[ended].known.ends, self.facts[other].known.fact.id);
            let mut of_turns = ends.iter().filter(|end| end.turn.is_some());
            of_turns.find(|end| end.by == Some(other)).map(|end| end.reason)
        };
        match by(old, new).or_else(|| by(new, old))? {
            InvalidReason::Superseded => Some(JudgeVerdict::Contradicts),
            InvalidReason::Duplicate | InvalidReason::Echo => Some(JudgeVerdict::Same),
            _ => None,
        }
    }

    fn replay_restore(&mut self, fact: usize, at: DateTime<Utc>) {
        for end in &mut self.facts[fact].ends {
            end.restored_at.get_or_insert(at);
        }
    }

    /// True if a fact was stated before the replayed turn and holds at its moment.
    fn holds_at(&self, fact: usize, at: DateTime<Utc>) -> bool {
        let ReplayedFact {
            known, ends, entered, ..
        } = &self.facts[fact];
        *entered && known.may_hold(self.timeline.since, at) && ends.iter().all(|end| end.restored_at.is_some())
    }

    fn is_protected(&self, fact: usize, at: DateTime<Utc>) -> bool {
        self.facts[fact].known.fact.authored || self.is_pinned(fact, at)
    }

    /// Returns the necessary changes of the stored state.
    fn into_resolution(mut self) -> TimelineResolution {
        let mut settled = TimelineResolution {
            ends: std::mem::take(&mut self.ends_elsewhere),
            replaced: self.find_replacements(),
            flags: std::mem::take(&mut self.flags),
            undecided_pairs: std::mem::take(&mut self.undecided_pairs),
            unjudged: std::mem::take(&mut self.unjudged),
            ..TimelineResolution::default()
        };
        for state in self.facts.iter().filter(|state| !state.known.foreign) {
            let mut wanted = state.ends.clone();
            for stored in &state.known.ends {
                let Some(turn) = stored.deciding_turn_since(self.timeline.since) else {
                    continue;
                };
                let same = wanted.iter().position(|end| {
                    (end.reason, end.by, end.turn, end.restored_at)
                        == (stored.reason, stored.by, turn, stored.restored_at)
                });
                match same {
                    Some(at) => {
                        wanted.swap_remove(at);
                    }
                    None => settled.lifts.push(stored.id),
                }
            }
            settled.ends.extend(wanted);
        }
        settled
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

/// The vector of a fact's wording at `at`.
fn vector_at(known: &KnownFact, at: DateTime<Utc>) -> &[f32] {
    known
        .edits
        .iter()
        .filter(|edit| edit.at > at)
        .find_map(|edit| edit.vector_before.as_deref())
        .unwrap_or(&known.vector)
}

/// The sentence and the keywords of a fact at `at`, the base of its vector. Folded duplicates are not included.
fn wording_at(known: &KnownFact, at: DateTime<Utc>) -> (&str, &[String]) {
    let statement = &known.fact.statement;
    let until = || known.edits.iter().rev().filter(|edit| edit.at <= at);
    let content = until().find_map(|edit| edit.content.as_deref());
    let keywords = until().find_map(|edit| edit.keywords.as_deref());
    (
        content.unwrap_or(&statement.content),
        keywords.unwrap_or(&statement.keywords),
    )
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
