//! An adventure of 100 turns with planted contradictions: the dead speak, dropped items are used, players stand in wrong
//! places, enemies are greeted as friends, secrets are asked for. Each is caught by the state, the lore, a condition or
//! the prompt. The script is `tests/data/adventure/harrow.json`; the table of `tests/data/adventure/README.md` follows
//! from it.

use std::collections::HashMap;

use colloquy::mock_llm::MockHandle;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    npc_conversation::{last_prompt, with_mock},
    scenarios::put,
};
use crate::support::{
    RestClient,
    adventure_script::{Expectations, Plant, Script, ScriptStep, ScriptTurn, first_player, read_script},
    run,
};

const WORLD: &str = "/v1/worlds/harrow";

struct Adventure<'a> {
    mock: &'a MockHandle,
    backend: &'a RestClient,
    /// The session of an NPC with a player.
    sessions: HashMap<(String, String), String>,
    /// The session and the number of each turn of the script; `None`: the turn was refused.
    played: Vec<Option<(String, u64)>>,
    saves: HashMap<String, String>,
    /// What was not caught.
    missed: Vec<String>,
}

impl Adventure<'_> {
    async fn take_step(&mut self, step: &ScriptStep) {
        match step {
            ScriptStep::Save(name) => {
                self.backend.idle().await;
                let save = self
                    .backend
                    .post(&format!("{WORLD}/saves"), &json!({ "name": name }))
                    .await;
                self.saves.insert(name.clone(), save["id"].as_str().unwrap().to_owned());
            }
            ScriptStep::Restore(name) => {
                let path = format!("{WORLD}/saves/{}:restore", self.saves[name]);
                self.backend.post(&path, &json!({})).await;
            }
            ScriptStep::Rewind { npc, before } => {
                let (session, number) = self.played[before - 1].clone().unwrap();
                assert_eq!(self.sessions[&(npc.clone(), first_player())], session);
                let path = format!("/v1/sessions/{session}:rewind");
                self.backend.post(&path, &json!({ "turn": number - 1 })).await;
            }
        }
    }

    async fn play(&mut self, turn: &ScriptTurn, at: &str) {
        for step in &turn.first {
            self.take_step(step).await;
        }
        if let Some(events) = &turn.events {
            self.backend
                .post(&format!("{WORLD}/events"), &json!({ "events": events }))
                .await;
        }
        let expect = &turn.expect;
        let key = (turn.to.clone(), turn.player.clone());
        if !self.sessions.contains_key(&key) {
            let body = json!({"world_id": "harrow", "npc_id": turn.to, "player_id": turn.player});
            let made = self.backend.post("/v1/sessions", &body).await;
            self.sessions
                .insert(key.clone(), made["id"].as_str().unwrap().to_owned());
        }
        let session = self.sessions[&key].clone();
        let reply = match &turn.block {
            Some(block) => format!("{}\n```state\n{block}\n```", turn.reply),
            None => turn.reply.clone(),
        };
        let answer = json!({"reply": reply, "intent": turn.intent});
        self.mock.apply_settings(&answer).unwrap();
        let path = format!("/v1/sessions/{session}/turns");
        let line = json!({ "text": turn.say });
        let (status, said) = self.backend.call(Method::POST, &path, Some(&line)).await;
        if let Some(code) = &expect.refused {
            assert_eq!(
                (status, &said["code"]),
                (StatusCode::CONFLICT, &json!(code)),
                "{at}: {said}"
            );
            self.played.push(None);
        } else {
            assert!(status.is_success(), "{at}: {said}");
            let number = said["turn"].as_u64().unwrap();
            self.played.push(Some((session, number)));
            self.check_prompt(expect, at);
            if !expect.notes.is_empty() {
                let trace = self.backend.get(&format!("{path}/{number}/trace")).await;
                let notes = trace["notes"].to_string();
                for part in &expect.notes {
                    self.expect(notes.contains(part.as_str()), || {
                        format!("{at}: no `{part}` in {notes}")
                    });
                }
            }
        }
        self.check_state(expect, at).await;
        self.check_actions(expect, at).await;
    }

    fn expect(&mut self, is_met: bool, missed: impl FnOnce() -> String) {
        if !is_met {
            self.missed.push(missed());
        }
    }

    fn check_prompt(&mut self, expect: &Expectations, at: &str) {
        let prompt = last_prompt(self.mock);
        let shown = prompt.lines().last().unwrap_or_default();
        for part in &expect.prompt {
            self.expect(prompt.contains(part.as_str()), || {
                format!("{at}: no `{part}` in {shown}")
            });
        }
        for part in &expect.not_prompt {
            self.expect(!prompt.contains(part.as_str()), || {
                format!("{at}: `{part}` is in {shown}")
            });
        }
    }

    async fn check_state(&mut self, expect: &Expectations, at: &str) {
        if expect.state.is_empty() {
            return;
        }
        let state = self.backend.get(&format!("{WORLD}/state")).await;
        for (part, value) in &expect.state {
            let now = value_of(&state, part);
            self.expect(now == *value, || format!("{at}: {part} is {now}, not {value}"));
        }
    }

    async fn check_actions(&mut self, expect: &Expectations, at: &str) {
        for (status, count) in [("requested", expect.actions), ("undone", expect.undone)] {
            if let Some(count) = count {
                let listed = self.backend.get(&format!("{WORLD}/actions?status={status}")).await;
                let is_met = listed["items"].as_array().unwrap().len() == count;
                self.expect(is_met, || format!("{at}: not {count} actions are {status}: {listed}"));
            }
        }
    }
}

/// Returns the value of a part of the state; null: no value.
fn value_of(state: &Value, part: &str) -> Value {
    let words: Vec<&str> = part.splitn(3, ' ').collect();
    let (who, what, name) = (words[0], words[1], words.get(2).copied().unwrap_or_default());
    if what == "towards" {
        let (whom, kind) = name.split_once(' ').unwrap();
        let mut all = state["relationships"].as_array().unwrap().iter();
        let found = all.find(|felt| felt["from"] == who && felt["to"] == whom && felt["kind"] == kind);
        return found.map_or(Value::Null, |felt| felt["strength"].clone());
    }
    let mut all = state["characters"].as_array().unwrap().iter();
    let character = all
        .find(|character| character["name"] == who)
        .cloned()
        .unwrap_or_default();
    match what {
        "item" => character["items"][name]["value"].clone(),
        _ => character[what]["value"].clone(),
    }
}

#[test]
fn planted_contradictions_of_an_adventure_are_caught() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        let script = read_script();
        put(&backend, WORLD, &script.world).await;
        for (id, npc) in &script.npcs {
            put(&backend, &format!("{WORLD}/npcs/{id}"), npc).await;
        }
        for (id, entry) in &script.lore {
            put(&backend, &format!("{WORLD}/lore/{id}"), entry).await;
        }
        for (npc, scenarios) in &script.scenarios {
            for (id, scenario) in scenarios {
                put(&backend, &format!("{WORLD}/npcs/{npc}/scenarios/{id}"), scenario).await;
            }
        }
        backend
            .post(&format!("{WORLD}/events"), &json!({"events": script.events}))
            .await;
        let mut adventure = Adventure {
            mock: &mock,
            backend: &backend,
            sessions: HashMap::new(),
            played: Vec::new(),
            saves: HashMap::new(),
            missed: Vec::new(),
        };
        for (nth, turn) in (1..).zip(&script.turns) {
            adventure.play(turn, &format!("turn {nth} ({})", turn.say)).await;
        }
        assert!(adventure.missed.is_empty(), "{}", adventure.missed.join("\n"));
    });
}

/// Returns the table of planted contradictions as Markdown.
fn table_of_plants(script: &Script) -> String {
    let head = "| turn | kind | contradiction | caught by |\n| --- | --- | --- | --- |\n".to_owned();
    let rows = (1..).zip(&script.turns).filter_map(|(nth, turn)| {
        let Plant { kind, what, caught_by } = turn.plant.as_ref()?;
        Some(format!("| {nth} | {kind} | {what} | {caught_by} |\n"))
    });
    head + &rows.collect::<String>()
}

/// `UPDATE_DOCS=1` rewrites the table.
#[test]
fn table_of_contradictions_follows_the_script() {
    let script = read_script();
    assert_eq!(script.turns.len(), 100);
    let planted = script.turns.iter().filter(|turn| turn.plant.is_some()).count();
    assert!(planted >= 40, "{planted}");
    let expects_something = |expect: &Expectations| {
        let parts = [&expect.prompt, &expect.not_prompt, &expect.notes];
        expect.refused.is_some() || !expect.state.is_empty() || parts.iter().any(|parts| !parts.is_empty())
    };
    for turn in script.turns.iter().filter(|turn| turn.plant.is_some()) {
        assert!(expects_something(&turn.expect), "nothing is expected of `{}`", turn.say);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/adventure/README.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, after) = page.split_once("| turn | kind |").unwrap();
    let after = after.split_once("\n\n").map_or("", |(_, after)| after);
    let current = format!("{before}{}\n{after}", table_of_plants(&script));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, current.trim_end().to_owned() + "\n").unwrap();
    } else {
        assert_eq!(
            page.trim_end(),
            current.trim_end(),
            "run this test once with UPDATE_DOCS=1"
        );
    }
}
