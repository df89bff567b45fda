//! `colloquy reindex`, run as by an operator.

use std::process::Output;

use crate::{
    e2e::on_postgres::outages::{say, session},
    support::{ServerData, run},
};

fn reindex(data: &ServerData, args: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } = data.command().arg("reindex").args(args).output().unwrap();
    let told = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (status.success(), told.concat())
}

#[test]
fn index_drift_is_reported_and_repaired_by_reindex() {
    run(async {
        let data = ServerData::on_qdrant(&[]);
        let server = data.spawn();
        let rest = server.backend();
        let talk = session(&rest, "p1").await;
        say(&rest, &talk, "grapes", "I like grapes.").await.unwrap();
        rest.idle().await;
        server.stop();

        let is_told = |args: &[&str], wanted: bool, what: &str| {
            let (ended_well, told) = reindex(&data, args);
            assert!(ended_well == wanted && told.contains(what), "{args:?}: {told}");
        };
        is_told(&["--check"], true, "the index is what the ledger says");
        let mut ledger = data.database().connect().await;
        let changed = "SELECT set_config('colloquy.tenant', '*', false); UPDATE facts SET version = version + 1";
        sqlx::raw_sql(changed).execute(&mut ledger).await.unwrap();

        let differs = "the index has 0 facts missing, 1 stale and 0 that are not valid";
        is_told(&["--check"], false, differs);
        is_told(&["--check"], false, "1 points of the index differ from the ledger");
        is_told(&["--tenant", "nobody"], false, "there is no tenant nobody");
        is_told(
            &[],
            true,
            "the index had 0 facts missing, 1 stale and 0 that are not valid; put right",
        );
        is_told(&["--check"], true, "the index is what the ledger says");
    });
}
