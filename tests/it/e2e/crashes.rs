//! kill -9 at the worst moments. Acknowledged turns are not lost, and the work after a turn takes effect exactly once.

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{ServerData, TestServer, eventually, run};

fn with_mock(mock: &MockHandle) -> ServerData {
    fresh(&[
        // A killed process owns its jobs again after the restart, without waiting for the lease.
        ("COLLOQUY__ACTORS__SWEEP_S", "1"),
    ])
    .with_mock(&mock.base_url())
}

async fn turns(server: &TestServer, session: &str) -> Vec<Value> {
    let page = server.backend().get(&format!("/v1/sessions/{session}/turns")).await;
    page["items"].as_array().unwrap().clone()
}

#[test]
fn committed_turn_and_its_facts_survive_a_kill() {
    run(async {
        let server = fresh(&[]).spawn();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        let said = socket.say_line(&session, "I like grapes.").await;
        // `say` returns with `turn.committed`; its extraction may or may not have begun.
        let server = server.kill().spawn();

        let kept = turns(&server, &session).await;
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0]["reply_text"], said.text.as_str());

        let rest = server.backend();
        eventually("the extraction", || async {
            let facts = rest.facts("mira").await;
            (!facts.is_empty()).then_some(())
        })
        .await;
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        let answer = socket.say_line(&session, "What fruit do I like?").await;
        assert!(answer.text.contains("grapes"), "{answer:?}");
        let grapes = rest
            .facts("mira")
            .await
            .into_iter()
            .filter(|f| f["content"].as_str().unwrap().contains("grapes"));
        assert_eq!(grapes.count(), 1, "extracted once in effect");
    });
}

#[test]
fn reply_cut_off_by_a_kill_never_happened_and_the_dialogue_continues() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions {
            tokens_per_s: 4,
            deltas: 400,
            ..MockOptions::default()
        })
        .unwrap();
        let server = with_mock(&mock).spawn();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.send_line(&session, "k1", "Tell me a long story.").await;
        socket.until("reply.delta").await;
        let server = server.kill().spawn();
        mock.apply_settings(&json!({"tokens_per_s": 0, "deltas": 8})).unwrap();

        assert!(
            turns(&server, &session).await.is_empty(),
            "an uncommitted turn left a trace"
        );
        // A repeated key is the same line, said again. The line becomes turn 1.
        let token = server.token("demo", colloquy::tenancy::Role::Player, Some("p1"));
        let player = crate::support::RestClient::new(server.address, token);
        let path = format!("/v1/sessions/{session}/turns");
        let body = json!({"text": "Tell me a long story.", "key": "k1"});
        let first = player.post(&path, &body).await;
        let repeated = player.post(&path, &body).await;
        assert_eq!(first["turn"], 1, "{first}");
        assert_eq!(first["id"], repeated["id"], "a repeated key is the same turn");
        assert_eq!(turns(&server, &session).await.len(), 1);
    });
}

#[test]
fn extraction_interrupted_by_a_kill_happens_exactly_once_in_effect() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions {
            facts_per_turn: 1.0,
            ..MockOptions::default()
        })
        .unwrap();
        mock.apply_settings(&json!({"faults": ["extraction=hang"]})).unwrap();
        let server = with_mock(&mock).spawn();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "I like grapes.").await;
        eventually("the extraction to begin", || async {
            (mock.calls_of("extraction") > 0).then_some(())
        })
        .await;
        assert!(server.backend().facts("mira").await.is_empty());

        let data = server.kill();
        mock.apply_settings(&json!({"faults": []})).unwrap();
        let server = data.spawn();
        let rest = server.backend();
        let learned = eventually("the extraction to happen after all", || async {
            let facts = rest.facts("mira").await;
            (!facts.is_empty()).then_some(facts)
        })
        .await;
        // A second restart finds no work.
        let calls = mock.calls_of("extraction");
        let server = server.kill().spawn();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "Hello.").await;
        eventually("the next turn's extraction", || async {
            (mock.calls_of("extraction") > calls).then_some(())
        })
        .await;
        let now = server.backend().facts("mira").await;
        for fact in &learned {
            let same = now.iter().filter(|f| f["content"] == fact["content"]).count();
            assert_eq!(same, 1, "{}", fact["content"]);
        }
    });
}
