//! Curation passes over a long session: contradictions are found, decided once, and taken back with their turns.

use std::collections::BTreeMap;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, run};

const CURATION: &str = "/v1/worlds/vale/curation";
/// One contradiction in ten turns.
const PLANTS: usize = 30;
/// The plants that a person declares as intended: one of three.
const INTENDED: usize = 10;

async fn open_session(backend: &RestClient) -> String {
    let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"});
    let made = backend.post("/v1/sessions", &body).await;
    made["id"].as_str().unwrap().to_owned()
}

async fn say(backend: &RestClient, session: &str, text: &str) {
    let path = format!("/v1/sessions/{session}/turns");
    backend.post(&path, &json!({ "text": text })).await;
}

/// Returns all findings, oldest first.
async fn findings(backend: &RestClient) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let listed = backend.get(&format!("{CURATION}?limit=20{after}")).await;
        found.extend(listed["items"].as_array().unwrap().iter().cloned());
        let Some(next) = listed["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    found.reverse();
    found
}

/// Says ten lines, of which two contradict each other.
async fn say_stretch(backend: &RestClient, session: &str, number: usize) {
    let thing = format!("berry{number}");
    for line in 1..=10 {
        let text = match line {
            3 => format!("I like {thing}."),
            7 => format!("I don't like {thing}."),
            _ => format!("The road is long today, and this is line {line}."),
        };
        say(backend, session, &text).await;
    }
    backend.idle().await;
}

#[test]
fn contradictions_of_a_long_session_are_found_decided_once_and_taken_back() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let session = open_session(&backend).await;
        // The decisions that findings ever had, other than `open`.
        let mut decided: BTreeMap<String, String> = BTreeMap::new();
        let mut observe = |found: &[Value]| {
            for finding in found.iter().filter(|finding| finding["decision"] != "open") {
                let (id, decision) = (finding["id"].as_str().unwrap(), finding["decision"].as_str().unwrap());
                let before = decided.insert(id.to_owned(), decision.to_owned());
                assert!(
                    before.is_none_or(|before| before == decision),
                    "decided twice: {finding}"
                );
            }
        };
        for number in 0..PLANTS {
            say_stretch(&backend, &session, number).await;
            let found = findings(&backend).await;
            assert_eq!(found.len(), number + 1, "{found:?}");
            let newest = found.last().unwrap();
            let first = u64::try_from(number * 10 + 3).unwrap();
            assert_eq!(newest["turns"], json!([first, first + 4]), "{newest}");
            assert!(
                newest["text"].as_str().unwrap().contains(&format!("berry{number}")),
                "{newest}"
            );
            if number % (PLANTS / INTENDED) == 0 {
                let path = format!("{CURATION}/{}:decide", newest["id"].as_str().unwrap());
                let decided = backend
                    .post(&path, &json!({"decision": "intended", "reason": "A test of taste."}))
                    .await;
                assert_eq!(
                    (&decided["decision"], &decided["reason"]),
                    (&json!("intended"), &json!("A test of taste."))
                );
                assert!(decided["decided_by"].is_string(), "{decided}");
            }
            observe(&findings(&backend).await);
        }
        let found = findings(&backend).await;
        let count = |decision: &str| found.iter().filter(|finding| finding["decision"] == decision).count();
        // The scripted model settles an open finding in the next pass.
        assert_eq!(
            (count("intended"), count("fixed"), count("open")),
            (INTENDED, PLANTS - INTENDED - 1, 1)
        );
        let intended = backend.get(&format!("{CURATION}?decision=intended&limit=200")).await;
        assert_eq!(intended["items"].as_array().unwrap().len(), INTENDED);
        let passes = backend.get(&format!("{CURATION}/passes?limit=200")).await;
        let passes = passes["items"].as_array().unwrap();
        assert_eq!(passes.len(), PLANTS);
        assert_eq!(
            (&passes[0]["from_turn"], &passes[0]["to_turn"]),
            (&json!(291), &json!(300))
        );

        // The first 105 turns stand: ten passes, of which the last five turns are read by none.
        backend
            .post(&format!("/v1/sessions/{session}:rewind"), &json!({"turn": 105}))
            .await;
        let left = findings(&backend).await;
        assert_eq!(left.len(), 10, "{left:?}");
        let taken_back = &found[10]["id"].as_str().unwrap();
        let path = format!("{CURATION}/{taken_back}:decide");
        let (status, _) = backend
            .call(reqwest::Method::POST, &path, Some(&json!({"decision": "fixed"})))
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        backend
            .post(&format!("/v1/sessions/{session}:rewind"), &json!({"turn": 0}))
            .await;
        assert!(findings(&backend).await.is_empty());
        let passes = backend.get(&format!("{CURATION}/passes")).await;
        assert!(passes["items"].as_array().unwrap().is_empty(), "{passes}");
        server.stop();
    });
}

#[test]
fn pass_runs_on_demand_and_only_reads_new_turns() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let session = open_session(&backend).await;
        say(&backend, &session, "I like plums.").await;
        let ask = json!({ "dialogue_id": session });
        let run_path = format!("{CURATION}:run");
        let asked = backend.call(reqwest::Method::POST, &run_path, Some(&ask)).await;
        assert_eq!(asked, (StatusCode::ACCEPTED, json!({"queued": true})));
        backend.idle().await;
        let passes = async || backend.get(&format!("{CURATION}/passes?dialogue={session}")).await["items"].clone();
        let first = passes().await;
        assert_eq!(
            (&first[0]["from_turn"], &first[0]["to_turn"]),
            (&json!(1), &json!(1)),
            "{first}"
        );
        let notes = first[0]["narrative_memory"].as_str().unwrap();
        assert!(notes.contains("I like plums."), "{notes}");

        // All turns have been read.
        backend.post(&run_path, &ask).await;
        backend.idle().await;
        assert_eq!(passes().await.as_array().unwrap().len(), 1);
        say(&backend, &session, "It rains.").await;
        backend.post(&run_path, &ask).await;
        backend.idle().await;
        let second = passes().await;
        assert_eq!(
            (&second[0]["from_turn"], &second[0]["to_turn"]),
            (&json!(2), &json!(2)),
            "{second}"
        );
        assert!(
            second[0]["narrative_memory"].as_str().unwrap().starts_with(notes),
            "{second}"
        );

        let unknown = json!({ "dialogue_id": "ses_00000000000000000000000000" });
        let (status, answer) = backend.call(reqwest::Method::POST, &run_path, Some(&unknown)).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
        server.stop();
    });
}
