//! Saves of a world: one moment of all its dialogues, and the way back to it.
//!
//! A save names the last turn of every dialogue, as one transaction found them. It pins the branch that
//! ends there: what of it is unsaid later stays in the ledger, sealed from every search, until the save
//! is deleted. Restoring moves every head at once.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{
    audit::Edit,
    rewinds::{RewindRecord, RolledBack},
};
use crate::{
    ids::{DialogueId, SaveId, WorldId},
    ports::{Page, PageRequest, StoreResult},
    tenancy::TenantScope,
};

/// A save to be taken.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSave {
    pub id: SaveId,
    pub world: WorldId,
    /// May be empty.
    pub name: String,
    /// Saves that the world may have, this one included.
    pub max: u32,
    /// Its moment, its author and its audit row.
    pub edit: Edit,
}

/// A save without its dialogues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Save {
    pub id: SaveId,
    pub world: WorldId,
    pub name: String,
    pub created_at: DateTime<Utc>,
    /// How many dialogues the world had.
    pub dialogues: u32,
}

/// What came of taking a save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaveOutcome {
    Saved(Save),
    /// Nothing was written.
    NoSuchWorld,
    /// The world has as many as it may. Nothing was written.
    Full,
}

/// A save to go back to, or forward.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoreCommit {
    pub world: WorldId,
    pub save: SaveId,
    /// Makes a retry safe; unique in a world.
    pub key: Option<String>,
    /// Numbers of events that are left out before the one that tells a dialogue's listeners, times its
    /// epoch: the ledger does not know what its owner gave out for turns that were never committed.
    pub seq_gap: u64,
    /// Its moment, its author and its audit row.
    pub edit: Edit,
}

/// What a restore came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReport {
    pub save: SaveId,
    pub world: WorldId,
    pub at: DateTime<Utc>,
    /// Dialogues that are not as they were before it.
    pub changed: u32,
    /// Of these, those that were open and are closed.
    pub ended: u32,
    /// And those that were closed and are open.
    pub reopened: u32,
    pub removed_turns: u32,
    pub reinstated_turns: u32,
    pub rolled_back: RolledBack,
}

/// A dialogue that a restore changed, or took from whoever owned it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RestoredDialogue {
    pub id: DialogueId,
    /// Whether it is open now.
    pub open: bool,
    /// Nobody may write under an earlier one. Whoever took the dialogue since has a later one.
    pub epoch: u64,
    /// How its head was moved; `None`: it stands as it did, but what runs is fenced.
    pub rewound: Option<RewindRecord>,
}

/// What came of asking for a restore.
#[derive(Debug, Clone, PartialEq)]
pub enum RestoreOutcome {
    /// Every dialogue of the world stands where the save has it; whoever owned one owns it no longer.
    Done {
        restored: RestoreReport,
        dialogues: Vec<RestoredDialogue>,
    },
    /// The world has no such save. Nothing was written.
    NotFound,
    /// The key belongs to this earlier restore. Nothing was written.
    Repeated(RestoreReport),
    /// The key belongs to a restore of another save. Nothing was written.
    KeyTaken,
}

/// The saves of worlds.
#[async_trait]
pub trait SaveStore: Send + Sync {
    /// Takes a save. Durable when this returns.
    async fn create_save(&self, scope: &TenantScope, save: &NewSave) -> StoreResult<SaveOutcome>;
    async fn load_save(&self, scope: &TenantScope, world: &WorldId, id: SaveId) -> StoreResult<Option<Save>>;
    /// Newest first.
    async fn list_saves(&self, scope: &TenantScope, world: &WorldId, page: &PageRequest) -> StoreResult<Page<Save>>;
    /// Deletes a save, and what only it kept so that its turns could stand again. `false`: there is none.
    async fn delete_save(&self, scope: &TenantScope, world: &WorldId, id: SaveId, edit: &Edit) -> StoreResult<bool>;
    /// Moves every dialogue of the world to where it stood. Dialogues begun later end, and none of
    /// their turns stands. Durable when this returns.
    async fn restore_save(&self, scope: &TenantScope, restore: &RestoreCommit) -> StoreResult<RestoreOutcome>;
}
