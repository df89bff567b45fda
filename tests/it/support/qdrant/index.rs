//! A place for a test's index: a new double, or the Qdrant at the gRPC address in `QDRANT_URL`.

use std::{
    env, process,
    sync::atomic::{AtomicU32, Ordering},
};

use qdrant_client::{Qdrant, QdrantError};

use super::QdrantProcess;
use crate::support::run;

/// A collection of one test, deleted when dropped.
pub struct QdrantIndex {
    pub url: String,
    pub collection: String,
    /// The double, unless `QDRANT_URL` names a server.
    double: Option<QdrantProcess>,
}

impl QdrantIndex {
    pub async fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let collection = format!(
            "colloquy-test-{}-{}",
            process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let Ok(url) = env::var("QDRANT_URL") else {
            let double = QdrantProcess::start();
            return Self {
                url: double.url(),
                collection,
                double: Some(double),
            };
        };
        // A leftover of a killed process with the same number.
        drop_all(&url, &collection).await.unwrap();
        Self {
            url,
            collection,
            double: None,
        }
    }
}

/// Drops the collections that servers created for an index. Their names end in a number.
async fn drop_all(url: &str, name: &str) -> Result<(), QdrantError> {
    let client = Qdrant::from_url(url).skip_compatibility_check().build()?;
    for collection in client.list_collections().await?.collections {
        if collection.name.starts_with(&format!("{name}_")) {
            client.delete_collection(collection.name).await?;
        }
    }
    Ok(())
}

impl Drop for QdrantIndex {
    fn drop(&mut self) {
        if self.double.is_some() {
            return;
        }
        let (url, name) = (self.url.clone(), self.collection.clone());
        // Uses a new thread, because the current thread may belong to a runtime.
        let dropped = std::thread::spawn(move || run(drop_all(&url, &name)).is_ok());
        if !dropped.join().unwrap_or_default() {
            eprintln!("collections of {} are left over", self.collection);
        }
    }
}
