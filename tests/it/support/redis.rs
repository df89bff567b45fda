//! A Redis of a test's own: on a free port, gone when it is dropped. It keeps nothing, unless it is told to.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use super::eventually;

/// A running `redis-server`.
pub struct RedisServer {
    child: Child,
    pub port: u16,
    cluster: bool,
    /// Where one keeps what it had when [`Self::save`] was called.
    folder: Option<TempDir>,
}

impl RedisServer {
    /// Starts one and waits until it answers.
    ///
    /// # Panics
    /// If there is no `redis-server` on the path: `scripts/test.sh` installs it.
    pub async fn start() -> Self {
        Self::start_at(free_port(), false, None).await
    }

    /// As [`Self::start`]; one that is restarted has what it had when it was last saved.
    pub async fn start_keeping() -> Self {
        Self::start_at(free_port(), false, Some(tempfile::tempdir().unwrap())).await
    }

    /// A cluster of one node, which owns every slot.
    pub async fn start_cluster() -> Self {
        let server = Self::start_at(free_port(), true, None).await;
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

    async fn start_at(port: u16, cluster: bool, folder: Option<TempDir>) -> Self {
        let path = folder
            .as_ref()
            .map_or_else(std::env::temp_dir, |folder| folder.path().to_owned());
        // Another test's, were it the same.
        let dump = format!("colloquy-test-{port}.rdb");
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
            .args(["--dbfilename", &dump])
            .arg("--dir")
            .arg(path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is not installed (Debian: apt-get install redis-server)");
        let server = Self {
            child,
            port,
            cluster,
            folder,
        };
        eventually("redis answers", async || server.connection().await).await;
        server
    }

    /// Ends it as a crash would and starts another one at the same port, which is empty but for what was saved.
    pub async fn restart(&mut self) {
        self.kill();
        *self = Self::start_at(self.port, self.cluster, self.folder.take()).await;
    }

    /// Writes down what it has, for [`Self::restart`].
    pub async fn save(&self) {
        assert!(self.folder.is_some(), "it has nowhere to keep it");
        let mut connection = self.connection().await.unwrap();
        redis::cmd("SAVE").exec_async(&mut connection).await.unwrap();
    }

    /// Sends a signal by its name: `STOP` has it accept connections and answer nothing, until `CONT`.
    pub fn signal(&self, name: &str) {
        let signal = format!("-{name}");
        let told = Command::new("kill")
            .args([&signal, &self.child.id().to_string()])
            .status();
        assert!(told.unwrap().success());
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
