//! Saves of a world: taking one, and going back to it (docs/design.md#interrupt-and-rewind).
//!
//! The ledger does either in one transaction; the rest here brings the copies along. What is
//! authoritative elsewhere is no part of a save: facts and corrections written by people, progress,
//! events of the game's backend, authored content.

use futures_util::{StreamExt as _, stream};

use super::Services;
use crate::{
    ids::{DialogueId, SaveId, WorldId},
    ports::{
        StoreResult,
        ledger::{
            audit::Edit,
            saves::{NewSave, RestoreCommit, RestoreOutcome, SaveOutcome},
        },
    },
    tenancy::{Principal, TenantScope},
};

/// Buffers removed side by side.
const CONCURRENT_REMOVALS: usize = 16;

/// What is to be restored, for whom.
#[derive(Debug, Clone)]
pub struct RestoreRequest {
    pub scope: TenantScope,
    pub world: WorldId,
    pub save: SaveId,
    /// Makes a retry safe; unique in a world.
    pub key: Option<String>,
    /// See [`RestoreCommit::seq_gap`].
    pub seq_gap: u64,
    pub who: Principal,
}

/// Takes a save of every dialogue of a world, as they stand at one moment. What runs then is not in it.
///
/// # Errors
/// The ledger cannot be reached; nothing was written.
pub async fn take_save(
    services: &Services,
    who: &Principal,
    world: &WorldId,
    name: String,
) -> StoreResult<SaveOutcome> {
    let id: SaveId = services.ids.next_id();
    let save = NewSave {
        id,
        world: world.clone(),
        name,
        max: services.settings.saves.max_per_world,
        edit: Edit::made_by(who, &services.ids, services.clock.now(), "save.create", id),
    };
    services.ledger.saves.create_save(&who.scope(), &save).await
}

/// Deletes a save. `false`: there is none.
///
/// # Errors
/// The ledger cannot be reached; nothing was written.
pub async fn delete_save(services: &Services, who: &Principal, world: &WorldId, save: SaveId) -> StoreResult<bool> {
    let edit = Edit::made_by(who, &services.ids, services.clock.now(), "save.delete", save);
    services
        .ledger
        .saves
        .delete_save(&who.scope(), world, save, &edit)
        .await
}

/// Puts every dialogue of a world where it stood, or ends it if it was begun since. Durable when this
/// returns; whatever ran is fenced. What is left can wait and is [`super::rewind::reconcile_after_rewinds`].
///
/// # Errors
/// The ledger cannot be reached; nothing was written.
pub async fn restore_save(services: &Services, request: RestoreRequest) -> StoreResult<RestoreOutcome> {
    let RestoreRequest { scope, world, save, .. } = &request;
    let now = services.clock.now();
    let restore = RestoreCommit {
        world: world.clone(),
        save: *save,
        key: request.key.clone(),
        seq_gap: request.seq_gap,
        edit: Edit::made_by(&request.who, &services.ids, now, "save.restore", save),
    };
    let outcome = services.ledger.saves.restore_save(scope, &restore).await?;
    if let RestoreOutcome::Done { dialogues, .. } = &outcome {
        failpoint!("restore.durable");
        // Each is a trip, and until they are done nobody is told.
        let moved = dialogues.iter().filter(|dialogue| dialogue.rewound.is_some());
        let moved: Vec<DialogueId> = moved.map(|dialogue| dialogue.id).collect();
        stream::iter(moved)
            .for_each_concurrent(CONCURRENT_REMOVALS, async |dialogue| {
                remove_buffer(services, scope, dialogue).await;
                failpoint!("restore.followed");
            })
            .await;
    }
    Ok(outcome)
}

async fn remove_buffer(services: &Services, scope: &TenantScope, dialogue: DialogueId) {
    if let Err(error) = services.buffers.remove_buffer(scope, dialogue).await {
        // It carries an epoch that the ledger left behind, so nobody believes it.
        tracing::warn!(%dialogue, %error, "the buffer of a restored dialogue could not be removed");
    }
}
