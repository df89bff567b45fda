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
/// The calls of one task that a line costs at most: for the line, and for the heard part of the reply before it.
const CALLS_PER_LINE: u64 = 2;
/// Low limits for what may cost model calls.
const LOW_LIMITS: [(&str, &str); 6] = [
    ("COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN", "6"),
    ("COLLOQUY__LIMITS__PLAYER_CUTS_PER_MIN", "20"),
    ("COLLOQUY__LIMITS__PLAYER_SESSIONS_PER_MIN", "4"),
    ("COLLOQUY__LIMITS__PLAYER_REQUESTS_PER_S", "0"),
    ("COLLOQUY__LIMITS__SOCKET_MESSAGES_PER_S", "0"),
    // The mock writes no state blocks. Without them, a further call per line would look for changes of state.
    ("COLLOQUY__TURN__REPLIES_WITHOUT_BLOCK", "0"),
];

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

/// Asserts that the calls of each task are bounded by the lines of a player. `others`: the calls for lines of others.
fn assert_calls_are_bounded(mock: &MockHandle, lines: u64, others: u64) {
    let most = CALLS_PER_LINE * lines + others;
    for (task, calls) in TASKS.iter().zip(model_calls(mock)) {
        assert!(
            calls <= most,
            "{calls} calls of {task}, more than {most} for {lines} lines"
        );
    }
}

/// The accepted and the refused requests of a player.
#[derive(Debug, Default)]
struct RequestCounts {
    accepted: u64,
    refused: u64,
}

impl RequestCounts {
    /// Counts a request by its answer. Returns true if the request was accepted.
    fn count_answer(&mut self, answer: &RestAnswer) -> bool {
        if answer.status == 429 {
            assert_eq!(answer.body["code"], "rate_limited", "{:?}", answer.body);
            assert!(answer.retry_after.is_some_and(|seconds| seconds > 0), "{answer:?}");
            self.refused += 1;
        }
        let is_accepted = answer.status.is_success();
        self.accepted += u64::from(is_accepted);
        is_accepted
    }
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

/// Acknowledges the playback of a turn, and waits until the server has handled the message.
async fn acknowledge_playback(socket: &mut TestSocket, id: &str, turn: u64) {
    let played = json!({"type": "reply.played", "session_id": id, "turn": turn});
    socket.send(&played).await;
    socket.send(&json!({"type": "ping", "t": 1})).await;
    socket.until("pong").await;
}

/// Ends a session or an NPC conversation, and waits until all jobs are done. Without an end, jobs of a cut reply may
/// wait for a day.
async fn end_dialogue(server: &TestServer, path: &str) {
    let backend = server.backend();
    let (status, answer) = backend.call(Method::DELETE, path, None).await;
    assert!(status.is_success(), "{answer}");
    backend.idle().await;
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
        assert_calls_are_bounded(&mock, lines, 0);
        // A regenerated reply needs no intent.
        assert!(mock.calls_of("intent") < mock.calls_of("reply"));
    });
}

/// Cuts the last line of an NPC conversation, joins, speaks and leaves, again and again.
#[test]
fn model_calls_of_joins_are_bounded_by_lines_and_sessions() {
    const BACKEND_LINES: u64 = 2;
    run(async {
        let (mock, data) = start(&LOW_LIMITS);
        let server = data.start();
        let (backend, client) = (server.backend(), player(&server, "p1"));
        let (_, conversation) = open_conversation(&server).await;
        let [step, interrupt, join] = ["step", "interrupt", "join"].map(|verb| format!("{conversation}:{verb}"));
        for _ in 0..BACKEND_LINES {
            backend.post(&step, &json!({})).await;
        }
        let (mut lines, mut cuts, mut sessions) = <(RequestCounts, RequestCounts, RequestCounts)>::default();
        for round in 0..40 {
            let cut = json!({"turn": BACKEND_LINES, "heard_chars": 200 - 4 * round});
            cuts.count_answer(&client.post_answer(&interrupt, &cut).await);
            let joined = client.post_answer(&join, &json!({})).await;
            if !sessions.count_answer(&joined) {
                continue;
            }
            let session = format!("/v1/sessions/{}", joined.body["id"].as_str().unwrap());
            for plums in 0..6 {
                let text = format!("I like {plums} plums.");
                lines.count_answer(&say(&client, &session, &text).await);
            }
            client.call(Method::DELETE, &session, None).await;
        }
        end_dialogue(&server, &conversation).await;
        let all = [&lines, &cuts, &sessions];
        assert!(all.iter().all(|counts| counts.refused > 0), "{all:?}");
        assert!(lines.accepted >= 6 && sessions.accepted >= 4, "{all:?}");
        // A join costs the learning of the line that was cut before it.
        let counted = lines.accepted + sessions.accepted;
        assert_calls_are_bounded(&mock, counted, CALLS_PER_LINE * BACKEND_LINES);
    });
}

/// Cuts, resumes and acknowledges each reply in turn.
#[test]
fn model_calls_of_acknowledged_playback_are_bounded_by_lines() {
    const CALLS_FOR_OTHERS: u64 = 0;
    run(async {
        let (mock, data) = start(&LOW_LIMITS);
        let server = data.start();
        let client = player(&server, "p1");
        let body = json!({"world_id": "vale", "npc_id": "mira", "playback": "ack"});
        let session = open_session_at(&client, "/v1/sessions", &body).await;
        let mut socket = server.player("p1").await;
        let id = resume(&mut socket, &session).await;
        let [interrupt, take_up] = ["interrupt", "resume"].map(|verb| format!("{session}:{verb}"));
        let (mut lines, mut cuts) = <(RequestCounts, RequestCounts)>::default();
        for plums in 0..9 {
            let text = format!("I like {plums} plums.");
            lines.count_answer(&say(&client, &session, &text).await);
            let turn = lines.accepted;
            acknowledge_playback(&mut socket, &id, turn).await;
            for heard in [200, 150, 100, 50] {
                let cut = json!({"turn": turn, "heard_chars": heard});
                cuts.count_answer(&client.post_answer(&interrupt, &cut).await);
                acknowledge_playback(&mut socket, &id, turn).await;
                cuts.count_answer(&client.post_answer(&take_up, &json!({})).await);
                acknowledge_playback(&mut socket, &id, turn).await;
            }
        }
        end_dialogue(&server, &session).await;
        let all = [&lines, &cuts];
        assert!(all.iter().all(|counts| counts.refused > 0), "{all:?}");
        assert!(lines.accepted >= 6 && cuts.accepted >= 20, "{all:?}");
        assert_calls_are_bounded(&mock, lines.accepted, CALLS_FOR_OTHERS);
    });
}

/// Cuts and resumes the last line of an NPC conversation after each line that the backend asks for.
#[test]
fn model_calls_of_an_interrupted_npc_conversation_are_bounded_by_its_lines() {
    const BACKEND_LINES: u64 = 8;
    run(async {
        let (mock, data) = start(&LOW_LIMITS);
        let server = data.start();
        let (backend, client) = (server.backend(), player(&server, "p1"));
        let (_, conversation) = open_conversation(&server).await;
        let [step, interrupt, take_up] = ["step", "interrupt", "resume"].map(|verb| format!("{conversation}:{verb}"));
        let (mut cuts, mut resumes) = <(RequestCounts, RequestCounts)>::default();
        for line in 1..=BACKEND_LINES {
            backend.post(&step, &json!({})).await;
            for heard in [200, 170, 140, 110, 80, 50] {
                let cut = json!({"turn": line, "heard_chars": heard});
                cuts.count_answer(&client.post_answer(&interrupt, &cut).await);
                resumes.count_answer(&client.post_answer(&take_up, &json!({})).await);
            }
        }
        end_dialogue(&server, &conversation).await;
        let all = [&cuts, &resumes];
        assert!(all.iter().all(|counts| counts.refused > 0), "{all:?}");
        assert!(cuts.accepted >= 20 && resumes.accepted >= 6, "{all:?}");
        // Each resume counts as a line. A whole line stands again without a call.
        assert_calls_are_bounded(&mock, resumes.accepted, CALLS_PER_LINE * BACKEND_LINES);
        assert_eq!(mock.calls_of("reply"), BACKEND_LINES);
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
