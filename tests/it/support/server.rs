//! A server on a free port with its own folder: inside this process, or as a child process that tests can kill.

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

/// A data folder with the configuration of its servers. The folder outlives the servers.
#[derive(Clone)]
pub struct ServerData {
    folder: Arc<TempDir>,
    env: Vec<(String, String)>,
    /// The ledger's database, if the ledger is not in the folder.
    database: Option<Arc<PostgresDatabase>>,
    /// The index, if the index is not in the servers.
    qdrant: Option<Arc<QdrantIndex>>,
    /// The buffers, if the buffers are not in the servers.
    redis: Option<Arc<RedisServer>>,
}

impl ServerData {
    /// Creates a new folder. `env` overrides the tests' default settings.
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
            ("COLLOQUY__LIMITS__PLAYER_CUTS_PER_MIN".to_owned(), "0".to_owned()),
            ("COLLOQUY__LIMITS__PLAYER_SESSIONS_PER_MIN".to_owned(), "0".to_owned()),
            ("COLLOQUY__TURN__CUT_HOLD_S".to_owned(), "0".to_owned()),
            ("COLLOQUY__DEMO__WORDS_PER_S".to_owned(), "0".to_owned()),
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
    /// Creates a folder like [`Self::new`], with the ledger on Postgres.
    pub fn on_postgres(env: &[(&str, &str)]) -> Self {
        let database = run_on_own_thread(PostgresDatabase::migrated);
        let mut data = Self::new(&[
            ("COLLOQUY__LEDGER__URL", &database.url),
            ("COLLOQUY__LEDGER__CONNECTIONS", "8"),
            // A long wait, because the tests check memories and not the speed of a busy machine.
            ("COLLOQUY__TURN__WAIT_FOR_MEMORY_MS", "10000"),
        ]);
        data.env
            .extend(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        data.database = Some(Arc::new(database));
        data
    }
    /// Creates a folder like [`Self::new`], with a ledger written by this SQL.
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
    /// Creates the same on Postgres.
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
    /// Creates a folder like [`Self::on_postgres`], with the buffers in a new Redis.
    pub fn on_services(env: &[(&str, &str)]) -> Self {
        Self::on_postgres(env).with_redis()
    }
    /// Creates a folder like [`Self::on_services`], with the index in Qdrant. The server and its folder hold no data.
    pub fn on_qdrant(env: &[(&str, &str)]) -> Self {
        Self::on_services(&[]).with_qdrant().with(env)
    }
    /// Moves the index to Qdrant.
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
    /// Uses the mock model at this base URL.
    pub fn with_mock(&self, base_url: &str) -> Self {
        self.with(&[("COLLOQUY__LLM__BASE_URL", base_url), ("COLLOQUY__LLM__MODEL", "mock")])
    }
    fn with_redis(mut self) -> Self {
        let redis = run_on_own_thread(RedisServer::start);
        self.env.push(("COLLOQUY__BUFFER__URL".to_owned(), redis.url()));
        self.redis = Some(Arc::new(redis));
        self
    }
    /// Returns the same settings and database with a new, empty folder.
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
    /// Returns the folder with the servers' data.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
    /// Returns the Postgres database.
    pub fn database(&self) -> &PostgresDatabase {
        self.database.as_ref().expect("its ledger is in its folder")
    }
    /// Returns the same folder with `env` over its settings.
    pub fn with(&self, env: &[(&str, &str)]) -> Self {
        let mut with = self.clone();
        with.env
            .extend(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        with
    }
    /// Copies the files and the Postgres database, if used. No server may be running. Buffers are not copied.
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
    /// Returns the number from a query of the ledger, over the rows of all tenants.
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
    /// True if the ledger is on Postgres.
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

    /// Starts a server in this process.
    pub fn start(&self) -> TestServer {
        let config = self.config();
        // `RUST_LOG=debug` shows the logs of a test's servers.
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

    /// Returns the program's command with only these settings as its environment.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colloquy"));
        command
            .env_clear()
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Starts a server in a child process.
    pub fn spawn(&self) -> TestServer {
        self.start_process(self.command().arg("serve"))
    }

    /// Starts a server like [`Self::spawn`], with its log in a file.
    pub fn spawn_logging(&self, log: &std::path::Path) -> TestServer {
        let log = std::fs::File::create(log).unwrap();
        self.start_process(self.command().arg("serve").stderr(log))
    }

    /// Starts a server like [`Self::spawn`], which survives a limit on file sizes.
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
        // Reading the remaining output prevents the process from blocking.
        thread::spawn(move || lines.for_each(drop));
        TestServer {
            address,
            data: self.clone(),
            process: Some(ServerProcess::Child(child)),
        }
    }
}

/// Runs `work` on a new thread and runtime, because the current thread may belong to a runtime.
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

/// A running server, which stops when dropped.
pub struct TestServer {
    pub address: SocketAddr,
    pub data: ServerData,
    process: Option<ServerProcess>,
}

impl TestServer {
    /// Returns a token that this server accepts.
    pub fn token(&self, tenant: &str, role: Role, player: Option<&str>) -> String {
        self.token_for(tenant, role, player, Duration::from_mins(10))
    }
    /// Returns a player's token bound to a world.
    pub fn token_in(&self, tenant: &str, player: &str, world: &str) -> String {
        self.world_token(tenant, Role::Player, Some(player), world)
    }
    /// Returns a REST client as the demo's backend, bound to a world.
    pub fn backend_in(&self, world: &str) -> RestClient {
        RestClient::new(self.address, self.world_token("demo", Role::Backend, None, world))
    }
    fn world_token(&self, tenant: &str, role: Role, player: Option<&str>, world: &str) -> String {
        let claims = TokenClaims {
            sub: "tests".into(),
            tid: tenant.parse().unwrap(),
            role,
            pid: player.map(|player| player.parse().unwrap()),
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
    /// Returns a REST client as the demo's backend.
    pub fn backend(&self) -> RestClient {
        self.rest(Role::Backend)
    }
    /// Returns a REST client in a role. A player is `p1`.
    pub fn rest(&self, role: Role) -> RestClient {
        let player = (role == Role::Player).then_some("p1");
        RestClient::new(self.address, self.token("demo", role, player))
    }
    /// Opens a socket as a player of the demo.
    pub async fn player(&self, player: &str) -> TestSocket {
        TestSocket::open(self.address, &self.token("demo", Role::Player, Some(player))).await
    }
    /// Sends SIGTERM without waiting.
    pub fn terminate(&self) {
        assert!(process::signal("TERM", self.process()));
    }
    /// Freezes the server until [`Self::thaw`].
    pub async fn freeze(&self) {
        process::freeze(self.process()).await;
    }
    pub fn thaw(&self) {
        process::thaw(self.process());
    }
    /// Returns the process id.
    pub fn process(&self) -> u32 {
        let Some(ServerProcess::Child(child)) = &self.process else {
            panic!("only a child process can be sent a signal")
        };
        child.id()
    }
    /// Kills the server with -9. Data not on disk is lost.
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
    /// Waits until the server has died by itself.
    ///
    /// # Panics
    /// If the server lives longer than [`PATIENCE`], or has exited normally.
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
    /// Stops the server, and waits for its end.
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
                // A server left frozen by a failed test would not receive the other signal.
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
