//! The NPCs of a dialogue as authored, and the scene of these NPCs.

use std::sync::Arc;

use super::{DialogueError, authored_npc::NpcCell, node::Node};
use colloquy_core::{
    ids::{NpcId, WorldId},
    scope::TenantScope,
};
use colloquy_dialogue::npc_conversation::{Scene, SceneMember};
use colloquy_memory::{authored, directive::Directive};

/// The cells with the rows of all participants.
pub(super) struct Participants(Vec<Arc<NpcCell>>);

/// The world and all participants, in the order of the dialogue.
#[derive(Debug, Clone)]
pub(super) struct ParticipantRecords {
    /// The world with the settings of the first NPC.
    pub world: Arc<authored::World>,
    pub npcs: Vec<Arc<authored::Npc>>,
    /// The world with the settings of each NPC, in the order of `npcs`.
    worlds: Vec<Arc<authored::World>>,
    /// All directives of the world.
    pub directives: Arc<[Directive]>,
}

impl Participants {
    /// Creates empty cells; [`Self::read_all`] fills them.
    pub fn new_unread(npcs: &[NpcId]) -> Self {
        Self(npcs.iter().map(|_| Arc::default()).collect())
    }

    /// Reads the rows of all participants.
    pub async fn read_all(
        node: &Arc<Node>,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
    ) -> Result<Self, DialogueError> {
        let mut cells = Vec::with_capacity(npcs.len());
        for npc in npcs {
            let actors = node.actors().ok_or(DialogueError::Draining)?;
            cells.push(actors.read_authored(scope, world, npc).await?.1);
        }
        Ok(Self(cells))
    }

    /// Returns the world with the settings of each NPC whose rows are in memory.
    pub fn held_worlds(&self) -> Vec<(NpcId, Arc<authored::World>)> {
        let loaded_rows = self.0.iter().filter_map(|cell| cell.get());
        loaded_rows.map(|rows| (rows.npc.id.clone(), rows.world)).collect()
    }

    /// Returns the rows, if they are in memory. `None` after an edit of a row.
    pub fn loaded_records(&self) -> Option<ParticipantRecords> {
        let (first, other_cells) = self.0.split_first()?;
        let first = first.get()?;
        let mut npcs = Vec::with_capacity(self.0.len());
        let mut worlds = Vec::with_capacity(self.0.len());
        npcs.push(first.npc);
        worlds.push(Arc::clone(&first.world));
        for cell in other_cells {
            let rows = cell.get()?;
            npcs.push(rows.npc);
            worlds.push(rows.world);
        }
        Some(ParticipantRecords {
            world: first.world,
            npcs,
            worlds,
            directives: first.directives,
        })
    }
}

impl ParticipantRecords {
    /// Returns the NPC with the id, if the NPC takes part.
    pub fn npc(&self, id: &NpcId) -> Option<Arc<authored::Npc>> {
        self.npcs.iter().find(|npc| npc.id == *id).cloned()
    }

    /// Returns the world with the settings of an NPC.
    pub fn world_of(&self, npc: &NpcId) -> Arc<authored::World> {
        let mut rows = self.npcs.iter().zip(&self.worlds);
        let member = rows.find(|(row, _)| row.id == *npc);
        Arc::clone(member.map_or(&self.world, |(_, world)| world))
    }

    pub fn members(&self) -> Vec<SceneMember> {
        self.npcs.iter().map(|npc| SceneMember::of_npc(npc)).collect()
    }

    /// Returns the facts about the other NPCs that a turn needs; `None` without other NPCs.
    pub fn build_scene(&self, topic: Option<&str>, last: bool) -> Option<Arc<Scene>> {
        (self.npcs.len() > 1).then(|| {
            Arc::new(Scene {
                cast: self.members(),
                topic: topic.map(str::to_owned),
                last,
                ..Scene::default()
            })
        })
    }
}
