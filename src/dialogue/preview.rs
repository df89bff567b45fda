//! The preview of a prompt: the messages that a line would send to the model.

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Services,
    turn::{TurnError, TurnInput, gather},
};
use colloquy_memory::{
    directive::DirectiveTrace,
    trace::{EpisodeTrace, InsightTrace, LoreTrace, ScenarioTrace, SectionTrace},
    turn::Intent,
};
use colloquy_ports::llm::ChatMessage;

/// The prompt that would be sent for a line. Returned by `POST /v1/sessions/{id}/context`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Preview {
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<ChatMessage>,
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
    pub sections: Vec<SectionTrace>,
    pub prompt_tokens: u32,
    /// SHA-256 of the messages, hexadecimal.
    pub prompt_hash: String,
}

/// Assembles the prompt for a line without calling a language model. The intent is assumed to be `memory`, so recall
/// is complete. The line is embedded as in a turn.
pub async fn preview_prompt(services: &Services, input: &TurnInput) -> Result<Preview, TurnError> {
    let services = &*services.tuned_by(&input.world.settings);
    let gathered = gather::gather_for_preview(services, input, gather::IntentSource::Assumed(Intent::Memory)).await?;
    let prompt = gathered.assemble_prompt(services, input)?;
    Ok(Preview {
        messages: prompt.messages,
        scenarios: prompt.scenarios,
        lore: prompt.lore,
        episodes: prompt.episodes,
        directives: prompt.directives,
        insights: prompt.insights,
        sections: prompt.sections,
        prompt_tokens: prompt.tokens,
        prompt_hash: prompt.hash,
    })
}
