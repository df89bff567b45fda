//! How large the tables are, for the planner.
//!
//! A plan that was made while a table was nearly empty reads it from end to end, and a connection keeps its
//! plans until Postgres counts the rows again. By itself it does so once a minute at best: long enough for
//! a new database under load to spend most of its time on rows that nobody asked for. So nodes look every two
//! seconds themselves, and have those tables analysed that are several times as large as they were. What
//! grows slower than that, or only changes, is left to autovacuum: after each count every connection makes its
//! plans anew, which takes longer than the statements themselves. For the same reason tables that are nearly due
//! go along with one that is: those that a turn writes grow together, and are counted together from then on.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    engine::{Connection, Engine, store_error},
    sql::RowScope,
};
use crate::ports::StoreResult;

/// Rows below which it does not matter much how a table is read.
const MIN_GROWN_ROWS: i64 = 30;
/// A table known to have so many is not read from end to end any more, and autovacuum counts it when half of it has changed.
const MAX_COUNTED_ROWS: i64 = 20_000;
/// So many times as large is grown.
const GROWTH_FACTOR: i64 = 4;
/// So many times as large goes along with one that is.
const NEAR_GROWTH_FACTOR: i64 = 3;
/// Held by the node that has tables analysed, until its transaction ends. Any number that nobody else has.
const ANALYSE_LOCK_KEY: i64 = 0x636f_6c73_7461_7473;

/// The tables of the ledger that have grown since their rows were counted, and whether this role
/// may have them counted. A table that was only vacuumed has a count, but nothing is known of its columns.
const SELECT_GROWN_TABLES: &str = "SELECT format('%I.%I', current_schema(), c.relname),
        pg_has_role(c.relowner, 'USAGE')
            OR pg_has_role((SELECT datdba FROM pg_database WHERE datname = current_database()), 'USAGE')
    FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
        AND pg_stat_get_live_tuples(c.oid) >= $1 AND c.reltuples < $3
        AND (pg_stat_get_live_tuples(c.oid) >= $2 * c.reltuples
            OR COALESCE(pg_stat_get_last_analyze_time(c.oid), pg_stat_get_last_autoanalyze_time(c.oid)) IS NULL)
    ORDER BY c.relname";

#[derive(Default)]
pub(super) struct Statistics {
    /// Whether it was said that tables belong to somebody else.
    refused: AtomicBool,
}

impl Statistics {
    /// Has the tables analysed that have grown; see `Maintenance::count_grown_tables`.
    pub(super) async fn analyse_grown_tables(&self, engine: &Engine) -> StoreResult<usize> {
        let mut reader = engine.acquire_reader(RowScope::All).await?;
        let (ours, others) = load_grown_tables(&mut reader, GROWTH_FACTOR).await?;
        drop(reader);
        if !others.is_empty() && !self.refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                tables = others.join(", "),
                "tables have grown, and the database role may not analyse them since it does not own them: \
                 until autovacuum has, statements may read far more than they need"
            );
        }
        if ours.is_empty() {
            return Ok(0);
        }
        engine
            .write_transaction(RowScope::All, |connection| Box::pin(analyse_if_alone(connection)))
            .await
    }
}

/// Tables so many times as large that this role may have analysed, and those that it may not.
async fn load_grown_tables(connection: &mut Connection, times: i64) -> StoreResult<(Vec<String>, Vec<String>)> {
    let rows: Vec<(String, bool)> = sqlx::query_as(SELECT_GROWN_TABLES)
        .bind(MIN_GROWN_ROWS)
        .bind(times)
        .bind(MAX_COUNTED_ROWS)
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    let (ours, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.1);
    let names = |rows: Vec<(String, bool)>| rows.into_iter().map(|(name, _)| name).collect();
    Ok((names(ours), names(others)))
}

async fn analyse_if_alone(connection: &mut Connection) -> StoreResult<usize> {
    let alone: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(ANALYSE_LOCK_KEY)
        .fetch_one(&mut *connection)
        .await
        .map_err(store_error)?;
    if !alone {
        return Ok(0);
    }
    // Once more: another node may just have done it.
    if load_grown_tables(connection, GROWTH_FACTOR).await?.0.is_empty() {
        return Ok(0);
    }
    let (tables, _) = load_grown_tables(connection, NEAR_GROWTH_FACTOR).await?;
    // Autovacuum may have come in between, and no names at all would mean every table.
    if tables.is_empty() {
        return Ok(0);
    }
    // Not those that autovacuum has in hand: it would give up what it does for whoever waits for it.
    let tables_of = tables.join(", ");
    let statement = format!("ANALYZE (SKIP_LOCKED) {tables_of}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
        .execute(connection)
        .await
        .map_err(store_error)?;
    tracing::debug!(tables = tables_of, "tables that have grown were analysed");
    Ok(tables.len())
}
