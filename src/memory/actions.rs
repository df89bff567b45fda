//! Actions of NPCs: what a world's author allows an NPC to ask the backend for, and who may ask when.
//!
//! The schemas of arguments are checked by the caller (`dialogue`), which has the validator.

use serde_json::{Map, Value};

pub use super::action_rule::{ActionRule, no_arguments};
use super::{authored::Npc, condition::ConditionContext};

/// Most actions of one world.
pub const MAX_ACTIONS: usize = 40;
/// Most actions that one turn asks for.
pub const MAX_ACTIONS_PER_TURN: usize = 3;
/// Limits of a rule: characters of the name and the description, bytes of the schema, and NPCs or factions.
pub const MAX_ACTION_NAME_CHARS: usize = 32;
pub const MAX_DESCRIPTION_CHARS: usize = 200;
pub const MAX_SCHEMA_BYTES: usize = 2_000;
pub const MAX_ACTORS: usize = 100;
/// Longest arguments of one request, as JSON.
pub const MAX_ARGUMENT_BYTES: usize = 2_000;
/// The longest time for an answer, in seconds.
pub const MAX_EXPIRES_S: u32 = 86_400;

/// An action that a state block asks for. The name is that of a rule; the arguments are not checked yet.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedAction {
    pub name: String,
    pub arguments: Map<String, Value>,
}

impl ActionRule {
    /// True if NPCs among themselves may not ask for the action.
    #[must_use]
    pub fn is_for_players(&self) -> bool {
        self.needs_player.unwrap_or_else(|| {
            let texts = [
                self.description.to_lowercase(),
                self.arguments.to_string().to_lowercase(),
            ];
            texts
                .iter()
                .any(|text| text.contains("player") || text.contains("플레이어"))
        })
    }

    /// True if the NPC may ask at all, whatever the state of the world is.
    #[must_use]
    pub fn is_for(&self, npc: &Npc) -> bool {
        let everybody = self.npcs.is_empty() && self.factions.is_empty();
        everybody || self.npcs.contains(&npc.id) || self.factions.iter().any(|faction| npc.factions.contains(faction))
    }
}

/// The actions that the NPC of `context` may ask for now, in the order of the world's list.
pub fn eligible_actions<'a>(context: &ConditionContext<'a>) -> impl Iterator<Item = &'a ActionRule> {
    let ConditionContext {
        settings, npc, player, ..
    } = *context;
    let rules = settings.action_rules().iter();
    let context = *context;
    let is_possible = move |rule: &&ActionRule| player.is_some() || !rule.is_for_players();
    rules.filter(move |rule| rule.is_for(npc) && is_possible(rule) && context.all_hold(&rule.when))
}

/// Gives texts the types of the schema: models write `"3"` for 3, and the notation of a state block without quotes has
/// only texts. Names of arguments follow the schema without case.
#[must_use]
pub fn fit_to_schema(value: Value, schema: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let fit = |(name, value): (String, Value)| {
                let property = properties.and_then(|properties| {
                    let folded = || {
                        properties
                            .iter()
                            .find(|(property_name, _)| is_same_key(property_name, &name))
                    };
                    properties.get_key_value(&name).or_else(folded)
                });
                match property {
                    Some((property_name, schema)) => (property_name.clone(), fit_to_schema(value, schema)),
                    None => (name, value),
                }
            };
            Value::Object(members.into_iter().map(fit).collect())
        }
        Value::Array(items) => match schema.get("items") {
            Some(item_schema) => Value::Array(items.into_iter().map(|item| fit_to_schema(item, item_schema)).collect()),
            None => Value::Array(items),
        },
        Value::String(text) => fit_text(text, schema),
        other => other,
    }
}

fn fit_text(text: String, schema: &Value) -> Value {
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(type_name)) => vec![type_name],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let listed = |value: &Value| {
        let listed = schema.get("enum").and_then(Value::as_array);
        listed.is_some_and(|values| values.contains(value)) || schema.get("const") == Some(value)
    };
    let parsed: Option<Value> = serde_json::from_str(text.trim()).ok();
    let fits = parsed.filter(|value| match value {
        Value::Number(_) => types.iter().any(|name| matches!(*name, "number" | "integer")) || listed(value),
        Value::Bool(_) => types.contains(&"boolean") || listed(value),
        Value::Null => types.contains(&"null") || listed(value),
        Value::String(_) | Value::Array(_) | Value::Object(_) => false,
    });
    let as_text = Value::String(text);
    if types.contains(&"string") || listed(&as_text) {
        return as_text;
    }
    fits.unwrap_or(as_text)
}

fn is_same_key(key: &str, other: &str) -> bool {
    let folded = |key: &str| key.to_lowercase().replace([' ', '-', '_'], "");
    folded(key) == folded(other)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::DateTime;

    use super::{super::action_rule::no_arguments, *};
    use crate::{
        authored::{Persona, TierSettings, WorldSettings},
        language::Language,
        state::WorldState,
    };
    use serde_json::json;

    fn npc(id: &str, factions: &[&str]) -> Npc {
        Npc {
            world: "fens".parse().unwrap(),
            id: id.parse().unwrap(),
            name: "Rosa".to_owned(),
            persona: Persona::default(),
            language: Language::En,
            factions: factions.iter().map(|faction| faction.parse().unwrap()).collect(),
            model: None,
            settings: TierSettings::default(),
            has_scenarios: false,
            has_tells: false,
            version: 1,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn rule_is_for_listed_npcs_and_factions_while_its_conditions_hold() {
        let settings: WorldSettings = serde_json::from_value(json!({
            "state": [{"name": "siege", "type": "flag", "of": "world", "initial": true}],
            "actions": [
                {"name": "wave", "description": "Waves."},
                {"name": "open_gate", "description": "Opens a gate.", "npcs": ["rosa"]},
                {"name": "march", "description": "Marches.", "factions": ["guards"]},
                {"name": "feast", "description": "Feasts.", "when": [{"not": {"attribute": "siege", "is": true}}]},
            ],
        }))
        .unwrap();
        for (npc, names) in [
            (npc("rosa", &[]), &["wave", "open_gate"][..]),
            (npc("bram", &["guards"]), &["wave", "march"]),
            (npc("tom", &["bakers"]), &["wave"]),
        ] {
            let context = ConditionContext {
                state: &WorldState::default(),
                settings: &settings,
                npc: &npc,
                player: None,
                now: None,
            };
            let found: Vec<&str> = eligible_actions(&context).map(|rule| rule.name.as_str()).collect();
            assert_eq!(found, names, "{}", npc.id);
        }
        let wave = &settings.action_rules()[0];
        assert_eq!((wave.expires_s, &wave.arguments), (60, &no_arguments()));
    }

    #[test]
    fn action_that_concerns_a_player_needs_one() {
        let settings: WorldSettings = serde_json::from_value(json!({"actions": [
            {"name": "wave", "description": "Waves."},
            {"name": "lend", "description": "Lends the player a book."},
            {"name": "open", "description": "문을 연다.", "arguments": {"type": "object", "properties": {
                "who": {"type": "string", "description": "플레이어의 이름"}}}},
            {"name": "bow", "description": "Bows before the player.", "needs_player": false},
            {"name": "pay", "description": "Pays.", "needs_player": true},
        ]}))
        .unwrap();
        let player = "p1".parse().unwrap();
        for (player, names) in [
            (Some(&player), &["wave", "lend", "open", "bow", "pay"][..]),
            (None, &["wave", "bow"]),
        ] {
            let context = ConditionContext {
                state: &WorldState::default(),
                settings: &settings,
                npc: &npc("rosa", &[]),
                player,
                now: None,
            };
            let found: Vec<&str> = eligible_actions(&context).map(|rule| rule.name.as_str()).collect();
            assert_eq!(found, names);
        }
    }

    #[test]
    fn texts_get_the_types_of_the_schema() {
        let schema = json!({"type": "object", "properties": {
            "gateName": {"type": "string"}, "count": {"type": "integer"}, "loud": {"type": "boolean"},
            "level": {"enum": [1, 2, "all"]}, "code": {"type": ["string", "integer"]},
            "stops": {"type": "array", "items": {"type": "number"}},
        }});
        let asked = json!({
            "gate_name": "3", "count": "3", "loud": "true", "level": "2", "code": "7", "stops": ["1.5", "x"], "more": "4",
        });
        let fitted = json!({
            "gateName": "3", "count": 3, "loud": true, "level": 2, "code": "7", "stops": [1.5, "x"], "more": "4",
        });
        assert_eq!(fit_to_schema(asked, &schema), fitted);
    }
}
