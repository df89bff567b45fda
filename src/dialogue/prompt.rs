//! Prompt assembly (docs/algorithms.md#prompt-assembly).
//!
//! * `prompt/assembly.rs`: the order of the sections and the budgets.
//! * `prompt/selection.rs`: the order in which parts are dropped from a prompt that is too long.
//! * `prompt/untrusted.rs`: protection against text of players.

mod action_lines;
mod action_parameters;
mod actions;
mod ages;
mod assembled_prompt;
mod assembly;
mod attribution;
mod cached_world_lines;
mod company;
mod content_hash;
mod corrections;
mod dead_character;
mod episodes;
mod frame_tokens;
mod history;
mod insights;
mod lore;
mod material;
mod own_prompt;
mod player_identity;
mod scenarios;
mod scene_notes;
mod selection;
mod sent;
mod standing_facts;
mod system;
mod template_error;
mod templates;
mod untrusted;
mod world;

#[cfg(test)]
mod tests;

pub(super) use self::{
    action_lines::ActionLines,
    assembled_prompt::Prompt,
    assembly::assemble_prompt,
    attribution::{PromptReader, attribute_statement},
    content_hash::ContentHash,
    dead_character::DeadCharacter,
    material::PromptMaterial,
    player_identity::player_own_names,
    sent::SentPrompts,
    system::state_bounds,
    templates::Template,
    untrusted::attribute_text,
    world::{
        Onlooker, bind_player, location_in_turn, place_of_turn, present_location, world_lines, world_lines_of_turn,
    },
};
pub use self::{template_error::TemplateError, templates::Templates, untrusted::escape_untrusted};
