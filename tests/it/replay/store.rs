//! The stores that histories happen to: SQLite with buffers and an index in this process, or Postgres with Redis, or
//! Qdrant, where it is asked for.

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
    /// That worlds of this thread are done with; the next one takes it over. Gone with the thread.
    static SPARE: RefCell<Option<Box<SharedDatabase>>> = const { RefCell::new(None) };
}

/// Numbers the worlds.
static WORLDS: AtomicU32 = AtomicU32::new(0);

/// One for all worlds; each has a collection of its own there.
static QDRANT: LazyLock<QdrantDouble> = LazyLock::new(QdrantDouble::start);

/// Runs `work` with indexes in Qdrant. It must not leave this thread.
pub fn on_qdrant<T>(work: impl FnOnce() -> T) -> T {
    ON_QDRANT.set(true);
    let result = work();
    ON_QDRANT.set(false);
    result
}

/// Runs `work` with ledgers on Postgres and buffers in Redis. It must not leave this thread.
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
    std::thread::spawn(move || crate::support::run(sqlite::migrate_schema(&text)).unwrap())
        .join()
        .unwrap();
    std::fs::read(path).unwrap()
});

/// A database on Postgres in which one world after the other is a tenant: a database of its own for each
/// would take longer to make than what happens in it. What earlier worlds left there stays, and later ones
/// must not see it.
pub struct SharedDatabase {
    postgres: PostgresLedger,
    ledger: Ledger,
    clock: Arc<ManualClock>,
    /// For the buffers of all its worlds.
    redis: RedisServer,
    // Dropped last.
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

    /// The one that the last world of this thread left, or else a new one.
    async fn spare_or_new(beginning: DateTime<Utc>) -> Box<Self> {
        let Some(shared) = SPARE.take() else {
            return Box::new(Self::new(beginning).await);
        };
        let passed = shared.clock.now() - beginning;
        shared.clock.set_back(passed.to_std().unwrap());
        // As a server does, or its plans would be those for the few rows of the first world.
        shared.ledger.maintenance.count_grown_tables().await.unwrap();
        shared
    }
}

/// What keeps a ledger.
pub enum StorePlace {
    /// A file, gone with the folder.
    Folder {
        _folder: tempfile::TempDir,
    },
    Shared(Box<SharedDatabase>),
}

impl StorePlace {
    /// No world is there any longer. One that panicked does not come here: what it left running goes with its
    /// database.
    pub async fn reset_for_next_world(self, ledger: &Ledger) {
        match self {
            Self::Folder { .. } => ledger.maintenance.close_connections().await,
            Self::Shared(shared) => {
                // The outbox is all tenants': the next world would find what this one left in it.
                let left = ledger.facts.load_outbox(1).await.unwrap();
                assert!(left.is_empty(), "the index was not told of everything");
                SPARE.set(Some(shared));
            }
        }
    }
}

/// An empty ledger: no other world has this tenant.
pub struct ReplayStore {
    pub ledger: Ledger,
    pub tenant: TenantId,
    pub clock: Arc<ManualClock>,
    pub index: Arc<dyn FactIndex>,
    pub buffers: Arc<dyn BufferStore>,
    /// Where it is kept, until this is dropped.
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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("colloquy.db");
        std::fs::write(&path, &*EMPTY).unwrap();
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
            place: StorePlace::Folder { _folder: folder },
        }
    }
}

/// A connection of the world's own: it belongs to the runtime that it is made on.
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
        hnsw_ef: 64,
        embedding_model: embedder.model.clone(),
        dimensions: embedder.dimensions,
    });
    let words = InProcessFactIndex::new_term_counter(points, FactIndexOptions::default());
    Arc::new(CountedFactIndex::new(Arc::new(index.unwrap()), Arc::new(words)))
}
