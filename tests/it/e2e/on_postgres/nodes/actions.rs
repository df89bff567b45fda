//! Every node sends the actions of a world, and each undone action once.

use reqwest::Method;
use serde_json::{Value, json};

use super::{NodeCluster, say};
use crate::support::{TestSocket, run};
use colloquy::tenancy::Role;

#[test]
fn action_is_requested_and_undone_at_every_node() {
    run(async {
        let cluster = NodeCluster::start(2, &[]).await;
        let rests = [cluster.servers[0].backend(), cluster.servers[1].backend()];
        let actions = json!([{"name": "wave", "description": "Waves."}]);
        let world = json!({"name": "Vale", "settings": {"actions": actions}});
        let (status, answer) = rests[0].call(Method::PUT, "/v1/worlds/vale", Some(&world)).await;
        assert!(status.is_success(), "{answer}");
        let (session, _) = cluster.session(0).await;
        let mut sockets = Vec::new();
        for server in &cluster.servers {
            let mut socket = TestSocket::open(server.address, &server.token("demo", Role::Backend, None)).await;
            socket.send(&json!({"type": "world.watch", "world_id": "vale"})).await;
            socket.until("world.watched").await;
            sockets.push(socket);
        }
        let reply = "Farewell.\n```state\n{\"actions\": [\"wave\"]}\n```";
        cluster.mock.apply_settings(&json!({ "reply": reply })).unwrap();
        say(&rests[1], &session, "bye", "Goodbye.").await;
        let mut ids = Vec::new();
        for socket in &mut sockets {
            ids.push(socket.until("action.requested").await["action"]["id"].clone());
        }
        assert_eq!(ids[0], ids[1]);
        let done = format!("/v1/actions/{}:done", ids[0].as_str().unwrap());
        let answered = rests[1].post(&done, &json!({})).await;
        assert_eq!(rests[0].post(&done, &json!({})).await, answered);
        rests[1]
            .post(&format!("/v1/sessions/{session}:rewind"), &json!({"turn": 1}))
            .await;
        for socket in &mut sockets {
            assert_eq!(socket.until("action.undone").await["action_id"], ids[0]);
        }
        let note = json!({"events": [{"type": "note", "text": "The end."}]});
        rests[0].post("/v1/worlds/vale/events", &note).await;
        for socket in &mut sockets {
            loop {
                let event: Value = socket.next().await;
                assert_ne!(event["type"], "action.undone", "once");
                if event["type"] == "world.changed" && event["changes"].to_string().contains("The end.") {
                    break;
                }
            }
        }
    });
}
