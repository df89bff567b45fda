//! What NPCs remember of their own past, as people write it.

use async_trait::async_trait;

use super::{
    audit::Edit,
    authored::{DeleteOutcome, PutOutcome},
};
use crate::{
    ids::{NpcId, ScenarioId, WorldId},
    memory::{progress::Progress, scenario::Scenario},
    ports::{Page, PageRequest, StoreResult},
    tenancy::TenantScope,
};

/// A unit vector, and the model that made it: those of different models are never compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    pub model: String,
    pub vector: Vec<f32>,
}

/// A scenario that a player may hear of.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddedScenario {
    pub scenario: Scenario,
    pub embedding: Embedding,
}

/// The same by its title alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioTitle {
    pub id: ScenarioId,
    pub title: String,
    pub required_progress: Progress,
}

/// How far a player must have come for one scenario, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredProgress {
    pub npc: NpcId,
    /// As rules and the state of the world name it.
    pub npc_name: String,
    pub scenario: ScenarioId,
    pub progress: Progress,
}

/// Scenarios. `version` of a value passed to `put` is ignored; the store counts. Every change writes its audit row
/// in the same transaction. What was deleted, itself or with its NPC, is hidden: a put of the same id brings it back.
#[async_trait]
pub trait ScenarioStore: Send + Sync {
    /// [`PutOutcome::NoParent`] without its NPC; [`PutOutcome::Full`] where that has as many as it may.
    async fn put_scenario(
        &self,
        scope: &TenantScope,
        scenario: &Scenario,
        embedding: &Embedding,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome>;
    /// With what a put would be refused as things stand; `None`: with nothing. The put itself decides.
    async fn check_put(
        &self,
        scope: &TenantScope,
        scenario: &Scenario,
        if_version: Option<u32>,
    ) -> StoreResult<Option<PutOutcome>>;
    async fn load_scenario(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        id: &ScenarioId,
    ) -> StoreResult<Option<Scenario>>;
    /// Those of one NPC, by id.
    async fn list_scenarios(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        page: &PageRequest,
    ) -> StoreResult<Page<Scenario>>;
    async fn delete_scenario(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        id: &ScenarioId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome>;
    /// Those of one NPC that need no more than `progress`. Nothing else of it is read, so nothing that is locked
    /// can get into a prompt.
    async fn list_unlocked_scenarios(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        progress: Progress,
    ) -> StoreResult<Vec<EmbeddedScenario>>;
    /// The titles of those, by id: neither what they tell nor their vectors are read.
    async fn list_unlocked_titles(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        progress: Progress,
    ) -> StoreResult<Vec<ScenarioTitle>>;
    /// What those of `asked` need, whosever they are. One that was deleted, itself or with its NPC, is not there.
    async fn load_required_progress(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        asked: &[(NpcId, ScenarioId)],
    ) -> StoreResult<Vec<RequiredProgress>>;
    /// Those whose vector another model than `model` made, at most `limit`.
    async fn list_unembedded(&self, scope: &TenantScope, model: &str, limit: u32) -> StoreResult<Vec<Scenario>>;
    /// Gives a scenario another vector, unless it was changed since it was read.
    async fn store_embedding(&self, scope: &TenantScope, scenario: &Scenario, embedding: &Embedding)
    -> StoreResult<()>;
}
