//! Replays the standing part of a world in an empty world.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use colloquy::{
    ids::{FactId, TurnId},
    memory::{
        disclosure::{locks::DisclosureLocks, private_terms::PrivateTerms},
        fact::Cause,
        trace::{CandidateFate, CandidateTrace, LockedWords, ScenarioTrace},
        turn::{Turn, TurnStatus},
    },
    ports::{clock::Clock as _, ledger::dialogues::OwnerWriteOutcome},
};

use super::{FactName, JoinedSession, RecordedCorrection, ReplayWorld, STEP, Stage};
use crate::replay::{
    history::{AMONG_NPCS, JOINED, Line},
    model::{NextReply, ReplayModel},
    prompt_recorder::{PromptContents, TurnEffects},
};

/// The input for an empty world to reach the same state.
pub(in crate::replay) struct ReplayRecord {
    turns: Vec<RecordedTurn>,
    corrections: Vec<(DateTime<Utc>, RecordedCorrection)>,
    joined: Vec<JoinedSession>,
    lines: Vec<(usize, Line)>,
    end: DateTime<Utc>,
}

/// A standing turn.
struct RecordedTurn {
    talk: usize,
    turn: Turn,
    /// True if the reply had begun a state block.
    block: bool,
    /// The standing facts in its prompt.
    prompted: Vec<(FactName, CandidateTrace)>,
    /// The scenarios in its prompt.
    past: Vec<ScenarioTrace>,
    /// The locks of its dialogue before the turn.
    locks: DisclosureLocks,
    locked: Vec<LockedWords>,
    told_locks: Option<DisclosureLocks>,
    /// The terms of the prompt that were private to its player.
    confided: Option<PrivateTerms>,
    /// Where the player was before the turn.
    place: Option<String>,
    effects: Option<TurnEffects>,
}

fn was_in_prompt(candidate: &CandidateTrace) -> bool {
    use CandidateFate::{InStateBlock, Pinned, Used};
    matches!(candidate.fate, Used | Pinned | InStateBlock)
}

impl ReplayWorld {
    /// Finishes pending work, and returns the record of the standing part.
    pub async fn record(&mut self) -> ReplayRecord {
        self.clock.advance(STEP);
        self.acknowledge_all().await;
        self.run_all_jobs().await;
        self.consolidate().await;
        self.run_all_jobs().await;
        // A correction is kept while its fact lives. Facts of a shortened turn are learned anew.
        let living: BTreeMap<FactId, FactName> = self
            .facts()
            .await
            .into_iter()
            .map(|(name, fact)| (fact.id, name))
            .collect();
        let mut effects = self.effects_of_turns().await;
        let mut turns = Vec::new();
        for talk in 0..self.talks.len() {
            for turn in self.turns(talk).await {
                let dialogues = &self.services.ledger.dialogues;
                let trace = dialogues
                    .load_trace(&self.scope, turn.dialogue, turn.number)
                    .await
                    .unwrap();
                let block = trace.as_ref().is_some_and(|trace| trace.state_block);
                let past = trace.as_ref().map(|trace| trace.scenarios.clone());
                let locks = trace.as_ref().map(|trace| trace.locks.clone());
                let locked = trace.as_ref().map(|trace| trace.locked.clone());
                let told_locks = trace.as_ref().and_then(|trace| trace.told_locks.clone());
                let confided = trace.as_ref().and_then(|trace| trace.confided.clone());
                let place = trace.as_ref().and_then(|trace| trace.place.clone());
                let prompted = trace
                    .into_iter()
                    .flat_map(|trace| trace.candidates)
                    .filter(was_in_prompt)
                    .filter_map(|candidate| Some((living.get(&candidate.fact)?.clone(), candidate)))
                    .collect();
                let none = || self.no_effects();
                turns.push(RecordedTurn {
                    talk,
                    effects: effects.remove(&turn.id).or_else(none),
                    turn,
                    block,
                    prompted,
                    past: past.unwrap_or_default(),
                    locks: locks.unwrap_or_default(),
                    locked: locked.unwrap_or_default(),
                    told_locks,
                    confided,
                    place,
                });
            }
        }
        turns.sort_by_key(|said| said.turn.committed_at);
        let lives = |corrected: &RecordedCorrection| match corrected {
            RecordedCorrection::Fact { fact, .. } => living.contains_key(fact),
            RecordedCorrection::Written { .. }
            | RecordedCorrection::Progress { .. }
            | RecordedCorrection::Events { .. }
            | RecordedCorrection::TimePassed { .. }
            | RecordedCorrection::Consolidated
            | RecordedCorrection::ClockSet { .. }
            | RecordedCorrection::Script(_)
            | RecordedCorrection::Answer { .. } => true,
        };
        let corrections = self.corrections.iter().filter(|(_, corrected)| lives(corrected));
        let mut corrections: Vec<_> = corrections.cloned().collect();
        corrections.extend(self.standing_answers().await);
        corrections.sort_by_key(|(at, _)| *at);
        ReplayRecord {
            turns,
            corrections,
            joined: self.joined.clone(),
            lines: self.lines.clone(),
            end: self.clock.now(),
        }
    }

    /// Returns what each turn of the adventure changed; none in other worlds.
    async fn effects_of_turns(&self) -> BTreeMap<TurnId, TurnEffects> {
        let mut effects: BTreeMap<TurnId, TurnEffects> = BTreeMap::new();
        let Some(none) = self.no_effects() else {
            return effects;
        };
        let store = &self.services.ledger.state;
        let changes = store.load_changes_since(&self.scope, &self.authored.id, 0).await;
        for stored in changes.unwrap().changes {
            if let Cause::Turn(turn) = stored.cause {
                let of_turn = effects.entry(turn).or_insert_with(|| none.clone());
                of_turn.changes.push(stored.change);
            }
        }
        for action in self.standing_actions().await {
            let of_turn = effects.entry(action.request.turn).or_insert_with(|| none.clone());
            of_turn.actions.push(action.request);
        }
        effects
    }

    /// Returns the effects of a turn of the adventure that changed nothing.
    fn no_effects(&self) -> Option<TurnEffects> {
        (self.stage == Stage::Harrow).then(|| TurnEffects {
            world: self.authored.id.clone(),
            changes: vec![],
            actions: vec![],
        })
    }

    /// Returns the answers to actions that stand.
    async fn standing_answers(&self) -> Vec<(DateTime<Utc>, RecordedCorrection)> {
        let actions = self.standing_actions().await.into_iter();
        let answered = actions.filter_map(|action| {
            let answer = action.answer?;
            let talk = self.talks.iter().position(|talk| *talk == action.request.dialogue)?;
            let (number, name, at) = (action.request.number, action.request.name, answer.answered_at);
            Some((
                at,
                RecordedCorrection::Answer {
                    talk,
                    number,
                    name,
                    answer,
                },
            ))
        });
        answered.collect()
    }

    /// Replays the record in order, and finishes every turn's jobs before the next turn.
    pub async fn replay(&mut self, record: &ReplayRecord) {
        let lines: BTreeSet<String> = record
            .lines
            .iter()
            .map(|(number, say)| self.player.learn(*number, say))
            .collect();
        let (mut corrections, mut joined) = (&record.corrections[..], &record.joined[..]);
        for said in &record.turns {
            self.advance_until(said.turn.committed_at, &mut corrections, &mut joined)
                .await;
            self.say_again(said, &lines).await;
            self.acknowledge_last(said.talk).await;
            self.run_all_jobs().await;
        }
        self.advance_until(record.end, &mut corrections, &mut joined).await;
        self.run_all_jobs().await;
        self.consolidate().await;
        self.run_all_jobs().await;
        self.end_joined().await;
    }

    /// Applies corrections and joins before `end`, each at its time.
    async fn advance_until(
        &mut self,
        end: DateTime<Utc>,
        corrections: &mut &[(DateTime<Utc>, RecordedCorrection)],
        joined: &mut &[JoinedSession],
    ) {
        loop {
            let corrected = corrections.first().map(|(at, _)| *at).filter(|at| *at < end);
            let joins = joined.first().map(|joined| joined.at).filter(|at| *at < end);
            if let Some(at) = joins.filter(|at| corrected.is_none_or(|corrected| *at <= corrected)) {
                self.advance_to(at);
                self.join_again(joined[0]).await;
                *joined = &joined[1..];
            } else if let Some(at) = corrected {
                self.correct_again(at, &corrections[0].1).await;
                *corrections = &corrections[1..];
            } else {
                return self.advance_to(end);
            }
        }
    }

    /// Joins the same line again, if the line stands.
    async fn join_again(&mut self, joined: JoinedSession) {
        let lines = self.turns(AMONG_NPCS.into()).await;
        let line = lines.iter().find(|line| joined.open && line.number == joined.line);
        assert!(line.is_some() || !joined.open, "line {} stands", joined.line);
        self.open_joined(joined, line.map(|line| line.id)).await;
    }

    /// Closes the sessions that started from unsaid lines.
    async fn end_joined(&self) {
        let places = usize::from(JOINED)..;
        for (place, joined) in places.zip(&self.joined) {
            if !joined.open {
                let open = self.open(place).await;
                let (dialogues, now) = (&self.services.ledger.dialogues, self.clock.now());
                let closed = dialogues
                    .close_dialogue(&self.scope, open.dialogue.id, open.epoch, now)
                    .await;
                assert_eq!(closed.unwrap(), OwnerWriteOutcome::Done);
            }
        }
    }

    async fn say_again(&self, said: &RecordedTurn, lines: &BTreeSet<String>) {
        let turn = &said.turn;
        let by_player = turn.player.is_some();
        assert!(!by_player || lines.contains(&turn.player_text), "{}", turn.player_text);
        let text = if by_player { &turn.player_text } else { &turn.reply_text };
        let cut = turn.status == TurnStatus::Interrupted;
        self.player.replies(NextReply {
            name: ReplayModel::name_in(text).unwrap_or_default(),
            recorded: Some(turn.reply_text.clone()),
            hold_after: cut.then(|| turn.reply_text.chars().count()),
            block: said.block,
        });
        let facts = self.facts_named(&said.prompted).await;
        let scenarios = said.past.clone();
        let (locks, locked) = (said.locks.clone(), said.locked.clone());
        let told_locks = said.told_locks.clone();
        let confided = said.confided.clone();
        *self.recorded.lock() = Some(PromptContents {
            facts,
            scenarios,
            locks,
            locked,
            told_locks,
            confided,
            place: said.place.clone(),
            effects: said.effects.clone(),
        });
        let committed = self.say(said.talk, &turn.player_text, cut).await;
        assert!(committed, "turn {} of {} was refused", turn.number, said.talk);
    }

    /// Returns the same facts in this world.
    async fn facts_named(&self, prompted: &[(FactName, CandidateTrace)]) -> Vec<CandidateTrace> {
        let mut here = Vec::with_capacity(prompted.len());
        for (name, candidate) in prompted {
            here.push(CandidateTrace {
                fact: self.fact_named(name).await,
                ..candidate.clone()
            });
        }
        here
    }

    async fn fact_named(&self, name: &FactName) -> FactId {
        // Replays have no rewinds, so learned facts stay.
        if !self.learned.lock().contains_key(name) {
            let facts = self.facts().await;
            *self.learned.lock() = facts.into_iter().map(|(name, fact)| (name, fact.id)).collect();
        }
        let learned = self.learned.lock().get(name).copied();
        learned.unwrap_or_else(|| panic!("{name:?} was not learned"))
    }

    async fn correct_again(&self, at: DateTime<Utc>, corrected: &RecordedCorrection) {
        self.advance_to(at);
        match corrected {
            RecordedCorrection::Written { fruit, adjective, long } => self.write(*fruit, *adjective, *long).await,
            RecordedCorrection::Progress { second, to } => self.set_progress(*second, *to).await,
            RecordedCorrection::Events { second, hp, mana } => self.report_events(*second, *hp, *mana).await,
            RecordedCorrection::Consolidated => self.consolidate().await,
            RecordedCorrection::TimePassed { hours } => self.pass_time(*hours).await,
            RecordedCorrection::ClockSet { to, ratio } => self.set_clock(*to, *ratio).await,
            RecordedCorrection::Script(play) => self.report_events_before(*play).await,
            RecordedCorrection::Answer {
                talk,
                number,
                name,
                answer,
            } => {
                self.answer_again(*talk, *number, name, answer).await;
            }
            RecordedCorrection::Fact {
                name, how, keywords, ..
            } => {
                let fact = self.fact_named(name).await;
                self.correct(fact, *how, keywords.clone()).await;
            }
        }
    }
}
