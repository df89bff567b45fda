//! What is left of turns that were taken back long ago: no save has them, and nobody can have them stand
//! again.
//!
//! Everything they caused goes with them. A turn that has a key stays as its empty shell, since a key is
//! used once: whoever repeats its line is told that it was taken back.

use chrono::{DateTime, Utc};
use sqlx::SqliteConnection;

use crate::{
    adapters::sqlite::{
        Engine,
        rows::{Columns, json_list, micros, store_error},
    },
    ids::{EditId, FactId, RewindId, TenantId, TurnId},
    ports::StoreResult,
};

use super::first_id;

/// Oldest first, but for those that a save ends in or goes through, and those that are about to stand
/// again. A shell has no `unsaid_at`.
const OLD: &str = "WITH RECURSIVE kept (id, previous) AS (
        SELECT t.id, t.previous FROM (
                SELECT DISTINCT dialogue FROM turns WHERE tenant = $1 AND stands = 0 AND unsaid_at < $2) g
            CROSS JOIN save_items i ON i.tenant = $1 AND i.dialogue = g.dialogue
            CROSS JOIN turns t ON t.tenant = $1 AND t.id = i.turn AND t.stands = 0
        UNION
        SELECT t.id, t.previous FROM kept k
            CROSS JOIN turns t ON t.tenant = $1 AND t.id = k.previous AND t.stands = 0)
    SELECT t.id FROM turns t CROSS JOIN dialogues d ON d.tenant = $1 AND d.id = t.dialogue
    WHERE t.tenant = $1 AND t.stands = 0 AND t.unsaid_at < $2 AND t.id NOT IN (SELECT id FROM kept)
      AND d.replacing IS DISTINCT FROM t.id
      AND NOT EXISTS (SELECT 1 FROM turns h WHERE h.tenant = $1 AND h.id = d.head_turn_id AND h.replaces = t.id
                      AND h.uncut_until > $3)
    ORDER BY t.unsaid_at LIMIT $4";
/// Those among them that were not said again meanwhile.
const STILL: &str = "SELECT id FROM turns WHERE tenant = $1 AND id IN (SELECT value FROM json_each($2))
    AND stands = 0 AND unsaid_at < $3";
const FACTS: &str = "SELECT id FROM facts
    WHERE tenant = $1 AND cause_id IN (SELECT value FROM json_each($2)) AND cause_kind = 'turn'";
/// What a fact that still stands owes to one of these was lifted when it was unsaid; where it was not yet,
/// it stays until it is.
const OF_FACTS: [&str; 7] = [
    "DELETE FROM fact_knowers WHERE tenant = $1 AND fact IN (SELECT value FROM json_each($2))",
    "DELETE FROM fact_embeddings WHERE tenant = $1 AND fact IN (SELECT value FROM json_each($2))",
    "DELETE FROM fact_edits WHERE tenant = $1 AND fact IN (SELECT value FROM json_each($2))",
    "DELETE FROM fact_flags WHERE tenant = $1 AND fact IN (SELECT value FROM json_each($2))",
    "DELETE FROM invalidations WHERE tenant = $1 AND fact IN (SELECT value FROM json_each($2))",
    "DELETE FROM invalidations WHERE tenant = $1 AND by_fact IN (SELECT value FROM json_each($2))
        AND lifted_at IS NOT NULL",
    "DELETE FROM facts WHERE tenant = $1 AND id IN (SELECT value FROM json_each($2))",
];
macro_rules! caused {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " INDEXED BY ",
            $table,
            "_by_cause WHERE tenant = $1 AND cause_id IN (SELECT value FROM json_each($2)) AND cause_kind = 'turn'
              AND lifted_at IS NOT NULL"
        )
    };
}
const OF_TURNS: [&str; 13] = [
    "DELETE FROM checkpoints WHERE tenant = $1 AND turn IN (SELECT value FROM json_each($2))",
    "DELETE FROM traces WHERE tenant = $1 AND turn IN (SELECT value FROM json_each($2))",
    "DELETE FROM extractions WHERE tenant = $1 AND turn IN (SELECT value FROM json_each($2))",
    "DELETE FROM jobs WHERE tenant = $1 AND turn IN (SELECT value FROM json_each($2)) AND status <> 'pending'
        AND dialogue IN (SELECT t.dialogue FROM turns t
            WHERE t.tenant = $1 AND t.id IN (SELECT value FROM json_each($2)))",
    caused!("invalidations"),
    caused!("fact_flags"),
    caused!("summaries"),
    caused!("summary_changes"),
    caused!("state_events"),
    caused!("narrative_memory"),
    caused!("curation_findings"),
    "DELETE FROM turns WHERE tenant = $1 AND id IN (SELECT value FROM json_each($2)) AND key IS NULL",
    "UPDATE turns SET unsaid_at = NULL, player_text = '', reply_text = '', cues = '[]', uncut_reply_text = NULL,
        uncut_until = NULL
     WHERE tenant = $1 AND id IN (SELECT value FROM json_each($2))",
];
/// Moves are told to listeners who were away, and to those who ask again with the same key.
const MOVES: [&str; 2] = [
    "DELETE FROM rewinds WHERE tenant = $1 AND id IN (
        SELECT id FROM rewinds WHERE tenant = $1 AND id < $2 ORDER BY id LIMIT $3)",
    "DELETE FROM restores WHERE tenant = $1 AND id IN (
        SELECT id FROM restores WHERE tenant = $1 AND id < $2 ORDER BY id LIMIT $3)",
];

/// Deletes what was unsaid before `before`, `limit` turns at most; how many turns and moves went.
pub(super) async fn prune(engine: &Engine, tenant: &TenantId, before: DateTime<Utc>, limit: u32) -> StoreResult<u64> {
    let limit = i64::from(limit);
    // Which ones is found out beside the writer, and asked once more there.
    let old: Vec<TurnId> = {
        let mut connection = engine.read().await?;
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
    let tenant = tenant.clone();
    engine
        .write(move |connection| {
            let (old, tenant) = (json_list(&old), tenant.clone());
            Box::pin(async move { delete(connection, &tenant, &old, before, limit).await })
        })
        .await
}

async fn delete(
    connection: &mut SqliteConnection,
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
