//! How Postgres learns the size of grown tables, long before autovacuum would.

use std::{ops::Range, sync::Arc};

use colloquy::{
    adapters::postgres::{PostgresOptions, open_ledger},
    ports::clock::SystemClock,
};
use futures_util::future::join_all;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{
    fixture::Fixture,
    postgres::{PostgresSubject, open_two_nodes, set_tenant},
};
use crate::support::PostgresDatabase;

/// Connects to a database without autovacuum on the tables of verdicts and memories.
async fn without_autovacuum(database: &PostgresDatabase) -> PgConnection {
    let mut connection = database.connect().await;
    set_tenant(&mut connection, "studio").await;
    for table in ["verdicts", "npc_memories"] {
        let alone = format!("ALTER TABLE {table} SET (autovacuum_enabled = false)");
        sqlx::raw_sql(AssertSqlSafe(alone))
            .execute(&mut connection)
            .await
            .unwrap();
    }
    connection
}

const VERDICT_ROW: &str =
    "INSERT INTO verdicts (tenant, pair, verdict, model, at) SELECT 'studio', n::text, 'same', 'judge', n";
const MEMORY_ROW: &str =
    "INSERT INTO npc_memories (tenant, world, npc, memory_seq) SELECT 'studio', 'world', n::text, n";

/// Adds verdicts.
async fn fill_rows(connection: &mut PgConnection, rows: Range<i32>) {
    fill_with(connection, VERDICT_ROW, rows).await;
}

/// Adds rows, and flushes the statistics at once, so that other connections need not wait seconds.
async fn fill_with(connection: &mut PgConnection, row: &str, rows: Range<i32>) {
    let statement = format!("{row} FROM generate_series({}, {}) n", rows.start, rows.end - 1);
    for statement in [&statement, "SELECT pg_stat_force_next_flush()"] {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut *connection)
            .await
            .unwrap();
    }
}

/// Returns the number of verdict rows that the planner assumes.
async fn known_row_count(connection: &mut PgConnection) -> f32 {
    known_row_count_of(connection, "verdicts").await
}

async fn known_row_count_of(connection: &mut PgConnection, table: &str) -> f32 {
    sqlx::query_scalar("SELECT reltuples FROM pg_class WHERE oid = $1::regclass")
        .bind(table)
        .fetch_one(connection)
        .await
        .unwrap()
}

/// Returns the cached plan of a query on verdicts, with the assumed number of rows.
async fn query_plan(connection: &mut PgConnection) -> String {
    let rows: Vec<String> = sqlx::query_scalar("EXPLAIN EXECUTE old('studio', 5)")
        .persistent(false)
        .fetch_all(connection)
        .await
        .unwrap();
    rows.join("\n")
}

#[tokio::test]
async fn grown_table_is_analysed() {
    let f = Fixture::<PostgresSubject>::new().await;
    let maintenance = &f.ledger().maintenance;
    let mut connection = without_autovacuum(&f.subject.database).await;
    let count = async || maintenance.count_grown_tables().await.unwrap();

    // Imitates a connection of a server started on an empty database: its cached plans stay.
    for statement in [
        "SET plan_cache_mode = force_generic_plan",
        "PREPARE old(text, bigint) AS SELECT pair FROM verdicts WHERE tenant = $1 AND at < $2",
    ] {
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    }
    let kept = query_plan(&mut connection).await;

    fill_rows(&mut connection, 0..20).await;
    assert_eq!(count().await, 0, "so few are read as fast in any way");
    assert!(known_row_count(&mut connection).await < 1.0);
    assert_eq!(query_plan(&mut connection).await, kept);

    fill_rows(&mut connection, 20..5_000).await;
    assert_eq!(query_plan(&mut connection).await, kept, "nobody has told it");
    assert_eq!(count().await, 1);
    assert!((known_row_count(&mut connection).await - 5_000.0).abs() < 1.0);
    assert_ne!(query_plan(&mut connection).await, kept);
    assert_eq!(count().await, 0, "it has not grown since");

    fill_rows(&mut connection, 5_000..19_000).await;
    assert_eq!(count().await, 0, "it is not several times as large");
    fill_rows(&mut connection, 19_000..21_000).await;
    assert_eq!(count().await, 1);
    assert!((known_row_count(&mut connection).await - 21_000.0).abs() < 1.0);
    fill_rows(&mut connection, 21_000..90_000).await;
    assert_eq!(count().await, 0, "so many are left to autovacuum");
}

#[tokio::test]
async fn table_nearly_due_is_analysed_with_a_due_one() {
    let f = Fixture::<PostgresSubject>::new().await;
    let maintenance = &f.ledger().maintenance;
    let mut connection = without_autovacuum(&f.subject.database).await;
    let count = async || maintenance.count_grown_tables().await.unwrap();

    fill_rows(&mut connection, 0..100).await;
    fill_with(&mut connection, MEMORY_ROW, 0..100).await;
    assert_eq!(count().await, 2);
    fill_with(&mut connection, MEMORY_ROW, 100..350).await;
    assert_eq!(count().await, 0, "it is not due yet");
    fill_rows(&mut connection, 100..250).await;
    assert_eq!(count().await, 0);
    fill_rows(&mut connection, 250..400).await;
    assert_eq!(count().await, 2, "one is due, and the other nearly");
    assert_eq!(
        (
            known_row_count(&mut connection).await,
            known_row_count_of(&mut connection, "npc_memories").await
        ),
        (400.0, 350.0)
    );
    fill_rows(&mut connection, 400..1_600).await;
    fill_with(&mut connection, MEMORY_ROW, 350..700).await;
    assert_eq!(count().await, 1, "the other has only doubled");
}

#[tokio::test]
async fn grown_table_is_analysed_by_one_node_of_many() {
    let f = Fixture::<PostgresSubject>::new().await;
    let nodes = open_two_nodes(&f).await;
    let mut connection = without_autovacuum(&f.subject.database).await;
    for round in 0..4 {
        let rows = 100 * 5_i32.pow(round);
        fill_rows(&mut connection, rows / 5..rows).await;
        let counted = join_all((0..8).map(|n| nodes[n % 2].maintenance.count_grown_tables())).await;
        assert_eq!(counted.into_iter().map(Result::unwrap).sum::<usize>(), 1, "{rows} rows");
    }
}

#[tokio::test]
async fn tables_of_another_role_are_left_alone() {
    let database = PostgresDatabase::migrated().await;
    let mut connection = without_autovacuum(&database).await;
    let guest = format!("guest_of_{}", database.name());
    let execute = async |connection: &mut PgConnection, statement: &str| {
        let statement = statement.replace("guest", &guest);
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(connection)
            .await
            .unwrap();
    };
    execute(
        &mut connection,
        "CREATE ROLE guest LOGIN PASSWORD 'guest';
         GRANT ALL ON SCHEMA public TO guest;
         GRANT ALL ON ALL TABLES IN SCHEMA public TO guest;",
    )
    .await;
    let options = PostgresOptions {
        connections: 2,
        ..PostgresOptions::default()
    };
    let opened = open_ledger(&database.url_as(&guest, &guest), options, Arc::new(SystemClock)).await;
    let ledger = opened.unwrap().ledger();
    fill_rows(&mut connection, 0..5_000).await;
    let counted = ledger.maintenance.count_grown_tables().await;
    let after = known_row_count(&mut connection).await;
    // All other operations still work.
    let ping = ledger.maintenance.ping().await;
    ledger.maintenance.close_connections().await;
    execute(
        &mut connection,
        "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM guest;
         REVOKE ALL ON SCHEMA public FROM guest;
         DROP ROLE guest;",
    )
    .await;
    connection.close().await.unwrap();
    assert_eq!(counted.unwrap(), 0);
    assert!(after < 1.0, "{after}");
    ping.unwrap();
}

#[tokio::test]
async fn autovacuum_counts_a_table_when_half_of_it_has_changed() {
    let database = PostgresDatabase::migrated().await;
    let otherwise: Vec<String> = sqlx::query_scalar(
        "SELECT relname::text FROM pg_class
         WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname <> '_sqlx_migrations'
           AND NOT COALESCE(reloptions @> '{autovacuum_analyze_scale_factor=0.5,autovacuum_vacuum_insert_scale_factor=1}', FALSE)",
    )
    .fetch_all(&mut database.connect().await)
    .await
    .unwrap();
    assert_eq!(otherwise, Vec::<String>::new());
}
