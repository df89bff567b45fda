//! `GET /v1/curator`: the work after turns, as backends see it.

use colloquy::tenancy::Role;
use serde_json::{Value, json};

use super::harness::{HttpTestClient, HttpTestServer};
use crate::support::eventually;

async fn curator(client: &HttpTestClient) -> Value {
    client.get("/v1/curator").await
}

fn queue_of<'v>(view: &'v Value, kind: &str) -> &'v Value {
    let queue = view["queue"].as_array().unwrap();
    queue.iter().find(|of_kind| of_kind["kind"] == kind).unwrap()
}

fn is_queue_empty(view: &Value) -> bool {
    let counts = ["waiting", "running", "delayed"];
    let queue = view["queue"].as_array().unwrap();
    queue.iter().all(|kind| counts.iter().all(|count| kind[count] == 0))
}

async fn say_lines(client: &HttpTestClient, lines: &[&str]) -> String {
    let session = client.session("p7").await["id"].as_str().unwrap().to_owned();
    for text in lines {
        client
            .post(&format!("/v1/sessions/{session}/turns"), &json!({"text": text}))
            .await;
    }
    session
}

#[actix_web::test]
async fn curator_without_work_is_shown_empty() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let view = curator(&client).await;
    let empty = |kind: &str| json!({"kind": kind, "waiting": 0, "running": 0, "delayed": 0, "lease_expired": 0, "oldest_at": null});
    let kinds = ["extract_facts", "extract_state", "summarise", "curate", "consolidate"];
    assert_eq!(view["queue"], json!(kinds.map(empty)));
    assert_eq!(view["queue_complete"], true);
    assert_eq!((&view["last_passes"], &view["failures"]), (&json!([]), &json!([])));
    assert_eq!(view["summaries"], json!({"due": 0, "next_due_at": null}));
    let node = &view["this_node"];
    assert_eq!((&node["awake"], &node["held_jobs"]), (&json!(false), &json!(0)));
    assert_eq!(node["waits_for_budget"], false);
    assert!(node["node_id"].as_str().unwrap().starts_with("node_"), "{node}");
}

#[actix_web::test]
async fn curator_shows_ended_and_failed_jobs_of_its_own_tenant() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let session = say_lines(&client, &["hello", "DULL"]).await;
    let view = eventually("both jobs end", async || {
        Some(curator(&client).await).filter(is_queue_empty)
    })
    .await;
    let pass = &view["last_passes"][0];
    assert_eq!(
        (
            &pass["kind"],
            &pass["outcome"],
            &pass["dialogue_id"],
            &pass["failed_attempts"]
        ),
        (&json!("extract_facts"), &json!("done"), &json!(session), &json!(0))
    );
    assert!(pass["took_ms"].is_u64() && pass["ended_at"].is_string(), "{pass}");
    assert_eq!(view["last_passes"].as_array().unwrap().len(), 1);
    let failure = &view["failures"][0];
    assert_eq!(
        (
            &failure["kind"],
            &failure["dialogue_id"],
            &failure["turn"],
            &failure["status"]
        ),
        (&json!("extract_facts"), &json!(session), &json!(2), &json!("dead"))
    );
    assert_eq!((&failure["attempts"], &failure["retry_at"]), (&json!(1), &Value::Null));
    assert!(failure["error"].as_str().unwrap().contains("too dull"), "{failure}");
    // The session is looked at an hour after its turns.
    assert_eq!(view["summaries"]["due"], 0);
    assert!(view["summaries"]["next_due_at"].is_string(), "{view}");
    assert_eq!(view["this_node"]["awake"], true);
    assert!(view["this_node"]["next_look_at"].is_string(), "{view}");

    let rival = curator(&server.client(server.token("rival", Role::Admin, None))).await;
    assert_eq!((&rival["last_passes"], &rival["failures"]), (&json!([]), &json!([])));
    assert_eq!(rival["summaries"]["next_due_at"], Value::Null);
    let viewer = curator(&server.as_role(Role::Viewer)).await;
    assert_eq!(viewer["failures"], view["failures"]);
    // The operator names the tenant; nobody else may.
    let path = "/v1/tenants/acme/curator";
    let operator = server.client(server.token("rival", Role::Operator, None));
    assert_eq!(operator.get(path).await["failures"], view["failures"]);
    let unknown = operator
        .status_and_code(reqwest::Method::GET, "/v1/tenants/nobody/curator", None)
        .await;
    assert_eq!(unknown, (404, "not_found".to_owned()));
    let backend = server.client(server.token("rival", Role::Backend, None));
    let refused = backend.status_and_code(reqwest::Method::GET, path, None).await;
    assert_eq!(refused, (403, "forbidden".to_owned()));
    let player = server.as_role(Role::Player);
    let refused = player.status_and_code(reqwest::Method::GET, "/v1/curator", None).await;
    assert_eq!(refused, (403, "forbidden".to_owned()));
}

#[actix_web::test]
async fn curator_shows_jobs_that_wait_for_a_model() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    say_lines(&client, &["OUTAGE"]).await;
    let view = eventually("an attempt fails", async || {
        Some(curator(&client).await).filter(|view| view["failures"][0].is_object())
    })
    .await;
    let failure = &view["failures"][0];
    assert_eq!((&failure["status"], &failure["turn"]), (&json!("pending"), &json!(1)));
    assert!(failure["retry_at"].is_string(), "{failure}");
    let queue = queue_of(&view, "extract_facts");
    let [waiting, running, delayed] = ["waiting", "running", "delayed"].map(|count| queue[count].as_u64().unwrap());
    assert_eq!(waiting + running + delayed, 1, "{queue}");
    assert!(queue["oldest_at"].is_string(), "{queue}");
}
