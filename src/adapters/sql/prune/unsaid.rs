//! What is left of turns that were taken back long ago: no save has them, and nobody can have them stand
//! again.
//!
//! Everything they caused goes with them. Two kinds of turns stay as their empty shells: one that has a key, since a key
//! is used once and whoever repeats its line is told that it was taken back; and one that a player joined at, since
//! it tells where the joined session goes on from.

use chrono::{DateTime, Utc};

use super::{
    super::{
        Connection, Engine, Reach,
        rows::{Columns, json_list, micros, store_error},
    },
    first_id,
};
use crate::{
    ids::{EditId, FactId, RewindId, TenantId, TurnId},
    ports::StoreResult,
};

/// Oldest first, but for those that a save ends in or goes through, and those that are about to stand
/// again. A shell has no `unsaid_at`.
const OLD: &str = "WITH RECURSIVE kept (id, previous) AS (
        SELECT t.id, t.previous FROM (
                SELECT DISTINCT dialogue FROM turns WHERE tenant = $1 AND stands = FALSE AND unsaid_at < $2) g
            CROSS JOIN save_items i CROSS JOIN turns t
            WHERE i.tenant = $1 AND i.dialogue = g.dialogue AND t.tenant = $1 AND t.id = i.turn AND t.stands = FALSE
        UNION
        SELECT t.id, t.previous FROM kept k CROSS JOIN turns t
            WHERE t.tenant = $1 AND t.id = k.previous AND t.stands = FALSE)
    SELECT t.id FROM turns t CROSS JOIN dialogues d
    WHERE t.tenant = $1 AND t.stands = FALSE AND t.unsaid_at < $2 AND d.tenant = $1 AND d.id = t.dialogue
      AND t.id NOT IN (SELECT id FROM kept) AND d.replacing IS DISTINCT FROM t.id
      AND NOT EXISTS (SELECT 1 FROM turns h WHERE h.tenant = $1 AND h.id = d.head_turn_id AND h.replaces = t.id
                      AND h.uncut_until > $3)
    ORDER BY t.unsaid_at LIMIT $4";
/// Those among them that were not said again meanwhile.
const STILL: &str = concat!(
    "SELECT id FROM turns WHERE tenant = $1 AND id ",
    among!("$2"),
    " AND stands = FALSE AND unsaid_at < $3",
    for_update!()
);
const FACTS: &str = concat!(
    "SELECT id FROM facts WHERE tenant = $1 AND cause_id ",
    among!("$2"),
    " AND cause_kind = 'turn'"
);

macro_rules! listed {
    ($table:literal, $column:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE tenant = $1 AND ",
            $column,
            " ",
            among!("$2")
        )
    };
}
macro_rules! caused {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            by_index!($table, "_by_cause"),
            " WHERE tenant = $1 AND cause_id ",
            among!("$2"),
            " AND cause_kind = 'turn' AND lifted_at IS NOT NULL"
        )
    };
}
/// What a fact that still stands owes to one of these was lifted when it was unsaid; where it was not yet,
/// it stays until it is.
const OF_FACTS: [&str; 7] = [
    listed!("fact_knowers", "fact"),
    listed!("fact_embeddings", "fact"),
    listed!("fact_edits", "fact"),
    listed!("fact_flags", "fact"),
    listed!("invalidations", "fact"),
    concat!(listed!("invalidations", "by_fact"), " AND lifted_at IS NOT NULL"),
    listed!("facts", "id"),
];
const OF_TURNS: [&str; 13] = [
    listed!("checkpoints", "turn"),
    listed!("traces", "turn"),
    listed!("extractions", "turn"),
    concat!(
        listed!("jobs", "turn"),
        " AND status <> 'pending' AND dialogue IN (SELECT t.dialogue FROM turns t WHERE t.tenant = $1 AND t.id ",
        among!("$2"),
        ")"
    ),
    caused!("invalidations"),
    caused!("fact_flags"),
    caused!("summaries"),
    caused!("summary_changes"),
    caused!("state_events"),
    caused!("narrative_memory"),
    caused!("curation_findings"),
    concat!(
        listed!("turns", "id"),
        " AND key IS NULL AND NOT EXISTS (SELECT 1 FROM dialogues j WHERE j.tenant = $1 AND j.cause_id = turns.id)"
    ),
    concat!(
        "UPDATE turns SET unsaid_at = NULL, player_text = '', reply_text = '', cues = '[]', uncut_reply_text = NULL,
            uncut_until = NULL WHERE tenant = $1 AND id ",
        among!("$2")
    ),
];
/// Moves are told to listeners who were away, and to those who ask again with the same key.
const MOVES: [&str; 2] = [
    concat!(
        "DELETE FROM rewinds WHERE tenant = $1 AND id ",
        any_of!("SELECT id FROM rewinds WHERE tenant = $1 AND id < $2 ORDER BY id LIMIT $3")
    ),
    concat!(
        "DELETE FROM restores WHERE tenant = $1 AND id ",
        any_of!("SELECT id FROM restores WHERE tenant = $1 AND id < $2 ORDER BY id LIMIT $3")
    ),
];

/// Deletes what was unsaid before `before`, `limit` turns at most; how many turns and moves went.
pub(super) async fn prune(engine: &Engine, tenant: &TenantId, before: DateTime<Utc>, limit: u32) -> StoreResult<u64> {
    let limit = i64::from(limit);
    // Which ones is found out beside the writer, and asked once more there.
    let old: Vec<TurnId> = {
        let mut connection = engine.read(tenant).await?;
        let rows = sqlx::query(OLD)
            .bind(tenant.as_str())
            .bind(micros(before))
            .bind(micros(engine.clock.now()))
            .bind(limit)
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter()
            .map(|row| Columns::of(row).id())
            .collect::<StoreResult<_>>()?
    };
    let reach = Reach::from(tenant);
    let (tenant, old) = (tenant.clone(), json_list(&old));
    engine
        .write(reach, move |connection| {
            Box::pin(async move { delete(connection, &tenant, &old, before, limit).await })
        })
        .await
}

async fn delete(
    connection: &mut Connection,
    tenant: &TenantId,
    old: &str,
    before: DateTime<Utc>,
    limit: i64,
) -> StoreResult<u64> {
    let mut deleted = 0;
    let first = [first_id::<RewindId>(before), first_id::<EditId>(before)];
    for (statement, first) in MOVES.into_iter().zip(first) {
        let moves = sqlx::query(statement).bind(tenant.as_str()).bind(first).bind(limit);
        deleted += moves
            .execute(&mut *connection)
            .await
            .map_err(store_error)?
            .rows_affected();
    }
    let rows = sqlx::query(STILL)
        .bind(tenant.as_str())
        .bind(old)
        .bind(micros(before))
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    if rows.is_empty() {
        return Ok(deleted);
    }
    deleted += rows.len() as u64;
    let turns = rows
        .iter()
        .map(|row| Columns::of(row).id::<TurnId>())
        .collect::<StoreResult<Vec<_>>>()?;
    let turns = json_list(turns);
    let rows = sqlx::query(FACTS)
        .bind(tenant.as_str())
        .bind(&turns)
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    let facts = rows
        .iter()
        .map(|row| Columns::of(row).id::<FactId>())
        .collect::<StoreResult<Vec<_>>>()?;
    let facts = json_list(facts);
    let of_facts = OF_FACTS.into_iter().map(|statement| (statement, &facts));
    for (statement, list) in of_facts.chain(OF_TURNS.into_iter().map(|statement| (statement, &turns))) {
        sqlx::query(statement)
            .bind(tenant.as_str())
            .bind(list)
            .execute(&mut *connection)
            .await
            .map_err(store_error)?;
    }
    Ok(deleted)
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn what_was_unsaid_is_found_without_reading_the_rest() {
            let old = plan(OLD).await;
            for part in [
                "turns_unsaid_at (tenant=? AND unsaid_at<?)",
                "save_items_of_dialogue (tenant=? AND dialogue=?)",
            ] {
                assert!(old.contains(part), "no `{part}` in\n{old}");
            }
            for statement in [STILL, FACTS].into_iter().chain(OF_FACTS).chain(OF_TURNS).chain(MOVES) {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
