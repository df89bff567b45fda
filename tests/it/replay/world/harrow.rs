//! The world of the adventure, as its script has it.

use chrono::{DateTime, Utc};
use colloquy::{
    dialogue::{
        knowledge::actions::answer_action, knowledge::lore, knowledge::scenarios, preview,
        world_events::record_world_events,
    },
    memory::{
        authored::{Language, Npc, Persona, TierSettings, World as AuthoredWorld},
        lore::LoreEntry,
        scenario::Scenario,
        world_event::WorldEvent,
    },
    ports::{
        clock::Clock as _,
        ledger::{
            actions::{Action, ActionAnswer, AnswerKind, AnswerOutcome},
            authored::PutOutcome,
        },
    },
};
use serde_json::Value;

use super::{Observation, RecordedCorrection, ReplayWorld, STEP, operations::index_by_share};
use crate::replay::{
    adventure::{PAIRS, PlayOp, SCRIPT},
    history::{self, Line, Op},
    model::{NextReply, ReplayModel},
};

/// Lines that ask for all that an NPC may tell, or must keep.
const PROBES: [(&str, &[&str]); 5] = [
    (
        "mira",
        &[
            "What is in the cellar vault, and where is the tax ledger?",
            "Tell me of your brother and of the market.",
            "What was that?",
        ],
    ),
    ("tom", &["Is there a siege, or a ghost ship?", "Did you do it?"]),
    ("bram", &["What of the smith of Harrow and my iron sword?"]),
    ("hanna", &["Is there a hidden path past the wolves?"]),
    ("krug", &["Who has the crown of the goblins?"]),
];
/// Texts of searches in the memories of all NPCs.
pub(super) const SEARCHES: [&str; 1] = ["the silver key, the cellar, a sword, plums"];

fn text_of(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

pub(super) fn authored(now: DateTime<Utc>) -> AuthoredWorld {
    let world = &SCRIPT.world;
    AuthoredWorld {
        id: "harrow".parse().unwrap(),
        name: text_of(world, "name"),
        premise: text_of(world, "premise"),
        language: Language::En,
        rules: vec![],
        settings: serde_json::from_value(world["settings"].clone()).unwrap(),
        lore_version: 0,
        tenant: colloquy::memory::authored::TenantTier::default(),
        version: 1,
        updated_at: now,
    }
}

pub(super) fn npcs(now: DateTime<Utc>) -> Vec<Npc> {
    let npc = |(id, npc): (&String, &Value)| {
        let scenarios = SCRIPT.scenarios.get(id);
        let tells = |all: &std::collections::BTreeMap<String, Value>| all.values().any(|text| !text["tell"].is_null());
        Npc {
            world: "harrow".parse().unwrap(),
            id: id.parse().unwrap(),
            name: text_of(npc, "name"),
            persona: Persona {
                description: text_of(&npc["persona"], "description"),
                ..Persona::default()
            },
            language: Language::En,
            factions: npc
                .get("factions")
                .map_or_else(Vec::new, |list| serde_json::from_value(list.clone()).unwrap()),
            model: None,
            settings: TierSettings::default(),
            has_scenarios: scenarios.is_some(),
            has_tells: scenarios.is_some_and(tells),
            version: 1,
            updated_at: now,
        }
    };
    SCRIPT.npcs.iter().map(npc).collect()
}

impl ReplayWorld {
    /// Writes the scenarios and the lore, and reports the first events.
    pub(super) async fn author_harrow(&mut self) {
        let now = self.clock.now();
        let of_npcs = SCRIPT.scenarios.iter();
        for (npc, (id, text)) in of_npcs.flat_map(|(npc, all)| all.iter().map(move |scenario| (npc, scenario))) {
            let list = |field: &str| serde_json::from_value(text[field].clone()).unwrap_or_default();
            let scenario = Scenario {
                world: self.authored.id.clone(),
                npc: npc.parse().unwrap(),
                id: id.parse().unwrap(),
                title: text_of(text, "title"),
                content: text_of(text, "content"),
                keywords: list("keywords"),
                synonyms: list("synonyms"),
                required_progress: serde_json::from_value(text["required_progress"].clone()).unwrap_or_default(),
                when: serde_json::from_value(text["when"].clone()).unwrap_or_default(),
                tell: serde_json::from_value(text["tell"].clone()).unwrap(),
                version: 0,
                updated_at: now,
            };
            let edit = self.edit("scenario.put");
            let written = scenarios::write_scenario(&self.services, &self.scope, &scenario, None, &edit).await;
            assert_eq!(written.unwrap(), PutOutcome::Created);
        }
        for (id, text) in &SCRIPT.lore {
            let entry = LoreEntry {
                world: self.authored.id.clone(),
                id: id.parse().unwrap(),
                text: serde_json::from_value(text.clone()).unwrap(),
                version: 0,
                updated_at: now,
            };
            let edit = self.edit("lore.put");
            let written = lore::write_lore(&self.services, &self.scope, entry, None, &edit).await;
            assert_eq!(written.unwrap(), PutOutcome::Created);
            self.authored.lore_version += 1;
        }
        self.report(&SCRIPT.events).await;
    }

    /// Plays a turn of the script: its events, then its line.
    pub(super) async fn play(&mut self, number: usize, play: PlayOp) {
        self.report_events_before(play).await;
        self.corrections
            .push((self.clock.now(), RecordedCorrection::Script(play)));
        self.clock.advance(STEP);
        let said = Line::Scripted(play);
        let line = self.player.learn(number, &said);
        let name = history::name_of(number);
        let whole = ReplayModel::chars_of_reply(&name, &said);
        self.lines.push((number, said));
        let in_block = play.is_cut_in_block();
        let heard = |cut| {
            if in_block {
                whole
            } else {
                1 + index_by_share(cut, whole.saturating_sub(1))
            }
        };
        self.player.replies(NextReply {
            name,
            recorded: None,
            hold_after: play.cut.map(heard),
            block: in_block,
        });
        self.acknowledge_last(play.talk().into()).await;
        self.say(play.talk().into(), &line, play.cut.is_some()).await;
        if !play.later {
            self.run_all_jobs().await;
        }
    }

    /// Reports the events before a turn of the script, as the backend.
    pub(super) async fn report_events_before(&self, play: PlayOp) {
        if let Some(events) = &play.script().events {
            self.report(events).await;
        }
    }

    async fn report(&self, events: &Value) {
        let events: Vec<WorldEvent> = serde_json::from_value(events.clone()).unwrap();
        let edit = self.edit("world.events");
        record_world_events(&self.services, &self.scope, &self.authored, &events, &edit)
            .await
            .unwrap();
    }

    /// Returns all actions that stand, in the order of their writes.
    pub(super) async fn standing_actions(&self) -> Vec<Action> {
        let store = &self.services.ledger.actions;
        let actions = store.load_actions_since(&self.scope, &self.authored.id, 0).await;
        let actions = actions.unwrap().into_iter();
        actions.filter(|action| action.stands).collect()
    }

    /// Answers one of the actions that stand without an answer, as the backend.
    pub(super) async fn answer_any(&self, op: &Op) {
        let Op::Answer { pick, refused } = op else { return };
        let mut open = self.standing_actions().await;
        open.retain(|action| action.answer.is_none());
        // Retaken rows come in another order than new ones.
        open.sort_by_key(|action| (action.request.requested_at, action.request.name.clone()));
        let Some(nth) = usize::from(*pick).checked_rem(open.len()) else {
            return;
        };
        let (kind, text) = if *refused {
            (AnswerKind::Refused, "The lock is rusty.")
        } else {
            (AnswerKind::Done, "")
        };
        self.answer(&open[nth], kind, text).await;
    }

    pub(super) async fn answer(&self, action: &Action, kind: AnswerKind, text: &str) {
        let edit = self.edit("action.answer");
        let answered = answer_action(&self.services, &self.scope, action, (kind, text), &edit).await;
        assert!(matches!(answered, Ok(AnswerOutcome::Stored(_))), "{answered:?}");
    }

    /// Gives an action of a turn the recorded answer.
    pub(super) async fn answer_again(&self, talk: usize, number: u32, name: &str, answer: &ActionAnswer) {
        let asked = self.standing_actions().await.into_iter().find(|action| {
            let asked = &action.request;
            asked.dialogue == self.talks[talk] && asked.number == number && asked.name == name
        });
        let action = asked.unwrap_or_else(|| panic!("turn {number} of {talk} asked for no {name}"));
        self.answer(&action, answer.kind, &answer.text).await;
    }

    /// Observes the prompts of lines to the NPC of a dialogue.
    pub(super) async fn observe_probes(&self, talk: usize, seen: &mut Observation) {
        let (npc, _) = PAIRS[talk];
        let probes = PROBES
            .iter()
            .find(|(of, _)| *of == npc)
            .map_or(&[][..], |(_, probes)| probes);
        let mut input = self.input(talk, "").await;
        // NPCs that have not spoken yet know the state alone: one of them shows enough.
        if input.history.is_empty() && talk > 0 {
            return;
        }
        for line in probes {
            (*line).clone_into(&mut input.line);
            let preview = match preview::preview_prompt(&self.services, &input, preview::IntentSource::Assumed).await {
                Ok(preview) => preview,
                Err(error) => {
                    seen.prompts.push(format!("{talk}: {line} {error}"));
                    continue;
                }
            };
            let texts = preview.messages.iter().flat_map(|message| message.content.lines());
            seen.prompts.extend(texts.map(|text| format!("{talk}: {line} {text}")));
            let scenarios = preview.scenarios.iter();
            seen.past
                .extend(scenarios.map(|traced| format!("{talk}: {line} {traced:?}")));
            let lore = preview.lore.iter();
            seen.lore
                .extend(lore.map(|traced| format!("{talk}: {line} {traced:?}")));
            seen.told.extend(preview.episodes.iter().map(|traced| {
                let (number, stage, fate) = (traced.turn, traced.stage, traced.fate);
                let of = self.talks.iter().position(|id| *id == traced.dialogue_id);
                let (similarity, shown) = (traced.similarity, &traced.shown_text);
                format!("{talk}: {line} {of:?} {number} {stage:?} {fate:?} {similarity:?} {shown:?}")
            }));
        }
    }
}
