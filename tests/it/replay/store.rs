//! The stores that histories happen to: SQLite and an index in this process, or Postgres or Qdrant where it is
//! asked for.

use std::{
    any::Any,
    cell::Cell,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use colloquy::{
    adapters::{
        in_process::fact_index::{FactIndexOptions, InProcessFactIndex},
        postgres::{self, PostgresOptions},
        qdrant::{QdrantFactIndex, QdrantOptions},
        sqlite::{self, SqliteOptions},
    },
    ports::{
        clock::ManualClock,
        embedder::EmbedderInfo,
        ledger::Ledger,
        vectors::{FactIndex, PointSource},
    },
};

use crate::support::{PATIENCE, PostgresDatabase, QdrantDouble};

thread_local! {
    static ON_POSTGRES: Cell<bool> = const { Cell::new(false) };
    static ON_QDRANT: Cell<bool> = const { Cell::new(false) };
}

/// One for all worlds; each has a collection of its own there.
static QDRANT: LazyLock<QdrantDouble> = LazyLock::new(QdrantDouble::start);

/// Runs `work` with indexes in Qdrant. It must not leave this thread.
pub fn on_qdrant<T>(work: impl FnOnce() -> T) -> T {
    ON_QDRANT.set(true);
    let result = work();
    ON_QDRANT.set(false);
    result
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
    pub index: Arc<dyn FactIndex>,
    /// Where it is kept, until this is dropped.
    pub place: Box<dyn Any + Send>,
}

impl Store {
    pub async fn empty(clock: Arc<ManualClock>, embedder: &EmbedderInfo) -> Self {
        if ON_POSTGRES.get() {
            let database = PostgresDatabase::migrated().await;
            let options = PostgresOptions {
                connections: 2,
                ..PostgresOptions::default()
            };
            let store = postgres::open(&database.url, options, clock).await.unwrap();
            return Self {
                ledger: store.ledger(),
                index: index(store.point_source(), embedder),
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
            index: index(store.point_source(), embedder),
            place: Box::new(folder),
        }
    }
}

fn index(points: Arc<dyn PointSource>, embedder: &EmbedderInfo) -> Arc<dyn FactIndex> {
    static WORLDS: AtomicU32 = AtomicU32::new(0);
    if !ON_QDRANT.get() {
        return Arc::new(InProcessFactIndex::new(points, FactIndexOptions::default()));
    }
    let world = WORLDS.fetch_add(1, Ordering::Relaxed);
    let index = QdrantFactIndex::new(QdrantOptions {
        url: QDRANT.url(),
        api_key: None,
        collection: format!("world-{world}"),
        timeout: PATIENCE,
        write_timeout: PATIENCE,
        hnsw_ef: 64,
        embedding_model: embedder.model.clone(),
        dimensions: embedder.dimensions,
    });
    Arc::new(index.unwrap())
}
