//! A Qdrant of a test's own: what the server needs of it, over its real wire protocol.
//!
//! It does what Qdrant does for the requests it models and refuses every other, to the last field, so that
//! nothing can come to rely on what is only true here: a filter needs an index of its field, an order needs
//! one of numbers, a vector needs the collection's length. Searches are exact.

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

/// The key that a double asks for if it is started with one.
const KEY_HEADER: &str = "api-key";

/// What is kept.
#[derive(Default)]
struct QdrantStore {
    collections: BTreeMap<String, Collection>,
    /// By alias.
    aliases: BTreeMap<String, String>,
    /// Requests by method, in order.
    requests: Vec<&'static str>,
    /// The next searches fail as if the server were out of order.
    broken: bool,
}

impl QdrantStore {
    /// By its name or an alias.
    fn collection(&mut self, name: &str) -> Result<&mut Collection, tonic::Status> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        self.collections
            .get_mut(name)
            .ok_or_else(|| tonic::Status::not_found(format!("Not found: Collection `{name}` doesn't exist!")))
    }
}

/// A running double. Ends with the value.
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

    /// One that wants this key with every request.
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

    /// Goes away as a crash would: connections are cut. What it kept stays.
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
        // Whoever had it before may still be on their way out.
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

    /// Forgets everything, as if its disk had been lost.
    pub fn lose_all_data(&self) {
        *self.store.lock() = QdrantStore::default();
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Names of collections, in order.
    pub fn collections(&self) -> Vec<String> {
        self.store.lock().collections.keys().cloned().collect()
    }

    /// Where an alias points.
    pub fn alias(&self, alias: &str) -> Option<String> {
        self.store.lock().aliases.get(alias).cloned()
    }

    /// Points in a collection, by its name or an alias.
    pub fn points(&self, collection: &str) -> usize {
        self.store
            .lock()
            .collection(collection)
            .map_or(0, |found| found.points.len())
    }

    /// Every text in any payload.
    pub fn texts(&self) -> Vec<String> {
        let store = self.store.lock();
        store.collections.values().flat_map(Collection::texts).collect()
    }

    /// Fields with an index, and those among them that tell tenants apart.
    pub fn indexes(&self, collection: &str) -> (Vec<String>, Vec<String>) {
        let mut store = self.store.lock();
        let indexes = &store.collection(collection).unwrap().indexes;
        let tenants = indexes.iter().filter(|(_, index)| index.is_tenant());
        (
            indexes.keys().cloned().collect(),
            tenants.map(|(field, _)| field.clone()).collect(),
        )
    }

    /// Methods called since the last time this was asked.
    pub fn take_requests(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.store.lock().requests)
    }

    /// Searches fail from now on, or no longer.
    pub fn break_searches(&self, broken: bool) {
        self.store.lock().broken = broken;
    }

    /// Takes a point out behind everybody's back.
    pub fn lose_a_point(&self, collection: &str) {
        let mut store = self.store.lock();
        let points = &mut store.collection(collection).unwrap().points;
        points.pop_first().expect("there is a point");
    }

    /// Makes every point something else than what was written.
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
