//! A place for a test's index: in a double of its own, or in the Qdrant that `QDRANT_URL` names (its gRPC address).

use std::{
    env, process,
    sync::atomic::{AtomicU32, Ordering},
};

use qdrant_client::{Qdrant, QdrantError};

use super::QdrantProcess;
use crate::support::run;

/// A collection that nobody else has. Gone with the value.
pub struct QdrantIndex {
    pub url: String,
    pub collection: String,
    /// Where the server is not one that somebody else runs.
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
        // Left by a process of the same number that was killed.
        drop_all(&url, &collection).await.unwrap();
        Self {
            url,
            collection,
            double: None,
        }
    }
}

/// Drops what servers made for an index of this name: each of its collections has a number behind it.
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
        // On a thread of its own: this one may be a runtime's.
        let dropped = std::thread::spawn(move || run(drop_all(&url, &name)).is_ok());
        if !dropped.join().unwrap_or_default() {
            eprintln!("collections of {} are left over", self.collection);
        }
    }
}
