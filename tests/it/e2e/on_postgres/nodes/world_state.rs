//! Every node folds the world's state. A rewind at one node takes effect at all nodes.

use serde_json::json;

use super::{say, turns_of};
use crate::{
    e2e::scenarios::put,
    support::{RedisServer, RestClient, ServerData, run},
};

/// Returns the whole prompt of the next reply.
async fn prompt(rest: &RestClient, session: &str) -> String {
    let probe = json!({"text": "Where are we?"});
    rest.post(&format!("/v1/sessions/{session}/context"), &probe)
        .await
        .to_string()
}

#[test]
fn world_state_is_rewound_at_every_node() {
    run(async {
        let redis = RedisServer::start().await;
        let buffers = redis.url();
        // The scripted model reports the changes of a line.
        let data = ServerData::on_postgres(&[
            ("COLLOQUY__BUFFER__URL", buffers.as_str()),
            ("COLLOQUY__NODE__URL", "http://127.0.0.1:0"),
            ("COLLOQUY__NODE__SECRET", "what only the nodes of these tests know"),
        ]);
        let servers = [data.with_own_folder().spawn(), data.with_own_folder().spawn()];
        let [here, there] = [servers[0].backend(), servers[1].backend()];
        let world = json!({"name": "The Vale", "language": "en", "settings": {"clock": {"start": "0001-01-01"}}});
        put(&here, "/v1/worlds/vale", &world).await;
        let mut sessions = Vec::new();
        for rest in [&here, &there] {
            let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"});
            let session = rest.post("/v1/sessions", &body).await["id"]
                .as_str()
                .unwrap()
                .to_owned();
            say(rest, &session, "first", "Hello.").await;
            sessions.push(session);
        }
        let [moves, asks] = [&sessions[0], &sessions[1]];

        say(&here, moves, "mill", "Let's go to the old mill.").await;
        assert!(prompt(&there, asks).await.contains("old mill"));
        let back = here
            .post(&format!("/v1/sessions/{moves}:rewind"), &json!({"turn": 1}))
            .await;
        assert_eq!(back["rewound"]["rolled_back"]["state"], 1, "{back}");
        for rest in [&here, &there] {
            assert!(!prompt(rest, asks).await.contains("old mill"));
        }

        let saves = "/v1/worlds/vale/saves";
        let before = here.post(saves, &json!({"name": "before"})).await;
        let passed = json!({"events": [{"type": "time_passed", "days": 1}]});
        tokio::join!(
            here.post("/v1/worlds/vale/events", &passed),
            there.post("/v1/worlds/vale/events", &passed)
        );
        say(&here, moves, "lake", "Let's go to the lake.").await;
        let after = here.post(saves, &json!({"name": "after"})).await;
        assert!(prompt(&there, asks).await.contains("lake"));
        for (save, is_there) in [(&before, false), (&after, true)] {
            let path = format!("{saves}/{}:restore", save["id"].as_str().unwrap());
            here.post(&path, &json!({})).await;
            for rest in [&here, &there] {
                let prompt = prompt(rest, asks).await;
                assert_eq!(prompt.contains("lake"), is_there, "{}", save["name"]);
                assert_eq!(prompt.contains("3 January 1 (0001-01-03)"), is_there, "{prompt}");
                let clock = rest.get("/v1/worlds/vale/state").await["clock"]["time"].clone();
                let time = if is_there {
                    "0001-01-03 00:00"
                } else {
                    "0001-01-01 00:00"
                };
                assert_eq!(clock, time, "{}", save["name"]);
            }
        }
        assert_eq!(
            here.get(&turns_of(moves)).await["items"].as_array().unwrap().len(),
            2,
            "the later save came back whole"
        );
    });
}
