//! The rules for the actions of a world.

use super::text::one_line_label;
use colloquy_dialogue::knowledge::actions::find_schema_fault;
use colloquy_memory::{
    actions::{ActionRule, MAX_ACTION_NAME_CHARS, MAX_ACTIONS, MAX_ACTORS, MAX_DESCRIPTION_CHARS, MAX_EXPIRES_S},
    condition::{Condition, MAX_CONDITIONS},
};

/// For `#[garde(custom(action_rules))]`: actions that NPCs can ask for.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
pub fn action_rules(rules: &Option<Vec<ActionRule>>, (): &()) -> garde::Result {
    let Some(rules) = rules else { return Ok(()) };
    if rules.len() > MAX_ACTIONS {
        return Err(garde::Error::new(format!("length is greater than {MAX_ACTIONS}")));
    }
    for (index, rule) in rules.iter().enumerate() {
        let name = &rule.name;
        let fault = find_fault(rule).or_else(|| {
            let is_duplicate = rules[..index].iter().any(|earlier| earlier.name == *name);
            is_duplicate.then(|| "is there twice".to_owned())
        });
        if let Some(fault) = fault {
            return Err(garde::Error::new(format!("`{name}` {fault}")));
        }
    }
    Ok(())
}

fn find_fault(rule: &ActionRule) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if rule.name.is_empty() || rule.name.len() > MAX_ACTION_NAME_CHARS || !rule.name.chars().all(plain) {
        let rule = "is no name of an action: 1 to 32 lower-case ASCII letters, digits and `_`";
        return Some(rule.to_owned());
    }
    if !(1..=MAX_DESCRIPTION_CHARS).contains(&rule.description.trim().chars().count()) {
        return Some(format!(
            "needs a `description` of 1 to {MAX_DESCRIPTION_CHARS} characters"
        ));
    }
    if let Err(error) = one_line_label(&rule.description, &()) {
        return Some(format!("has a `description` that {error}"));
    }
    if rule.npcs.len() > MAX_ACTORS || rule.factions.len() > MAX_ACTORS {
        return Some(format!("has more than {MAX_ACTORS} `npcs` or `factions`"));
    }
    if rule.when.len() > MAX_CONDITIONS {
        return Some(format!("has more than {MAX_CONDITIONS} conditions"));
    }
    if let Some(fault) = rule.when.iter().find_map(Condition::find_fault) {
        return Some(format!("has a faulty condition: {fault}"));
    }
    if !(1..=MAX_EXPIRES_S).contains(&rule.expires_s) {
        return Some(format!("has an `expires_s` that is not 1 to {MAX_EXPIRES_S}"));
    }
    find_schema_fault(&rule.arguments).map(|fault| format!("has `arguments` whose schema {fault}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fault(rules: Value) -> String {
        let rules: Vec<ActionRule> = serde_json::from_value(rules).unwrap();
        action_rules(&Some(rules), &())
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn faulty_actions_are_named() {
        let gate = json!({"name": "open_gate", "description": "Opens a gate.", "expires_s": 30, "npcs": ["rosa"],
            "when": [{"item": "key", "of": "npc"}],
            "arguments": {"type": "object", "properties": {"gate": {"type": "string"}}}});
        assert_eq!(fault(json!([gate])), "");
        let with = |key: &str, value: Value| {
            let mut changed = gate.clone();
            changed[key] = value;
            json!([changed])
        };
        for (rules, expected) in [
            (with("name", json!("Open gate")), "is no name of an action"),
            (with("name", json!("")), "is no name of an action"),
            (with("description", json!(" ")), "needs a `description`"),
            (with("description", json!("One.\nTwo.")), "`description` that"),
            (with("expires_s", json!(0)), "expires_s"),
            (with("expires_s", json!(86_401)), "expires_s"),
            (with("when", json!([{"hp_at_most": 101}])), "faulty condition"),
            (with("arguments", json!({"type": "array"})), "type `object`"),
            (json!([gate, gate]), "is there twice"),
        ] {
            let message = fault(rules);
            assert!(message.contains(expected), "{expected}: {message}");
        }
        let many: Vec<Value> = (0..=MAX_ACTIONS)
            .map(|n| with("name", json!(format!("a{n}")))[0].clone())
            .collect();
        assert!(fault(json!(many)).contains("greater than"));
    }
}
