//! Several queries as one statement. A row of its result has the columns of all queries, and the values of one.

use std::fmt::Write as _;

use sqlx::{Column as _, Row as _, query::Query};

use super::{
    engine::{Arguments, Connection, Db},
    errors::store_error,
    sql::joint_read::QueryRows,
};
use colloquy_ports::StoreResult;

/// Returns one statement for several queries. The columns of a query follow a column `query0`, `query1` and so on,
/// which is true in the rows of the query. `OFFSET` keeps the planner from merging a query into the joins, so that the query
/// runs once. The nested loop of a lateral join keeps the order of its rows.
pub(super) fn join_queries(queries: &[String]) -> String {
    let mut columns = String::new();
    let mut numbers = String::new();
    let mut joins = String::new();
    for (index, query) in queries.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        // Writing to a `String` cannot fail.
        let _ = write!(columns, "{comma}r{index}.*");
        let _ = write!(numbers, "{comma}({index})");
        let _ = write!(
            joins,
            "\nLEFT JOIN LATERAL (SELECT TRUE AS query{index}, q.* FROM ({query}) q WHERE n.number = {index} OFFSET 0)
             r{index} ON TRUE"
        );
    }
    format!("SELECT {columns} FROM (VALUES {numbers}) n (number){joins}")
}

/// Runs joined queries. Returns the rows of each.
pub(super) async fn fetch_joined(
    connection: &mut Connection,
    joined: Query<'_, Db, Arguments>,
    count: usize,
) -> StoreResult<Vec<QueryRows>> {
    let rows = joined.fetch_all(connection).await.map_err(store_error)?;
    let mut results: Vec<QueryRows> = (0..count).map(|_| QueryRows::default()).collect();
    if let Some(first) = rows.first() {
        for (index, result) in results.iter_mut().enumerate() {
            let marker = first
                .try_column(format!("query{index}").as_str())
                .map_err(store_error)?;
            result.first_column = marker.ordinal() + 1;
        }
    }
    // A query without rows has a row without values.
    for row in rows {
        for result in &mut results {
            let marker: Option<bool> = row.try_get(result.first_column - 1).map_err(store_error)?;
            if marker.is_some() {
                result.rows.push(row);
                break;
            }
        }
    }
    Ok(results)
}
