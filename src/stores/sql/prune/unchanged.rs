//! Rows without effect: sessions without a turn, and records of rewinds with no turn to undo.
//!
//! A holder of a player's token can create such rows as fast as the limits allow, so the rows are deleted long before
//! turns.

use chrono::{DateTime, Utc};

use super::{
    super::{
        context::{Connection, Engine},
        rows::{Columns, json_list, to_micros},
        statements::{execute, fetch_all},
    },
    first_ids::{first_id, first_ulid},
};
use colloquy_core::ids::{DialogueId, DialogueKind, NpcId, RewindId, TenantId, WorldId};
use colloquy_ports::StoreResult;

/// True if the dialogue `d` is in no node's memory, in no save, and without turns, even unsaid turns. An owner renews
/// its ownership while the dialogue is loaded, so an owner without a renewal since `$3` is gone. Scalar subqueries make
/// the engine look up each row; in a join, Postgres would read all of both tables.
macro_rules! nothing_was_said {
    () => {
        "d.head_turn = 0 AND d.head_turn_id IS NULL AND d.replacing IS NULL AND (d.owner_node IS NULL OR d.owner_until < $3)
        AND (SELECT 1 FROM turns t WHERE t.tenant = $1 AND t.dialogue = d.id AND t.stands = FALSE LIMIT 1) IS NULL
        AND (SELECT 1 FROM save_items i WHERE i.tenant = $1 AND i.dialogue = d.id LIMIT 1) IS NULL"
    };
}
/// All sessions by id: ids begin with their creation time, so no index is needed for deletion alone.
const SILENT_SESSIONS: &str = concat!(
    "SELECT d.id FROM dialogues d WHERE d.tenant = $1 AND d.id >= 'ses_' AND d.id < $2 AND ",
    nothing_was_said!(),
    " ORDER BY d.id LIMIT $4"
);
/// Locks the sessions, so that a concurrent opening or save comes first or waits. A separate statement, because only
/// the next statement sees commits made while this one waited.
const LOCK_SESSIONS: &str = concat!(
    "SELECT id FROM dialogues WHERE tenant = $1 AND id ",
    in_json_list!("$2"),
    " ORDER BY id",
    for_update!()
);
/// Selects the sessions not opened, saved or spoken in since.
const STILL_SILENT_SESSIONS: &str = concat!(
    "SELECT d.id, d.world, d.npcs, d.witnesses FROM dialogues d WHERE d.tenant = $1 AND d.id ",
    in_json_list!("$2"),
    " AND ",
    nothing_was_said!()
);
const DELETE_PARTICIPANTS: &str = concat!(
    "DELETE FROM participants WHERE tenant = $1 AND world = $2 AND npc ",
    in_json_list!("$3"),
    " AND part IN ('speaker', 'witness') AND dialogue = $4"
);
const DELETE_SESSIONS: [&str; 2] = [
    concat!(
        "DELETE FROM rewinds WHERE tenant = $1 AND dialogue ",
        in_json_list!("$2")
    ),
    concat!("DELETE FROM dialogues WHERE tenant = $1 AND id ", in_json_list!("$2")),
];
/// Selects stored outcomes without effect: no turn was undone, and no reply with text was cut. Rows of earlier builds
/// have no `kind`.
const NO_OP_REWINDS: &str = concat!(
    "SELECT id FROM rewinds r WHERE tenant = $1 AND id < $2 AND seq = 0 AND (CASE WHEN ",
    member_of!("r.outcome", "kind"),
    " IS NULL THEN CAST(",
    member_of!("r.outcome", "seq"),
    " AS TEXT) = '0' AND COALESCE(CAST(",
    member_of!("r.outcome", "heard_chars"),
    " AS TEXT), '0') = '0' ELSE ",
    member_of!("r.outcome", "kind"),
    " IN ('idle', 'dropped') END) ORDER BY id LIMIT $3"
);
const DELETE_NO_OP_REWINDS: &str = concat!("DELETE FROM rewinds WHERE tenant = $1 AND id ", in_json_list!("$2"));

/// Returns the first session id that can have been created at `moment` or later.
fn first_session_id(moment: DateTime<Utc>) -> String {
    DialogueId::new(DialogueKind::Session, first_ulid(moment)).to_string()
}

/// Deletes unchanged rows from before `before`, at most `limit` rows of each kind; returns the number of deleted rows.
pub(super) async fn prune_unchanged(
    engine: &Engine,
    tenant: &TenantId,
    before: DateTime<Utc>,
    limit: u32,
) -> StoreResult<u64> {
    let limit = i64::from(limit);
    // A reader selects the rows, and the writer checks them again.
    let silent = bind!(SILENT_SESSIONS; tenant, first_session_id(before), to_micros(before), limit);
    let no_op = bind!(NO_OP_REWINDS; tenant, first_id::<RewindId>(before), limit);
    let sessions: Vec<String> = engine.fetch_all(tenant, silent, |columns| columns.next()).await?;
    let answers: Vec<String> = engine.fetch_all(tenant, no_op, |columns| columns.next()).await?;
    if sessions.is_empty() && answers.is_empty() {
        return Ok(0);
    }
    let tenant_id = tenant.clone();
    let sessions = json_list(&sessions);
    let answers = json_list(&answers);
    write_transaction!(engine, tenant, |connection| {
        let deleted = delete_sessions(connection, &tenant_id, &sessions, before).await?;
        Ok(deleted + execute!(connection, DELETE_NO_OP_REWINDS; tenant_id, answers).await?)
    })
    .await
}

async fn delete_sessions(
    connection: &mut Connection,
    tenant: &TenantId,
    sessions: &str,
    before: DateTime<Utc>,
) -> StoreResult<u64> {
    fetch_all!(connection, LOCK_SESSIONS; tenant, sessions).await?;
    let rows = fetch_all!(connection, STILL_SILENT_SESSIONS; tenant, sessions, to_micros(before)).await?;
    let mut deleted = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut columns = Columns::new(row);
        let id: DialogueId = columns.id()?;
        let world: WorldId = columns.id()?;
        let mut npcs: Vec<NpcId> = columns.json()?;
        let witnesses: Vec<NpcId> = columns.json()?;
        npcs.extend(witnesses);
        execute!(connection, DELETE_PARTICIPANTS; tenant, world, json_list(&npcs), id).await?;
        deleted.push(id);
    }
    let list = json_list(&deleted);
    for statement in DELETE_SESSIONS {
        execute!(connection, statement; tenant, list).await?;
    }
    Ok(deleted.len() as u64)
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn unchanged_rows_are_found_without_reading_the_rest() {
            let sessions = ["(tenant=? AND id>? AND id<?)", "turns_unsaid_of_dialogue", "save_items_of_dialogue"];
            assert_searches(SILENT_SESSIONS, &sessions).await;
            assert_searches(NO_OP_REWINDS, &["(tenant=? AND id<?)"]).await;
            for statement in [LOCK_SESSIONS, STILL_SILENT_SESSIONS, DELETE_PARTICIPANTS, DELETE_NO_OP_REWINDS].into_iter().chain(DELETE_SESSIONS) {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
