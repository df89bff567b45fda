//! Prompt assembly (docs/algorithms.md#prompt-assembly).
//!
//! * `prompt/assembly.rs`: the messages of a prompt, within its budgets.
//! * `knowledge.rs`: the sections, their order, and the order in which they are dropped from a prompt that is too long.
//! * `prompt/untrusted.rs`: protection against text of players.

mod action_parameters;
mod ages;
mod assembled_prompt;
mod assembly;
mod attribution;
mod cached_world_lines;
mod company;
mod content_hash;
mod context;
mod dead_character;
mod fixed_parts;
mod frame_tokens;
mod history;
mod own_prompt;
mod sent;
mod system;
mod template_error;
mod templates;
mod untrusted;
mod world;

#[cfg(test)]
mod tests;

pub(super) use self::{
    action_parameters::describe_arguments,
    ages::AgeFormatter,
    assembled_prompt::Prompt,
    assembly::assemble_prompt,
    attribution::{Attribution, PromptReader, attribute_statement, attribute_to, render_statement},
    company::Remark,
    content_hash::ContentHash,
    context::PromptContext,
    dead_character::DeadCharacter,
    frame_tokens::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS},
    history::HistoryWindow,
    own_prompt::enlarge_for_own_prompt,
    sent::SentPrompts,
    system::state_bounds,
    templates::Template,
    untrusted::attribute_text,
    world::{
        Onlooker, bind_player, location_in_turn, place_of_turn, present_location, world_lines, world_lines_of_turn,
    },
};
pub use self::{template_error::TemplateError, templates::Templates, untrusted::escape_untrusted};
