//! A Redis server or cluster per test, on free ports, stopped when dropped. By default it stores nothing on disk.
//!
//! `COLLOQUY_TEST_REDIS_SERVER` names another program than `redis-server`: `valkey-server`, or a path.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use super::{eventually, eventually_after_outage, process};

/// The default program.
const SERVER: &str = "redis-server";

/// The role of a server in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedisRole {
    Alone,
    Cluster,
    /// In a cluster with replicas.
    Replicated,
}

impl RedisRole {
    const fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Alone => &["--cluster-enabled", "no"],
            Self::Cluster => &["--cluster-enabled", "yes"],
            Self::Replicated => &[
                "--cluster-enabled",
                "yes",
                "--cluster-replica-validity-factor",
                "0",
                "--repl-diskless-sync-delay",
                "0",
            ],
        }
    }
}

/// A running Redis or Valkey.
pub struct RedisServer {
    child: Child,
    pub port: u16,
    part: RedisRole,
    folder: TempDir,
    /// True if a restarted server has the data of the last [`Self::save`].
    keeps: bool,
}

impl RedisServer {
    /// Starts a server, and waits until it answers.
    ///
    /// # Panics
    /// If the program is not on the path. `scripts/test.sh` installs `redis-server`.
    pub async fn start() -> Self {
        Self::start_at(free_port(), RedisRole::Alone, None).await
    }

    /// Starts a server like [`Self::start`]. A restarted server has the data of the last save.
    pub async fn start_persistent() -> Self {
        let mut server = Self::start().await;
        server.keeps = true;
        server
    }

    async fn start_at(port: u16, role: RedisRole, folder: Option<TempDir>) -> Self {
        let keeps = folder.is_some();
        let folder = folder.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let program = std::env::var("COLLOQUY_TEST_REDIS_SERVER").unwrap_or_else(|_| SERVER.to_owned());
        let child = Command::new(&program)
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
            .args(role.settings())
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{program} cannot be started (Debian: apt-get install redis-server): {error}")
            });
        let server = Self {
            child,
            port,
            part: role,
            folder,
            keeps,
        };
        eventually("redis answers", async || server.is_answering().await.then_some(())).await;
        server
    }

    /// Kills the server, and starts another at the same port with the saved data only.
    pub async fn restart(&mut self) {
        self.kill();
        let fresh = tempfile::tempdir().unwrap();
        let folder = std::mem::replace(&mut self.folder, fresh);
        *self = Self::start_at(self.port, self.part, self.keeps.then_some(folder)).await;
    }

    /// Saves the data to disk for [`Self::restart`].
    pub async fn save(&self) {
        assert!(self.keeps, "it forgets it all the same");
        let mut connection = self.connection().await.unwrap();
        redis::cmd("SAVE").exec_async(&mut connection).await.unwrap();
    }

    /// Freezes the server until [`Self::thaw`]: connections are accepted, without answers.
    pub async fn freeze(&self) {
        process::freeze(self.child.id()).await;
    }

    pub fn thaw(&self) {
        process::thaw(self.child.id());
    }

    /// Kills the server like a crash.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// True if this very server answers. Another process may have taken the free port first.
    async fn is_answering(&self) -> bool {
        let Some(mut connection) = self.connection().await else {
            return false;
        };
        let info: Result<String, _> = redis::cmd("INFO").arg("server").query_async(&mut connection).await;
        let pid = format!("process_id:{}\r", self.child.id());
        info.is_ok_and(|info| info.contains(&pid))
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

/// A cluster of servers. Each of the first three has a third of the slots.
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// The number of slots of a cluster.
    const SLOTS: u16 = 16_384;

    /// Starts a cluster, and waits until every node knows all nodes.
    ///
    /// # Panics
    /// Like [`RedisServer::start`].
    pub async fn start() -> Self {
        Self::start_of(3, RedisRole::Cluster).await
    }

    /// Starts a cluster like [`Self::start`], with three replicas in the order of the first three.
    pub async fn start_replicated() -> Self {
        let cluster = Self::start_of(6, RedisRole::Replicated).await;
        for at in 0..3 {
            let master: String = cluster.query_node(at, &["MYID"]).await;
            // The command fails while the replica does not know its master.
            eventually("a replica follows", async || {
                let command = ["REPLICATE", master.as_str()];
                let told: Result<(), _> = cluster.try_query_node(at + 3, &command).await;
                told.ok()
            })
            .await;
        }
        for at in 3..6 {
            cluster.wait_for_info(at, "replication", "master_link_status:up").await;
        }
        cluster
    }

    async fn start_of(size: u16, part: RedisRole) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..size {
            nodes.push(RedisServer::start_at(free_port(), part, None).await);
        }
        let cluster = Self { nodes };
        for at in 0..size {
            // The rank in conflicts. Otherwise the nodes agree on ranks only later.
            let epoch = (at + 1).to_string();
            cluster.send_command(at, &["SET-CONFIG-EPOCH", &epoch]).await;
        }
        for at in 0..3 {
            let [from, last] = [Self::first_slot(at), Self::first_slot(at + 1) - 1].map(|slot| slot.to_string());
            cluster.send_command(at, &["ADDSLOTSRANGE", &from, &last]).await;
        }
        for at in 0..size {
            eventually_after_outage("the cluster is up", async || {
                // A node met twice counts twice until its answer, so only missing nodes are met. Slow handshakes are
                // forgotten.
                if cluster.known_nodes(0).await < size {
                    for other in &cluster.nodes[1..] {
                        cluster
                            .send_command(0, &["MEET", "127.0.0.1", &other.port.to_string()])
                            .await;
                    }
                }
                let info: String = cluster.query_node(at, &["INFO"]).await;
                let known = format!("cluster_known_nodes:{size}");
                let whole = ["cluster_state:ok", "cluster_slots_ok:16384", known.as_str()];
                whole.iter().all(|what| info.contains(what)).then_some(())
            })
            .await;
        }
        cluster
    }

    /// Returns the number of known nodes, including the node itself and pending meetings.
    async fn known_nodes(&self, at: u16) -> u16 {
        let info: String = self.query_node(at, &["INFO"]).await;
        let known = info.lines().find_map(|line| line.strip_prefix("cluster_known_nodes:"));
        known.unwrap().trim().parse().unwrap()
    }

    /// Waits until a node's own information contains `what`.
    async fn wait_for_info(&self, at: u16, section: &str, what: &str) {
        eventually_after_outage(what, async || {
            let mut connection = self.nodes[usize::from(at)].connection().await?;
            let info: String = redis::cmd("INFO")
                .arg(section)
                .query_async(&mut connection)
                .await
                .ok()?;
            info.contains(what).then_some(())
        })
        .await;
    }

    /// Kills one of the first three nodes after its replica has all data. The replica takes over within seconds.
    pub async fn kill_master(&mut self, at: u16) {
        for node in &self.nodes {
            // The timeout is short only now. Earlier, nodes on a busy machine might seem dead.
            let mut connection = node.connection().await.unwrap();
            let mut quick = redis::cmd("CONFIG");
            quick.arg(&["SET", "cluster-node-timeout", "2000"]);
            quick.exec_async(&mut connection).await.unwrap();
        }
        eventually("the replica has it all", async || {
            let sizes = self.sizes().await;
            (sizes[usize::from(at)] == sizes[usize::from(at) + 3]).then_some(())
        })
        .await;
        self.wait_for_info(at, "replication", "role:master").await;
        self.nodes[usize::from(at)].kill();
    }

    /// Waits until the replica of one of the first three nodes has taken over.
    pub async fn wait_for_takeover(&self, at: u16) {
        self.wait_for_info(at + 3, "replication", "role:master").await;
    }

    async fn send_command(&self, at: u16, command: &[&str]) {
        let () = self.query_node(at, command).await;
    }

    async fn query_node<T: redis::FromRedisValue>(&self, at: u16, command: &[&str]) -> T {
        let answer = self.try_query_node(at, command).await;
        answer.unwrap_or_else(|error| panic!("CLUSTER {command:?}: {error}"))
    }

    async fn try_query_node<T: redis::FromRedisValue>(
        &self,
        at: u16,
        command: &[&str],
    ) -> Result<T, redis::RedisError> {
        let mut connection = self.nodes[usize::from(at)].connection().await.unwrap();
        redis::cmd("CLUSTER").arg(command).query_async(&mut connection).await
    }

    /// Moves the slot of a key to the third node without notice to clients. Returns `false` if the node has the slot,
    /// or the slot has keys, which would be lost. The third node ranks highest, so outdated claims of other nodes do
    /// not undo the move.
    pub async fn move_slot_of(&self, key: &str) -> bool {
        let (giving, taking) = (self.owner_of(key).await, 2);
        let slot = self.query_node::<u16>(giving, &["KEYSLOT", key]).await.to_string();
        let held: u64 = self.query_node(giving, &["COUNTKEYSINSLOT", &slot]).await;
        if giving == taking || held > 0 {
            return false;
        }
        let taker: String = self.query_node(taking, &["MYID"]).await;
        let giver: String = self.query_node(giving, &["MYID"]).await;
        self.send_command(taking, &["SETSLOT", &slot, "IMPORTING", &giver])
            .await;
        self.send_command(giving, &["SETSLOT", &slot, "MIGRATING", &taker])
            .await;
        // The new owner is told first, so the slot always has an owner.
        for at in [taking, giving, 1 - giving] {
            self.send_command(at, &["SETSLOT", &slot, "NODE", &taker]).await;
        }
        true
    }

    /// Returns the first slot of a third.
    fn first_slot(at: u16) -> u16 {
        u16::try_from(u32::from(Self::SLOTS) * u32::from(at) / 3).unwrap()
    }

    /// Returns the number of keys per node.
    pub async fn sizes(&self) -> Vec<u64> {
        let mut sizes = Vec::new();
        for node in &self.nodes {
            let mut connection = node.connection().await.unwrap();
            sizes.push(redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap());
        }
        sizes
    }

    /// Returns the number of redirects to other nodes.
    pub async fn moved_redirects(&self) -> u64 {
        let mut moved = 0;
        for node in &self.nodes {
            let mut connection = node.connection().await.unwrap();
            let info: String = redis::cmd("INFO")
                .arg("errorstats")
                .query_async(&mut connection)
                .await
                .unwrap();
            let told = info
                .lines()
                .find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
            moved += told.map_or(0, |count| count.trim().parse::<u64>().unwrap());
        }
        moved
    }

    /// Returns the URL of a node, from which clients find the others.
    #[must_use]
    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// Returns which of the first three nodes has the slot of a key.
    pub async fn owner_of(&self, key: &str) -> u16 {
        let slot: u16 = self.query_node(1, &["KEYSLOT", key]).await;
        (0..3).rev().find(|at| Self::first_slot(*at) <= slot).unwrap()
    }

    /// Kills all nodes like a crash.
    pub fn kill(&mut self) {
        self.nodes.iter_mut().for_each(RedisServer::kill);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    // Nodes of a cluster also listen 10,000 ports higher.
    loop {
        let port = TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        if port < 50_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}
