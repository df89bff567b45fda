//! The ledgers that histories happen to: SQLite, or Postgres where it is asked for.

use std::{
    any::Any,
    cell::Cell,
    sync::{Arc, LazyLock},
};

use colloquy::{
    adapters::{
        postgres::{self, PostgresOptions},
        sqlite::{self, SqliteOptions},
    },
    ports::{clock::ManualClock, ledger::Ledger, vectors::PointSource},
};

use crate::support::PostgresDatabase;

thread_local! {
    static ON_POSTGRES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with ledgers on Postgres. It must not leave this thread.
pub fn on_postgres<T>(work: impl FnOnce() -> T) -> T {
    ON_POSTGRES.set(true);
    let result = work();
    ON_POSTGRES.set(false);
    result
}

/// An empty SQLite ledger, made once and copied for every run.
static EMPTY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.db");
    let text = path.to_str().unwrap().to_owned();
    std::thread::spawn(move || crate::support::run(sqlite::migrate(&text)).unwrap())
        .join()
        .unwrap();
    std::fs::read(path).unwrap()
});

/// An empty ledger.
pub struct Store {
    pub ledger: Ledger,
    pub points: Arc<dyn PointSource>,
    /// Where it is kept, until this is dropped.
    pub place: Box<dyn Any + Send>,
}

impl Store {
    pub async fn empty(clock: Arc<ManualClock>) -> Self {
        if ON_POSTGRES.get() {
            let database = PostgresDatabase::migrated().await;
            let options = PostgresOptions {
                connections: 2,
                ..PostgresOptions::default()
            };
            let store = postgres::open(&database.url, options, clock).await.unwrap();
            return Self {
                ledger: store.ledger(),
                points: store.point_source(),
                place: Box::new(database),
            };
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("colloquy.db");
        std::fs::write(&path, &*EMPTY).unwrap();
        let options = SqliteOptions {
            readers: 1,
            ..SqliteOptions::default()
        };
        let store = sqlite::open(path.to_str().unwrap(), options, clock).await.unwrap();
        Self {
            ledger: store.ledger(),
            points: store.point_source(),
            place: Box::new(folder),
        }
    }
}
