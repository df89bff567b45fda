//! Consolidation: conclusions from older facts of an audience and a week.

use std::collections::HashMap;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::new_job::JobFence;
use crate::StoreResult;
use colloquy_core::{
    ids::{FactId, InvalidationId, JobId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    consolidation::{FactGroup, Week},
    disclosure::audience::Audience,
    fact::{Fact, NewFact},
};

/// The most facts that [`ConsolidationStore::list_facts_of_week`] returns: the oldest.
pub const MAX_FACTS_OF_WEEK: usize = 2_000;

/// The place of a fact in the order of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanPlace {
    /// [`Audience::audience_key`].
    pub audience: String,
    pub valid_at: DateTime<Utc>,
    pub fact: FactId,
}

/// The name of a group of facts in a world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// [`Audience::audience_key`].
    pub audience: String,
    pub week: Week,
    /// [`FactGroup::about`].
    pub about: String,
}

impl From<&FactGroup> for GroupKey {
    fn from(group: &FactGroup) -> Self {
        Self {
            audience: group.audience.audience_key(),
            week: group.week,
            about: group.about.clone(),
        }
    }
}

/// The conclusions of a group of facts, for one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsolidationCommit {
    pub fence: JobFence,
    pub world: WorldId,
    pub audience: Audience,
    pub week: Week,
    /// [`FactGroup::about`].
    pub about: String,
    /// [`FactGroup::material_hash`] of the facts that the model
    /// has read.
    pub material: String,
    /// The conclusions. Their [`NewFact::derived_from`] names facts of the group.
    pub facts: Vec<NewFact>,
    /// A fresh id, from which the ids of the ends of the group's earlier conclusions are made.
    pub ends: InvalidationId,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsolidationOutcome {
    Committed,
    /// The job has ended, or its turn no longer stands.
    Fenced,
    /// The group's facts have changed meanwhile, or another job has consolidated them. Nothing was written.
    FactsChanged,
}

/// Consolidation. A conclusion is a fact with a job as cause. It is valid while all facts that the model has read for it are
/// valid and say the same; then the premises' importance is lower. The premises of a conclusion that a person has changed or
/// removed are in no list.
#[async_trait]
pub trait ConsolidationStore: Send + Sync {
    /// Returns worlds that were never looked through, or not since `before`.
    async fn list_worlds_to_scan(
        &self,
        scope: &TenantScope,
        before: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<WorldId>>;
    async fn mark_scanned(&self, scope: &TenantScope, world: &WorldId, now: DateTime<Utc>) -> StoreResult<()>;
    /// Ends the conclusions of a world that have expired by `now`, so that their premises have their importance again. `ends` is
    /// a fresh id, from which the ids of the ends are made.
    async fn end_expired_conclusions(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        ends: InvalidationId,
        now: DateTime<Utc>,
    ) -> StoreResult<()>;
    /// Returns facts without an end that turns before `until` have taught, in the order of audience, time and id, from
    /// behind `after`.
    async fn list_taught_facts(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        after: Option<&ScanPlace>,
        until: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<Fact>>;
    /// Returns facts without an end that the turn has taught.
    async fn list_facts_of_turn(&self, scope: &TenantScope, turn: TurnId) -> StoreResult<Vec<Fact>>;
    /// Returns the oldest [`MAX_FACTS_OF_WEEK`] facts without an end that turns of the week have taught to the audience.
    async fn list_facts_of_week(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        audience: &Audience,
        week: Week,
    ) -> StoreResult<Vec<Fact>>;
    /// Returns the hash of the facts from which each group of a world was consolidated last.
    async fn load_consolidated(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<HashMap<GroupKey, String>>;
    /// Returns the hash of the facts from which a group was consolidated last.
    async fn load_material(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        group: &GroupKey,
    ) -> StoreResult<Option<String>>;
    /// Queues the consolidation of the groups of a turn's facts, as job `job`. Returns `false` if the turn does not stand,
    /// or if its job is pending or dead.
    async fn queue_consolidation(
        &self,
        scope: &TenantScope,
        turn: TurnId,
        job: JobId,
        now: DateTime<Utc>,
    ) -> StoreResult<bool>;
    /// Ends the group's earlier conclusions, and stores the new ones. The job stays pending.
    async fn commit_consolidation(
        &self,
        scope: &TenantScope,
        commit: &ConsolidationCommit,
    ) -> StoreResult<ConsolidationOutcome>;
}
