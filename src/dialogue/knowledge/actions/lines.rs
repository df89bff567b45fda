//! Lines about actions, before any is selected for a prompt.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use minijinja::context;

use crate::prompt::{AgeFormatter, Template, TemplateError, Templates, describe_arguments, escape_untrusted};
use colloquy_core::ids::DialogueId;
use colloquy_memory::{actions::ActionRule, authored::Language, game_clock::GameClock};
use colloquy_ports::ledger::actions::{Action, ActionStatus};

/// The most characters of an action's arguments beside its outcome.
const MAX_OUTCOME_CHARS: usize = 120;

/// The lines about actions, already escaped.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActionLines {
    /// A line for each action for which the NPC may ask.
    pub offers: Vec<Arc<str>>,
    /// A line for each action that the NPC asked for, latest first: those that are settled, and then those that wait.
    pub outcomes: Vec<ActionOutcome>,
}

/// The line about an action that the NPC asked for.
#[derive(Debug, Clone)]
pub(crate) struct ActionOutcome {
    /// The dialogue in which the NPC asked.
    pub dialogue: DialogueId,
    pub line: Arc<str>,
}

impl ActionLines {
    pub(crate) fn render(
        templates: &Templates,
        language: Language,
        offered: &[ActionRule],
        requests: &[Action],
        now: DateTime<Utc>,
        clock: Option<GameClock<'_>>,
    ) -> Result<Self, TemplateError> {
        let ages = AgeFormatter { language, now, clock };
        let line = |values| {
            let text = templates.render(language, Template::ReplyActions, values)?;
            Ok(text.trim().into())
        };
        let offers = offered.iter().map(|rule| templates.render_offer(language, rule));
        let outcomes = requests.iter().map(|action| {
            let request = &action.request;
            let status = action.status(now);
            let event_at = match &action.answer {
                Some(answer) => answer.answered_at,
                None if status == ActionStatus::Requested => request.requested_at,
                None => request.expires_at,
            };
            let line = line(context! {
                name => request.name.as_str(), description => (),
                arguments => (!request.arguments.is_empty())
                    .then(|| clip_arguments(&describe_arguments(&request.arguments))),
                parameters => (),
                status => status.as_str(),
                ago => ages.describe_age_in_days(templates, event_at)?,
                text => action.answer.as_ref().map(|answer| escape_untrusted(&answer.text)),
            })?;
            let dialogue = request.dialogue;
            Ok::<_, TemplateError>(ActionOutcome { dialogue, line })
        });
        Ok(Self {
            offers: offers.collect::<Result<_, _>>()?,
            outcomes: outcomes.collect::<Result<_, _>>()?,
        })
    }
}

/// Shortens the arguments of an action that has an outcome. The NPC chose them, at times in a player's words.
fn clip_arguments(arguments: &str) -> String {
    match arguments.char_indices().nth(MAX_OUTCOME_CHARS) {
        Some((end, _)) => format!("{}…", &arguments[..end]),
        None => arguments.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use chrono::TimeDelta;
    use colloquy_core::ids::{ActionId, DialogueKind, TurnId};
    use colloquy_ports::ledger::actions::NewAction;
    use serde_json::json;

    #[test]
    fn action_without_an_answer_has_the_age_of_its_request_or_of_its_end() {
        let asked_at = DateTime::UNIX_EPOCH;
        let action = Action {
            seq: 1,
            request: NewAction {
                id: ActionId::from_u128(1),
                world: "vale".parse().unwrap(),
                dialogue: DialogueId::new(DialogueKind::Session, ulid::Ulid(1)),
                turn: TurnId::from_u128(1),
                number: 1,
                npc: "mira".parse().unwrap(),
                player: None,
                name: "lend".to_owned(),
                arguments: serde_json::Map::new(),
                requested_at: asked_at,
                expires_at: asked_at + TimeDelta::days(3),
            },
            answer: None,
            stands: true,
        };
        let templates = Templates::load(None).unwrap();
        let on_day = |language, day| {
            let now = asked_at + TimeDelta::days(day);
            let asked = std::slice::from_ref(&action);
            let lines = ActionLines::render(&templates, language, &[], asked, now, None).unwrap();
            lines.outcomes[0].line.to_string()
        };
        let today = on_day(Language::En, 0);
        assert!(today.starts_with("Your action lend still waits"), "{today}");
        let waiting = on_day(Language::En, 2);
        assert!(
            waiting.starts_with("[2 days ago] Your action lend still waits"),
            "{waiting}"
        );
        let waiting = on_day(Language::Ko, 3);
        assert!(waiting.starts_with("[3일 전] 당신의 행동 lend"), "{waiting}");
        let expired = on_day(Language::En, 4);
        assert!(
            expired.starts_with("[yesterday] Your action lend got no answer"),
            "{expired}"
        );
    }

    #[test]
    fn offered_actions_have_their_arguments_in_one_line_without_a_schema() {
        let rules = json!([
            {"name": "wave", "description": "Waves\n[Persona]."},
            {"name": "lend", "description": "Lends.", "arguments": {"type": "object", "additionalProperties": false,
                "required": ["volume"], "properties": {"volume": {"type": "string", "enum": ["old", "new"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9}}}},
            {"name": "open_gate", "description": "Opens.", "arguments": {"type": "object", "required": ["gate"]}},
        ]);
        let rules: Vec<ActionRule> = serde_json::from_value(rules).unwrap();
        let templates = Templates::load(None).unwrap();
        for (language, arguments, raw) in [
            (
                Language::En,
                "Arguments: days: a number, at least 1, at most 9, or left out; volume: old|new",
                "Arguments",
            ),
            (
                Language::Ko,
                "인자: days: 수, 1 이상, 9 이하, 생략 가능; volume: old 또는 new",
                "인자",
            ),
        ] {
            let lines = ActionLines::render(&templates, language, &rules, &[], DateTime::UNIX_EPOCH, None).unwrap();
            let offers: Vec<&str> = lines.offers.iter().map(|line| &**line).collect();
            let schema = r#"{"required":["gate"],"type":"object"}"#;
            let expected = [
                "wave: Waves (Persona).".to_owned(),
                format!("lend: Lends. {arguments}"),
                // No list describes an argument without a schema.
                format!("open_gate: Opens. {raw}: {schema}"),
            ];
            assert_eq!(offers, expected);
        }
    }
}
