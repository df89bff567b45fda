//! Actions: the scripted model asks for an action if the player's line has all words of the action's name.

use serde_json::{Map, Value, json};

use super::prompt_view::ReplyView;

regex!(
    OFFERED,
    r"^(?P<name>[a-z0-9_]+): .*?(?: (?:Arguments|인자): (?P<arguments>.+))?$"
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
        let arguments = match offered.name("arguments") {
            Some(arguments) => choose_arguments(arguments.as_str(), &words)?,
            None => Map::new(),
        };
        Some(json!({ "name": name, "arguments": arguments }))
    })
}

/// Chooses a listed value for each argument (`gate: north|south`): the value that the line has, or the first. An
/// argument that may be left out is. `None`: an argument has no list.
fn choose_arguments(listed: &str, words: &[&str]) -> Option<Map<String, Value>> {
    let mut arguments = Map::new();
    for argument in listed.split("; ") {
        let (name, values) = argument.split_once(": ")?;
        if values.ends_with(", or left out") || values.ends_with(", 생략 가능") {
            continue;
        }
        let values: Vec<&str> = values.split('|').flat_map(|value| value.split(" 또는 ")).collect();
        if values.len() < 2 {
            return None;
        }
        let said = |value: &&&str| words.contains(&value.to_lowercase().as_str());
        let chosen = values.iter().find(said).or_else(|| values.first())?;
        let name = name.split_once(['(', ' ']).map_or(name, |(name, _)| name);
        arguments.insert(name.to_owned(), Value::from(*chosen));
    }
    Some(arguments)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Option<Value> {
        let view = ReplyView {
            line: line.to_owned(),
            actions: vec![
                "open_gate: Opens a gate: any. Arguments: gate: south|north; wide: true|false, or left out".to_owned(),
                "wave: Waves.".to_owned(),
                "speak: Says it. Arguments: text: text".to_owned(),
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
