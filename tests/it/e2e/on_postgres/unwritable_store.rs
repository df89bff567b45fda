//! A database made read-only while the server runs, like a primary demoted to a standby.

use sqlx::{AssertSqlSafe, Connection as _};

use crate::{
    e2e::unwritable_store::assert_rejects_and_recovers,
    support::{ServerData, run},
};

#[test]
fn read_only_database_rejects_turns_and_is_reported() {
    run(async {
        let server = ServerData::on_services(&[]).start();
        let set = async |read_only: &str| {
            let database = server.data.database();
            let mut admin = database.connect().await;
            let name = database.name();
            let writable = "SET default_transaction_read_only = off";
            sqlx::raw_sql(writable).execute(&mut admin).await.unwrap();
            let sql = format!(
                "ALTER DATABASE {name} SET default_transaction_read_only = {read_only};
                 SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = '{name}' AND pid <> pg_backend_pid()"
            );
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
            admin.close().await.unwrap();
        };
        assert_rejects_and_recovers(
            &server,
            "read-only",
            async || set("on").await,
            async || set("off").await,
        )
        .await;
    });
}
