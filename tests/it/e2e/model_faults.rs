//! A player's results when the model misbehaves.

use std::net::TcpListener;

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use reqwest::StatusCode;
use serde_json::json;

use super::fresh;
use crate::support::{TestServer, TestSocket, eventually, run};

async fn talk(faults: &[&str], env: &[(&str, &str)]) -> (MockHandle, TestServer, TestSocket, String) {
    let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    mock.apply_settings(&json!({"faults": faults, "retry_after_ms": 50, "slow_ms": 500}))
        .unwrap();
    let url = mock.base_url();
    let mut all = vec![
        ("COLLOQUY__LLM__BASE_URL", url.as_str()),
        ("COLLOQUY__LLM__MODEL", "mock"),
        ("COLLOQUY__LLM__RETRY__BACKOFF_MIN_MS", "10"),
    ];
    all.extend(env);
    let server = fresh(&all).start();
    let mut socket = server.player("p1").await;
    let session = socket.session("mira", "p1").await;
    (mock, server, socket, session)
}

#[test]
fn model_that_always_fails_fails_the_turn_and_not_the_session() {
    run(async {
        for fault in ["reply=500", "reply=refuse", "reply=invalid-body", "reply=broken-stream"] {
            let (mock, server, mut socket, session) = talk(&[fault], &[]).await;
            let failed = socket.say_line(&session, "Hello.").await;
            assert_eq!(failed.status, "failed", "{fault}");
            mock.apply_settings(&json!({"faults": []})).unwrap();
            // The breaker may still be open for a moment.
            let token = server.token("demo", colloquy::tenancy::Role::Player, Some("p1"));
            let rest = crate::support::RestClient::new(server.address, token);
            eventually("the model to be tried again", || async {
                let body = json!({"text": "Hello again."});
                let path = format!("/v1/sessions/{session}/turns");
                rest.call(reqwest::Method::POST, &path, Some(&body))
                    .await
                    .0
                    .is_success()
                    .then_some(())
            })
            .await;
            let page = server.backend().get(&format!("/v1/sessions/{session}/turns")).await;
            assert_eq!(
                page["items"].as_array().unwrap().len(),
                1,
                "{fault}: only what was answered is a turn"
            );
        }
    });
}

#[test]
fn model_fault_before_the_first_token_is_retried() {
    run(async {
        let (mock, _server, mut socket, session) = talk(&["reply=500:0.5"], &[]).await;
        for turn in 1..=4 {
            let reply = socket.say_line(&session, "Hello.").await;
            assert_eq!((reply.turn, reply.status.as_str()), (turn, "completed"));
        }
        assert!(mock.calls_of("reply") > 4, "some were tried twice");
    });
}

#[test]
fn model_fallback_answers_when_the_first_model_fails() {
    run(async {
        let env = [("COLLOQUY__LLM__TASKS__REPLY__FALLBACK", "scripted")];
        let (_mock, server, mut socket, session) = talk(&["reply=500"], &env).await;
        let reply = socket.say_line(&session, "Hello.").await;
        assert_eq!(reply.status, "completed");
        let trace = server
            .backend()
            .get(&format!("/v1/sessions/{session}/turns/1/trace"))
            .await;
        let calls = trace["calls"].as_array().unwrap();
        assert!(
            calls.iter().any(|c| c["task"] == "reply" && c["offline"] == true),
            "{trace}"
        );
    });
}

#[test]
fn classifier_fault_or_hang_does_not_delay_the_reply() {
    run(async {
        for fault in ["intent=500", "intent=invalid-json", "intent=hang"] {
            let env = [("COLLOQUY__LLM__TASKS__INTENT__TIMEOUT_MS", "200")];
            let (_mock, _server, mut socket, session) = talk(&[fault], &env).await;
            assert_eq!(socket.say_line(&session, "Hello.").await.status, "completed", "{fault}");
        }
    });
}

#[test]
fn extraction_that_cannot_be_parsed_is_retried() {
    run(async {
        let env = [("COLLOQUY__JOBS__RETRY_BASE_S", "1"), ("COLLOQUY__JOBS__POLL_S", "1")];
        let (mock, server, mut socket, session) = talk(&["extraction=invalid-json"], &env).await;
        socket.say_line(&session, "I like grapes.").await;
        eventually("the extraction to fail", || async {
            (mock.calls_of("extraction") > 0).then_some(())
        })
        .await;
        mock.apply_settings(&json!({"faults": [], "facts_per_turn": 1.0}))
            .unwrap();
        let rest = server.backend();
        eventually("the extraction to succeed", || async {
            (!rest.facts("mira").await.is_empty()).then_some(())
        })
        .await;
    });
}

#[test]
fn server_starts_without_an_embedder_of_known_length() {
    run(async {
        let nobody = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let url = format!("http://{nobody}/v1");
        let data = fresh(&[
            ("COLLOQUY__EMBEDDER__BASE_URL", url.as_str()),
            ("COLLOQUY__EMBEDDER__MODEL", "text-embedding-3-small"),
            ("COLLOQUY__EMBEDDER__DIMENSIONS", "1536"),
        ]);
        let checked = data.command().args(["reindex", "--check"]).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
        let server = data.start();
        assert_eq!(server.backend().status("/readyz").await, StatusCode::OK);
    });
}
