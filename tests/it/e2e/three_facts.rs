//! Three facts learned in three dialogues. The middle dialogue is unsaid. The two remaining facts are judged, and all
//! histories show the changes.

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, TestServer, eventually, run};

const FIRST: &str = "I like grapes.";
const THIRD: &str = "I hate all grapes.";

/// A dialogue of one turn, and its fact.
struct LearnedFact {
    session: String,
    /// The turn's id.
    turn: String,
    /// The fact's id.
    fact: String,
    content: String,
}

struct ThreeFacts {
    mock: MockHandle,
    rest: RestClient,
    /// The second fact ends the first, and the third repeats the second.
    told: [LearnedFact; 3],
    _server: TestServer,
}

impl ThreeFacts {
    /// The player likes grapes, then hates them, and repeats the latter in other words. With `known`, another player
    /// has told the first and third facts in private, so the pair has a verdict.
    async fn new(known: bool) -> Self {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let url = mock.base_url();
        let server = fresh(&[("COLLOQUY__JOBS__POLL_S", "1")]).with_mock(&url).start();
        let rest = server.backend();
        if known {
            learn_in_new_session(&server, &mock, "p2", FIRST, "independent").await;
            learn_in_new_session(&server, &mock, "p2", THIRD, "contradicts").await;
        }
        let first = learn_in_new_session(&server, &mock, "p1", FIRST, "independent").await;
        let second = learn_in_new_session(&server, &mock, "p1", "I hate grapes.", "contradicts").await;
        let third = learn_in_new_session(&server, &mock, "p1", THIRD, "same").await;
        let three = Self {
            told: [first, second, third],
            _server: server,
            mock,
            rest,
        };
        let [first, second, third] = &three.told;
        three.assert_ended(first, "superseded", Some(second)).await;
        three.assert_ended(second, "duplicate", Some(third)).await;
        assert!(three.fact(third).await["invalid_at"].is_null());
        let ends = three.history_entries(first, "invalidated").await;
        assert_eq!(ends.len(), 1, "{ends:?}");
        assert_eq!(
            (&ends[0]["fact_id"], &ends[0]["cause"], &ends[0]["lifted_at"]),
            (&json!(second.fact), &caused_by(second), &Value::Null)
        );
        three
    }

    async fn fact(&self, told: &LearnedFact) -> Value {
        self.rest.get(&format!("/v1/facts/{}", told.fact)).await
    }

    async fn assert_ended(&self, told: &LearnedFact, reason: &str, by: Option<&LearnedFact>) {
        let fact = self.fact(told).await;
        let by = by.map_or(Value::Null, |by| json!(by.fact));
        assert_eq!(
            (&fact["invalid_reason"], &fact["invalid_by"]),
            (&json!(reason), &by),
            "{fact}"
        );
    }

    /// Returns one sort of entries in a fact's history, oldest first.
    async fn history_entries(&self, told: &LearnedFact, what: &str) -> Vec<Value> {
        let history = self.rest.get(&format!("/v1/facts/{}/history", told.fact)).await;
        let items = history["items"].as_array().unwrap();
        assert_eq!(
            (&items[0]["what"], &items[0]["cause"]),
            (&json!("created"), &caused_by(told)),
            "{history}"
        );
        items.iter().filter(|entry| entry["what"] == what).cloned().collect()
    }

    /// Rewinds the whole dialogue of the second fact.
    async fn unsay_second(&self) {
        let path = format!("/v1/sessions/{}:rewind", self.told[1].session);
        let told = self.rest.post(&path, &json!({"turn": 0})).await;
        let rewound = &told["rewound"];
        assert_eq!(rewound["removed_turns"], json!([1]), "{rewound}");
        assert_eq!(
            rewound["rolled_back"]["restored"], 1,
            "what it had ended is valid again: {rewound}"
        );
    }

    /// Waits until the third fact ends the first, and checks the histories.
    async fn third_ends_first(&self) {
        let [first, second, third] = &self.told;
        eventually("the third fact ends the first", async || {
            (self.fact(first).await["invalid_by"] == third.fact).then_some(())
        })
        .await;
        self.assert_ended(first, "superseded", Some(third)).await;
        self.assert_ended(second, "unsaid", None).await;
        assert!(self.fact(third).await["invalid_at"].is_null());

        let ends = self.history_entries(first, "invalidated").await;
        let of = |end: &Value| (end["reason"].clone(), end["fact_id"].clone(), end["cause"].clone());
        let superseded = |by: &LearnedFact| (json!("superseded"), json!(by.fact), caused_by(by));
        assert_eq!(
            ends.iter().map(of).collect::<Vec<_>>(),
            [superseded(second), superseded(third)]
        );
        let lifted = ends.iter().map(|end| end["lifted_at"].is_string()).collect::<Vec<_>>();
        assert_eq!(lifted, [true, false], "what was unsaid ends nothing any more: {ends:?}");

        let unsaid = self.history_entries(second, "invalidated").await;
        let unsaid: Vec<&Value> = unsaid.iter().filter(|end| end["reason"] == "unsaid").collect();
        assert_eq!(unsaid.len(), 1, "{unsaid:?}");
        assert_eq!(unsaid[0]["cause"]["kind"], "rewind", "{unsaid:?}");
        assert!(unsaid[0]["lifted_at"].is_null(), "{unsaid:?}");
        let ended = self.history_entries(second, "replaced").await;
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert_eq!(ended[0]["fact_id"], first.fact);
        assert!(ended[0]["lifted_at"].is_string(), "{ended:?}");

        let ended = self.history_entries(third, "replaced").await;
        let standing = ended.iter().find(|end| end["fact_id"] == first.fact).unwrap();
        assert_eq!(
            (&standing["reason"], &standing["lifted_at"]),
            (&json!("superseded"), &Value::Null)
        );
        // A search finds the standing fact.
        let found = self
            .rest
            .get("/v1/worlds/vale/npcs/mira/facts?q=grapes&player_id=p1")
            .await;
        let found: Vec<&Value> = found["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fact| &fact["id"])
            .collect();
        assert_eq!(found, [&json!(third.fact)]);
    }
}

fn caused_by(told: &LearnedFact) -> Value {
    json!({"kind": "turn", "id": told.turn})
}

/// Says a line in a new session. The judge gives `verdict` for its facts.
async fn learn_in_new_session(
    server: &TestServer,
    mock: &MockHandle,
    player: &str,
    line: &str,
    verdict: &str,
) -> LearnedFact {
    mock.apply_settings(&json!({ "verdict": verdict })).unwrap();
    let rest = server.backend();
    let mut socket = server.player(player).await;
    let session = socket.session("mira", player).await;
    socket.say_line(&session, line).await;
    let fact = eventually("it is learned", async || {
        let facts = rest.facts("mira").await;
        facts.into_iter().find(|fact| fact["source_dialogue_id"] == *session)
    })
    .await;
    let turns = rest.get(&format!("/v1/sessions/{session}/turns")).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    LearnedFact {
        turn: text(&turns["items"][0]["id"]),
        fact: text(&fact["id"]),
        content: text(&fact["content"]),
        session,
    }
}

#[test]
fn remaining_facts_are_judged_as_before_when_a_verdict_is_known() {
    run(async {
        let three = ThreeFacts::new(true).await;
        let asked = three.mock.calls_of("judge");
        // The judge must not be asked. This setting would give a wrong verdict.
        three.mock.apply_settings(&json!({"verdict": "independent"})).unwrap();
        three.unsay_second().await;
        three.third_ends_first().await;
        assert_eq!(three.mock.calls_of("judge"), asked, "the verdict was known");
    });
}

#[test]
fn remaining_facts_are_judged_again_when_no_verdict_is_known() {
    run(async {
        let three = ThreeFacts::new(false).await;
        let [first, second, third] = &three.told;
        let asked = three.mock.calls_of("judge");
        three
            .mock
            .apply_settings(&json!({"verdict": "contradicts", "faults": ["judge=hold"]}))
            .unwrap();
        three.unsay_second().await;
        eventually("a judge is asked", async || {
            (three.mock.calls_of("judge") > asked).then_some(())
        })
        .await;
        let question = three.mock.requests_of("judge").pop().unwrap().to_string();
        assert!(
            question.contains(&first.content) && question.contains(&third.content),
            "{question}"
        );
        assert!(!question.contains(&second.content), "{question}");
        // Before the verdict both facts stand.
        for told in [first, third] {
            assert!(three.fact(told).await["invalid_at"].is_null());
        }
        three.assert_ended(second, "unsaid", None).await;
        three.mock.apply_settings(&json!({"faults": []})).unwrap();
        three.third_ends_first().await;
        assert_eq!(three.mock.calls_of("judge"), asked + 1);
    });
}
