//! The words of the shared statements that Postgres has its own way to say. `sqlite/dialect.rs` has the
//! same macros, and says what they mean.

macro_rules! among {
    ($list:literal) => {
        concat!(
            "= ANY (ARRAY(SELECT value FROM jsonb_array_elements_text(",
            $list,
            "::jsonb) AS j (value)))"
        )
    };
}

// In the order and equality of every column, whatever the database's own are.
macro_rules! texts {
    ($list:literal) => {
        concat!(
            "(SELECT value COLLATE \"C\" AS value FROM jsonb_array_elements_text(",
            $list,
            "::jsonb) AS j (value))"
        )
    };
}

macro_rules! rows {
    ($list:literal) => {
        concat!(
            "(SELECT value, key FROM jsonb_array_elements(",
            $list,
            "::jsonb) WITH ORDINALITY AS j (value, key))"
        )
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

macro_rules! hexadecimal {
    ($bytes:literal) => {
        concat!("encode(", $bytes, ", 'hex')")
    };
}

macro_rules! lesser {
    ($a:literal, $b:literal) => {
        concat!("LEAST(", $a, ", ", $b, ")")
    };
}

macro_rules! greater {
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

macro_rules! skip_locked {
    () => {
        " FOR UPDATE SKIP LOCKED"
    };
}

/// Now by the database's clock, in microseconds: what rows are dated with that nobody else dates.
macro_rules! its_now {
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

macro_rules! facts_of_each {
    ($rows:expr, $query:expr) => {
        concat!(
            $rows,
            " p CROSS JOIN LATERAL (",
            $query,
            ") o CROSS JOIN facts f WHERE f.tenant = $1 AND f.id = o.fact"
        )
    };
}

macro_rules! plans_of_sqlite {
    ($tests:item) => {};
}
