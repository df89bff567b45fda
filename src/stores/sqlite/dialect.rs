//! SQLite's forms of the words in shared statements. `postgres/dialect.rs` has the same macros; each expands to a
//! literal, for `concat!`.

/// Membership in a list of texts, which is bound as a JSON array.
macro_rules! in_json_list {
    ($list:literal) => {
        concat!("IN (SELECT value FROM json_each(", $list, "))")
    };
}

/// Membership in the few rows of a query with a LIMIT.
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

/// A JSON array of arrays as a table with the columns `value`, where `value ->> n` is text, and `key`, the row's
/// position. Needs an alias.
macro_rules! json_arrays_table {
    ($list:literal) => {
        concat!("json_each(", $list, ")")
    };
}

/// The text at 0 or 1 in a row of [`json_arrays_table!`], as a key to look up rows of a table.
macro_rules! row_key {
    ($row:literal, $at:literal) => {
        concat!($row, ".value ->> ", $at)
    };
}

/// The rows of a query as a JSON array of objects: a label, a value, and so on.
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

/// A JSON object with a member set to other JSON.
macro_rules! with_member {
    ($json:literal, $member:literal, $value:literal) => {
        concat!("json_set(", $json, ", '$.", $member, "', json(", $value, "))")
    };
}

/// A member of a JSON object in a column, as text: JSON if the member is an array or an object.
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

/// A column hidden from the planner's index choice.
macro_rules! unindexed {
    ($column:literal) => {
        concat!("+", $column)
    };
}

/// After a table's name: an index that the planner would not choose on its own.
macro_rules! by_index {
    ($($index:literal),+) => {
        concat!(" INDEXED BY ", $($index),+)
    };
}

/// After a SELECT: locks the rows against other writers until the transaction ends. SQLite has a single writer.
macro_rules! for_update {
    () => {
        ""
    };
}

/// After a SELECT: locks the rows against changes until the transaction ends. SQLite has a single writer.
macro_rules! for_share {
    () => {
        ""
    };
}

/// Like [`for_update!`], but skips rows locked by another writer.
macro_rules! skip_locked {
    () => {
        ""
    };
}

/// The database's current time in microseconds, for rows that no other clock dates.
macro_rules! database_now {
    () => {
        "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
    };
}

/// Several statements in one trip. On Postgres the statements run at once. No statement may depend on another (but see
/// [`was_changed!`]), or touch a row that another touches.
macro_rules! batch {
    ($first:expr $(, $next:expr)* $(,)?) => {
        concat!($first $(, ";\n", $next)*)
    };
}

/// True if a list of texts in a column has a text.
macro_rules! has_text {
    ($column:literal, $text:literal) => {
        concat!($text, " IN (SELECT value FROM json_each(", $column, "))")
    };
}

/// True if a list of texts in a column shares an element with another list.
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

/// In a [`batch!`] or [`batch_with_rows!`]: true if the previous statement (on Postgres, the first) changed a row. The
/// first statement must return rows, and each later statement may write only if this holds.
macro_rules! was_changed {
    () => {
        "changes() > 0"
    };
}

/// In the commit of a turn, after statements of which some change no row: true if the commit inserted the turn `$2`.
/// A repeated commit has inserted the turn before.
macro_rules! turn_was_inserted {
    () => {
        "EXISTS (SELECT 1 FROM turns i WHERE i.tenant = $1 AND i.id = $2)"
    };
}

/// Like [`batch!`], in two groups. The first group returns no rows (or rows with the same number of columns, which may
/// be returned). The second group returns rows of the same columns, and all of them are returned.
macro_rules! batch_with_rows {
    ([$($silent:expr),* $(,)?] [$first:expr $(, $next:expr)* $(,)?]) => {
        concat!($($silent, ";\n",)* $first $(, ";\n", $next)*)
    };
}

/// Columns of facts `f` of the tenant `$1`, selected by queries over each row `p` of a table. A fact that is selected
/// repeatedly may be returned repeatedly.
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

/// Columns of the latest extractions `e` of the tenant `$1`, selected by a condition over each row `p` of a table.
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

/// Tests of SQLite's query plans for the statements in the same file.
macro_rules! sqlite_plan_tests {
    ($tests:item) => {
        $tests
    };
}
