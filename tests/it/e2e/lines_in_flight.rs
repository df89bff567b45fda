//! Interrupts of an NPC conversation during work on the unsaid lines. As with sessions (`in_flight`), the results are
//! discarded, and earlier lines lose nothing.

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::{Value, json};

use super::{
    fresh,
    in_flight::{hold_tasks, valid_contents, wait_for_calls},
    npc_conversation::conversation,
};
use crate::support::{RestClient, TestServer, run};

/// The text of line 3. Both facts are near line 1's fact, so that the judge is asked.
const UNSAID: &str = "Hanna hates sour grapes. Hanna likes figs.";
const UNSAID_WORDS: [&str; 2] = ["hates sour grapes", "figs"];
const TALKERS: [&str; 2] = ["ergen", "mira"];

struct HeldConversation {
    mock: MockHandle,
    server: TestServer,
    rest: RestClient,
    id: String,
}

impl HeldConversation {
    /// Starts a conversation of two lines, and waits for their jobs.
    async fn new() -> Self {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let url = mock.base_url();
        let server = fresh(&[
            ("COLLOQUY__SUMMARIES__FIRST_AFTER_TURNS", "3"),
            ("COLLOQUY__SUMMARIES__THEN_EVERY_TURNS", "1"),
            ("COLLOQUY__JOBS__POLL_S", "1"),
            ("COLLOQUY__JOBS__RETRY_BASE_S", "1"),
            ("COLLOQUY__CONVERSATION__PAUSE_MS", "0"),
            ("COLLOQUY__CONVERSATION__READING_MS_PER_CHAR", "0"),
        ])
        .with_mock(&url)
        .start();
        let id = conversation(&server, json!({"auto": false, "open": true, "interrupters": "all"})).await;
        let held = Self {
            rest: server.backend(),
            mock,
            server,
            id,
        };
        held.say_next_line("Hanna likes grapes.").await;
        held.say_next_line("What a day.").await;
        held.rest.idle().await;
        held.assert_both_know(&["Hanna likes grapes."]).await;
        held
    }

    /// Says the next line, and returns its number.
    async fn say_next_line(&self, line: &str) -> u64 {
        self.mock.apply_settings(&json!({ "reply": line })).unwrap();
        let said = self.rest.post(&self.path(":step"), &json!({})).await;
        assert_eq!(said["reply_text"], line, "{said}");
        said["turn"].as_u64().unwrap()
    }

    /// Starts a line that must be discarded.
    fn begin_line(&self, line: &str) {
        self.mock.apply_settings(&json!({ "reply": line })).unwrap();
        let (rest, path) = (self.rest.clone(), self.path(":step"));
        tokio::spawn(async move { rest.attempt(reqwest::Method::POST, &path, Some(&json!({}))).await });
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/npc-conversations/{}{rest}", self.id)
    }

    async fn interrupt_at(&self, turn: u32) -> Value {
        self.rest.post(&self.path(":interrupt"), &json!({ "turn": turn })).await
    }

    async fn summaries(&self) -> Vec<Value> {
        let summaries = self.rest.get(&self.path("/summaries")).await;
        summaries["items"].as_array().unwrap().clone()
    }

    /// Asserts that both speakers have exactly these valid facts.
    async fn assert_both_know(&self, contents: &[&str]) {
        for npc in TALKERS {
            assert_eq!(valid_contents(&self.rest, npc).await, contents, "{npc}");
        }
    }

    /// Asserts that no endpoint returns text of line 3.
    async fn assert_no_trace_of_line(&self, when: &str) {
        let rest = &self.rest;
        let mut seen = vec![
            ("the transcript", rest.get(&self.path("/turns")).await),
            ("summaries", json!(self.summaries().await)),
        ];
        for npc in TALKERS {
            seen.push(("facts", json!(valid_contents(rest, npc).await)));
            for word in ["hates", "figs"] {
                let found = rest.get(&format!("/v1/worlds/vale/npcs/{npc}/facts?q={word}")).await;
                seen.push(("a search", found));
            }
        }
        // A player who joins here learns only the lines that stand.
        let joined = rest.post(&self.path(":join"), &json!({"player_id": "p1"})).await;
        let path = format!("/v1/sessions/{}/context", joined["id"].as_str().unwrap());
        let question = json!({ "text": "What fruit does Hanna like?" });
        seen.push(("the prompt of who joined", rest.post(&path, &question).await));
        for (what, seen) in seen {
            let text = seen.to_string();
            for word in UNSAID_WORDS {
                assert!(!text.contains(word), "{when}, {what} has `{word}`: {text}");
            }
        }
    }

    /// After `:interrupt`: releases the model, and asserts that the results are discarded, also after a restart.
    async fn assert_discarded(mut self) {
        hold_tasks(&self.mock, &[]);
        self.rest.idle().await;
        self.assert_no_trace_of_line("once the model had answered").await;
        assert!(
            self.summaries().await.is_empty(),
            "a summary of what was unsaid is left"
        );
        // The new line is learned and summarised. The prompt continues from the lines that stand.
        assert_eq!(self.say_next_line("Hanna likes pears.").await, 3);
        let prompt = self.mock.requests_of("reply").pop().unwrap().to_string();
        assert!(prompt.contains("Hanna likes grapes."), "{prompt}");
        assert!(UNSAID_WORDS.iter().all(|word| !prompt.contains(word)), "{prompt}");
        self.rest.idle().await;
        self.assert_no_trace_of_line("after another line").await;
        let learned = ["Hanna likes grapes.", "Hanna likes pears."];
        self.assert_both_know(&learned).await;
        let summaries = self.summaries().await;
        assert_eq!(
            summaries.len(),
            1,
            "the summary that was due is made anew: {summaries:?}"
        );

        let data = self.server.stop();
        self.server = data.start();
        self.rest = self.server.backend();
        self.assert_no_trace_of_line("after a restart").await;
        self.assert_both_know(&learned).await;
        assert_eq!(self.say_next_line("What a night.").await, 4);
    }
}

/// Interrupts line 3 after its end, while one of its jobs waits for the model.
fn interrupt_while_running(task: &'static str) {
    run(async {
        let held = HeldConversation::new().await;
        let calls = held.mock.calls_of(task);
        hold_tasks(&held.mock, &[task]);
        held.say_next_line(UNSAID).await;
        wait_for_calls(&held.mock, task, calls + 1).await;
        let told = held.interrupt_at(2).await;
        assert_eq!(told["rewound"]["removed_turns"], json!([3]), "{told}");
        held.assert_no_trace_of_line("while the model is held").await;
        held.assert_discarded().await;
    });
}

#[test]
fn unsaid_line_discards_its_running_extraction() {
    interrupt_while_running("extraction");
}

#[test]
fn unsaid_line_discards_its_running_judgement() {
    interrupt_while_running("judge");
}

#[test]
fn unsaid_line_discards_its_running_summary() {
    interrupt_while_running("summary");
}

#[test]
fn unsaid_line_discards_its_running_reply() {
    run(async {
        let held = HeldConversation::new().await;
        let calls = held.mock.calls_of("reply");
        hold_tasks(&held.mock, &["reply"]);
        held.begin_line(UNSAID);
        wait_for_calls(&held.mock, "reply", calls + 1).await;
        let told = held.interrupt_at(2).await;
        assert_eq!(told["turn"], 2, "{told}");
        held.assert_no_trace_of_line("while the model is held").await;
        held.assert_discarded().await;
    });
}

#[test]
fn unsaid_line_leaves_the_extraction_of_the_previous_line() {
    run(async {
        let held = HeldConversation::new().await;
        held.say_next_line("So they say.").await;
        held.rest.idle().await;
        let (extractions, replies) = (held.mock.calls_of("extraction"), held.mock.calls_of("reply"));
        hold_tasks(&held.mock, &["extraction"]);
        held.say_next_line("Hanna likes plums.").await;
        wait_for_calls(&held.mock, "extraction", extractions + 1).await;
        hold_tasks(&held.mock, &["extraction", "reply"]);
        held.begin_line(UNSAID);
        wait_for_calls(&held.mock, "reply", replies + 2).await;
        // One interrupt comes during line 5, the other after its end.
        held.interrupt_at(4).await;
        held.interrupt_at(4).await;
        held.assert_both_know(&["Hanna likes grapes."]).await;
        hold_tasks(&held.mock, &[]);
        held.rest.idle().await;
        held.assert_both_know(&["Hanna likes grapes.", "Hanna likes plums."])
            .await;
        held.assert_no_trace_of_line("afterwards").await;
    });
}

#[test]
fn held_line_is_learned_once_released() {
    run(async {
        let held = HeldConversation::new().await;
        hold_tasks(&held.mock, &["extraction"]);
        held.say_next_line(UNSAID).await;
        hold_tasks(&held.mock, &[]);
        held.rest.idle().await;
        // Proves that the held requests of the other tests would be answered.
        held.assert_both_know(&["Hanna hates sour grapes.", "Hanna likes figs.", "Hanna likes grapes."])
            .await;
    });
}
