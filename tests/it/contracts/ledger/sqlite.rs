//! SQLite as a subject of the suite, and faults possible only with a file.

use std::sync::Arc;

use async_trait::async_trait;
use colloquy::{
    adapters::sqlite::{SqliteLedger, SqliteOptions, migrate_schema, open_ledger},
    ports::{
        clock::{ManualClock, SystemClock},
        ledger::Ledger,
        vectors::PointSource,
    },
};
use sqlx::{ConnectOptions as _, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{LedgerSubject, OTHER_BUILD_CHECKSUM};

/// The embedder of a fresh subject.
const FIRST_MODEL: &str = "first";

pub struct SqliteSubject {
    folder: tempfile::TempDir,
    sqlite: SqliteLedger,
    ledger: Ledger,
}

async fn open_folder(folder: &tempfile::TempDir, clock: Arc<ManualClock>, model: &str) -> SqliteLedger {
    let url = format!("sqlite://{}", folder.path().join("deep/er/ledger.db").display());
    let options = SqliteOptions {
        embedding_model: model.to_owned(),
        ..SqliteOptions::default()
    };
    open_ledger(&url, options, clock).await.unwrap()
}

#[async_trait]
impl LedgerSubject for SqliteSubject {
    async fn open_empty(clock: Arc<ManualClock>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sqlite = open_folder(&folder, clock, FIRST_MODEL).await;
        Self {
            ledger: sqlite.ledger(),
            sqlite,
            folder,
        }
    }
    fn ledger(&self) -> &Ledger {
        &self.ledger
    }
    fn points(&self) -> Arc<dyn PointSource> {
        self.sqlite.point_source()
    }
    async fn reopen(&mut self, clock: Arc<ManualClock>) {
        self.change_embedder(clock, FIRST_MODEL).await;
    }
    async fn change_embedder(&mut self, clock: Arc<ManualClock>, model: &str) {
        self.ledger.maintenance.close_connections().await;
        self.sqlite = open_folder(&self.folder, clock, model).await;
        self.ledger = self.sqlite.ledger();
    }
    async fn is_audit_immutable(&self) -> bool {
        let mut connection = connect(&self.folder.path().join("deep/er/ledger.db")).await;
        let mut refused = true;
        for statement in ["UPDATE audit SET subject = 'somebody else'", "DELETE FROM audit"] {
            refused &= sqlx::query(statement).execute(&mut connection).await.is_err();
        }
        refused
    }
    async fn overwrite_outcome(&self, key: &str, outcome: &str) {
        let mut connection = connect(&self.folder.path().join("deep/er/ledger.db")).await;
        let update = sqlx::query("UPDATE rewinds SET outcome = $2 WHERE key = $1");
        let done = update.bind(key).bind(outcome).execute(&mut connection).await.unwrap();
        assert_eq!(done.rows_affected(), 1);
    }
}

async fn connect(file: &std::path::Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(file).connect().await.unwrap()
}

#[tokio::test]
async fn database_of_a_newer_version_is_rejected_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let path = file.to_str().unwrap();
    let newest = migrate_schema(path).await.unwrap();
    let migrations = async || -> i64 {
        sqlx::query_scalar("SELECT COUNT(*) FROM _sqlx_migrations")
            .fetch_one(&mut connect(&file).await)
            .await
            .unwrap()
    };
    let known = migrations().await;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES ($1, 'from the future', 1, x'00', 0)",
    )
    .bind(newest + 1)
    .execute(&mut connect(&file).await)
    .await
    .unwrap();
    let Err(error) = open_ledger(path, SqliteOptions::default(), Arc::new(SystemClock)).await else {
        panic!("it was opened");
    };
    assert!(error.to_string().contains("newer version"), "{error}");
    assert_eq!(migrations().await, known + 1);
}

#[tokio::test]
async fn migration_with_known_checksum_is_accepted_and_an_unknown_one_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let path = file.to_str().unwrap();
    migrate_schema(path).await.unwrap();
    let checksum = async || -> String {
        sqlx::query_scalar("SELECT hex(checksum) FROM _sqlx_migrations WHERE version = 11")
            .fetch_one(&mut connect(&file).await)
            .await
            .unwrap()
    };
    let reword = async |to: &str| {
        let sql = format!("UPDATE _sqlx_migrations SET checksum = x'{to}' WHERE version = 11");
        let sql = sqlx::AssertSqlSafe(sql);
        sqlx::raw_sql(sql).execute(&mut connect(&file).await).await.unwrap();
    };
    let here = checksum().await;
    reword(OTHER_BUILD_CHECKSUM).await;
    migrate_schema(path).await.unwrap();
    assert_eq!(checksum().await, here);
    reword("00ff").await;
    let refused = migrate_schema(path).await.unwrap_err().to_string();
    assert!(
        refused.contains("migration 11 ") && refused.contains("another build"),
        "{refused}"
    );
    assert_eq!(checksum().await, "00FF", "it is left alone");
}

#[tokio::test]
async fn file_that_is_no_database_is_rejected_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let text = "these are somebody's notes, not a database\n".repeat(200);
    std::fs::write(&file, &text).unwrap();
    let opened = open_ledger(file.to_str().unwrap(), SqliteOptions::default(), Arc::new(SystemClock)).await;
    assert!(opened.is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[tokio::test]
async fn url_without_a_file_is_rejected() {
    for url in ["", "sqlite://", "sqlite::memory:", "sqlite://x.db?mode=memory"] {
        assert!(
            open_ledger(url, SqliteOptions::default(), Arc::new(SystemClock))
                .await
                .is_err(),
            "{url}"
        );
    }
}
