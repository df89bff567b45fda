//! Canaries: words that only certain players may hear. The test plants canaries in every source of a prompt and
//! searches every prompt for them.
//!
//! The test has its own rules of who may know a word. A fact learned from a turn may repeat the words of the turn's
//! prompt. Players who may not hear those words may not hear the fact.

use std::collections::{BTreeMap, BTreeSet};

use colloquy::{
    dialogue::{
        knowledge::{lore, scenarios},
        npc_conversation::{Scene, SceneMember},
        preview,
        settings::DialogueSettings,
        turn::TurnInput,
    },
    ids::{DialogueId, DialogueKind, NpcId, PlayerId},
    memory::{
        authored::{Npc, SelfTold, WorldSettings},
        disclosure::{audience::Watchers, secrecy::Tell},
        lore::LoreEntry,
        progress::Progress,
        scenario::Scenario,
    },
    ports::{
        clock::Clock as _,
        ledger::dialogues::{Dialogue, DialogueOptions, DialogueStatus, OwnershipClaim},
        llm::Task,
    },
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use super::{Stage, TestDialogue};
use crate::support::run;

/// The number of prompts in all. `COLLOQUY_CANARY_PROMPTS` sets a higher number.
const PROMPTS: u32 = 10_000;
/// The number of parts that run in parallel.
const PARTS: u32 = 4;
const PLAYERS: [&str; 3] = ["p1", "p2", "p3"];
/// The number of events in one world, and of prompt previews after each event.
const STEPS: usize = 24;
const PREVIEWS: usize = 12;
/// The maximum number of heard words that an NPC repeats as self-facts after each line.
const REPEATED: usize = 2;
/// The start and end of a canary.
const MARK: &str = "zq";

/// The progress required for a memory of an NPC's past.
type PastRequirement = (NpcId, u32);

/// A planted word, and the players who may hear the word.
#[derive(Debug, Clone, Default)]
struct Canary {
    /// The NPCs who know the word.
    npcs: BTreeSet<NpcId>,
    /// The player who told the word in private.
    private_to: Option<PlayerId>,
    /// If set, only these players could listen when the word was said.
    hearers: Option<BTreeSet<PlayerId>>,
    needs: BTreeSet<PastRequirement>,
    /// The same, for lore in the prompt.
    lore_needs: BTreeSet<PastRequirement>,
    /// The dialogues in which the word was said. Prompts of these dialogues may have the word.
    said_in: BTreeSet<DialogueId>,
    /// The dialogue whose rewind also removes the word.
    of: Option<DialogueId>,
    /// True after the rewind.
    unsaid: bool,
    /// The player who heard the word from an NPC as a self-fact. The NPC may tell everyone.
    told_to: Option<PlayerId>,
    /// True if an NPC invented the word about itself. The NPC may repeat its inventions to everyone.
    is_npcs: bool,
}

/// The viewer of a prompt.
struct PromptViewer<'a> {
    npc: &'a NpcId,
    player: Option<&'a PlayerId>,
    watchers: Watchers,
    dialogue: DialogueId,
}

struct CanaryWorld<'s> {
    stage: &'s Stage,
    npcs: Vec<Npc>,
    rng: StdRng,
    canaries: Vec<Canary>,
    progress: BTreeMap<(PlayerId, NpcId), u32>,
    sessions: BTreeMap<(PlayerId, NpcId), TestDialogue<'s>>,
    /// Sessions without turns.
    silent: BTreeMap<(PlayerId, NpcId), TestDialogue<'s>>,
    /// Dialogues that are never rewound.
    over: BTreeSet<DialogueId>,
    checked: u32,
    found: u32,
    /// The number of found self-facts that an NPC had told another player.
    found_shared: u32,
}

fn player(name: &str) -> PlayerId {
    name.parse().unwrap()
}

/// Returns the canary with number `nth`.
fn canary_word(nth: usize) -> String {
    format!("{MARK}n{nth}{MARK}")
}

/// Whether scenarios require the progress that the canaries state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LockSetup {
    Kept,
    /// All scenarios are open to everyone, while the expectations stay the same.
    Open,
}

/// Returns the stage's NPC and a second NPC. Both have a past that unlocks step by step.
async fn author_pasts(stage: &mut Stage, locks: LockSetup) -> (Vec<Npc>, Vec<Canary>) {
    stage.npc.has_scenarios = true;
    stage.npc.has_tells = true;
    let mut ergen = stage.npc.clone();
    ergen.id = "ergen".parse().unwrap();
    "Ergen".clone_into(&mut ergen.name);
    let edit = stage.edit("npc.put");
    let authored = &stage.services.ledger.authored;
    authored.put_npc(&stage.scope, &ergen, None, &edit).await.unwrap();
    let npcs = vec![stage.npc.clone(), ergen];
    let mut canaries = Vec::new();
    for npc in &npcs {
        for required in [0_u32, 1, 2, 3] {
            let word = canary_word(canaries.len());
            let kept = if locks == LockSetup::Kept { required } else { 0 };
            let scenario = Scenario {
                world: stage.world.id.clone(),
                npc: npc.id.clone(),
                id: format!("past-{required}").parse().unwrap(),
                title: format!("The lantern of {word}"),
                content: format!("There was a lantern, and {word} was in it."),
                // No line has the keyword. A line with the keyword brings a past into each prompt, and locks all facts.
                keywords: vec!["shipwreck".to_owned()],
                synonyms: vec![],
                required_progress: Progress::new(kept).unwrap(),
                when: vec![],
                tell: (kept > 0).then(|| Tell {
                    text: "You look away from the lantern.".to_owned(),
                    when: vec![],
                }),
                version: 0,
                updated_at: stage.clock.now(),
            };
            let edit = stage.edit("scenario.put");
            let written = scenarios::write_scenario(&stage.services, &stage.scope, &scenario, None, &edit);
            written.await.unwrap();
            canaries.push(Canary {
                npcs: [npc.id.clone()].into(),
                needs: [(npc.id.clone(), required)].into(),
                ..Canary::default()
            });
        }
    }
    (npcs, canaries)
}

/// Writes lore that only one NPC knows, and that unlocks step by step. Half of the entries have a tell.
async fn author_lore(stage: &mut Stage, locks: LockSetup, npcs: &[Npc], canaries: &mut Vec<Canary>) {
    for npc in npcs {
        for required in [0_u32, 1, 2, 3] {
            let word = canary_word(canaries.len());
            let kept = if locks == LockSetup::Kept { required } else { 0 };
            let tell = (required % 2 == 1).then(|| json!({"text": "You look away from the lantern."}));
            let text = json!({
                "name": format!("lamp {required} of {word}"), "content": format!("The lamp of {word} was a lantern."),
                "keywords": ["lantern"], "layer": "A2", "known_by": {"npcs": [npc.id]},
                "when": [{"progress": kept}], "tell": tell,
            });
            let entry = LoreEntry {
                world: stage.world.id.clone(),
                id: format!("lamp-{}-{required}", npc.id).parse().unwrap(),
                text: serde_json::from_value(text).unwrap(),
                version: 0,
                updated_at: stage.clock.now(),
            };
            let edit = stage.edit("lore.put");
            lore::write_lore(&stage.services, &stage.scope, entry, None, &edit)
                .await
                .unwrap();
            canaries.push(Canary {
                npcs: [npc.id.clone()].into(),
                lore_needs: [(npc.id.clone(), required)].into(),
                ..Canary::default()
            });
        }
    }
    let authored = &stage.services.ledger.authored;
    let world = authored.load_world(&stage.scope, &stage.world.id).await.unwrap();
    stage.world = world.unwrap();
}

impl<'s> CanaryWorld<'s> {
    fn gossips(&self) -> bool {
        self.stage.world.settings.gossip.unwrap_or(false)
    }
    fn shares(&self) -> bool {
        self.stage.world.settings.share_between_players.unwrap_or(false)
    }
    fn plant(&mut self, canary: Canary) -> String {
        self.canaries.push(canary);
        canary_word(self.canaries.len() - 1)
    }
    fn any_player(&mut self) -> PlayerId {
        player(PLAYERS[self.rng.random_range(0..PLAYERS.len())])
    }
    fn any_npc(&mut self) -> Npc {
        self.npcs[self.rng.random_range(0..self.npcs.len())].clone()
    }
    fn progress_of(&self, who: &PlayerId, npc: &NpcId) -> u32 {
        let reached = self.progress.get(&(who.clone(), npc.clone()));
        reached.copied().unwrap_or_default()
    }

    /// True if `viewer`'s prompt may have the canary.
    fn may_have(&self, canary: &Canary, viewer: &PromptViewer<'_>) -> bool {
        if canary.unsaid {
            return false;
        }
        if canary.said_in.contains(&viewer.dialogue) {
            return true;
        }
        // Lore locks no memory that is private to the player and has other words. Self-facts have other words.
        let is_unrelated = !self.shares() && canary.told_to.is_some() && canary.told_to.as_ref() == viewer.player;
        let is_reached =
            |(npc, required): &PastRequirement| viewer.player.map_or(0, |who| self.progress_of(who, npc)) >= *required;
        let is_heard = |hearers: &BTreeSet<PlayerId>| {
            let mut listening = viewer.watchers.players.iter().chain(viewer.player);
            !viewer.watchers.everyone && listening.all(|who| hearers.contains(who))
        };
        canary.npcs.contains(viewer.npc)
            && canary
                .private_to
                .as_ref()
                .is_none_or(|owner| viewer.player == Some(owner))
            && (self.gossips() || canary.hearers.as_ref().is_none_or(is_heard))
            && canary.needs.iter().all(is_reached)
            && (is_unrelated || canary.lore_needs.iter().all(is_reached))
    }

    /// Checks the canaries of a prompt, and returns them.
    fn search_prompt(&mut self, text: &str, viewer: &PromptViewer<'_>, what: &str) -> BTreeSet<usize> {
        self.checked += 1;
        let found: BTreeSet<usize> = canaries_in(text).collect();
        self.found += u32::try_from(found.len()).unwrap();
        for nth in &found {
            let canary = &self.canaries[*nth];
            let teller = canary.told_to.as_ref();
            self.found_shared += u32::from(teller.is_some_and(|teller| viewer.player.is_some_and(|who| who != teller)));
            assert!(
                self.may_have(canary, viewer),
                "{what} of {} with {:?} ({:?}) has {}, {canary:?}, {:?}:\n{text}",
                viewer.npc,
                viewer.player,
                viewer.watchers,
                canary_word(*nth),
                self.progress,
            );
        }
        found
    }

    async fn open_dialogue(
        &self,
        npcs: &[NpcId],
        who: Option<&PlayerId>,
        options: DialogueOptions,
    ) -> TestDialogue<'s> {
        let stage = self.stage;
        let kind = who.map_or(DialogueKind::NpcConversation, |_| DialogueKind::Session);
        let now = stage.clock.now();
        let dialogue = Dialogue {
            id: stage.services.ids.next_dialogue_id(kind),
            world: stage.world.id.clone(),
            npcs: npcs.to_vec(),
            player: who.cloned(),
            witnesses: vec![],
            resume_token_hash: vec![],
            status: DialogueStatus::Open,
            options,
            cause: None,
            created_at: now,
            updated_at: now,
            head_turn: 0,
        };
        let dialogues = &stage.services.ledger.dialogues;
        dialogues.create_dialogue(&stage.scope, &dialogue).await.unwrap();
        let until = now + std::time::Duration::from_hours(1_000);
        let claim = dialogues
            .claim_ownership(&stage.scope, dialogue.id, stage.node, now, until)
            .await;
        let OwnershipClaim::Owned(open) = claim.unwrap() else {
            panic!("nobody else is there");
        };
        TestDialogue {
            stage,
            player: who.cloned().unwrap_or_else(|| player("nobody")),
            open: *open,
            history: vec![],
            feed: super::RecordingFeed::default(),
            seq: 1,
        }
    }

    /// Says a line that teaches `facts`, and checks all prompts of the line. The requirements of `taught` and `spoken`,
    /// the new canaries, are not yet known. The NPC repeats heard words as self-facts, from whichever player.
    async fn say(
        &mut self,
        talk: &mut TestDialogue<'s>,
        input: TurnInput,
        mut facts: Vec<Value>,
        taught: &[usize],
        spoken: &[usize],
    ) {
        let stage = self.stage;
        let (npc, who, watchers) = (
            input.npc.id.clone(),
            input.player.clone(),
            input.dialogue.options.watchers(),
        );
        let (dialogue, name, line) = (input.dialogue.id, input.npc.name.clone(), input.line.clone());
        let viewer = PromptViewer {
            npc: &npc,
            player: who.as_ref(),
            watchers,
            dialogue,
        };
        stage.llm.take_requests();
        let committed = talk.run_turn(input, false).await.unwrap();
        stage.clock.advance(std::time::Duration::from_mins(1));
        let mut had = BTreeSet::new();
        for request in stage.llm.take_requests() {
            let texts: Vec<&str> = request
                .messages
                .iter()
                .map(|message| message.content.as_str())
                .collect();
            let found = self.search_prompt(&texts.join("\n"), &viewer, "a prompt");
            // The intent prompt yields no text for players.
            if request.task == Task::Reply {
                had.extend(found);
            }
        }
        // The requirements of the new canaries are known now, before any fact is learned.
        for nth in taught.iter().chain(spoken) {
            for of in &had {
                let of = self.canaries[*of].clone();
                let canary = &mut self.canaries[*nth];
                canary.needs.extend(of.needs);
                canary.lore_needs.extend(of.lore_needs);
                canary.hearers = match (canary.hearers.take(), of.hearers) {
                    (Some(one), Some(other)) => Some(&one & &other),
                    (one, other) => one.or(other),
                };
            }
        }
        had.extend(canaries_in(&line));
        let at = self.checked;
        let heard = if who.is_some() { had.clone() } else { BTreeSet::new() };
        let episode = self.repeated_canaries(&heard, dialogue).join(" and ");
        // Self-facts of a conversation, or of a world that shares them, would be told to everyone.
        had.retain(|_| who.is_some() && !self.shares());
        facts.extend(
            self.repeated_canaries(&had, dialogue)
                .into_iter()
                .map(|word| repeating_fact(&name, &word, at)),
        );
        stage.llm.queue_text(
            Task::Extraction,
            json!({ "facts": facts, "episode": {"text": episode, "importance": 9} }).to_string(),
        );
        for job in &committed.jobs {
            stage.run_job(job).await.unwrap();
        }
        for request in stage.llm.take_requests() {
            if request.task == Task::Judge {
                // The judge returns only verdicts, and no player sees them.
                continue;
            }
            let texts: Vec<&str> = request
                .messages
                .iter()
                .map(|message| message.content.as_str())
                .collect();
            self.search_prompt(&texts.join("\n"), &viewer, "a prompt of what came after");
        }
    }

    /// Returns some heard words, but only words removed with this dialogue or never removed.
    fn repeated_canaries(&mut self, had: &BTreeSet<usize>, dialogue: DialogueId) -> Vec<String> {
        let stays = |nth: &&usize| {
            let Canary { of, is_npcs, .. } = self.canaries[**nth];
            !is_npcs && of.is_none_or(|of| of == dialogue || self.over.contains(&of))
        };
        let had: Vec<usize> = had.iter().filter(stays).copied().collect();
        let some = (0..REPEATED.min(had.len())).map(|_| canary_word(had[self.rng.random_range(0..had.len())]));
        some.collect()
    }

    /// A player speaks to an NPC, and the NPC answers and teaches.
    async fn player_speaks(&mut self) {
        let (who, npc) = (self.any_player(), self.any_npc());
        let key = (who.clone(), npc.id.clone());
        let mut talk = match self.sessions.remove(&key) {
            Some(talk) => talk,
            None => {
                self.open_dialogue(std::slice::from_ref(&npc.id), Some(&who), DialogueOptions::default())
                    .await
            }
        };
        let dialogue = talk.open.dialogue.id;
        let said = Canary {
            npcs: [npc.id.clone()].into(),
            private_to: Some(who.clone()),
            said_in: [dialogue].into(),
            of: Some(dialogue),
            ..Canary::default()
        };
        let learned = Canary {
            private_to: (!self.shares()).then(|| who.clone()),
            said_in: [].into(),
            ..said.clone()
        };
        let first = self.canaries.len();
        let [line, reply, mood, summary] = [0; 4].map(|_| self.plant(said.clone()));
        let [own, told] = [0; 2].map(|_| self.plant(learned.clone()));
        self.canaries[first + 1].is_npcs = true;
        let is_private = self.stage.world.settings.self_told == Some(SelfTold::Private);
        let of_itself = self.plant(Canary {
            private_to: learned.private_to.clone().filter(|_| is_private),
            told_to: Some(who.clone()),
            ..learned
        });
        let kind = self.plant(said.clone());
        let stage = self.stage;
        let intent = ["memory", "scenario", "scenario", "overheard", "chat"][self.rng.random_range(0..5)];
        stage.llm.queue_text(Task::Intent, intent);
        // The model tries to publish the words through the world's state.
        let relationships = json!([
            { "from": npc.name, "to": "player", "type": kind, "delta": 3 },
            { "from": npc.name, "to": "player", "type": format!("trust {kind}"), "delta": 3 },
        ]);
        let block = json!({ "mood": format!("sad: {mood}"), "relationship_changes": relationships });
        let block = format!("\n```state\n{block}\n```");
        stage
            .llm
            .queue_text(Task::Reply, format!("The lantern {reply} is lit.{block}"));
        let facts = vec![
            fact("player", "player", &own),
            fact(&npc.name, &npc.name, &told),
            repeating_fact(&npc.name, &of_itself, 0),
        ];
        let digest = json!({ "summary": format!("They spoke of the lantern {summary}."), "importance": 5 });
        stage.llm.queue_text(Task::Summary, digest.to_string());
        let mut input = talk.turn_input(&format!("Do you know the lantern {line}?")).await;
        input.npc = npc.clone().into();
        // The player's own statement rests on no memory.
        let spoken = [first + 1, first + 2, first + 3, first + 7];
        self.say(&mut talk, input, facts, &[first + 5, first + 6], &spoken)
            .await;
        stage.llm.clear_queue();
        let goes_on = self.rng.random_range(0..8);
        if goes_on == 1 {
            // The next session with this player remembers this session.
            self.over.insert(dialogue);
        } else if goes_on == 0 {
            talk.rewind(0, None).await;
            for canary in &mut self.canaries {
                canary.unsaid |= canary.of == Some(dialogue);
            }
        } else {
            self.sessions.insert(key, talk);
        }
    }

    /// NPCs speak with each other, where some, all or no players may listen.
    async fn npcs_speak(&mut self) {
        let options = match self.rng.random_range(0..3) {
            0 => DialogueOptions {
                open: true,
                ..DialogueOptions::default()
            },
            1 => DialogueOptions {
                watchers: vec![self.any_player()],
                ..DialogueOptions::default()
            },
            _ => DialogueOptions::default(),
        };
        let hearers = (!options.open).then(|| options.watchers.iter().cloned().collect());
        let all: Vec<NpcId> = self.npcs.iter().map(|npc| npc.id.clone()).collect();
        let mut talk = self.open_dialogue(&all, None, options).await;
        let cast = self.npcs.iter().map(SceneMember::of_npc);
        let scene = Scene {
            cast: cast.collect(),
            topic: Some("The lantern".to_owned()),
            last: false,
            ..Scene::default()
        };
        let dialogue = talk.open.dialogue.id;
        for _ in 0..2 {
            let npc = self.any_npc();
            let said = Canary {
                npcs: all.iter().cloned().collect(),
                hearers: hearers.clone(),
                said_in: [dialogue].into(),
                of: Some(dialogue),
                ..Canary::default()
            };
            let learned = Canary {
                said_in: [].into(),
                ..said.clone()
            };
            let first = self.canaries.len();
            let (line, told) = (self.plant(said), self.plant(learned));
            let stage = self.stage;
            stage.llm.queue_text(Task::Reply, format!("The lantern {line} is lit."));
            let facts = vec![fact(&npc.name, &npc.name, &told)];
            let mut input = talk.turn_input("").await;
            input.player = None;
            input.npc = npc.into();
            input.scene = Some(scene.clone().into());
            self.say(&mut talk, input, facts, &[first + 1], &[first]).await;
            stage.llm.clear_queue();
        }
        self.over.insert(dialogue);
    }

    /// The backend raises or lowers a player's progress.
    async fn progress_changes(&mut self) {
        let (who, npc) = (self.any_player(), self.any_npc());
        let to = self.rng.random_range(0..4);
        let (stage, of) = (self.stage, (&self.stage.world, &npc));
        let edit = stage.edit("progress.put");
        let progress = Progress::new(to).unwrap();
        let set = scenarios::set_progress(&stage.services, &stage.scope, of, &who, progress, &edit);
        set.await.unwrap();
        self.progress.insert((who, npc.id), to);
    }

    /// Previews a prompt of a session without turns, with a search of all memories.
    async fn preview_prompt(&mut self) {
        let (who, npc) = (self.any_player(), self.any_npc());
        let key = (who.clone(), npc.id.clone());
        if !self.silent.contains_key(&key) {
            let talk = self
                .open_dialogue(std::slice::from_ref(&npc.id), Some(&who), DialogueOptions::default())
                .await;
            self.silent.insert(key.clone(), talk);
        }
        let talk = &self.silent[&key];
        let nth = self.rng.random_range(0..self.canaries.len());
        let line = format!("What of the lantern, and of {}?", canary_word(nth).replace(MARK, ""));
        let mut input = talk.turn_input(&line).await;
        input.npc = npc.clone().into();
        let preview = preview::preview_prompt(&self.stage.services, &input, preview::IntentSource::Assumed)
            .await
            .unwrap();
        let texts: Vec<&str> = preview
            .messages
            .iter()
            .map(|message| message.content.as_str())
            .collect();
        let viewer = PromptViewer {
            npc: &npc.id,
            player: Some(&who),
            watchers: Watchers::default(),
            dialogue: input.dialogue.id,
        };
        self.search_prompt(&texts.join("\n"), &viewer, "a preview");
    }
}

/// Returns a fact as an extractor writes facts. Only the lantern is common to any two. Every second fact is a goal,
/// which stands in every prompt.
fn fact(subject: &str, speaker: &str, word: &str) -> Value {
    let bare = word.replace(MARK, "");
    let stands = bare.ends_with(['0', '2', '4', '6', '8']);
    json!({
        "subject": subject, "predicate": format!("keeps {bare}a"), "object": word, "speaker": speaker,
        "content": format!("Lantern {word} {bare}a {bare}b {bare}c."), "keywords": ["lantern"],
        "kind": if stands { "goal" } else { "preference" }, "importance": 5, "polarity": "positive", "tense": "present",
    })
}

/// Returns a fact of an NPC about itself, with no other words in common.
fn repeating_fact(npc: &str, word: &str, nth: u32) -> Value {
    let bare = word.replace(MARK, "");
    json!({
        "subject": npc, "predicate": "like", "object": word, "speaker": npc,
        "content": format!("{npc} likes {word}, {bare} and {bare}y{nth}."), "keywords": [],
        "kind": "preference", "importance": 5, "polarity": "positive", "tense": "present",
    })
}

/// Returns the numbers of the canaries in `text`.
fn canaries_in(text: &str) -> impl Iterator<Item = usize> {
    let pieces = text.split(MARK);
    pieces.filter_map(|piece| piece.strip_prefix('n')?.parse().ok())
}

/// Runs worlds until the given number of prompts was checked.
async fn run_canaries(part: u32, prompts: u32, locks: LockSetup, stage: impl AsyncFn(WorldSettings) -> Stage) {
    let (mut checked, mut found, mut found_shared) = (0, 0, 0);
    for nth in 0.. {
        let seed = u64::from(part + PARTS * nth);
        let settings = WorldSettings {
            share_between_players: Some(seed % 2 == 1),
            gossip: Some(seed % 8 == 7),
            self_told: Some(if seed % 6 == 4 {
                SelfTold::Private
            } else {
                SelfTold::Shared
            }),
            ..WorldSettings::default()
        };
        let mut stage = stage(settings).await;
        let (npcs, mut canaries) = author_pasts(&mut stage, locks).await;
        // Everything said after a prompt with conditional lore has the locks of the lore. The other worlds show that
        // NPCs tell of themselves.
        if nth % 2 == 1 {
            author_lore(&mut stage, locks, &npcs, &mut canaries).await;
        }
        let mut vale = CanaryWorld {
            stage: &stage,
            npcs,
            canaries,
            rng: StdRng::seed_from_u64(seed),
            progress: BTreeMap::new(),
            sessions: BTreeMap::new(),
            silent: BTreeMap::new(),
            over: BTreeSet::new(),
            checked: 0,
            found: 0,
            found_shared: 0,
        };
        for _ in 0..STEPS {
            match vale.rng.random_range(0..6) {
                0..3 => Box::pin(vale.player_speaks()).await,
                3 => Box::pin(vale.npcs_speak()).await,
                _ => vale.progress_changes().await,
            }
            for _ in 0..PREVIEWS {
                vale.preview_prompt().await;
            }
        }
        checked += vale.checked;
        found += vale.found;
        if !vale.shares() {
            found_shared += vale.found_shared;
        }
        if checked >= prompts {
            break;
        }
    }
    // Empty prompts would prove nothing.
    assert!(
        found > checked,
        "{found} canaries in {checked} prompts, where they may be"
    );
    // The worlds of odd parts share everything.
    assert!(
        part % 2 == 1 || found_shared > 0,
        "no NPC told another player of itself"
    );
}

fn prompt_count() -> u32 {
    let set = std::env::var("COLLOQUY_CANARY_PROMPTS");
    set.map_or(PROMPTS, |number| number.parse().unwrap())
}

fn raise_limits(settings: &mut DialogueSettings) {
    settings.recall.top_k = 24;
    settings.recall.min_score = 0.0;
    settings.scenarios.top_k = 8;
    settings.scenarios.min_score = 0.0;
    settings.summaries.first_after_turns = 2;
    settings.summaries.then_every_turns = 2;
}

fn on_sqlite(part: u32) {
    run(run_canaries(
        part,
        prompt_count() / PARTS,
        LockSetup::Kept,
        async |settings| Stage::prepare_with(raise_limits, settings).await,
    ));
}

/// Proves that the test detects a lock open to everyone.
#[test]
#[should_panic(expected = " has zqn")]
fn past_open_to_all_players_is_found() {
    run(run_canaries(
        0,
        prompt_count() / PARTS,
        LockSetup::Open,
        async |settings| Stage::prepare_with(raise_limits, settings).await,
    ));
}

#[test]
fn prompts_never_contain_forbidden_text_1() {
    on_sqlite(0);
}
#[test]
fn prompts_never_contain_forbidden_text_2() {
    on_sqlite(1);
}
#[test]
fn prompts_never_contain_forbidden_text_3() {
    on_sqlite(2);
}
#[test]
fn prompts_never_contain_forbidden_text_4() {
    on_sqlite(3);
}

/// Checks fewer prompts, because each prompt takes longer here.
#[test]
fn prompts_never_contain_forbidden_text_on_postgres() {
    run(run_canaries(
        0,
        prompt_count() / 20,
        LockSetup::Kept,
        async |settings| Stage::prepare_on_postgres(raise_limits, settings).await,
    ));
}
