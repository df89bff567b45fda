//! The lore of worlds, written by authors.

use async_trait::async_trait;

use super::{
    audit::Edit,
    authored::{DeleteOutcome, PutOutcome},
    scenarios::Embedding,
};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{LoreId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{condition::Condition, lore::LoreEntry};

/// An entry with its vector.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddedLore {
    pub entry: LoreEntry,
    pub embedding: Embedding,
}

/// All lore of a world.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorldLore {
    /// The [`lore_version`](colloquy_memory::authored::World::lore_version) of the world. The entries are at least as
    /// new.
    pub version: u32,
    /// By id.
    pub entries: Vec<EmbeddedLore>,
    /// The conditions of all scenarios of the world and of their tells.
    pub conditions_of_scenarios: Vec<Condition>,
}

/// The outcome of a write of many entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportOutcome {
    /// All entries are written.
    Written { created: u32, updated: u32 },
    /// The world does not exist. Nothing is written.
    NoParent,
    /// The world would have more entries than it may. Nothing is written.
    Full { most: u32 },
}

/// Lore. The store counts versions, and ignores the `version` of a written entry. Every change raises the world's
/// `lore_version` and writes its audit row in the same transaction.
#[async_trait]
pub trait LoreStore: Send + Sync {
    /// Writes an entry. [`PutOutcome::NoParent`]: the world does not exist. [`PutOutcome::Full`]: the world has reached
    /// its limit.
    async fn put_lore(
        &self,
        scope: &TenantScope,
        lore: &EmbeddedLore,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome>;
    /// Returns the present refusal of a put, or `None`. Only the put itself decides.
    async fn check_put(
        &self,
        scope: &TenantScope,
        entry: &LoreEntry,
        if_version: Option<u32>,
    ) -> StoreResult<Option<PutOutcome>>;
    /// Creates or replaces entries of one world, all or none. The ids differ.
    async fn import_lore(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        entries: &[EmbeddedLore],
        edit: &Edit,
    ) -> StoreResult<ImportOutcome>;
    async fn load_lore(&self, scope: &TenantScope, world: &WorldId, id: &LoreId) -> StoreResult<Option<LoreEntry>>;
    /// Returns the entries of a world, by id.
    async fn list_lore(&self, scope: &TenantScope, world: &WorldId, page: &PageRequest)
    -> StoreResult<Page<LoreEntry>>;
    /// Returns all entries of a world, with their vectors.
    async fn load_world_lore(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<WorldLore>;
    async fn delete_lore(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        id: &LoreId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome>;
    /// Returns at most `limit` entries whose vector is from another model than `model`.
    async fn list_unembedded(&self, scope: &TenantScope, model: &str, limit: u32) -> StoreResult<Vec<LoreEntry>>;
    /// Stores the vectors of entries that still have their versions, and raises the `lore_version` of their worlds once.
    async fn store_embeddings(&self, scope: &TenantScope, entries: &[EmbeddedLore]) -> StoreResult<()>;
}
