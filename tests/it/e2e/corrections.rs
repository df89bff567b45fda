//! A person corrects or removes a fact: its old words are in no later prompt, and a running session has a mark.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, run};

/// An NPC and what a player tells it, in its language.
struct Talk {
    npc: &'static str,
    likes: &'static str,
    fruit: &'static str,
    /// The sentence with another fruit, and the fruit.
    corrected: (&'static str, &'static str),
    question: &'static str,
    /// The category of the fruits.
    category: &'static str,
    /// What the mark says of the old sentence.
    mark: &'static str,
}

const TALKS: [Talk; 2] = [
    Talk {
        npc: "mira",
        likes: "I like mangoes.",
        fruit: "mango",
        corrected: ("The player likes limes.", "limes"),
        question: "What fruit do I like?",
        category: "fruit",
        mark: "- The player likes limes. (Wrong above: The player likes mangoes.)",
    },
    Talk {
        npc: "ergen",
        likes: "나는 망고를 좋아해.",
        fruit: "망고",
        corrected: ("플레이어는 라임을 좋아한다.", "라임"),
        question: "내가 좋아하는 과일이 뭐였지?",
        category: "과일",
        mark: "- 플레이어는 라임을 좋아한다. (틀린 말: ",
    },
];

async fn say(backend: &RestClient, session: &str, text: &str) -> Value {
    let path = format!("/v1/sessions/{session}/turns");
    let turn = backend.post(&path, &json!({ "text": text })).await;
    backend.idle().await;
    turn
}

/// Returns the text of the prompt for a line.
async fn prompt(backend: &RestClient, session: &str, text: &str) -> String {
    let body = json!({"text": text, "intent": "memory"});
    let preview = backend.post(&format!("/v1/sessions/{session}/context"), &body).await;
    let messages = preview["messages"].as_array().unwrap().iter();
    let texts: Vec<&str> = messages.map(|message| message["content"].as_str().unwrap()).collect();
    texts.join("\n")
}

/// Returns the valid fact about a fruit.
async fn fact_with(backend: &RestClient, npc: &str, word: &str) -> Value {
    let facts = backend
        .get(&format!("/v1/worlds/vale/npcs/{npc}/facts?player_id=p1"))
        .await;
    let mut facts = facts["items"].as_array().unwrap().iter();
    let found = facts.find(|fact| fact["content"].as_str().unwrap().contains(word));
    found.unwrap_or_else(|| panic!("no fact with {word}")).clone()
}

#[test]
fn corrected_words_are_in_no_later_prompt_and_marked_in_the_running_session() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        for talk in TALKS {
            let session = backend.open_session(talk.npc, "p1").await;
            say(&backend, &session, talk.likes).await;
            let before = backend.open_session(talk.npc, "p1").await;
            assert!(prompt(&backend, &before, talk.question).await.contains(talk.fruit));
            let fact = fact_with(&backend, talk.npc, talk.fruit).await;
            let path = format!("/v1/facts/{}", fact["id"].as_str().unwrap());
            let (content, object) = talk.corrected;
            let alone = json!({ "content": content });
            let (status, refused) = backend.call(Method::PATCH, &path, Some(&alone)).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
            assert_eq!(refused["errors"][0]["param"], "object", "{refused}");
            let whole = json!({"content": content, "object": object, "keywords": [object, talk.category]});
            let (status, corrected) = backend.call(Method::PATCH, &path, Some(&whole)).await;
            assert_eq!(status, StatusCode::OK, "{corrected}");
            backend.idle().await;

            let after = backend.open_session(talk.npc, "p1").await;
            for session in [&before, &after] {
                let shown = prompt(&backend, session, talk.question).await;
                assert!(shown.contains(content) && !shown.contains(talk.fruit), "{shown}");
            }
            let shown = prompt(&backend, &session, talk.question).await;
            assert!(shown.contains(talk.mark), "{shown}");
            let turn = say(&backend, &session, talk.question).await;
            let number = turn["turn"].as_u64().or(turn["number"].as_u64()).unwrap();
            let trace = format!("/v1/sessions/{session}/turns/{number}/trace?verify=1");
            let verified = backend.get(&trace).await;
            assert_eq!(verified["verification"]["same"], true, "{}", verified["verification"]);

            // The old sentence again: its words are back.
            let id = corrected["id"].as_str().unwrap();
            backend.call(Method::DELETE, &format!("/v1/facts/{id}"), None).await;
            backend.post(&format!("{path}:restore"), &json!({})).await;
            backend.idle().await;
            let shown = prompt(&backend, &after, talk.question).await;
            assert!(shown.contains(talk.fruit) && !shown.contains(content), "{shown}");
        }
    });
}

#[test]
fn sentence_corrected_in_place_and_removed_fact_leave_no_words_until_they_are_restored() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let session = backend.open_session("mira", "p1").await;
        say(&backend, &session, "I work at the tannery.").await;
        let asked = "Where do I work?";
        let fact = fact_with(&backend, "mira", "tannery").await;
        let path = format!("/v1/facts/{}", fact["id"].as_str().unwrap());
        let (status, _) = backend.call(Method::DELETE, &path, None).await;
        assert_eq!(status, StatusCode::OK);
        backend.idle().await;
        let fresh_session = backend.open_session("mira", "p1").await;
        let shown = prompt(&backend, &fresh_session, asked).await;
        assert!(!shown.contains("tannery"), "{shown}");
        let shown = prompt(&backend, &session, asked).await;
        assert!(
            shown.contains("- Wrong above: The player works at the tannery."),
            "{shown}"
        );
        backend.post(&format!("{path}:restore"), &json!({})).await;
        backend.idle().await;
        let shown = prompt(&backend, &session, asked).await;
        assert!(!shown.contains("Wrong above"), "{shown}");
        assert!(prompt(&backend, &fresh_session, asked).await.contains("tannery"));

        // The sentence says where; the object stays.
        let content = fact["content"].as_str().unwrap();
        let object = fact["object"].as_str().unwrap();
        let reworded = format!("Since spring, the player is a porter: {object}.");
        let reword = async |content: &str| {
            let (status, answer) = backend
                .call(Method::PATCH, &path, Some(&json!({ "content": content })))
                .await;
            assert_eq!((status, &answer["id"]), (StatusCode::OK, &fact["id"]), "{answer}");
            backend.idle().await;
        };
        reword(&reworded).await;
        let shown = prompt(&backend, &session, asked).await;
        assert!(shown.contains(&reworded), "{shown}");
        reword(content).await;
        let shown = prompt(&backend, &session, asked).await;
        assert!(shown.contains(content) && !shown.contains("porter"), "{shown}");
    });
}
