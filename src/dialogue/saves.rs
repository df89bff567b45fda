//! Saves of a world: how to take and restore a save (docs/internals/rewinds.md).
//!
//! The ledger does either in one transaction; this module then updates the copies. A save does not contain data of
//! other owners: facts and corrections by people, progress, events of the game's backend, and authored content.

use futures_util::{StreamExt as _, stream};

use super::Services;
use colloquy_core::{
    ids::{DialogueId, SaveId, WorldId},
    scope::{Principal, TenantScope},
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        audit::Edit,
        saves::{NewSave, RestoreCommit, RestoreOutcome, SaveOutcome},
    },
};

/// The number of buffers removed in parallel.
const CONCURRENT_REMOVALS: usize = 16;

#[derive(Debug, Clone)]
pub struct RestoreRequest {
    pub scope: TenantScope,
    pub world: WorldId,
    pub save: SaveId,
    /// The idempotency key, unique in a world. Makes a retry safe.
    pub key: Option<String>,
    /// See [`RestoreCommit::seq_gap`].
    pub seq_gap: u64,
    pub who: Principal,
}

/// Takes a save of all dialogues of a world at one moment. A running turn is not part of the save.
///
/// # Errors
/// If the ledger cannot be reached. Nothing was written then.
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
        edit: Edit::made_by(who, &services.ids, services.clock.now(), "save.create", id)
            .within(services.models.budgets().authored_limits(&who.tenant)),
    };
    services.ledger.saves.create_save(&who.scope(), &save).await
}

/// Deletes a save. Returns `false` if the save does not exist.
///
/// # Errors
/// If the ledger cannot be reached. Nothing was written then.
pub async fn delete_save(services: &Services, who: &Principal, world: &WorldId, save: SaveId) -> StoreResult<bool> {
    let edit = Edit::made_by(who, &services.ids, services.clock.now(), "save.delete", save);
    let saves = &services.ledger.saves;
    saves.delete_save(&who.scope(), world, save, &edit).await
}

/// Restores every dialogue of a world to its head in the save, and ends dialogues that began later. The restore is
/// durable when this function returns, and running turns are fenced. The remaining work can wait:
/// [`super::rewind::reconcile_after_rewinds`].
///
/// # Errors
/// If the ledger cannot be reached. Nothing was written then.
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
        // Each removal is a round trip. The clients get their answer after the last removal.
        let rewound_ids = dialogues.iter().filter(|dialogue| dialogue.rewound.is_some());
        let rewound_ids: Vec<DialogueId> = rewound_ids.map(|dialogue| dialogue.id).collect();
        stream::iter(rewound_ids)
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
        // The buffer carries an old epoch, so no reader trusts it.
        tracing::warn!(%dialogue, %error, "the buffer of a restored dialogue could not be removed");
    }
}
