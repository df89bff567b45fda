//! An NPC tells all players the same about itself.

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use reqwest::Method;
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, run};

const ASKS: &str = "What do you like to drink?";

async fn session(rest: &RestClient, player: &str) -> String {
    let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": player});
    let opened = rest.post("/v1/sessions", &body).await;
    opened["id"].as_str().unwrap().to_owned()
}

/// Says a line, waits for its jobs, and returns the reply's prompt.
async fn say(rest: &RestClient, mock: &MockHandle, session: &str, text: &str) -> String {
    rest.post(&format!("/v1/sessions/{session}/turns"), &json!({"text": text}))
        .await;
    rest.idle().await;
    mock.requests_of("reply").pop().unwrap().to_string()
}

async fn wine_facts(rest: &RestClient) -> Vec<Value> {
    let facts = rest.facts("mira").await.into_iter();
    facts
        .filter(|fact| fact["invalid_at"].is_null())
        .filter(|fact| fact["content"].as_str().unwrap().contains("elderberry"))
        .collect()
}

/// Writes the world with the setting that shares what NPCs tell of themselves.
async fn share_self_facts(rest: &RestClient) {
    let mut world = rest.get("/v1/worlds/vale").await;
    world["settings"]["self_told"] = json!("shared");
    let kept = ["name", "premise", "language", "rules", "settings"];
    let body: serde_json::Map<String, Value> = kept
        .iter()
        .map(|key| ((*key).to_owned(), world[*key].clone()))
        .collect();
    let (status, written) = rest.call(Method::PUT, "/v1/worlds/vale", Some(&json!(body))).await;
    assert!(status.is_success(), "{written}");
    assert_eq!(written["settings"]["self_told"], "shared", "{written}");
}

#[test]
fn npc_taste_is_the_same_for_all_players() {
    run(async {
        let tells = MockOptions {
            reply: "Mira likes elderberry wine.".to_owned(),
            ..MockOptions::default()
        };
        let mock = mock_llm::start_on_thread(tells).unwrap();
        let server = fresh(&[]).with_mock(&mock.base_url()).start();
        let rest = server.backend();
        share_self_facts(&rest).await;
        let rowan = session(&rest, "rowan").await;
        say(&rest, &mock, &rowan, ASKS).await;
        let facts = wine_facts(&rest).await;
        assert_eq!(facts.len(), 1, "{facts:?}");
        assert!(facts[0]["private_to"].is_null(), "{facts:?}");
        // A secret in the same turn stays with the player.
        say(&rest, &mock, &rowan, "I like plums.").await;

        mock.apply_settings(&json!({"reply": "Well met."})).unwrap();
        let lark = session(&rest, "lark").await;
        let prompt = say(&rest, &mock, &lark, ASKS).await;
        assert!(prompt.contains("elderberry") && !prompt.contains("plums"), "{prompt}");
        // After the rewind, the fact is gone for everyone.
        let back = format!("/v1/sessions/{rowan}:rewind");
        rest.post(&back, &json!({"turn": 0})).await;
        rest.idle().await;
        assert!(wine_facts(&rest).await.is_empty());
        let prompt = say(&rest, &mock, &session(&rest, "wren").await, ASKS).await;
        assert!(!prompt.contains("elderberry"), "{prompt}");
    });
}

#[test]
fn npc_tells_only_one_player_of_itself_by_default() {
    run(async {
        let tells = MockOptions {
            reply: "Mira likes elderberry wine.".to_owned(),
            ..MockOptions::default()
        };
        let mock = mock_llm::start_on_thread(tells).unwrap();
        let server = fresh(&[]).with_mock(&mock.base_url()).start();
        let rest = server.backend();
        say(&rest, &mock, &session(&rest, "rowan").await, ASKS).await;
        let facts = wine_facts(&rest).await;
        assert_eq!(facts[0]["private_to"], "rowan", "{facts:?}");
        mock.apply_settings(&json!({"reply": "Well met."})).unwrap();
        let prompt = say(&rest, &mock, &session(&rest, "lark").await, ASKS).await;
        assert!(!prompt.contains("elderberry"), "{prompt}");
    });
}
