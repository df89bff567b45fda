//! SIGTERM during a streaming reply: the turn is finished and stored, and the client is notified.

use colloquy::mock_llm::{self, MockOptions};
use serde_json::json;

use super::fresh;
use crate::support::run;

#[test]
fn running_turn_is_finished_before_the_server_exits() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions {
            tokens_per_s: 40,
            deltas: 60,
            ..MockOptions::default()
        })
        .unwrap();
        let server = fresh(&[]).with_mock(&mock.base_url()).spawn();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.send_line(&session, "k1", "Tell me a story.").await;
        socket.until("reply.delta").await;
        server.terminate();
        let draining = socket.until("server.draining").await;
        assert!(draining["deadline_s"].as_u64().unwrap() > 0);
        socket.send_line(&session, "k2", "And another.").await;
        let mut told = Vec::new();
        let mut text = None;
        let code = loop {
            match socket.next_or_close().await {
                Ok(event) => match event["type"].as_str().unwrap() {
                    "reply.delta" => {}
                    "error" => told.push(format!("error {}", event["error"]["code"].as_str().unwrap())),
                    "reply.done" => {
                        assert_eq!(event["status"], "completed", "{event}");
                        text = Some(event["text"].clone());
                        told.push("reply.done".to_owned());
                    }
                    other => told.push(other.to_owned()),
                },
                Err(code) => break code,
            }
        };
        assert_eq!(told, ["error draining", "reply.done", "turn.committed"]);
        assert_eq!(code, 4503);

        let server = server.stop().spawn();
        let page = server.backend().get(&format!("/v1/sessions/{session}/turns")).await;
        let turns = page["items"].as_array().unwrap();
        assert_eq!(turns.len(), 1);
        assert_eq!(
            (&turns[0]["reply_text"], &turns[0]["status"]),
            (&text.unwrap(), &json!("completed"))
        );
    });
}
