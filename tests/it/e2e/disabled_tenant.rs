//! A disabled tenant: its NPCs stop talking, and no facts are learned.

use std::time::Duration;

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::json;

use super::fresh;
use crate::support::{RestClient, ServerData, TestServer, eventually, run};

const LINES: &str = "SELECT count(*) FROM turns";

pub async fn set_tenant_enabled(server: &TestServer, enabled: bool) {
    let operator = RestClient::new(server.address, server.token("studio", Role::Operator, None));
    let body = json!({"enabled": enabled});
    let answer = operator.call(Method::PATCH, "/v1/tenants/demo", Some(&body)).await;
    assert_eq!(answer.0, 200, "{}", answer.1);
}

/// Disables the tenant at one server. Its conversation of a hundred lines must stop, and continue later.
pub async fn assert_talk_stops_and_continues(data: &ServerData, at: &TestServer) {
    let lines = async || data.count(LINES).await;
    eventually("some lines", || async { (lines().await >= 2).then_some(()) }).await;
    set_tenant_enabled(at, false).await;
    let stopped = eventually("the conversation to stop", || async {
        let before = lines().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        (lines().await == before).then_some(before)
    })
    .await;
    assert!(stopped < 100, "it was said to its end");
    set_tenant_enabled(at, true).await;
    eventually("it to go on", || async { (lines().await > stopped).then_some(()) }).await;
}

#[test]
fn conversation_of_a_disabled_tenant_stops_and_continues_when_enabled() {
    run(async {
        let data = fresh(&[
            ("COLLOQUY__TENANTS", "studio"),
            ("COLLOQUY__CONVERSATION__PAUSE_MS", "100"),
            ("COLLOQUY__CONVERSATION__READING_MS_PER_CHAR", "0"),
        ]);
        let server = data.start();
        let body = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "topic": "the mill", "auto": true,
            "max_turns": 100});
        server.backend().post("/v1/npc-conversations", &body).await;
        assert_talk_stops_and_continues(&data, &server).await;
    });
}
