//! Table statistics for the planner.
//!
//! A plan made for a nearly empty table scans the whole table, and a connection keeps its plans until Postgres analyses
//! the table again. Autovacuum does so once a minute at best. Meanwhile a new database under load would spend most of
//! its time on rows that no query needs. Therefore nodes check every two seconds, and analyse tables that are several
//! times as large as before.
//!
//! Slower growth and mere changes are left to autovacuum: after each analysis every connection plans its statements
//! again, which takes longer than the statements themselves. For the same reason tables that are nearly due are
//! analysed together with a due table. Tables written by each turn grow together, and are analysed together from then
//! on.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    engine::{Connection, Engine},
    errors::store_error,
    sql::scope::RowScope,
};
use colloquy_ports::StoreResult;

/// The number of rows below which the way of reading a table does not matter much.
const MIN_GROWN_ROWS: i64 = 30;
/// The row count from which plans no longer scan a table. Autovacuum analyses such a table when half of the rows have
/// changed.
const MAX_COUNTED_ROWS: i64 = 20_000;
/// The growth factor that makes a table due.
const GROWTH_FACTOR: i64 = 4;
/// The growth factor from which a table is analysed along with a due table.
const NEAR_GROWTH_FACTOR: i64 = 3;
/// The advisory lock of the node that analyses tables, until its transaction ends. Any number without another use.
const ANALYSE_LOCK_KEY: i64 = 0x636f_6c73_7461_7473;

/// Selects the ledger's tables grown since their last analysis, with this role's right to analyse the table. A table
/// that was only vacuumed has a row count, but no column statistics.
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
    /// True after the warning that another role owns tables.
    refused: AtomicBool,
}

impl Statistics {
    /// Analyses the tables that have grown; see `Maintenance::count_grown_tables`.
    pub(super) async fn analyse_grown_tables(&self, engine: &Engine) -> StoreResult<usize> {
        let mut reader = engine.acquire_reader(RowScope::All).await?;
        let (own_tables, foreign_tables) = load_grown_tables(&mut reader, GROWTH_FACTOR).await?;
        drop(reader);
        if !foreign_tables.is_empty() && !self.refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                tables = foreign_tables.join(", "),
                "tables have grown, and the database role may not analyse them since it does not own them: \
                 until autovacuum has, statements may read far more than they need"
            );
        }
        if own_tables.is_empty() {
            return Ok(0);
        }
        engine
            .write_transaction(RowScope::All, |connection| Box::pin(analyse_if_alone(connection)))
            .await
    }
}

/// Returns the tables grown by the factor `times`: first the tables that this role may analyse, then the others.
async fn load_grown_tables(connection: &mut Connection, times: i64) -> StoreResult<(Vec<String>, Vec<String>)> {
    let rows: Vec<(String, bool)> = sqlx::query_as(SELECT_GROWN_TABLES)
        .bind(MIN_GROWN_ROWS)
        .bind(times)
        .bind(MAX_COUNTED_ROWS)
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    let (own_rows, foreign_rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.1);
    let names = |rows: Vec<(String, bool)>| rows.into_iter().map(|(name, _)| name).collect();
    Ok((names(own_rows), names(foreign_rows)))
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
    // Checked again under the lock: another node may have finished just before.
    if load_grown_tables(connection, GROWTH_FACTOR).await?.0.is_empty() {
        return Ok(0);
    }
    let (tables, _) = load_grown_tables(connection, NEAR_GROWTH_FACTOR).await?;
    // Autovacuum may have run in between, and an empty list would analyse every table.
    if tables.is_empty() {
        return Ok(0);
    }
    // Skips tables that autovacuum is processing: autovacuum would cancel its work for a waiting lock.
    let tables_of = tables.join(", ");
    let statement = format!("ANALYZE (SKIP_LOCKED) {tables_of}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
        .execute(connection)
        .await
        .map_err(store_error)?;
    tracing::debug!(tables = tables_of, "tables that have grown were analysed");
    Ok(tables.len())
}
