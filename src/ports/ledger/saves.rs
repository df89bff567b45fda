//! Saves of a world: one moment of all its dialogues, and the way back to the moment.
//!
//! A save names the last turn of every dialogue, read in one transaction. The save pins the branch which ends there.
//! Turns of the branch unsaid later stay in the ledger, hidden from every search, until the save is deleted. A restore
//! moves every head at once.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{
    audit::Edit,
    rewinds::{RewindRecord, RolledBack},
};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{DialogueId, SaveId, WorldId},
    scope::TenantScope,
};

/// A request for a save.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSave {
    pub id: SaveId,
    pub world: WorldId,
    /// May be empty.
    pub name: String,
    /// The world's limit of saves, with this save.
    pub max: u32,
    /// The save's time, author and audit row.
    pub edit: Edit,
}

/// A save.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = SaveView)]
pub struct Save {
    #[schema(value_type = String)]
    pub id: SaveId,
    #[serde(rename = "world_id")]
    #[schema(value_type = String)]
    pub world: WorldId,
    /// Empty if the save has no name.
    pub name: String,
    pub created_at: DateTime<Utc>,
    /// Number of the world's dialogues at that time, closed dialogues included.
    pub dialogues: u32,
}

/// The outcome of taking a save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaveOutcome {
    Saved(Save),
    /// The world does not exist. The store wrote no row.
    NoSuchWorld,
    /// The world has reached its limit of saves. The store wrote no row.
    Full,
}

/// A restore of an earlier or a later save.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoreCommit {
    pub world: WorldId,
    pub save: SaveId,
    /// Makes a retry safe; unique in a world.
    pub key: Option<String>,
    /// The gap, times the dialogue's new epoch, before the `seq` of the event about the restore. The ledger does not
    /// know the numbers which the owner gave to events of uncommitted turns.
    pub seq_gap: u64,
    /// The restore's time, author and audit row.
    pub edit: Edit,
}

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReport {
    pub save: SaveId,
    pub world: WorldId,
    #[serde(rename = "at")]
    pub restored_at: DateTime<Utc>,
    /// Dialogues changed by the restore.
    pub changed: u32,
    /// Of the changed dialogues: open before, closed now.
    #[serde(rename = "ended")]
    pub ended_dialogues: u32,
    /// Of the changed dialogues: closed before, open now.
    pub reopened: u32,
    pub removed_turns: u32,
    pub reinstated_turns: u32,
    pub rolled_back: RolledBack,
}

/// A dialogue which a restore changed, or took from its owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RestoredDialogue {
    pub id: DialogueId,
    /// True if the dialogue is open now.
    pub open: bool,
    /// The new epoch: writes under an earlier epoch are refused. A later owner has a later epoch.
    pub epoch: u64,
    /// The rewind of the dialogue; `None`: the head is unchanged, but running turns are fenced.
    pub rewound: Option<RewindRecord>,
}

/// The outcome of a restore request.
#[derive(Debug, Clone, PartialEq)]
pub enum RestoreOutcome {
    /// Every dialogue of the world is at the saved head, and every former owner has lost ownership.
    Done {
        restored: RestoreReport,
        dialogues: Vec<RestoredDialogue>,
    },
    /// The world has no such save. The store wrote no row.
    NotFound,
    /// The key belongs to this earlier restore. The store wrote no row.
    Repeated(RestoreReport),
    /// The key belongs to a restore of another save. The store wrote no row.
    KeyTaken,
}

/// The saves of worlds.
#[async_trait]
pub trait SaveStore: Send + Sync {
    /// Takes a save. Durable when the call returns.
    async fn create_save(&self, scope: &TenantScope, save: &NewSave) -> StoreResult<SaveOutcome>;
    async fn load_save(&self, scope: &TenantScope, world: &WorldId, id: SaveId) -> StoreResult<Option<Save>>;
    /// Returns saves, newest first.
    async fn list_saves(&self, scope: &TenantScope, world: &WorldId, page: &PageRequest) -> StoreResult<Page<Save>>;
    /// Deletes a save, and the data retained only for its turns. Returns `false` if the save does not exist.
    async fn delete_save(&self, scope: &TenantScope, world: &WorldId, id: SaveId, edit: &Edit) -> StoreResult<bool>;
    /// Moves every dialogue of the world to its saved head. Later dialogues are closed, and all their turns become
    /// unsaid. Durable when the call returns.
    async fn restore_save(&self, scope: &TenantScope, restore: &RestoreCommit) -> StoreResult<RestoreOutcome>;
}
