//! A full disk or a read-only database: `/readyz` reports the state, and a refused turn leaves no data. Once writes
//! succeed again, the server continues by itself.

use std::{collections::BTreeSet, time::Duration};

use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};

use crate::support::{RestClient, ServerData, TestServer, eventually, run};

/// Asserts refusals without partial writes, and the recovery. `close` and `open` block and allow writes.
pub(in crate::e2e) async fn assert_rejects_and_recovers(
    server: &TestServer,
    why: &str,
    close: impl AsyncFnOnce(),
    open: impl AsyncFnOnce(),
) {
    let rest = server.backend();
    let mut socket = server.player("p1").await;
    let session = socket.session("mira", "p1").await;
    socket.say_line(&session, "I like grapes.").await;
    rest.idle().await;
    let before = (turns(&rest, &session).await, rest.facts("mira").await);

    close().await;
    let problem = wait_for_readiness(&rest, StatusCode::SERVICE_UNAVAILABLE, "ledger_not_writable").await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(why), "{detail}");
    assert_eq!(rest.status("/healthz").await, StatusCode::OK);
    // Reads still work.
    assert_eq!(turns(&rest, &session).await, before.0);

    socket.send_line(&session, "k2", "I like pears.").await;
    let refused = loop {
        let event = socket.next().await;
        match event["type"].as_str().unwrap() {
            // The whole reply was streamed before the failed commit. Then an `error` comes.
            "reply.done" if event["error"].is_object() => break event["error"].clone(),
            "error" => break event["error"].clone(),
            "turn.committed" => panic!("{event}"),
            _ => {}
        }
    };
    assert_eq!(refused["code"], "store_unavailable", "{refused}");
    let over_rest = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p2"});
    let (status, body) = rest.call(Method::POST, "/v1/sessions", Some(&over_rest)).await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("store_unavailable"))
    );
    assert_eq!((turns(&rest, &session).await, rest.facts("mira").await), before);

    open().await;
    wait_for_readiness(&rest, StatusCode::OK, "").await;
    // A client repeats the line with its key, after an `error` or a failed reply.
    let turn = format!("/v1/sessions/{session}/turns");
    let said = eventually("the line to be taken", async || {
        let line = json!({"text": "I like pears.", "key": "k2"});
        let (status, body) = rest.call(Method::POST, &turn, Some(&line)).await;
        status.is_success().then_some(body)
    })
    .await;
    assert_eq!(said["status"], "completed");
    rest.idle().await;
    let lines = turns(&rest, &session).await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    for fruit in ["grapes", "pears"] {
        let facts = rest.facts("mira").await;
        let of = facts
            .iter()
            .filter(|fact| fact["content"].as_str().unwrap().contains(fruit));
        assert_eq!(of.count(), 1, "{fruit}: {facts:?}");
    }
}

async fn turns(rest: &RestClient, session: &str) -> Vec<Value> {
    let page = rest.get(&format!("/v1/sessions/{session}/turns")).await;
    page["items"].as_array().unwrap().clone()
}

/// Waits until `/readyz` has the given status, and returns its answer.
async fn wait_for_readiness(rest: &RestClient, wanted: StatusCode, code: &str) -> Value {
    eventually("the probe to see it", async || {
        let (status, body) = rest.call(Method::GET, "/readyz", None).await;
        (status == wanted && body["code"].as_str().unwrap_or_default() == code).then_some(body)
    })
    .await
}

#[test]
fn full_disk_rejects_turns_and_is_reported() {
    run(async {
        // For a process, a limit on file sizes acts like a full disk.
        let server = ServerData::new(&[]).spawn_with_limits();
        let process = Pid::from_raw(server.process().try_into().unwrap());
        let limit = |current| {
            let maximum = getrlimit(Resource::Fsize).maximum;
            prlimit(process, Resource::Fsize, Rlimit { current, maximum }).unwrap();
        };
        let close = async || limit(Some(0));
        let open = async || limit(getrlimit(Resource::Fsize).current);
        assert_rejects_and_recovers(&server, "writing to the ledger's file failed", close, open).await;
    });
}

#[test]
fn readiness_probe_writes_once_a_second_at_most() {
    run(async {
        let server = ServerData::new(&[]).start();
        let rest = server.backend();
        let (mut moments, mut asked) = (BTreeSet::new(), 0);
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(2_500) {
            assert_eq!(rest.status("/readyz").await, StatusCode::OK);
            moments.insert(server.data.count("SELECT at FROM write_probe").await);
            asked += 1;
        }
        let written = moments.len();
        assert!(asked > 10, "{asked}");
        assert!((2..=4).contains(&written), "{written} writes for {asked} questions");
    });
}
