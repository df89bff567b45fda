//! Remains of turns that were unsaid long ago: no save has the turns, and no caller can make them stand again.
//!
//! All rows that the turns caused are deleted with them. Two kinds of turns stay as empty shells:
//! - A turn with a key: keys are used once, and a repeated line gets the answer that it was unsaid.
//! - A turn at which a player joined: it shows where the joined session continues.

use chrono::{DateTime, Utc};

use super::{
    super::{
        context::{Connection, Engine},
        rows::{Columns, json_list, to_micros},
        statements::{execute, fetch_all},
    },
    first_ids::first_id,
};
use colloquy_core::ids::{EditId, FactId, RewindId, TenantId, TurnId};
use colloquy_ports::StoreResult;

/// Oldest first, except turns that a save ends in or passes through, and turns that may stand again soon. A shell has
/// no `unsaid_at`.
const OLD_UNSAID_TURNS: &str = "WITH RECURSIVE kept (id, previous) AS (
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
/// Selects the turns that were not reinstated meanwhile.
const STILL_UNSAID_TURNS: &str = concat!(
    "SELECT id FROM turns WHERE tenant = $1 AND id ",
    in_json_list!("$2"),
    " AND stands = FALSE AND unsaid_at < $3",
    for_update!()
);
/// With the conclusions from the turns' facts, which have ended with the facts.
const FACTS_OF_TURNS: &str = concat!(
    "SELECT id FROM facts WHERE tenant = $1 AND cause_id ",
    in_json_list!("$2"),
    " AND cause_kind = 'turn'
     UNION SELECT l.conclusion FROM fact_premises l",
    by_index!("fact_premises_of_fact"),
    " WHERE l.tenant = $1 AND l.premise ",
    in_subquery!(concat!(
        "SELECT f.id FROM facts f WHERE f.tenant = $1 AND f.cause_id ",
        in_json_list!("$2"),
        " AND f.cause_kind = 'turn'"
    ))
);

macro_rules! delete_listed {
    ($table:literal, $column:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE tenant = $1 AND ",
            $column,
            " ",
            in_json_list!("$2")
        )
    };
}
macro_rules! delete_caused {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            by_index!($table, "_by_cause"),
            " WHERE tenant = $1 AND cause_id ",
            in_json_list!("$2"),
            " AND cause_kind = 'turn' AND lifted_at IS NOT NULL"
        )
    };
}
/// Deletes the rows of the turns' facts. Ends of other facts caused by these facts were lifted when the facts became
/// unsaid. An end not lifted yet stays until then.
const DELETE_ROWS_OF_FACTS: [&str; 10] = [
    delete_listed!("fact_premises", "conclusion"),
    delete_listed!("fact_knowers", "fact"),
    delete_listed!("fact_embeddings", "fact"),
    delete_listed!("fact_edits", "fact"),
    delete_listed!("fact_flags", "fact"),
    delete_listed!("flag_decisions", "fact"),
    concat!(
        "DELETE FROM flag_decisions",
        by_index!("flag_decisions_of_statement"),
        " WHERE tenant = $1 AND statement ",
        in_json_list!("$2")
    ),
    delete_listed!("invalidations", "fact"),
    concat!(delete_listed!("invalidations", "by_fact"), " AND lifted_at IS NOT NULL"),
    delete_listed!("facts", "id"),
];
const DELETE_ROWS_OF_TURNS: [&str; 5] = [
    delete_listed!("checkpoints", "turn"),
    delete_listed!("traces", "turn"),
    delete_listed!("extractions", "turn"),
    concat!(
        delete_listed!("jobs", "turn"),
        " AND status <> 'pending' AND dialogue IN (SELECT t.dialogue FROM turns t WHERE t.tenant = $1 AND t.id ",
        in_json_list!("$2"),
        ")"
    ),
    delete_caused!("invalidations"),
];
macro_rules! delete_derived_rows {
    ([$($table:literal [$($dependents:expr),*],)*]
     [$($reported_table:literal $columns:literal [$($more_dependents:expr),*],)*]) => {
        &[
            $($($dependents,)* delete_caused!($table),)*
            $($($more_dependents,)* delete_caused!($reported_table),)*
        ]
    };
}
const DELETE_DERIVED_ROWS: &[&str] = derived_tables!(delete_derived_rows);
const DELETE_TURNS: [&str; 2] = [
    concat!(
        delete_listed!("turns", "id"),
        " AND key IS NULL AND NOT EXISTS (SELECT 1 FROM dialogues j WHERE j.tenant = $1 AND j.cause_id = turns.id)"
    ),
    concat!(
        "UPDATE turns SET unsaid_at = NULL, player_text = '', reply_text = '', cues = '[]', uncut_reply_text = NULL,
            uncut_until = NULL WHERE tenant = $1 AND id ",
        in_json_list!("$2")
    ),
];

/// Returns the statements that delete turns with their rows, in their order.
fn turn_statements() -> impl Iterator<Item = &'static str> {
    DELETE_ROWS_OF_TURNS
        .into_iter()
        .chain(DELETE_DERIVED_ROWS.iter().copied())
        .chain(DELETE_TURNS)
}

/// Rewinds are kept for listeners that were away, and for repeated requests with the same key.
const DELETE_OLD_REWINDS: [&str; 2] = [
    concat!(
        "DELETE FROM rewinds WHERE tenant = $1 AND id ",
        in_subquery!("SELECT id FROM rewinds WHERE tenant = $1 AND id < $2 ORDER BY id LIMIT $3")
    ),
    concat!(
        "DELETE FROM restores WHERE tenant = $1 AND id ",
        in_subquery!("SELECT id FROM restores WHERE tenant = $1 AND id < $2 ORDER BY id LIMIT $3")
    ),
];

/// Deletes turns unsaid before `before`, at most `limit`; returns the number of deleted turns and rewinds.
pub(super) async fn prune_unsaid(
    engine: &Engine,
    tenant: &TenantId,
    before: DateTime<Utc>,
    limit: u32,
) -> StoreResult<u64> {
    let limit = i64::from(limit);
    // A reader selects the turns, and the writer checks them again.
    let query = bind!(OLD_UNSAID_TURNS; tenant, to_micros(before), to_micros(engine.clock.now()), limit);
    let unsaid_turns: Vec<TurnId> = engine.fetch_all(tenant, query, |columns| columns.id()).await?;
    let tenant_id = tenant.clone();
    let unsaid_turns = json_list(&unsaid_turns);
    write_transaction!(engine, tenant, |connection| {
        delete_unsaid(connection, &tenant_id, &unsaid_turns, before, limit).await
    })
    .await
}

async fn delete_unsaid(
    connection: &mut Connection,
    tenant: &TenantId,
    unsaid_turns: &str,
    before: DateTime<Utc>,
    limit: i64,
) -> StoreResult<u64> {
    let mut deleted = 0;
    let first = [first_id::<RewindId>(before), first_id::<EditId>(before)];
    for (statement, first) in DELETE_OLD_REWINDS.into_iter().zip(first) {
        deleted += execute!(connection, statement; tenant, first, limit).await?;
    }
    let rows = fetch_all!(connection, STILL_UNSAID_TURNS; tenant, unsaid_turns, to_micros(before)).await?;
    if rows.is_empty() {
        return Ok(deleted);
    }
    deleted += rows.len() as u64;
    let turns: Vec<TurnId> = Columns::read_rows(&rows, |columns| columns.id())?;
    let turns = json_list(turns);
    let rows = fetch_all!(connection, FACTS_OF_TURNS; tenant, turns).await?;
    let facts: Vec<FactId> = Columns::read_rows(&rows, |columns| columns.id())?;
    let facts = json_list(facts);
    let of_facts = DELETE_ROWS_OF_FACTS.into_iter().map(|statement| (statement, &facts));
    for (statement, list) in of_facts.chain(turn_statements().map(|statement| (statement, &turns))) {
        execute!(connection, statement; tenant, list).await?;
    }
    Ok(deleted)
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn unsaid_rows_are_found_without_reading_the_rest() {
            let old = plan(OLD_UNSAID_TURNS).await;
            for part in [
                "turns_unsaid_at (tenant=? AND unsaid_at<?)",
                "save_items_of_dialogue (tenant=? AND dialogue=?)",
            ] {
                assert!(old.contains(part), "no `{part}` in\n{old}");
            }
            for statement in [STILL_UNSAID_TURNS, FACTS_OF_TURNS].into_iter().chain(DELETE_ROWS_OF_FACTS).chain(turn_statements()).chain(DELETE_OLD_REWINDS) {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
