//! Curation passes over a long session: contradictions are found, decided once, and taken back with their turns.

use std::collections::BTreeMap;

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{fresh, scenarios::put};
use crate::support::{RestClient, run};

const CURATION: &str = "/v1/worlds/vale/curation";
/// One contradiction in ten turns.
const PLANTS: usize = 30;
/// The plants that a person declares as intended: one of three.
const INTENDED: usize = 10;

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
        let server = fresh(&[("COLLOQUY__CURATION__PLAYER_PASSES_PER_HOUR", "0")]).start();
        let backend = server.backend();
        let session = backend.open_session("mira", "p1").await;
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
        let session = backend.open_session("mira", "p1").await;
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

/// Runs a pass, or makes it without a write, and returns the prompt of its request.
async fn prompt_of_pass(mock: &MockHandle, backend: &RestClient, session: &str, dry_run: bool) -> String {
    let before = mock.calls_of("curation");
    let ask = json!({ "dialogue_id": session, "dry_run": dry_run });
    backend.post(&format!("{CURATION}:run"), &ask).await;
    backend.idle().await;
    assert_eq!(mock.calls_of("curation"), before + 1);
    let requests = mock.requests_of("curation");
    let content = &requests.last().unwrap()["messages"][0]["content"];
    content.as_str().unwrap().to_owned()
}

/// Returns the lines of a prompt with this element, without the lines of the instructions.
fn elements<'p>(prompt: &'p str, name: &str) -> Vec<&'p str> {
    let start = format!("<{name}");
    prompt.lines().filter(|line| line.starts_with(&start)).collect()
}

/// Writes lore of which the turns name a part, and facts of which Mira knows a part.
async fn author_texts(backend: &RestClient) {
    let lore = [
        (
            "well",
            json!({"name": "Silver Well", "content": "The Silver Well is dry since the <flood>."}),
        ),
        (
            "keep",
            json!({"name": "Iron Keep", "content": "Nine knights hold the Iron Keep."}),
        ),
        (
            "mill",
            json!({"name": "Old Mill", "content": "The miller is a spy.",
            "when": [{"item": "letter"}]}),
        ),
        (
            "barn",
            json!({"name": "Red Barn", "content": "Ergen hides in the Red Barn.", "known_by": {"npcs": ["ergen"]}}),
        ),
    ];
    for (id, entry) in lore {
        put(backend, &format!("/v1/worlds/vale/lore/{id}"), &entry).await;
    }
    for (npc, private_to, content) in [
        ("mira", None, "The bridge fell in spring."),
        ("mira", Some("p1"), "The player owes Mira a boat."),
        ("mira", Some("p2"), "The player is a thief."),
        ("ergen", None, "The smith is a king."),
    ] {
        let fact = json!({
            "subject": "it", "predicate": "be", "object": content, "content": content, "private_to": private_to,
            "kind": "profile",
        });
        backend.post(&format!("/v1/worlds/vale/npcs/{npc}/facts"), &fact).await;
    }
}

#[test]
fn pass_reads_facts_of_its_dialogue_authored_facts_and_named_lore() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = fresh(&[]).with_mock(&mock.base_url()).start();
        let backend = server.backend();
        author_texts(&backend).await;
        let (session, other) = (
            backend.open_session("mira", "p1").await,
            backend.open_session("mira", "p1").await,
        );
        let tell = async |session: &str, text: &str| {
            say(&backend, session, text).await;
            backend.idle().await;
        };
        tell(&session, "I like plums.").await;
        tell(&session, "I like figs.").await;
        let plums = r#"<fact turn="1" by="player">The player likes plums.</fact>"#;
        let prompt = prompt_of_pass(&mock, &backend, &session, true).await;
        assert_eq!(
            elements(&prompt, "fact"),
            [plums],
            "those of the last turn may be missing: {prompt}"
        );
        tell(&session, "Forget that I like figs.").await;
        tell(&session, "I like bread.").await;
        // The same taste again is a newer fact of the other session.
        tell(&other, "I like walnuts.").await;
        tell(&other, "I like plums.").await;
        tell(&session, "What of the silver well, the Old Mill and the Red Barn?").await;
        let facts = backend.get("/v1/worlds/vale/npcs/mira/facts?limit=100").await;
        let facts = facts["items"].as_array().unwrap();
        let bread = facts.iter().find(|fact| fact["object"] == "bread").unwrap();
        let path = format!("/v1/facts/{}", bread["id"].as_str().unwrap());
        let (status, answer) = backend.call(Method::DELETE, &path, None).await;
        assert!(status.is_success(), "{status} {answer}");

        let prompt = prompt_of_pass(&mock, &backend, &session, false).await;
        assert_eq!(elements(&prompt, "fact"), [plums], "{prompt}");
        assert_eq!(
            elements(&prompt, "canon"),
            [
                "<canon>The bridge fell in spring.</canon>",
                "<canon>The player owes Mira a boat.</canon>"
            ],
            "{prompt}"
        );
        let well = "<lore name=\"Silver Well\">The Silver Well is dry since the \u{2039}flood\u{203a}.</lore>";
        assert_eq!(elements(&prompt, "lore"), [well], "{prompt}");

        // A fact of a turn that no longer stands is gone from the next pass.
        tell(&session, "I like melons.").await;
        tell(&session, "Go on.").await;
        let melons = r#"<fact turn="6" by="player">The player likes melons.</fact>"#;
        let prompt = prompt_of_pass(&mock, &backend, &session, false).await;
        assert_eq!(elements(&prompt, "fact"), [plums, melons], "{prompt}");
        assert!(elements(&prompt, "lore").is_empty(), "the turn names none: {prompt}");
        backend
            .post(&format!("/v1/sessions/{session}:rewind"), &json!({"turn": 5}))
            .await;
        tell(&session, "It rains.").await;
        let prompt = prompt_of_pass(&mock, &backend, &session, false).await;
        assert_eq!(elements(&prompt, "fact"), [plums], "{prompt}");

        // The rewind of the other session takes back nothing that a pass over this one rests on.
        backend
            .post(&format!("/v1/sessions/{other}:rewind"), &json!({"turn": 0}))
            .await;
        tell(&session, "It snows.").await;
        let prompt = prompt_of_pass(&mock, &backend, &session, false).await;
        assert_eq!(elements(&prompt, "fact"), [plums], "{prompt}");
        server.stop();
    });
}
