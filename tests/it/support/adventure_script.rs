//! The script of the adventure, `tests/data/adventure/harrow.json`: a world, its characters, and 100 turns.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

const SCRIPT: &str = include_str!("../../data/adventure/harrow.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    pub world: Value,
    pub npcs: BTreeMap<String, Value>,
    pub lore: BTreeMap<String, Value>,
    /// By the NPC, and by their ids.
    pub scenarios: BTreeMap<String, BTreeMap<String, Value>>,
    pub events: Value,
    pub turns: Vec<ScriptTurn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptTurn {
    pub to: String,
    #[serde(default = "first_player")]
    pub player: String,
    /// What happens before the line.
    #[serde(default)]
    pub first: Vec<ScriptStep>,
    /// Events of the backend before the line.
    pub events: Option<Value>,
    pub say: String,
    #[serde(default = "small_talk")]
    pub intent: String,
    /// The words and the state block of the mock model.
    pub reply: String,
    pub block: Option<Value>,
    pub plant: Option<Plant>,
    #[serde(default)]
    pub expect: Expectations,
}

pub fn first_player() -> String {
    "p1".to_owned()
}

fn small_talk() -> String {
    "chat".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum ScriptStep {
    Save(String),
    Restore(String),
    /// Takes an NPC's session back to before a turn of the script.
    Rewind {
        npc: String,
        before: usize,
    },
}

/// A planted contradiction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plant {
    pub kind: String,
    pub what: String,
    pub caught_by: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expectations {
    /// The code of the error that refuses the turn.
    pub refused: Option<String>,
    /// Parts of the prompt.
    pub prompt: Vec<String>,
    pub not_prompt: Vec<String>,
    /// Parts of the notes of the trace.
    pub notes: Vec<String>,
    /// Values of the state after the turn: `Bram status`, `player:p1 item rope`, `Krug towards player:p1 hostility`.
    pub state: BTreeMap<String, Value>,
    /// Standing requests of actions after the turn, and those that were undone.
    pub actions: Option<usize>,
    pub undone: Option<usize>,
}

pub fn read_script() -> Script {
    serde_json::from_str(SCRIPT).unwrap()
}
