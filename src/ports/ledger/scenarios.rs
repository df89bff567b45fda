//! Memories of the NPCs' own past, written by authors.

use async_trait::async_trait;

use super::{
    audit::Edit,
    authored::{DeleteOutcome, PutOutcome},
};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{NpcId, ScenarioId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{condition::Condition, disclosure::secrecy::Tell, progress::Progress, scenario::Scenario};

/// A unit vector and its model. Vectors of different models are never compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    pub model: String,
    pub vector: Vec<f32>,
}

/// A scenario unlocked for a player.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddedScenario {
    pub scenario: Scenario,
    pub embedding: Embedding,
}

/// The title of an unlocked scenario, and the other words that name it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioTitle {
    pub id: ScenarioId,
    pub title: String,
    pub keywords: Vec<String>,
    pub synonyms: Vec<String>,
    pub required_progress: Progress,
    /// The conditions of the scenario, which the store does not check.
    pub when: Vec<Condition>,
}

/// What an NPC shows of a scenario that it keeps to itself, without the scenario's content.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioTell {
    pub id: ScenarioId,
    pub title: String,
    pub keywords: Vec<String>,
    pub synonyms: Vec<String>,
    pub required_progress: Progress,
    /// The conditions of the scenario, which the store does not check.
    pub when: Vec<Condition>,
    pub tell: Tell,
}

/// What a scenario requires of a player, and the scenario's NPC.
#[derive(Debug, Clone, PartialEq)]
pub struct RequiredProgress {
    pub npc: NpcId,
    /// The NPC's name in rules and world state.
    pub npc_name: String,
    pub scenario: ScenarioId,
    pub progress: Progress,
    pub when: Vec<Condition>,
}

/// Scenarios. The store counts versions, and ignores the `version` of a value passed to `put_scenario`. Every change
/// writes its audit row in the same transaction. A scenario deleted alone or with its NPC is hidden until a put of the
/// same id.
#[async_trait]
pub trait ScenarioStore: Send + Sync {
    /// Writes a scenario. [`PutOutcome::NoParent`]: the NPC does not exist. [`PutOutcome::Full`]: the NPC has reached
    /// its limit.
    async fn put_scenario(
        &self,
        scope: &TenantScope,
        scenario: &Scenario,
        embedding: &Embedding,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome>;
    /// Returns the present refusal of a put, or `None`. Only the put itself decides.
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
    /// Returns the scenarios of one NPC, by id.
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
    /// Returns the NPC's scenarios with a required progress of at most `progress`. The store reads no other scenario,
    /// so that none gets into a prompt. The caller checks the conditions of each.
    async fn list_unlocked_scenarios(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        progress: Progress,
    ) -> StoreResult<Vec<EmbeddedScenario>>;
    /// Returns the titles of the same scenarios, by id, without their texts and vectors.
    async fn list_unlocked_titles(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        progress: Progress,
    ) -> StoreResult<Vec<ScenarioTitle>>;
    /// Returns the NPC's scenarios with a tell, by id, whether they are locked or not. Contents are not read.
    async fn list_tells(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        limit: u32,
    ) -> StoreResult<Vec<ScenarioTell>>;
    /// Returns the required progress and the conditions of the scenarios in `scenarios`, of all NPCs, except scenarios
    /// deleted alone or with their NPC.
    async fn load_required_progress(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        scenarios: &[(NpcId, ScenarioId)],
    ) -> StoreResult<Vec<RequiredProgress>>;
    /// Returns at most `limit` scenarios whose vector is from another model than `model`.
    async fn list_unembedded(&self, scope: &TenantScope, model: &str, limit: u32) -> StoreResult<Vec<Scenario>>;
    /// Replaces a scenario's vector, unless the scenario has changed since the caller read it.
    async fn store_embedding(&self, scope: &TenantScope, scenario: &Scenario, embedding: &Embedding)
    -> StoreResult<()>;
}
