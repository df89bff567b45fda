//! Unlocked scenarios, and the trigger to look for them.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use colloquy_core::{
    ids::{NpcId, PlayerId, ScenarioId},
    scope::TenantScope,
};
use colloquy_memory::authored::{Npc, World};

/// A scenario that a player may hear from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioUnlock {
    pub scenario: ScenarioId,
    pub title: String,
    pub npc: NpcId,
}

/// A change of the world state that may have unlocked scenarios for a player.
#[derive(Debug, Clone)]
pub struct UnlockTrigger {
    pub scope: TenantScope,
    pub world: Arc<World>,
    /// The NPC of the dialogue, which is already loaded.
    pub npc: Arc<Npc>,
    pub player: PlayerId,
    pub changed_at: DateTime<Utc>,
}
