//! NPCs' memories of their own past, and players' progress.

use std::collections::BTreeMap;

use colloquy::{
    dialogue::{knowledge::lore, knowledge::scenarios, world_events::record_world_events},
    ids::PlayerId,
    memory::{
        actions::ActionRule,
        attributes::{AttributeAuthor, AttributeRule},
        calendar::GameTime,
        fact::Cause,
        game_clock::{ClockSegment, ClockSettings},
        lore::LoreEntry,
        progress::{Progress, UnlockRule, UnlockWhen},
        scenario::Scenario,
        state::{self, StateChange},
        world_event::WorldEvent,
    },
    ports::{
        clock::Clock as _,
        ledger::{authored::PutOutcome, state::NewStateChange},
    },
};

use serde_json::json;

use super::{Observation, ReplayWorld};
use crate::replay::history::Fruit;

/// The maximum progress by events.
const FARTHEST: u32 = 3;

/// Returns the rules of progress, which cover all changes by a reply.
pub(super) fn rules() -> Vec<UnlockRule> {
    let item = UnlockWhen::Item {
        item: "Silver Key".to_owned(),
    };
    let location = UnlockWhen::Location {
        location: "tower".to_owned(),
    };
    let trust = UnlockWhen::Relationship {
        relationship: "trust".to_owned(),
        at_least: 10,
    };
    let met = UnlockWhen::Met {
        met: "Ergen".to_owned(),
    };
    let of = [
        ("mira", 1, item.clone()),
        ("mira", 2, location),
        ("mira", 3, trust),
        ("ergen", 1, met),
        ("ergen", 2, item),
    ];
    let rule = |(npc, progress, when): (&str, u32, UnlockWhen)| UnlockRule {
        npc: npc.parse().unwrap(),
        progress: Progress::new(progress).unwrap(),
        when,
    };
    of.map(rule).into()
}

/// Replies give the key and reach the tower: rewinds of replies lock and unlock.
pub(super) fn changed_by_replies() -> BTreeMap<String, AttributeAuthor> {
    ["silver key", "tower"]
        .map(|name| (name.to_owned(), AttributeAuthor::Replies))
        .into()
}

/// Returns the attribute that the backend's events change.
pub(super) fn mana() -> AttributeRule {
    serde_json::from_value(json!({"name": "mana", "type": "number", "initial": 50, "of": "players"})).unwrap()
}

/// Returns the clock, with months of a few days.
pub(super) fn clock(ratio: f64) -> ClockSettings {
    let months = json!([{"name": "Bud", "days": 3}, {"name": "Leaf", "days": 4}]);
    let calendar = json!({"months": months, "weekdays": ["Oneday", "Twoday"]});
    serde_json::from_value(json!({"calendar": calendar, "start": "0100-02-03 16:00", "ratio": ratio})).unwrap()
}

/// Returns the action that replies ask for.
pub(super) fn salute() -> ActionRule {
    let arguments = json!({"type": "object", "properties": {"strength": {"type": "integer"}}});
    serde_json::from_value(json!({"name": "salute", "description": "Salutes.", "arguments": arguments})).unwrap()
}

impl ReplayWorld {
    /// Writes a memory of each fruit for every NPC, and one more. Each requires more progress than the last.
    pub(super) async fn author_past(&self) {
        for npc in self.npcs.keys() {
            for required in 0..=FARTHEST {
                let fruit = Fruit(u8::try_from(required).unwrap()).name();
                let scenario = Scenario {
                    world: self.authored.id.clone(),
                    npc: npc.clone(),
                    // NPCs use the same ids for separate scenarios.
                    id: format!("past-{required}").parse().unwrap(),
                    title: format!("Year {required}"),
                    content: format!("There were {fruit} then (scenario {npc} {required})."),
                    keywords: vec![fruit.to_owned()],
                    synonyms: vec![],
                    required_progress: Progress::new(required).unwrap(),
                    when: vec![],
                    tell: None,
                    version: 0,
                    updated_at: self.clock.now(),
                };
                let edit = self.edit("scenario.put");
                let written = scenarios::write_scenario(&self.services, &self.scope, &scenario, None, &edit).await;
                assert_eq!(written.unwrap(), PutOutcome::Created);
            }
        }
    }

    /// Writes lore of each fruit. The entries decay, stay and rest, and two have conditions that replies change.
    pub(super) async fn author_lore(&mut self) {
        let entries = json!({
            "grapes": {"layer": "A4", "sticky": 1, "cooldown": 2},
            "pears": {"layer": "A4", "when": [{"item": "Silver Key"}], "tell": {"text": "You look at your hands."}},
            "night": {"layer": "A3", "keywords": ["grapes"], "when": [{"time": {"from": "18:00", "until": "06:00"}}]},
            "plums": {"layer": "A3", "when": [{"relationship": "trust", "at_least": 10}], "characters": ["Mira"]},
        });
        for (fruit, text) in entries.as_object().unwrap() {
            let mut text = text.clone();
            text["name"] = json!(fruit);
            text["content"] = json!(format!("An orchard has {fruit} (lore of {fruit})."));
            let entry = LoreEntry {
                world: self.authored.id.clone(),
                id: fruit.parse().unwrap(),
                text: serde_json::from_value(text).unwrap(),
                version: 0,
                updated_at: self.clock.now(),
            };
            let edit = self.edit("lore.put");
            let written = lore::write_lore(&self.services, &self.scope, entry, None, &edit).await;
            assert_eq!(written.unwrap(), PutOutcome::Created);
            self.authored.lore_version += 1;
        }
    }

    /// Sets a player's progress with Mira, as the backend.
    pub(super) async fn set_progress(&self, second: bool, to: u8) {
        let player: PlayerId = if second { "p2" } else { "p1" }.parse().unwrap();
        let of = (&self.authored, &self.npcs[&"mira".parse().unwrap()]);
        let (to, edit) = (Progress::new(to.into()).unwrap(), self.edit("progress.put"));
        scenarios::set_progress(&self.services, &self.scope, of, &player, to, &edit)
            .await
            .unwrap();
    }

    /// Reports events about a player, as the backend.
    pub(super) async fn report_events(&self, second: bool, hp: u8, mana: i8) {
        let who = if second { "player:p2" } else { "player:p1" };
        let events = json!([
            {"type": "hp", "who": who, "value": hp},
            {"type": "attribute", "who": who, "attribute": "mana", "change": mana},
        ]);
        let events: Vec<WorldEvent> = serde_json::from_value(events).unwrap();
        let edit = self.edit("world.events");
        let recording = record_world_events(&self.services, &self.scope, &self.authored, &events, &edit);
        recording.await.unwrap();
    }

    /// Reports that hours of the game have passed, as the backend.
    pub(super) async fn pass_time(&self, hours: u8) {
        let events = vec![serde_json::from_value(json!({"type": "time_passed", "hours": hours})).unwrap()];
        let edit = self.edit("world.events");
        let recording = record_world_events(&self.services, &self.scope, &self.authored, &events, &edit);
        recording.await.unwrap();
    }

    /// Sets the clock of the world.
    pub(super) async fn set_clock(&self, to: GameTime, ratio: f64) {
        let (edit, id) = (self.edit("world.events"), self.services.ids.next_id());
        let change = NewStateChange {
            id: self.services.ids.next_id(),
            world: self.authored.id.clone(),
            dialogue: None,
            change: StateChange::Time { to, ratio },
            cause: Cause::Event(id),
            changed_at: edit.made_at,
        };
        let store = &self.services.ledger.state;
        store
            .record_changes(&self.scope, &self.authored.id, &[change], &edit)
            .await
            .unwrap();
    }

    /// Returns the last change of the clock.
    pub(super) async fn last_of_clock(&self) -> ClockSegment {
        let store = &self.services.ledger.state;
        let changes = store
            .load_changes_since(&self.scope, &self.authored.id, 0)
            .await
            .unwrap();
        let changes = changes.changes.iter().map(|stored| (&stored.change, stored.changed_at));
        *state::fold_changes(changes).clock.last().unwrap()
    }

    pub(super) async fn observe_progress(&self, seen: &mut Observation) {
        for npc in self.npcs.values() {
            for player in ["p1", "p2"] {
                let of: PlayerId = player.parse().unwrap();
                let standing = scenarios::player_standing(&self.services, &self.scope, &self.authored, npc, &of).await;
                let standing = standing.unwrap();
                let store = &self.services.ledger.scenarios;
                let unlocked = store
                    .list_unlocked_scenarios(&self.scope, &npc.world, &npc.id, standing.progress())
                    .await;
                let unlocked = unlocked.unwrap();
                let ids: Vec<&str> = unlocked.iter().map(|row| row.scenario.id.as_str()).collect();
                let since = [1, 2, 3].map(|required| standing.enough_since(Progress::new(required).unwrap()));
                seen.past
                    .push(format!("{player} and {}: {standing:?} {ids:?} since {since:?}", npc.id));
            }
        }
    }
}
