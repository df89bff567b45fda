//! Actions: the scripted model asks for an action if the player's line has all words of the action's name. If a line asks
//! for the outcome of an action, the model tells the outcome.

use serde_json::{Map, Value, json};

use super::prompt_view::ReplyView;
use colloquy_memory::authored::Language;

regex!(
    OFFERED,
    r"^(?P<name>[a-z0-9_]+): .*?(?: (?:Arguments|인자): (?P<arguments>.+))?$"
);

regex!(
    OUTCOME,
    r"(?x) Your\ action\ (?P<name>\S+)(?:\ \(.*\))?
      \ (?P<status>was\ done|was\ refused|still\ waits|got\ no\ answer)[^:]*(?::\ (?P<text>.+))?$"
);
regex!(
    OUTCOME_KO,
    r"(?x) 당신의\ 행동\ (?P<name>\S+?)(?:\ \(.*\))?
      :\ (?P<status>이루어졌다|거절되었다|아직\ 답을|제때\ 답이)[^:]*(?::\ (?P<text>.+))?$"
);
regex!(
    ASKS_OUTCOME,
    r"(?xi) ^(?:so\ |and\ |well\ )?(?:did|has|have|was|is)\ (?:it|that|this|they|he|she|anything)\ (?:all\ )?
      (?:work(?:ed)?(?:\ out)?|happen(?:ed)?|succeed(?:ed)?|done|come\ of\ it|go\ through|gone\ through)\b
      | \bwhat\ (?:became|came|has\ become|has\ come)\ of\ (?:it|that|this)\b
      | \bhow\ did\ (?:it|that)\ go\b"
);
regex!(
    ASKS_OUTCOME_KO,
    r"(?x) (?:^|\s)(?:잘\ |다\ )?(?:됐|되었|성공했|이루어졌|해냈)(?:나|니|어|어요|습니까|나요|는가|을까)?\s*\?
      | (?:그건|그거|그\ 일은|일은)\ 어떻게\ (?:됐|되었)"
);

/// What became of an action.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KnownOutcome {
    /// The occasion of the phrase that says so.
    pub occasion: &'static str,
    /// The backend's text, if any.
    pub text: Option<String>,
}

/// Returns what became of the action for which the line asks: the action that the line names, or the latest.
pub(super) fn find_outcome(view: &ReplyView) -> Option<KnownOutcome> {
    let asks_outcome = match view.language {
        Language::En => ASKS_OUTCOME.is_match(view.line.trim()),
        Language::Ko => ASKS_OUTCOME_KO.is_match(view.line.trim()),
    };
    if !asks_outcome {
        return None;
    }
    let line = view.line.to_lowercase();
    let outcomes = || {
        let read_outcome = |item: &String| {
            OUTCOME
                .captures(item)
                .or_else(|| OUTCOME_KO.captures(item))
                .map(|captures| {
                    let occasion = match &captures["status"] {
                        "was done" | "이루어졌다" => "outcome_done",
                        "was refused" | "거절되었다" => "outcome_refused",
                        "still waits" | "아직 답을" => "outcome_waiting",
                        _ => "outcome_expired",
                    };
                    let text = captures.name("text").map(|text| text.as_str().trim().to_owned());
                    (captures["name"].replace('_', " "), KnownOutcome { occasion, text })
                })
        };
        view.outcomes.iter().filter_map(read_outcome)
    };
    let named_outcome = outcomes().find(|(name, _)| line.contains(name.as_str()));
    named_outcome.or_else(|| outcomes().next()).map(|(_, outcome)| outcome)
}

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
        let is_in_line = |value: &&&str| words.contains(&value.to_lowercase().as_str());
        let chosen = values.iter().find(is_in_line).or_else(|| values.first())?;
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
    fn question_for_an_outcome_is_answered_from_the_prompt() {
        let outcomes = [
            "Your action ring_bell still waits for its answer, so do not ask for it again",
            "Your action open_gate (gate: north) was done: The gate stands open.",
            "Your action wave was refused",
            "당신의 행동 open_gate (gate: north): 거절되었다: 빗장이 무겁다.",
            "Your action lend got no answer in time, so it did not happen",
        ];
        let told = |line: &str, language, from: usize| {
            let view = ReplyView {
                line: line.to_owned(),
                language,
                outcomes: outcomes[from..].iter().map(|item| (*item).to_owned()).collect(),
                ..ReplyView::default()
            };
            find_outcome(&view).map(|outcome| (outcome.occasion, outcome.text))
        };
        let done = Some(("outcome_done", Some("The gate stands open.".to_owned())));
        for (line, language, from, expected) in [
            ("Did it work?", Language::En, 1, done.clone()),
            ("Did it work?", Language::En, 0, Some(("outcome_waiting", None))),
            ("What became of it, open gate or not?", Language::En, 0, done.clone()),
            ("Has it happened?", Language::En, 2, Some(("outcome_refused", None))),
            ("How did it go?", Language::En, 4, Some(("outcome_expired", None))),
            (
                "잘 됐나?",
                Language::Ko,
                3,
                Some(("outcome_refused", Some("빗장이 무겁다.".to_owned()))),
            ),
            ("What fruit do I like?", Language::En, 0, None),
            ("Did it rain?", Language::En, 0, None),
            ("날씨가 어떤가?", Language::Ko, 3, None),
        ] {
            assert_eq!(told(line, language, from), expected, "{line}");
        }
        assert_eq!(
            find_outcome(&ReplyView {
                line: "Did it work?".to_owned(),
                ..ReplyView::default()
            }),
            None
        );
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
