//! Interrupts of a conversation of NPCs while something of the lines they take back is under way: as with
//! sessions (`in_flight`), nothing comes of it, and nothing is lost of the lines before.

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::{Value, json};

use super::{
    fresh,
    in_flight::{asked, hold, valid},
    npc_conversation::conversation,
};
use crate::support::{Rest, Server, run};

/// What line 3 says. Both facts are near the one of line 1, so that a judge is asked about them.
const UNSAID: &str = "Hanna hates sour grapes. Hanna likes figs.";
const WORDS_OF_IT: [&str; 2] = ["hates sour grapes", "figs"];
const TALKERS: [&str; 2] = ["ergen", "mira"];

struct Held {
    mock: MockHandle,
    server: Server,
    rest: Rest,
    id: String,
}

impl Held {
    /// A conversation of two lines, from which everything was learned.
    async fn new() -> Self {
        let mock = mock_llm::start(MockOptions::default()).unwrap();
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
        held.says("Hanna likes grapes.").await;
        held.says("What a day.").await;
        held.rest.idle().await;
        held.know(&["Hanna likes grapes."]).await;
        held
    }

    /// The next line; its number.
    async fn says(&self, line: &str) -> u64 {
        self.mock.control(&json!({ "reply": line })).unwrap();
        let said = self.rest.post(&self.path(":step"), &json!({})).await;
        assert_eq!(said["reply_text"], line, "{said}");
        said["turn"].as_u64().unwrap()
    }

    /// Has a line begun, of which nothing may come.
    fn begins(&self, line: &str) {
        self.mock.control(&json!({ "reply": line })).unwrap();
        let (rest, path) = (self.rest.clone(), self.path(":step"));
        tokio::spawn(async move { rest.attempt(reqwest::Method::POST, &path, Some(&json!({}))).await });
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/npc-conversations/{}{rest}", self.id)
    }

    async fn take_back_to(&self, turn: u32) -> Value {
        self.rest.post(&self.path(":interrupt"), &json!({ "turn": turn })).await
    }

    async fn summaries(&self) -> Vec<Value> {
        let summaries = self.rest.get(&self.path("/summaries")).await;
        summaries["items"].as_array().unwrap().clone()
    }

    /// Both who took part hold these for true, and nothing else.
    async fn know(&self, contents: &[&str]) {
        for npc in TALKERS {
            assert_eq!(valid(&self.rest, npc).await, contents, "{npc}");
        }
    }

    /// Nothing that anybody can ask for knows of line 3.
    async fn nothing_of_it(&self, when: &str) {
        let rest = &self.rest;
        let mut seen = vec![
            ("the transcript", rest.get(&self.path("/turns")).await),
            ("summaries", json!(self.summaries().await)),
        ];
        for npc in TALKERS {
            seen.push(("facts", json!(valid(rest, npc).await)));
            for word in ["hates", "figs"] {
                let found = rest.get(&format!("/v1/worlds/vale/npcs/{npc}/facts?q={word}")).await;
                seen.push(("a search", found));
            }
        }
        // Whoever joins here is told of what stands.
        let joined = rest.post(&self.path(":join"), &json!({"player_id": "p1"})).await;
        let path = format!("/v1/sessions/{}/context", joined["id"].as_str().unwrap());
        let question = json!({ "text": "What fruit does Hanna like?" });
        seen.push(("the prompt of who joined", rest.post(&path, &question).await));
        for (what, seen) in seen {
            let text = seen.to_string();
            for word in WORDS_OF_IT {
                assert!(!text.contains(word), "{when}, {what} has `{word}`: {text}");
            }
        }
    }

    /// After `:interrupt`: lets the model answer, and sees that nothing comes of it, nor after a restart.
    async fn comes_to_nothing(mut self) {
        hold(&self.mock, &[]);
        self.rest.idle().await;
        self.nothing_of_it("once the model had answered").await;
        assert!(
            self.summaries().await.is_empty(),
            "a summary of what was unsaid is left"
        );
        // What is said instead is learned and summed up, and the prompt goes on from what stands.
        assert_eq!(self.says("Hanna likes pears.").await, 3);
        let prompt = self.mock.requests("reply").pop().unwrap().to_string();
        assert!(prompt.contains("Hanna likes grapes."), "{prompt}");
        assert!(WORDS_OF_IT.iter().all(|word| !prompt.contains(word)), "{prompt}");
        self.rest.idle().await;
        self.nothing_of_it("after another line").await;
        let learned = ["Hanna likes grapes.", "Hanna likes pears."];
        self.know(&learned).await;
        let summaries = self.summaries().await;
        assert_eq!(
            summaries.len(),
            1,
            "the summary that was due is made anew: {summaries:?}"
        );

        let data = self.server.stop();
        self.server = data.start();
        self.rest = self.server.backend();
        self.nothing_of_it("after a restart").await;
        self.know(&learned).await;
        assert_eq!(self.says("What a night.").await, 4);
    }
}

/// Line 3 has been said, and one of its jobs waits for the model when it is taken back.
fn is_interrupted_while(task: &'static str) {
    run(async {
        let held = Held::new().await;
        let calls = held.mock.calls(task);
        hold(&held.mock, &[task]);
        held.says(UNSAID).await;
        asked(&held.mock, task, calls + 1).await;
        let told = held.take_back_to(2).await;
        assert_eq!(told["rewound"]["removed_turns"], json!([3]), "{told}");
        held.nothing_of_it("while the model is held").await;
        held.comes_to_nothing().await;
    });
}

#[test]
fn nothing_comes_of_an_extraction_from_a_line_that_is_unsaid() {
    is_interrupted_while("extraction");
}

#[test]
fn nothing_comes_of_a_judgement_of_what_a_line_said_that_is_unsaid() {
    is_interrupted_while("judge");
}

#[test]
fn nothing_comes_of_a_summary_of_a_line_that_is_unsaid() {
    is_interrupted_while("summary");
}

#[test]
fn nothing_comes_of_a_line_that_was_under_way() {
    run(async {
        let held = Held::new().await;
        let calls = held.mock.calls("reply");
        hold(&held.mock, &["reply"]);
        held.begins(UNSAID);
        asked(&held.mock, "reply", calls + 1).await;
        let told = held.take_back_to(2).await;
        assert_eq!(told["turn"], 2, "{told}");
        held.nothing_of_it("while the model is held").await;
        held.comes_to_nothing().await;
    });
}

#[test]
fn an_interrupt_leaves_the_line_before_its_extraction() {
    run(async {
        let held = Held::new().await;
        held.says("So they say.").await;
        held.rest.idle().await;
        let (extractions, replies) = (held.mock.calls("extraction"), held.mock.calls("reply"));
        hold(&held.mock, &["extraction"]);
        held.says("Hanna likes plums.").await;
        asked(&held.mock, "extraction", extractions + 1).await;
        hold(&held.mock, &["extraction", "reply"]);
        held.begins(UNSAID);
        asked(&held.mock, "reply", replies + 2).await;
        // Once while line 5 is being said, once more when it is gone.
        held.take_back_to(4).await;
        held.take_back_to(4).await;
        held.know(&["Hanna likes grapes."]).await;
        hold(&held.mock, &[]);
        held.rest.idle().await;
        held.know(&["Hanna likes grapes.", "Hanna likes plums."]).await;
        held.nothing_of_it("afterwards").await;
    });
}

#[test]
fn a_line_that_is_held_is_learned_from_once_it_is_let_go() {
    run(async {
        let held = Held::new().await;
        hold(&held.mock, &["extraction"]);
        held.says(UNSAID).await;
        hold(&held.mock, &[]);
        held.rest.idle().await;
        // So the tests above are about answers that come.
        held.know(&["Hanna hates sour grapes.", "Hanna likes figs.", "Hanna likes grapes."])
            .await;
    });
}
