//! Actions in a prompt: those for which the NPC may ask, and what became of those for which it asked.

use std::sync::Arc;

use minijinja::{Value, context};

use super::{
    action_parameters::describe_arguments,
    ages::AgeFormatter,
    assembly::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS, PromptMaterial},
    content_hash::ContentHash,
    templates::{Template, TemplateError, Templates},
    untrusted::escape_untrusted,
};
use chrono::{DateTime, Utc};
use colloquy_core::ids::DialogueId;
use colloquy_memory::{actions::ActionRule, authored::Language, game_clock::GameClock};
use colloquy_ports::ledger::actions::{Action, ActionStatus};

/// The maximum length of all lines about possible actions, in characters: a schema alone may have 2,000 bytes.
const MAX_OFFER_CHARS: usize = 3_000;
/// The maximum length of all lines about settled actions, in characters.
const MAX_OUTCOMES_CHARS: usize = 1_200;
/// The maximum length of both.
pub(super) const MAX_ACTION_CHARS: usize = MAX_OFFER_CHARS + MAX_OUTCOMES_CHARS;
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
        asked: &[Action],
        (now, clock): (DateTime<Utc>, Option<GameClock<'_>>),
    ) -> Result<Self, TemplateError> {
        let ages = AgeFormatter { language, now, clock };
        let line = |values| {
            let text = templates.render(language, Template::ReplyActions, values)?;
            Ok(text.trim().into())
        };
        let offers = offered.iter().map(|rule| templates.render_offer(language, rule));
        let outcomes = asked.iter().map(|action| {
            let asked = &action.request;
            let status = action.status(now);
            let at = match &action.answer {
                Some(answer) => answer.answered_at,
                None if status == ActionStatus::Requested => asked.requested_at,
                None => asked.expires_at,
            };
            let line = line(context! {
                name => asked.name.as_str(), description => (),
                arguments => (!asked.arguments.is_empty())
                    .then(|| clip_arguments(&describe_arguments(&asked.arguments))),
                parameters => (),
                status => status.as_str(),
                ago => ages.describe_age_in_days(templates, at)?,
                text => action.answer.as_ref().map(|answer| escape_untrusted(&answer.text)),
            })?;
            let dialogue = asked.dialogue;
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

/// A line that fits: its position among all, its text, and its tokens.
type ShownLine = (usize, Arc<str>, u32);

/// The lines that fit. An outcome never takes the place of an offer.
#[derive(Default)]
pub(super) struct ShownActions {
    offers: Vec<ShownLine>,
    outcomes: Vec<ShownLine>,
    dropped: usize,
}

impl ShownActions {
    /// Selects the lines that fit, and takes their tokens from `left`. An outcome says which hearers do not know of it.
    pub(super) fn select_fitting(
        templates: &Templates,
        material: &PromptMaterial<'_>,
        left: &mut u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<Self, TemplateError> {
        let lines = material.action_lines;
        let remarked = lines.outcomes.iter().map(|outcome| {
            let remark = material.remark_for_dialogue(outcome.dialogue);
            let text = remark.add_to(templates, material, outcome.line.to_string())?;
            Ok(text.into())
        });
        let remarked = remarked.collect::<Result<Vec<Arc<str>>, TemplateError>>()?;
        Ok(Self::fit_lines(&lines.offers, &remarked, left, count))
    }

    fn fit_lines(offers: &[Arc<str>], outcomes: &[Arc<str>], left: &mut u32, count: &dyn Fn(&str) -> u32) -> Self {
        let mut fit = |lines: &[Arc<str>], mut chars: usize| {
            let mut fitting = Vec::new();
            for (at, line) in lines.iter().enumerate() {
                let (length, tokens) = (line.chars().count(), count(line) + ITEM_TOKENS);
                if length <= chars && tokens <= *left {
                    chars -= length;
                    *left -= tokens;
                    fitting.push((at, line.clone(), tokens));
                }
            }
            fitting
        };
        let fitting_offers = fit(offers, MAX_OFFER_CHARS);
        let fitting_outcomes = fit(outcomes, MAX_OUTCOMES_CHARS);
        Self {
            dropped: offers.len() + outcomes.len() - fitting_offers.len() - fitting_outcomes.len(),
            offers: fitting_offers,
            outcomes: fitting_outcomes,
        }
    }

    /// Drops the last outcome, and then the last offer. Returns `false` if there is none.
    pub(super) fn drop_last(&mut self) -> bool {
        let dropped = self.outcomes.pop().or_else(|| self.offers.pop()).is_some();
        self.dropped += usize::from(dropped);
        dropped
    }
    /// Returns the tokens of the lines, with headings.
    pub(super) fn tokens(&self) -> u32 {
        let list = |lines: &[ShownLine]| {
            let all: u32 = lines.iter().map(|line| line.2).sum();
            all + if lines.is_empty() {
                0
            } else {
                HEADING_TOKENS + FRAME_TOKENS
            }
        };
        list(&self.offers) + list(&self.outcomes)
    }
    pub(super) const fn dropped_count(&self) -> usize {
        self.dropped
    }
    pub(super) fn add_content(&self, hash: &mut ContentHash) {
        for lines in [&self.offers, &self.outcomes] {
            hash.add_number(u32::from(lines.is_empty()));
            for (_, line, _) in lines {
                hash.add_text(line);
            }
        }
    }
    pub(super) fn template_values(&self) -> Value {
        let texts = |lines: &[ShownLine]| lines.iter().map(|line| Value::from(&*line.1)).collect::<Vec<_>>();
        context! { offers => texts(&self.offers), outcomes => texts(&self.outcomes) }
    }
    /// Returns the positions of the shown offers, and of the shown outcomes.
    pub(super) fn shown(&self) -> (Vec<usize>, Vec<usize>) {
        let places = |lines: &[ShownLine]| lines.iter().map(|line| line.0).collect();
        (places(&self.offers), places(&self.outcomes))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::TimeDelta;
    use serde_json::json;

    use super::*;
    use colloquy_core::ids::{ActionId, DialogueKind, TurnId};
    use colloquy_ports::ledger::actions::NewAction;

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
            let lines = ActionLines::render(&templates, language, &[], asked, (now, None)).unwrap();
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
            let lines = ActionLines::render(&templates, language, &rules, &[], (DateTime::UNIX_EPOCH, None)).unwrap();
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

    #[test]
    fn chosen_arguments_are_words_and_no_json() {
        let chosen = json!({"room": "west", "count": 2, "loud": true});
        assert_eq!(
            describe_arguments(chosen.as_object().unwrap()),
            "count: 2; loud: true; room: west"
        );
        let listed = json!({"rooms": ["west"]});
        assert_eq!(describe_arguments(listed.as_object().unwrap()), r#"{"rooms":("west")}"#);
    }

    #[test]
    fn outcomes_never_take_the_place_of_offers() {
        let long = |sign: &str, count| vec![Arc::from(sign.repeat(500)); count];
        let offers = long("o", 7);
        let outcomes = long("x", 4);
        let count = |text: &str| u32::try_from(text.len()).unwrap();
        let mut left = 100_000;
        let mut shown = ShownActions::fit_lines(&offers, &outcomes, &mut left, &count);
        assert_eq!(shown.shown(), ((0..6).collect(), vec![0, 1]));
        assert_eq!(shown.dropped_count(), 3);
        for _ in 0..2 {
            assert!(shown.drop_last());
        }
        assert_eq!(shown.shown(), ((0..6).collect(), vec![]));
        let mut left = 1_100;
        let shown = ShownActions::fit_lines(&offers, &outcomes, &mut left, &count);
        assert_eq!(shown.shown(), (vec![0, 1], vec![]));
    }
}
