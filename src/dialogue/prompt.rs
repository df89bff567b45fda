//! Prompt assembly (docs/algorithms.md#prompt-assembly).
//!
//! * `prompt/assembly.rs`: the order of the sections and the budgets.
//! * `prompt/selection.rs`: the order in which parts are dropped from a prompt that is too long.
//! * `prompt/untrusted.rs`: protection against text of players.

mod ages;
mod assembly;
mod attribution;
mod history;
mod player_identity;
mod scenarios;
mod selection;
mod standing_facts;
mod templates;
mod untrusted;
mod world;

#[cfg(test)]
mod tests;

use serde::Serialize;
use utoipa::ToSchema;

pub(super) use self::{
    assembly::{Prompt, PromptMaterial, assemble_prompt},
    attribution::{PromptReader, attribute_statement},
    player_identity::player_own_name,
    templates::{Template, state_bounds},
    world::{bind_player, world_lines},
};
pub use self::{
    templates::{TemplateError, Templates},
    untrusted::escape_untrusted,
};
use super::{
    Services,
    turn::{TurnError, TurnInput, gather},
};
use crate::{
    memory::{
        trace::{ScenarioTrace, ScoreParts, SectionTrace},
        turn::Intent,
    },
    ports::llm::ChatMessage,
};

/// The score of a fact that is in the prompt without a search.
const UNSCORED: ScoreParts = ScoreParts {
    recency: 0.0,
    importance: 0.0,
    relevance: 0.0,
    keyword: 0.0,
    total: 0.0,
    cosine: 0.0,
};

/// The prompt that would be sent for a line. Returned by `POST /v1/sessions/{id}/context`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Preview {
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<ChatMessage>,
    /// Scenarios of the NPC's past that this player may hear, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<ScenarioTrace>,
    pub sections: Vec<SectionTrace>,
    pub prompt_tokens: u32,
    /// SHA-256 of the messages, hexadecimal.
    pub prompt_hash: String,
}

/// Assembles the prompt for a line without calling a language model. The intent is assumed to be `memory`, so recall
/// is complete. The line is embedded as in a turn.
pub async fn preview_prompt(services: &Services, input: &TurnInput) -> Result<Preview, TurnError> {
    let gathered = gather::gather_for_preview(services, input, gather::IntentSource::Assumed(Intent::Memory)).await?;
    let prompt = gathered.assemble_prompt(services, input)?;
    Ok(Preview {
        messages: prompt.messages,
        scenarios: prompt.scenarios,
        sections: prompt.sections,
        prompt_tokens: prompt.tokens,
        prompt_hash: prompt.hash,
    })
}
