//! Connections of the Realtime API at a node that does not own their session.

use colloquy::tenancy::Role;
use serde_json::json;

use super::{NodeCluster, turns_of};
use crate::support::{TestSocket, run};

#[test]
fn realtime_connection_reaches_the_owner_of_its_session() {
    run(async {
        let nodes = NodeCluster::start(2, &[]).await;
        let (session, _) = nodes.session(0).await;
        let (owner, door) = (&nodes.servers[0], &nodes.servers[1]);
        let token = door.token("demo", Role::Player, Some("p1"));
        let path = format!("/v1/realtime?session={session}");
        let mut socket = TestSocket::open_at(door.address, &token, &path).await;
        let created = socket.until("session.created").await;
        assert_eq!(created["session"]["id"], session.as_str());

        let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Good day."}]});
        socket
            .send(&json!({"type": "conversation.item.create", "item": item}))
            .await;
        socket.send(&json!({"type": "response.create"})).await;
        let done = socket.until("response.done").await;
        assert_eq!(done["response"]["status"], "completed", "{done}");
        let reply = &done["response"]["output"][0]["id"];
        socket
            .send(
                &json!({"type": "conversation.item.truncate", "item_id": reply, "content_index": 0, "audio_end_ms": 0,
                "heard_chars": 3}),
            )
            .await;
        assert_eq!(socket.until("conversation.item.truncated").await["heard_chars"], 3);
        let turns = owner.backend().get(&turns_of(&session)).await;
        let turns = turns["items"].as_array().unwrap();
        assert_eq!(turns.len(), 2);
        assert_eq!(turns[1]["reply_text"].as_str().unwrap().chars().count(), 3);

        // A client whose session moves connects again, and goes on.
        owner.terminate();
        let code = loop {
            match socket.next_or_close().await {
                Ok(event) => assert_eq!(event["type"], "error", "{event}"),
                Err(code) => break code,
            }
        };
        assert_eq!(code, 4503);
    });
}
