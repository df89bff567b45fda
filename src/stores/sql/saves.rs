//! Saves: the heads of a world's dialogues, and restoring all dialogues to them.

use std::sync::Arc;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::{
    audit,
    authored_size::Growth,
    context::{Connection, Engine, acquire_lock},
    ownership,
    pages::{fetch_page, page_cursor, page_row_limit},
    rewinds::{self, rewind_head},
    rows::{Columns, json_list, to_json, to_micros, without_nul},
    scope::LedgerLock,
    state,
    statements::{execute, fetch_all, fetch_optional, fetch_scalar},
    webhooks::events::{Event, end_event, write_events},
};
use colloquy_core::{
    ids::{AuditId, DialogueId, DialogueKind, EditId, RewindId, SaveId, TenantId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_ports::{
    Page, PageRequest, StoreError, StoreResult,
    ledger::{
        audit::Edit,
        rewinds::{RewindCommit, RewindOrigin, RewindRecord, RolledBack},
        saves::{
            NewSave, RestoreCommit, RestoreOutcome, RestoreReport, RestoredDialogue, Save, SaveOutcome, SaveStore,
        },
    },
};

pub(super) struct SqlSaveStore(pub(super) Arc<Engine>);

/// Reads the `paused` member as JSON; a missing member means `false`.
macro_rules! is_paused {
    ($options:literal) => {
        concat!("COALESCE(CAST(", json_of!($options), " -> 'paused' AS TEXT), 'false')")
    };
}

const WORLD_EXISTS: &str = "SELECT 1 FROM worlds WHERE tenant = $1 AND id = $2 AND deleted_at IS NULL";
const COUNT_SAVES: &str = "SELECT COUNT(*) FROM saves WHERE tenant = $1 AND world = $2";
/// A reply being regenerated is saved in its old form, which stands until the replacement is committed. The row locks
/// order a concurrent replacement: the commit comes before the save, or finds that the save contains the old reply.
const INSERT_SAVE_ITEMS: &str = concat!(
    "INSERT INTO save_items (tenant, save, dialogue, turn, status, paused)
     SELECT tenant, $3, id, COALESCE(replacing, head_turn_id), status, ",
    is_paused!("options"),
    " FROM dialogues WHERE tenant = $1 AND world = $2",
    for_share!()
);
const INSERT_SAVE: &str = "INSERT INTO saves (tenant, id, world, name, dialogues, cause_kind, cause_id, created_at)
    VALUES ($1, $2, $3, $4, $5, 'edit', $6, $7)";
const SAVE_BY_ID: &str = "SELECT id, world, name, dialogues, created_at FROM saves
    WHERE tenant = $1 AND world = $2 AND id = $3";
const LIST: &str = "SELECT id, world, name, dialogues, created_at FROM saves
    WHERE tenant = $1 AND world = $2
      AND ($3 IS NULL OR (created_at, id) < (SELECT created_at, id FROM saves WHERE tenant = $1 AND id = $3))
    ORDER BY created_at DESC, id DESC LIMIT $4";
const DELETE_SAVE: &str = "DELETE FROM saves WHERE tenant = $1 AND world = $2 AND id = $3";
const DELETE_SAVE_ITEMS: &str = "DELETE FROM save_items WHERE tenant = $1 AND save = $2 RETURNING turn";
/// Deletes checkpoints of the given turns and their predecessors. A checkpoint stays if its turn stands or another save
/// ends in or after its turn. Checkpoints of resumable and regenerating replies stay too.
const DELETE_UNPINNED_CHECKPOINTS: &str = concat!(
    "WITH RECURSIVE
    gone (id, previous, replaces, dialogue) AS (
        SELECT t.id, t.previous, t.replaces, t.dialogue FROM ",
    json_texts_table!("$2"),
    " v CROSS JOIN turns t WHERE t.tenant = $1 AND t.id = v.value AND t.stands = FALSE
        UNION
        SELECT t.id, t.previous, t.replaces, t.dialogue FROM gone g CROSS JOIN turns t
            WHERE t.tenant = $1 AND t.id IN (g.previous, g.replaces) AND t.stands = FALSE),
    kept (id, previous, replaces) AS (
        SELECT t.id, t.previous, t.replaces FROM (SELECT DISTINCT dialogue FROM gone) g
            CROSS JOIN save_items i CROSS JOIN turns t
            WHERE i.tenant = $1 AND i.dialogue = g.dialogue
              AND t.tenant = $1 AND t.id = i.turn AND t.stands = FALSE
        UNION
        SELECT t.id, t.previous, t.replaces FROM kept k CROSS JOIN turns t
            WHERE t.tenant = $1 AND t.id IN (k.previous, k.replaces) AND t.stands = FALSE),
    sealed (id) AS (
        SELECT t.id FROM (SELECT DISTINCT dialogue FROM gone) g CROSS JOIN turns t
            WHERE t.tenant = $1 AND t.dialogue = g.dialogue AND t.stands = TRUE AND COALESCE(t.uncut_until, 0) > 0
        UNION
        SELECT d.replacing FROM (SELECT DISTINCT dialogue FROM gone) g CROSS JOIN dialogues d
            WHERE d.tenant = $1 AND d.id = g.dialogue AND d.replacing IS NOT NULL
        UNION
        SELECT t.replaces FROM sealed s CROSS JOIN turns t
            WHERE t.tenant = $1 AND t.id = s.id AND t.replaces IS NOT NULL)
    DELETE FROM checkpoints WHERE tenant = $1 AND turn ",
    in_subquery!("SELECT id FROM gone"),
    " AND turn NOT IN (SELECT id FROM kept) AND turn NOT IN (SELECT id FROM sealed)"
);

const RESTORE_BY_KEY: &str = "SELECT outcome FROM restores WHERE tenant = $1 AND world = $2 AND key = $3";
const INSERT_RESTORE: &str = "INSERT INTO restores (tenant, id, world, save, key, outcome, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";
/// Selects the world's dialogues that differ from the save or have an owner, who may be speaking. A dialogue with a
/// `replacing` turn is included, because the turn would otherwise reappear after the restore. A saved open dialogue
/// stays closed if one of its NPCs was deleted since: NPCs are not part of a save.
const PLAN_RESTORE: &str = concat!(
    "SELECT id, head, replacing, status, wanted_head, wanted, next_seq, epoch, wanted_pause, paused FROM (
        SELECT d.id, d.head_turn_id AS head, d.replacing, d.status, d.next_seq, d.owner_epoch AS epoch,
            i.paused AS wanted_pause, ",
    is_paused!("d.options"),
    " AS paused,
            (d.owner_node IS NOT NULL OR d.replacing IS NOT NULL) AS owned, i.turn AS wanted_head,
            CASE WHEN i.status = 'open' AND NOT EXISTS (SELECT 1 FROM ",
    json_texts_table!("d.npcs"),
    " j CROSS JOIN npcs n
                    WHERE n.tenant = $1 AND n.world = d.world AND n.id = j.value AND n.deleted_at IS NOT NULL)
                THEN 'open' ELSE 'closed' END AS wanted
        FROM dialogues d LEFT JOIN save_items i ON i.tenant = $1 AND i.save = $3 AND i.dialogue = d.id
        WHERE d.tenant = $1 AND d.world = $2) p
    WHERE owned OR head IS DISTINCT FROM wanted_head OR status <> wanted OR wanted_pause <> paused"
);
/// Closes the dialogue and removes the owner: after a reopening, any node may claim the dialogue.
const CLOSE_AND_DISOWN: &str = "UPDATE dialogues SET status = 'closed', owner_node = NULL, owner_until = NULL
    WHERE tenant = $1 AND id = $2";
const FENCE_DIALOGUES: &str = concat!(
    "UPDATE dialogues SET owner_epoch = owner_epoch + 1, replacing = NULL WHERE tenant = $1 AND id ",
    in_json_list!("$2")
);

/// A dialogue with its target state from the save.
struct PlannedDialogue {
    id: DialogueId,
    to: Option<TurnId>,
    /// The turn that awaits its replacement.
    replacing: Option<TurnId>,
    was_open: bool,
    open: bool,
    moves: bool,
    next_seq: u64,
    epoch: u64,
    /// The target pause state, if the current state differs.
    pause: Option<bool>,
}

fn read_save(columns: &mut Columns<'_>) -> StoreResult<Save> {
    Ok(Save {
        id: columns.id()?,
        world: columns.id()?,
        name: columns.next()?,
        dialogues: columns.number()?,
        created_at: columns.time()?,
    })
}

fn read_planned(columns: &mut Columns<'_>) -> StoreResult<PlannedDialogue> {
    let id = columns.id()?;
    let head: Option<TurnId> = columns.maybe_id()?;
    let replacing = columns.maybe_id()?;
    let was_open = columns.next::<&str>()? == "open";
    let to = columns.maybe_id()?;
    let open = columns.next::<&str>()? == "open";
    let next_seq = columns.number()?;
    let epoch = columns.number()?;
    let wanted_pause: Option<String> = columns.next()?;
    let paused: String = columns.next()?;
    Ok(PlannedDialogue {
        id,
        to,
        replacing,
        was_open,
        open,
        moves: head != to || was_open != open,
        next_seq,
        epoch,
        pause: wanted_pause
            .filter(|wanted_pause| *wanted_pause != paused)
            .map(|wanted_pause| wanted_pause == "true"),
    })
}

async fn create_save(connection: &mut Connection, tenant: &TenantId, new_save: &NewSave) -> StoreResult<SaveOutcome> {
    acquire_lock(connection, tenant, LedgerLock::Memory(&new_save.world)).await?;
    if fetch_optional!(connection, WORLD_EXISTS; tenant, new_save.world)
        .await?
        .is_none()
    {
        return Ok(SaveOutcome::NoSuchWorld);
    }
    let save_count: i64 = fetch_scalar!(connection, COUNT_SAVES; tenant, new_save.world).await?;
    if save_count >= i64::from(new_save.max) {
        return Ok(SaveOutcome::Full);
    }
    let saved_at = state::moment_of_save(connection, tenant, &new_save.world, &new_save.edit).await?;
    let growth = Growth::begin(connection, tenant, new_save.edit.limits).await?;
    let item_count = execute!(connection, INSERT_SAVE_ITEMS; tenant, new_save.world, new_save.id).await?;
    let save = Save {
        id: new_save.id,
        world: new_save.world.clone(),
        name: new_save.name.clone(),
        created_at: saved_at,
        dialogues: u32::try_from(item_count).unwrap_or(u32::MAX),
    };
    execute!(
        connection, INSERT_SAVE;
        tenant, new_save.id, new_save.world, without_nul(&new_save.name), i64::from(save.dialogues), new_save.edit.id,
        to_micros(saved_at)
    )
    .await?;
    Growth::check(growth, connection, tenant).await?;
    audit::record_audit(connection, tenant, &new_save.edit).await?;
    Ok(SaveOutcome::Saved(save))
}

async fn delete_save(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    id: SaveId,
    edit: &Edit,
) -> StoreResult<bool> {
    acquire_lock(connection, tenant, LedgerLock::Memory(world)).await?;
    if execute!(connection, DELETE_SAVE; tenant, world, id).await? == 0 {
        return Ok(false);
    }
    let rows = fetch_all!(connection, DELETE_SAVE_ITEMS; tenant, id).await?;
    let turns: Vec<Option<TurnId>> = Columns::read_rows(&rows, |columns| columns.maybe_id())?;
    execute!(connection, DELETE_UNPINNED_CHECKPOINTS; tenant, json_list(turns.into_iter().flatten())).await?;
    audit::record_audit(connection, tenant, edit).await?;
    Ok(true)
}

async fn restore_save(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &RestoreCommit,
) -> StoreResult<RestoreOutcome> {
    acquire_lock(connection, tenant, LedgerLock::Memory(&commit.world)).await?;
    if let Some(outcome) = find_earlier_outcome(connection, tenant, commit).await? {
        return Ok(outcome);
    }
    let Some(row) = fetch_optional!(connection, SAVE_BY_ID; tenant, commit.world, commit.save).await? else {
        return Ok(RestoreOutcome::NotFound);
    };
    let saved_at = read_save(&mut Columns::new(&row))?.created_at;
    acquire_lock(connection, tenant, LedgerLock::Dialogues(&commit.world)).await?;
    let rows = fetch_all!(connection, PLAN_RESTORE; tenant, commit.world, commit.save).await?;
    let plan = Columns::read_rows(&rows, read_planned)?;
    fence_unmoved_dialogues(connection, tenant, &plan).await?;
    failpoint!("restore.fenced");
    let mut restored = RestoreReport {
        save: commit.save,
        world: commit.world.clone(),
        restored_at: commit.edit.made_at,
        changed: 0,
        ended_dialogues: 0,
        reopened: 0,
        removed_turns: 0,
        reinstated_turns: 0,
        rolled_back: RolledBack::default(),
    };
    let mut dialogues = Vec::with_capacity(plan.len());
    for planned in &plan {
        let mut restored_dialogue = RestoredDialogue {
            id: planned.id,
            open: planned.open,
            epoch: planned.epoch + 1,
            rewound: None,
        };
        if planned.moves {
            let rewound = restore_dialogue(connection, tenant, commit, planned).await?;
            add_to_totals(&mut restored, planned, &rewound);
            restored_dialogue.rewound = Some(Arc::unwrap_or_clone(rewound));
        } else if let Some(paused) = planned.pause {
            ownership::set_paused_unfenced(connection, tenant, &planned.id.to_string(), paused).await?;
        }
        dialogues.push(restored_dialogue);
        failpoint!("restore.moved");
    }
    failpoint!("restore.all_moved");
    let ended_dialogues = plan.iter().filter(|planned| planned.was_open && !planned.open);
    let events: Vec<Event> = ended_dialogues
        .map(|planned| end_event(planned.id, "restored", commit.edit.made_at))
        .collect();
    write_events(connection, tenant, &events).await?;
    state::set_clock_back(connection, tenant, &commit.world, saved_at, &commit.edit).await?;
    record_restore(connection, tenant, commit, &restored).await?;
    audit::record_audit(connection, tenant, &commit.edit).await?;
    failpoint!("restore.audited");
    Ok(RestoreOutcome::Done { restored, dialogues })
}

/// The outcome of an earlier restore with the key of this restore.
async fn find_earlier_outcome(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &RestoreCommit,
) -> StoreResult<Option<RestoreOutcome>> {
    let Some(key) = &commit.key else {
        return Ok(None);
    };
    let report = find_restore_by_key(connection, tenant, &commit.world, key).await?;
    Ok(report.map(|report| {
        if report.save == commit.save {
            RestoreOutcome::Repeated(report)
        } else {
            RestoreOutcome::KeyTaken
        }
    }))
}

/// Fences the dialogues that the restore does not rewind, and drops the checkpoints of their turns awaiting
/// regeneration.
async fn fence_unmoved_dialogues(
    connection: &mut Connection,
    tenant: &TenantId,
    plan: &[PlannedDialogue],
) -> StoreResult<()> {
    let unmoved = || plan.iter().filter(|planned| !planned.moves);
    execute!(connection, FENCE_DIALOGUES; tenant, json_list(unmoved().map(|planned| planned.id))).await?;
    for planned in unmoved() {
        if let Some(owed) = planned.replacing {
            rewinds::drop_checkpoints(connection, tenant, planned.id, [owed]).await?;
        }
    }
    Ok(())
}

fn add_to_totals(restored: &mut RestoreReport, planned: &PlannedDialogue, rewound: &RewindRecord) {
    let number = |turns: &[u32]| u32::try_from(turns.len()).unwrap_or(u32::MAX);
    let rolled_back = rewound.rolled_back;
    let totals = &mut restored.rolled_back;
    restored.changed += 1;
    restored.ended_dialogues += u32::from(planned.was_open && !planned.open);
    restored.reopened += u32::from(planned.open && !planned.was_open);
    restored.removed_turns = restored.removed_turns.saturating_add(number(&rewound.removed));
    restored.reinstated_turns = restored.reinstated_turns.saturating_add(number(&rewound.reinstated));
    totals.facts = totals.facts.saturating_add(rolled_back.facts);
    totals.restored = totals.restored.saturating_add(rolled_back.restored);
    totals.summaries = totals.summaries.saturating_add(rolled_back.summaries);
    totals.state = totals.state.saturating_add(rolled_back.state);
}

/// Brings a dialogue to its state in the save.
async fn restore_dialogue(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &RestoreCommit,
    planned: &PlannedDialogue,
) -> StoreResult<Arc<RewindRecord>> {
    let gap = commit.seq_gap.saturating_mul(planned.epoch.saturating_add(1));
    let id = derive_rewind_id(commit.edit.id, planned.id);
    let rewind = RewindCommit {
        id,
        rewound_at: commit.edit.made_at,
        dialogue: planned.id,
        world: commit.world.clone(),
        epoch: planned.epoch,
        origin: RewindOrigin::Restore { open: planned.open },
        to: planned.to,
        replacement: None,
        replacing: None,
        paused: planned.pause,
        held_until: None,
        key: None,
        other_keys: Vec::new(),
        seq: planned.next_seq.saturating_add(gap),
        edits: vec![dialogue_edit(&commit.edit, id, planned.id)],
    };
    let rewound = rewind_head(connection, tenant, &rewind)
        .await?
        .ok_or_else(|| StoreError::Corrupt(format!("a save names a turn that {} does not have", planned.id)))?;
    failpoint!("restore.head");
    if !planned.open {
        execute!(connection, CLOSE_AND_DISOWN; tenant, planned.id).await?;
    }
    Ok(rewound)
}

/// Returns the audit edit of a dialogue's rewind. The audit log thus lists all dialogues.
fn dialogue_edit(restore: &Edit, id: RewindId, dialogue: DialogueId) -> Edit {
    Edit {
        audit_id: AuditId::from_u128(id.as_u128()),
        action: match dialogue.kind() {
            DialogueKind::Session => "session.restore",
            DialogueKind::NpcConversation => "conversation.restore",
        },
        object: dialogue.to_string(),
        ..restore.clone()
    }
}

/// Derives the id of a dialogue's rewind: it sorts with the restore, is unique, and stays the same if the transaction
/// runs again.
fn derive_rewind_id(restore: EditId, dialogue: DialogueId) -> RewindId {
    /// The random part of a ULID.
    const RANDOM_BITS: u128 = (1 << 80) - 1;
    let digest: [u8; 32] = Sha256::new()
        .chain_update(restore.as_u128().to_be_bytes())
        .chain_update(dialogue.as_u128().to_be_bytes())
        .finalize()
        .into();
    let mixed = digest
        .iter()
        .take(16)
        .fold(0_u128, |bits, byte| (bits << 8) | u128::from(*byte));
    RewindId::from_u128((restore.as_u128() & !RANDOM_BITS) | (mixed & RANDOM_BITS))
}

/// Returns the report of the restore with this key.
async fn find_restore_by_key(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    key: &str,
) -> StoreResult<Option<RestoreReport>> {
    let row = fetch_optional!(connection, RESTORE_BY_KEY; tenant, world, key).await?;
    row.map(|row| Columns::new(&row).json()).transpose()
}

async fn record_restore(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &RestoreCommit,
    restored: &RestoreReport,
) -> StoreResult<()> {
    execute!(
        connection, INSERT_RESTORE;
        tenant, commit.edit.id, commit.world, commit.save, commit.key, to_json(restored)?,
        to_micros(restored.restored_at)
    )
    .await
    .map(drop)
}

#[async_trait]
impl SaveStore for SqlSaveStore {
    async fn create_save(&self, scope: &TenantScope, new_save: &NewSave) -> StoreResult<SaveOutcome> {
        let world = &new_save.world;
        let tenant = scope.tenant().clone();
        let new_save = new_save.clone();
        write_memory!(self.0, scope.tenant(), world, |connection| {
            create_save(connection, &tenant, &new_save).await
        })
        .await
    }
    async fn load_save(&self, scope: &TenantScope, world: &WorldId, id: SaveId) -> StoreResult<Option<Save>> {
        let query = bind!(SAVE_BY_ID; scope.tenant(), world, id);
        self.0.fetch_optional(scope, query, read_save).await
    }
    async fn list_saves(&self, scope: &TenantScope, world: &WorldId, page: &PageRequest) -> StoreResult<Page<Save>> {
        let query = bind!(LIST; scope.tenant(), world, page_cursor(page), page_row_limit(page));
        fetch_page(&self.0, scope, query, page, read_save, |save| save.id.to_string()).await
    }
    async fn delete_save(&self, scope: &TenantScope, world: &WorldId, id: SaveId, edit: &Edit) -> StoreResult<bool> {
        let locked_world = world;
        let tenant = scope.tenant().clone();
        let world = world.clone();
        let edit = edit.clone();
        write_memory!(self.0, scope.tenant(), locked_world, |connection| {
            delete_save(connection, &tenant, &world, id, &edit).await
        })
        .await
    }
    async fn restore_save(&self, scope: &TenantScope, commit: &RestoreCommit) -> StoreResult<RestoreOutcome> {
        let world = &commit.world;
        let tenant = scope.tenant().clone();
        let commit = commit.clone();
        write_memory!(self.0, scope.tenant(), world, |connection| {
            restore_save(connection, &tenant, &commit).await
        })
        .await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn saves_are_found_by_world_and_their_dialogues_by_both_ends() {
            for statement in [COUNT_SAVES, LIST] {
                assert_searches(statement, &["saves_newest"]).await;
            }
            assert_searches(INSERT_SAVE_ITEMS, &["dialogues_of_world"]).await;
            assert_searches(PLAN_RESTORE, &["dialogues_of_world", "sqlite_autoindex_save_items_1"]).await;
            let unpin = plan(DELETE_UNPINNED_CHECKPOINTS).await;
            assert!(
                unpin.contains("save_items_of_dialogue (tenant=? AND dialogue=?)"),
                "{unpin}"
            );
            assert_searches(RESTORE_BY_KEY, &["restores_by_key"]).await;
            for statement in [SAVE_BY_ID, DELETE_SAVE, DELETE_SAVE_ITEMS, CLOSE_AND_DISOWN, FENCE_DIALOGUES] {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
