//! Several queries in one trip to SQLite's thread.

use futures_util::TryStreamExt as _;
use sqlx::{Either, Executor as _, query::Query};

use super::{
    engine::{Arguments, Connection, Db},
    errors::store_error,
    sql::joint_read::QueryRows,
};
use colloquy_ports::StoreResult;

/// Returns the text of several queries, which share the bound values.
pub(super) fn join_queries(queries: &[String]) -> String {
    queries.join(";\n")
}

/// Runs joined queries. Returns the rows of each.
pub(super) async fn fetch_joined(
    connection: &mut Connection,
    joined: Query<'_, Db, Arguments>,
    count: usize,
) -> StoreResult<Vec<QueryRows>> {
    let mut results = Vec::with_capacity(count);
    let mut current = QueryRows::default();
    let mut steps = connection.fetch_many(joined);
    while let Some(step) = steps.try_next().await.map_err(store_error)? {
        match step {
            Either::Right(row) => current.rows.push(row),
            // The end of a query.
            Either::Left(_) => results.push(std::mem::take(&mut current)),
        }
    }
    if results.len() != count {
        let message = format!("{count} queries had {} results", results.len());
        return Err(store_error(sqlx::Error::Protocol(message)));
    }
    Ok(results)
}
