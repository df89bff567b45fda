//! NPCs talk with each other over real sockets: watched, cut into, joined, asked about, remembered.

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Data, Server, Socket, eventually, run};

/// A server whose model is the mock one, and a conversation of `ergen` and `mira` that is stepped.
fn with_mock() -> (MockHandle, Server) {
    let mock = mock_llm::start(MockOptions::default()).unwrap();
    let url = mock.base_url();
    let env = [
        ("COLLOQUY__LLM__BASE_URL", url.as_str()),
        ("COLLOQUY__LLM__MODEL", "mock"),
        ("COLLOQUY__CONVERSATION__PAUSE_MS", "0"),
        ("COLLOQUY__CONVERSATION__READING_MS_PER_CHAR", "0"),
    ];
    let server = Data::new(&env).start();
    (mock, server)
}

async fn conversation(server: &Server, body: Value) -> String {
    let mut full = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "topic": "the mill"});
    for (key, value) in body.as_object().unwrap() {
        full[key] = value.clone();
    }
    let made = server.backend().post("/v1/npc-conversations", &full).await;
    made["id"].as_str().unwrap().to_owned()
}

async fn watch(socket: &mut Socket, id: &str) -> Value {
    socket
        .send(&json!({"type": "npc_conversation.watch", "event_id": "w", "conversation_id": id, "last_seq": 1}))
        .await;
    loop {
        let event = socket.next().await;
        assert_ne!(event["type"], "error", "{event}");
        if event["type"] == "npc_conversation.created" {
            return event;
        }
    }
}

/// The text of the last reply prompt that the mock model was asked with.
fn last_prompt(mock: &MockHandle) -> String {
    let requests = mock.requests("reply");
    let messages = requests.last().unwrap()["messages"].as_array().unwrap().clone();
    messages
        .iter()
        .map(|message| message["content"].to_string())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn two_talk_by_themselves_and_whoever_was_let_in_watches() {
    run(async {
        let (_mock, server) = with_mock();
        let id = conversation(&server, json!({"max_turns": 3, "auto": false, "watchers": ["p1"]})).await;
        let mut socket = server.player("p1").await;
        let created = watch(&mut socket, &id).await;
        assert_eq!(
            (&created["re"], &created["npc_ids"]),
            (&json!("w"), &json!(["ergen", "mira"]))
        );
        let backend = server.backend();
        for (turn, npc) in [(1, "ergen"), (2, "mira"), (3, "ergen")] {
            backend
                .post(&format!("/v1/npc-conversations/{id}:step"), &json!({}))
                .await;
            let started = socket.until("npc_turn.started").await;
            assert_eq!((&started["turn"], &started["npc_id"]), (&json!(turn), &json!(npc)));
            let mut streamed = String::new();
            let done = loop {
                let event = socket.next().await;
                match event["type"].as_str().unwrap() {
                    "npc_turn.delta" => streamed.push_str(event["text"].as_str().unwrap()),
                    "npc_turn.done" => break event,
                    other => panic!("{other}: {event}"),
                }
            };
            assert_eq!(
                (done["text"].as_str().unwrap(), &done["status"]),
                (&*streamed, &json!("completed"))
            );
            assert_eq!(socket.until("npc_turn.committed").await["turn"], turn);
        }
        let ended = socket.until("npc_conversation.ended").await;
        assert_eq!((&ended["reason"], &ended["turn"]), (&json!("max_turns"), &json!(3)));

        // Who was not let in does not know of it.
        let mut stranger = server.player("p2").await;
        stranger
            .send(&json!({"type": "npc_conversation.watch", "conversation_id": id}))
            .await;
        assert_eq!(stranger.next().await["error"]["code"], "not_found");
        let path = format!("/v1/npc-conversations/{id}/turns");
        assert_eq!(backend.get(&path).await["items"].as_array().unwrap().len(), 3);
    });
}

#[test]
fn a_player_cuts_in_and_the_answer_knows_nothing_of_what_was_unsaid() {
    run(async {
        let (mock, server) = with_mock();
        let id = conversation(&server, json!({"auto": false, "open": true})).await;
        let backend = server.backend();
        for _ in 0..4 {
            backend
                .post(&format!("/v1/npc-conversations/{id}:step"), &json!({}))
                .await;
        }
        let mut socket = server.player("p1").await;
        watch(&mut socket, &id).await;
        socket
            .send(
                &json!({"type": "npc_conversation.interrupt", "event_id": "i", "conversation_id": id, "turn": 2,
                "text": "Wait, what were you two just talking about?"}),
            )
            .await;
        let rewound = socket.until("dialogue.rewound").await;
        assert_eq!(
            (&rewound["turn"], &rewound["removed_turns"]),
            (&json!(2), &json!([3, 4]))
        );
        let joined = socket.until("session.created").await;
        let reply = socket.reply().await;
        assert_eq!((reply.turn, reply.status.as_str()), (1, "completed"));
        let session = joined["session_id"].as_str().unwrap();
        let view = backend.get(&format!("/v1/sessions/{session}")).await;
        assert_eq!(view["npc_ids"], json!(["ergen", "mira"]));
        // The one who spoke last answers, from lines 1 and 2 alone.
        let turns = backend.get(&format!("/v1/sessions/{session}/turns")).await;
        assert_eq!(turns["items"][0]["npc_id"], "mira");
        let prompt = last_prompt(&mock);
        assert!(prompt.contains("[What was said among you]"), "{prompt}");
        let (_, said) = prompt.split_once("[What was said among you]").unwrap();
        assert_eq!(
            (said.matches("- 에르겐: ").count(), said.matches("- Mira: ").count()),
            (1, 1),
            "{said}"
        );
        let stands = backend.get(&format!("/v1/npc-conversations/{id}")).await;
        assert_eq!((&stands["status"], &stands["head_turn"]), (&json!("paused"), &json!(2)));

        // Named, the other one answers.
        socket
            .send(&json!({"type": "player.say", "session_id": session, "text": "And you?", "to": "ergen"}))
            .await;
        socket.reply().await;
        let turns = backend.get(&format!("/v1/sessions/{session}/turns")).await;
        assert_eq!(turns["items"][1]["npc_id"], "ergen");

        // Taken back further, the session that was joined goes with it.
        backend
            .post(&format!("/v1/npc-conversations/{id}:interrupt"), &json!({"turn": 1}))
            .await;
        let closed = socket.until("session.closed").await;
        assert_eq!(closed["reason"], "rewound");
    });
}

struct Language {
    npc: &'static str,
    fact: &'static str,
    topic: &'static str,
    word: &'static str,
    asks: &'static str,
}

/// Witnesses learn what was said, others do not; and who took part tells of it.
fn is_learned_and_told(language: &Language) {
    run(async {
        let data = Data::new(&[]);
        let server = data.start();
        let backend = server.backend();
        for (id, name) in [("witness", "Tomas"), ("outsider", "Hanna")] {
            let path = format!("/v1/worlds/vale/npcs/{id}");
            let body = json!({"name": name, "language": "en"});
            assert!(backend.call(Method::PUT, &path, Some(&body)).await.0.is_success());
        }
        let other = if language.npc == "ergen" { "mira" } else { "ergen" };
        let fact = json!({"subject": "Hanna", "predicate": "like", "object": language.word, "content": language.fact,
            "keywords": [language.word, language.topic], "kind": "preference", "importance": 6});
        backend
            .post(&format!("/v1/worlds/vale/npcs/{}/facts", language.npc), &fact)
            .await;
        let body = json!({"npc_ids": [language.npc, other], "topic": language.topic, "auto": false,
            "witnesses": ["witness"]});
        let id = conversation(&server, body).await;
        let line = backend
            .post(&format!("/v1/npc-conversations/{id}:step"), &json!({}))
            .await;
        let text = line["reply_text"].as_str().unwrap();
        assert!(text.contains(language.word), "it shares what it knows: {text}");
        for npc in [other, "witness"] {
            eventually(&format!("{npc} learns of it"), || async {
                let facts = backend.facts(npc).await;
                facts
                    .into_iter()
                    .find(|fact| fact["content"].as_str().unwrap().contains(language.word))
            })
            .await;
        }
        assert!(backend.facts("outsider").await.is_empty());

        let mut socket = server.player("p1").await;
        let session = socket.session(language.npc, "p1").await;
        let told = socket.say(&session, language.asks).await;
        assert!(told.text.contains(language.word), "it tells what was said: {told:?}");
        let trace = backend.get(&format!("/v1/sessions/{session}/turns/1/trace")).await;
        assert_eq!(trace["intent"], "overheard");
    });
}

#[test]
fn what_npcs_say_is_learned_and_told_in_english() {
    is_learned_and_told(&Language {
        npc: "mira",
        fact: "Hanna likes plums.",
        topic: "Hanna",
        word: "plums",
        asks: "What were you two just talking about?",
    });
}

#[test]
fn what_npcs_say_is_learned_and_told_in_korean() {
    is_learned_and_told(&Language {
        npc: "ergen",
        fact: "한나는 자두를 좋아한다.",
        topic: "한나",
        word: "자두",
        asks: "방금 둘이 무슨 얘기 했어?",
    });
}
