//! NPCs talk with each other over real sockets. Players watch, interrupt, join and ask, and NPCs remember.

use std::collections::BTreeMap;

use colloquy::{
    mock_llm::{self, MockHandle, MockOptions},
    tenancy::Role,
};
use reqwest::Method;
use serde_json::{Value, json};

use super::fresh;
use crate::support::{TestServer, TestSocket, run};

/// Starts a server with the mock model, for a stepped conversation of `ergen` and `mira`.
pub fn with_mock() -> (MockHandle, TestServer) {
    let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let env = [
        ("COLLOQUY__CONVERSATION__PAUSE_MS", "0"),
        ("COLLOQUY__CONVERSATION__READING_MS_PER_CHAR", "0"),
    ];
    let server = fresh(&env).with_mock(&mock.base_url()).start();
    (mock, server)
}

pub async fn conversation(server: &TestServer, body: Value) -> String {
    let mut full = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "topic": "the mill"});
    for (key, value) in body.as_object().unwrap() {
        full[key] = value.clone();
    }
    let made = server.backend().post("/v1/npc-conversations", &full).await;
    made["id"].as_str().unwrap().to_owned()
}

pub async fn watch(socket: &mut TestSocket, id: &str) -> Value {
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

/// Returns the text of the last reply prompt of the mock model.
pub fn last_prompt(mock: &MockHandle) -> String {
    let requests = mock.requests_of("reply");
    let messages = requests.last().unwrap()["messages"].as_array().unwrap().clone();
    messages
        .iter()
        .map(|message| message["content"].to_string())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn stepped_conversation_of_two_npcs_is_watched_by_admitted_players() {
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

        // A player without admission cannot see the conversation.
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
fn self_paced_conversation_of_two_npcs_ends_when_all_is_said() {
    run(async {
        let (mock, server) = with_mock();
        mock.apply_settings(&json!({"faults": ["reply=hold"]})).unwrap();
        let id = conversation(&server, json!({"max_turns": 3, "watchers": ["p1"]})).await;
        let mut socket = server.player("p1").await;
        assert_eq!(watch(&mut socket, &id).await["auto"], true);
        mock.apply_settings(&json!({"faults": []})).unwrap();
        for turn in 1..=3 {
            assert_eq!(socket.until("npc_turn.committed").await["turn"], turn);
        }
        assert_eq!(socket.until("npc_conversation.ended").await["reason"], "max_turns");
        let backend = server.backend();
        let turns = backend.get(&format!("/v1/npc-conversations/{id}/turns")).await;
        let turns = turns["items"].as_array().unwrap();
        let spoke: Vec<&Value> = turns.iter().map(|turn| &turn["npc_id"]).collect();
        assert_eq!(spoke, ["ergen", "mira", "ergen"]);
    });
}

#[test]
fn player_interrupt_is_answered_without_unsaid_lines() {
    run(async {
        let (mock, server) = with_mock();
        let id = conversation(&server, json!({"auto": false, "open": true, "interrupters": "all"})).await;
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
        // The last speaker answers, from lines 1 and 2 alone.
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

        // Addressed by name, the other NPC answers.
        socket
            .send(&json!({"type": "player.say", "session_id": session, "text": "And you?", "to": "ergen"}))
            .await;
        socket.reply().await;
        let turns = backend.get(&format!("/v1/sessions/{session}/turns")).await;
        assert_eq!(turns["items"][1]["npc_id"], "ergen");

        // A further rewind also closes the joined session.
        let back = json!({"turn": 1, "by": "p7"});
        backend
            .post(&format!("/v1/npc-conversations/{id}:interrupt"), &back)
            .await;
        let closed = socket.until("session.closed").await;
        assert_eq!(closed["reason"], "rewound");
        // The audit log names the player, for the player's interrupt and for the backend's interrupt on the player's
        // behalf.
        let admin = server.rest(Role::Admin);
        let log = admin.get("/v1/audit").await["items"].as_array().unwrap().clone();
        let cuts: Vec<_> = log
            .iter()
            .filter(|row| row["action"] == "conversation.interrupt")
            .map(|row| (&row["object"], &row["role"], &row["player_id"]))
            .collect();
        let object = json!(id);
        assert_eq!(
            cuts,
            [
                (&object, &json!("backend"), &json!("p7")),
                (&object, &json!("player"), &json!("p1"))
            ]
        );
        let player = server.rest(Role::Player);
        let path = format!("/v1/npc-conversations/{id}:interrupt");
        let (status, refused) = player.call(Method::POST, &path, Some(&back)).await;
        assert_eq!((status.as_u16(), &refused["param"]), (403, &json!("by")));
    });
}

/// Cuts the first line while streaming.
async fn cut_first_line(mock: &MockHandle, server: &TestServer, socket: &mut TestSocket, id: &str) -> Value {
    mock.apply_settings(&json!({"tokens_per_s": 100, "deltas": 400}))
        .unwrap();
    watch(socket, id).await;
    let step = format!("/v1/npc-conversations/{id}:step");
    let (backend, path) = (server.backend(), step.clone());
    let stepped = tokio::spawn(async move { backend.post(&path, &json!({})).await });
    socket.until("npc_turn.delta").await;
    let path = format!("/v1/npc-conversations/{id}:interrupt");
    let cut = server.backend().post(&path, &json!({})).await;
    assert_eq!((&cut["interrupted"], &cut["turn"]), (&json!(true), &json!(1)), "{cut}");
    let said = stepped.await.unwrap();
    assert_eq!(said["status"], "interrupted");
    socket.until("npc_turn.committed").await;
    mock.apply_settings(&json!({"tokens_per_s": 0, "deltas": 8})).unwrap();
    said
}

#[test]
fn npc_line_cut_while_streaming_is_continued() {
    run(async {
        let (mock, server) = with_mock();
        let id = conversation(&server, json!({"auto": false, "open": true, "interrupters": "all"})).await;
        let mut socket = server.player("p1").await;
        let cut = cut_first_line(&mock, &server, &mut socket, &id).await;
        let backend = server.backend();
        let resume = format!("/v1/npc-conversations/{id}:resume");
        let resumed = backend.post(&resume, &json!({})).await;
        assert_eq!((&resumed["status"], &resumed["head_turn"]), (&json!("open"), &json!(0)));
        let rewound = socket.until("dialogue.rewound").await;
        assert_eq!((&rewound["turn"], &rewound["removed_turns"]), (&json!(0), &json!([1])));
        // No step is needed: the resume itself requests the line.
        socket.until("npc_turn.committed").await;
        let turns = backend.get(&format!("/v1/npc-conversations/{id}/turns")).await;
        let whole = &turns["items"][0];
        assert_eq!(
            (&whole["turn"], &whole["npc_id"]),
            (&json!(1), &cut["npc_id"]),
            "{whole}"
        );
        assert_eq!(whole["status"], "completed");
        // The line starts with all streamed text, except for a word cut in two.
        let said = cut["reply_text"].as_str().unwrap().trim_end();
        let words = said.rsplit_once(' ').map_or(said, |(words, _)| words);
        let text = whole["reply_text"].as_str().unwrap();
        assert!(text.starts_with(words) && text.len() > said.len(), "{said}: {text}");
        let asked = mock.requests_of("reply").pop().unwrap();
        let roles: Vec<&str> = asked["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles[roles.len() - 3..], ["user", "assistant", "user"], "{asked}");
        // A complete line is not continued.
        backend.post(&resume, &json!({})).await;
        let view = backend.get(&format!("/v1/npc-conversations/{id}")).await;
        assert_eq!(view["head_turn"], 1);
    });
}

#[test]
fn cut_line_that_a_player_continued_from_stands() {
    run(async {
        let (mock, server) = with_mock();
        let id = conversation(&server, json!({"auto": false, "open": true, "interrupters": "all"})).await;
        let mut socket = server.player("p1").await;
        cut_first_line(&mock, &server, &mut socket, &id).await;
        let backend = server.backend();
        let join = format!("/v1/npc-conversations/{id}:join");
        let joined = backend.post(&join, &json!({"player_id": "p1"})).await;
        let session = joined["id"].as_str().unwrap();
        let turns = format!("/v1/sessions/{session}/turns");
        backend.post(&turns, &json!({"text": "Go on, I am listening."})).await;
        backend
            .post(&format!("/v1/npc-conversations/{id}:resume"), &json!({}))
            .await;
        let view = backend.get(&format!("/v1/npc-conversations/{id}")).await;
        assert_eq!((&view["status"], &view["head_turn"]), (&json!("open"), &json!(1)));
        assert_eq!(backend.get(&format!("/v1/sessions/{session}")).await["status"], "open");
    });
}

#[test]
fn next_speaker_is_chosen_by_the_model_or_else_by_the_rule() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        for id in ["tomas", "hanna"] {
            let path = format!("/v1/worlds/vale/npcs/{id}");
            let body = json!({"name": id, "language": "en"});
            assert!(backend.call(Method::PUT, &path, Some(&body)).await.0.is_success());
        }
        let body = json!({"npc_ids": ["ergen", "mira", "tomas", "hanna"], "auto": false, "next_speaker": "model"});
        let id = conversation(&server, body).await;
        let view = backend.get(&format!("/v1/npc-conversations/{id}")).await;
        assert_eq!(view["next_speaker"], "model");
        let path = format!("/v1/npc-conversations/{id}:step");
        let speaker = async || {
            backend.post(&path, &json!({})).await["npc_id"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            speaker().await,
            "ergen",
            "the first one opens it, whatever a model would say"
        );
        assert!(mock.requests_of("intent").is_empty());
        mock.apply_settings(&json!({"next_speaker": "hanna"})).unwrap();
        assert_eq!(speaker().await, "hanna");
        let asked = mock.requests_of("intent").pop().unwrap();
        let allowed = &asked["response_format"]["json_schema"]["schema"]["properties"]["next"]["enum"];
        assert_eq!(*allowed, json!(["mira", "tomas", "hanna"]), "{asked}");
        // The model's answer is the last speaker, an absent NPC, empty, or an error: the longest-silent NPC speaks.
        for (setting, npc) in [
            (json!({"next_speaker": "hanna"}), "mira"),
            (json!({"next_speaker": "stranger"}), "tomas"),
            (json!({"next_speaker": ""}), "ergen"),
            (json!({"next_speaker": "mira", "faults": ["intent=500"]}), "hanna"),
            (json!({"next_speaker": "tomas", "faults": []}), "tomas"),
        ] {
            mock.apply_settings(&setting).unwrap();
            assert_eq!(speaker().await, npc, "{setting}");
        }
    });
}

#[test]
fn speaker_prompt_of_the_opener_begins_like_those_of_the_others() {
    run(async {
        let (mock, server) = with_mock();
        let id = conversation(&server, json!({"auto": false})).await;
        let backend = server.backend();
        for _ in 0..5 {
            backend
                .post(&format!("/v1/npc-conversations/{id}:step"), &json!({}))
                .await;
        }
        let asked = mock.requests_of("reply");
        assert_eq!(asked.len(), 5);
        let mut cues = Vec::new();
        for request in &asked {
            let messages = request["messages"].as_array().unwrap();
            // Many endpoints require this order.
            let said: Vec<&Value> = messages.iter().filter(|message| message["role"] != "system").collect();
            assert_eq!(said[0]["role"], "user", "{request}");
            cues.push(said[0]["content"].to_string());
        }
        assert!(cues[0].contains("the mill"), "{}", cues[0]);
        assert_eq!(cues[2], cues[4], "the prompt's beginning stays");
    });
}

/// Sends ten interrupts at once over REST and sockets, for turns 2 to 5, and returns the answers. Every listener,
/// asking or not, finally receives that turn 2 stands.
async fn interrupt_ten_times(
    server: &TestServer,
    path: &str,
    sockets: &mut [TestSocket],
    message: &Value,
) -> Vec<(u64, Value)> {
    let turns: [u64; 5] = [5, 3, 4, 2, 5];
    let sockets_there = sockets.len();
    for (nth, turn) in turns.iter().enumerate() {
        let mut message = message.clone();
        (message["turn"], message["key"]) = (json!(turn), json!(format!("socket {nth}")));
        message["event_id"] = json!(format!("cut {nth}"));
        sockets[nth % sockets_there].send(&message).await;
    }
    let asked = turns.map(|turn| {
        let (rest, path, key) = (server.backend(), path.to_owned(), rand::random::<u64>());
        async move {
            let body = json!({"turn": turn, "key": format!("rest {key}")});
            (turn, rest.post(&path, &body).await)
        }
    });
    let mut told = futures_util::future::join_all(asked).await;
    for (place, socket) in sockets.iter_mut().enumerate() {
        let own = turns.iter().enumerate().filter(|(nth, _)| nth % sockets_there == place);
        let mut unanswered: BTreeMap<String, u64> = own.map(|(nth, turn)| (format!("cut {nth}"), *turn)).collect();
        let mut heard = false;
        while !(unanswered.is_empty() && heard) {
            let event = socket.next().await;
            assert_ne!(event["type"], "error", "{event}");
            if let Some(re) = event["re"].as_str() {
                let asked = unanswered.remove(re).expect("one answer for each who asks");
                assert_eq!(event["type"], "dialogue.rewound", "{event}");
                told.push((asked, json!({"turn": event["turn"], "interrupted": true})));
            } else {
                heard |= event["type"] == "dialogue.rewound" && event["turn"] == 2;
            }
        }
    }
    assert_eq!(told.len(), 10);
    told
}

/// Asserts that no request is refused or told a later turn than requested. A request served before the lowest turn's
/// request gets the head at that time.
fn assert_all_were_answered(told: &[(u64, Value)]) {
    for (asked, answer) in told {
        let stands = answer["turn"].as_u64().unwrap();
        assert!((2..=*asked).contains(&stands), "{told:?}");
        assert_eq!(answer["interrupted"], true, "{told:?}");
    }
}

#[test]
fn ten_interrupts_over_rest_and_sockets_apply_the_lowest_and_answer_all() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        let talk = conversation(&server, json!({"auto": false, "open": true, "interrupters": "all"})).await;
        for _ in 0..6 {
            backend
                .post(&format!("/v1/npc-conversations/{talk}:step"), &json!({}))
                .await;
        }
        let mut sockets = Vec::new();
        for player in 0..5 {
            let mut socket = server.player(&format!("p{player}")).await;
            watch(&mut socket, &talk).await;
            sockets.push(socket);
        }
        let path = format!("/v1/npc-conversations/{talk}:interrupt");
        let message = json!({"type": "npc_conversation.interrupt", "conversation_id": talk});
        let told = interrupt_ten_times(&server, &path, &mut sockets, &message).await;
        assert_all_were_answered(&told);
        let view = backend.get(&format!("/v1/npc-conversations/{talk}")).await;
        assert_eq!((&view["head_turn"], &view["status"]), (&json!(2), &json!("paused")));

        let mut owner = server.player("p9").await;
        let session = owner.session("mira", "p9").await;
        for line in 1..=6 {
            owner.say_line(&session, &format!("Line {line}.")).await;
        }
        let path = format!("/v1/sessions/{session}:interrupt");
        let message = json!({"type": "player.interrupt", "session_id": session});
        let mut sockets = [owner];
        let told = interrupt_ten_times(&server, &path, &mut sockets, &message).await;
        assert_all_were_answered(&told);
        let view = backend.get(&format!("/v1/sessions/{session}")).await;
        assert_eq!(view["head_turn"], 2, "{view}");
        assert_eq!(sockets[0].say_line(&session, "And on.").await.turn, 3);
    });
}
