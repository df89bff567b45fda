//! A turn's trace shows the jobs after the turn.

use colloquy::mock_llm::{self, MockOptions};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{eventually, run};

#[test]
fn trace_of_a_turn_shows_state_that_could_not_be_extracted() {
    let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let reply = "Come along.\n```state\nwe are somewhere\n```";
    mock.apply_settings(&json!({"reply": reply, "faults": ["extraction=invalid-json"]}))
        .unwrap();
    run(async {
        let url = mock.base_url();
        let server = fresh(&[
            ("COLLOQUY__LLM__BASE_URL", &url),
            ("COLLOQUY__LLM__MODEL", "mock"),
            ("COLLOQUY__JOBS__MAX_USELESS", "1"),
        ])
        .start();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        assert_eq!(socket.say_line(&session, "Shall we go?").await.status, "completed");

        let backend = server.backend();
        let path = format!("/v1/sessions/{session}/turns/1/trace");
        let trace: Value = eventually("both jobs to be given up", || async {
            let trace = backend.get(&path).await;
            let jobs = trace["jobs"].as_array().unwrap();
            let given_up = jobs.iter().filter(|job| job["status"] == "dead").count();
            (given_up == 2).then_some(trace)
        })
        .await;
        let state = trace["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .find(|job| job["kind"] == "extract_state")
            .unwrap();
        assert_eq!(state["failed_attempts"], 1, "{state}");
        let error = state["error"].as_str().unwrap();
        assert!(error.contains("the model's answer could not be used"), "{error}");
        assert_eq!(
            (&state["calls"][0]["task"], &state["calls"][0]["calls"]),
            (&json!("extraction"), &json!(2))
        );
        // The notes give the reason for the extraction.
        let notes = trace["notes"].to_string();
        assert!(notes.contains("it is extracted from the turn instead"), "{notes}");
        let of_task = |task: &str| {
            trace["tasks"]
                .as_array()
                .unwrap()
                .iter()
                .find(|sum| sum["task"] == task)
                .unwrap()
        };
        assert_eq!(of_task("extraction")["calls"], 4, "two jobs that asked twice: {trace}");
        assert_eq!(of_task("reply")["calls"], 1);
        let metrics = backend.text("/metrics").await;
        let line = r#"colloquy_model_attempts_total{model="mock",outcome="ok",task="extraction"} 4"#;
        assert!(metrics.contains(line), "{metrics}");
        let tokens = &of_task("extraction")["usage"]["prompt_tokens"];
        let line = format!(r#"colloquy_model_tokens_total{{kind="prompt",task="extraction",tenant="demo"}} {tokens}"#);
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    });
}
