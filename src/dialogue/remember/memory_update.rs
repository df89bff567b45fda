//! A memory to write to, and what a turn adds to it.

use super::learned::FreshFact;
use crate::Services;
use colloquy_core::{
    ids::{NpcId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{disclosure::audience::Audience, fact::NewFact};
use colloquy_ports::ledger::{episodes::EmbeddedEpisode, facts::Extraction};

/// The memory to write to.
pub(super) struct AudienceMemory<'a> {
    pub services: &'a Services,
    pub scope: &'a TenantScope,
    pub world: WorldId,
    pub audience: Audience,
    /// The NPCs whose `memory_seq` guards the memory; sorted.
    pub npcs: Vec<NpcId>,
}

/// The facts that one turn adds to a memory.
pub(super) struct TurnAddition {
    pub facts: Vec<NewFact>,
    pub extraction: Extraction,
    pub fresh_facts: Vec<FreshFact>,
    /// The turn's episode, with one of the turn's additions.
    pub episode: Option<EmbeddedEpisode>,
}

/// A memory, with the facts that a turn adds to it.
pub(super) struct MemoryUpdate<'a> {
    pub memory: AudienceMemory<'a>,
    pub addition: Option<TurnAddition>,
}
