//! A Postgres server per test, which tests can kill and start again with its data on disk.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::{fs::chown, process::CommandExt as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use sqlx::{ConnectOptions as _, Connection as _, postgres::PgConnectOptions};
use tempfile::TempDir;

use super::{
    PATIENCE,
    process::{children_of, signal},
};

/// A running server with an empty database, whose owner is not a superuser. Stops when dropped.
pub struct PostgresServer {
    child: Option<Child>,
    port: u16,
    folder: TempDir,
    /// The user of the server if the test runs as root, because Postgres refuses to run as root.
    user: Option<(u32, u32)>,
}

impl PostgresServer {
    /// # Panics
    /// If the server's programs are missing. `scripts/test.sh` installs them.
    pub async fn start() -> Self {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let folder = tempfile::tempdir().unwrap();
        let user = (id(&["-u"]) == Some(0)).then(|| {
            let of = |what: &str| id(&[what, "postgres"]).expect("there is no user postgres");
            (of("-u"), of("-g"))
        });
        if let Some((user, group)) = user {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let mut server = Self {
            child: None,
            port,
            folder,
            user,
        };
        let made = server
            .program("initdb")
            .args(["-D", "data", "-U", "postgres", "--auth=trust", "--no-sync"])
            .args(["-E", "UTF8", "--locale=C.UTF-8"])
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "initdb failed");
        server.start_again().await;
        let mut admin = server.admin().connect().await.unwrap();
        for statement in ["CREATE ROLE colloquy LOGIN", "CREATE DATABASE colloquy OWNER colloquy"] {
            sqlx::raw_sql(statement).execute(&mut admin).await.unwrap();
        }
        admin.close().await.unwrap();
        server
    }

    /// Returns the database's URL.
    pub fn url(&self) -> String {
        format!("postgres://colloquy@127.0.0.1:{}/colloquy?sslmode=disable", self.port)
    }

    /// Kills all processes at once with -9. Unwritten data is lost.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // Stops the main process, so that no new processes start meanwhile.
        signal("STOP", child.id());
        for process in children_of(child.id()) {
            signal("KILL", process);
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Starts the server again at the same address, and waits until connections succeed.
    pub async fn start_again(&mut self) {
        self.kill();
        let admin = self.admin();
        let starting = async {
            loop {
                let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
                // A new process stops at once while parts of the old server remain.
                if !self.child.as_mut().is_some_and(runs) {
                    self.child = Some(self.serve());
                }
                if let Ok(connection) = admin.connect().await {
                    return connection.close().await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, starting).await.is_err() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            panic!("the database does not start: {log}");
        }
    }

    fn serve(&self) -> Child {
        let log = File::create(self.folder.path().join("log")).unwrap();
        let settings = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=100",
            // Written data survives a kill, and power cuts are not tested. But a commit is acknowledged only after its
            // write.
            "fsync=off",
            "full_page_writes=off",
            "synchronous_commit=on",
        ];
        self.program("postgres")
            .args(["-D", "data", "-p", &self.port.to_string()])
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Returns a server program, run as the permitted user in the folder.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(programs().join(name));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    fn admin(&self) -> PgConnectOptions {
        PgConnectOptions::new()
            .host("127.0.0.1")
            .port(self.port)
            .username("postgres")
            .database("postgres")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the folder of Debian's newest version, or the folder named by `pg_config`.
fn programs() -> PathBuf {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = debian
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, bin)| bin.join("initdb").exists())
        .max();
    newest.map_or_else(
        || {
            command_output("pg_config", &["--bindir"])
                .expect("postgresql is not installed")
                .into()
        },
        |(_, bin)| bin,
    )
}

fn command_output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}

fn id(args: &[&str]) -> Option<u32> {
    command_output("id", args)?.parse().ok()
}
