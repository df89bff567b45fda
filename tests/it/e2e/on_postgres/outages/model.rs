//! The model is killed under load and started again.

use serde_json::json;

use super::{
    FinishedTalk, Load, PLAYERS, assert_learned_once, counter_value, eventually_after_outage, say, say_over_socket,
    standing_lines,
};
use crate::support::{ModelProcess, ServerData, run};

/// The errors without a model: the reply broke off, or the model is unreachable.
const CODES: &[&str] = &["model_failed", "model_unavailable"];
const RESTING: &str = r#"colloquy_model_breaker_open{model="mock",task="reply"}"#;

#[test]
fn killed_model_leaves_no_partial_reply_and_pending_work_resumes_after_it() {
    run(async {
        // Replies are slow, so that some are always streaming.
        let mut model = ModelProcess::start(&["--tokens-per-s", "20"]).await;
        let data = ServerData::on_postgres(&[
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
        load.wait_for_lines(1).await;
        // At the kill, jobs of acknowledged lines are running and a reply is streaming. The count comes first, because
        // a held job delays the later jobs.
        let calls = model.calls("extraction").await;
        model.control(&json!({"faults": ["extraction=hold"]})).await;
        load.wait_for_lines(1).await;
        eventually_after_outage("the extractions to be asked for", async || {
            (model.calls("extraction").await >= calls + PLAYERS.len() as u64).then_some(())
        })
        .await;
        socket.send_line(&session, "cut off", "I like peaches.").await;
        socket.until("reply.delta").await;
        model.kill();

        let done = socket.until("reply.done").await;
        assert_eq!(
            (&done["status"], &done["text"]),
            (&json!("failed"), &json!("")),
            "{done}"
        );
        assert!(CODES.contains(&done["error"]["code"].as_str().unwrap()), "{done}");
        assert_eq!(standing_lines(&rest, &session).await, ["I like grapes."]);
        load.wait_for_rejections(2).await;
        eventually_after_outage("the model to be left alone", async || {
            (counter_value(&server, RESTING).await > 0.0).then_some(())
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
        assert_eq!(standing_lines(&rest, &session).await, ["I like grapes."]);

        model.restart().await;
        eventually_after_outage("the model to be asked again", async || {
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
        talks.push(FinishedTalk {
            player: "p5",
            session,
            acknowledged: vec!["I like grapes.".to_owned(), "I like peaches.".to_owned()],
            refused: 0,
        });
        for talked in &talks {
            talked.assert_lines_stand(&rest).await;
        }
        assert_learned_once(&rest, &talks).await;
    });
}
