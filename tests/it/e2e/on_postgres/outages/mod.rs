//! A store or the model fails under load and recovers; one file each (Qdrant's is `on_qdrant/outage.rs`). Acknowledged
//! lines stand once and in order. Unsaid turns stay unsaid.

mod load;
mod model;
mod postgres;
mod redis;

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::nodes::{counter_value, counter_values};
use crate::support::{RestAnswer, RestClient, TestSocket};
pub(in crate::e2e) use {
    self::load::{FinishedTalk, LINES, Load, PLAYERS},
    crate::support::eventually_after_outage,
};

/// The reason for a refusal.
#[derive(Debug)]
pub(in crate::e2e) struct LineRejection {
    pub code: String,
    pub retry_after: Option<Duration>,
}

/// Returns the error of a refused request, and asserts that the error allows a retry.
pub(in crate::e2e) fn rejection_of(answer: &RestAnswer) -> LineRejection {
    let statuses = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::BAD_GATEWAY];
    assert!(statuses.contains(&answer.status), "{answer:?}");
    LineRejection {
        code: answer.body["code"].as_str().unwrap().to_owned(),
        retry_after: answer.retry_after.map(Duration::from_secs),
    }
}

pub(in crate::e2e) async fn session(rest: &RestClient, player: &str) -> String {
    let made = rest.post("/v1/sessions", &new_session(player)).await;
    made["id"].as_str().unwrap().to_owned()
}

fn new_session(player: &str) -> Value {
    json!({"world_id": "vale", "npc_id": "mira", "player_id": player})
}

pub(in crate::e2e) fn turns_of(session: &str) -> String {
    format!("/v1/sessions/{session}/turns")
}

pub(in crate::e2e) async fn say(rest: &RestClient, session: &str, key: &str, line: &str) -> Result<(), LineRejection> {
    let answer = rest
        .post_answer(&turns_of(session), &json!({"text": line, "key": key}))
        .await;
    if answer.status == StatusCode::OK {
        assert_eq!(answer.body["player_text"], line);
        return Ok(());
    }
    Err(rejection_of(&answer))
}

async fn say_over_socket(socket: &mut TestSocket, session: &str, key: &str, line: &str) -> Result<(), LineRejection> {
    assert!(socket.try_send_line(session, key, line).await, "the socket is closed");
    loop {
        let event = socket.next().await;
        if event["re"] != key {
            continue;
        }
        let failed = match event["type"].as_str().unwrap() {
            "turn.committed" => return Ok(()),
            "error" => true,
            "reply.done" => event["status"] == "failed",
            _ => false,
        };
        if failed {
            let error = &event["error"];
            return Err(LineRejection {
                code: error["code"].as_str().unwrap().to_owned(),
                retry_after: error["retry_after_ms"].as_u64().map(Duration::from_millis),
            });
        }
    }
}

/// Returns the standing lines of a session from the ledger. Their numbers must have no gap.
pub(in crate::e2e) async fn standing_lines(rest: &RestClient, session: &str) -> Vec<String> {
    let (mut lines, mut after) = (Vec::new(), String::new());
    loop {
        let page = rest.get(&format!("{}?limit=200{after}", turns_of(session))).await;
        for turn in page["items"].as_array().unwrap() {
            lines.push(turn["player_text"].as_str().unwrap().to_owned());
            assert_eq!(turn["turn"], lines.len(), "{turn}");
        }
        match &page["next"] {
            Value::Null => return lines,
            Value::String(next) => after = format!("&after={next}"),
            next => after = format!("&after={next}"),
        }
    }
}

/// Returns the status of a component in `/readyz`; `null` if the server is not ready.
pub(in crate::e2e) async fn readiness(rest: &RestClient, of: &str) -> Value {
    let (_, body) = rest.call(Method::GET, "/readyz", None).await;
    body[of].clone()
}

/// Waits for all jobs. Then every mentioned fruit is known as one fact of its speaker, and no job is dead.
pub(in crate::e2e) async fn assert_learned_once(rest: &RestClient, talks: &[FinishedTalk]) {
    rest.idle().await;
    let dead = rest.get("/v1/jobs?status=dead").await;
    assert_eq!(dead["items"], json!([]));
    // The list includes invalid facts.
    let facts = rest.facts("mira").await;
    for talked in talks {
        let of_player = format!("player:{}", talked.player);
        for fruit in talked.fruits() {
            let says = |fact: &&Value| {
                fact["content"].as_str().unwrap().contains(fruit) && fact.to_string().contains(&of_player)
            };
            let found: Vec<&Value> = facts.iter().filter(says).collect();
            assert_eq!(found.len(), 1, "{} likes {fruit}: {found:?}", talked.player);
            assert!(found[0]["invalid_at"].is_null(), "{:?}", found[0]);
        }
    }
}
