//! Consolidation over HTTP: asked for, seen in the facts, taken back and restored.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, run};

const RUN: &str = "/v1/worlds/vale/consolidation:run";

/// Returns the valid facts that the NPC has of the player, as content, importance and number of premises.
async fn facts(backend: &RestClient) -> Vec<(String, u64, usize)> {
    let listed = backend
        .get("/v1/worlds/vale/npcs/mira/facts?player_id=p1&limit=200")
        .await;
    let items = listed["items"].as_array().unwrap().iter();
    let mut facts: Vec<_> = items
        .map(|fact| {
            let premises = fact["derived_from"].as_array().map_or(0, Vec::len);
            (
                fact["content"].as_str().unwrap().to_owned(),
                fact["importance"].as_u64().unwrap(),
                premises,
            )
        })
        .collect();
    facts.sort();
    facts
}

async fn consolidate(backend: &RestClient) -> Value {
    let queued = backend.post(RUN, &json!({})).await["queued"].clone();
    backend.idle().await;
    queued
}

#[test]
fn old_facts_of_a_session_become_one_fact() {
    run(async {
        let server = fresh(&[("COLLOQUY__CURATION__CONSOLIDATE_AFTER_D", "0")]).start();
        let backend = server.backend();
        let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"});
        let session = backend.post("/v1/sessions", &body).await["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let turns = format!("/v1/sessions/{session}/turns");
        for line in ["I like plums.", "I like bread.", "I like cheese."] {
            backend.post(&turns, &json!({ "text": line })).await;
        }
        backend.idle().await;
        let before = facts(&backend).await;
        assert_eq!(before.len(), 3, "{before:?}");

        assert_eq!(consolidate(&backend).await, 1);
        let after = facts(&backend).await;
        let concluded: Vec<_> = after.iter().filter(|(_, _, premises)| *premises > 0).collect();
        assert_eq!((after.len(), concluded.len(), concluded[0].2), (4, 1, 3), "{after:?}");
        let weights = |facts: &[(String, u64, usize)]| -> Vec<u64> {
            facts.iter().filter(|fact| fact.2 == 0).map(|fact| fact.1).collect()
        };
        let lowered: Vec<u64> = weights(&before).iter().map(|weight| weight.div_ceil(2)).collect();
        assert_eq!(weights(&after), lowered);
        assert_eq!(consolidate(&backend).await, 0);
        let context = backend
            .post(
                &format!("/v1/sessions/{session}/context"),
                &json!({"text": "What do I like?"}),
            )
            .await;
        assert!(context["messages"].to_string().contains(&concluded[0].0), "{context}");

        let saved = backend.post("/v1/worlds/vale/saves", &json!({})).await;
        backend
            .post(&format!("/v1/sessions/{session}:rewind"), &json!({"turn": 2}))
            .await;
        backend.idle().await;
        assert_eq!(
            facts(&backend).await,
            before
                .iter()
                .filter(|fact| !fact.0.contains("cheese"))
                .cloned()
                .collect::<Vec<_>>()
        );
        assert_eq!(consolidate(&backend).await, 0);
        let restore = format!("/v1/worlds/vale/saves/{}:restore", saved["id"].as_str().unwrap());
        backend.post(&restore, &json!({})).await;
        backend.idle().await;
        assert_eq!(facts(&backend).await, after);

        let (status, _) = backend
            .call(Method::POST, "/v1/worlds/nowhere/consolidation:run", None)
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        server.stop();
    });
}
