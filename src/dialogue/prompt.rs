//! Prompt assembly (ALGORITHMS §9).
//!
//! Read `prompt/assembly.rs` for the order and the budgets, `prompt/selection.rs` for what goes
//! first when a prompt is too long, `prompt/untrusted.rs` for what players may not do in it.

mod assembly;
mod history;
mod scenarios;
mod selection;
mod templates;
mod untrusted;
mod world;

#[cfg(test)]
mod tests;

use minijinja::context;
use serde::Serialize;
use utoipa::ToSchema;

pub(super) use self::{
    assembly::{Material, Prompt, assemble},
    templates::Template,
    world::{bind_player, world_lines},
};
pub use self::{
    templates::{TemplateError, Templates},
    untrusted::untrusted,
};
use super::{
    Services,
    turn::{TurnError, TurnInput, gather},
};
use crate::{
    ids::PlayerId,
    memory::{
        authored::Language,
        party,
        trace::{ScenarioTrace, ScoreParts, SectionTrace},
        turn::Intent,
    },
    ports::llm::ChatMessage,
};

/// A fact as a model reads it. What is known about another player than the one who is spoken with
/// says so: its sentence calls that player `the player` too.
pub(in crate::dialogue) fn told(
    templates: &Templates,
    language: Language,
    player: Option<&PlayerId>,
    subject: &str,
    content: &str,
) -> Result<String, TemplateError> {
    let text = untrusted(content);
    match party::owner(subject).filter(|&id| player.is_none_or(|player| player.as_str() != id)) {
        Some(other) => templates.render(
            language,
            Template::AboutAnother,
            context! { player => untrusted(other), text },
        ),
        None => Ok(text),
    }
}

/// A fact as the NPC's prompt gives it: as [`told`], but what a player said of the NPC itself stays what
/// that player says. The NPC knows better who it is, and never said so.
fn given(
    templates: &Templates,
    material: &Material<'_>,
    subject: &str,
    speaker: &str,
    content: &str,
) -> Result<String, TemplateError> {
    let (language, player) = (material.npc.language, material.player);
    let text = told(templates, language, player, subject, content)?;
    if !party::is_player(speaker) || !is_or_belongs_to(subject, &material.npc.name) {
        return Ok(text);
    }
    let other = party::owner(speaker).filter(|&id| player.is_none_or(|player| player.as_str() != id));
    templates.render(
        language,
        Template::Claimed,
        context! { player => other.map(untrusted).unwrap_or_default(), text },
    )
}

/// Whether `subject` is `name`, or something of its own ("Mira's brother").
fn is_or_belongs_to(subject: &str, name: &str) -> bool {
    subject.strip_prefix(name).is_some_and(|rest| {
        rest.is_empty()
            || ["'s ", "\u{2019}s ", "의 "]
                .iter()
                .any(|owning| rest.starts_with(owning))
    })
}

/// The score of a fact that is in the prompt without having been searched for.
const UNSCORED: ScoreParts = ScoreParts {
    recency: 0.0,
    importance: 0.0,
    relevance: 0.0,
    keyword: 0.0,
    total: 0.0,
    cosine: 0.0,
};

/// A prompt that would be sent, for `POST /v1/sessions/{id}/context`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Preview {
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<ChatMessage>,
    /// Of the NPC's past, what the player may hear of; best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<ScenarioTrace>,
    pub sections: Vec<SectionTrace>,
    pub prompt_tokens: u32,
    /// SHA-256, hexadecimal.
    pub prompt_hash: String,
}

/// Assembles the prompt a line would get, without calling any language model: the intent is taken
/// to be `memory`, so recall is in full. The line is embedded as it would be in a turn.
pub async fn preview(services: &Services, input: &TurnInput) -> Result<Preview, TurnError> {
    let gathered = gather::gather(services, input, gather::Classify::As(Intent::Memory)).await?;
    let prompt = gathered.prompt(services, input)?;
    Ok(Preview {
        messages: prompt.messages,
        scenarios: prompt.scenarios,
        sections: prompt.sections,
        prompt_tokens: prompt.tokens,
        prompt_hash: prompt.hash,
    })
}
