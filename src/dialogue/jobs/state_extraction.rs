//! The fallback for an unreadable state block. A small model reads the NPC's reply, but not the player's line, because
//! a player's text must not change the world.

use minijinja::context;

use super::{
    input::cast_members,
    json_answer::ask_json,
    outcome::{JobError, JobReport},
};
use crate::{
    Services,
    knowledge::scenarios::{self, UnlockTrigger},
    models::tallied_usage,
    prompt::{Template, bind_player, escape_untrusted, state_bounds},
    scene::SceneMember,
    turn::{StateBlockContext, new_state_changes, parse_state_block, state_rules_of},
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    attributes::{AttributeAuthor, AttributeRule, AttributeType},
    authored::Language,
    state_block::{StateBlock, StateRules},
    turn::TurnStatus,
};
use colloquy_ports::{
    buffer::mark_if_interrupted,
    ledger::jobs::{Job, JobInput},
    llm::{JsonSchema, Task},
};

pub(super) async fn extract_state(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    job_input: &JobInput,
) -> Result<JobReport, JobError> {
    let turn = &job_input.turn;
    let npc = &job_input.npc;
    let cast = cast_members(services, scope, job_input).await?;
    let block = ask_for_block(services, scope, job_input, &cast).await?;
    let state = services
        .memory_cache
        .world_state(services, scope, &job_input.world.id)
        .await?;
    let block_context = StateBlockContext {
        dialogue: turn.dialogue,
        now: turn.started_at,
        world: &job_input.world,
        npc,
        player: turn.player.as_ref(),
        cast: &cast,
        // The job does not read the memory.
        player_names: &[],
        state: &state,
        // Only the reply itself asks for actions.
        actions: &[],
    };
    let parsed = parse_state_block(services, scope, &block_context, &block)
        .await?
        .map_err(|error| JobError::Unusable(error.to_string()))?;
    let mut changes = parsed.changes;
    if let Some(player) = &turn.player {
        for change in &mut changes {
            bind_player(change, player);
        }
    }
    let habits = &services.memory_cache.block_habits;
    habits.record_extraction(turn.id, !changes.is_empty());
    let rows = new_state_changes(services, &job_input.world.id, turn, &changes);
    let state = &services.ledger.state;
    if !state
        .commit_changes(scope, &job.fence(), &rows, &tallied_usage())
        .await?
    {
        return Ok(JobReport::default());
    }
    let unlocking = UnlockTrigger::from_job(scope, job_input, &changes);
    let unlocked = match unlocking {
        Some(unlocking) => scenarios::find_newly_unlocked(services, &unlocking).await,
        None => Vec::new(),
    };
    Ok(JobReport {
        state: changes,
        unlocked,
        ..JobReport::default()
    })
}

/// Asks the model for the state block that the reply should have had.
async fn ask_for_block(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    cast: &[SceneMember],
) -> Result<StateBlock, JobError> {
    let turn = &job_input.turn;
    let npc = &job_input.npc;
    let other_members = cast.iter().filter(|member| member.id != npc.id);
    let other_names: Vec<String> = other_members.map(|member| escape_untrusted(&member.name)).collect();
    let values = context! {
        npc_name => npc.name.as_str(),
        others => other_names,
        bounds => state_bounds(&job_input.world, npc.language),
        reply => reply_value(&turn.reply_text, turn.status),
    };
    let prompt = services.prompts.render(npc.language, Template::State, values)?;
    let rules = state_rules_of(&job_input.world.settings);
    let schema = state_schema(&rules, npc.language);
    let (mut answer, _): (serde_json::Map<String, serde_json::Value>, _) =
        ask_json(services, scope, Task::Extraction, prompt, schema).await?;
    // With this schema, null means that a key did not change.
    drop_unchanged(&mut answer);
    Ok(StateBlock {
        text: serde_json::Value::Object(answer).to_string(),
        closed: true,
    })
}

/// Returns the reply for the prompt. As in summaries, a dash at its end tells that it was cut off.
fn reply_value(reply: &str, status: TurnStatus) -> String {
    escape_untrusted(&mark_if_interrupted(reply.to_owned(), status))
}

/// Removes the keys that are null, also in the entries of lists and in their attributes.
fn drop_unchanged(object: &mut serde_json::Map<String, serde_json::Value>) {
    object.retain(|_, value| !value.is_null());
    for value in object.values_mut() {
        let nested: &mut [serde_json::Value] = match value {
            serde_json::Value::Array(items) => items,
            value => std::slice::from_mut(value),
        };
        nested
            .iter_mut()
            .filter_map(serde_json::Value::as_object_mut)
            .for_each(drop_unchanged);
    }
}

/// Returns the schema of a state block. An unchanged key is null.
fn state_schema(rules: &StateRules, language: Language) -> JsonSchema {
    let maybe = |kind: &str| serde_json::json!({ "type": [kind, "null"] });
    let name = || serde_json::json!({ "type": "string", "maxLength": rules.max_name_chars });
    let maybe_name = || serde_json::json!({ "type": ["string", "null"], "maxLength": rules.max_name_chars });
    let list = |element| serde_json::json!({ "type": ["array", "null"], "maxItems": rules.max_list, "items": element });
    let kinds = serde_json::json!({ "type": "string", "enum": rules.vocabulary.kinds_in(language) });
    let mut moods: Vec<Option<&str>> = rules.vocabulary.moods_in(language).into_iter().map(Some).collect();
    moods.push(None);
    let texts = || list(serde_json::json!({ "type": "string", "maxLength": rules.max_text_chars }));
    let relationship = JsonSchema::object(serde_json::json!({
        "from": name(), "to": name(), "type": kinds, "delta": { "type": "integer" },
    }));
    let mut statuses: Vec<Option<&str>> = rules.vocabulary.statuses_in(language).into_iter().map(Some).collect();
    statuses.push(None);
    let names = || list(name());
    let attribute = |rule: &AttributeRule| {
        let schema = match rule.value_type {
            AttributeType::Number => maybe("number"),
            AttributeType::Flag => maybe("boolean"),
            AttributeType::Text => {
                let values = rule.values.iter().map(|value| Some(value.as_str())).chain([None]);
                serde_json::json!({ "type": ["string", "null"], "enum": values.collect::<Vec<_>>() })
            }
        };
        (rule.name.clone(), schema)
    };
    let of_replies = rules
        .attributes
        .iter()
        .filter(|rule| rule.changed_by == AttributeAuthor::Replies);
    let attributes: serde_json::Map<_, _> = of_replies.map(attribute).collect();
    let mut change = serde_json::json!({
        "who": name(), "location": maybe_name(), "hp_change": maybe("integer"),
        "status": { "type": ["string", "null"], "enum": statuses },
        "items_gained": names(), "items_lost": names(),
        "mood": { "type": ["string", "null"], "enum": moods },
    });
    if !attributes.is_empty() {
        change["attributes"] = JsonSchema::object(serde_json::Value::Object(attributes));
    }
    let properties = serde_json::json!({
        "changes": list(JsonSchema::object(change)),
        "location": maybe_name(),
        "location_moved": maybe("boolean"),
        "hp_change": maybe("integer"),
        "items_gained": names(),
        "items_lost": names(),
        "npc_met": names(),
        "npc_separated": names(),
        "relationship_changes": list(relationship),
        "mood": { "type": ["string", "null"], "enum": moods },
        "events": texts(),
        "notes": texts(),
    });
    JsonSchema::for_object("state", properties)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::prompt::Templates;
    use colloquy_memory::state_block;

    /// Checks the rules of a strict endpoint for every object in a schema.
    fn assert_strict(schema: &Value) {
        let object = schema["type"] == "object" || schema["type"][0] == "object";
        if object {
            assert_eq!(schema["additionalProperties"], false, "{schema}");
            let mut required: Vec<&str> = schema["required"]
                .as_array()
                .unwrap()
                .iter()
                .map(|key| key.as_str().unwrap())
                .collect();
            required.sort_unstable();
            let mut keys: Vec<&str> = schema["properties"]
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            keys.sort_unstable();
            assert_eq!(required, keys);
            for property in schema["properties"].as_object().unwrap().values() {
                assert_strict(property);
            }
        }
        if !schema["items"].is_null() {
            assert_strict(&schema["items"]);
        }
    }

    #[test]
    fn cut_reply_ends_in_a_dash_that_both_prompts_explain() {
        assert_eq!(reply_value("Take the", TurnStatus::Interrupted), "Take the\u{2014}");
        assert_eq!(reply_value("Take it.", TurnStatus::Completed), "Take it.");
        let templates = Templates::load(None).unwrap();
        for language in [Language::En, Language::Ko] {
            let none = Vec::<String>::new;
            let bounds = context! {
                kinds => ["friend"], moods => ["calm"], statuses => ["alive"], relationship => 10,
                attributes => none(), items => none(), places => none(),
            };
            let values = context! { npc_name => "Mira", others => none(), bounds, reply => "Take it." };
            let prompt = templates.render(language, Template::State, values).unwrap();
            assert!(prompt.contains('\u{2014}'), "{prompt}");
        }
    }

    #[test]
    fn schema_is_strict_and_lists_the_keys_of_a_block() {
        let schema = state_schema(&StateRules::default(), Language::Ko).schema;
        assert_strict(&schema);
        for key in schema["properties"].as_object().unwrap().keys() {
            let block = serde_json::json!({ key: [] }).to_string();
            assert!(
                state_block::parse_closed(&block, "Ergen", &StateRules::default()).is_ok(),
                "{key}"
            );
        }
    }
}
