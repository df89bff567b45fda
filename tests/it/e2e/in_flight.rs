//! Interrupts of a session while something of the turns they take back is under way: each thing that asks a
//! model is held open by it, let go after the interrupt, and comes to nothing.

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{Rest, Server, Socket, eventually, run};

/// What turn 3 says. Both facts are near the one of turn 1, so that a judge is asked about them.
const UNSAID: &str = "I hate sour grapes. I like figs.";
const WORDS_OF_IT: [&str; 3] = ["hate sour grapes", "hates sour grapes", "figs"];

/// Keeps back what is asked for these tasks, and lets go everything else.
pub fn hold(mock: &MockHandle, tasks: &[&str]) {
    let faults: Vec<String> = tasks.iter().map(|task| format!("{task}=hold")).collect();
    mock.control(&json!({ "faults": faults })).unwrap();
}

pub async fn asked(mock: &MockHandle, task: &str, calls: u64) {
    eventually(&format!("{task} to be asked"), || async {
        (mock.calls(task) >= calls).then_some(())
    })
    .await;
}

/// What an NPC holds for true.
pub async fn valid(rest: &Rest, npc: &str) -> Vec<String> {
    let facts = rest.facts(npc).await;
    let valid = facts.iter().filter(|fact| fact["invalid_at"].is_null());
    let mut contents: Vec<String> = valid.map(|fact| fact["content"].as_str().unwrap().to_owned()).collect();
    contents.sort();
    contents
}

struct Held {
    mock: MockHandle,
    server: Server,
    rest: Rest,
    socket: Socket,
    session: String,
}

impl Held {
    /// A session of two turns, from which everything was learned.
    async fn new(env: &[(&str, &str)]) -> Self {
        let mock = mock_llm::start(MockOptions::default()).unwrap();
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
        // The same endpoint embeds, where it is to be held there.
        let embeds = all.iter().any(|(name, _)| *name == "COLLOQUY__EMBEDDER__MODEL");
        if embeds {
            all.push(("COLLOQUY__EMBEDDER__BASE_URL", url.as_str()));
        }
        let server = fresh(&all).start();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say(&session, "I like grapes.").await;
        socket.say(&session, "Hello.").await;
        let held = Self {
            mock,
            server,
            rest,
            socket,
            session,
        };
        held.idle().await;
        assert_eq!(held.valid().await, ["The player likes grapes."]);
        held
    }

    fn hold(&self, task: &str) {
        hold(&self.mock, &[task]);
    }
    fn let_go(&self) {
        hold(&self.mock, &[]);
    }
    async fn asked(&self, task: &str, calls: u64) {
        asked(&self.mock, task, calls).await;
    }
    async fn idle(&self) {
        self.rest.idle().await;
    }
    async fn valid(&self) -> Vec<String> {
        valid(&self.rest, "mira").await
    }
    async fn take_back_to(&self, turn: u32) -> Value {
        let path = format!("/v1/sessions/{}:interrupt", self.session);
        self.rest.post(&path, &json!({ "turn": turn })).await
    }
    async fn summaries(&self) -> Vec<Value> {
        let path = format!("/v1/sessions/{}/summaries", self.session);
        self.rest.get(&path).await["items"].as_array().unwrap().clone()
    }

    /// Nothing that anybody can ask for knows of turn 3.
    async fn nothing_of_it(&self, when: &str) {
        let (rest, session) = (&self.rest, &self.session);
        let mut seen = vec![("facts", json!(self.valid().await))];
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
            for word in WORDS_OF_IT {
                assert!(!text.contains(word), "{when}, {what} has `{word}`: {text}");
            }
        }
    }

    /// After `:interrupt`: lets the model answer, and sees that nothing comes of it, nor after a restart.
    async fn comes_to_nothing(mut self) {
        self.let_go();
        self.idle().await;
        self.nothing_of_it("once the model had answered").await;
        assert!(
            self.summaries().await.is_empty(),
            "a summary of what was unsaid is left"
        );
        // What is said instead is learned and summed up, and the prompt goes on from what stands.
        let instead = self.socket.say(&self.session, "I like pears.").await;
        assert_eq!(instead.turn, 3);
        self.idle().await;
        self.nothing_of_it("after another turn").await;
        let learned = ["The player likes grapes.", "The player likes pears."];
        assert_eq!(self.valid().await, learned);
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
        assert_eq!(self.valid().await, learned);
        let mut socket = self.server.player("p1").await;
        let resume = json!({"type": "session.resume", "session_id": self.session});
        socket.send(&resume).await;
        socket.until("session.resumed").await;
        assert_eq!(socket.say(&self.session, "Hello again.").await.turn, 4);
    }
}

/// Turn 3 has been said, and one of its jobs waits for the model when it is taken back.
fn is_interrupted_while(task: &'static str) {
    run(async {
        let mut held = Held::new(&[]).await;
        let asked = held.mock.calls(task);
        held.hold(task);
        held.socket.say(&held.session, UNSAID).await;
        held.asked(task, asked + 1).await;
        let told = held.take_back_to(2).await;
        assert_eq!(told["rewound"]["removed_turns"], json!([3]), "{told}");
        held.nothing_of_it("while the model is held").await;
        held.comes_to_nothing().await;
    });
}

#[test]
fn nothing_comes_of_an_extraction_that_was_under_way() {
    is_interrupted_while("extraction");
}

#[test]
fn nothing_comes_of_a_judgement_that_was_under_way() {
    is_interrupted_while("judge");
}

#[test]
fn nothing_comes_of_a_summary_that_was_under_way() {
    is_interrupted_while("summary");
}

#[test]
fn nothing_comes_of_a_reply_that_was_under_way() {
    run(async {
        let mut held = Held::new(&[]).await;
        let asked = held.mock.calls("reply");
        held.hold("reply");
        held.socket.tell(&held.session, "k3", UNSAID).await;
        held.asked("reply", asked + 1).await;
        let told = held.take_back_to(2).await;
        assert_eq!(told["turn"], 2, "{told}");
        held.nothing_of_it("while the model is held").await;
        let refused = loop {
            let event = held.socket.next().await;
            if event["type"] == "error" {
                break event;
            }
        };
        assert_eq!(refused["error"]["code"], "turn_unsaid");
        held.comes_to_nothing().await;
    });
}

#[test]
fn nothing_comes_of_facts_that_were_being_indexed() {
    run(async {
        let mut held = Held::new(&[("COLLOQUY__EMBEDDER__MODEL", "text-embedding-3-small")]).await;
        let asked = held.mock.calls("extraction");
        held.hold("extraction");
        held.socket.say(&held.session, UNSAID).await;
        held.asked("extraction", asked + 1).await;
        // Read, and about to be embedded, without which no index takes it.
        let asked = held.mock.calls("embedding");
        held.hold("embedding");
        held.asked("embedding", asked + 1).await;
        held.take_back_to(2).await;
        // A search embeds its question, and so does a prompt.
        held.let_go();
        held.comes_to_nothing().await;
    });
}

#[test]
fn an_interrupt_leaves_the_turn_before_its_extraction() {
    run(async {
        let mut held = Held::new(&[]).await;
        held.socket.say(&held.session, "What a day.").await;
        held.idle().await;
        let (extractions, replies) = (held.mock.calls("extraction"), held.mock.calls("reply"));
        held.hold("extraction");
        held.socket.say(&held.session, "I like plums.").await;
        held.asked("extraction", extractions + 1).await;
        hold(&held.mock, &["extraction", "reply"]);
        held.socket.tell(&held.session, "k5", UNSAID).await;
        held.asked("reply", replies + 2).await;
        // Once while turn 5 is being said, once more when it is gone.
        let path = format!("/v1/sessions/{}:interrupt", held.session);
        held.rest.post(&path, &json!({ "turn": 4 })).await;
        held.take_back_to(4).await;
        assert_eq!(held.valid().await, ["The player likes grapes."]);
        held.let_go();
        held.idle().await;
        let learned = ["The player likes grapes.", "The player likes plums."];
        assert_eq!(held.valid().await, learned, "turn 4 is learned from");
        held.nothing_of_it("afterwards").await;
    });
}

#[test]
fn what_is_held_is_answered_once_it_is_let_go() {
    run(async {
        let mut held = Held::new(&[]).await;
        held.hold("extraction");
        held.socket.say(&held.session, UNSAID).await;
        held.let_go();
        held.idle().await;
        // So the tests above are about answers that come.
        assert!(held.valid().await.iter().any(|fact| fact.contains("figs")));
    });
}
