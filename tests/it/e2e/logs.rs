//! No log above `debug` has players' text, in an ordinary run and with endpoints that echo prompts.

use std::fs;

use colloquy::mock_llm::{self, MockOptions};
use reqwest::Method;
use serde_json::json;

use crate::support::{RestClient, ServerData, eventually, run};

/// Words that only players say.
const CANARIES: [&str; 6] = [
    "quincepaste",
    "4711998",
    "Zyxwold",
    "살구나무집",
    "비밀번호팔팔",
    "moonmarmot",
];

/// Every line has some of the words.
const LINES: [&str; 4] = [
    "I like quincepaste, and my name is Zyxwold.",
    "My pin is 4711998; moonmarmot!",
    "나는 살구나무집에 살아. 비밀번호팔팔 이야.",
    "What do you know of Zyxwold and quincepaste?",
];

/// Says the lines in `session`, and ignores the results.
async fn talk(rest: &RestClient, session: &str) {
    for line in LINES {
        rest.call(
            Method::POST,
            &format!("/v1/sessions/{session}/turns"),
            Some(&json!({"text": line})),
        )
        .await;
    }
}

async fn session(rest: &RestClient, npc: &str) -> String {
    let new = json!({"world_id": "vale", "npc_id": npc, "player_id": "p1"});
    rest.post("/v1/sessions", &new).await["id"].as_str().unwrap().to_owned()
}

fn assert_log_has_no_canary(log: &str, why: &str) {
    for line in log.lines() {
        let lower = line.to_lowercase();
        for canary in CANARIES {
            assert!(!lower.contains(&canary.to_lowercase()), "{why}: {line}");
        }
        assert!(!line.contains('\u{1b}'), "{why}: {line}");
        // Every line was started by the server.
        assert!(
            line.starts_with("20") || line.starts_with("{\"timestamp\""),
            "{why}: {line}"
        );
    }
}

#[test]
fn log_at_info_contains_no_player_text() {
    for format in ["text", "json"] {
        run(async {
            let data = ServerData::new(&[
                ("COLLOQUY__TELEMETRY__LOG", "info"),
                ("COLLOQUY__TELEMETRY__FORMAT", format),
            ]);
            let log = data.folder().join("log");
            let server = data.spawn_logging(&log);
            let rest = server.backend();
            for npc in ["mira", "ergen"] {
                let session = session(&rest, npc).await;
                talk(&rest, &session).await;
                rest.idle().await;
                // Includes a search and a rewind.
                rest.get(&format!("/v1/worlds/vale/npcs/{npc}/facts?q=quincepaste"))
                    .await;
                rest.post(&format!("/v1/sessions/{session}:rewind"), &json!({"turn": 1}))
                    .await;
            }
            server.stop();
            let log = fs::read_to_string(log).unwrap();
            assert!(log.contains("shut down"), "{log}");
            assert_log_has_no_canary(&log, format);
        });
    }
}

#[test]
fn log_contains_no_prompt_text_repeated_by_endpoints() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions {
            dimensions: 1_536,
            ..MockOptions::default()
        })
        .unwrap();
        let url = mock.base_url();
        let data = ServerData::new(&[
            ("COLLOQUY__TELEMETRY__LOG", "info"),
            ("COLLOQUY__EMBEDDER__BASE_URL", url.as_str()),
            ("COLLOQUY__EMBEDDER__MODEL", "text-embedding-3-small"),
            ("COLLOQUY__EMBEDDER__DIMENSIONS", "1536"),
            ("COLLOQUY__JOBS__RETRY_BASE_S", "1"),
            // With an open breaker, the model would not be called.
            ("COLLOQUY__LLM__BREAKER__OPEN_MS", "10"),
        ])
        .with_mock(&url);
        let log = data.folder().join("log");
        let server = data.spawn_logging(&log);
        let rest = server.backend();
        for fault in [
            "echo",
            "echo-body",
            "invalid-json",
            "invalid-body",
            "broken-stream",
            "none",
        ] {
            // Later tasks of the line meet the fault as well, including its facts and its summary.
            for task in ["reply", "extraction", "embedding", "intent", "judge", "summary"] {
                mock.apply_settings(&json!({"faults": [format!("{task}={fault}")]}))
                    .unwrap();
                let session = session(&rest, "mira").await;
                talk(&rest, &session).await;
            }
        }
        eventually("the endpoints to be heard", async || {
            let log = fs::read_to_string(&log).unwrap();
            (log.contains("a model endpoint refused a call") && log.contains("an after-turn job failed")).then_some(())
        })
        .await;
        server.stop();
        let log = fs::read_to_string(log).unwrap();
        assert_log_has_no_canary(&log, "faults");
        // The remaining log is still useful.
        assert!(log.contains("400 Bad Request"), "{log}");
        assert!(log.contains("invalid"), "{log}");
    });
}
