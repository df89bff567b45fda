//! World state, stored as events.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{audit::Edit, new_job::JobFence};
use crate::StoreResult;
use colloquy_core::{
    ids::{DialogueId, StateEventId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{fact::Cause, state::StateChange, trace::TaskUsage};

/// A new typed change of world state.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStateChange {
    pub id: StateEventId,
    pub world: WorldId,
    /// The dialogue of the turn behind the change, if a turn is the cause.
    pub dialogue: Option<DialogueId>,
    pub change: StateChange,
    pub cause: Cause,
    pub changed_at: DateTime<Utc>,
}

/// A stored, standing change.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredStateChange {
    pub id: StateEventId,
    /// The change's place in the order of writes; from 1, rising.
    pub seq: i64,
    /// The dialogue of the turn behind the change, if a turn is the cause.
    pub dialogue: Option<DialogueId>,
    pub change: StateChange,
    pub cause: Cause,
    pub changed_at: DateTime<Utc>,
}

/// The standing changes of a world, from a given place on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StateChanges {
    /// Rises whenever a change or an action is rewound or stands again, which makes earlier folded results invalid. 0 at first.
    pub generation: i64,
    /// The highest `seq` of the world's actions, also of unsaid ones; 0: none.
    pub last_action: i64,
    /// In order of their events (by `changed_at`, then by `seq`). A late change of a job comes before changes said
    /// later.
    pub changes: Vec<StoredStateChange>,
}

/// World-state events.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Returns a world's standing changes with a `seq` above `after`; 0: all. Later writes have a higher `seq` than
    /// every change in the result.
    async fn load_changes_since(&self, scope: &TenantScope, world: &WorldId, after: i64) -> StoreResult<StateChanges>;
    /// Returns a world's standing changes with a `seq` of at most `seq`, in order of their events. With `lifted_after`, also
    /// the changes that were taken back later than this moment.
    async fn load_changes_until(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        seq: i64,
        lifted_after: Option<DateTime<Utc>>,
    ) -> StoreResult<Vec<StoredStateChange>>;
    /// Returns changes by their `seq`, whether they stand or were taken back, in the order of `seq`. Changes of other
    /// tenants are left out.
    async fn load_changes(&self, scope: &TenantScope, seqs: &[i64]) -> StoreResult<Vec<StoredStateChange>>;
    /// Returns a world's standing changes up to `until` (inclusive), without those of other dialogues, in order of their
    /// events. Changes by backends belong to no dialogue.
    async fn load_changes_of_dialogue(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        dialogue: DialogueId,
        until: DateTime<Utc>,
    ) -> StoreResult<Vec<StoredStateChange>>;
    /// Stores the changes extracted by a job (the fall-back for an unparsable state block), and ends the job. `calls`
    /// is the job's usage. Returns `false`, without a write, if the fence is closed.
    async fn commit_changes(
        &self,
        scope: &TenantScope,
        fence: &JobFence,
        changes: &[NewStateChange],
        calls: &[TaskUsage],
    ) -> StoreResult<bool>;
    /// Stores changes of this world reported by a backend, all or none, with the audit row. Interrupts never undo the
    /// changes.
    async fn record_changes(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        changes: &[NewStateChange],
        edit: &Edit,
    ) -> StoreResult<()>;
}
