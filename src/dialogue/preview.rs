//! The preview of a prompt: the messages that a line would send to the model.

use serde::Serialize;
use utoipa::ToSchema;

pub use super::intent::IntentSource;
use super::{
    Services,
    models::with_usage_owner,
    turn::{TurnError, TurnInput, gather},
};
use colloquy_memory::{
    directive::DirectiveTrace,
    trace::{EpisodeTrace, InsightTrace, LoreTrace, ScenarioTrace, SectionTrace, StoryTrace},
    turn::Intent,
};
use colloquy_ports::{ledger::usage::UsageOwner, llm::ChatMessage};

/// The prompt that would be sent for a line. Returned by `POST /v1/sessions/{id}/context`.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Preview {
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<ChatMessage>,
    /// The intent of the line, on which the searched sources depend.
    #[schema(value_type = String)]
    pub intent: Intent,
    /// `model`, `named by the request`, or the reason why the classifier's answer was not used.
    pub intent_source: String,
    /// The sources of knowledge that were not searched, each with the reason.
    pub not_searched: Vec<String>,
    /// Scenarios of the NPC's past that this player may hear, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<ScenarioTrace>,
    /// The considered lore, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lore: Vec<LoreTrace>,
    /// The considered episodes: first those to use, then the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub episodes: Vec<EpisodeTrace>,
    /// The directives for the dialogue, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directives: Vec<DirectiveTrace>,
    /// The considered insights, closest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub insights: Vec<InsightTrace>,
    /// The considered lines of the story, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub story: Vec<StoryTrace>,
    pub sections: Vec<SectionTrace>,
    pub prompt_tokens: u32,
    /// SHA-256 of the messages, hexadecimal.
    pub prompt_hash: String,
}

/// Assembles the prompt of a turn with this input. The reply model is not called. The line is embedded as in a turn.
pub async fn preview_prompt(
    services: &Services,
    input: &TurnInput,
    source: IntentSource,
) -> Result<Preview, TurnError> {
    let services = &*services.tuned_by(&input.world.settings);
    let owner = UsageOwner {
        world: input.world.id.clone(),
        npc: input.npc.id.clone(),
    };
    let gathering = Box::pin(gather::gather_for_preview(services, input, source));
    let gathered = with_usage_owner(owner, None, gathering).await?;
    let prompt = gathered.assemble_prompt(services, input)?;
    let trace = prompt.trace;
    Ok(Preview {
        messages: prompt.messages,
        intent: gathered.intent.intent,
        intent_source: gathered.intent.source,
        not_searched: gathered.not_searched,
        scenarios: trace.scenarios,
        lore: trace.lore,
        episodes: trace.episodes,
        directives: trace.directives,
        insights: trace.insights,
        story: trace.story,
        sections: trace.sections,
        prompt_tokens: trace.prompt_tokens,
        prompt_hash: trace.prompt_hash,
    })
}
