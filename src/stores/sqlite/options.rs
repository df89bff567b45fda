//! The options of the database.

use std::time::Duration;

/// The options of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// `synchronous=FULL`: acknowledged writes survive a power cut too. `false` (`NORMAL`): acknowledged writes survive
    /// a killed process.
    pub synchronous_full: bool,
    /// The number of reading connections beside the writer; 1–32.
    pub readers: u32,
    /// A statement's longest wait for another process's lock; 5 s. One process writes, so that locks are rare.
    pub busy_timeout: Duration,
    /// The most writes waiting for the writer; further writes are refused as unavailable.
    pub write_queue: usize,
    /// The name of the embedding model, stored with every embedding. Only embeddings with this name are read; facts
    /// with another model's embedding wait for `FactStore::store_embeddings`.
    pub embedding_model: String,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            synchronous_full: false,
            readers: 4,
            busy_timeout: Duration::from_secs(5),
            write_queue: 4_096,
            embedding_model: String::new(),
        }
    }
}
