//! Usage by world and NPC.

use reqwest::Method;
use serde_json::{Value, json};

use super::{fresh, npc_conversation::conversation};
use crate::support::{RestClient, eventually, run};
use colloquy::mock_llm::{self, MockOptions};

async fn say(backend: &RestClient, npc: &str, lines: usize) {
    let body = json!({"world_id": "vale", "npc_id": npc, "player_id": "p1"});
    let session = backend.post("/v1/sessions", &body).await;
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    for _ in 0..lines {
        backend.post(&turns, &json!({"text": "I like plums."})).await;
    }
    backend.idle().await;
}

fn task<'a>(view: &'a Value, name: &str) -> Option<&'a Value> {
    view["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|task| task["task"] == name)
}

#[test]
fn model_calls_are_counted_for_the_world_and_the_npc_that_caused_them() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let env = [
            ("COLLOQUY__LLM__PRICES", "mock=1/0.5/2"),
            ("COLLOQUY__CONVERSATION__PAUSE_MS", "0"),
        ];
        let server = fresh(&env).with_mock(&mock.base_url()).start();
        let backend = server.backend();
        say(&backend, "mira", 3).await;
        say(&backend, "ergen", 1).await;
        let talk = conversation(&server, json!({"auto": false})).await;
        for _ in 0..2 {
            backend
                .post(&format!("/v1/npc-conversations/{talk}:step"), &json!({}))
                .await;
        }
        backend.idle().await;
        let path = "/v1/worlds/vale/usage";
        let npcs = eventually("all calls to be written", async || {
            let npcs = backend.get(path).await;
            let calls = |view: &Value| task(view, "reply").map_or(0, |task| task["calls"].as_u64().unwrap());
            let replies: u64 = npcs["items"].as_array().unwrap().iter().map(calls).sum();
            (replies == 6).then_some(npcs)
        })
        .await;
        let items = npcs["items"].as_array().unwrap();
        let ids: Vec<&Value> = items.iter().map(|item| &item["npc_id"]).collect();
        assert_eq!(ids, ["ergen", "mira"]);
        let (ergen, mira) = (&items[0], &items[1]);
        let (of_ergen, of_mira) = (task(ergen, "reply").unwrap(), task(mira, "reply").unwrap());
        assert_eq!((&of_ergen["calls"], &of_mira["calls"]), (&json!(2), &json!(4)));
        for name in ["extraction", "intent", "embedding"] {
            assert!(
                task(mira, name).is_some_and(|task| task["calls"].as_u64() > Some(0)),
                "{name}: {mira}"
            );
        }
        // Mira's second and third prompt began like the one before.
        assert!(of_mira["unchanged_tokens"].as_u64() > Some(0), "{mira}");
        // The cost of the replies is their tokens at the prices above.
        let number = |key: &str| of_mira[key].as_f64().unwrap();
        let fresh = number("prompt_tokens") - number("cached_tokens");
        let cost = (fresh + number("cached_tokens") * 0.5 + number("completion_tokens") * 2.0) / 1e6;
        assert!((of_mira["cost"].as_f64().unwrap() - cost).abs() < 1e-12, "{of_mira}");

        let worlds = backend.get("/v1/usage/worlds").await;
        let vale = &worlds["items"][0];
        assert_eq!(
            (&vale["world_id"], &task(vale, "reply").unwrap()["calls"]),
            (&json!("vale"), &json!(6))
        );
        let first = backend.get(&format!("{path}?limit=1")).await;
        assert_eq!(
            (&first["items"][0]["npc_id"], &first["next"]),
            (&json!("ergen"), &json!("ergen"))
        );
        let second = backend.get(&format!("{path}?limit=1&after=ergen")).await;
        assert_eq!(
            (&second["items"][0]["npc_id"], &second["next"]),
            (&json!("mira"), &Value::Null)
        );
        for wrong in [
            "?from=2031-02-30",
            "?from=2031-02-02&to=2031-02-01",
            "?limit=0",
            "?npc=mira",
        ] {
            let (status, answer) = backend.call(Method::GET, &format!("{path}{wrong}"), None).await;
            assert_eq!(status, 422, "{wrong}: {answer}");
        }
        let none = backend.get("/v1/worlds/dale/usage").await;
        assert_eq!(none["items"], json!([]));
    });
}
