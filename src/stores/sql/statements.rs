//! How a statement runs: values are bound in order, and an error of the engine becomes a `StoreError`.
//!
//! | macro, such as `execute!(connection, DELETE_FACT; tenant, id)` | result |
//! | --- | --- |
//! | `execute!` | the number of changed rows |
//! | `fetch_all!` | all rows |
//! | `fetch_one!` | the single row |
//! | `fetch_optional!` | the first row, if there is one |
//! | `fetch_scalar!` | the first column of the single row |
//! | `bind!`, `bind_to!` | the query, not yet sent |
//!
//! A file imports the function behind each of these macros that it uses. Values are bound by reference; ids are bound as
//! text.
//!
//! A single statement needs no connection: `engine.execute(scope, bind!(DELETE_FACT; tenant, id))` runs in the writer,
//! `engine.fetch_all(scope, bind!(..), read)` on a reader.
//!
//! `write_transaction!(engine, scope, |connection| { .. })` runs several statements in the writer, and likewise
//! `write_statement!` and `write_memory!`. The block runs as a task of its own, so it owns what it names.

use sqlx::{Decode, Execute as _, Row as _, Type, query::Query};

use super::{
    context::{Arguments, Connection, Db, Engine, Row, store_error},
    rows::{Columns, ReadRow},
    scope::RowScope,
};
use colloquy_ports::StoreResult;

/// A statement with its values.
pub(super) type BoundQuery<'q> = Query<'q, Db, Arguments>;

/// Binds values to a statement: the first to `$1`, the second to `$2`, and so on.
macro_rules! bind {
    ($statement:expr $(; $($value:expr),+ $(,)?)?) => {
        bind_to!(sqlx::query($statement) $(; $($value),+)?)
    };
}
/// Binds values to a query that has none yet, as [`bind!`] does.
macro_rules! bind_to {
    ($query:expr $(; $($value:expr),+ $(,)?)?) => {
        $query$($(.bind(&$value))+)?
    };
}
/// Column names, each with a prefix, such as the alias of their table.
macro_rules! prefixed {
    ($prefix:literal; $first:ident $(, $column:ident)*) => {
        concat!($prefix, stringify!($first) $(, ", ", $prefix, stringify!($column))*)
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
macro_rules! write_statement {
    ($engine:expr, $scope:expr, |$connection:ident| $work:expr) => {
        $engine.write_statement($scope, move |$connection| Box::pin(async move { $work }))
    };
}
macro_rules! write_transaction {
    ($engine:expr, $scope:expr, |$connection:ident| $work:expr) => {
        $engine.write_transaction($scope, move |$connection| Box::pin(async move { $work }))
    };
}
macro_rules! write_memory {
    ($engine:expr, $tenant:expr, $world:expr, |$connection:ident| $work:expr) => {
        $engine.write_memory($tenant, $world, move |$connection| Box::pin(async move { $work }))
    };
}

pub(super) async fn execute(connection: &mut Connection, query: BoundQuery<'_>) -> StoreResult<u64> {
    let result = query.execute(connection).await.map_err(store_error)?;
    Ok(result.rows_affected())
}

pub(super) async fn fetch_all(connection: &mut Connection, query: BoundQuery<'_>) -> StoreResult<Vec<Row>> {
    query.fetch_all(connection).await.map_err(store_error)
}

pub(super) async fn fetch_one(connection: &mut Connection, query: BoundQuery<'_>) -> StoreResult<Row> {
    query.fetch_one(connection).await.map_err(store_error)
}

pub(super) async fn fetch_optional(connection: &mut Connection, query: BoundQuery<'_>) -> StoreResult<Option<Row>> {
    query.fetch_optional(connection).await.map_err(store_error)
}

pub(super) async fn fetch_scalar<T>(connection: &mut Connection, query: BoundQuery<'_>) -> StoreResult<T>
where
    T: for<'r> Decode<'r, Db> + Type<Db>,
{
    fetch_one(connection, query).await?.try_get(0).map_err(store_error)
}

impl Engine {
    /// Runs a statement that writes, as [`Self::write_statement`] does. Returns the number of changed rows.
    pub(super) async fn execute<'r>(
        &self,
        scope: impl Into<RowScope<'r>>,
        mut query: BoundQuery<'_>,
    ) -> StoreResult<u64> {
        let values = query
            .take_arguments()
            .map_err(sqlx::Error::Encode)
            .map_err(store_error)?;
        let statement = query.sql();
        let values = values.unwrap_or_default();
        write_statement!(self, scope, |connection| {
            execute(connection, sqlx::query_with(statement, values)).await
        })
        .await
    }
    /// Reads all rows of a query.
    pub(super) async fn fetch_all<'r, T>(
        &self,
        scope: impl Into<RowScope<'r>>,
        query: BoundQuery<'_>,
        read_row: ReadRow<T>,
    ) -> StoreResult<Vec<T>> {
        let rows = fetch_all(&mut *self.acquire_reader(scope).await?, query).await?;
        Columns::read_rows(&rows, read_row)
    }
    /// Reads the single row of a query.
    pub(super) async fn fetch_one<'r, T>(
        &self,
        scope: impl Into<RowScope<'r>>,
        query: BoundQuery<'_>,
        read_row: ReadRow<T>,
    ) -> StoreResult<T> {
        let row = fetch_one(&mut *self.acquire_reader(scope).await?, query).await?;
        read_row(&mut Columns::new(&row))
    }
    /// Reads the first row of a query, if there is one.
    pub(super) async fn fetch_optional<'r, T>(
        &self,
        scope: impl Into<RowScope<'r>>,
        query: BoundQuery<'_>,
        read_row: ReadRow<T>,
    ) -> StoreResult<Option<T>> {
        let row = fetch_optional(&mut *self.acquire_reader(scope).await?, query).await?;
        row.map(|row| read_row(&mut Columns::new(&row))).transpose()
    }
}
