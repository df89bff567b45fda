//! Opens a database of the first schema in this build, and uses its facts, turns, save and rewinds.
//!
//! `tests/data/first_schema` has a database of each engine as SQL, from the last build before the second migration. A
//! player told Mira a name, a home, an allergy and a taste that changed. A turn was interrupted. A save was made before
//! the change. Mira's past was unlocked. Ergen was told two facts in Korean.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::json;

use crate::support::{RestClient, ServerData, run};

const SQLITE: &str = include_str!("../data/first_schema/sqlite.sql");
const POSTGRES: &str = include_str!("../data/first_schema/postgres.sql");

#[test]
fn sqlite_database_of_the_first_schema_is_migrated_and_used() {
    run(assert_database_is_usable(ServerData::with_sqlite_rows(SQLITE)));
}

#[test]
fn postgres_database_of_the_first_schema_is_migrated_and_used() {
    run(assert_database_is_usable(ServerData::with_postgres_rows(POSTGRES)));
}

async fn assert_database_is_usable(data: ServerData) {
    let server = data.start();
    let backend = server.backend();
    let valid = valid_facts(&backend, "mira").await;
    for known in [
        "The player's name is Rowan.",
        "The player's sister lives in Rivermouth.",
        "The player is allergic to peanuts.",
        "The player likes pears.",
        "The player promised to bring Mira salt.",
        "The mill burned down.",
    ] {
        assert!(valid.iter().any(|fact| fact == known), "{known} is not in {valid:?}");
    }
    // The first was superseded, and the second is unsaid.
    for ended in ["The player likes grapes.", "The player likes figs."] {
        assert!(!valid.iter().any(|fact| fact == ended), "{ended}");
    }
    assert_eq!(valid_facts(&backend, "ergen").await.len(), 2);

    // The facts are recalled, and new facts are learned.
    let session = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p7"});
    let session = backend.post("/v1/sessions", &session).await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let turns = format!("/v1/sessions/{session}/turns");
    let asked = backend.post(&turns, &json!({"text": "What fruit do I like?"})).await;
    let reply = asked["reply_text"].as_str().unwrap();
    assert!(reply.contains("pear"), "{asked}");
    backend.post(&turns, &json!({"text": "I like cherries."})).await;
    backend.idle().await;
    let valid = valid_facts(&backend, "mira").await;
    assert!(
        valid.iter().any(|fact| fact == "The player likes cherries."),
        "{valid:?}"
    );

    // The save from before the change of taste can be restored.
    let saves = backend.get("/v1/worlds/vale/saves").await;
    let save = saves["items"][0]["id"].as_str().unwrap().to_owned();
    let restore = format!("/v1/worlds/vale/saves/{save}:restore");
    let (status, answer) = backend.call(Method::POST, &restore, Some(&json!({}))).await;
    assert!(status.is_success(), "{status} {answer}");
    backend.idle().await;
    let valid = valid_facts(&backend, "mira").await;
    assert!(valid.iter().any(|fact| fact == "The player likes grapes."), "{valid:?}");
    for unsaid in ["pears", "salt", "cherries"] {
        assert!(!valid.iter().any(|fact| fact.contains(unsaid)), "{valid:?}");
    }
    assert!(server.rest(Role::Admin).status("/v1/audit").await.is_success());
}

async fn valid_facts(backend: &RestClient, npc: &str) -> Vec<String> {
    let facts = backend.facts(npc).await;
    let valid = facts.iter().filter(|fact| fact["invalid_at"].is_null());
    valid.map(|fact| fact["content"].as_str().unwrap().to_owned()).collect()
}
