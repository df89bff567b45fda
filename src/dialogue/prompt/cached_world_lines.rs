//! The lines about the world that a node keeps for one player.

use std::sync::Weak;

use colloquy_core::ids::DialogueId;
use colloquy_memory::{
    authored::{Npc, World},
    state::WorldState,
};

/// The lines about the world for one player, as a turn rendered them from these values.
pub(super) struct CachedWorldLines {
    pub(super) state: Weak<WorldState>,
    pub(super) world: Weak<World>,
    pub(super) npc: Weak<Npc>,
    pub(super) dialogue: DialogueId,
    /// The day of the world's clock.
    pub(super) day: i64,
    pub(super) lines: Vec<String>,
}
