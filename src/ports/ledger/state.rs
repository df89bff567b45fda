//! World state as events.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{audit::Edit, jobs::JobFence};
use crate::{
    ids::{DialogueId, StateEventId, WorldId},
    memory::{fact::Cause, state::StateChange, trace::TaskUsage},
    ports::StoreResult,
    tenancy::TenantScope,
};

/// A typed change of world state, to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStateChange {
    pub id: StateEventId,
    pub world: WorldId,
    /// The dialogue whose turn said so, if one did.
    pub dialogue: Option<DialogueId>,
    pub change: StateChange,
    pub cause: Cause,
    pub at: DateTime<Utc>,
}

/// A stored change that stands.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredStateChange {
    pub id: StateEventId,
    /// Its place in the order of writing; from 1, rising.
    pub seq: i64,
    pub change: StateChange,
    pub cause: Cause,
    pub at: DateTime<Utc>,
}

/// What stands of a world's state, from some place on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StateChanges {
    /// Rises whenever a change is taken back, or stands again: then what was folded before says nothing any
    /// more. 0 at first.
    pub generation: i64,
    /// In the order they happened (by `at`, then by `seq`): what a job writes late stands before what was
    /// said since.
    pub changes: Vec<StoredStateChange>,
}

/// World-state events.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Standing changes of a world with a `seq` above `after`; 0: all. Whatever is written once this has
    /// answered has a higher `seq` than all of the answer.
    async fn load_changes_since(&self, scope: &TenantScope, world: &WorldId, after: i64) -> StoreResult<StateChanges>;
    /// Changes extracted by a job (the fall-back of a state block that did not parse), with the job's end.
    /// `calls`: what the job used. `false`: fenced, nothing was written.
    async fn commit_changes(
        &self,
        scope: &TenantScope,
        fence: &JobFence,
        changes: &[NewStateChange],
        calls: &[TaskUsage],
    ) -> StoreResult<bool>;
    /// A change that a backend tells of, with its audit row. No interrupt takes it back.
    async fn record_change(&self, scope: &TenantScope, change: &NewStateChange, edit: &Edit) -> StoreResult<()>;
}
