//! Interrupts of a session during work on the unsaid turns. The mock model holds one task at a time and releases the
//! task after the interrupt. Its result must be discarded.

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, TestServer, TestSocket, eventually, run};

/// The line of turn 3. Both facts are near turn 1's fact, so that the judge is asked.
const UNSAID: &str = "I hate sour grapes. I like figs.";
const UNSAID_WORDS: [&str; 3] = ["hate sour grapes", "hates sour grapes", "figs"];

/// Holds the calls for `tasks`, and releases all others.
pub fn hold_tasks(mock: &MockHandle, tasks: &[&str]) {
    let faults: Vec<String> = tasks.iter().map(|task| format!("{task}=hold")).collect();
    mock.apply_settings(&json!({ "faults": faults })).unwrap();
}

pub async fn wait_for_calls(mock: &MockHandle, task: &str, calls: u64) {
    eventually(&format!("{task} to be asked"), || async {
        (mock.calls_of(task) >= calls).then_some(())
    })
    .await;
}

/// Returns the facts that an NPC takes as valid.
pub async fn valid_contents(rest: &RestClient, npc: &str) -> Vec<String> {
    let facts = rest.facts(npc).await;
    let valid = facts.iter().filter(|fact| fact["invalid_at"].is_null());
    let mut contents: Vec<String> = valid.map(|fact| fact["content"].as_str().unwrap().to_owned()).collect();
    contents.sort();
    contents
}

struct HeldSession {
    mock: MockHandle,
    server: TestServer,
    rest: RestClient,
    socket: TestSocket,
    session: String,
}

impl HeldSession {
    /// Starts a session of two turns, and waits for their jobs.
    async fn new(env: &[(&str, &str)]) -> Self {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let url = mock.base_url();
        let mut all = vec![
            ("COLLOQUY__LLM__BASE_URL", url.as_str()),
            ("COLLOQUY__LLM__MODEL", "mock"),
            ("COLLOQUY__SUMMARIES__FIRST_AFTER_TURNS", "3"),
            ("COLLOQUY__SUMMARIES__THEN_EVERY_TURNS", "1"),
            ("COLLOQUY__JOBS__POLL_S", "1"),
            ("COLLOQUY__JOBS__RETRY_BASE_S", "1"),
        ];
        all.extend_from_slice(env);
        // If a test holds embeddings, the same endpoint embeds.
        let embeds = all.iter().any(|(name, _)| *name == "COLLOQUY__EMBEDDER__MODEL");
        if embeds {
            all.push(("COLLOQUY__EMBEDDER__BASE_URL", url.as_str()));
        }
        let server = fresh(&all).start();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "I like grapes.").await;
        socket.say_line(&session, "Hello.").await;
        let held = Self {
            mock,
            server,
            rest,
            socket,
            session,
        };
        held.wait_until_idle().await;
        assert_eq!(held.valid_facts().await, ["The player likes grapes."]);
        held
    }

    fn hold_task(&self, task: &str) {
        hold_tasks(&self.mock, &[task]);
    }
    fn release_tasks(&self) {
        hold_tasks(&self.mock, &[]);
    }
    async fn wait_for_task_calls(&self, task: &str, calls: u64) {
        wait_for_calls(&self.mock, task, calls).await;
    }
    async fn wait_until_idle(&self) {
        self.rest.idle().await;
    }
    async fn valid_facts(&self) -> Vec<String> {
        valid_contents(&self.rest, "mira").await
    }
    async fn interrupt_at(&self, turn: u32) -> Value {
        let path = format!("/v1/sessions/{}:interrupt", self.session);
        self.rest.post(&path, &json!({ "turn": turn })).await
    }
    async fn summaries(&self) -> Vec<Value> {
        let path = format!("/v1/sessions/{}/summaries", self.session);
        self.rest.get(&path).await["items"].as_array().unwrap().clone()
    }

    /// Asserts that no endpoint returns text of turn 3.
    async fn assert_no_trace_of_turn(&self, when: &str) {
        let (rest, session) = (&self.rest, &self.session);
        let mut seen = vec![("facts", json!(self.valid_facts().await))];
        for word in ["hates", "figs"] {
            let found = rest.get(&format!("/v1/worlds/vale/npcs/mira/facts?q={word}")).await;
            seen.push(("a search", found));
        }
        let path = format!("/v1/sessions/{session}/turns");
        seen.push(("the transcript", rest.get(&path).await));
        seen.push(("summaries", json!(self.summaries().await)));
        let path = format!("/v1/sessions/{session}/context");
        let question = json!({ "text": "What fruit do I care for?" });
        seen.push(("the next prompt", rest.post(&path, &question).await));
        for (what, seen) in seen {
            let text = seen.to_string();
            for word in UNSAID_WORDS {
                assert!(!text.contains(word), "{when}, {what} has `{word}`: {text}");
            }
        }
    }

    /// After `:interrupt`: releases the model, and asserts that the results are discarded, also after a restart.
    async fn assert_discarded(mut self) {
        self.release_tasks();
        self.wait_until_idle().await;
        self.assert_no_trace_of_turn("once the model had answered").await;
        assert!(
            self.summaries().await.is_empty(),
            "a summary of what was unsaid is left"
        );
        // The new line is learned and summarised. The prompt continues from the turns that stand.
        let instead = self.socket.say_line(&self.session, "I like pears.").await;
        assert_eq!(instead.turn, 3);
        self.wait_until_idle().await;
        self.assert_no_trace_of_turn("after another turn").await;
        let learned = ["The player likes grapes.", "The player likes pears."];
        assert_eq!(self.valid_facts().await, learned);
        let summaries = self.summaries().await;
        assert_eq!(
            summaries.len(),
            1,
            "the summary that was due is made anew: {summaries:?}"
        );

        let data = self.server.stop();
        self.server = data.start();
        self.rest = self.server.backend();
        self.assert_no_trace_of_turn("after a restart").await;
        assert_eq!(self.valid_facts().await, learned);
        let mut socket = self.server.player("p1").await;
        let resume = json!({"type": "session.resume", "session_id": self.session});
        socket.send(&resume).await;
        socket.until("session.resumed").await;
        assert_eq!(socket.say_line(&self.session, "Hello again.").await.turn, 4);
    }
}

/// Interrupts turn 3 after its reply, while one of its jobs waits for the model.
fn interrupt_while_running(task: &'static str) {
    run(async {
        let mut held = HeldSession::new(&[]).await;
        let asked = held.mock.calls_of(task);
        held.hold_task(task);
        held.socket.say_line(&held.session, UNSAID).await;
        held.wait_for_task_calls(task, asked + 1).await;
        let told = held.interrupt_at(2).await;
        assert_eq!(told["rewound"]["removed_turns"], json!([3]), "{told}");
        held.assert_no_trace_of_turn("while the model is held").await;
        held.assert_discarded().await;
    });
}

#[test]
fn interrupt_discards_a_running_extraction() {
    interrupt_while_running("extraction");
}

#[test]
fn interrupt_discards_a_running_judgement() {
    interrupt_while_running("judge");
}

#[test]
fn interrupt_discards_a_running_summary() {
    interrupt_while_running("summary");
}

#[test]
fn interrupt_discards_a_running_reply() {
    run(async {
        let mut held = HeldSession::new(&[]).await;
        let asked = held.mock.calls_of("reply");
        held.hold_task("reply");
        held.socket.send_line(&held.session, "k3", UNSAID).await;
        held.wait_for_task_calls("reply", asked + 1).await;
        let told = held.interrupt_at(2).await;
        assert_eq!(told["turn"], 2, "{told}");
        held.assert_no_trace_of_turn("while the model is held").await;
        let refused = loop {
            let event = held.socket.next().await;
            if event["type"] == "error" {
                break event;
            }
        };
        assert_eq!(refused["error"]["code"], "turn_unsaid");
        held.assert_discarded().await;
    });
}

#[test]
fn interrupt_discards_facts_being_indexed() {
    run(async {
        let mut held = HeldSession::new(&[("COLLOQUY__EMBEDDER__MODEL", "text-embedding-3-small")]).await;
        let asked = held.mock.calls_of("extraction");
        held.hold_task("extraction");
        held.socket.say_line(&held.session, UNSAID).await;
        held.wait_for_task_calls("extraction", asked + 1).await;
        // The facts are extracted and wait for their embedding, without which no index accepts them.
        let asked = held.mock.calls_of("embedding");
        held.hold_task("embedding");
        held.wait_for_task_calls("embedding", asked + 1).await;
        held.interrupt_at(2).await;
        // Searches and prompts embed their questions, so embeddings are released first.
        held.release_tasks();
        held.assert_discarded().await;
    });
}

#[test]
fn interrupt_leaves_the_extraction_of_the_previous_turn() {
    run(async {
        let mut held = HeldSession::new(&[]).await;
        held.socket.say_line(&held.session, "What a day.").await;
        held.wait_until_idle().await;
        let (extractions, replies) = (held.mock.calls_of("extraction"), held.mock.calls_of("reply"));
        held.hold_task("extraction");
        held.socket.say_line(&held.session, "I like plums.").await;
        held.wait_for_task_calls("extraction", extractions + 1).await;
        hold_tasks(&held.mock, &["extraction", "reply"]);
        held.socket.send_line(&held.session, "k5", UNSAID).await;
        held.wait_for_task_calls("reply", replies + 2).await;
        // One interrupt comes during turn 5, the other after its end.
        let path = format!("/v1/sessions/{}:interrupt", held.session);
        held.rest.post(&path, &json!({ "turn": 4 })).await;
        held.interrupt_at(4).await;
        assert_eq!(held.valid_facts().await, ["The player likes grapes."]);
        held.release_tasks();
        held.wait_until_idle().await;
        let learned = ["The player likes grapes.", "The player likes plums."];
        assert_eq!(held.valid_facts().await, learned, "turn 4 is learned from");
        held.assert_no_trace_of_turn("afterwards").await;
    });
}

#[test]
fn held_request_is_answered_once_released() {
    run(async {
        let mut held = HeldSession::new(&[]).await;
        held.hold_task("extraction");
        held.socket.say_line(&held.session, UNSAID).await;
        held.release_tasks();
        held.wait_until_idle().await;
        // Proves that the held requests of the other tests would be answered.
        assert!(held.valid_facts().await.iter().any(|fact| fact.contains("figs")));
    });
}
