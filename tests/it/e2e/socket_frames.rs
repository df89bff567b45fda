//! Malformed, oversized and unexpected frames give a clear error and lose no data.

use serde_json::json;

use super::fresh;
use crate::support::run;

#[test]
fn malformed_messages_are_answered_and_cost_nothing() {
    run(async {
        let server = fresh(&[]).start();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        for bad in [
            "not json",
            "[]",
            "{}",
            r#"{"type":"player.shout"}"#,
            r#"{"type":"player.say"}"#,
            r#"{"type":"player.say","session_id":"ses_nonsense","text":"hi"}"#,
            r#"{"type":"player.say","session_id":7,"text":"hi"}"#,
        ] {
            let mut other = server.player("p1").await;
            other.send_raw(bad.to_owned()).await;
            match other.next_or_close().await {
                Ok(event) => {
                    assert_eq!(event["type"], "error", "{bad}: {event}");
                    assert!(
                        event["error"]["code"].is_string() && event["error"]["message"].is_string(),
                        "{event}"
                    );
                }
                Err(code) => panic!("{bad}: closed with {code} before an error event"),
            }
        }
        for text in ["", &"x".repeat(2001)] {
            socket
                .send(&json!({"type": "player.say", "event_id": "e", "session_id": session, "text": text}))
                .await;
            let event = socket.next().await;
            assert_eq!(
                (event["type"].as_str(), event["re"].as_str()),
                (Some("error"), Some("e")),
                "{event}"
            );
        }
        let reply = socket.say_line(&session, "Hello.").await;
        assert_eq!((reply.turn, reply.status.as_str()), (1, "completed"));
    });
}

#[test]
fn oversized_message_closes_its_socket_only() {
    run(async {
        let server = fresh(&[]).start();
        let mut calm = server.player("p1").await;
        let session = calm.session("mira", "p1").await;
        let mut wild = server.player("p2").await;
        wild.send_raw(format!(r#"{{"type":"ping","t":"{}"}}"#, "x".repeat(20_000)))
            .await;
        let code = loop {
            match wild.next_or_close().await {
                Ok(event) => assert_eq!(event["type"], "error", "{event}"),
                Err(code) => break code,
            }
        };
        assert_eq!(code, 4413);
        assert_eq!(calm.say_line(&session, "Hello.").await.status, "completed");
    });
}

#[test]
fn ping_is_answered_with_its_own_time() {
    run(async {
        let server = fresh(&[]).start();
        let mut socket = server.player("p1").await;
        socket.send(&json!({"type": "ping", "t": 123})).await;
        assert_eq!(socket.until("pong").await["t"], 123);
    });
}
