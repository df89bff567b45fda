//! "What were you two just talking about?": the speakers answer from the lines that stand.

use colloquy::mock_llm::MockHandle;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    fresh,
    in_flight::valid_contents,
    npc_conversation::{conversation, last_prompt, with_mock},
};
use crate::support::{RestClient, eventually, run};

const ASKS_IN_ENGLISH: &str = "What were you two just talking about?";
const ASKS_IN_KOREAN: &str = "방금 둘이 무슨 얘기 했어?";

struct OverheardPhrases {
    npc: &'static str,
    fact: &'static str,
    topic: &'static str,
    word: &'static str,
    /// The answer of the other NPC, in the other language.
    answers: &'static str,
    answers_word: &'static str,
    asks: &'static str,
}

async fn write_fact(backend: &RestClient, npc: &str, content: &str, keywords: [&str; 3]) {
    let fact = json!({"subject": "Hanna", "predicate": "like", "object": keywords[0], "content": content,
        "keywords": keywords, "kind": "preference", "importance": 6});
    backend.post(&format!("/v1/worlds/vale/npcs/{npc}/facts"), &fact).await;
}

async fn step_conversation(backend: &RestClient, id: &str) -> String {
    let line = backend
        .post(&format!("/v1/npc-conversations/{id}:step"), &json!({}))
        .await;
    line["reply_text"].as_str().unwrap().to_owned()
}

async fn wait_until_learned(backend: &RestClient, npc: &str, word: &str) {
    eventually(&format!("{npc} learns of {word}"), || async {
        let facts = valid_contents(backend, npc).await;
        facts.iter().any(|fact| fact.contains(word)).then_some(())
    })
    .await;
}

/// Rewinds a conversation to its first line, and joins a player there.
async fn join_after_first_line(backend: &RestClient, id: &str) -> String {
    let told = backend
        .post(&format!("/v1/npc-conversations/{id}:interrupt"), &json!({"turn": 1}))
        .await;
    assert_eq!(told["turn"], 1, "{told}");
    let join = format!("/v1/npc-conversations/{id}:join");
    let joined = backend.post(&join, &json!({"player_id": "p1"})).await;
    joined["id"].as_str().unwrap().to_owned()
}

async fn reply_to(backend: &RestClient, session: &str, text: &str) -> Value {
    let path = format!("/v1/sessions/{session}/turns");
    backend.post(&path, &json!({ "text": text })).await
}

/// Witnesses and factions learn the lines, and the lines of a joining player; other NPCs do not. The speakers retell
/// the talk without unsaid lines.
fn assert_talk_is_learned_and_retold(language: &OverheardPhrases) {
    run(async {
        let data = fresh(&[]);
        let server = data.start();
        let backend = server.backend();
        let npcs = [
            ("witness", "Tomas", json!([])),
            ("miller", "Oskar", json!(["millers"])),
            ("outsider", "Hanna", json!(["smiths"])),
        ];
        for (id, name, factions) in npcs {
            let path = format!("/v1/worlds/vale/npcs/{id}");
            let body = json!({"name": name, "language": "en", "factions": factions});
            assert!(backend.call(Method::PUT, &path, Some(&body)).await.0.is_success());
        }
        let other = if language.npc == "ergen" { "mira" } else { "ergen" };
        write_fact(
            &backend,
            language.npc,
            language.fact,
            [language.word, language.topic, "fruit"],
        )
        .await;
        let body = json!({"npc_ids": [language.npc, other], "topic": language.topic, "auto": false,
            "witnesses": ["witness"], "factions": ["millers"], "watchers": ["p1"]});
        let id = conversation(&server, body).await;
        let text = step_conversation(&backend, &id).await;
        assert!(text.contains(language.word), "it shares what it knows: {text}");
        for npc in [other, "witness", "miller"] {
            wait_until_learned(&backend, npc, language.word).await;
        }
        assert!(backend.facts("outsider").await.is_empty());

        // The other NPC answers, and the answer is rewound.
        let keywords = [language.answers_word, language.topic, language.word];
        write_fact(&backend, other, language.answers, keywords).await;
        let text = step_conversation(&backend, &id).await;
        assert!(text.contains(language.answers_word), "it shares what it knows: {text}");
        wait_until_learned(&backend, language.npc, language.answers_word).await;
        step_conversation(&backend, &id).await;
        let session = join_after_first_line(&backend, &id).await;
        let told = reply_to(&backend, &session, language.asks).await;
        let told_of = |told: &str| (told.contains(language.word), told.contains(language.answers_word));
        assert_eq!(told["npc_id"], language.npc, "{told}");
        assert_eq!(told_of(told["reply_text"].as_str().unwrap()), (true, false), "{told}");
        for npc in [language.npc, "witness", "miller"] {
            let facts = valid_contents(&backend, npc).await;
            assert!(
                !facts.iter().any(|fact| fact.contains(language.answers_word)),
                "{npc}: {facts:?}"
            );
        }

        // Witnesses of the conversation also hear the player who joined.
        reply_to(&backend, &session, "I like pears.").await;
        for npc in [other, "witness", "miller"] {
            wait_until_learned(&backend, npc, "pears").await;
        }
        assert!(backend.facts("outsider").await.is_empty());

        // These conversations are newer, but have no lines.
        for _ in 0..5 {
            conversation(&server, json!({"npc_ids": [language.npc, other], "auto": false})).await;
        }
        let mut socket = server.player("p1").await;
        let session = socket.session(language.npc, "p1").await;
        let told = socket.say_line(&session, language.asks).await;
        assert_eq!(
            told_of(&told.text),
            (true, false),
            "it tells what was said and stands: {told:?}"
        );
        let trace = backend.get(&format!("/v1/sessions/{session}/turns/1/trace")).await;
        assert_eq!(trace["intent"], "overheard");
    });
}

#[test]
fn npc_talk_is_learned_and_retold_in_english() {
    assert_talk_is_learned_and_retold(&OverheardPhrases {
        npc: "mira",
        fact: "Hanna likes plums.",
        topic: "Hanna",
        word: "plums",
        answers: "한나는 무화과를 좋아한다.",
        answers_word: "무화과",
        asks: ASKS_IN_ENGLISH,
    });
}

#[test]
fn npc_talk_is_learned_and_retold_in_korean() {
    assert_talk_is_learned_and_retold(&OverheardPhrases {
        npc: "ergen",
        fact: "한나는 자두를 좋아한다.",
        topic: "한나",
        word: "자두",
        answers: "Hanna likes figs.",
        answers_word: "figs",
        asks: ASKS_IN_KOREAN,
    });
}

pub(super) const TASKS: [&str; 5] = ["reply", "intent", "extraction", "judge", "summary"];

/// Returns the prompts after the given counts of calls per task.
pub(super) fn prompts_since(mock: &MockHandle, calls: [u64; 5]) -> Vec<(&'static str, String)> {
    let mut asked = Vec::new();
    for (task, before) in TASKS.into_iter().zip(calls) {
        let since = usize::try_from(mock.calls_of(task) - before).unwrap();
        let requests = mock.requests_of(task);
        assert!(since <= requests.len(), "not all of them are remembered");
        let new = &requests[requests.len() - since..];
        asked.extend(new.iter().map(|request| (task, request["messages"].to_string())));
    }
    asked
}

#[test]
fn npc_asked_about_a_talk_is_shown_no_unsaid_line() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        let id = conversation(&server, json!({"auto": false, "open": true, "interrupters": "all"})).await;
        for (line, word) in [
            ("Hanna likes plums, they say.", "plums"),
            ("Hanna hates figs. The mill is shut.", "figs"),
            ("The herons stay away.", ""),
        ] {
            mock.apply_settings(&json!({ "reply": line })).unwrap();
            assert_eq!(step_conversation(&backend, &id).await, line);
            for npc in ["ergen", "mira"] {
                wait_until_learned(&backend, npc, word).await;
            }
        }
        backend.idle().await;
        mock.apply_settings(&json!({"reply": "", "intent": "overheard"}))
            .unwrap();
        let calls = TASKS.map(|task| mock.calls_of(task));
        let joined = join_after_first_line(&backend, &id).await;
        let mut socket = server.player("p2").await;
        let alone = socket.session("mira", "p2").await;
        for session in [&joined, &alone] {
            for question in [ASKS_IN_KOREAN, ASKS_IN_ENGLISH] {
                reply_to(&backend, session, question).await;
                let prompt = last_prompt(&mock);
                assert!(prompt.contains("Hanna likes plums, they say."), "{prompt}");
            }
        }
        backend.idle().await;
        let asked = prompts_since(&mock, calls);
        assert!(asked.len() >= 8, "four turns, each with an intent: {asked:?}");
        for (task, messages) in asked {
            for word in ["figs", "mill is shut", "herons"] {
                assert!(!messages.contains(word), "{task} was told of `{word}`: {messages}");
            }
        }
    });
}
