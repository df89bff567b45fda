//! Redis is killed under load, and restarts with old data. In another test Redis freezes: it accepts connections and
//! answers nothing. Turns continue from the ledger.

use std::time::{Duration, Instant};

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::json;

use super::{
    LINES, Load, PLAYERS, counter_value, counter_values, eventually_after_outage, readiness, say, session,
    standing_lines,
};
use crate::support::{RedisServer, RestClient, ServerData, TestServer, run};

const APPENDED: &str = r#"colloquy_buffer_calls_total{call="append",outcome="done"}"#;
const APPENDS: &str = r#"colloquy_buffer_seconds_count{call="append"}"#;
const QUICK_APPENDS: &str = r#"colloquy_buffer_seconds_bucket{call="append",le="1"}"#;
/// The timeout of a call to a frozen Redis, longer than all calls that do not wait for Redis.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The time without calls after a timeout.
const REST: Duration = Duration::from_secs(1);

/// Said before the outage and unsaid during the outage.
const UNSAID: &str = "I buried it under the old mill.";
/// Said in its place.
const ANEW: &str = "It is a secret.";

struct RedisStack {
    mock: MockHandle,
    redis: RedisServer,
    server: TestServer,
    rest: RestClient,
}

impl RedisStack {
    /// Starts the stack with a timeout for Redis.
    async fn start(timeout: Duration) -> Self {
        let redis = RedisServer::start_persistent().await;
        let mock = mock_llm::start_on_thread(MockOptions {
            latency_ms: 40,
            ..MockOptions::default()
        })
        .unwrap();
        let data = ServerData::on_postgres(&[
            ("COLLOQUY__BUFFER__URL", &redis.url()),
            ("COLLOQUY__BUFFER__TIMEOUT_MS", &timeout.as_millis().to_string()),
            ("COLLOQUY__LLM__BASE_URL", &mock.base_url()),
            ("COLLOQUY__LLM__MODEL", "mock"),
            ("COLLOQUY__TURN__WAIT_FOR_MEMORY_MS", "10"),
        ]);
        let server = data.spawn();
        let rest = server.backend();
        Self {
            mock,
            redis,
            server,
            rest,
        }
    }

    /// Kills the server, and starts another in its place.
    fn restarted(self) -> Self {
        let server = self.server.kill().spawn();
        let rest = server.backend();
        Self { server, rest, ..self }
    }

    /// Waits until `/readyz` shows this status of the buffers.
    async fn wait_for_buffer_status(&self, wanted: &str) {
        eventually_after_outage("the buffers to change", async || {
            (readiness(&self.rest, "buffers").await == wanted).then_some(())
        })
        .await;
    }

    /// Waits until turns are appended to buffers in Redis.
    async fn assert_buffers_are_used(&self) {
        let before = counter_value(&self.server, APPENDED).await;
        eventually_after_outage("buffers to be used", async || {
            (counter_value(&self.server, APPENDED).await > before).then_some(())
        })
        .await;
    }

    async fn say(&self, session: &str, line: &str) {
        say(&self.rest, session, line, line).await.unwrap();
    }

    async fn rewind_to(&self, session: &str, verb: &str, turn: u32) {
        let body = json!({"turn": turn, "key": format!("{verb}-{turn}")});
        self.rest.post(&format!("/v1/sessions/{session}:{verb}"), &body).await;
    }

    /// Returns the preview of a line's prompt, and the prompt sent to the model.
    async fn prompts(&self, session: &str, line: &str) -> [String; 2] {
        let preview = format!("/v1/sessions/{session}/context");
        let preview = self.rest.post(&preview, &json!({ "text": line })).await;
        self.say(session, line).await;
        let asked = self.mock.requests_of("reply").pop().expect("the model was asked");
        let prompts = [preview.to_string(), asked.to_string()];
        for prompt in &prompts {
            assert!(prompt.contains(line), "{prompt}");
        }
        prompts
    }
}

#[test]
fn redis_outage_does_not_stop_turns_and_its_stale_data_is_ignored() {
    run(async {
        let mut stack = RedisStack::start(Duration::from_secs(10)).await;
        let [rewound, cut] = [session(&stack.rest, "p5").await, session(&stack.rest, "p6").await];
        for quiet in [&rewound, &cut] {
            for line in ["One.", "Two.", UNSAID, "Four."] {
                stack.say(quiet, line).await;
            }
        }
        let load = Load::start(&stack.server, &[]).await;
        load.wait_for_lines(LINES).await;
        stack.wait_for_buffer_status("ready").await;
        stack.redis.save().await;
        load.wait_for_lines(1).await;
        stack.redis.kill();

        load.wait_for_lines(LINES).await;
        stack.wait_for_buffer_status("away").await;
        stack.rewind_to(&rewound, "rewind", 2).await;
        stack.say(&rewound, ANEW).await;
        stack.say(&rewound, "Four, anew.").await;
        stack.rewind_to(&cut, "interrupt", 2).await;

        stack.redis.restart().await;
        stack.wait_for_buffer_status("ready").await;
        stack.assert_buffers_are_used().await;
        let talks = load.end().await;
        for talked in &talks {
            assert_eq!(talked.refused, 0);
            talked.assert_lines_stand(&stack.rest).await;
        }
        // Redis still has the unsaid turn of the same number.
        stack.rewind_to(&rewound, "rewind", 3).await;
        let mut expected = [vec!["One.", "Two.", ANEW], vec!["One.", "Two."]];
        for line in ["What did I tell you?", "And what else?"] {
            for (quiet, expected) in [&rewound, &cut].into_iter().zip(&mut expected) {
                for prompt in stack.prompts(quiet, line).await {
                    assert!(!prompt.contains(UNSAID), "{prompt}");
                    assert!(!prompt.contains("Four"), "{prompt}");
                    for said in &*expected {
                        assert!(prompt.contains(said), "{said}: {prompt}");
                    }
                }
                expected.push(line);
                assert_eq!(&standing_lines(&stack.rest, quiet).await, expected);
            }
            // The next server knows only the stores.
            stack = stack.restarted();
        }
        for talked in &talks {
            talked.assert_lines_stand(&stack.rest).await;
        }
    });
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how often it is tried depends on how long it takes"
)]
fn frozen_redis_delays_one_turn_at_a_time() {
    run(async {
        let stack = RedisStack::start(TIMEOUT).await;
        let load = Load::start(&stack.server, &[]).await;
        load.wait_for_lines(LINES).await;
        stack.wait_for_buffer_status("ready").await;
        let waited = async || {
            let [all, quick] = counter_values(&stack.server, [APPENDS, QUICK_APPENDS]).await;
            all - quick
        };
        let (before, frozen) = (waited().await, Instant::now());
        stack.redis.freeze().await;
        load.wait_for_lines(30).await;
        stack.wait_for_buffer_status("away").await;
        let (waits, took) = (waited().await - before, frozen.elapsed());
        stack.redis.thaw();
        // Every call at the start may wait, and later two calls per interval, in sequence, to check for recovery.
        let players = f64::from(u32::try_from(PLAYERS.len()).unwrap());
        let most = players + 1.0 + 2.0 * took.as_secs_f64() / (2 * TIMEOUT + REST).as_secs_f64();
        assert!(waits >= 1.0 && waits <= most, "{waits} turns waited in {took:?}");

        stack.wait_for_buffer_status("ready").await;
        stack.assert_buffers_are_used().await;
        for talked in load.end().await {
            assert_eq!(talked.refused, 0);
            talked.assert_lines_stand(&stack.rest).await;
        }
    });
}
