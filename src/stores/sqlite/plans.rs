//! For tests: the queries of every turn must stay on their indexes, however large the tables grow.

use sqlx::{ConnectOptions as _, SqliteConnection};
use tempfile::TempDir;

use super::{connection::connect_options, migrations, options::SqliteOptions};

/// Returns a connection to a database with the newest schema and no rows, and the folder of the database.
pub(super) async fn open_empty_database() -> (TempDir, SqliteConnection) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut connection: SqliteConnection = connect_options(&folder.path().join("plan.db"), &SqliteOptions::default())
        .connect()
        .await
        .expect("a database");
    migrations::SQLITE.run(&mut connection).await.expect("a schema");
    (folder, connection)
}

/// Returns SQLite's plan of a statement against the empty schema, one step per line.
pub(super) async fn plan(statement: &str) -> String {
    let (_folder, mut connection) = open_empty_database().await;
    let rows: Vec<(i64, i64, i64, String)> =
        sqlx::query_as(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")))
            .fetch_all(&mut connection)
            .await
            .expect("a plan");
    rows.into_iter().map(|row| row.3).collect::<Vec<_>>().join("\n")
}

/// Asserts that the plan contains all of `uses`, scans no table, and searches no table by tenant alone. Scans of JSON
/// lists and of tables that the statement has materialized are allowed.
pub(super) async fn assert_searches(statement: &str, uses: &[&str]) {
    let plan = plan(statement).await;
    // Tables that the statement creates itself.
    let materialized: Vec<&str> = plan
        .lines()
        .filter_map(|step| {
            step.strip_prefix("MATERIALIZE ")
                .or_else(|| step.strip_prefix("CO-ROUTINE "))
        })
        .collect();
    for step in plan.lines() {
        let scans = step.starts_with("SCAN")
            && !step.contains("VIRTUAL TABLE")
            && !step.contains("CONSTANT ROW")
            && !materialized.contains(&step.trim_start_matches("SCAN "));
        let whole_tenant = (step.contains("PRIMARY KEY") || step.contains("sqlite_autoindex"))
            && step.ends_with("(tenant=?)")
            // A tenant has one row of settings and one of sizes.
            && !["tenant_settings", "authored_sizes"].iter().any(|table| step.contains(table));
        assert!(!scans && !whole_tenant, "{step}\nin\n{plan}\nof\n{statement}");
    }
    for part in uses {
        assert!(plan.contains(part), "no `{part}` in\n{plan}\nof\n{statement}");
    }
}

/// See `.cargo/config.toml`: without the flag, SQLite prepares statements on partial indexes again for every run, which
/// takes longer than running them.
#[tokio::test]
async fn query_plans_do_not_depend_on_bound_values() {
    let (_folder, mut connection) = open_empty_database().await;
    let stable: bool = sqlx::query_scalar("SELECT sqlite_compileoption_used('ENABLE_QPSG')")
        .fetch_one(&mut connection)
        .await
        .expect("an answer");
    assert!(stable, "SQLite was compiled without the flags of .cargo/config.toml");
}
