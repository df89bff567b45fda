//! Postgres as a subject of the suite, and faults possible only on a server with many writers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use colloquy::{
    adapters::{
        postgres::{PostgresLedger, PostgresOptions, migrate_schema, open_ledger},
        sqlite,
    },
    ids::WorldId,
    memory::fact::NewFact,
    ports::{
        StoreError,
        clock::{ManualClock, SystemClock},
        ledger::{Ledger, audit::Edit, authored::PutOutcome, tenants::Tenant},
        vectors::PointSource,
    },
    tenancy::TenantScope,
};
use futures_util::future::join_all;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Row as _, sqlite::SqliteConnectOptions};

use super::{LedgerSubject, OTHER_BUILD_CHECKSUM, fixture::Fixture};
use crate::support::{BlackholeProxy, PostgresDatabase};

/// The embedder of a fresh subject.
const FIRST_MODEL: &str = "first";

pub struct PostgresSubject {
    postgres: PostgresLedger,
    ledger: Ledger,
    // Dropped last, because fields drop in order.
    pub(super) database: PostgresDatabase,
}

async fn open_database(database: &PostgresDatabase, clock: Arc<ManualClock>, model: &str) -> PostgresLedger {
    let options = PostgresOptions {
        connections: 4,
        embedding_model: model.to_owned(),
        ..PostgresOptions::default()
    };
    open_ledger(&database.url, options, clock).await.unwrap()
}

#[async_trait]
impl LedgerSubject for PostgresSubject {
    async fn open_empty(clock: Arc<ManualClock>) -> Self {
        let database = PostgresDatabase::migrated().await;
        let postgres = open_database(&database, clock, FIRST_MODEL).await;
        Self {
            ledger: postgres.ledger(),
            postgres,
            database,
        }
    }
    fn ledger(&self) -> &Ledger {
        &self.ledger
    }
    fn points(&self) -> Arc<dyn PointSource> {
        self.postgres.point_source()
    }
    async fn reopen(&mut self, clock: Arc<ManualClock>) {
        self.change_embedder(clock, FIRST_MODEL).await;
    }
    async fn change_embedder(&mut self, clock: Arc<ManualClock>, model: &str) {
        self.ledger.maintenance.close_connections().await;
        self.postgres = open_database(&self.database, clock, model).await;
        self.ledger = self.postgres.ledger();
    }
    async fn is_audit_immutable(&self) -> bool {
        let mut connection = self.database.connect().await;
        set_tenant(&mut connection, "*").await;
        let mut refused = true;
        for statement in [
            "UPDATE audit SET subject = 'somebody else'",
            "DELETE FROM audit",
            "TRUNCATE audit",
        ] {
            refused &= sqlx::query(statement).execute(&mut connection).await.is_err();
        }
        refused
    }
    async fn overwrite_outcome(&self, key: &str, outcome: &str) {
        let mut connection = self.database.connect().await;
        set_tenant(&mut connection, "*").await;
        let update = sqlx::query("UPDATE rewinds SET outcome = $2 WHERE key = $1");
        let done = update.bind(key).bind(outcome).execute(&mut connection).await.unwrap();
        assert_eq!(done.rows_affected(), 1);
    }
}

pub(super) async fn set_tenant(connection: &mut PgConnection, tenant: &str) {
    sqlx::query("SELECT set_config('colloquy.tenant', $1, false)")
        .bind(tenant)
        .execute(connection)
        .await
        .unwrap();
}

async fn count(connection: &mut PgConnection, table: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}")))
        .fetch_one(connection)
        .await
        .unwrap()
}

/// Returns the schema's columns: table and name, with nullability and type.
async fn columns(connection: &mut PgConnection) -> BTreeMap<(String, String), (bool, String)> {
    sqlx::query(
        "SELECT table_name::text, column_name::text, is_nullable = 'NO', data_type::text
         FROM information_schema.columns
         WHERE table_schema = current_schema() AND table_name <> '_sqlx_migrations'",
    )
    .fetch_all(connection)
    .await
    .unwrap()
    .iter()
    .map(|row| ((row.get(0), row.get(1)), (row.get(2), row.get(3))))
    .collect()
}

#[tokio::test]
async fn postgres_connection_sees_only_rows_of_its_tenant() {
    let database = PostgresDatabase::migrated().await;
    let mut connection = database.connect().await;
    let above: bool = sqlx::query_scalar("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(!above, "row-level security does not bind the role of the tests");

    let mut tables: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for ((table, column), (_, kind)) in columns(&mut connection).await {
        tables.entry(table).or_default().push((column, kind));
    }
    // `nodes` has the addresses of the servers. The table belongs to no tenant, and every claim of a dialogue reads it.
    assert!(tables.remove("nodes").is_some());
    assert!(tables.remove("write_probe").is_some());
    assert!(tables.len() > 30, "{tables:?}");
    for (table, columns) in tables {
        let key = if table == "tenants" { "id" } else { "tenant" };
        let given: Vec<&(String, String)> = columns
            .iter()
            .filter(|(column, kind)| !(column == "seq" && kind == "bigint" && table != "rewinds"))
            .collect();
        let names: Vec<&str> = given.iter().map(|(column, _)| column.as_str()).collect();
        let values: Vec<&str> = given
            .iter()
            .map(|(column, kind)| match kind.as_str() {
                _ if column == key => "'rival'",
                "bigint" => "1",
                "boolean" => "TRUE",
                "bytea" => "'\\x00'",
                _ => "'x'",
            })
            .collect();
        let insert = format!(
            "INSERT INTO {table} ({}) VALUES ({})",
            names.join(", "),
            values.join(", ")
        );
        let insert = || sqlx::query(sqlx::AssertSqlSafe(insert.clone()));

        set_tenant(&mut connection, "studio").await;
        assert!(
            insert().execute(&mut connection).await.is_err(),
            "{table} takes a row of another"
        );
        set_tenant(&mut connection, "rival").await;
        insert().execute(&mut connection).await.unwrap();
        for (tenant, sees) in [("rival", 1), ("studio", 0), ("", 0), ("*", 1)] {
            set_tenant(&mut connection, tenant).await;
            assert_eq!(count(&mut connection, &table).await, sees, "{table} as `{tenant}`");
        }
        if table != "audit" {
            set_tenant(&mut connection, "studio").await;
            let deleted = sqlx::query(sqlx::AssertSqlSafe(format!("DELETE FROM {table}")))
                .execute(&mut connection)
                .await
                .unwrap();
            assert_eq!(deleted.rows_affected(), 0, "{table}");
        }
    }
    // A connection without a tenant sees no rows.
    assert_eq!(count(&mut database.connect().await, "facts").await, 0);
}

#[tokio::test]
async fn migration_with_known_checksum_is_accepted_and_an_unknown_one_rejected() {
    let database = PostgresDatabase::migrated().await;
    let checksum = async || -> String {
        sqlx::query_scalar("SELECT encode(checksum, 'hex') FROM _sqlx_migrations WHERE version = 11")
            .fetch_one(&mut database.connect().await)
            .await
            .unwrap()
    };
    let reword = async |to: &str| {
        let sql = format!("UPDATE _sqlx_migrations SET checksum = decode('{to}', 'hex') WHERE version = 11");
        let sql = sqlx::AssertSqlSafe(sql);
        let mut connection = database.connect().await;
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    };
    let here = checksum().await;
    reword(OTHER_BUILD_CHECKSUM).await;
    migrate_schema(&database.url).await.unwrap();
    assert_eq!(checksum().await, here);
    reword("00ff").await;
    let refused = migrate_schema(&database.url).await.unwrap_err().to_string();
    assert!(
        refused.contains("migration 11 ") && refused.contains("another build"),
        "{refused}"
    );
    assert_eq!(checksum().await, "00ff", "it is left alone");
}

#[tokio::test]
async fn tables_are_equal_on_both_engines() {
    let database = PostgresDatabase::migrated().await;
    let on_postgres = columns(&mut database.connect().await).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    sqlite::migrate_schema(file.to_str().unwrap()).await.unwrap();
    let mut connection = SqliteConnectOptions::new().filename(&file).connect().await.unwrap();
    let on_sqlite: BTreeMap<(String, String), (bool, String)> = sqlx::query(
        "SELECT t.name, c.name, c.\"notnull\" = 1 OR (c.pk > 0 AND c.type = 'INTEGER'), c.type
         FROM sqlite_schema t, pragma_table_info(t.name) c
         WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND t.name <> '_sqlx_migrations'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap()
    .iter()
    .map(|row| ((row.get(0), row.get(1)), (row.get(2), row.get(3))))
    .collect();
    let names = |columns: &BTreeMap<(String, String), (bool, String)>| -> Vec<(String, String, bool)> {
        columns
            .iter()
            .map(|((table, column), (set, _))| (table.clone(), column.clone(), *set))
            .collect()
    };
    assert_eq!(names(&on_postgres), names(&on_sqlite));
    for (column, (_, kind)) in &on_postgres {
        let expected: &[&str] = match on_sqlite[column].1.as_str() {
            "TEXT" => &["text"],
            "BLOB" => &["bytea"],
            _ => &["bigint", "boolean"],
        };
        assert!(expected.contains(&kind.as_str()), "{column:?} is {kind}");
    }
    let indexes = "SELECT tablename || '.' || indexname FROM pg_indexes
        WHERE schemaname = current_schema() AND indexname NOT LIKE '%_pkey' ORDER BY 1";
    let on_postgres: Vec<String> = sqlx::query_scalar(indexes)
        .fetch_all(&mut database.connect().await)
        .await
        .unwrap();
    let indexes = "SELECT tbl_name || '.' || name FROM sqlite_schema
        WHERE type = 'index' AND name NOT LIKE 'sqlite_autoindex%' ORDER BY 1";
    let on_sqlite: Vec<String> = sqlx::query_scalar(indexes).fetch_all(&mut connection).await.unwrap();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(on_postgres), sorted(on_sqlite));
}

#[tokio::test]
async fn database_of_a_newer_version_is_rejected_unchanged() {
    let database = PostgresDatabase::migrated().await;
    let newest = migrate_schema(&database.url).await.unwrap();
    let mut connection = database.connect().await;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES ($1, 'from the future', true, '\\x00', 0)",
    )
    .bind(newest + 1)
    .execute(&mut connection)
    .await
    .unwrap();
    let Err(error) = open_ledger(&database.url, PostgresOptions::default(), Arc::new(SystemClock)).await else {
        panic!("it was opened");
    };
    assert!(error.to_string().contains("newer version"), "{error}");
    let last: i64 = sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(last, newest + 1);
}

#[tokio::test]
async fn nodes_that_start_together_migrate_once() {
    let database = PostgresDatabase::blank().await;
    let opened =
        join_all((0..6).map(|_| open_ledger(&database.url, PostgresOptions::default(), Arc::new(SystemClock)))).await;
    for ledger in opened {
        let ledger = ledger.unwrap().ledger();
        ledger.maintenance.ping().await.unwrap();
        ledger.maintenance.close_connections().await;
    }
}

#[tokio::test]
async fn unreachable_database_is_unavailable_and_hides_its_password() {
    for url in [
        "postgres://somebody:verysecret@127.0.0.1:1/nowhere",
        "postgres://somebody:verysecret@127.0.0.1:notaport/nowhere",
        "mysql://somebody:verysecret@127.0.0.1/nowhere",
    ] {
        let Err(error) = open_ledger(url, PostgresOptions::default(), Arc::new(SystemClock)).await else {
            panic!("{url} was opened");
        };
        assert!(!error.to_string().contains("verysecret"), "{error}");
    }
}

/// Ends every connection of the ledger.
async fn cut_connections(f: &Fixture<PostgresSubject>) {
    let mut connection = f.subject.database.connect().await;
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .execute(&mut connection)
    .await
    .unwrap();
}

#[tokio::test]
async fn turn_is_committed_although_its_connection_was_cut() {
    let f = Fixture::<PostgresSubject>::new().await;
    let told = super::rewind_fixtures::dialogue_with_turns(&f, 1).await;
    let mut commit = told.turn_commit(&f, 2);
    commit.state.clear();
    let dialogues = &f.ledger().dialogues;
    for _ in 0..2 {
        // The read leaves a trusted connection, set to the tenant.
        dialogues.load_turns(&f.scope, told.id(), 1, 1).await.unwrap();
        cut_connections(&f).await;
        // The second run commits a turn already committed, as after a lost answer.
        f.commit_turn(&commit).await;
    }
    assert_eq!(dialogues.load_turns(&f.scope, told.id(), 1, 9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn connections_that_were_cut_are_replaced() {
    let f = Fixture::<PostgresSubject>::new().await;
    let world = f.sample_world("vale");
    let authored = &f.ledger().authored;
    authored
        .put_world(&f.scope, &world, None, &f.audit_edit("world.put"))
        .await
        .unwrap();
    // Opens the maximum number of connections, so that all of them are cut.
    let reads = (0..16).map(|_| authored.load_world(&f.scope, &world.id));
    join_all(reads)
        .await
        .into_iter()
        .for_each(|read| assert!(read.unwrap().is_some()));

    cut_connections(&f).await;
    // A write notices the cut before changing anything, and takes another connection.
    authored
        .put_world(&f.scope, &world, None, &f.audit_edit("world.put"))
        .await
        .unwrap();
    cut_connections(&f).await;
    // A failed read puts all other connections in doubt.
    let _ = authored.load_world(&f.scope, &world.id).await;
    for _ in 0..16 {
        assert!(authored.load_world(&f.scope, &world.id).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn statement_that_takes_too_long_is_cancelled_by_the_database() {
    let database = PostgresDatabase::migrated().await;
    let options = PostgresOptions {
        statement_timeout: Duration::from_millis(300),
        ..PostgresOptions::default()
    };
    let postgres = open_ledger(&database.url, options, Arc::new(SystemClock))
        .await
        .unwrap();
    let ledger = postgres.ledger();
    let mut other = database.connect().await;
    let locked = "BEGIN; LOCK TABLE tenants IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(locked).execute(&mut other).await.unwrap();
    let error = ledger.tenants.list_all().await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unavailable(why) if why.contains("statement timeout")),
        "{error:?}"
    );
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert_eq!(ledger.tenants.list_all().await.unwrap(), []);
    ledger.maintenance.close_connections().await;
}

#[tokio::test]
async fn vanished_database_is_unavailable_and_recovers() {
    const CALLERS: u32 = 12;
    let f = Fixture::<PostgresSubject>::new().await;
    let (hole, url) = BlackholeProxy::on_postgres(&f.subject.database.url);
    let options = PostgresOptions {
        connections: 4,
        acquire_timeout: Duration::from_secs(5),
        statement_timeout: Duration::from_secs(1),
        ..PostgresOptions::default()
    };
    let ledger = open_ledger(&url, options, f.clock.clone()).await.unwrap().ledger();
    let world = f.sample_world("vale");
    let edits: Vec<Edit> = (0..=CALLERS).map(|_| f.audit_edit("world.put")).collect();
    let read = async || ledger.authored.load_world(&f.scope, &world.id).await.map(drop);
    let write = async |edit: &Edit| ledger.authored.put_world(&f.scope, &world, None, edit).await.map(drop);
    write(&edits[0]).await.unwrap();
    // All connections are open and were used a moment ago.
    for result in join_all((0..CALLERS).map(|_| read())).await {
        result.unwrap();
    }
    hole.set_swallowing(true);
    // Some calls trust a connection, some wait. The second round comes when all connections are in doubt.
    for _ in 0..2 {
        let reads = join_all((0..CALLERS).map(|_| read()));
        let writes = join_all(edits[1..].iter().map(&write));
        let all = tokio::time::timeout(Duration::from_mins(1), async { tokio::join!(reads, writes) });
        let (reads, writes) = all.await.expect("somebody waits for ever");
        for result in reads.into_iter().chain(writes) {
            assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
        }
    }
    hole.set_swallowing(false);
    for edit in &edits[1..] {
        read().await.unwrap();
        write(edit).await.unwrap();
    }
    ledger.maintenance.close_connections().await;
}

/// Locks the memory of a world until the transaction of `held` ends, as a write by another node does.
pub(super) async fn lock_world_memory(f: &Fixture<PostgresSubject>, held: &mut PgConnection, world: &WorldId) {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))")
        .bind(format!("colloquy memory {} {world}", f.scope.tenant()))
        .execute(held)
        .await
        .unwrap();
}

#[tokio::test]
async fn writers_to_one_world_leave_connections_to_others() {
    let f = Fixture::<PostgresSubject>::new().await;
    let authored = &f.ledger().authored;
    f.put_world(f.world.as_str()).await;
    let quiet = f.put_world("quiet").await;
    let mut other = f.subject.database.connect().await;
    let mut held = other.begin().await.unwrap();
    lock_world_memory(&f, &mut held, &f.world).await;
    // Three times as many writes as connections.
    let facts: Vec<(NewFact, Edit)> = (0..12)
        .map(|n| (f.sample_fact(&format!("Fact {n}.")), f.audit_edit("fact.create")))
        .collect();
    let creating = join_all(
        facts
            .iter()
            .map(|(fact, edit)| f.ledger().facts.create_fact(&f.scope, fact, false, edit)),
    );
    let reading = async {
        let writes = &f.ledger().maintenance.ledger_metrics().writes;
        while writes.get() < 12 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..5 {
            assert!(authored.load_world(&f.scope, &quiet.id).await.unwrap().is_some());
            let edit = f.audit_edit("world.put");
            authored.put_world(&f.scope, &quiet, None, &edit).await.unwrap();
        }
        held.commit().await.unwrap();
    };
    let (created, ()) = tokio::join!(creating, reading);
    for created in created {
        created.unwrap();
    }
}

#[tokio::test]
async fn session_ended_by_the_database_is_not_a_rejection() {
    let f = Fixture::<PostgresSubject>::new().await;
    let mut connection = f.subject.database.connect().await;
    // The errors for a transaction or session ended by the idle timeout. A trigger raises them here.
    for code in ["25P03", "25P04"] {
        let raised = sqlx::query(sqlx::AssertSqlSafe(format!(
            "CREATE OR REPLACE FUNCTION ended() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE 'the session is ended' USING ERRCODE = '{code}'; END $$"
        )));
        raised.execute(&mut connection).await.unwrap();
        sqlx::query("CREATE OR REPLACE TRIGGER ended BEFORE INSERT ON worlds EXECUTE FUNCTION ended()")
            .execute(&mut connection)
            .await
            .unwrap();
        let world = f.sample_world("vale");
        let edit = f.audit_edit("world.put");
        let refused = f.ledger().authored.put_world(&f.scope, &world, None, &edit).await;
        assert!(matches!(refused, Err(StoreError::Disconnected(_))), "{refused:?}");
    }
}

/// Opens two nodes, for simultaneous writes that conflict.
pub(super) async fn open_two_nodes(f: &Fixture<PostgresSubject>) -> [Ledger; 2] {
    let other = open_database(&f.subject.database, f.clock.clone(), FIRST_MODEL).await;
    [f.ledger().clone(), other.ledger()]
}

#[tokio::test]
async fn concurrent_writes_of_one_version_have_one_winner() {
    let f = Fixture::<PostgresSubject>::new().await;
    let nodes = open_two_nodes(&f).await;
    for version in 0..10 {
        let (world, npc) = (f.sample_world("vale"), f.sample_npc("vale", "mira"));
        let edits: Vec<_> = (0..8)
            .map(|_| (f.audit_edit("world.put"), f.audit_edit("npc.put")))
            .collect();
        let worlds = join_all(
            edits
                .iter()
                .enumerate()
                .map(|(n, (edit, _))| nodes[n % 2].authored.put_world(&f.scope, &world, Some(version), edit)),
        );
        let written = |outcome: PutOutcome| matches!(outcome, PutOutcome::Created | PutOutcome::Updated { .. });
        let worlds = worlds.await.into_iter().map(Result::unwrap);
        assert_eq!(worlds.filter(|put| written(*put)).count(), 1);
        let npcs = join_all(
            edits
                .iter()
                .enumerate()
                .map(|(n, (_, edit))| nodes[n % 2].authored.put_npc(&f.scope, &npc, Some(version), edit)),
        );
        let npcs = npcs.await.into_iter().map(Result::unwrap);
        assert_eq!(npcs.filter(|put| written(*put)).count(), 1);
    }
}

#[tokio::test]
async fn job_is_never_leased_twice() {
    let f = Fixture::<PostgresSubject>::new().await;
    let nodes = open_two_nodes(&f).await;
    let open = f.open_dialogue().await;
    let mut head = None;
    for number in 1..=20 {
        let mut commit = f.sample_commit(&open, number, head);
        head = Some(commit.turn.id);
        let mut job = f.sample_job(&commit, colloquy::ports::ledger::jobs::JobKind::ExtractFacts);
        // The job has no leaseholder yet.
        job.held_until = Some(f.now());
        commit.jobs = vec![job];
        f.commit_turn(&commit).await;
    }
    f.advance_clock();
    let (now, until) = (f.now(), f.now() + chrono::Duration::seconds(60));
    let answers = join_all((0..8).map(|n| nodes[n % 2].jobs.lease_due_jobs(&f.scope, f.node, now, until, 7))).await;
    let mut leased: Vec<String> = answers
        .into_iter()
        .flat_map(|jobs| jobs.unwrap())
        .map(|job| job.id.to_string())
        .collect();
    let all = leased.len();
    leased.sort();
    leased.dedup();
    assert_eq!(all, leased.len());
    // A later caller gets the remaining jobs.
    let rest = nodes[0]
        .jobs
        .lease_due_jobs(&f.scope, f.node, now, until, 99)
        .await
        .unwrap();
    assert_eq!(all + rest.len(), 20);
}

#[tokio::test]
async fn tenants_are_created_concurrently() {
    let f = Fixture::<PostgresSubject>::new().await;
    let nodes = open_two_nodes(&f).await;
    let tenant = |n: usize| Tenant {
        id: format!("studio-{}", n / 2).parse().unwrap(),
        name: String::new(),
        enabled: true,
        budget: None,
        created_at: f.now(),
        version: 1,
    };
    let tenants: Vec<Tenant> = (0..8).map(tenant).collect();
    let made = join_all(
        tenants
            .iter()
            .enumerate()
            .map(|(n, tenant)| nodes[n % 2].tenants.ensure_tenant(tenant)),
    )
    .await;
    assert_eq!(made.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 4);
    let scope = TenantScope::new(tenants[0].id.clone());
    assert_eq!(
        nodes[0].tenants.load_tenant(scope.tenant()).await.unwrap().unwrap(),
        tenants[0]
    );
}
