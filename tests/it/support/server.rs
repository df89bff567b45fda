//! A server on a free port and a folder of its own: inside this process, or as a child process that
//! can be killed.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use colloquy::{
    app::{self, Application},
    config::{Config, ConfigSources},
    ports::clock::{Clock, SystemClock},
    telemetry,
    tenancy::{
        Role,
        auth::{TokenClaims, mint_token},
    },
};
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::{PATIENCE, PostgresDatabase, QdrantIndex, RedisServer, RestClient, TestSocket, process};

const SECRET: &str = "a secret that only the tests know, 32 bytes and more";

/// A data folder and what its servers are configured with. Outlives the servers on it.
#[derive(Clone)]
pub struct ServerData {
    folder: Arc<TempDir>,
    env: Vec<(String, String)>,
    /// Where the ledger is, if it is not in the folder.
    database: Option<Arc<PostgresDatabase>>,
    /// Where the index is, if it is not in the servers.
    qdrant: Option<Arc<QdrantIndex>>,
    /// Where the buffers are, if they are not in the servers.
    redis: Option<Arc<RedisServer>>,
}

impl ServerData {
    /// A fresh folder; `env` over the tests' own settings.
    pub fn new(env: &[(&str, &str)]) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let mut all = vec![
            ("COLLOQUY__SERVER__LISTEN".to_owned(), "127.0.0.1:0".to_owned()),
            ("COLLOQUY__SERVER__WORKERS".to_owned(), "1".to_owned()),
            ("COLLOQUY__ACTORS__ARBITERS".to_owned(), "1".to_owned()),
            (
                "COLLOQUY__DATA_DIR".to_owned(),
                folder.path().to_str().unwrap().to_owned(),
            ),
            ("COLLOQUY__AUTH__HS256_SECRET".to_owned(), SECRET.to_owned()),
            ("COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN".to_owned(), "0".to_owned()),
            ("COLLOQUY__TELEMETRY__LOG".to_owned(), "warn".to_owned()),
        ];
        all.extend(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        Self {
            folder,
            env: all,
            database: None,
            qdrant: None,
            redis: None,
        }
    }
    /// As [`Self::new`], with the ledger in a Postgres database.
    pub fn on_postgres(env: &[(&str, &str)]) -> Self {
        let database = run_on_own_thread(PostgresDatabase::migrated);
        let mut data = Self::new(&[
            ("COLLOQUY__LEDGER__URL", &database.url),
            ("COLLOQUY__LEDGER__CONNECTIONS", "8"),
            // What a turn remembers is what is tested, not how soon a busy machine has it written.
            ("COLLOQUY__TURN__WAIT_FOR_MEMORY_MS", "10000"),
        ]);
        data.env
            .extend(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        data.database = Some(Arc::new(database));
        data
    }
    /// As [`Self::new`], with a ledger that holds what this SQL writes.
    pub fn with_sqlite_rows(sql: &str) -> Self {
        let data = Self::new(&[]);
        let file = data.folder.path().join("colloquy.db");
        let sql = sql.to_owned();
        run_on_own_thread(async move || {
            let options = sqlx::sqlite::SqliteConnectOptions::new()
                .filename(file)
                .create_if_missing(true);
            let mut ledger = options.connect().await.unwrap();
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
                .execute(&mut ledger)
                .await
                .unwrap();
            ledger.close().await.unwrap();
        });
        data
    }
    /// The same on Postgres.
    pub fn with_postgres_rows(sql: &str) -> Self {
        let sql = sql.to_owned();
        let database = run_on_own_thread(async move || {
            let database = PostgresDatabase::blank().await;
            let mut ledger = database.connect().await;
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
                .execute(&mut ledger)
                .await
                .unwrap();
            ledger.close().await.unwrap();
            database
        });
        let mut data = Self::new(&[("COLLOQUY__LEDGER__URL", &database.url)]);
        data.database = Some(Arc::new(database));
        data
    }
    /// As [`Self::on_postgres`], with the buffers in a Redis of their own.
    pub fn on_services(env: &[(&str, &str)]) -> Self {
        Self::on_postgres(env).with_redis()
    }
    /// As [`Self::on_services`], with the index in Qdrant: nothing is in the server or its folder.
    pub fn on_qdrant(env: &[(&str, &str)]) -> Self {
        Self::on_services(&[]).with_qdrant().with(env)
    }
    /// The same, with the index in Qdrant.
    pub fn with_qdrant(self) -> Self {
        let qdrant = run_on_own_thread(async || QdrantIndex::start().await);
        let mut data = self.with(&[
            ("COLLOQUY__VECTORS__URL", &qdrant.url),
            ("COLLOQUY__VECTORS__COLLECTION", &qdrant.collection),
            ("COLLOQUY__VECTORS__TIMEOUT_MS", "10000"),
        ]);
        data.qdrant = Some(Arc::new(qdrant));
        data
    }
    /// The same, with the mock model that answers at this base URL.
    pub fn with_mock(&self, base_url: &str) -> Self {
        self.with(&[("COLLOQUY__LLM__BASE_URL", base_url), ("COLLOQUY__LLM__MODEL", "mock")])
    }
    fn with_redis(mut self) -> Self {
        let redis = run_on_own_thread(RedisServer::start);
        self.env.push(("COLLOQUY__BUFFER__URL".to_owned(), redis.url()));
        self.redis = Some(Arc::new(redis));
        self
    }
    /// Another folder, empty, with the same settings and the same database.
    pub fn with_own_folder(&self) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let mut env = self.env.clone();
        let path = folder.path().to_str().unwrap().to_owned();
        env.push(("COLLOQUY__DATA_DIR".to_owned(), path));
        Self {
            folder,
            env,
            database: self.database.clone(),
            qdrant: self.qdrant.clone(),
            redis: self.redis.clone(),
        }
    }
    /// Where what its servers keep is.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
    /// The database of one that is on Postgres.
    pub fn database(&self) -> &PostgresDatabase {
        self.database.as_ref().expect("its ledger is in its folder")
    }
    /// The same folder; `env` over what it is configured with.
    pub fn with(&self, env: &[(&str, &str)]) -> Self {
        let mut with = self.clone();
        with.env
            .extend(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        with
    }
    /// Another folder with the same files, on another database with the same rows, if it is on one. No server
    /// may be running on this one. Buffers are not copied.
    #[cfg(feature = "failpoints")]
    pub fn copy(&self) -> Self {
        let mut copy = self.with_own_folder();
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.folder.path().join(entry.file_name())).unwrap();
        }
        if let Some(database) = &self.database {
            let database = database.clone();
            let database = run_on_own_thread(move || async move { database.copy().await });
            copy.env
                .push(("COLLOQUY__LEDGER__URL".to_owned(), database.url.clone()));
            copy.database = Some(Arc::new(database));
        }
        if self.redis.is_some() { copy.with_redis() } else { copy }
    }
    /// The number that a query of the ledger answers with, over every tenant's rows.
    pub async fn count(&self, query: &'static str) -> i64 {
        if let Some(database) = &self.database {
            let mut ledger = database.connect_to_all().await;
            return sqlx::query_scalar(query).fetch_one(&mut ledger).await.unwrap();
        }
        let mut files = std::fs::read_dir(self.folder.path()).unwrap();
        let file = files.find_map(|file| {
            let file = file.unwrap().path();
            file.extension().is_some_and(|kind| kind == "db").then_some(file)
        });
        let options = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(file.expect("no ledger"))
            .read_only(true);
        let mut ledger = options.connect().await.unwrap();
        sqlx::query_scalar(query).fetch_one(&mut ledger).await.unwrap()
    }
    /// Whether its ledger is on Postgres.
    #[cfg(feature = "failpoints")]
    pub fn is_on_postgres(&self) -> bool {
        self.database.is_some()
    }
    fn config(&self) -> Config {
        let sources = ConfigSources {
            env: self.env.clone(),
            ..ConfigSources::default()
        };
        Config::load(&sources).unwrap()
    }

    /// A server in this process.
    pub fn start(&self) -> TestServer {
        let config = self.config();
        // `RUST_LOG=debug` shows what the servers of a test do.
        telemetry::start_logging(&config.telemetry.log, config.telemetry.format).unwrap();
        let (started, address) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let application = Application::build(&config).await.unwrap();
                started.send(application.address()).unwrap();
                let stop = async {
                    let _ = stopped.await;
                };
                application.run_until(stop).await.unwrap();
            });
        });
        let address = address.recv_timeout(PATIENCE).expect("the server did not start");
        TestServer {
            address,
            data: self.clone(),
            process: Some(ServerProcess::Thread { stop, thread }),
        }
    }

    /// The program, with these settings and nothing else in its environment.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colloquy"));
        command
            .env_clear()
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// A server of its own process.
    pub fn spawn(&self) -> TestServer {
        self.start_process(self.command().arg("serve"))
    }

    /// As [`Self::spawn`], with its log in a file.
    pub fn spawn_logging(&self, log: &std::path::Path) -> TestServer {
        let log = std::fs::File::create(log).unwrap();
        self.start_process(self.command().arg("serve").stderr(log))
    }

    /// As [`Self::spawn`], of a process that a limit on the size of files does not end.
    pub fn spawn_with_limits(&self) -> TestServer {
        let bare = self.command();
        let mut command = Command::new("/usr/bin/env");
        command
            .arg("--ignore-signal=XFSZ")
            .arg(bare.get_program())
            .arg("serve")
            .env_clear()
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .current_dir(self.folder.path());
        self.start_process(&mut command)
    }

    fn start_process(&self, command: &mut Command) -> TestServer {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("listens on http://")?.1.trim().parse().ok())
            .expect("the server did not say where it listens");
        // Whatever else it prints must not block it.
        thread::spawn(move || lines.for_each(drop));
        TestServer {
            address,
            data: self.clone(),
            process: Some(ServerProcess::Child(child)),
        }
    }
}

/// What `work` comes to on a thread and a runtime of its own: this one may be a runtime's.
fn run_on_own_thread<T: Send + 'static, F: Future<Output = T>>(work: impl FnOnce() -> F + Send + 'static) -> T {
    thread::spawn(|| super::run(work()))
        .join()
        .expect("it could not be started")
}

enum ServerProcess {
    Thread {
        stop: oneshot::Sender<()>,
        thread: JoinHandle<()>,
    },
    Child(Child),
}

/// A running server. Ends with the value.
pub struct TestServer {
    pub address: SocketAddr,
    pub data: ServerData,
    process: Option<ServerProcess>,
}

impl TestServer {
    /// A token that this server believes.
    pub fn token(&self, tenant: &str, role: Role, player: Option<&str>) -> String {
        self.token_for(tenant, role, player, Duration::from_mins(10))
    }
    /// A player's token that is bound to a world.
    pub fn token_in(&self, tenant: &str, player: &str, world: &str) -> String {
        let claims = TokenClaims {
            sub: "tests".into(),
            tid: tenant.parse().unwrap(),
            role: Role::Player,
            pid: Some(player.parse().unwrap()),
            wid: Some(world.parse().unwrap()),
        };
        let settings = app::auth_settings(&self.data.config()).unwrap();
        mint_token(&settings, &claims, Duration::from_mins(10), SystemClock.now())
            .unwrap()
            .text
    }
    pub fn token_for(&self, tenant: &str, role: Role, player: Option<&str>, ttl: Duration) -> String {
        let claims = TokenClaims {
            sub: "tests".into(),
            tid: tenant.parse().unwrap(),
            role,
            pid: player.map(|p| p.parse().unwrap()),
            wid: None,
        };
        let settings = app::auth_settings(&self.data.config()).unwrap();
        mint_token(&settings, &claims, ttl, SystemClock.now()).unwrap().text
    }
    /// The REST API as the demo's backend.
    pub fn backend(&self) -> RestClient {
        self.rest(Role::Backend)
    }
    /// The REST API in a role; a player is `p1`.
    pub fn rest(&self, role: Role) -> RestClient {
        let player = (role == Role::Player).then_some("p1");
        RestClient::new(self.address, self.token("demo", role, player))
    }
    /// A socket as a player of the demo.
    pub async fn player(&self, player: &str) -> TestSocket {
        TestSocket::open(self.address, &self.token("demo", Role::Player, Some(player))).await
    }
    /// SIGTERM, without waiting for what comes of it.
    pub fn terminate(&self) {
        assert!(process::signal("TERM", self.process()));
    }
    /// Has it stand still until [`Self::thaw`].
    pub async fn freeze(&self) {
        process::freeze(self.process()).await;
    }
    pub fn thaw(&self) {
        process::thaw(self.process());
    }
    /// Its id.
    pub fn process(&self) -> u32 {
        let Some(ServerProcess::Child(child)) = &self.process else {
            panic!("only a child process can be sent a signal")
        };
        child.id()
    }
    /// kill -9. What it did not have on disk is gone.
    pub fn kill(mut self) -> ServerData {
        match self.process.take() {
            Some(ServerProcess::Child(mut child)) => {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            _ => panic!("only a child process can be killed"),
        }
        self.data.clone()
    }
    /// Waits until it has died by itself.
    ///
    /// # Panics
    /// If it has not within [`PATIENCE`], or has ended in peace.
    #[cfg(feature = "failpoints")]
    pub async fn wait_for_death(mut self, why: &str) -> ServerData {
        let Some(ServerProcess::Child(mut child)) = self.process.take() else {
            panic!("only a child process can die")
        };
        let status = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(status) = child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let Ok(status) = status.await else {
            child.kill().unwrap();
            panic!("{why}: nobody came by");
        };
        assert_eq!(status.code(), None, "{why}: it was to be killed by a signal");
        self.data.clone()
    }
    /// Tells it to stop, and waits until it has.
    pub fn stop(mut self) -> ServerData {
        self.shut_down();
        self.data.clone()
    }
    fn shut_down(&mut self) {
        match self.process.take() {
            Some(ServerProcess::Thread { stop, thread }) => {
                let _ = stop.send(());
                let ended = thread.join();
                assert!(ended.is_ok() || thread::panicking(), "the server panicked");
            }
            Some(ServerProcess::Child(mut child)) => {
                // One that a failed test left frozen would not hear the other.
                let _ = Command::new("kill").args(["-CONT", &child.id().to_string()]).status();
                let told = Command::new("kill").arg(child.id().to_string()).status();
                assert!(told.is_ok() || thread::panicking());
                let _ = child.wait();
            }
            None => {}
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shut_down();
    }
}
