//! A Postgres database per test, copied from a migrated template and dropped afterwards.

use std::{
    process,
    str::FromStr as _,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use colloquy::adapters::postgres;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};

/// The variable with the URL of a database to connect to, for a role that may create databases.
const SERVER: &str = "COLLOQUY_TEST_POSTGRES";
/// The advisory lock for creating the template; an arbitrary number.
const MAKING: i64 = 0x636f_6c6c_6f71;

/// A database, dropped with this value.
pub struct PostgresDatabase {
    server: PgConnectOptions,
    name: String,
    pub url: String,
}

impl PostgresDatabase {
    /// Creates an empty ledger.
    ///
    /// # Panics
    /// Without a server. `scripts/test.sh` and `scripts/with-postgres.sh` start a server.
    pub async fn migrated() -> Self {
        let template = template().await;
        Self::create(&format!("TEMPLATE {template}")).await
    }

    /// Creates a database without tables.
    pub async fn blank() -> Self {
        Self::create("").await
    }

    /// Creates a copy with the same rows. The original must have no connections.
    #[cfg(feature = "failpoints")]
    pub async fn copy(&self) -> Self {
        Self::create(&format!("TEMPLATE {}", self.name)).await
    }

    async fn create(how: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let (server, url) = server();
        let mut admin = server.connect().await.unwrap();
        // A leftover of a killed process with the same number.
        execute(&mut admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        execute(&mut admin, &format!("CREATE DATABASE {name} {how}")).await;
        admin.close().await.unwrap();
        Self {
            url: with_database(&url, &name),
            server,
            name,
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the URL for another role.
    #[must_use]
    pub fn url_as(&self, role: &str, password: &str) -> String {
        let (scheme, rest) = self.url.split_once("://").expect("a URL");
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        format!("{scheme}://{role}:{password}@{place}")
    }

    /// Opens a connection that sees the rows of all tenants.
    pub async fn connect_to_all(&self) -> PgConnection {
        let mut connection = self.connect().await;
        execute(&mut connection, "SELECT set_config('colloquy.tenant', '*', false)").await;
        connection
    }

    /// Opens a connection with the server's role, to read its data directly.
    pub async fn connect(&self) -> PgConnection {
        PgConnectOptions::from_str(&self.url).unwrap().connect().await.unwrap()
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        let (server, drop) = (
            self.server.clone(),
            format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name),
        );
        // Uses a new thread, because the current thread may belong to a runtime.
        let dropped = std::thread::spawn(move || {
            super::run(async {
                let mut admin = server.connect().await?;
                sqlx::raw_sql(sqlx::AssertSqlSafe(drop)).execute(&mut admin).await?;
                admin.close().await
            })
        });
        if !matches!(dropped.join(), Ok(Ok(()))) {
            eprintln!("the database {} is left over", self.name);
        }
    }
}

fn server() -> (PgConnectOptions, String) {
    let url = std::env::var(SERVER).unwrap_or_else(|_| {
        panic!(
            "{SERVER} does not name a Postgres server: run the tests by scripts/with-postgres.sh cargo nextest run …"
        )
    });
    (PgConnectOptions::from_str(&url).unwrap(), url)
}

fn with_database(url: &str, name: &str) -> String {
    let (server, _) = url.rsplit_once('/').expect("a URL with a database");
    format!("{server}/{name}")
}

/// Returns the template database. The first caller creates the template.
async fn template() -> String {
    let (server, url) = server();
    let name = format!("ledger_{}", schema());
    let mut admin = server.connect().await.unwrap();
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(MAKING)
        .execute(&mut admin)
        .await
        .unwrap();
    let made: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)")
        .bind(&name)
        .fetch_one(&mut admin)
        .await
        .unwrap();
    if !made {
        let unfinished = format!("{name}_unfinished");
        execute(
            &mut admin,
            &format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)"),
        )
        .await;
        execute(&mut admin, &format!("CREATE DATABASE {unfinished}")).await;
        postgres::migrate_schema(&with_database(&url, &unfinished))
            .await
            .unwrap();
        execute(&mut admin, &format!("ALTER DATABASE {unfinished} RENAME TO {name}")).await;
    }
    admin.close().await.unwrap();
    name
}

/// Returns a hash of the migrations' texts, so that a long-running server has one template per schema.
fn schema() -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        std::fs::read_to_string(file).unwrap().hash(&mut hasher);
    }
    hasher.finish()
}

/// Runs a statement, and retries while other connections to its database are closing.
async fn execute(admin: &mut PgConnection, statement: &str) {
    let mut left = 1_500;
    loop {
        let statement = sqlx::AssertSqlSafe(statement.to_owned());
        match sqlx::raw_sql(statement).execute(&mut *admin).await {
            Ok(_) => return,
            Err(error) if left > 0 && error.to_string().contains("being accessed") => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                left -= 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
}
