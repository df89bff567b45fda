//! Reads the actions that a state block asks for.

use serde_json::{Map, Value};

use super::{
    flow::BlockValue,
    values::{clip_chars, is_nothing},
};
use crate::actions::{ActionRule, MAX_ACTIONS_PER_TURN, MAX_ARGUMENT_BYTES, RequestedAction, fit_to_schema};

const NAME_KEYS: [&str; 3] = ["name", "action", "이름"];
const ARGUMENT_KEYS: [&str; 4] = ["arguments", "args", "parameters", "인자"];

/// Reads the entry `key` of a block. The second list has the refusals. In a block of exact JSON, arguments keep their
/// types and names; in other notations, the lenient `value` counts, and the schema gives the types.
pub(super) fn read_actions(
    block: &str,
    key: &str,
    value: &BlockValue,
    rules: &[ActionRule],
) -> (Vec<RequestedAction>, Vec<String>) {
    let value = exact_value(block, key).unwrap_or_else(|| to_json(value));
    let entries = match value {
        Value::Array(entries) => entries,
        single => vec![single],
    };
    let mut actions = Vec::new();
    let mut rejected = Vec::new();
    for entry in entries {
        if matches!(&entry, Value::String(text) if is_nothing(text)) || entry.is_null() {
            continue;
        }
        if actions.len() == MAX_ACTIONS_PER_TURN {
            rejected.push(format!("one turn asks for at most {MAX_ACTIONS_PER_TURN} actions"));
            break;
        }
        match read_action(entry, rules) {
            Ok(action) => actions.push(action),
            Err(reason) => rejected.push(reason),
        }
    }
    (actions, rejected)
}

fn read_action(entry: Value, rules: &[ActionRule]) -> Result<RequestedAction, String> {
    let (name, arguments) = match entry {
        Value::Object(mut members) => (
            NAME_KEYS
                .iter()
                .find_map(|key| members.get(*key)?.as_str().map(str::to_owned)),
            ARGUMENT_KEYS.iter().find_map(|key| members.remove(*key)),
        ),
        Value::String(name) => (Some(name), None),
        _ => (None, None),
    };
    let Some(name) = name else {
        return Err("an entry of `actions` must have a name".to_owned());
    };
    let requested = name.trim().to_lowercase().replace([' ', '-'], "_");
    let Some(rule) = rules.iter().find(|rule| rule.name == requested) else {
        return Err(format!(
            "the action `{}` is not allowed here and now",
            clip_chars(&requested, 32)
        ));
    };
    let arguments = match arguments {
        None | Some(Value::Null) => Map::new(),
        Some(Value::String(text)) if is_nothing(&text) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Err(format!("the arguments of the action `{requested}` must be an object")),
    };
    if serde_json::to_string(&arguments).is_ok_and(|json| json.len() > MAX_ARGUMENT_BYTES) {
        let reason = format!("the arguments of the action `{requested}` are longer than {MAX_ARGUMENT_BYTES} bytes");
        return Err(reason);
    }
    match fit_to_schema(Value::Object(arguments), &rule.arguments) {
        Value::Object(arguments) => Ok(RequestedAction {
            name: requested,
            arguments,
        }),
        _ => Err(format!("the arguments of the action `{requested}` must be an object")),
    }
}

/// The value of the key, if the whole block is one object of exact JSON.
fn exact_value(block: &str, key: &str) -> Option<Value> {
    let members: Map<String, Value> = serde_json::from_str(block.trim()).ok()?;
    let mut matches = members
        .into_iter()
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case(key));
    matches.next().map(|(_, value)| value)
}

fn to_json(value: &BlockValue) -> Value {
    match value {
        BlockValue::Text(text) => Value::String(text.clone()),
        BlockValue::List(items) => Value::Array(items.iter().map(to_json).collect()),
        BlockValue::Map(entries) => {
            let members = entries.iter().map(|(key, value)| (key.clone(), to_json(value)));
            Value::Object(members.collect())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state_block::{ParsedStateBlock, StateRules, parse_closed};

    fn rules() -> StateRules {
        let actions = json!([
            {"name": "open_gate", "description": "Opens a gate.", "arguments": {"type": "object", "properties": {
                "gateName": {"type": "string"}, "count": {"type": "integer"}}}},
            {"name": "wave", "description": "Waves."},
        ]);
        StateRules {
            actions: serde_json::from_value(actions).unwrap(),
            ..StateRules::default()
        }
    }

    fn asked(parsed: &ParsedStateBlock) -> Vec<Value> {
        let shown = |action: &RequestedAction| json!([action.name, action.arguments]);
        parsed.actions.iter().map(shown).collect()
    }

    #[test]
    fn actions_are_read_in_every_notation() {
        let gate = json!(["open_gate", {"gateName": "North Gate", "count": 2}]);
        for block in [
            r#"{"actions": [{"name": "open_gate", "arguments": {"gateName": "North Gate", "count": 2}}]}"#,
            r#"{"actions": {"name": "Open Gate", "args": {"gateName": "North Gate", "count": "2"}}}"#,
            "actions: [{name: open_gate, arguments: {gatename: North Gate, count: 2}}]",
            "mood: calm\nactions:\n- name: open_gate\n  arguments: {gate_name: \"North Gate\", count: 2}",
            r#"{"actions": [{"name": "open_gate", "arguments": {"gateName": "North Gate", "count": 2,}},]}"#,
        ] {
            let parsed = parse_closed(block, "Rosa", &rules()).unwrap();
            assert_eq!(
                asked(&parsed),
                std::slice::from_ref(&gate),
                "{block}: {:?}",
                parsed.rejected
            );
        }
        for block in [
            r#"{"actions": ["wave"]}"#,
            "action: wave",
            r#"{"actions":[{"action":"wave","arguments":null}]}"#,
        ] {
            let parsed = parse_closed(block, "Rosa", &rules()).unwrap();
            assert_eq!(asked(&parsed), [json!(["wave", {}])], "{block}");
        }
        for block in [r#"{"actions": []}"#, "actions: none"] {
            let parsed = parse_closed(block, "Rosa", &rules()).unwrap();
            assert!(parsed.actions.is_empty() && parsed.rejected.is_empty(), "{block}");
        }
    }

    #[test]
    fn unknown_misshapen_long_and_surplus_actions_are_refused() {
        let long = "x".repeat(MAX_ARGUMENT_BYTES);
        for (entries, kept, why) in [
            (json!([{"name": "explode"}]), 0, "not allowed here and now"),
            (json!([{"arguments": {}}]), 0, "must have a name"),
            (json!([{"name": "wave", "arguments": [1]}]), 0, "must be an object"),
            (json!([{"name": "wave", "arguments": {"x": long}}]), 0, "longer than"),
            (json!(["wave", "wave", "wave", "wave"]), 3, "at most 3 actions"),
        ] {
            let block = json!({"actions": entries}).to_string();
            let parsed = parse_closed(&block, "Rosa", &rules()).unwrap();
            assert_eq!(parsed.actions.len(), kept, "{block}");
            assert!(
                parsed.rejected.iter().any(|reason| reason.contains(why)),
                "{:?}",
                parsed.rejected
            );
        }
    }
}
