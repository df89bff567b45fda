//! Helpers of all tests: servers, sockets, and waits for conditions instead of times.

pub mod adventure_script;
mod blackhole_proxy;
mod client;
mod model;
mod postgres;
mod postgres_server;
mod process;
pub mod qdrant;
mod redis;
mod server;
mod wire_recorder;

use std::{future::Future, time::Duration};

pub use self::{
    blackhole_proxy::BlackholeProxy,
    client::{RestAnswer, RestClient, TestSocket},
    model::ModelProcess,
    postgres::PostgresDatabase,
    postgres_server::PostgresServer,
    qdrant::{QdrantDouble, QdrantIndex, QdrantProcess},
    redis::{RedisCluster, RedisServer},
    server::{ServerData, TestServer},
    wire_recorder::{RecordedRequest, WireRecorder, in_sequence},
};

/// The time limit for quick events. The limit is long, because test machines are busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Polls `ask` until an answer comes.
///
/// # Panics
/// With `what` if no answer comes within [`PATIENCE`].
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, ask: impl FnMut() -> F) -> T {
    within(PATIENCE, what, ask).await
}

/// Polls like [`eventually`], after an outage or a death, for up to two minutes.
pub async fn eventually_after_outage<T, F: Future<Output = Option<T>>>(what: &str, ask: impl FnMut() -> F) -> T {
    within(Duration::from_mins(2), what, ask).await
}

async fn within<T, F: Future<Output = Option<T>>>(limit: Duration, what: &str, mut ask: impl FnMut() -> F) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(limit, asking)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// Runs a test's future on a new runtime.
pub fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}
