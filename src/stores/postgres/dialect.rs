//! Postgres's forms of the words in shared statements. `sqlite/dialect.rs` has the same macros, and documents their
//! meaning.

// Postgres expects ten values of an array but a hundred of JSON. For a hundred, it would read all of a table with some
// thousand rows.
macro_rules! array_of {
    ($elements:literal, $list:literal) => {
        concat!(
            "ARRAY(SELECT element.value FROM ",
            $elements,
            "(",
            $list,
            "::jsonb) AS element (value))"
        )
    };
}

macro_rules! array_of_texts {
    ($list:literal) => {
        array_of!("jsonb_array_elements_text", $list)
    };
}

macro_rules! in_json_list {
    ($list:literal) => {
        concat!("= ANY (", array_of_texts!($list), ")")
    };
}

// As an array, so that an index applies: from a bound LIMIT Postgres expects a tenth of the table, and would read the
// whole table.
macro_rules! in_subquery {
    ($query:expr) => {
        concat!("= ANY (ARRAY(", $query, "))")
    };
}

// With the order and equality of all columns, independent of the database's collation.
macro_rules! json_texts_table {
    ($list:literal) => {
        concat!(
            "(SELECT value COLLATE \"C\" AS value FROM unnest(",
            array_of_texts!($list),
            ") AS j (value))"
        )
    };
}

// Under row-level security, only leakproof operators may see a row before its policy has run, and `->>` is not
// leakproof. A condition with `->>` therefore cannot use an index, and the key must already be a column. OFFSET keeps
// the planner from inlining the expression.
macro_rules! json_arrays_table {
    ($list:literal) => {
        concat!(
            "(SELECT value, key, value ->> 0 AS first, value ->> 1 AS second
              FROM unnest(",
            array_of!("jsonb_array_elements", $list),
            ") WITH ORDINALITY AS j (value, key) OFFSET 0)"
        )
    };
}

macro_rules! row_key {
    ($row:literal, 0) => {
        concat!($row, ".first")
    };
    ($row:literal, 1) => {
        concat!($row, ".second")
    };
}

macro_rules! json_rows {
    ($members:expr) => {
        concat!("COALESCE(json_agg(json_build_object(", $members, ")), '[]')::text")
    };
}

macro_rules! json_of {
    ($column:literal) => {
        concat!($column, "::json")
    };
}

macro_rules! json_flag {
    ($column:literal) => {
        $column
    };
}

macro_rules! with_member {
    ($json:literal, $member:literal, $value:literal) => {
        concat!(
            "jsonb_set(",
            $json,
            "::jsonb, '{",
            $member,
            "}', ",
            $value,
            "::jsonb)::text"
        )
    };
}

macro_rules! member_of {
    ($json:literal, $member:literal) => {
        concat!("(", $json, "::json ->> '", $member, "')")
    };
}

macro_rules! hex_of_bytes {
    ($bytes:literal) => {
        concat!("encode(", $bytes, ", 'hex')")
    };
}

macro_rules! sql_least {
    ($a:literal, $b:literal) => {
        concat!("LEAST(", $a, ", ", $b, ")")
    };
}

macro_rules! sql_greatest {
    ($a:literal, $b:literal) => {
        concat!("GREATEST(", $a, ", ", $b, ")")
    };
}

macro_rules! unindexed {
    ($column:literal) => {
        $column
    };
}

macro_rules! by_index {
    ($($index:literal),+) => {
        ""
    };
}

macro_rules! for_update {
    () => {
        " FOR UPDATE"
    };
}

macro_rules! for_share {
    () => {
        " FOR SHARE"
    };
}

macro_rules! skip_locked {
    () => {
        " FOR UPDATE SKIP LOCKED"
    };
}

/// The database's current time in microseconds, for rows that no other clock dates.
macro_rules! database_now {
    () => {
        "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::BIGINT"
    };
}

macro_rules! batch {
    (@ [$($done:expr),*] [$($names:tt)*] $last:expr $(,)?) => {
        concat!("WITH " $(, $done)*, "\n", $last)
    };
    (@ [] [$name:literal $($names:tt)*] $first:expr, $($rest:tt)+) => {
        batch!(@ [concat!($name, " AS (", $first, ")")] [$($names)*] $($rest)+)
    };
    (@ [$($done:expr),+] [$name:literal $($names:tt)*] $next:expr, $($rest:tt)+) => {
        batch!(@ [$($done),+, concat!(",\n", $name, " AS (", $next, ")")] [$($names)*] $($rest)+)
    };
    ($($statements:tt)+) => {
        batch!(@ [] ["a" "b" "c" "d" "e" "f" "g"] $($statements)+)
    };
}

macro_rules! has_text {
    ($column:literal, $text:literal) => {
        concat!($column, "::jsonb ? ", $text)
    };
}

macro_rules! has_one_of {
    ($column:literal, $list:literal) => {
        concat!($column, "::jsonb ?| ", array_of_texts!($list))
    };
}

// Tests the first statement, which the batch names `a`. Counting makes that statement finish first.
macro_rules! was_changed {
    () => {
        "(SELECT COUNT(*) FROM a) > 0"
    };
}

// Statements of a batch do not see each other's rows. The first takes the head.
macro_rules! turn_was_inserted {
    () => {
        was_changed!()
    };
}

macro_rules! batch_with_rows {
    (@ [$($with:expr),*] [] [$name:literal $($names:tt)*] [$silent:expr $(, $more:expr)*] [$($answering:expr),+]) => {
        batch_with_rows!(@ [$($with,)* concat!($name, " AS (", $silent, ")")] [] [$($names)*] [$($more),*] [$($answering),+])
    };
    (@ [$($with:expr),*] [$($from:expr),*] [$name:literal $($names:tt)*] [] [$answering:expr $(, $more:expr)*]) => {
        batch_with_rows!(@ [$($with,)* concat!($name, " AS (", $answering, ")")] [$($from,)* concat!("SELECT * FROM ", $name)]
            [$($names)*] [] [$($more),*])
    };
    (@ [$first:expr $(, $with:expr)*] [$answer:expr $(, $from:expr)*] [$($names:tt)*] [] []) => {
        concat!("WITH ", $first $(, ",\n", $with)*, "\n", $answer $(, " UNION ALL ", $from)*)
    };
    ([$($silent:expr),* $(,)?] [$($answering:expr),+ $(,)?]) => {
        batch_with_rows!(@ [] []
            ["a" "b" "c" "d" "e" "f" "g" "h" "i" "j" "k" "l" "m" "n" "o" "p" "q" "r" "s" "t" "u" "v" "w" "x" "y" "z"]
            [$($silent),*] [$($answering),+])
    };
}

// The ids first, as an array: the planner may reverse a join with the facts, and read all facts of the tenant.
macro_rules! facts_of_each {
    ($columns:expr, $rows:expr, $query:expr $(, $more:expr)* $(,)?) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM facts f WHERE f.tenant = $1 AND f.id = ANY (ARRAY(SELECT o.fact FROM ",
            $rows,
            " p CROSS JOIN LATERAL ((",
            $query,
            ")"
            $(, " UNION ALL (", $more, ")")*,
            ") o))"
        )
    };
}

macro_rules! extractions_of_each {
    ($columns:literal, $rows:expr, $condition:literal, $most:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM ",
            $rows,
            " p CROSS JOIN LATERAL (SELECT * FROM extractions e WHERE ",
            $condition,
            " ORDER BY e.said_at DESC LIMIT ",
            $most,
            ") e"
        )
    };
}

macro_rules! sqlite_plan_tests {
    ($tests:item) => {};
}
