//! Qdrant is killed under load, and started again at the same address. Turns continue, and recall searches by words. At
//! the end every valid fact is a point, and facts unsaid meanwhile stay away.

use std::collections::BTreeSet;

use colloquy::mock_llm::{self, MockOptions};
use serde_json::{Value, json};

use super::nodes::counter_value;
use crate::{
    e2e::on_postgres::outages::{
        FinishedTalk, LINES, Load, PLAYERS, assert_learned_once, eventually_after_outage, readiness, say, session,
        standing_lines, turns_of,
    },
    support::{QdrantDouble, QdrantProcess, RestClient, ServerData, TestServer, run},
};

/// A Qdrant that a test can stop.
trait StoppableQdrant {
    fn url(&self) -> String;
    fn kill(&mut self);
    /// Starts Qdrant again at the same address.
    fn start_again(&mut self);
}

/// Loses its disk at a kill.
impl StoppableQdrant for QdrantProcess {
    fn url(&self) -> String {
        Self::url(self)
    }
    fn kill(&mut self) {
        Self::kill(self);
    }
    fn start_again(&mut self) {
        self.restart();
    }
}

/// Keeps its points.
impl StoppableQdrant for QdrantDouble {
    fn url(&self) -> String {
        Self::url(self)
    }
    fn kill(&mut self) {
        self.stop_serving();
    }
    fn start_again(&mut self) {
        self.serve_again();
    }
}

async fn wait_for_index_status(rest: &RestClient, wanted: &str) {
    eventually_after_outage(&format!("the index to be {wanted}"), async || {
        (readiness(rest, "index").await == wanted).then_some(())
    })
    .await;
}

/// Waits until all lines are learned and indexed.
async fn wait_until_indexed(rest: &RestClient, data: &ServerData) {
    rest.idle().await;
    eventually_after_outage("the outbox to be empty", async || {
        (data.count("SELECT COUNT(*) FROM outbox").await == 0).then_some(())
    })
    .await;
}

async fn teach_likes(rest: &RestClient, session: &str, fruits: &[&str]) {
    for fruit in fruits {
        let line = format!("I like {fruit}.");
        say(rest, session, &line, &line).await.unwrap();
    }
}

/// Asks a question. Returns whether the ledger was searched by words, and the candidate facts.
async fn ask_for_fruit(rest: &RestClient, session: &str, key: &str) -> (bool, Vec<Value>) {
    let line = json!({"text": "What fruit do I like?", "key": key});
    let answer = rest.post_answer(&turns_of(session), &line).await;
    let turn = &answer.body["turn"];
    let trace = rest.get(&format!("{}/{turn}/trace", turns_of(session))).await;
    let by_words = trace["notes"].to_string().contains("recall in the ledger");
    (by_words, trace["candidates"].as_array().unwrap().clone())
}

/// Returns the ids of a player's likes, of all or only the valid facts, and their words.
async fn facts_of(rest: &RestClient, player: &str, valid: bool) -> (BTreeSet<String>, Vec<String>) {
    let facts = rest.facts("mira").await;
    let own = facts.iter().filter(|fact| {
        fact.to_string().contains(&format!("player:{player}")) && (fact["invalid_at"].is_null() || !valid)
    });
    let text = |fact: &Value, what: &str| fact[what].as_str().unwrap().to_owned();
    own.map(|fact| (text(fact, "id"), text(fact, "content"))).unzip()
}

fn mentions(candidates: &[Value], word: &str) -> bool {
    candidates
        .iter()
        .any(|fact| fact["content"].as_str().unwrap().contains(word))
}

/// True if the metrics show a ready index.
async fn is_index_ready(server: &TestServer) -> bool {
    counter_value(server, "colloquy_index_ready").await > 0.5
}

/// Asserts that the outage is visible in the metrics.
async fn assert_outage_is_visible(server: &TestServer) {
    assert!(!is_index_ready(server).await);
    let failed = r#"colloquy_index_calls_total{call="propose",outcome="failed"}"#;
    assert!(counter_value(server, failed).await > 0.0);
}

async fn assert_outage_loses_nothing(data: fn(&[(&str, &str)]) -> ServerData, mut qdrant: impl StoppableQdrant) {
    let mock = mock_llm::start_on_thread(MockOptions {
        latency_ms: 40,
        // Every line searches the index.
        intent: "memory".into(),
        ..MockOptions::default()
    })
    .unwrap();
    let data = data(&[
        ("COLLOQUY__VECTORS__URL", &qdrant.url()),
        ("COLLOQUY__VECTORS__TIMEOUT_MS", "5000"),
        ("COLLOQUY__LLM__BASE_URL", &mock.base_url()),
        ("COLLOQUY__LLM__MODEL", "mock"),
        ("COLLOQUY__TURN__WAIT_FOR_MEMORY_MS", "10"),
        ("COLLOQUY__JOBS__POLL_S", "1"),
        ("COLLOQUY__JOBS__RETRY_BASE_S", "1"),
        ("COLLOQUY__ACTORS__SWEEP_S", "1"),
    ]);
    let server = data.spawn();
    let rest = server.backend();
    wait_for_index_status(&rest, "ready").await;
    // One session unsays indexed facts. The other unsays facts being learned at the start of the outage.
    let [had, learning] = [session(&rest, "p5").await, session(&rest, "p6").await];
    teach_likes(&rest, &had, &["grapes", "peaches", "apples"]).await;
    teach_likes(&rest, &learning, &["grapes"]).await;
    wait_until_indexed(&rest, &data).await;
    let (by_words, candidates) = ask_for_fruit(&rest, &had, "before").await;
    assert!(!by_words && mentions(&candidates, "peaches"), "{candidates:?}");

    // No request may be refused.
    let load = Load::start(&server, &[]).await;
    load.wait_for_lines(1).await;
    let calls = mock.calls_of("extraction");
    mock.apply_settings(&json!({"faults": ["extraction=hold"]})).unwrap();
    teach_likes(&rest, &learning, &["peaches"]).await;
    load.wait_for_lines(LINES).await;
    eventually_after_outage("the extractions to be asked for", async || {
        (mock.calls_of("extraction") > calls + PLAYERS.len() as u64).then_some(())
    })
    .await;
    assert!(is_index_ready(&server).await);
    qdrant.kill();

    load.wait_for_lines(LINES).await;
    wait_for_index_status(&rest, "away").await;
    let (by_words, candidates) = ask_for_fruit(&rest, &had, "meanwhile").await;
    assert!(by_words, "it is not said that the index did not answer");
    assert_outage_is_visible(&server).await;
    for fruit in ["grapes", "peaches", "apples"] {
        assert!(mentions(&candidates, fruit), "{fruit}: {candidates:?}");
    }
    for (session, removed) in [(&had, json!([2, 3, 4, 5])), (&learning, json!([2]))] {
        let back = json!({"turn": 1, "key": "back"});
        let done = rest.post(&format!("/v1/sessions/{session}:rewind"), &back).await;
        assert_eq!(done["rewound"]["removed_turns"], removed, "{done}");
    }
    load.wait_for_lines(1).await;

    qdrant.start_again();
    mock.apply_settings(&json!({"faults": []})).unwrap();
    wait_for_index_status(&rest, "ready").await;
    let mut talks = load.end().await;
    assert!(talks.iter().all(|talked| talked.refused == 0));
    for (player, session) in [("p5", &had), ("p6", &learning)] {
        talks.push(FinishedTalk {
            player,
            session: session.clone(),
            acknowledged: vec!["I like grapes.".to_owned()],
            refused: 0,
        });
    }
    for talked in &talks {
        talked.assert_lines_stand(&rest).await;
    }
    assert_learned_once(&rest, &talks).await;
    wait_until_indexed(&rest, &data).await;
    for (player, session) in [("p5", &had), ("p6", &learning)] {
        let (stands, words) = facts_of(&rest, player, true).await;
        assert_eq!(words, ["The player likes grapes."]);
        let (all, _) = facts_of(&rest, player, false).await;
        let (by_words, candidates) = ask_for_fruit(&rest, session, "afterwards").await;
        assert!(!by_words, "the index is not asked again");
        let considered: BTreeSet<String> = candidates
            .iter()
            .map(|fact| fact["fact"].as_str().unwrap().to_owned())
            .collect();
        assert!(stands.is_subset(&considered), "{candidates:?}");
        assert!(
            all.difference(&stands).all(|unsaid| !considered.contains(unsaid)),
            "what was taken back is back: {candidates:?}"
        );
        assert!(
            candidates
                .iter()
                .any(|fact| fact["score"]["cosine"].as_f64() > Some(0.0)),
            "{candidates:?}"
        );
        assert_eq!(standing_lines(&rest, session).await.len(), 2);
    }
    wait_until_indexed(&rest, &data).await;
    server.stop();

    // Points and valid facts match exactly.
    let checked = data.command().args(["reindex", "--check"]).output().unwrap();
    let told = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{checked:?}");
    assert!(told.contains("the index is what the ledger says"), "{told}");
}

#[test]
fn qdrant_outage_loses_and_resurrects_nothing_when_it_returns_empty() {
    run(assert_outage_loses_nothing(
        ServerData::on_services,
        QdrantProcess::start(),
    ));
}

#[test]
fn qdrant_outage_loses_and_resurrects_nothing_when_it_returns_with_data() {
    run(assert_outage_loses_nothing(
        ServerData::on_services,
        QdrantDouble::start(),
    ));
}

#[test]
fn qdrant_outage_loses_and_resurrects_nothing_on_sqlite() {
    run(assert_outage_loses_nothing(ServerData::new, QdrantProcess::start()));
}
