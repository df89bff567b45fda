//! The living of a turn: its scene, and those who overhear it.

use futures_util::future::try_join_all;

use super::input::{TurnError, TurnInput};
use crate::{
    Services,
    scene::{Scene, SceneMember},
};
use colloquy_memory::state::WorldState;
use colloquy_ports::StoreResult;

/// Returns the living NPCs that overhear a session with a player. Most sessions have none, and read nothing.
pub(crate) async fn load_witnesses(
    services: &Services,
    input: &TurnInput,
    state: &WorldState,
) -> StoreResult<Vec<SceneMember>> {
    if input.player.is_none() {
        return Ok(Vec::new());
    }
    let authored = &services.ledger.authored;
    let witnesses = input.dialogue.witnesses.iter();
    let npcs = try_join_all(witnesses.map(|id| authored.load_npc(&input.scope, &input.world.id, id))).await?;
    let living = npcs
        .iter()
        .flatten()
        .filter(|npc| !state.is_npc_dead(&npc.name, &npc.id));
    Ok(living.map(SceneMember::of_npc).collect())
}

/// Returns the scene of a dialogue with several NPCs, with the dead among them.
///
/// # Errors
/// The NPC is dead, or all other NPCs of an NPC conversation are.
pub(crate) fn scene_of_the_living(input: &TurnInput, world: &WorldState) -> Result<Option<Scene>, TurnError> {
    let mut scene = input.scene.as_deref().cloned();
    if !input.world.settings.lets_ghosts_speak() {
        if world.is_npc_dead(&input.npc.name, &input.npc.id) {
            return Err(TurnError::NpcDead);
        }
        if let Some(scene) = &mut scene {
            scene.set_dead(world);
        }
    }
    let is_alone = |scene: &Scene| scene.other_names(&input.npc.id).is_empty();
    if input.player.is_none() && scene.as_ref().is_some_and(is_alone) {
        return Err(TurnError::NpcDead);
    }
    Ok(scene)
}
