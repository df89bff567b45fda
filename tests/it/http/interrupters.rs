//! Permission to watch an NPC conversation is not permission to interrupt.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::json;

use super::harness::HttpTestServer;

#[actix_web::test]
async fn watchers_may_interrupt_join_and_resume_only_as_interrupters_allow() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    backend.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
    let player = |name: &str| server.client(server.token("acme", Role::Player, Some(name)));
    // `named` is a listed watcher, and `other` is a player who may only watch, or not even watch.
    for (interrupters, open, named, other) in [
        (json!(null), true, 2, 403),
        (json!("watchers"), true, 2, 403),
        (json!("watchers"), false, 2, 404),
        (json!("none"), true, 403, 403),
        (json!("all"), true, 2, 2),
        (json!("all"), false, 2, 404),
    ] {
        let mut body = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "auto": false, "open": open,
            "watchers": ["p7"]});
        if interrupters.is_string() {
            body["interrupters"] = interrupters.clone();
        }
        let made = backend.post("/v1/npc-conversations", &body).await;
        let expected = interrupters.as_str().unwrap_or("watchers");
        assert_eq!(made["interrupters"], expected);
        let path = format!("/v1/npc-conversations/{}", made["id"].as_str().unwrap());
        for (name, allowed) in [("p7", named), ("p8", other)] {
            backend.post(&format!("{path}:step"), &json!({})).await;
            for (verb, body) in [
                (":interrupt", json!({"turn": 1})),
                (":join", json!({"player_id": name})),
                (":resume", json!({})),
            ] {
                let (status, answer) = player(name)
                    .call(Method::POST, &format!("{path}{verb}"), Some(&body))
                    .await;
                let status = status.as_u16();
                let right = if allowed == 2 {
                    status / 100 == 2
                } else {
                    status == allowed
                };
                assert!(right, "{expected}, open {open}: {name} {verb}: {status} {answer}");
            }
            let mut socket = server.socket(&server.token("acme", Role::Player, Some(name))).await;
            socket
                .send(
                    json!({"type": "npc_conversation.interrupt", "event_id": "c1", "conversation_id": made["id"],
                    "turn": 1}),
                )
                .await;
            match allowed {
                2 => loop {
                    let event = socket.next().await.unwrap();
                    assert_ne!(event["type"], "error", "{event}");
                    if event["re"] == "c1" {
                        break;
                    }
                },
                403 => assert_eq!(socket.error_code().await, "forbidden"),
                _ => assert_eq!(socket.error_code().await, "not_found"),
            }
        }
        // Refused players rewound nothing.
        let lines = backend.get(&format!("{path}/turns")).await;
        assert!(!lines["items"].as_array().unwrap().is_empty(), "{lines}");
    }
}
