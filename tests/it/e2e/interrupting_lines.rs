//! A player interrupts an NPC conversation with a line: all steps or none, and once.

use colloquy::mock_llm::{self, MockOptions};
use serde_json::{Value, json};

use super::{
    fresh,
    npc_conversation::{conversation, watch, with_mock},
};
use crate::support::{RestClient, TestServer, TestSocket, run};

/// Creates a conversation of two lines that all players may watch.
async fn conversation_of_two_lines(server: &TestServer) -> String {
    let id = conversation(server, json!({"auto": false, "open": true, "interrupters": "all"})).await;
    step_conversation(&server.backend(), &id).await;
    step_conversation(&server.backend(), &id).await;
    id
}

async fn step_conversation(backend: &RestClient, id: &str) {
    backend
        .post(&format!("/v1/npc-conversations/{id}:step"), &json!({}))
        .await;
}

/// Returns the author's view of the conversation.
async fn conversation_view(backend: &RestClient, id: &str) -> (Value, Value) {
    let path = format!("/v1/npc-conversations/{id}");
    (backend.get(&path).await, backend.get(&format!("{path}/turns")).await)
}

async fn sessions_of(backend: &RestClient, player: &str) -> usize {
    let found = backend.get(&format!("/v1/sessions?player_id={player}")).await;
    found["items"].as_array().unwrap().len()
}

/// Returns the next error, skipping other events.
async fn error(socket: &mut TestSocket) -> Value {
    loop {
        let event = socket.next().await;
        if event["type"] == "error" {
            return event["error"].clone();
        }
    }
}

#[test]
fn rejected_line_cuts_nothing() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let url = mock.base_url();
        let server = fresh(&[("COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN", "1")])
            .with_mock(&url)
            .start();
        let backend = server.backend();
        let id = conversation_of_two_lines(&server).await;
        let before = conversation_view(&backend, &id).await;
        let mut socket = server.player("p1").await;
        watch(&mut socket, &id).await;
        let cut = |text: String| json!({"type": "npc_conversation.interrupt", "conversation_id": id, "turn": 1, "key": "k1", "text": text});
        for (text, code) in [
            ("", "line_empty"),
            (" \u{200b}", "line_empty"),
            (&*"x".repeat(2_001), "line_too_long"),
            ("a\0b", "validation_failed"),
        ] {
            socket.send(&cut(text.to_owned())).await;
            assert_eq!(error(&mut socket).await["code"], code);
        }
        let mut other = cut("Wait!".to_owned());
        other["player_id"] = json!("p2");
        socket.send(&other).await;
        assert_eq!(error(&mut socket).await["code"], "forbidden");
        // The limit of one line per minute is used up.
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "Hello.").await;
        socket.send(&cut("Wait!".to_owned())).await;
        assert_eq!(error(&mut socket).await["code"], "rate_limited");
        assert_eq!(conversation_view(&backend, &id).await, before);
        assert_eq!(sessions_of(&backend, "p1").await, 1);
    });
}

#[test]
fn interrupt_repeated_with_its_key_is_the_same_session_and_turn() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        let id = conversation_of_two_lines(&server).await;
        let mut first = server.player("p1").await;
        let cut = json!({"type": "npc_conversation.interrupt", "event_id": "i", "conversation_id": id, "turn": 1,
            "key": "k1", "text": "Wait, who stole it?"});
        first.send(&cut).await;
        let session = first.until("session.created").await["session_id"].clone();
        first.until("turn.committed").await;
        let turns = format!("/v1/sessions/{}/turns", session.as_str().unwrap());
        let said = backend.get(&turns).await;

        // The NPCs continued meanwhile. The new lines stand.
        let resume = format!("/v1/npc-conversations/{id}:resume");
        backend.post(&resume, &json!({})).await;
        step_conversation(&backend, &id).await;
        let before = conversation_view(&backend, &id).await;
        assert_eq!(before.0["head_turn"], 2);

        // The request is repeated on the same socket and on another, as after a lost connection.
        let mut second = server.player("p1").await;
        for (socket, re) in [(&mut first, "same"), (&mut second, "other")] {
            let mut again = cut.clone();
            again["event_id"] = json!(re);
            socket.send(&again).await;
            let created = socket.until("session.created").await;
            assert_eq!((&created["session_id"], &created["re"]), (&session, &json!(re)));
            let done = socket.until("reply.done").await;
            assert_eq!(
                (&done["turn"], &done["text"], &done["re"]),
                (&json!(1), &said["items"][0]["reply_text"], &json!(re))
            );
            socket.until("turn.committed").await;
        }
        let mut another = cut.clone();
        another["text"] = json!("Something else.");
        second.send(&another).await;
        assert_eq!(error(&mut second).await["code"], "idempotency_mismatch");
        assert_eq!(backend.get(&turns).await, said);
        assert_eq!(sessions_of(&backend, "p1").await, 1);
        assert_eq!(conversation_view(&backend, &id).await, before);

        // Keys of different players are independent.
        let mut stranger = server.player("p2").await;
        stranger.send(&cut).await;
        let theirs = stranger.until("session.created").await["session_id"].clone();
        assert_ne!(theirs, session);
        stranger.reply().await;
    });
}
