//! The words of the shared statements that SQLite has its own way to say. `postgres/dialect.rs` has the
//! same macros; each expands to a literal, for `concat!`.

/// Is one of a list of texts, which is bound as a JSON array.
macro_rules! in_json_list {
    ($list:literal) => {
        concat!("IN (SELECT value FROM json_each(", $list, "))")
    };
}

/// Is one of the few that a query with a LIMIT finds.
macro_rules! in_subquery {
    ($query:expr) => {
        concat!("IN (", $query, ")")
    };
}

/// A JSON array of texts as a table with the column `value`. Needs an alias.
macro_rules! json_texts_table {
    ($list:literal) => {
        concat!("json_each(", $list, ")")
    };
}

/// A JSON array of arrays as a table with the columns `value`, of which `value ->> n` is a text, and
/// `key`, which counts. Needs an alias.
macro_rules! json_arrays_table {
    ($list:literal) => {
        concat!("json_each(", $list, ")")
    };
}

/// The text that a row of [`json_arrays_table!`] has at 0 or 1, where rows of a table are looked for by it.
macro_rules! row_key {
    ($row:literal, $at:literal) => {
        concat!($row, ".value ->> ", $at)
    };
}

/// The rows of a query as one JSON array of objects: a label, a value, and so on.
macro_rules! json_rows {
    ($members:expr) => {
        concat!("json_group_array(json_object(", $members, "))")
    };
}

/// A column that holds JSON, as a value of a [`json_rows!`].
macro_rules! json_of {
    ($column:literal) => {
        concat!("json(", $column, ")")
    };
}

/// A flag, as a value of a [`json_rows!`].
macro_rules! json_flag {
    ($column:literal) => {
        concat!("json(CASE ", $column, " WHEN TRUE THEN 'true' ELSE 'false' END)")
    };
}

/// JSON with one member set to other JSON.
macro_rules! with_member {
    ($json:literal, $member:literal, $value:literal) => {
        concat!("json_set(", $json, ", '$.", $member, "', json(", $value, "))")
    };
}

/// One member of a JSON object in a column, as a text: JSON if it is an array or an object.
macro_rules! member_of {
    ($json:literal, $member:literal) => {
        concat!("(", $json, " ->> '", $member, "')")
    };
}

/// Bytes as hexadecimal digits.
macro_rules! hex_of_bytes {
    ($bytes:literal) => {
        concat!("hex(", $bytes, ")")
    };
}

/// The lesser of two numbers.
macro_rules! sql_least {
    ($a:literal, $b:literal) => {
        concat!("MIN(", $a, ", ", $b, ")")
    };
}

/// The greater of two numbers.
macro_rules! sql_greatest {
    ($a:literal, $b:literal) => {
        concat!("MAX(", $a, ", ", $b, ")")
    };
}

/// A column that no index is to be used for.
macro_rules! unindexed {
    ($column:literal) => {
        concat!("+", $column)
    };
}

/// After a table's name: the index the planner would not choose by itself.
macro_rules! by_index {
    ($($index:literal),+) => {
        concat!(" INDEXED BY ", $($index),+)
    };
}

/// After a SELECT: keeps the rows from other writers until the transaction ends. There is one writer.
macro_rules! for_update {
    () => {
        ""
    };
}

/// After a SELECT: keeps others from changing the rows until the transaction ends. There is one writer.
macro_rules! for_share {
    () => {
        ""
    };
}

/// As [`for_update!`], without rows that another writer holds.
macro_rules! skip_locked {
    () => {
        ""
    };
}

/// Now by the database's clock, in microseconds: what rows are dated with that nobody else dates.
macro_rules! database_now {
    () => {
        "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
    };
}

/// Several statements in one trip. None may need what another did (but see [`was_changed!`]), nor touch a row that another
/// does: on Postgres they run at once.
macro_rules! batch {
    ($first:expr $(, $next:expr)* $(,)?) => {
        concat!($first $(, ";\n", $next)*)
    };
}

/// Whether a list of texts in a column has one of another list.
macro_rules! has_one_of {
    ($column:literal, $list:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM ",
            json_texts_table!($column),
            " h WHERE h.value ",
            in_json_list!($list),
            ")"
        )
    };
}

/// In a [`batch!`], or in [`batch_with_rows!`]: whether the statement before did anything. The first must answer in rows, and each after it
/// write only if this holds.
macro_rules! was_changed {
    () => {
        "changes() > 0"
    };
}

/// As [`batch!`]: some that answer nothing (or in rows of as many columns, which may come), and then some that answer in rows
/// of the same columns, of which all come.
macro_rules! batch_with_rows {
    ([$($silent:expr),* $(,)?] [$first:expr $(, $next:expr)* $(,)?]) => {
        concat!($($silent, ";\n",)* $first $(, ";\n", $next)*)
    };
}

/// Columns of the facts `f`, of the tenant `$1`, that queries over each row `p` of a table name; those that are
/// named more than once may come more than once.
macro_rules! facts_of_each {
    ($columns:expr, $rows:expr, $query:expr $(, $more:expr)* $(,)?) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM ",
            $rows,
            " p CROSS JOIN facts f WHERE f.tenant = $1 AND f.id IN (",
            $query,
            ")"
            $(, " UNION ALL ", facts_of_each!($columns, $rows, $more))*
        )
    };
}

/// Columns of the latest extractions `e`, of the tenant `$1`, that a condition names over each row `p` of a table.
macro_rules! extractions_of_each {
    ($columns:literal, $rows:expr, $condition:literal, $most:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM ",
            $rows,
            " p CROSS JOIN extractions e WHERE e.tenant = $1 AND e.turn IN (SELECT e.turn FROM extractions e WHERE ",
            $condition,
            " ORDER BY e.said_at DESC LIMIT ",
            $most,
            ")"
        )
    };
}

/// Tests of how SQLite finds the rows of the statements above them.
macro_rules! sqlite_plan_tests {
    ($tests:item) => {
        $tests
    };
}
