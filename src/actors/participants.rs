//! The NPCs of one dialogue as they are written, and the scene they make.

use std::sync::Arc;

use super::{DialogueError, npc::NpcCell, registry::Node};
use crate::{
    dialogue::npc_conversation::{Scene, SceneMember},
    ids::{NpcId, WorldId},
    memory::authored,
    tenancy::TenantScope,
};

/// Where the rows of everybody who takes part are found.
pub(super) struct Participants(Vec<Arc<NpcCell>>);

/// The world and everybody who takes part, in the order in which the dialogue names them.
#[derive(Debug, Clone)]
pub(super) struct ParticipantRecords {
    pub world: Arc<authored::World>,
    pub npcs: Vec<Arc<authored::Npc>>,
}

impl Participants {
    /// Nothing is known yet; `read` finds it.
    pub fn new_unread(npcs: &[NpcId]) -> Self {
        Self(npcs.iter().map(|_| Arc::default()).collect())
    }

    /// Reads everybody.
    pub async fn read_all(
        node: &Arc<Node>,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
    ) -> Result<Self, DialogueError> {
        let mut cells = Vec::with_capacity(npcs.len());
        for npc in npcs {
            cells.push(node.read_authored(scope, world, npc).await?.1);
        }
        Ok(Self(cells))
    }

    /// The rows, if they are in memory. `None` after an edit of any of them.
    pub fn loaded_records(&self) -> Option<ParticipantRecords> {
        let (first, others) = self.0.split_first()?;
        let first = first.get()?;
        let mut npcs = Vec::with_capacity(self.0.len());
        npcs.push(first.npc);
        for cell in others {
            npcs.push(cell.get()?.npc);
        }
        Some(ParticipantRecords {
            world: first.world,
            npcs,
        })
    }
}

impl ParticipantRecords {
    /// The NPC with this id, if it takes part.
    pub fn npc(&self, id: &NpcId) -> Option<Arc<authored::Npc>> {
        self.npcs.iter().find(|npc| npc.id == *id).cloned()
    }

    pub fn members(&self) -> Vec<SceneMember> {
        let member = |npc: &Arc<authored::Npc>| SceneMember {
            id: npc.id.clone(),
            name: npc.name.clone(),
        };
        self.npcs.iter().map(member).collect()
    }

    /// What a turn has to know of the others; `None` where there are none.
    pub fn build_scene(&self, topic: Option<&str>, last: bool) -> Option<Arc<Scene>> {
        (self.npcs.len() > 1).then(|| {
            Arc::new(Scene {
                cast: self.members(),
                topic: topic.map(str::to_owned),
                last,
            })
        })
    }
}
