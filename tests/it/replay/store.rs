//! The stores for histories: SQLite with in-process buffers and index, or on request Postgres with Redis, or Qdrant.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use chrono::{DateTime, Utc};
use colloquy::{
    adapters::{
        in_process::{
            buffers::{BufferLimits, InProcessBuffers},
            counted_index::CountedFactIndex,
            fact_index::{FactIndexOptions, InProcessFactIndex},
        },
        postgres::{self, PostgresLedger, PostgresOptions},
        qdrant::{QdrantFactIndex, QdrantOptions},
        redis::{RedisOptions, buffers::RedisBuffers},
        sqlite::{self, SqliteOptions},
    },
    ids::TenantId,
    ports::{
        buffer::BufferStore,
        clock::{Clock as _, ManualClock},
        embedder::EmbedderInfo,
        ledger::Ledger,
        vectors::{FactIndex, PointSource},
    },
};

use crate::support::{PATIENCE, PostgresDatabase, QdrantDouble, RedisServer};

thread_local! {
    static ON_POSTGRES: Cell<bool> = const { Cell::new(false) };
    static ON_QDRANT: Cell<bool> = const { Cell::new(false) };
    /// The database left by an earlier world of this thread. The next world reuses it. Dropped with the thread.
    static SPARE: RefCell<Option<Box<SharedDatabase>>> = const { RefCell::new(None) };
}

/// The number of the next world.
static WORLDS: AtomicU32 = AtomicU32::new(0);

/// One server for all worlds. Every world has its own collection.
static QDRANT: LazyLock<QdrantDouble> = LazyLock::new(QdrantDouble::start);

/// Runs `work` with indexes in Qdrant. `work` must not leave this thread.
pub fn on_qdrant<T>(work: impl FnOnce() -> T) -> T {
    ON_QDRANT.set(true);
    let result = work();
    ON_QDRANT.set(false);
    result
}

/// Runs `work` with ledgers on Postgres and buffers in Redis. `work` must not leave this thread.
pub fn on_postgres<T>(work: impl FnOnce() -> T) -> T {
    ON_POSTGRES.set(true);
    let result = work();
    ON_POSTGRES.set(false);
    result
}

/// True if worlds of this thread are on Postgres.
pub fn is_on_postgres() -> bool {
    ON_POSTGRES.get()
}

/// An empty SQLite ledger, created once and copied for every run.
static EMPTY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.db");
    let text = path.to_str().unwrap().to_owned();
    std::thread::spawn(move || crate::support::run(sqlite::migrate_schema(&text)).unwrap())
        .join()
        .unwrap();
    std::fs::read(path).unwrap()
});

/// A Postgres database for successive worlds, each a tenant. Creating a database takes longer than a history. Data of
/// earlier worlds stays, and later worlds must not see that data.
pub struct SharedDatabase {
    postgres: PostgresLedger,
    ledger: Ledger,
    clock: Arc<ManualClock>,
    /// For the buffers of all its worlds.
    redis: RedisServer,
    // Dropped last, because fields drop in order.
    _database: PostgresDatabase,
}

impl SharedDatabase {
    async fn new(beginning: DateTime<Utc>) -> Self {
        let database = PostgresDatabase::migrated().await;
        let options = PostgresOptions {
            connections: 2,
            ..PostgresOptions::default()
        };
        let clock = ManualClock::starting_at(beginning);
        let postgres = postgres::open_ledger(&database.url, options, clock.clone())
            .await
            .unwrap();
        Self {
            ledger: postgres.ledger(),
            postgres,
            clock,
            redis: RedisServer::start().await,
            _database: database,
        }
    }

    /// Returns the database left by this thread's last world, or a new database.
    async fn spare_or_new(beginning: DateTime<Utc>) -> Box<Self> {
        let Some(shared) = SPARE.take() else {
            return Box::new(Self::new(beginning).await);
        };
        let passed = shared.clock.now() - beginning;
        shared.clock.set_back(passed.to_std().unwrap());
        // Updates the statistics as a server does. Otherwise, plans would fit the few rows of the first world.
        shared.ledger.maintenance.count_grown_tables().await.unwrap();
        shared
    }
}

/// The storage of a ledger.
pub enum StorePlace {
    /// A file, deleted with the folder.
    Folder {
        folder: tempfile::TempDir,
    },
    Shared(Box<SharedDatabase>),
}

/// The name of the file in its folder.
const LEDGER_FILE: &str = "colloquy.db";

impl StorePlace {
    /// Returns the contents of the file, after its ledger was closed.
    pub fn read_file(&self) -> Vec<u8> {
        let Self::Folder { folder } = self else {
            panic!("a database is no file");
        };
        std::fs::read(folder.path().join(LEDGER_FILE)).unwrap()
    }

    /// Frees the storage after a world's end. A world that panicked skips this call, and its leftovers go with its
    /// database.
    pub async fn reset_for_next_world(self, ledger: &Ledger) {
        match self {
            Self::Folder { .. } => ledger.maintenance.close_connections().await,
            Self::Shared(shared) => {
                // All tenants share the outbox, so the next world would find leftover rows.
                let left = ledger.facts.load_outbox(1).await.unwrap();
                assert!(left.is_empty(), "the index was not told of everything");
                SPARE.set(Some(shared));
            }
        }
    }
}

/// A ledger with a tenant of its own.
pub struct ReplayStore {
    pub ledger: Ledger,
    pub tenant: TenantId,
    pub clock: Arc<ManualClock>,
    pub index: Arc<dyn FactIndex>,
    pub buffers: Arc<dyn BufferStore>,
    /// The storage, until dropped.
    pub place: StorePlace,
}

impl ReplayStore {
    pub async fn open_empty(beginning: DateTime<Utc>, embedder: &EmbedderInfo) -> Self {
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        let tenant: TenantId = format!("world-{world}").parse().unwrap();
        if ON_POSTGRES.get() {
            let shared = SharedDatabase::spare_or_new(beginning).await;
            return Self {
                ledger: shared.ledger.clone(),
                tenant,
                clock: shared.clock.clone(),
                index: index(world, shared.postgres.point_source(), embedder),
                buffers: buffers_in(&shared.redis),
                place: StorePlace::Shared(shared),
            };
        }
        Self::open_copy(&EMPTY, tenant, beginning, embedder).await
    }

    /// Opens a copy of a SQLite ledger.
    pub async fn open_copy(file: &[u8], tenant: TenantId, beginning: DateTime<Utc>, embedder: &EmbedderInfo) -> Self {
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LEDGER_FILE);
        std::fs::write(&path, file).unwrap();
        let options = SqliteOptions {
            readers: 1,
            ..SqliteOptions::default()
        };
        let clock = ManualClock::starting_at(beginning);
        let store = sqlite::open_ledger(path.to_str().unwrap(), options, clock.clone())
            .await
            .unwrap();
        Self {
            ledger: store.ledger(),
            tenant,
            clock,
            index: index(world, store.point_source(), embedder),
            buffers: Arc::new(InProcessBuffers::new(BufferLimits::default())),
            place: StorePlace::Folder { folder },
        }
    }
}

/// Opens a new connection, because a connection belongs to its runtime.
fn buffers_in(redis: &RedisServer) -> Arc<dyn BufferStore> {
    let options = RedisOptions {
        url: redis.url(),
        cluster: false,
        timeout: PATIENCE,
    };
    Arc::new(RedisBuffers::new(&options, PATIENCE * 60).unwrap())
}

fn index(world: u32, points: Arc<dyn PointSource>, embedder: &EmbedderInfo) -> Arc<dyn FactIndex> {
    if !ON_QDRANT.get() {
        return Arc::new(InProcessFactIndex::new(points, FactIndexOptions::default()));
    }
    let index = QdrantFactIndex::new(QdrantOptions {
        url: QDRANT.url(),
        api_key: None,
        collection: format!("world-{world}"),
        timeout: PATIENCE,
        write_timeout: PATIENCE,
        embedding_model: embedder.model.clone(),
        dimensions: embedder.dimensions,
    });
    let words = InProcessFactIndex::new_term_counter(points, FactIndexOptions::default());
    Arc::new(CountedFactIndex::new(Arc::new(index.unwrap()), Arc::new(words)))
}
