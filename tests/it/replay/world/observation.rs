//! The observable state of a world.

use std::{collections::HashMap, sync::Arc};

use colloquy::{
    dialogue::{
        jobs,
        preview::{self, Preview},
        recall,
        turn::TurnInput,
    },
    ids::{DialogueId, FactId},
    memory::{fact::Fact, state::WorldState},
    ports::{
        PageRequest,
        clock::Clock as _,
        ledger::{
            actions::Action, dialogues::DialogueStatus, episodes::EpisodePair, facts::FactHistoryEntry,
            insights::InsightFilter,
        },
    },
};

use super::{ReplayWorld, Stage, harrow::SEARCHES, standing_by_name};
use crate::replay::history::Fruit;

/// The observable state of a world without pending work, as lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    transcripts: Vec<String>,
    facts: Vec<String>,
    /// Valid facts whose turns do not stand.
    strays: Vec<String>,
    /// Invalid facts, with the reasons.
    ended: Vec<String>,
    /// Protected facts that other facts contradict.
    flags: Vec<String>,
    /// Facts replaced by newer facts, for viewers who may know both.
    replaced: Vec<String>,
    summaries: Vec<String>,
    /// The curation passes and findings that stand, with their decisions.
    curation: Vec<String>,
    /// The insights that count, newest first.
    insights: Vec<String>,
    state: Vec<String>,
    /// The changes of the world's clock.
    clock: Vec<String>,
    /// The actions that stand.
    actions: Vec<String>,
    /// The episodes that stand, by pair and time.
    episodes: Vec<String>,
    /// The contents of the next prompts, with recalled facts in order.
    pub(super) prompts: Vec<String>,
    /// Considered lore in the prompts, open or guarded.
    pub(super) lore: Vec<String>,
    /// Considered episodes of the prompts, with their stages.
    pub(super) told: Vec<String>,
    /// Players' progress, unlocked scenarios, and the scenarios in a prompt with their reasons.
    pub(super) past: Vec<String>,
    /// The results of searches, with the parts of their scores.
    recall: Vec<String>,
    /// Facts missing or superfluous in the index.
    index: Vec<String>,
}

/// The maximum number of results of a probe's search, more than the number of facts.
const FOUND: usize = 100;

/// Returns the lines of one part.
type ObservationPart = fn(&Observation) -> &[String];

impl Observation {
    /// The compared parts, the most telling first.
    pub const PARTS: [(&'static str, ObservationPart); 19] = [
        ("transcripts", |seen| &seen.transcripts),
        ("facts", |seen| &seen.facts),
        ("strays", |seen| &seen.strays),
        ("ended facts", |seen| &seen.ended),
        ("flags", |seen| &seen.flags),
        ("replaced facts", |seen| &seen.replaced),
        ("summaries", |seen| &seen.summaries),
        ("curation", |seen| &seen.curation),
        ("insights", |seen| &seen.insights),
        ("states", |seen| &seen.state),
        ("clocks", |seen| &seen.clock),
        ("actions", |seen| &seen.actions),
        ("episodes", |seen| &seen.episodes),
        ("pasts", |seen| &seen.past),
        ("lore", |seen| &seen.lore),
        ("told episodes", |seen| &seen.told),
        ("prompts", |seen| &seen.prompts),
        ("recall", |seen| &seen.recall),
        ("indexes", |seen| &seen.index),
    ];

    /// Returns the state without parts that depend on the time of observation: the recency of facts. A restored save
    /// sets the clock, so the list of its changes is longer.
    pub fn without_time_dependent_parts(&self) -> Self {
        Self {
            recall: Vec::new(),
            clock: Vec::new(),
            ..self.clone()
        }
    }
}

/// True if a person reworded the fact.
fn is_rewording(entry: &FactHistoryEntry) -> bool {
    let FactHistoryEntry::Edited { patch, .. } = entry else {
        return false;
    };
    ["content", "keywords"].iter().any(|field| !patch[*field].is_null())
}

fn describe_action(action: &Action) -> String {
    let asked = &action.request;
    format!(
        "{} of {} in turn {} for {:?}: {:?} at {}, {:?}",
        asked.name, asked.npc, asked.number, asked.player, asked.arguments, asked.requested_at, action.answer
    )
}

impl ReplayWorld {
    pub async fn observe_world(&self) -> Observation {
        let mut seen = Observation::default();
        self.observe_facts(&mut seen).await;
        for talk in 0..self.talks.len() {
            self.observe_dialogue(talk, &mut seen).await;
        }
        self.observe_recall(&mut seen).await;
        self.observe_progress(&mut seen).await;
        let ledger = &self.services.ledger;
        let changes = ledger
            .state
            .load_changes_since(&self.scope, &self.authored.id, 0)
            .await
            .unwrap()
            .changes;
        let mut folded = WorldState::default();
        for stored in &changes {
            let dialogue = stored.dialogue.map(|dialogue| self.comparable_dialogue(dialogue));
            folded.apply_change(&stored.change, stored.changed_at, dialogue);
        }
        seen.clock = vec![format!("{:?}", std::mem::take(&mut folded.clock))];
        seen.state = format!("{folded:#?}").lines().map(str::to_owned).collect();
        let mut actions: Vec<String> = self.standing_actions().await.iter().map(describe_action).collect();
        // Replayed turns of several dialogues may be written in another order.
        actions.sort_unstable();
        seen.actions = actions;
        self.observe_episodes(&mut seen).await;
        self.observe_insights(&mut seen).await;
        let indexed = self.services.index.count_points(&self.scope).await.unwrap();
        let wanted = jobs::expected_points(&self.services, &self.scope).await.unwrap();
        if indexed != wanted {
            seen.index
                .push(format!("{indexed} facts in the index, {wanted} in the ledger"));
        }
        if let Some(drift) = jobs::find_drift(&self.services, &self.scope).await.unwrap()
            && drift.point_count() > 0
        {
            seen.index
                .push(format!("the index is not what the ledger says: {drift:?}"));
        }
        seen
    }

    /// Returns the same id for the same dialogue of two worlds: its place among the dialogues.
    fn comparable_dialogue(&self, dialogue: DialogueId) -> DialogueId {
        let talk = self.talks.iter().position(|talk| *talk == dialogue);
        format!("ses_{:026}", talk.unwrap_or(usize::MAX)).parse().unwrap()
    }

    async fn observe_facts(&self, seen: &mut Observation) {
        let stored = self.stored_facts().await;
        let strays = stored.iter().filter(|(stands, fact)| !stands && fact.invalid.is_none());
        seen.strays = strays.map(|(_, fact)| format!("{:?}", fact.statement)).collect();
        let facts = standing_by_name(stored);
        let named = |id| facts.iter().find(|(_, fact)| fact.id == id).map(|(name, _)| name);
        let mut histories = HashMap::new();
        for fact in facts.values() {
            let history = self
                .services
                .ledger
                .facts
                .load_history(&self.scope, fact.id)
                .await
                .unwrap();
            histories.insert(fact.id, history);
        }
        // Facts of two memories form a pair only while both are valid. After a manual rewording, the pairs depend on
        // the time of jobs.
        let counts = |fact: &Fact, by: &FactId| {
            let other = facts.values().find(|other| other.id == *by);
            let is_reworded = |id: &FactId| histories[id].iter().any(is_rewording);
            other.is_some_and(|other| {
                let are_valid = fact.invalid.is_none() && other.invalid.is_none();
                other.audience == fact.audience || are_valid && !is_reworded(&fact.id) && !is_reworded(by)
            })
        };
        for (name, fact) in &facts {
            let flagged = histories[&fact.id].iter().filter_map(|entry| match entry {
                FactHistoryEntry::Flagged { by, .. } => Some(by),
                _ => None,
            });
            let flagged = flagged.filter(|by| counts(fact, by));
            seen.flags
                .extend(flagged.map(|by| format!("{name:?} by {:?}", named(*by))));
            // The order of learning is random.
            let is_valid = |id: &FactId| facts.values().any(|fact| fact.id == *id && fact.invalid.is_none());
            let replacing = fact
                .replaced_by
                .iter()
                .filter(|by| fact.invalid.is_none() && is_valid(by));
            let replacing = replacing.filter(|by| counts(fact, by));
            seen.replaced
                .extend(replacing.map(|by| format!("{name:?} by {:?}", named(*by))));
            let knowers = format!("{} {}", fact.audience.audience_key(), fact.locks);
            let (statement, view) = (&fact.statement, &fact.view);
            match &fact.invalid {
                None => seen.facts.push(format!(
                    "{knowers} | {} | {} | {:?} | {} | {} | {} | {:?}",
                    statement.subject,
                    view.content,
                    view.keywords,
                    view.importance.get(),
                    view.pinned,
                    statement.kind.as_str(),
                    fact.valid_at,
                )),
                Some(invalid) => seen.ended.push(format!(
                    "{knowers} | {} | {:?} | {} | {:?} | {:?}",
                    statement.content,
                    fact.valid_at,
                    invalid.reason.as_str(),
                    invalid.ended_at,
                    invalid.ended_by.map(named),
                )),
            }
        }
        // Entries of one fact are listed in order of learning.
        seen.flags.sort();
        seen.replaced.sort();
    }

    async fn observe_recall(&self, seen: &mut Observation) {
        for npc in self.npcs.keys() {
            let viewpoint = self.viewpoint(npc);
            let fruits = Fruit::ALL.map(Fruit::name);
            let texts = if self.stage == Stage::Harrow {
                &SEARCHES[..]
            } else {
                &fruits
            };
            for &fruit in texts {
                let now = self.clock.now();
                let found = recall::search_facts(
                    &self.services,
                    &self.scope,
                    &self.authored,
                    &viewpoint,
                    fruit,
                    now,
                    FOUND,
                );
                let mut lines: Vec<String> = (found.await.unwrap().0.iter())
                    .map(|hit| format!("{npc} {fruit}: {} {:?}", hit.fact().view.content, hit.score))
                    .collect();
                // Equal scores come in any order.
                lines.sort();
                seen.recall.extend(lines);
            }
        }
    }

    async fn observe_episodes(&self, seen: &mut Observation) {
        for npc in self.npcs.keys() {
            for player in ["p1", "p2"] {
                let player = player.parse().unwrap();
                let pair = EpisodePair {
                    world: &self.authored.id,
                    npc,
                    player: &player,
                };
                let page = PageRequest {
                    limit: 200,
                    after: None,
                };
                let store = &self.services.ledger.episodes;
                let found = store.list_episodes(&self.scope, pair, &page).await.unwrap();
                let mut lines: Vec<String> = (found.items.iter())
                    .map(|episode| {
                        let talk = self.talks.iter().position(|talk| *talk == episode.dialogue);
                        let (number, at, place) = (episode.number, episode.committed_at, &episode.place);
                        let (importance, locks) = (episode.importance.get(), &episode.locks);
                        let text = &episode.text;
                        format!("{npc} {player} {talk:?} {number} {at} {place:?} {text} ({importance}) {locks}")
                    })
                    .collect();
                lines.sort();
                seen.episodes.extend(lines);
            }
        }
    }

    async fn observe_insights(&self, seen: &mut Observation) {
        for npc in self.npcs.keys() {
            let page = PageRequest {
                limit: 200,
                after: None,
            };
            let (store, filter) = (&self.services.ledger.insights, InsightFilter::default());
            let found = store
                .list_insights(&self.scope, &self.authored.id, npc, filter, &page)
                .await
                .unwrap();
            seen.insights.extend(found.items.iter().map(|insight| {
                let talk = self.talks.iter().position(|talk| *talk == insight.dialogue);
                let (player, number, at, day) = (&insight.player, insight.number, insight.last_turn_at, &insight.day);
                let (entity, text, locks) = (&insight.entity, &insight.text, &insight.locks);
                format!("{npc} {player:?} {talk:?} {number} {at} {day} {entity}: {text} {locks}")
            }));
        }
    }

    async fn observe_dialogue(&self, talk: usize, seen: &mut Observation) {
        let turns = self.turns(talk).await;
        let dialogues = &self.services.ledger.dialogues;
        let dialogue = dialogues
            .load_dialogue(&self.scope, self.talks[talk])
            .await
            .unwrap()
            .unwrap();
        let is_open = dialogue.status == DialogueStatus::Open;
        // A dialogue closed before its first turn does not appear.
        if is_open || !turns.is_empty() {
            seen.transcripts.push(format!("{talk}: {:?}", dialogue.status));
        }
        for turn in turns {
            let (npc, said, reply, status) = (&turn.npc, &turn.player_text, &turn.reply_text, turn.status.as_str());
            let (number, at) = (turn.number, turn.committed_at);
            seen.transcripts
                .push(format!("{talk}: {number} {said} -> {npc}: {reply} ({status}, {at})"));
        }
        let kept = self
            .services
            .ledger
            .summaries
            .load_summaries(&self.scope, self.talks[talk]);
        seen.summaries.extend(kept.await.unwrap().iter().map(|summary| {
            let (from, to, at, text) = (summary.from_turn, summary.to_turn, summary.created_at, &summary.text);
            format!("{talk}: {from}-{to} {text} ({}, {at})", summary.importance.get())
        }));
        let curation = &self.services.ledger.curation;
        let curated = curation.load_dialogue_curation(&self.scope, self.talks[talk], 200);
        let curated = curated.await.unwrap();
        seen.curation.extend(curated.last_pass.map(|pass| {
            let (from, to, at, notes) = (pass.from_turn, pass.to_turn, pass.last_turn_at, pass.memory);
            format!("{talk}: {from}-{to} {notes:?} ({:?}, {at})", pass.method)
        }));
        seen.curation.extend(curated.findings.iter().map(|finding| {
            let (kind, text, turns, decided) = (finding.kind, &finding.text, &finding.turns, &finding.decided);
            format!("{talk}: {kind:?} {text} {turns:?} {decided:?}")
        }));
        if !is_open {
            return;
        }
        if self.stage == Stage::Harrow {
            return self.observe_probes(talk, seen).await;
        }
        // Together, the dialogues ask about every fruit.
        let fruit = Fruit::ALL[talk % Fruit::ALL.len()].name();
        let mut input = self.input(talk, &format!("What do you know of {fruit}?")).await;
        let preview = self.preview(&input).await;
        let texts = preview.messages.iter().flat_map(|message| message.content.lines());
        seen.prompts.extend(texts.map(|line| format!("{talk}: {line}")));
        // Recently unlocked or told scenarios come first if a line points to them.
        for line in [format!("Tell me of {fruit}."), "What was that?".to_owned()] {
            replace_line(&mut input, &line);
            let preview = self.preview(&input).await;
            let traced = preview
                .scenarios
                .iter()
                .map(|traced| format!("{talk}: {line} {traced:?}"));
            seen.past.extend(traced);
            let texts = preview.messages.iter().flat_map(|message| message.content.lines());
            let shown = texts.filter(|text| text.contains("(scenario "));
            seen.past.extend(shown.map(|text| format!("{talk}: {line} {text}")));
        }
    }

    async fn preview(&self, input: &TurnInput) -> Preview {
        let preview = preview::preview_prompt(&self.services, input, preview::IntentSource::Assumed);
        preview.await.unwrap()
    }
}

/// Replaces the line of an input without another claim of its dialogue. For NPCs among themselves, `line` is the topic.
fn replace_line(input: &mut TurnInput, line: &str) {
    match &mut input.scene {
        Some(scene) => Arc::make_mut(scene).topic = Some(line.to_owned()),
        None => line.clone_into(&mut input.line),
    }
}
