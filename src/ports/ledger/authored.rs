//! Worlds and NPCs as people write them.

use async_trait::async_trait;

use super::audit::Edit;
use crate::{
    ids::{NpcId, WorldId},
    memory::authored::{Npc, World},
    ports::{Page, PageRequest, StoreResult},
    tenancy::TenantScope,
};

/// What a conditional write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Created,
    Updated {
        version: u32,
    },
    /// `if_version` named another version than the stored one.
    VersionMismatch {
        stored: u32,
    },
    /// The parent (the NPC's world, the scenario's NPC) does not exist.
    NoParent,
    /// The parent has as many as it may.
    Full {
        most: u32,
    },
}

/// What a conditional deletion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    Deleted,
    NotFound,
    /// `if_version` named another version than the stored one.
    VersionMismatch {
        stored: u32,
    },
}

/// Authored content. `version` of a value passed to `put_*` is ignored; the store counts.
/// Every change writes its audit row in the same transaction. A put with `if_version` 0 only makes what
/// is not there. What was deleted is hidden: a put of the same id brings it back.
#[async_trait]
pub trait AuthoredStore: Send + Sync {
    async fn put_world(
        &self,
        scope: &TenantScope,
        world: &World,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome>;
    async fn load_world(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<Option<World>>;
    async fn list_worlds(&self, scope: &TenantScope, page: &PageRequest) -> StoreResult<Page<World>>;
    /// Hides a world and its NPCs; its dialogues end.
    async fn delete_world(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome>;

    async fn put_npc(
        &self,
        scope: &TenantScope,
        npc: &Npc,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome>;
    async fn load_npc(&self, scope: &TenantScope, world: &WorldId, npc: &NpcId) -> StoreResult<Option<Npc>>;
    /// Of `names`, those that are the name or the id of an NPC of this world, whatever their case; as the
    /// NPCs have them.
    async fn find_npc_names(&self, scope: &TenantScope, world: &WorldId, names: &[String]) -> StoreResult<Vec<String>>;
    async fn list_npcs(&self, scope: &TenantScope, world: &WorldId, page: &PageRequest) -> StoreResult<Page<Npc>>;
    /// Hides an NPC; its dialogues end.
    async fn delete_npc(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome>;
}
