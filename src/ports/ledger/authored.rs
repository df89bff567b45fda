//! Worlds and NPCs, as authors write them.

use async_trait::async_trait;

use super::audit::Edit;
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{NpcId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Npc, TenantTier, TierSettings, World},
    chat_models::{ChatModel, ChatModels},
};

/// The id and the name of an NPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpcName {
    pub id: NpcId,
    pub name: String,
}

/// The outcome of a conditional write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Created,
    Updated {
        version: u32,
    },
    /// `if_version` differs from the stored version.
    VersionMismatch {
        stored: u32,
    },
    /// The parent (the NPC's world, the scenario's NPC) does not exist.
    NoParent,
    /// The parent has reached its limit of children.
    Full {
        most: u32,
    },
}

/// The outcome of a conditional deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    Deleted,
    NotFound,
    /// `if_version` differs from the stored version.
    VersionMismatch {
        stored: u32,
    },
}

/// Authored content. The store counts versions, and ignores the `version` of a value passed to `put_*`. Every change
/// writes its audit row in the same transaction. A put with `if_version` 0 only creates. Deleted content is hidden, and
/// a put of the same id brings it back.
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
    /// Hides a world and its NPCs, and ends its dialogues.
    async fn delete_world(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome>;

    /// Returns the tenant's settings for all its worlds; the default without settings.
    async fn load_tenant_tier(&self, scope: &TenantScope) -> StoreResult<TenantTier>;
    async fn put_tenant_settings(
        &self,
        scope: &TenantScope,
        settings: &TierSettings,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome>;

    /// Returns the tenant's model names of chat programs; the default without names.
    async fn load_chat_models(&self, scope: &TenantScope) -> StoreResult<ChatModels>;
    /// Replaces all model names of the tenant.
    async fn put_chat_models(
        &self,
        scope: &TenantScope,
        models: &[ChatModel],
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome>;

    async fn put_npc(
        &self,
        scope: &TenantScope,
        npc: &Npc,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome>;
    async fn load_npc(&self, scope: &TenantScope, world: &WorldId, npc: &NpcId) -> StoreResult<Option<Npc>>;
    /// Returns the NPCs of this world whose name or id is one of `names`, in the order of their ids. Case does not
    /// matter.
    async fn find_npc_names(&self, scope: &TenantScope, world: &WorldId, names: &[String])
    -> StoreResult<Vec<NpcName>>;
    async fn list_npcs(&self, scope: &TenantScope, world: &WorldId, page: &PageRequest) -> StoreResult<Page<Npc>>;
    /// Hides an NPC and ends its dialogues.
    async fn delete_npc(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome>;
}
