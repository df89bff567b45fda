//! A Postgres server of a test's own, to be killed and started again with what it has on disk.

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

/// A running server with an empty database, whose owner is no superuser. Ends with the value.
pub struct PostgresServer {
    child: Option<Child>,
    port: u16,
    folder: TempDir,
    /// The server refuses to run as root; then as whom.
    user: Option<(u32, u32)>,
}

impl PostgresServer {
    /// # Panics
    /// If the server's programs are missing: `scripts/test.sh` installs them.
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

    /// The database's URL.
    pub fn url(&self) -> String {
        format!("postgres://colloquy@127.0.0.1:{}/colloquy?sslmode=disable", self.port)
    }

    /// kill -9 of all its processes at once: what they had not written is gone.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // So that it starts no others meanwhile.
        signal("STOP", child.id());
        for process in children_of(child.id()) {
            signal("KILL", process);
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Starts it where the last one was, and waits until it takes connections.
    pub async fn start_again(&mut self) {
        self.kill();
        let admin = self.admin();
        let starting = async {
            loop {
                let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
                // One ends at once while something is left of the last one.
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
            // What a process had written is there when it was killed; power cuts are not what is tested. But
            // nobody is told of a commit before it is written.
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

    /// One of the server's programs, as the user that may run it, in the folder.
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

/// Where Debian has the newest, or where `pg_config` says.
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
