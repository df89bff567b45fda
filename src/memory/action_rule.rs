//! An action of a world, as its author defines it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::condition::Condition;
use colloquy_core::ids::{FactionId, NpcId};

const DEFAULT_EXPIRES_S: u32 = 60;

/// One action of a world, as its author defines it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionRule {
    /// The name in prompts and requests: 1 to 32 lower-case ASCII letters, digits and `_`.
    #[schema(min_length = 1, max_length = 32, pattern = "^[a-z0-9_]{1,32}$")]
    pub name: String,
    /// What the action does, for the NPC: one sentence of at most 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    pub description: String,
    /// The JSON Schema (2020-12) of the arguments, which are an object. At most 2,000 bytes. `$ref` only names an entry
    /// of `$defs`, and no entry has a `$ref`. Default: no arguments.
    #[serde(default = "no_arguments")]
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// The NPCs that may ask. With `npcs` and `factions` empty, every NPC may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 100)]
    pub npcs: Vec<NpcId>,
    /// The factions whose NPCs may ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 100)]
    pub factions: Vec<FactionId>,
    /// When the NPC may ask: all conditions hold. At most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub when: Vec<Condition>,
    /// True if the NPC may ask again after the action was done. Default: an action that was done rests, for this NPC
    /// with this player.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeatable: bool,
    /// True if the action concerns a player: NPCs among themselves may not ask. Default: true if the description or the
    /// arguments name the player.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_player: Option<bool>,
    /// The time for the backend's answer, in seconds, 1 to 86,400. Default 60.
    #[serde(default = "default_expires_s")]
    #[schema(minimum = 1, maximum = 86_400)]
    pub expires_s: u32,
}

/// The schema of an action without arguments.
#[must_use]
pub fn no_arguments() -> Value {
    json!({"type": "object", "additionalProperties": false})
}

fn default_expires_s() -> u32 {
    DEFAULT_EXPIRES_S
}
