//! A memory as what was said in it, in order (docs/algorithms.md#dedupe-and-conflict,
//! docs/design.md#interrupt-and-rewind).
//!
//! What ends a fact is decided here, by going through what was said since a moment and comparing
//! each statement with what held when it was said. The outcome depends on nothing but what stands: not
//! on when a job came to run, nor on what had been said and was unsaid since. So a turn that was just
//! extracted, one whose job comes late, and a memory from which something was unsaid are one and the
//! same task.

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
use self::nearest::NearFact;
pub use self::{
    judge_questions::{JudgeBudget, JudgeBudgetShare},
    name_history::NameHistory,
    nearest::PreparedTimeline,
    overlaps::{AudienceOverlap, FactReplacement},
};
use super::{
    aliases::NameAliases,
    fact::{Audience, Fact, InvalidReason, Statement},
    keywords::TermWeights,
    party,
    reconcile::{Decision, JudgeVerdict, Relation, decide_about_old},
};
use crate::ids::{FactId, InvalidationId, PlayerId, TurnId};

/// Facts that are looked at for each statement, nearest first.
pub const MAX_NEAREST: usize = 16;
/// The same for one that names a topic: of those further away only what is of one matter with it.
pub const MAX_NEAREST_OF_TOPIC: usize = 64;

/// What a turn brought, beside the facts that name it as their cause.
#[derive(Debug, Clone, PartialEq)]
pub struct SpokenTurn {
    pub turn: TurnId,
    pub at: DateTime<Utc>,
    /// Who spoke with the NPC.
    pub player: Option<PlayerId>,
    pub forget: Vec<ForgetRequest>,
    pub ends: Vec<PromiseEnd>,
    /// Facts that were in the turn's prompt.
    pub injected: Vec<FactId>,
    /// How much a judge may be asked about what the turn brought to this memory.
    pub judge_share: JudgeBudgetShare,
}

/// That a promise or a goal is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseEnd {
    pub fact: FactId,
    /// One of [`InvalidReason::ENDS_OF_PROMISES`].
    pub how: InvalidReason,
}

/// "Forget that", in words.
#[derive(Debug, Clone, PartialEq)]
pub struct ForgetRequest {
    pub terms: TermWeights,
    pub vector: Vec<f32>,
}

/// What is known of a memory since a moment: every fact that was said or ended since, and those of
/// the facts before that may be near one of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeline {
    pub since: DateTime<Utc>,
    /// Whose memory it is; `None`: nobody's, and nothing of other memories is decided.
    pub audience: Option<Audience>,
    pub known: Vec<KnownFact>,
    pub turns: Vec<SpokenTurn>,
    /// Facts of other memories: those that were in prompts, to tell what was only repeated, and those of `overlaps`.
    pub other_memories: HashMap<FactId, Fact>,
    /// What of other memories is near facts of this one.
    pub overlaps: Vec<AudienceOverlap>,
}

impl Timeline {
    /// The facts of this memory that turns have said since.
    pub fn facts_said_since(&self) -> impl Iterator<Item = FactId> {
        let since = self.since;
        let own = self
            .known
            .iter()
            .filter(move |known| !known.foreign && known.fact.valid_at >= since);
        own.map(|known| known.fact.id)
    }
}

/// A reason why a fact is not valid, as it ought to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecidedEnd {
    pub fact: FactId,
    pub reason: InvalidReason,
    pub by: Option<FactId>,
    pub turn: TurnId,
    pub at: DateTime<Utc>,
    pub restored_at: Option<DateTime<Utc>>,
}

/// A protected fact that a newer one contradicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlaggedFact {
    pub fact: FactId,
    pub by: FactId,
    pub turn: TurnId,
}

/// What a memory comes to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimelineResolution {
    /// Reasons that are to be there and are not.
    pub ends: Vec<DecidedEnd>,
    /// Reasons that are there and ought not to be.
    pub lifts: Vec<InvalidationId>,
    /// Every flag that ought to be there, of the turns that were gone through.
    pub flags: Vec<FlaggedFact>,
    /// Older and newer facts that were not judged, or not yet: where the one flags the other, it goes on to.
    pub undecided_pairs: BTreeSet<(FactId, FactId)>,
    /// What replaces what for whoever may know both, as far as that is not stored yet.
    pub replaced: Vec<FactReplacement>,
    /// Pairs nobody has judged. While there are any, the rest is provisional.
    pub unjudged: Vec<UnjudgedPair>,
}

impl TimelineResolution {
    /// Whether what is stored as ended is to change.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.ends.is_empty() || !self.lifts.is_empty() || !self.replaced.is_empty()
    }
}

/// Two statements that a judge is to compare.
#[derive(Debug, Clone, PartialEq)]
pub struct UnjudgedPair {
    pub older: Statement,
    pub newer: Statement,
    /// Of their vectors, in [-1, 1].
    pub cosine: f32,
}

/// A judge's answer about an older and a newer statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JudgeAnswer {
    Verdict(JudgeVerdict),
    /// It was asked and did not answer: nothing changes.
    NoAnswer,
    NotAsked,
}

impl PreparedTimeline {
    /// Goes through the timeline and says what ought to be.
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

/// What happens, in order.
#[derive(Clone, Copy)]
enum TimelineEvent<'a> {
    Said { turn: TurnId, said: Option<&'a SpokenTurn> },
    Restored { fact: usize, at: DateTime<Utc> },
}

/// A fact as it stands at the moment that was reached.
struct ReplayedFact<'a> {
    known: &'a KnownFact,
    /// What is decided here.
    ends: Vec<DecidedEnd>,
    /// Its turn was reached.
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
    /// What of what was ever pinned may be folded into a fact, as far as was gone through.
    folded: HashMap<usize, Vec<usize>>,
    /// The facts of each turn that is gone through.
    of_turn: HashMap<TurnId, Vec<usize>>,
    flags: Vec<FlaggedFact>,
    undecided_pairs: BTreeSet<(FactId, FactId)>,
    unjudged: Vec<UnjudgedPair>,
    /// Of the room for questions, what the last turn has left.
    left: u32,
    /// Promises of other memories that are over.
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
        // Stable: of what happened at one moment, words come before corrections.
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
        // First: what is over is neither repeated nor contradicted by what the turn says of it.
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

    /// One new statement, and what it does to what held before its turn. `asked`: older and newer facts that a judge may be
    /// asked about.
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
            // What was taught beside it may have ended it.
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
                // The NPC said what its prompt had told it, in whatever words: that is not news.
                let original = known.id;
                self.end_as_echo(new, original, turn, at);
                return;
            }
            match decide_about_old(
                statement,
                &known.statement,
                self.is_protected(old, at),
                relation,
                verdict,
            ) {
                // A fold would tell of the one in the words of the other.
                Decision::InvalidateOld(InvalidReason::Duplicate) | Decision::FoldNewIntoOld
                    if fact.locks != known.locks => {}
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

    /// Of the nearest facts that hold at `at`, those that a statement may touch, nearest first.
    fn facts_near(&self, new: usize, at: DateTime<Utc>, injected: &HashSet<FactId>) -> Vec<NearFact> {
        let near = self.prepared.near_facts(new).iter();
        let seen = |near: &&NearFact| {
            let known = self.facts[near.old].known;
            // Of other memories only what the prompt had said: that is the same in every replay.
            self.holds_at(near.old, at) && (!known.foreign || injected.contains(&known.fact.id))
        };
        // First the nearest of whatever kind, as an index proposes them.
        let places = near.filter(seen).take(MAX_NEAREST_OF_TOPIC).enumerate();
        let counts = places.filter(|(place, near)| *place < MAX_NEAREST || near.is_one_matter);
        let near = counts.map(|(_, near)| *near);
        near.filter(|near| near.relation != Relation::Independent).collect()
    }

    /// What a judge says of two facts, or has said by what is stored. One that says nothing changes nothing.
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

    /// The verdict by which one of two facts is stored as ended by the other.
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

    /// Whether a fact had been said before the turn that is gone through, and holds at its moment.
    fn holds_at(&self, fact: usize, at: DateTime<Utc>) -> bool {
        let ReplayedFact {
            known, ends, entered, ..
        } = &self.facts[fact];
        *entered && known.may_hold(self.timeline.since, at) && ends.iter().all(|end| end.restored_at.is_some())
    }

    fn is_protected(&self, fact: usize, at: DateTime<Utc>) -> bool {
        self.facts[fact].known.fact.authored || self.is_pinned(fact, at)
    }

    /// What is to change about what is stored.
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

/// The turn that said a fact; `None`: a person wrote it.
fn turn_that_said(fact: &Fact) -> Option<TurnId> {
    match fact.cause {
        super::fact::Cause::Turn(turn) => Some(turn),
        _ => None,
    }
}

/// The vector of the wording that a fact had at `at`.
fn vector_at(known: &KnownFact, at: DateTime<Utc>) -> &[f32] {
    known
        .edits
        .iter()
        .filter(|edit| edit.at > at)
        .find_map(|edit| edit.vector_before.as_deref())
        .unwrap_or(&known.vector)
}

/// The sentence and the keywords of a fact at `at`, those its vector is made of: its own, not what was
/// folded into it.
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

/// Whether a fact is the player's to take back: it is about the player, or the player said it of
/// somebody else in private. What is said where others hear it is not one player's alone, unless it is of somebody whom
/// `names` know as the player's.
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
