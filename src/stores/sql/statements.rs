//! How a statement runs: values are bound in order, and an error of the engine becomes a `StoreError`.
//!
//! `execute!(connection, DELETE_FACT; tenant, id).await?` is short for
//!
//! ```text
//! sqlx::query(DELETE_FACT)
//!     .bind(&tenant)
//!     .bind(&id)
//!     .execute(&mut *connection)
//!     .await
//!     .map_err(store_error)?
//!     .rows_affected()
//! ```
//!
//! | macro | result |
//! | --- | --- |
//! | `execute!` | the number of changed rows |
//! | `fetch_all!` | all rows |
//! | `fetch_one!` | the single row |
//! | `fetch_optional!` | the first row, if there is one |
//! | `fetch_scalar!` | the first column of the single row |
//! | `bind!` | the query, not yet sent |
//!
//! A file imports the function behind each macro that it uses. Values are bound by reference; ids are bound as text.

use sqlx::{Decode, Row as _, Type, query::Query};

use super::{Arguments, Connection, Db, Row, store_error};
use colloquy_ports::StoreResult;

/// Binds values to a statement: the first to `$1`, the second to `$2`, and so on.
macro_rules! bind {
    ($statement:expr $(; $($value:expr),+ $(,)?)?) => {
        sqlx::query($statement)$($(.bind(&$value))+)?
    };
}
macro_rules! execute {
    ($connection:expr, $($query:tt)+) => {
        execute(&mut *$connection, bind!($($query)+))
    };
}
macro_rules! fetch_all {
    ($connection:expr, $($query:tt)+) => {
        fetch_all(&mut *$connection, bind!($($query)+))
    };
}
macro_rules! fetch_one {
    ($connection:expr, $($query:tt)+) => {
        fetch_one(&mut *$connection, bind!($($query)+))
    };
}
macro_rules! fetch_optional {
    ($connection:expr, $($query:tt)+) => {
        fetch_optional(&mut *$connection, bind!($($query)+))
    };
}
macro_rules! fetch_scalar {
    ($connection:expr, $($query:tt)+) => {
        fetch_scalar(&mut *$connection, bind!($($query)+))
    };
}

pub(super) async fn execute(connection: &mut Connection, query: Query<'_, Db, Arguments>) -> StoreResult<u64> {
    let done = query.execute(connection).await.map_err(store_error)?;
    Ok(done.rows_affected())
}

pub(super) async fn fetch_all(connection: &mut Connection, query: Query<'_, Db, Arguments>) -> StoreResult<Vec<Row>> {
    query.fetch_all(connection).await.map_err(store_error)
}

pub(super) async fn fetch_one(connection: &mut Connection, query: Query<'_, Db, Arguments>) -> StoreResult<Row> {
    query.fetch_one(connection).await.map_err(store_error)
}

pub(super) async fn fetch_optional(
    connection: &mut Connection,
    query: Query<'_, Db, Arguments>,
) -> StoreResult<Option<Row>> {
    query.fetch_optional(connection).await.map_err(store_error)
}

pub(super) async fn fetch_scalar<T>(connection: &mut Connection, query: Query<'_, Db, Arguments>) -> StoreResult<T>
where
    T: for<'r> Decode<'r, Db> + Type<Db>,
{
    fetch_one(connection, query).await?.try_get(0).map_err(store_error)
}
