//! A Postgres database of a test's own, copied from a migrated one and dropped afterwards.

use std::{
    process,
    str::FromStr as _,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use colloquy::adapters::postgres;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};

/// Where the server is: the URL of a database that may be connected to, of a role that may create others.
const SERVER: &str = "COLLOQUY_TEST_POSTGRES";
/// Holds back others that would make the template. Any number.
const MAKING: i64 = 0x636f_6c6c_6f71;

/// A database, gone when this is dropped.
pub struct PostgresDatabase {
    server: PgConnectOptions,
    name: String,
    pub url: String,
}

impl PostgresDatabase {
    /// An empty ledger.
    ///
    /// # Panics
    /// If there is no server: `scripts/test.sh` and `scripts/with-postgres.sh` start one.
    pub async fn migrated() -> Self {
        let template = template().await;
        Self::create(&format!("TEMPLATE {template}")).await
    }

    /// A database without any table.
    pub async fn blank() -> Self {
        Self::create("").await
    }

    /// Another one with the same rows. Nobody may be connected to this one.
    #[cfg(feature = "failpoints")]
    pub async fn copy(&self) -> Self {
        Self::create(&format!("TEMPLATE {}", self.name)).await
    }

    async fn create(how: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let (server, url) = server();
        let mut admin = server.connect().await.unwrap();
        // Left by a process of the same number that was killed.
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

    /// As another role.
    #[must_use]
    pub fn url_as(&self, role: &str, password: &str) -> String {
        let (scheme, rest) = self.url.split_once("://").expect("a URL");
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        format!("{scheme}://{role}:{password}@{place}")
    }

    /// A connection that sees every tenant's rows.
    pub async fn connect_to_all(&self) -> PgConnection {
        let mut connection = self.connect().await;
        execute(&mut connection, "SELECT set_config('colloquy.tenant', '*', false)").await;
        connection
    }

    /// A connection of the same role as the server's, to look behind its back.
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
        // On a thread of its own: this one may be a runtime's.
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

/// The database that the others are copies of; whoever comes first makes it.
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

/// Names the schema by the texts of its migrations, so that a server that is kept between runs has one for each.
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

/// Runs a statement again while somebody is still on their way out of the database it is about.
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
