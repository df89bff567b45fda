//! Several queries in one trip.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, Execute as _};

use super::{
    context::{Engine, Row, fetch_joined, join_queries, store_error},
    rows::{Columns, ReadRow},
    scope::RowScope,
    statements::BoundQuery,
};
use colloquy_ports::StoreResult;

/// Queries that are sent together.
pub(super) struct JointRead {
    statements: Vec<String>,
    /// A query without text, with the values of all statements; or why a value could not be bound.
    values: StoreResult<BoundQuery<'static>>,
    value_count: usize,
}

/// The place of a query among the queries of a [`JointRead`].
#[derive(Debug, Clone, Copy)]
pub(super) struct QueryIndex(usize);

/// The rows of one of several queries.
#[derive(Default)]
pub(in super::super) struct QueryRows {
    pub(in super::super) rows: Vec<Row>,
    /// The column of the rows where the columns of the query begin.
    pub(in super::super) first_column: usize,
}

/// The rows of each query of a [`JointRead`].
pub(super) struct JointRows(Vec<QueryRows>);

impl JointRead {
    pub(super) fn new() -> Self {
        Self {
            statements: Vec::new(),
            values: Ok(sqlx::query("")),
            value_count: 0,
        }
    }

    /// Adds a statement. `bind_values` binds the values of its parameters `$1`, `$2` and so on.
    pub(super) fn add(
        &mut self,
        statement: &str,
        bind_values: impl FnOnce(BoundQuery<'static>) -> StoreResult<BoundQuery<'static>>,
    ) -> QueryIndex {
        let (renumbered, value_count) = renumber_parameters(statement, self.value_count);
        self.statements.push(renumbered);
        self.value_count += value_count;
        let values = std::mem::replace(&mut self.values, Ok(sqlx::query("")));
        self.values = values.and_then(bind_values);
        QueryIndex(self.statements.len() - 1)
    }

    /// Runs the queries. Without a query, there is no trip.
    pub(super) async fn fetch<'r>(self, engine: &Engine, scope: impl Into<RowScope<'r>>) -> StoreResult<JointRows> {
        if self.statements.is_empty() {
            return Ok(JointRows(Vec::new()));
        }
        let values = self.values?.take_arguments();
        let values = values.map_err(sqlx::Error::Encode).map_err(store_error)?;
        let statement = AssertSqlSafe(join_queries(&self.statements));
        let query = sqlx::query_with(statement, values.unwrap_or_default());
        let mut connection = engine.acquire_reader(scope).await?;
        let rows = fetch_joined(&mut connection, query, self.statements.len()).await?;
        Ok(JointRows(rows))
    }
}

impl JointRows {
    /// Returns the columns of each row of a query; none for `None`.
    pub(super) fn columns_of(&self, query: impl Into<Option<QueryIndex>>) -> impl Iterator<Item = Columns<'_>> {
        let rows = query.into().and_then(|QueryIndex(index)| self.0.get(index)).into_iter();
        rows.flat_map(|found| {
            found
                .rows
                .iter()
                .map(|row| Columns::starting_at(row, found.first_column))
        })
    }
    /// Reads each row of a query with `read_row`; none for `None`.
    pub(super) fn read_rows<T>(
        &self,
        query: impl Into<Option<QueryIndex>>,
        read_row: ReadRow<T>,
    ) -> StoreResult<Vec<T>> {
        self.columns_of(query)
            .map(|mut columns| read_row(&mut columns))
            .collect()
    }
}

/// Adds `offset` to the number of each parameter. Returns the statement, and the highest number before.
fn renumber_parameters(statement: &str, offset: usize) -> (String, usize) {
    let mut renumbered = String::with_capacity(statement.len() + 64);
    let mut parts = statement.split('$');
    renumbered.push_str(parts.next().unwrap_or_default());
    let mut highest = 0;
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        renumbered.push('$');
        if let Ok(number) = part[..digits].parse::<usize>() {
            highest = highest.max(number);
            // Writing to a `String` cannot fail.
            let _ = write!(renumbered, "{}", number + offset);
        }
        renumbered.push_str(&part[digits..]);
    }
    (renumbered, highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_renumbered_and_paths_stay() {
        let renumbered = renumber_parameters("SELECT $1, json($12, '$.a') WHERE x = $2", 7);
        assert_eq!(renumbered, ("SELECT $8, json($19, '$.a') WHERE x = $9".to_owned(), 12));
        assert_eq!(renumber_parameters("SELECT 1", 3), ("SELECT 1".to_owned(), 0));
    }
}
