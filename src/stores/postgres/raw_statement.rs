//! Statements that are not prepared.

use std::sync::Arc;

use super::{connection::Connection, errors::store_error};
use colloquy_ports::StoreResult;

pub(super) async fn execute_raw(connection: &mut Connection, statement: Arc<str>) -> StoreResult<()> {
    // Not a prepared statement, because a prepared statement is limited to a single command.
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}
