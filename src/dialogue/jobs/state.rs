//! The fall-back for a state block that could not be read: the small model reads the turn.

use minijinja::context;

use super::{JobError, JobReport, Said, ask_json};
use crate::{
    dialogue::{
        Services,
        prompt::{Template, bind_player, untrusted},
        turn::rules_of,
    },
    memory::{fact::Cause, state_block},
    ports::{
        ledger::{jobs::Job, state::NewStateChange},
        llm::{JsonSchema, Task},
    },
    tenancy::TenantScope,
};

pub(super) async fn extract(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    said: &Said,
) -> Result<JobReport, JobError> {
    let (turn, npc) = (&said.turn, &said.npc);
    let values = context! {
        npc_name => npc.name.as_str(),
        line => untrusted(&turn.player_text),
        reply => untrusted(&turn.reply_text),
    };
    let prompt = services.prompts.render(npc.language, Template::State, values)?;
    // Every key is optional, so the shape alone says little: the block's own reader checks the rest.
    let schema = JsonSchema {
        name: "state",
        schema: serde_json::json!({ "type": "object" }),
    };
    let (answer, _): (serde_json::Map<String, serde_json::Value>, _) =
        ask_json(services, scope, Task::Extraction, prompt, schema).await?;
    let block = serde_json::Value::Object(answer).to_string();
    let parsed = state_block::parse(&block, &npc.name, &rules_of(&said.world.settings))
        .map_err(|error| JobError::Unusable(error.to_string()))?;
    let mut changes = parsed.changes;
    if let Some(player) = &turn.player {
        for change in &mut changes {
            bind_player(change, player);
        }
    }
    let rows: Vec<NewStateChange> = changes
        .iter()
        .map(|change| NewStateChange {
            id: services.ids.next(),
            world: said.world.id.clone(),
            dialogue: Some(turn.dialogue),
            change: change.clone(),
            cause: Cause::Turn(turn.id),
            at: turn.committed_at,
        })
        .collect();
    if !services.ledger.state.commit(scope, &job.fence(), &rows).await? {
        return Ok(JobReport::default());
    }
    Ok(JobReport {
        state: changes,
        ..JobReport::default()
    })
}
