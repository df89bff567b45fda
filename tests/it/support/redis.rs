//! A Redis of a test's own: on a free port, without a disk, gone when it is dropped.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::eventually;

/// A running `redis-server`.
pub struct RedisServer {
    child: Child,
    pub port: u16,
    cluster: bool,
}

impl RedisServer {
    /// Starts one and waits until it answers.
    ///
    /// # Panics
    /// If there is no `redis-server` on the path: `scripts/test.sh` installs it.
    pub async fn start() -> Self {
        Self::start_at(free_port(), false).await
    }

    /// A cluster of one node, which owns every slot.
    pub async fn start_cluster() -> Self {
        let server = Self::start_at(free_port(), true).await;
        let mut connection = server.connection().await.unwrap();
        let slots: Result<(), _> = redis::cmd("CLUSTER")
            .arg(&["ADDSLOTSRANGE", "0", "16383"])
            .query_async(&mut connection)
            .await;
        slots.unwrap();
        eventually("the cluster is up", async || {
            let info: String = redis::cmd("CLUSTER")
                .arg("INFO")
                .query_async(&mut connection.clone())
                .await
                .ok()?;
            info.contains("cluster_state:ok").then_some(())
        })
        .await;
        server
    }

    async fn start_at(port: u16, cluster: bool) -> Self {
        let folder = std::env::temp_dir();
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(["--cluster-enabled", if cluster { "yes" } else { "no" }])
            // A node of a cluster keeps what it knows of the others.
            .args(["--cluster-config-file", &format!("colloquy-test-{port}.conf")])
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is not installed (Debian: apt-get install redis-server)");
        let server = Self { child, port, cluster };
        eventually("redis answers", async || server.connection().await).await;
        server
    }

    /// Ends it as a crash would and starts another, empty one at the same port.
    pub async fn restart(&mut self) {
        self.kill();
        *self = Self::start_at(self.port, self.cluster).await;
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn connection(&self) -> Option<redis::aio::MultiplexedConnection> {
        let client = redis::Client::open(self.url()).unwrap();
        let config = redis::AsyncConnectionConfig::new().set_connection_timeout(Some(Duration::from_secs(5)));
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .ok()?;
        redis::cmd("PING").exec_async(&mut connection).await.ok()?;
        Some(connection)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        if self.cluster {
            let _ = std::fs::remove_file(std::env::temp_dir().join(format!("colloquy-test-{}.conf", self.port)));
        }
    }
}

fn free_port() -> u16 {
    // A cluster also listens 10,000 ports higher.
    loop {
        let port = TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        if port < 50_000 {
            return port;
        }
    }
}
