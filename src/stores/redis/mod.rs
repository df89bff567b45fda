//! Buffers in Redis (or Valkey), single or as a cluster, shared by every node of the server.
//!
//! This module owns the connection and the handling of outages. A call without an answer in time fails. After a few
//! failures, calls fail at once for a moment, so that turns do not wait for a store which they can do without. The
//! connection recovers by itself. [`buffers`] and [`owners`] describe the stored data.

pub mod buffers;
pub mod owners;

use std::time::Duration;

use redis::{
    Client, IntoConnectionInfo as _, RedisError, RedisFuture, Value,
    aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig},
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
};
use tokio::sync::OnceCell;

use super::breaker::StoreBreaker;
use colloquy_ports::{StoreError, StoreResult, redaction};

/// The options of the connection.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis://[[user]:password@]host[:port][/db]`, or `rediss://` for TLS. With `cluster`, the URL of one of the
    /// nodes.
    pub url: String,
    /// True for a Redis Cluster. The client finds the other nodes by itself.
    pub cluster: bool,
    /// The time after which a call fails.
    pub timeout: Duration,
}

/// One connection, shared by all callers: their commands are pipelined.
struct Redis {
    connector: Connector,
    timeout: Duration,
    breaker: StoreBreaker,
}

enum Connector {
    One(ConnectionManager),
    /// A cluster connection needs a first request for the cluster's nodes.
    Cluster(Box<ClusterClient>, OnceCell<ClusterConnection>),
}

/// A connection to a single Redis or to a cluster.
#[derive(Clone)]
enum RedisConnection {
    One(ConnectionManager),
    Cluster(ClusterConnection),
}

impl Redis {
    /// Connects on first use.
    ///
    /// # Errors
    /// Fails on an invalid URL.
    fn new(options: &RedisOptions) -> StoreResult<Self> {
        // Fails, harmlessly, if another part of the program has already installed a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let connector = if options.cluster {
            let client = ClusterClientBuilder::new([options.url.as_str()])
                .connection_timeout(options.timeout)
                .response_timeout(options.timeout)
                // Several nodes in a row may redirect a request to a moving slot. The breaker limits the time.
                .retries(3)
                .build()
                .map_err(|error| unusable_error(&error))?;
            Connector::Cluster(Box::new(client), OnceCell::new())
        } else {
            let client = options
                .url
                .as_str()
                .into_connection_info()
                .and_then(Client::open)
                .map_err(|error| unusable_error(&error))?;
            let config = ConnectionManagerConfig::new()
                .set_connection_timeout(Some(options.timeout))
                .set_response_timeout(Some(options.timeout))
                // The breaker decides when to try again.
                .set_number_of_retries(0);
            Connector::One(
                ConnectionManager::new_lazy_with_config(client, config).map_err(|error| unusable_error(&error))?,
            )
        };
        Ok(Self {
            connector,
            timeout: options.timeout,
            breaker: StoreBreaker::new("Redis"),
        })
    }

    /// Runs `work` on the connection, unless Redis has just failed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if Redis is unreachable, is late, or refuses for now.
    async fn run_command<T>(
        &self,
        work: impl AsyncFnOnce(&mut RedisConnection) -> Result<T, RedisError>,
    ) -> StoreResult<T> {
        let work = async {
            let mut connection = self.open_connection().await.map_err(|error| store_error(&error))?;
            work(&mut connection).await.map_err(|error| store_error(&error))
        };
        // A reconnect can take longer than the connection's time-outs.
        self.breaker.call_within(self.timeout * 2, work).await
    }

    async fn open_connection(&self) -> Result<RedisConnection, RedisError> {
        Ok(match &self.connector {
            Connector::One(manager) => RedisConnection::One(manager.clone()),
            Connector::Cluster(client, cell) => {
                let connecting = cell.get_or_try_init(|| client.get_async_connection());
                RedisConnection::Cluster(connecting.await?.clone())
            }
        })
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a redis::Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }
    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }
    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

fn unusable_error(error: &RedisError) -> StoreError {
    // The error leaves out the URL, which may contain a password.
    StoreError::Rejected(format!(
        "Redis cannot be used: {}",
        redaction::cut_at_quote(&error.to_string())
    ))
}

fn store_error(error: &RedisError) -> StoreError {
    use redis::{ErrorKind, ServerErrorKind as Server};

    // Redis repeats an unknown command in its error.
    let message = || redaction::cut_at_quote(&error.to_string());

    match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreError::Corrupt(message()),
        // Errors of a server that is starting, failing over or full, and of a cluster with moving slots.
        ErrorKind::Server(
            Server::BusyLoading
            | Server::TryAgain
            | Server::ClusterDown
            | Server::MasterDown
            | Server::ReadOnly
            | Server::Moved
            | Server::Ask,
        ) => StoreError::Unavailable(message()),
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => StoreError::Rejected(message()),
        ErrorKind::Server(_) if error.code() != Some("OOM") => StoreError::Rejected(message()),
        _ => StoreError::Unavailable(message()),
    }
}
