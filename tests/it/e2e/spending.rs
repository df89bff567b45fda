//! What a player can make the server spend: model calls are bounded by the player's lines, whatever else it sends.

use std::time::{Duration, Instant};

use colloquy::{
    config::{Config, ConfigSources},
    mock_llm::{self, MockHandle, MockOptions},
    tenancy::Role,
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    fresh,
    npc_conversation::{conversation, watch},
};
use crate::support::{RestAnswer, RestClient, ServerData, TestServer, TestSocket, eventually, run};

const TASKS: [&str; 6] = ["reply", "intent", "extraction", "judge", "summary", "curation"];

/// A server with a mock model whose replies have 40 words.
fn start(env: &[(&str, &str)]) -> (MockHandle, ServerData) {
    let mock = mock_llm::start_on_thread(MockOptions {
        reply: "apple ".repeat(40),
        ..MockOptions::default()
    })
    .unwrap();
    let url = mock.base_url();
    let settings = [("COLLOQUY__JOBS__POLL_S", "1"), ("COLLOQUY__TURN__CUT_HOLD_S", "30")];
    let data = fresh(&[&settings[..], env].concat()).with_mock(&url);
    (mock, data)
}

/// Returns the number of model calls so far, by task.
fn model_calls(mock: &MockHandle) -> Vec<u64> {
    TASKS.iter().map(|task| mock.calls_of(task)).collect()
}

fn player(server: &TestServer, name: &str) -> RestClient {
    RestClient::new(server.address, server.token("demo", Role::Player, Some(name)))
}

/// Opens a session, and returns its path.
async fn open_session(client: &RestClient) -> String {
    open_session_at(client, "/v1/sessions", &json!({"world_id": "vale", "npc_id": "mira"})).await
}

/// Opens a session with a request to `path`, and returns the session's path.
async fn open_session_at(client: &RestClient, path: &str, body: &Value) -> String {
    let session = client.post(path, body).await;
    format!("/v1/sessions/{}", session["id"].as_str().unwrap())
}

/// Removes Mira's own greeting, so that the model greets.
async fn remove_own_greeting(server: &TestServer) {
    let npc = json!({"name": "Mira", "language": "en", "persona": {"description": "Mira keeps the inn."}});
    let path = "/v1/worlds/vale/npcs/mira";
    let (status, answer) = server.backend().call(Method::PUT, path, Some(&npc)).await;
    assert!(status.is_success(), "{answer}");
}

/// Starts an NPC conversation that every player may cut and join, and returns its id and its path.
async fn open_conversation(server: &TestServer) -> (String, String) {
    let options = json!({"auto": false, "open": true, "interrupters": "all"});
    let id = conversation(server, options).await;
    let path = format!("/v1/npc-conversations/{id}");
    (id, path)
}

async fn say(client: &RestClient, session: &str, text: &str) -> RestAnswer {
    client
        .post_answer(&format!("{session}/turns"), &json!({"text": text}))
        .await
}

async fn cut(client: &RestClient, session: &str, heard_chars: u64) -> RestAnswer {
    let body = json!({"turn": 1, "heard_chars": heard_chars});
    client.post_answer(&format!("{session}:interrupt"), &body).await
}

/// Resumes a session on a socket, and returns its id.
async fn resume(socket: &mut TestSocket, session: &str) -> String {
    let id = session.trim_start_matches("/v1/sessions/");
    socket.send(&json!({"type": "session.resume", "session_id": id})).await;
    socket.until("session.resumed").await;
    id.to_owned()
}

/// Returns the next error on a socket.
async fn socket_error(socket: &mut TestSocket) -> Value {
    loop {
        let event = socket.next().await;
        if event["type"] == "error" {
            return event["error"].clone();
        }
    }
}

/// Returns the contents of Mira's standing facts.
async fn standing_facts(server: &TestServer) -> Vec<String> {
    let facts = server.backend().facts("mira").await;
    let standing = facts.iter().filter(|fact| fact["invalid_at"].is_null());
    standing
        .map(|fact| fact["content"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn cuts_and_resumes_of_a_reply_cost_no_model_call() {
    run(async {
        let (mock, data) = start(&[]);
        let server = data.start();
        let client = player(&server, "p1");
        let session = open_session(&client).await;
        assert_eq!(say(&client, &session, "I like grapes.").await.status, 200);
        server.backend().idle().await;
        let known = standing_facts(&server).await;
        assert!(!known.is_empty());
        let before = model_calls(&mock);
        for _ in 0..10 {
            assert_eq!(cut(&client, &session, 3).await.status, 200);
            let resumed = client.post_answer(&format!("{session}:resume"), &json!({})).await;
            assert_eq!(resumed.status, 200, "{:?}", resumed.body);
        }
        assert_eq!(standing_facts(&server).await, known, "the whole reply stands again");
        let mut socket = server.player("p1").await;
        let id = resume(&mut socket, &session).await;
        for shorter in 1..10 {
            let cut =
                json!({"type": "player.interrupt", "session_id": id, "turn": 1, "heard_chars": 100 - 5 * shorter});
            socket.send(&cut).await;
            socket.until("dialogue.rewound").await;
        }
        assert_eq!(model_calls(&mock), before);
        assert!(
            standing_facts(&server).await.is_empty(),
            "nothing is learned from a cut turn yet"
        );

        // The next line is answered with the facts of the heard part, which cost one call.
        assert_eq!(say(&client, &session, "And you?").await.status, 200);
        assert_eq!(standing_facts(&server).await, known);
        server.backend().idle().await;
        assert_eq!(
            mock.calls_of("extraction"),
            before[2] + 2,
            "the cut turn and the next one"
        );
    });
}

#[test]
fn cut_reply_is_learned_when_it_can_no_longer_be_resumed_or_the_session_ends() {
    run(async {
        let (mock, data) = start(&[("COLLOQUY__TURN__CUT_HOLD_S", "2")]);
        let server = data.start();
        let client = player(&server, "p1");
        for ends in [false, true] {
            let session = open_session(&client).await;
            assert_eq!(say(&client, &session, "I like grapes.").await.status, 200);
            server.backend().idle().await;
            let before = mock.calls_of("extraction");
            for heard in [40, 30, 20] {
                assert_eq!(cut(&client, &session, heard).await.status, 200);
            }
            #[expect(clippy::disallowed_methods, reason = "how long it takes is what is looked at")]
            let cut_at = Instant::now();
            if ends {
                let (status, _) = client.call(Method::DELETE, &session, None).await;
                assert!(status.is_success(), "{status}");
            }
            server.backend().idle().await;
            assert_eq!(mock.calls_of("extraction"), before + 1, "three cuts cost one call");
            assert_eq!(cut_at.elapsed() < Duration::from_secs(2), ends);
            assert!(!standing_facts(&server).await.is_empty());
        }
    });
}

#[test]
fn cuts_and_resumes_have_a_limit_of_their_own() {
    run(async {
        let (_mock, data) = start(&[("COLLOQUY__LIMITS__PLAYER_CUTS_PER_MIN", "4")]);
        let server = data.start();
        let client = player(&server, "p1");
        let session = open_session(&client).await;
        say(&client, &session, "Hello.").await;
        for _ in 0..2 {
            assert_eq!(cut(&client, &session, 3).await.status, 200);
            assert_eq!(
                client
                    .post_answer(&format!("{session}:resume"), &json!({}))
                    .await
                    .status,
                200
            );
        }
        let turns = client.get(&format!("{session}/turns")).await;
        let keyed = json!({"key": "k"});
        for (verb, body) in [
            ("interrupt", json!({"turn": 1})),
            ("interrupt", keyed.clone()),
            ("resume", keyed),
        ] {
            let refused = client.post_answer(&format!("{session}:{verb}"), &body).await;
            assert_eq!(
                (refused.status.as_u16(), &refused.body["code"]),
                (429, &json!("rate_limited")),
                "{verb}"
            );
            assert!(
                refused.retry_after.is_some_and(|seconds| (1..=15).contains(&seconds)),
                "{verb}"
            );
        }
        let mut socket = server.player("p1").await;
        let id = resume(&mut socket, &session).await;
        for message in [
            json!({"type": "player.interrupt", "session_id": id, "turn": 1, "heard_chars": 1}),
            json!({"type": "player.resume", "session_id": id}),
        ] {
            socket.send(&message).await;
            let refused = socket_error(&mut socket).await;
            assert_eq!(refused["code"], "rate_limited", "{message}");
            assert!(refused["retry_after_ms"].as_u64().unwrap() > 0, "{refused}");
        }
        let body = json!({"world_id": "vale", "npc_ids": ["mira", "ergen"], "auto": false, "open": true,
            "interrupters": "all"});
        let conversation = server.backend().post("/v1/npc-conversations", &body).await;
        let id = conversation["id"].as_str().unwrap();
        let refused = client
            .post_answer(&format!("/v1/npc-conversations/{id}:interrupt"), &json!({"turn": 1}))
            .await;
        assert_eq!(refused.status, 429, "{:?}", refused.body);
        // What was refused changed nothing. Lines, cuts of a running reply and other players have limits of their own.
        assert_eq!(client.get(&format!("{session}/turns")).await, turns);
        assert_eq!(say(&client, &session, "Go on.").await.status, 200);
        assert_eq!(
            client
                .post_answer(&format!("{session}:interrupt"), &json!({}))
                .await
                .status,
            200
        );
        let other = player(&server, "p2");
        let session = open_session(&other).await;
        say(&other, &session, "Hello.").await;
        assert_eq!(cut(&other, &session, 3).await.status, 200);
    });
}

/// Says nothing further: the reply to one line is cut, and each cut is given the time to be learned.
#[test]
fn cuts_of_one_reply_cost_a_bounded_number_of_model_calls_however_slowly_they_come() {
    run(async {
        let (mock, data) = start(&[("COLLOQUY__TURN__CUT_HOLD_S", "0")]);
        let server = data.start();
        let client = player(&server, "p1");
        let session = open_session(&client).await;
        assert_eq!(say(&client, &session, "I like grapes.").await.status, 200);
        server.backend().idle().await;
        let before = mock.calls_of("extraction");
        for (heard, calls) in [(60, 1), (55, 2), (50, 3)] {
            assert_eq!(cut(&client, &session, heard).await.status, 200);
            server.backend().idle().await;
            assert_eq!(mock.calls_of("extraction"), before + calls, "{heard} characters");
        }
        for heard in [45, 40, 35] {
            assert_eq!(cut(&client, &session, heard).await.status, 200);
            let pending = server.backend().get("/v1/jobs?status=pending").await;
            assert!(!pending["items"].as_array().unwrap().is_empty(), "{pending}");
        }
        assert_eq!(
            mock.calls_of("extraction"),
            before + 3,
            "the jobs wait for the next line"
        );
        assert_eq!(say(&client, &session, "And you?").await.status, 200);
        server.backend().idle().await;
        assert_eq!(mock.calls_of("extraction"), before + 5, "the last cut and the new line");
    });
}

/// Says nothing further: one line is cut mid-stream and resumed without end.
#[test]
fn resume_of_a_reply_that_was_cut_mid_stream_counts_as_a_line() {
    run(async {
        let (mock, data) = start(&[("COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN", "3")]);
        let server = data.start();
        let client = player(&server, "p1");
        let session = open_session(&client).await;
        let mut socket = server.player("p1").await;
        let id = resume(&mut socket, &session).await;
        mock.apply_settings(&json!({"tokens_per_s": 20})).unwrap();
        let over_rest = async || client.post_answer(&format!("{session}:resume"), &json!({})).await;
        let on_socket = json!({"type": "player.resume", "session_id": id});
        socket.send_line(&id, "k", "I like grapes.").await;
        for resumes in 0..3 {
            // A continued reply begins with the text from before the cut.
            for _ in 0..2 {
                socket.until("reply.delta").await;
            }
            socket
                .send(&json!({"type": "player.interrupt", "session_id": id}))
                .await;
            socket.until("turn.committed").await;
            match resumes {
                0 => assert_eq!(over_rest().await.status, 200),
                1 => socket.send(&on_socket).await,
                _ => {
                    let refused = over_rest().await;
                    assert_eq!(refused.status, 429, "{:?}", refused.body);
                    socket.send(&on_socket).await;
                    assert_eq!(socket_error(&mut socket).await["code"], "rate_limited");
                }
            }
        }
        assert_eq!(
            mock.calls_of("reply"),
            3,
            "no more than the lines that the player may say"
        );
    });
}

#[test]
fn player_may_cut_and_resume_each_line_that_its_limit_allows() {
    run(async {
        let limits = Config::load(&ConfigSources::default()).unwrap().limits;
        let (lines, cuts) = (limits.player_turns_per_min, limits.player_cuts_per_min);
        let (_mock, data) = start(&[
            ("COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN", &lines.to_string()),
            ("COLLOQUY__LIMITS__PLAYER_CUTS_PER_MIN", &cuts.to_string()),
        ]);
        let server = data.start();
        let client = player(&server, "p1");
        let session = open_session(&client).await;
        for turn in 1..=lines {
            assert_eq!(say(&client, &session, "Hello.").await.status, 200, "line {turn}");
            let body = json!({"turn": turn, "heard_chars": 12, "key": format!("cut {turn}")});
            let answer = client.post_answer(&format!("{session}:interrupt"), &body).await;
            assert_eq!(answer.status, 200, "{turn}: {:?}", answer.body);
            let answer = client.post_answer(&format!("{session}:resume"), &json!({})).await;
            assert_eq!(answer.status, 200, "{turn}: {:?}", answer.body);
        }
    });
}

/// Sends what a player may send to one session. Returns how many requests were accepted as lines.
async fn spend_in_all_ways(client: &RestClient, socket: &mut TestSocket, session: &str, round: u64) -> u64 {
    let id = session.trim_start_matches("/v1/sessions/");
    let mut lines = 0;
    let mut count = |answer: RestAnswer, is_line: bool| lines += u64::from(is_line && answer.status.is_success());
    let line = json!({"text": format!("I like {round} plums."), "key": format!("line {round}")});
    // The same line twice is one line.
    count(client.post_answer(&format!("{session}/turns"), &line).await, true);
    count(client.post_answer(&format!("{session}/turns"), &line).await, false);
    count(
        client.post_answer(&format!("{session}:regenerate"), &json!({})).await,
        true,
    );
    for heard in [60, 40, 20, 3] {
        let body = json!({"turn": 1, "heard_chars": heard, "key": format!("cut {round} {heard}")});
        for _ in 0..2 {
            count(client.post_answer(&format!("{session}:interrupt"), &body).await, false);
        }
        count(
            client.post_answer(&format!("{session}:resume"), &json!({})).await,
            false,
        );
    }
    for message in [
        json!({"type": "player.interrupt", "session_id": id, "turn": 1, "heard_chars": 8}),
        json!({"type": "player.resume", "session_id": id}),
        json!({"type": "player.interrupt", "session_id": id, "turn": 1, "heard_chars": 0}),
        json!({"type": "player.resume", "session_id": id}),
    ] {
        socket.send(&message).await;
    }
    lines
}

#[test]
fn model_calls_of_each_task_are_bounded_by_the_lines_of_a_player() {
    run(async {
        let (mock, data) = start(&[
            ("COLLOQUY__TURN__CUT_HOLD_S", "1"),
            ("COLLOQUY__LIMITS__PLAYER_REQUESTS_PER_S", "1000"),
        ]);
        let server = data.start();
        let client = player(&server, "p1");
        let mut lines = 0;
        for round in 0..4 {
            let session = open_session(&client).await;
            // Refusals of the session before may still be on their way.
            let mut socket = server.player("p1").await;
            let id = resume(&mut socket, &session).await;
            for step in 0..4 {
                lines += spend_in_all_ways(&client, &mut socket, &session, 10 * round + step).await;
            }
            let backend = server.backend();
            let rewound = backend
                .post_answer(&format!("/v1/sessions/{id}:rewind"), &json!({"turn": 0}))
                .await;
            assert!(rewound.status.is_success(), "{:?}", rewound.body);
            lines += u64::from(say(&client, &session, "And now?").await.status.is_success());
            client.call(Method::DELETE, &session, None).await;
        }
        server.backend().idle().await;
        assert!(lines >= 16, "{lines} lines were accepted");
        for (task, calls) in TASKS.iter().zip(model_calls(&mock)) {
            // A line costs one call of each task at most, and one more for the heard part of the reply before it.
            assert!(calls <= 2 * lines, "{calls} calls of {task} for {lines} lines");
        }
        // A regenerated reply needs no intent.
        assert!(mock.calls_of("intent") < mock.calls_of("reply"));
    });
}

#[test]
fn greetings_have_the_limit_of_new_sessions() {
    run(async {
        let (mock, data) = start(&[("COLLOQUY__LIMITS__PLAYER_SESSIONS_PER_MIN", "2")]);
        let server = data.start();
        remove_own_greeting(&server).await;
        let client = player(&server, "p1");
        let greeting = json!({"world_id": "vale", "npc_id": "mira", "greeting": true});
        for _ in 0..2 {
            open_session_at(&client, "/v1/sessions", &greeting).await;
        }
        let refused = client.post_answer("/v1/sessions", &greeting).await;
        assert_eq!(refused.status, 429, "{:?}", refused.body);
        assert_eq!(mock.calls_of("reply"), 2);
    });
}

/// Says nothing: one line of an NPC conversation is cut mid-stream and resumed without end.
#[test]
fn resume_of_an_npc_conversation_counts_as_a_line() {
    run(async {
        let (mock, data) = start(&[("COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN", "2")]);
        let server = data.start();
        let client = player(&server, "p1");
        let (id, conversation) = open_conversation(&server).await;
        let mut socket = server.player("p1").await;
        watch(&mut socket, &id).await;
        mock.apply_settings(&json!({"tokens_per_s": 20})).unwrap();
        let (backend, step) = (server.backend(), format!("{conversation}:step"));
        let stepped = tokio::spawn(async move { backend.post(&step, &json!({})).await });
        for status in [200_u16, 200, 429] {
            // A continued line begins with the text from before the cut.
            for _ in 0..2 {
                socket.until("npc_turn.delta").await;
            }
            client.post(&format!("{conversation}:interrupt"), &json!({})).await;
            socket.until("npc_turn.committed").await;
            let resumed = client.post_answer(&format!("{conversation}:resume"), &json!({})).await;
            assert_eq!(resumed.status, status, "{:?}", resumed.body);
        }
        stepped.await.unwrap();
        assert_eq!(mock.calls_of("reply"), 3, "the step, and each resume");
    });
}

#[test]
fn player_has_a_share_of_the_tokens_of_its_tenant() {
    run(async {
        let (_mock, data) = start(&[("COLLOQUY__BUDGETS__TOKENS_PER_DAY", "40000")]);
        let server = data.start();
        let client = player(&server, "p1");
        let session = open_session(&client).await;
        let long = "word ".repeat(300);
        let refused = loop {
            let answer = say(&client, &session, &long).await;
            if !answer.status.is_success() {
                break answer;
            }
        };
        let is_of_player = |answer: &RestAnswer| {
            assert_eq!(
                (answer.status.as_u16(), &answer.body["code"]),
                (429, &json!("player_budget_spent")),
                "{:?}",
                answer.body
            );
            assert!(answer.retry_after.is_some_and(|seconds| seconds <= 86_400));
        };
        is_of_player(&refused);
        is_of_player(&client.post_answer(&format!("{session}:regenerate"), &json!({})).await);
        let other = player(&server, "p2");
        let others_session = open_session(&other).await;
        assert_eq!(say(&other, &others_session, "Hello.").await.status, 200);
        // What was said is learned, and counts too.
        server.backend().idle().await;
        // The share is known after a restart.
        eventually("the usage is in the ledger", async || {
            let rows = server
                .data
                .count("SELECT COUNT(*) FROM player_usage WHERE player = 'p1'")
                .await;
            (rows > 0).then_some(())
        })
        .await;
        drop(server);
        let server = data.start();
        is_of_player(&say(&player(&server, "p1"), &session, "Hello again.").await);
        assert_eq!(
            say(&player(&server, "p2"), &others_session, "Hello again.")
                .await
                .status,
            200
        );
    });
}

#[test]
fn regenerated_and_continued_replies_use_the_known_intent() {
    run(async {
        let (mock, data) = start(&[]);
        let server = data.start();
        mock.apply_settings(&json!({"intent": "memory"})).unwrap();
        let client = player(&server, "p1");
        let session = open_session(&client).await;
        say(&client, &session, "Do you remember me?").await;
        for _ in 0..2 {
            let regenerated = client.post_answer(&format!("{session}:regenerate"), &json!({})).await;
            assert_eq!(regenerated.status, 200, "{:?}", regenerated.body);
        }
        assert_eq!((mock.calls_of("reply"), mock.calls_of("intent")), (3, 1));
        let trace = server.backend().get(&format!("{session}/turns/1/trace")).await;
        assert_eq!(
            (&trace["intent"], &trace["intent_source"]),
            (&json!("memory"), &json!("model, for the replaced turn"))
        );
        // A reply that is cut mid-stream and continued.
        mock.apply_settings(&json!({"tokens_per_s": 20})).unwrap();
        let mut socket = server.player("p1").await;
        let id = resume(&mut socket, &session).await;
        socket.send_line(&id, "k", "And my sister?").await;
        socket.until("reply.delta").await;
        socket
            .send(&json!({"type": "player.interrupt", "session_id": id}))
            .await;
        socket.until("turn.committed").await;
        mock.apply_settings(&json!({"tokens_per_s": 0})).unwrap();
        socket.send(&json!({"type": "player.resume", "session_id": id})).await;
        socket.until("turn.committed").await;
        assert_eq!((mock.calls_of("reply"), mock.calls_of("intent")), (5, 2));
    });
}

#[test]
fn reply_that_is_cut_in_its_first_sentence_needs_no_state() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions {
            reply: "Here is the key. Take it and go.\n```state\nnot readable\n```".to_owned(),
            ..MockOptions::default()
        })
        .unwrap();
        let server = fresh(&[("COLLOQUY__JOBS__POLL_S", "1")])
            .with_mock(&mock.base_url())
            .start();
        let client = player(&server, "p1");
        let session = open_session(&client).await;
        say(&client, &session, "Hello.").await;
        server.backend().idle().await;
        let mut before = mock.calls_of("extraction");
        for (heard_chars, calls) in [(20, 2), (8, 1)] {
            assert_eq!(cut(&client, &session, heard_chars).await.status, 200);
            server.backend().idle().await;
            assert_eq!(
                mock.calls_of("extraction"),
                before + calls,
                "{heard_chars} characters were heard"
            );
            before += calls;
        }
    });
}
