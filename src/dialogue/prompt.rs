//! Prompt assembly (docs/algorithms.md#prompt-assembly).
//!
//! * `prompt/assembly.rs`: the order of the sections and the budgets.
//! * `prompt/selection.rs`: the order in which parts are dropped from a prompt that is too long.
//! * `prompt/untrusted.rs`: protection against text of players.

mod action_parameters;
mod actions;
mod ages;
mod assembly;
mod attribution;
mod company;
mod content_hash;
mod corrections;
mod episodes;
mod frame_tokens;
mod history;
mod insights;
mod lore;
mod own_prompt;
mod player_identity;
mod scenarios;
mod scene_notes;
mod selection;
mod sent;
mod standing_facts;
mod system;
mod templates;
mod untrusted;
mod world;

#[cfg(test)]
mod tests;

pub(super) use self::{
    actions::ActionLines,
    assembly::{Prompt, PromptMaterial, assemble_prompt},
    attribution::{PromptReader, attribute_statement},
    company::DeadCharacter,
    content_hash::ContentHash,
    player_identity::player_own_names,
    sent::SentPrompts,
    system::state_bounds,
    templates::Template,
    untrusted::attribute_text,
    world::{Onlooker, bind_player, location_in_turn, present_location, world_lines, world_lines_of_turn},
};
pub use self::{
    templates::{TemplateError, Templates},
    untrusted::escape_untrusted,
};
use colloquy_memory::trace::ScoreParts;

/// The score of a fact that is in the prompt without a search, except its importance.
const UNSCORED: ScoreParts = ScoreParts {
    recency: 0.0,
    importance: 0.0,
    relevance: 0.0,
    keyword: 0.0,
    total: 0.0,
    cosine: 0.0,
};
