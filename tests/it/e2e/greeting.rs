//! The NPC speaks first if the session requests a greeting.

use reqwest::Method;
use serde_json::{Value, json};

use super::fresh;
use crate::support::{TestServer, eventually, run};

struct GreetingPhrases {
    npc: &'static str,
    name: &'static str,
    tells: &'static str,
    /// The name that a greeting uses for a known player.
    known: &'static str,
}

const ENGLISH: GreetingPhrases = GreetingPhrases {
    npc: "mira",
    name: "Bea",
    tells: "My name is Bea.",
    known: "Bea",
};

const KOREAN: GreetingPhrases = GreetingPhrases {
    npc: "ergen",
    name: "지민",
    tells: "내 이름은 지민이야.",
    known: "지민",
};

fn opening_request(language: &GreetingPhrases) -> Value {
    json!({"world_id": "vale", "npc_id": language.npc, "player_id": "p1", "greeting": true})
}

/// Removes an NPC's own greeting from the demo.
async fn remove_persona_greeting(server: &TestServer, npc: &str) {
    let rest = server.backend();
    let path = format!("/v1/worlds/vale/npcs/{npc}");
    let known = rest.get(&path).await;
    let mut body = json!({});
    for field in ["name", "language", "factions", "persona"] {
        body[field] = known[field].clone();
    }
    body["persona"]["greeting"] = json!("");
    let (status, answer) = rest.call(Method::PUT, &path, Some(&body)).await;
    assert!(status.is_success(), "{answer}");
}

#[test]
fn greeting_of_a_persona_uses_its_own_words_and_no_model() {
    run(async {
        let server = fresh(&[]).start();
        let rest = server.backend();
        let npc = rest.get("/v1/worlds/vale/npcs/mira").await;
        let words = npc["persona"]["greeting"].as_str().unwrap();
        let mut socket = server.player("p1").await;
        let mut create = opening_request(&ENGLISH);
        create["type"] = json!("session.create");
        create["event_id"] = json!("c1");
        socket.send(&create).await;
        let created = socket.until("session.created").await;
        assert_eq!((&created["re"], &created["head_turn"]), (&json!("c1"), &json!(0)));
        let started = socket.until("turn.started").await;
        assert_eq!((&started["re"], &started["turn"]), (&json!("c1"), &json!(1)));
        let greeting = socket.reply().await;
        assert_eq!((greeting.text.as_str(), greeting.status.as_str()), (words, "completed"));
        assert_eq!(greeting.streamed, words);

        let session = created["session_id"].as_str().unwrap().to_owned();
        let path = format!("/v1/sessions/{session}/turns");
        let trace = rest.get(&format!("{path}/1/trace")).await;
        let called: Vec<_> = trace["calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| &call["task"])
            .collect();
        assert!(
            !called.contains(&&json!("intent")),
            "nothing was said that had to be sorted: {trace}"
        );
        assert!(called.contains(&&json!("reply")), "{trace}");
        assert_eq!(trace["calls"][1]["model"], "persona.greeting", "{trace}");

        // Later prompts contain the greeting, but not as a player's line.
        let second = socket.say_line(&session, "What do you have to eat?").await;
        assert_eq!(second.turn, 2);
        let turns = rest.get(&path).await;
        assert_eq!(turns["items"][0]["player_text"], "");
        assert_eq!(turns["items"][0]["reply_text"], words);
        let preview = rest
            .post(
                &format!("/v1/sessions/{session}/context"),
                &json!({"text": "And to drink?"}),
            )
            .await;
        let messages = preview["messages"].as_array().unwrap();
        let at = messages.iter().position(|message| message["content"] == words).unwrap();
        assert_eq!(
            messages[at - 1]["role"],
            "user",
            "something comes before a reply: {preview}"
        );
        assert_eq!(messages[at]["role"], "assistant");
    });
}

fn assert_player_is_recognised(language: &GreetingPhrases) {
    run(async {
        let server = fresh(&[]).start();
        remove_persona_greeting(&server, language.npc).await;
        let rest = server.backend();
        let stranger = rest.post("/v1/sessions", &opening_request(language)).await;
        let greeting = &stranger["greeting"];
        assert_eq!(
            (&greeting["turn"], &stranger["head_turn"]),
            (&json!(1), &json!(1)),
            "{stranger}"
        );
        let text = greeting["reply_text"].as_str().unwrap();
        assert!(!text.is_empty() && !text.contains(language.known), "{stranger}");

        let mut socket = server.player("p1").await;
        let session = socket.session(language.npc, "p1").await;
        socket.say_line(&session, language.tells).await;
        eventually("the name to be remembered", || async {
            let facts = rest.facts(language.npc).await;
            facts
                .into_iter()
                .find(|fact| fact["content"].as_str().unwrap().contains(language.name))
        })
        .await;
        let again = rest.post("/v1/sessions", &opening_request(language)).await;
        let text = again["greeting"]["reply_text"].as_str().unwrap();
        assert!(text.contains(language.known), "one who is known is greeted so: {text}");
    });
}

#[test]
fn greeting_recognises_a_known_player_in_english() {
    assert_player_is_recognised(&ENGLISH);
}

#[test]
fn greeting_recognises_a_known_player_in_korean() {
    assert_player_is_recognised(&KOREAN);
}

#[test]
fn greeting_is_regenerated_and_rewound_like_any_turn() {
    run(async {
        let server = fresh(&[]).start();
        let rest = server.backend();
        let opened = rest.post("/v1/sessions", &opening_request(&ENGLISH)).await;
        let path = format!("/v1/sessions/{}", opened["id"].as_str().unwrap());
        let first = &opened["greeting"];
        let anew = rest.post(&format!("{path}:regenerate"), &json!({"key": "k1"})).await;
        assert_eq!((&anew["turn"], &anew["player_text"]), (&json!(1), &json!("")), "{anew}");
        assert_ne!(anew["id"], first["id"]);
        assert_eq!(anew["reply_text"], first["reply_text"]);
        let cut = rest
            .post(&format!("{path}:interrupt"), &json!({"turn": 1, "heard_chars": 7}))
            .await;
        assert_eq!(cut["turn"], 1, "{cut}");
        let turns = rest.get(&format!("{path}/turns")).await;
        assert_eq!(turns["items"][0]["reply_text"], "Come in", "{turns}");
        rest.post(&format!("{path}:rewind"), &json!({"turn": 0})).await;
        assert_eq!(rest.get(&path).await["head_turn"], 0);
    });
}

#[test]
fn greeting_repeated_after_a_rewind_reveals_nothing_unsaid() {
    run(async {
        let server = fresh(&[]).start();
        let rest = server.backend();
        let (body, key) = (opening_request(&ENGLISH), [("Idempotency-Key", "opened once")]);
        let open = async || {
            let answer = rest
                .answer(Method::POST, "/v1/sessions", Some(&body), &key)
                .await
                .unwrap();
            assert_eq!(answer.status, 201);
            answer.body
        };
        let opened = open().await;
        let again = open().await;
        for same in ["id", "greeting", "head_turn", "status"] {
            assert_eq!(again[same], opened[same], "{same}");
        }
        let path = format!("/v1/sessions/{}", opened["id"].as_str().unwrap());
        rest.post(&format!("{path}:rewind"), &json!({"turn": 0})).await;
        let again = open().await;
        assert_eq!(
            (&again["id"], &again["head_turn"]),
            (&opened["id"], &json!(0)),
            "{again}"
        );
        assert!(again.get("greeting").is_none(), "{again}");
        assert_eq!(rest.call(Method::DELETE, &path, None).await.0, 204);
        assert_eq!(open().await["status"], "closed");
    });
}
