//! Actions: the scripted model asks for an action if the player's line has all words of the action's name.

use serde_json::{Map, Value, json};

use super::prompt_view::ReplyView;

regex!(
    OFFERED,
    r"^(?:You may ask for the action|요청할 수 있는 행동) (?P<name>[a-z0-9_]+): .*?(?: (?:Arguments|인자): (?P<schema>\{.*\}))?$"
);

/// Returns the first action of the prompt that the line names, with arguments from the line.
pub(super) fn find_named_action(view: &ReplyView) -> Option<Value> {
    let line = view.line.to_lowercase();
    let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric()).collect();
    view.actions.iter().find_map(|item| {
        let offered = OFFERED.captures(item)?;
        let name = &offered["name"];
        let parts = || name.split('_').filter(|part| !part.is_empty());
        let is_named = parts().next().is_some() && parts().all(|part| words.contains(&part));
        if !is_named {
            return None;
        }
        let schema: Option<Value> = match offered.name("schema") {
            Some(schema) => Some(serde_json::from_str(schema.as_str()).ok()?),
            None => None,
        };
        let arguments = schema.map_or_else(|| Some(Map::new()), |schema| choose_arguments(&schema, &words))?;
        Some(json!({ "name": name, "arguments": arguments }))
    })
}

/// Chooses a listed value for each required argument: the value that the line has, or the first. `None`: an argument has no
/// list.
fn choose_arguments(schema: &Value, words: &[&str]) -> Option<Map<String, Value>> {
    let required = schema["required"].as_array().into_iter().flatten();
    let mut arguments = Map::new();
    for name in required.filter_map(Value::as_str) {
        let values = schema["properties"][name]["enum"].as_array()?;
        let said = |value: &&Value| {
            value
                .as_str()
                .is_some_and(|text| words.contains(&text.to_lowercase().as_str()))
        };
        let chosen = values.iter().find(said).or_else(|| values.first())?;
        arguments.insert(name.to_owned(), chosen.clone());
    }
    Some(arguments)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Option<Value> {
        let gate =
            json!({"type": "object", "properties": {"gate": {"enum": ["south", "north"]}}, "required": ["gate"]});
        let free = json!({"type": "object", "required": ["text"]});
        let view = ReplyView {
            line: line.to_owned(),
            actions: vec![
                format!("You may ask for the action open_gate: Opens a gate: any. Arguments: {gate}"),
                "요청할 수 있는 행동 wave: Waves.".to_owned(),
                format!("You may ask for the action speak: Says it. Arguments: {free}"),
            ],
            ..ReplyView::default()
        };
        find_named_action(&view)
    }

    #[test]
    fn line_names_an_action_of_the_prompt() {
        for (line, action) in [
            (
                "Open the north gate, please.",
                Some(json!({"name": "open_gate", "arguments": {"gate": "north"}})),
            ),
            (
                "Open a gate!",
                Some(json!({"name": "open_gate", "arguments": {"gate": "south"}})),
            ),
            ("Wave to me.", Some(json!({"name": "wave", "arguments": {}}))),
            ("Speak!", None),
            ("Is the gate closed?", None),
            ("", None),
        ] {
            assert_eq!(asked(line), action, "{line}");
        }
    }
}
