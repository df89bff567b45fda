//! Verdicts on content that has no secrets from those who hear a turn.

use std::sync::Arc;

use super::disclosable::Disclosable;
use crate::{
    prompt::{Onlooker, TemplateError, Templates, world_lines, world_lines_of_turn},
    turn::TurnInput,
};
use colloquy_memory::state::WorldState;
use colloquy_ports::ledger::actions::Action;

/// Returns the notes of a chat program about the scene: all who hear the turn have its request.
pub(crate) fn scene_notes(input: &TurnInput) -> Disclosable<Vec<String>> {
    let chat = input.chat.as_ref();
    Disclosable::new(chat.map_or_else(Vec::new, |chat| chat.scene_notes.clone()))
}

/// Returns what the NPC and the player see of the world.
pub(crate) fn seen_world(
    templates: &Templates,
    state: &Arc<WorldState>,
    input: &TurnInput,
) -> Result<Disclosable<Vec<String>>, TemplateError> {
    world_lines_of_turn(templates, state, input).map(Disclosable::new)
}

/// Returns what the NPC and the player saw of the world at an earlier turn.
pub(crate) fn seen_world_again(
    templates: &Templates,
    state: &WorldState,
    input: &TurnInput,
) -> Result<Disclosable<Vec<String>>, TemplateError> {
    world_lines(templates, state, &Onlooker::of_turn(input)).map(Disclosable::new)
}

/// Returns the actions of which the NPC may speak: its own, from this dialogue or with this player.
pub(crate) fn own_actions(input: &TurnInput, actions: Vec<Action>) -> Disclosable<Vec<Action>> {
    let is_own = |action: &Action| {
        let request = &action.request;
        request.npc == input.npc.id && (request.dialogue == input.dialogue.id || request.player == input.player)
    };
    Disclosable::new(actions.into_iter().filter(is_own).collect())
}
