//! Actions of NPCs: which may be asked for in a turn, the schemas of their arguments, and the backend's answers.

mod lines;
mod section;

use std::collections::BTreeSet;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use self::lines::ActionLines;
#[cfg(test)]
pub(crate) use self::lines::ActionOutcome;
use crate::{
    Services,
    disclosure::{Disclosable, own_actions},
    prompt::TemplateError,
    turn::TurnInput,
};
use chrono::{DateTime, TimeDelta, Utc};
use colloquy_core::{ids::ActionId, scope::TenantScope};
use colloquy_memory::{
    actions::{ActionRule, MAX_SCHEMA_BYTES, RequestedAction, eligible_actions, no_arguments},
    authored::Language,
    fact::Cause,
    game_clock::GameClock,
    keywords,
    state::{StateChange, WorldState},
    trace::{ActionsTrace, OutcomeTrace},
    turn::Turn,
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        actions::{Action, ActionAnswer, ActionStatus, AnswerKind, AnswerOutcome, NewAction},
        audit::Edit,
        state::NewStateChange,
    },
};

/// Most bytes of a compiled pattern of a schema. Patterns run in linear time.
const MAX_PATTERN_BYTES: usize = 1 << 16;
/// Longest reason of a refusal, in Unicode scalar values.
const MAX_REASON_CHARS: usize = 200;
/// Keywords that name other schemas, or schemas by other names than an entry of `$defs`; and keywords that validate their
/// neighbours once more, so that nested ones take exponential time.
const REFUSED_KEYWORDS: [&str; 9] = [
    "unevaluatedProperties",
    "unevaluatedItems",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "$vocabulary",
];

/// Returns what is wrong with the schema of an action's arguments, if something is.
#[must_use]
pub fn find_schema_fault(schema: &Value) -> Option<String> {
    if serde_json::to_string(schema).is_ok_and(|json| json.len() > MAX_SCHEMA_BYTES) {
        return Some(format!("is longer than {MAX_SCHEMA_BYTES} bytes"));
    }
    if schema.get("type") != Some(&Value::String("object".to_owned())) {
        return Some("must be a JSON Schema with the type `object`".to_owned());
    }
    find_reference_fault(schema, false).or_else(|| {
        let error = compile_schema(schema).err()?;
        Some(format!("is no valid JSON Schema: {}", clip_reason(&error)))
    })
}

/// A `$ref` names an entry of `$defs`, and no entry has a `$ref`: validation then ends, and takes no longer than the
/// schema and the arguments are long.
fn find_reference_fault(schema: &Value, in_definition: bool) -> Option<String> {
    match schema {
        Value::Object(members) => members.iter().find_map(|(key, value)| {
            if REFUSED_KEYWORDS.contains(&key.as_str()) {
                return Some(format!("may not have `{key}`"));
            }
            if key == "$ref" {
                let entry = value.as_str().and_then(|target| target.strip_prefix("#/$defs/"));
                if in_definition || entry.is_none_or(|entry| entry.contains('/')) {
                    let rule = "a `$ref` may only name an entry of `$defs`, and an entry has no `$ref`";
                    return Some(rule.to_owned());
                }
            }
            let in_definition = in_definition || matches!(key.as_str(), "$defs" | "definitions");
            find_reference_fault(value, in_definition)
        }),
        Value::Array(items) => items.iter().find_map(|item| find_reference_fault(item, in_definition)),
        _ => None,
    }
}

fn compile_schema(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES);
    let options = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(patterns);
    options.build(schema).map_err(|error| error.to_string())
}

/// Returns why the arguments do not fit the rule, if they do not. The reason has no text of the arguments.
fn find_argument_fault(rule: &ActionRule, request: &RequestedAction) -> Option<String> {
    let validator = match compile_schema(&rule.arguments) {
        Ok(validator) => validator,
        Err(error) => return Some(error),
    };
    let arguments = Value::Object(request.arguments.clone());
    let error = validator.validate(&arguments).err()?;
    Some(match error.instance_path().as_str() {
        "" => error.masked().to_string(),
        path => format!("{path}: {}", error.masked()),
    })
}

fn clip_reason(reason: &str) -> String {
    reason.chars().take(MAX_REASON_CHARS).collect()
}

/// Returns the names of actions that rest: they were done for this NPC with this player, and are not repeatable.
async fn load_resting_actions(services: &Services, input: &TurnInput) -> StoreResult<BTreeSet<String>> {
    let may_rest = |rule: &&ActionRule| !rule.repeatable && rule.is_for(&input.npc);
    let rules = input.world.settings.action_rules().iter().filter(may_rest);
    let names: Vec<&str> = rules.map(|rule| rule.name.as_str()).collect();
    if names.is_empty() || !services.settings.prompt.ask_for_state {
        return Ok(BTreeSet::new());
    }
    let actions = &services.ledger.actions;
    let world = &input.world.id;
    let npc = &input.npc.id;
    let player = input.player.as_ref();
    let until = input.started_at;
    let done_names = actions.list_done_action_names(&input.scope, world, npc, player, &names, until);
    done_names.await
}

/// Returns the actions that the NPC may ask for in this turn, those that rest among them.
pub(crate) fn actions_of_turn(services: &Services, input: &TurnInput, state: &WorldState) -> Vec<ActionRule> {
    if !services.settings.prompt.ask_for_state {
        return Vec::new();
    }
    eligible_actions(&input.condition_context(state)).cloned().collect()
}

/// The actions of a turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct TurnActions {
    /// The actions for which the NPC may ask.
    eligible: Vec<ActionRule>,
    /// The actions that the NPC asked for.
    requests: Vec<AskedAction>,
    /// The lines about these, in the same order.
    pub lines: Disclosable<ActionLines>,
}

/// An action that the NPC asked for earlier.
#[derive(Debug, Clone)]
struct AskedAction {
    id: ActionId,
    name: String,
    status: ActionStatus,
}

impl TurnActions {
    pub(crate) fn new(
        services: &Services,
        input: &TurnInput,
        state: &WorldState,
        requests: Vec<Action>,
        resting: &BTreeSet<String>,
    ) -> Result<Self, TemplateError> {
        let mut eligible = actions_of_turn(services, input, state);
        eligible.retain(|rule| !resting.contains(&rule.name) && !is_waiting(rule, &requests, input.started_at));
        Self::with_rules(services, input, state, eligible, requests)
    }

    /// Renders the lines about these rules and actions.
    fn with_rules(
        services: &Services,
        input: &TurnInput,
        state: &WorldState,
        eligible: Vec<ActionRule>,
        requests: Vec<Action>,
    ) -> Result<Self, TemplateError> {
        let language = input.npc.language;
        let now = input.started_at;
        let clock = GameClock::new(&input.world.settings, state);
        let to_asked_action = |action: &Action| AskedAction {
            id: action.request.id,
            name: action.request.name.clone(),
            status: action.status(now),
        };
        let requests = own_actions(input, requests);
        let render =
            |requests: &Vec<Action>| ActionLines::render(&services.prompts, language, &eligible, requests, now, clock);
        Ok(Self {
            lines: requests.as_ref().try_map(render)?,
            eligible,
            requests: requests.iter().map(to_asked_action).collect(),
        })
    }

    /// Renders the lines about actions again, as a prompt had them. `state` is that of the time; `rows` are the actions of
    /// the trace as they are now.
    pub(crate) fn replay(
        services: &Services,
        input: &TurnInput,
        state: &WorldState,
        traced: &ActionsTrace,
        rows: &[Action],
    ) -> Result<Self, TemplateError> {
        let rules = input.world.settings.action_rules();
        let offered = traced
            .offered
            .iter()
            .filter_map(|name| rules.iter().find(|rule| rule.name == *name));
        let traced_actions = traced.outcomes.iter().filter_map(|outcome| {
            let mut action = rows.iter().find(|row| row.request.id == outcome.action)?.clone();
            // The answer, or the rewind, came later.
            let was_answered = [ActionStatus::Done, ActionStatus::Refused].map(ActionStatus::as_str);
            if !was_answered.contains(&outcome.status.as_str()) {
                action.answer = None;
            }
            action.stands = true;
            Some(action)
        });
        let offered: Vec<ActionRule> = offered.cloned().collect();
        let traced_actions: Vec<Action> = traced_actions.collect();
        Self::with_rules(services, input, state, offered, traced_actions)
    }

    /// Returns the actions that a prompt with this trace offers.
    pub(crate) fn offered(&self, traced: &ActionsTrace) -> Vec<ActionRule> {
        let is_offered = |rule: &&ActionRule| traced.offered.contains(&rule.name);
        self.eligible.iter().filter(is_offered).cloned().collect()
    }
}

/// Returns the settled actions whose outcome a prompt with this trace tells.
pub(crate) fn told_actions(traced: &ActionsTrace) -> impl Iterator<Item = ActionId> + '_ {
    let is_settled = |outcome: &&OutcomeTrace| outcome.status != ActionStatus::Requested.as_str();
    traced.outcomes.iter().filter(is_settled).map(|outcome| outcome.action)
}

/// True if the NPC has asked for an action and has no answer yet. A prompt says so, and does not offer the action. An
/// action with arguments is still offered: the next request may have others.
fn is_waiting(rule: &ActionRule, requests: &[Action], now: DateTime<Utc>) -> bool {
    let has_arguments = || rule.arguments != no_arguments();
    let mut waiting = requests
        .iter()
        .filter(|action| action.status(now) == ActionStatus::Requested);
    waiting.any(|action| action.request.name == rule.name) && !has_arguments()
}

/// Returns the actions of the NPC that wait for an answer, also those of other sessions with the player, and its
/// settled actions that no prompt of the dialogue has told. A line that points back also gets those that the last turn
/// told.
async fn load_outcomes(services: &Services, input: &TurnInput) -> StoreResult<Vec<Action>> {
    let mut rules = input.world.settings.action_rules().iter();
    if !services.settings.prompt.ask_for_state || !rules.any(|rule| rule.is_for(&input.npc)) {
        return Ok(Vec::new());
    }
    let actions = &services.ledger.actions;
    let dialogue = input.dialogue.id;
    let npc = &input.npc.id;
    let player = input.player.as_ref();
    let now = input.started_at;
    let (mut requests, waiting_elsewhere) = tokio::try_join!(
        actions.load_latest_actions(&input.scope, dialogue, npc, now),
        actions.load_actions_waiting_elsewhere(&input.scope, (&input.world.id, dialogue), npc, player, now),
    )?;
    let points_back = keywords::refers_back(&input.heard_text());
    requests.retain(|action| match input.checkpoint.action_told_in(action.request.id) {
        None => true,
        Some(turn) => points_back && turn == input.checkpoint.turn,
    });
    requests.extend(waiting_elsewhere);
    Ok(requests)
}

/// Returns a row for each action whose arguments fit its rule; the reasons of the others go to `notes`.
pub(crate) fn new_actions(
    services: &Services,
    input: &TurnInput,
    turn: &Turn,
    requests: &[RequestedAction],
    notes: &mut Vec<String>,
) -> Vec<NewAction> {
    let rules = input.world.settings.action_rules();
    let mut rows = Vec::with_capacity(requests.len());
    for action in requests {
        let Some(rule) = rules.iter().find(|rule| rule.name == action.name) else {
            continue;
        };
        if let Some(fault) = find_argument_fault(rule, action) {
            let fault = clip_reason(&fault);
            notes.push(format!(
                "state block: the arguments of the action `{}` do not fit: {fault}",
                rule.name
            ));
            continue;
        }
        rows.push(NewAction {
            id: services.ids.next_id(),
            world: input.world.id.clone(),
            dialogue: turn.dialogue,
            turn: turn.id,
            number: turn.number,
            npc: turn.npc.clone(),
            player: turn.player.clone(),
            name: action.name.clone(),
            arguments: action.arguments.clone(),
            requested_at: turn.committed_at,
            expires_at: turn.committed_at + TimeDelta::seconds(i64::from(rule.expires_s)),
        });
    }
    rows
}

/// Stores the backend's answer to an action, and the answer as an event of the world.
///
/// # Errors
/// The store's.
pub async fn answer_action(
    services: &Services,
    scope: &TenantScope,
    action: &Action,
    (kind, text): (AnswerKind, &str),
    edit: &Edit,
) -> StoreResult<AnswerOutcome> {
    let authored = &services.ledger.authored;
    let request = &action.request;
    let world = authored.load_world(scope, &request.world).await?;
    let npc = authored.load_npc(scope, &request.world, &request.npc).await?;
    let name = npc.map_or_else(|| request.npc.to_string(), |npc| npc.name);
    let language = world.map_or(Language::En, |world| world.language);
    let event = NewStateChange {
        id: services.ids.next_id(),
        world: request.world.clone(),
        dialogue: Some(request.dialogue),
        change: StateChange::Happened {
            text: describe_answer(language, &name, &request.name, kind, text),
        },
        cause: Cause::Action(request.id),
        changed_at: edit.made_at,
    };
    let answer = ActionAnswer {
        kind,
        text: text.to_owned(),
        answered_at: edit.made_at,
    };
    let actions = &services.ledger.actions;
    actions.answer_action(scope, request.id, &answer, &event, edit).await
}

/// The answer in one sentence, for the events of the world.
fn describe_answer(language: Language, npc: &str, action: &str, kind: AnswerKind, text: &str) -> String {
    let sentence = match (language, kind) {
        (Language::En, AnswerKind::Done) => format!("The action {action} of {npc} was done"),
        (Language::En, AnswerKind::Refused) => format!("The action {action} of {npc} was refused"),
        (Language::Ko, AnswerKind::Done) => format!("{npc}의 행동 {action}: 이루어짐"),
        (Language::Ko, AnswerKind::Refused) => format!("{npc}의 행동 {action}: 거절됨"),
    };
    if text.is_empty() {
        sentence
    } else {
        format!("{sentence}: {text}")
    }
}

#[cfg(test)]
impl TurnActions {
    /// Returns the actions of a turn that has these outcomes to tell.
    pub(crate) fn with_outcomes(outcomes: Vec<ActionOutcome>) -> Self {
        let request = |index| AskedAction {
            id: ActionId::from_u128(index),
            name: "wave".to_owned(),
            status: ActionStatus::Done,
        };
        Self {
            eligible: Vec::new(),
            requests: (0..).map(request).take(outcomes.len()).collect(),
            lines: Disclosable::sample(ActionLines {
                outcomes,
                ..ActionLines::default()
            }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use colloquy_core::ids::{DialogueId, DialogueKind, TurnId};

    #[test]
    fn schema_is_valid_bounded_and_refers_to_no_other_document() {
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"gate": {"$ref": "#/$defs/gate"}}, "$defs": {"gate": {"enum": ["north"]}}}),
            json!({"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]{1,8}$"}}}),
        ] {
            assert_eq!(find_schema_fault(&schema), None, "{schema}");
        }
        for (schema, fault) in [
            (json!({"type": "string"}), "the type `object`"),
            (json!(true), "the type `object`"),
            (
                json!({"type": "object", "properties": {"a": {"type": "gate"}}}),
                "no valid JSON Schema",
            ),
            (
                json!({"type": "object", "properties": {"a": {"pattern": "("}}}),
                "no valid JSON Schema",
            ),
            (
                json!({"type": "object", "properties": {"a": {"pattern": "((a{999}){999}){9}"}}}),
                "no valid JSON Schema",
            ),
            (
                json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/s"}}}),
                "`$ref` may only",
            ),
            (
                json!({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}),
                "`$ref` may only",
            ),
            (
                json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
                "`$ref` may only",
            ),
            (
                json!({"type": "object", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}),
                "`$ref` may only",
            ),
            (
                json!({"type": "object", "anyOf": [{"unevaluatedProperties": false}]}),
                "may not have `unevaluatedProperties`",
            ),
            (
                json!({"type": "object", "$id": "https://example.com/s"}),
                "may not have `$id`",
            ),
            (
                json!({"type": "object", "title": "x".repeat(MAX_SCHEMA_BYTES)}),
                "longer than",
            ),
        ] {
            let found = find_schema_fault(&schema).unwrap_or_default();
            assert!(found.contains(fault), "{schema}: {found}");
        }
    }

    #[test]
    fn action_waits_until_it_is_answered_or_expires() {
        let asked_at = DateTime::UNIX_EPOCH;
        let rule = |name: &str| -> ActionRule {
            serde_json::from_value(json!({"name": name, "description": "Lends.", "repeatable": true})).unwrap()
        };
        let mut action = Action {
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
                expires_at: asked_at + TimeDelta::seconds(60),
            },
            answer: None,
            stands: true,
        };
        let waits = |action: &Action, name: &str, seconds: i64| {
            let now = asked_at + TimeDelta::seconds(seconds);
            is_waiting(&rule(name), std::slice::from_ref(action), now)
        };
        assert!(waits(&action, "lend", 1));
        assert!(!waits(&action, "wave", 1), "another action");
        assert!(!waits(&action, "lend", 61), "no answer came in time");
        action.answer = Some(ActionAnswer {
            kind: AnswerKind::Refused,
            text: String::new(),
            answered_at: asked_at,
        });
        assert!(!waits(&action, "lend", 1));
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused_without_their_text() {
        let rule: ActionRule = serde_json::from_value(json!({
            "name": "open_gate", "description": "Opens a gate.",
            "arguments": {"type": "object", "properties": {"gate": {"enum": ["north", "south"]}}, "required": ["gate"],
                "additionalProperties": false},
        }))
        .unwrap();
        let fault = |arguments: Value| {
            let asked = RequestedAction {
                name: "open_gate".to_owned(),
                arguments: serde_json::from_value(arguments).unwrap(),
            };
            find_argument_fault(&rule, &asked)
        };
        assert_eq!(fault(json!({"gate": "north"})), None);
        for arguments in [
            json!({}),
            json!({"gate": "a secret"}),
            json!({"gate": "north", "a": "a secret"}),
        ] {
            let found = fault(arguments.clone()).unwrap();
            assert!(!found.contains("a secret"), "{arguments}: {found}");
        }
    }
}
