//! The model is killed in mid-load and started again.

use serde_json::json;

use super::{Load, PLAYERS, Talked, counted, in_time, learned_once, said, say, say_over_socket};
use crate::support::{Data, ModelProcess, run};

/// What is said while there is no model: it broke off, or cannot be reached.
const CODES: &[&str] = &["model_failed", "model_unavailable"];
const RESTING: &str = r#"colloquy_model_breaker_open{model="mock",task="reply"}"#;

#[test]
fn what_a_killed_model_was_saying_leaves_nothing_and_what_waits_for_it_is_done_when_it_is_back() {
    run(async {
        // Replies take their time, so that some are always being said.
        let mut model = ModelProcess::start(&["--tokens-per-s", "20"]).await;
        let data = Data::on_postgres(&[
            ("COLLOQUY__LLM__BASE_URL", &model.base_url()),
            ("COLLOQUY__LLM__MODEL", "mock"),
            ("COLLOQUY__LLM__RETRY__BACKOFF_MIN_MS", "10"),
            ("COLLOQUY__LLM__BREAKER__WINDOW", "4"),
            ("COLLOQUY__TURN__WAIT_FOR_MEMORY_MS", "10"),
            ("COLLOQUY__JOBS__POLL_S", "1"),
            ("COLLOQUY__JOBS__RETRY_BASE_S", "1"),
        ]);
        let server = data.spawn();
        let rest = server.backend();
        let mut socket = server.player("p5").await;
        let session = socket.session("mira", "p5").await;
        say_over_socket(&mut socket, &session, "first", "I like grapes.")
            .await
            .unwrap();

        let load = Load::start(&server, CODES).await;
        load.goes_on(1).await;
        // When it happens, lines that were acknowledged are being learned from, and a reply is being said.
        // Counted before: one that is held keeps those back that come after it.
        let calls = model.calls("extraction").await;
        model.control(&json!({"faults": ["extraction=hold"]})).await;
        load.goes_on(1).await;
        in_time("the extractions to be asked for", async || {
            (model.calls("extraction").await >= calls + PLAYERS.len() as u64).then_some(())
        })
        .await;
        socket.tell(&session, "cut off", "I like peaches.").await;
        socket.until("reply.delta").await;
        model.kill();

        let done = socket.until("reply.done").await;
        assert_eq!(
            (&done["status"], &done["text"]),
            (&json!("failed"), &json!("")),
            "{done}"
        );
        assert!(CODES.contains(&done["error"]["code"].as_str().unwrap()), "{done}");
        assert_eq!(said(&rest, &session).await, ["I like grapes."]);
        load.is_refused(2).await;
        in_time("the model to be left alone", async || {
            (counted(&server, RESTING).await > 0.0).then_some(())
        })
        .await;
        for key in ["a", "b"] {
            let refused = [
                say_over_socket(&mut socket, &session, key, "Nobody hears this.").await,
                say(&rest, &session, &format!("{key} again"), "Nobody hears this.").await,
            ];
            for refused in refused.map(Result::unwrap_err) {
                assert_eq!(refused.code, "model_unavailable");
                assert!(refused.retry_after.is_some());
            }
        }
        assert_eq!(said(&rest, &session).await, ["I like grapes."]);

        model.restart().await;
        in_time("the model to be asked again", async || {
            let again = say(&rest, &session, "cut off", "I like peaches.").await;
            again.ok()
        })
        .await;
        let asked = model.requests("reply").await;
        assert!(
            !asked.is_empty() && !json!(asked).to_string().contains("Nobody hears this"),
            "{asked:?}"
        );
        let mut talks = load.end().await;
        assert!(talks.iter().all(|talked| talked.refused >= 2));
        talks.push(Talked {
            player: "p5",
            session,
            acknowledged: vec!["I like grapes.".to_owned(), "I like peaches.".to_owned()],
            refused: 0,
        });
        for talked in &talks {
            talked.stands(&rest).await;
        }
        learned_once(&rest, &talks).await;
    });
}
