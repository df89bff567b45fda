//! A Qdrant double per test, with the requests that the server uses, over the real wire protocol.
//!
//! The double acts like Qdrant for supported requests, and refuses all other requests down to single fields. The server
//! therefore cannot rely on behaviour of the double alone. A filter needs an index on its field, an order needs a
//! numeric index, and a vector needs the collection's length. Searches are exact.

mod collection;
mod index;
mod process;
mod query;
mod service;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::runtime::Runtime;

use self::collection::Collection;
pub use self::{index::QdrantIndex, process::QdrantProcess};
use super::PATIENCE;

/// The header of the key, required if the double is started with a key.
const KEY_HEADER: &str = "api-key";

/// The stored data.
#[derive(Default)]
struct QdrantStore {
    collections: BTreeMap<String, Collection>,
    /// Collection names by alias.
    aliases: BTreeMap<String, String>,
    /// Requests by method, in order.
    requests: Vec<&'static str>,
    /// True if searches fail like on a faulty server.
    broken: bool,
}

impl QdrantStore {
    /// Returns a collection by its name or alias.
    fn collection(&mut self, name: &str) -> Result<&mut Collection, tonic::Status> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        self.collections
            .get_mut(name)
            .ok_or_else(|| tonic::Status::not_found(format!("Not found: Collection `{name}` doesn't exist!")))
    }
}

/// A running double, which stops when dropped.
pub struct QdrantDouble {
    store: Arc<Mutex<QdrantStore>>,
    address: SocketAddr,
    key: Option<String>,
    runtime: Option<Runtime>,
}

impl QdrantDouble {
    pub fn start() -> Self {
        Self::start_at(0, None)
    }

    /// Starts a double that requires this key.
    pub fn start_with_key(key: &str) -> Self {
        Self::start_at(0, Some(key.to_owned()))
    }

    fn start_at(port: u16, key: Option<String>) -> Self {
        let mut double = Self {
            store: Arc::default(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            key,
            runtime: None,
        };
        double.serve_again();
        double
    }

    /// Cuts all connections like a crash. The data stays.
    pub fn stop_serving(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Listens again at the same address.
    pub fn serve_again(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        // The previous listener may not have closed yet.
        let pause = std::time::Duration::from_millis(10);
        let listener = (0..PATIENCE.as_millis() / pause.as_millis())
            .find_map(|_| {
                let bound = TcpListener::bind(self.address).ok();
                if bound.is_none() {
                    std::thread::sleep(pause);
                }
                bound
            })
            .expect("the port is free");
        self.address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (store, key) = (self.store.clone(), self.key.clone());
        runtime.spawn(async move { service::serve(listener, store, key).await });
        self.runtime = Some(runtime);
    }

    /// Deletes all data, like the loss of the disk.
    pub fn lose_all_data(&self) {
        *self.store.lock() = QdrantStore::default();
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the names of the collections, in order.
    pub fn collections(&self) -> Vec<String> {
        self.store.lock().collections.keys().cloned().collect()
    }

    /// Returns the collection of an alias.
    pub fn alias(&self, alias: &str) -> Option<String> {
        self.store.lock().aliases.get(alias).cloned()
    }

    /// Returns the number of points in a collection, by its name or alias.
    pub fn points(&self, collection: &str) -> usize {
        self.store
            .lock()
            .collection(collection)
            .map_or(0, |found| found.points.len())
    }

    /// Returns all texts in all payloads.
    pub fn texts(&self) -> Vec<String> {
        let store = self.store.lock();
        store.collections.values().flat_map(Collection::texts).collect()
    }

    /// Returns the indexed fields, and the tenant fields among them.
    pub fn indexes(&self, collection: &str) -> (Vec<String>, Vec<String>) {
        let mut store = self.store.lock();
        let indexes = &store.collection(collection).unwrap().indexes;
        let tenants = indexes.iter().filter(|(_, index)| index.is_tenant());
        (
            indexes.keys().cloned().collect(),
            tenants.map(|(field, _)| field.clone()).collect(),
        )
    }

    /// Returns and clears the methods called since the last call.
    pub fn take_requests(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.store.lock().requests)
    }

    /// Makes searches fail, or work again.
    pub fn break_searches(&self, broken: bool) {
        self.store.lock().broken = broken;
    }

    /// Deletes a point without notice.
    pub fn lose_a_point(&self, collection: &str) {
        let mut store = self.store.lock();
        let points = &mut store.collection(collection).unwrap().points;
        points.pop_first().expect("there is a point");
    }

    /// Changes every point without notice.
    pub fn corrupt_points(&self, collection: &str) {
        let mut store = self.store.lock();
        for point in store.collection(collection).unwrap().points.values_mut() {
            point.payload.remove("digest");
        }
    }
}

impl Drop for QdrantDouble {
    fn drop(&mut self) {
        self.stop_serving();
    }
}
