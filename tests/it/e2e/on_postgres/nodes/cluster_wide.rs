//! Operations on a world with dialogues on several nodes, and takeovers without Redis.

use serde_json::json;

use super::{
    NodeCluster, counter_value, dying::node_ids, eventually_after_outage, forwarded_count, say, standing_lines,
};
use crate::support::run;

#[test]
fn save_is_taken_and_restored_across_nodes() {
    run(async {
        let nodes = NodeCluster::start(3, &[]).await;
        let rests = [0, 1, 2].map(|at| nodes.servers[at].backend());
        let (mut sessions, mut ears) = (Vec::new(), Vec::new());
        for at in 0..2 {
            let (session, token) = nodes.session(at).await;
            let mut socket = nodes.servers[at].player("p1").await;
            let resume = json!({"type": "session.resume", "session_id": session, "resume_token": token, "last_seq": 1});
            socket.send(&resume).await;
            socket.until("session.resumed").await;
            sessions.push(session);
            ears.push(socket);
        }
        let saves = "/v1/worlds/vale/saves";
        let save = rests[2].post(saves, &json!({"name": "here"})).await;
        let save = save["id"].as_str().unwrap();
        for (at, ear) in ears.iter_mut().enumerate() {
            ear.say_line(&sessions[at], "This never happened.").await;
        }
        // One more turn is running.
        nodes.mock.apply_settings(&json!({"faults": ["reply=hold"]})).unwrap();
        let calls = nodes.mock.calls_of("reply");
        ears[1].send_line(&sessions[1], "held", "Nor did this.").await;
        eventually_after_outage("the reply to be asked for", || async {
            (nodes.mock.calls_of("reply") > calls).then_some(())
        })
        .await;
        let restored = rests[2].post(&format!("{saves}/{save}:restore"), &json!({})).await;
        assert_eq!(restored["removed_turns"], 2, "{restored}");
        nodes.mock.apply_settings(&json!({"faults": []})).unwrap();
        for ear in &mut ears {
            // A reply that ends unsaid is published as an error of its turn.
            let rewound = loop {
                let event = ear.next().await;
                if event["type"] == "dialogue.rewound" {
                    break event;
                }
            };
            assert_eq!(rewound["removed_turns"], json!([2]), "{rewound}");
        }
        for (at, session) in sessions.iter().enumerate() {
            assert_eq!(standing_lines(&rests[2], session).await, ["Hello."]);
            assert_eq!(say(&rests[2], session, "on", "Let us go on.").await["turn"], 2);
            assert_eq!(standing_lines(&rests[at], session).await, ["Hello.", "Let us go on."]);
        }
    });
}

#[test]
fn owners_are_found_without_redis() {
    run(async {
        let mut nodes = NodeCluster::start(2, &[]).await;
        let (session, _) = nodes.session(0).await;
        let other = nodes.servers[1].backend();
        assert_eq!(say(&other, &session, "a", "One.").await["turn"], 2);
        nodes.redis.kill();
        assert_eq!(say(&other, &session, "b", "Two.").await["turn"], 3);
        let owner = nodes.servers[0].backend();
        assert_eq!(say(&owner, &session, "c", "Three.").await["turn"], 4);
        assert!(forwarded_count(&nodes.servers[1], "request").await >= 2.0);
    });
}

#[test]
fn new_owner_after_a_takeover_is_found_without_redis() {
    run(async {
        let mut nodes = NodeCluster::start(3, &[("COLLOQUY__BUFFER__URL", "memory:")]).await;
        let (session, _) = nodes.session(0).await;
        let ids = node_ids(&nodes).await;
        nodes.mock.apply_settings(&json!({"faults": ["reply=hold"]})).unwrap();
        let calls = nodes.mock.calls_of("reply");
        let asked = nodes.servers[1].backend();
        let asking = tokio::spawn({
            let session = session.clone();
            async move { say(&asked, &session, "a", "One.").await }
        });
        eventually_after_outage("the reply to be asked for", || async {
            (nodes.mock.calls_of("reply") > calls).then_some(())
        })
        .await;
        // The third node takes over. The second node, which waits for the first, gets no notice.
        let mut ledger = nodes.data.database().connect_to_all().await;
        let moved = sqlx::query("UPDATE dialogues SET owner_node = $1 WHERE id = $2")
            .bind(&ids[2])
            .bind(&session)
            .execute(&mut ledger)
            .await;
        assert_eq!(moved.unwrap().rows_affected(), 1);
        nodes.servers.remove(0).kill();
        nodes.mock.apply_settings(&json!({"faults": []})).unwrap();
        let turn = asking.await.unwrap();
        assert_eq!(turn["turn"], 2, "{turn}");
        let live = counter_value(&nodes.servers[1], "colloquy_actors{kind=\"session\"}").await;
        assert!((live - 1.0).abs() < 0.1, "the third node has {live} sessions");
    });
}
