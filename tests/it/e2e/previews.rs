//! `POST …/context` is the prompt of the turn, and says what was not searched.

use colloquy::mock_llm::{self, MockOptions};
use reqwest::Method;
use serde_json::{Value, json};

use super::{fresh, scenarios::put};
use crate::support::run;

fn unsearched(answer: &Value) -> Vec<String> {
    let listed = answer["not_searched"].as_array().cloned().unwrap_or_default();
    listed.iter().map(|entry| entry.as_str().unwrap().to_owned()).collect()
}

#[test]
fn context_is_the_prompt_that_the_turn_gets() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = fresh(&[]).with_mock(&mock.base_url()).start();
        let backend = server.backend();
        let well = json!({"title": "The dry well", "content": "I threw the ledger of the old miller into the dry well.",
            "keywords": ["ledger"]});
        put(&backend, "/v1/worlds/vale/npcs/mira/scenarios/well", &well).await;
        let session = backend.open_session("mira", "p1").await;
        let mut number = 0;
        for (intent, line, told) in [
            ("chat", "A fine day, is it not?", false),
            ("chat", "What lies in the dry well?", true),
            ("memory", "Where is the ledger now?", true),
            ("scenario", "Tell me of your youth.", false),
        ] {
            mock.apply_settings(&json!({ "intent": intent })).unwrap();
            backend.idle().await;
            let context = format!("/v1/sessions/{session}/context");
            let preview = backend.post(&context, &json!({ "text": line })).await;
            assert_eq!(
                (&preview["intent"], &preview["intent_source"]),
                (&json!(intent), &json!("model"))
            );
            let named = backend.post(&context, &json!({"text": line, "intent": intent})).await;
            assert_eq!(named["intent_source"], "named by the request");
            assert_eq!(named["prompt_hash"], preview["prompt_hash"], "{line}");
            let turns = format!("/v1/sessions/{session}/turns");
            backend.post(&turns, &json!({ "text": line })).await;
            number += 1;
            let trace = backend.get(&format!("{turns}/{number}/trace")).await;
            assert_eq!(trace["prompt_hash"], preview["prompt_hash"], "{line}");
            assert_eq!(unsearched(&trace), unsearched(&preview), "{line}");
            assert_eq!(
                preview["messages"].to_string().contains("I threw the ledger"),
                told,
                "{line}"
            );
            let of_scenarios = |entry: &String| entry.starts_with("scenarios: not searched");
            let is_skipped = unsearched(&preview).iter().any(of_scenarios);
            assert_eq!(is_skipped, intent == "chat" && !told, "{line}: {preview}");
        }
        let unknown = json!({"text": "Hello.", "intent": "sleep"});
        let path = format!("/v1/sessions/{session}/context");
        let (status, problem) = backend.call(Method::POST, &path, Some(&unknown)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("validation_failed")));
    });
}

#[test]
fn line_that_points_at_the_last_turn_waits_for_a_slow_extraction_and_says_so() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        mock.apply_settings(&json!({"faults": ["extraction=slow"], "slow_ms": 700}))
            .unwrap();
        let server = fresh(&[("COLLOQUY__TURN__LONGEST_WAIT_FOR_MEMORY_MS", "20000")])
            .with_mock(&mock.base_url())
            .start();
        let backend = server.backend();
        let session = backend.open_session("mira", "p1").await;
        let mut waits = Vec::new();
        for (at, line) in [
            "My sister Bera lives in Oakford.",
            "How old is she?",
            "Do you sell salt?",
        ]
        .into_iter()
        .enumerate()
        {
            let turns = format!("/v1/sessions/{session}/turns");
            backend.post(&turns, &json!({ "text": line })).await;
            let trace = backend.get(&format!("{turns}/{}/trace", at + 1)).await;
            waits.push(trace["memory_wait"].clone());
        }
        assert_eq!(waits[0], Value::Null, "nothing was said before");
        assert_eq!(
            (&waits[1]["reason"], &waits[1]["gave_up"]),
            (&json!("points_at_last_turn"), &json!(false)),
            "{waits:?}"
        );
        assert!(waits[1]["waited_ms"].as_f64().unwrap() > 310.0, "{waits:?}");
        assert_eq!(waits[2], Value::Null, "the line is about something else");
    });
}
