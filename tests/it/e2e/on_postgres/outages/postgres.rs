//! Postgres is killed under load and started again with the data on disk. The server keeps running.

use colloquy::mock_llm::{self, MockOptions};
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{
    LINES, Load, PLAYERS, assert_learned_once, eventually_after_outage, new_session, readiness, rejection_of, say,
    session, standing_lines,
};
use crate::support::{PostgresServer, ServerData, run};

/// The error without a ledger.
const UNAVAILABLE: &str = "store_unavailable";

#[test]
fn postgres_outage_loses_nothing_acknowledged_and_the_server_recovers() {
    run(async {
        let mut postgres = PostgresServer::start().await;
        let mock = mock_llm::start_on_thread(MockOptions {
            latency_ms: 40,
            ..MockOptions::default()
        })
        .unwrap();
        let data = ServerData::new(&[
            ("COLLOQUY__LEDGER__URL", &postgres.url()),
            ("COLLOQUY__LEDGER__CONNECTIONS", "8"),
            ("COLLOQUY__LLM__BASE_URL", &mock.base_url()),
            ("COLLOQUY__LLM__MODEL", "mock"),
            ("COLLOQUY__TURN__WAIT_FOR_MEMORY_MS", "10"),
            ("COLLOQUY__JOBS__POLL_S", "1"),
            ("COLLOQUY__JOBS__RETRY_BASE_S", "1"),
            // Interrupted jobs must return before their lease expires.
            ("COLLOQUY__JOBS__LEASE_S", "3600"),
        ]);
        let server = data.spawn();
        let rest = server.backend();
        let quiet = session(&rest, "p5").await;
        for line in ["One.", "Two.", "Three."] {
            say(&rest, &quiet, line, line).await.unwrap();
        }

        let load = Load::start(&server, &[UNAVAILABLE]).await;
        load.wait_for_lines(1).await;
        // At the kill, jobs of acknowledged lines are running.
        mock.apply_settings(&json!({"faults": ["extraction=hold"]})).unwrap();
        let calls = mock.calls_of("extraction");
        load.wait_for_lines(LINES).await;
        eventually_after_outage("the extractions to be asked for", async || {
            (mock.calls_of("extraction") >= calls + PLAYERS.len() as u64).then_some(())
        })
        .await;
        postgres.kill();
        mock.apply_settings(&json!({"faults": []})).unwrap();

        load.wait_for_rejections(6).await;
        let is_refused = async |method, path: &str, body| {
            let once = [("Idempotency-Key", "once")];
            let answer = rest.answer(method, path, body, &once).await.unwrap();
            let refused = rejection_of(&answer);
            assert_eq!(refused.code, UNAVAILABLE, "{path}");
            assert!(refused.retry_after.is_some(), "{path}");
        };
        let (rewind, back) = (format!("/v1/sessions/{quiet}:rewind"), json!({"turn": 1}));
        let another = new_session("p6");
        is_refused(Method::GET, "/readyz", None).await;
        is_refused(Method::POST, "/v1/sessions", Some(&another)).await;
        is_refused(Method::POST, &rewind, Some(&back)).await;
        assert_eq!(rest.status("/healthz").await, StatusCode::OK);

        postgres.start_again().await;
        eventually_after_outage("the server to be ready", async || {
            (readiness(&rest, "status").await == "ok").then_some(())
        })
        .await;
        let talks = load.end().await;
        for talked in &talks {
            assert!(talked.refused >= 6);
            talked.assert_lines_stand(&rest).await;
        }
        assert_learned_once(&rest, &talks).await;
        // The rewind had failed. Now the rewind succeeds, once.
        assert_eq!(standing_lines(&rest, &quiet).await, ["One.", "Two.", "Three."]);
        let back = json!({"turn": 1, "key": "once"});
        for _ in 0..2 {
            let done = rest.post_answer(&rewind, &back).await;
            assert_eq!(done.body["rewound"]["removed_turns"], json!([2, 3]), "{done:?}");
        }
        assert_eq!(standing_lines(&rest, &quiet).await, ["One."]);
    });
}
