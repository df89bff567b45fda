//! The Realtime API end to end: `conversation.item.truncate` is the interrupt of the server.

use colloquy::{
    mock_llm::{self, MockOptions},
    tenancy::Role,
};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, TestServer, TestSocket, eventually, run};

/// A connection of the player `p1` with `mira`, and the id of its session.
async fn connect(server: &TestServer) -> (TestSocket, String) {
    let token = server.token("demo", Role::Player, Some("p1"));
    let mut socket = TestSocket::open_at(server.address, &token, "/v1/realtime?model=vale/mira").await;
    let created = socket.until("session.created").await;
    let session = created["session"]["id"].as_str().unwrap().to_owned();
    (socket, session)
}

/// Says a line, and returns the item of the reply.
async fn say(socket: &mut TestSocket, text: &str) -> Value {
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
    socket
        .send(&json!({"type": "conversation.item.create", "item": item}))
        .await;
    socket.send(&json!({"type": "response.create"})).await;
    let done = socket.until("response.done").await;
    assert_eq!(done["response"]["status"], "completed", "{done}");
    done["response"]["output"][0].clone()
}

async fn truncate(socket: &mut TestSocket, item: &Value, chars: usize) -> Value {
    let event = json!({"type": "conversation.item.truncate", "item_id": item["id"], "content_index": 0,
        "audio_end_ms": 0, "heard_chars": chars});
    socket.send(&event).await;
    socket.until("conversation.item.truncated").await
}

/// Returns the facts valid now.
async fn valid_contents(rest: &RestClient) -> Vec<String> {
    let facts = rest.facts("mira").await;
    let standing = facts.iter().filter(|fact| fact["invalid_at"].is_null());
    standing
        .map(|fact| fact["content"].as_str().unwrap().to_owned())
        .collect()
}

async fn wait_until_learned(rest: &RestClient, word: &str) {
    eventually(&format!("a fact about {word}"), || async {
        let facts = valid_contents(rest).await;
        facts.iter().any(|fact| fact.contains(word)).then_some(())
    })
    .await;
}

#[test]
fn truncated_reply_takes_its_facts_along() {
    run(async {
        let server = fresh(&[]).start();
        let rest = server.backend();
        let (mut socket, session) = connect(&server).await;
        let first = say(&mut socket, "Hello.").await;
        say(&mut socket, "I like figs.").await;
        // The next line starts the learning from the line before.
        say(&mut socket, "Good.").await;
        wait_until_learned(&rest, "figs").await;

        let truncated = truncate(&mut socket, &first, 3).await;
        assert_eq!(truncated["heard_chars"], 3);
        let turns = rest.get(&format!("/v1/sessions/{session}/turns")).await;
        let turns = turns["items"].as_array().unwrap();
        assert_eq!(turns.len(), 1);
        assert_eq!(turns[0]["reply_text"].as_str().unwrap().chars().count(), 3);
        assert!(!valid_contents(&rest).await.iter().any(|fact| fact.contains("figs")));

        // The next answer is about the talk that stands.
        say(&mut socket, "I like grapes.").await;
        let answer = say(&mut socket, "What fruit do I like?").await;
        let answer = answer["content"][0]["text"].as_str().unwrap();
        assert!(answer.contains("grapes") && !answer.contains("figs"), "{answer}");
    });
}

#[test]
fn truncated_reply_takes_its_state_along() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = fresh(&[]).with_mock(&mock.base_url()).start();
        let rest = server.backend();
        let events = json!([
            {"type": "location", "who": "mira", "to": "Inn"},
            {"type": "location", "who": "Bram", "to": "Inn"}
        ]);
        rest.post("/v1/worlds/vale/events", &json!({"events": events})).await;
        let (mut socket, _) = connect(&server).await;
        let block = json!({"changes": [{"who": "Bram", "status": "wounded"}]});
        let reply = format!("Bram has fallen from the roof.\n```state\n{block}\n```");
        mock.apply_settings(&json!({"reply": reply})).unwrap();
        let status = async || {
            let state = rest.get("/v1/worlds/vale/state").await;
            let characters = state["characters"].as_array().unwrap().clone();
            let bram = characters.into_iter().find(|one| one["name"] == "Bram");
            bram.unwrap()["status"]["value"].clone()
        };
        let item = say(&mut socket, "What was that noise?").await;
        assert_eq!(item["content"][0]["text"], "Bram has fallen from the roof.");
        assert_eq!(status().await, "wounded");
        truncate(&mut socket, &item, 4).await;
        assert_eq!(status().await, Value::Null);
    });
}
