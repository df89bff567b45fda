//! Interrupts and rewinds over real sockets: a cut part never happened, with any work in flight.

use colloquy::{
    mock_llm::{self, MockHandle, MockOptions},
    ports::clock::{Clock, SystemClock},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, ServerData, TestSocket, eventually, run};

fn with_mock(mock: &MockHandle) -> ServerData {
    fresh(&[
        ("COLLOQUY__ACTORS__SWEEP_S", "1"),
        ("COLLOQUY__JOBS__POLL_S", "1"),
        ("COLLOQUY__JOBS__RETRY_BASE_S", "1"),
    ])
    .with_mock(&mock.base_url())
}

async fn transcript(rest: &RestClient, session: &str) -> Vec<(u64, String, String)> {
    let page = rest.get(&format!("/v1/sessions/{session}/turns")).await;
    let items = page["items"].as_array().unwrap();
    let text = |turn: &Value, what: &str| turn[what].as_str().unwrap().to_owned();
    items
        .iter()
        .map(|turn| {
            (
                turn["turn"].as_u64().unwrap(),
                text(turn, "player_text"),
                text(turn, "reply_text"),
            )
        })
        .collect()
}

/// Returns the facts valid now.
async fn valid_contents(rest: &RestClient, npc: &str) -> Vec<String> {
    let facts = rest.facts(npc).await;
    let standing = facts.iter().filter(|fact| fact["invalid_at"].is_null());
    standing
        .map(|fact| fact["content"].as_str().unwrap().to_owned())
        .collect()
}

async fn wait_until_learned(rest: &RestClient, npc: &str, word: &str) {
    eventually(&format!("a fact about {word}"), || async {
        let facts = valid_contents(rest, npc).await;
        facts.iter().any(|fact| fact.contains(word)).then_some(())
    })
    .await;
}

async fn wait_for_calls(mock: &MockHandle, task: &str, calls: u64) {
    eventually(&format!("{task} to be asked"), || async {
        (mock.calls_of(task) >= calls).then_some(())
    })
    .await;
}

/// Returns the next event of this type, skipping other events.
async fn wait_for_event(socket: &mut TestSocket, kind: &str) -> Value {
    loop {
        let event = socket.next().await;
        if event["type"] == kind {
            return event;
        }
    }
}

#[test]
fn complete_reply_is_cut_to_the_heard_part_and_resumed() {
    run(async {
        let server = fresh(&[]).start();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "Hello.").await;
        let whole = socket.say_line(&session, "I like grapes.").await;
        wait_until_learned(&rest, "mira", "grapes").await;
        socket.say_line(&session, "I like figs.").await;
        wait_until_learned(&rest, "mira", "figs").await;

        let cut = json!({"type": "player.interrupt", "session_id": session, "turn": 2, "heard_chars": 4, "if_head": 3});
        socket.send(&cut).await;
        let rewound = socket.until("dialogue.rewound").await;
        // A trailing space at the cut is dropped.
        let heard: String = whole.text.chars().take(4).collect::<String>().trim_end().to_owned();
        assert_eq!(
            (&rewound["turn"], &rewound["heard_chars"]),
            (&json!(2), &json!(heard.chars().count()))
        );
        assert_eq!(rewound["removed_turns"], json!([3]));
        assert_eq!(rewound["rolled_back"]["facts"], 2, "{rewound}");
        assert!(rewound["seq"].is_u64() && rewound["quoted_in"] == json!([]));
        let said = transcript(&rest, &session).await;
        assert_eq!(said.len(), 2);
        assert_eq!(
            (said[1].1.as_str(), said[1].2.as_str()),
            ("I like grapes.", heard.as_str())
        );
        // The player's line still stands, so its facts are learned again. Facts of the unsaid turn are not.
        wait_until_learned(&rest, "mira", "grapes").await;
        assert!(
            !valid_contents(&rest, "mira")
                .await
                .iter()
                .any(|fact| fact.contains("figs"))
        );
        // The same request is now stale, because the head has changed.
        socket.send(&cut).await;
        assert_eq!(
            wait_for_event(&mut socket, "error").await["error"]["code"],
            "stale_head"
        );

        let path = format!("/v1/sessions/{session}:resume");
        let resumed = rest.post(&path, &json!({})).await;
        assert_eq!(resumed["rewound"]["reinstated_turns"], json!([2]), "{resumed}");
        assert_eq!(transcript(&rest, &session).await[1].2, whole.text);
        let (status, again) = rest.call(Method::POST, &path, None).await;
        assert_eq!((status.as_u16(), &again["code"]), (409, &json!("nothing_to_resume")));

        let next = socket.say_line(&session, "What fruit do I like?").await;
        assert_eq!(next.turn, 3);
        assert!(next.text.contains("grapes") && !next.text.contains("figs"), "{next:?}");
    });
}

#[test]
fn interrupt_does_not_wait_for_the_model_and_hides_the_cut_part() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = with_mock(&mock).start();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "I like grapes.").await;
        wait_until_learned(&rest, "mira", "grapes").await;
        // Turn 2's extraction fails for now. Turn 3's extraction and turn 4's reply get no answer.
        mock.apply_settings(&json!({"faults": ["extraction=500"]})).unwrap();
        let asked = mock.calls_of("extraction");
        socket.say_line(&session, "I like plums.").await;
        wait_for_calls(&mock, "extraction", asked + 1).await;
        mock.apply_settings(&json!({"faults": ["extraction=500", "reply=stall"], "tokens_per_s": 4, "deltas": 400}))
            .unwrap();
        socket.send_line(&session, "k3", "I like figs.").await;
        socket.until("reply.delta").await;
        let begin = SystemClock.monotonic_now();
        let path = format!("/v1/sessions/{session}:interrupt");
        let told = rest.post(&path, &json!({"turn": 2, "key": "cut"})).await;
        let took = SystemClock.monotonic_now() - begin;
        assert!(took.as_millis() < 2_000, "it waited for the model: {took:?}");
        assert_eq!((&told["turn"], &told["interrupted"]), (&json!(2), &json!(true)));
        let done = wait_for_event(&mut socket, "reply.done").await;
        assert_eq!((&done["turn"], &done["status"]), (&json!(3), &json!("interrupted")));
        assert_eq!(
            wait_for_event(&mut socket, "error").await["error"]["code"],
            "turn_unsaid"
        );
        assert_eq!(wait_for_event(&mut socket, "dialogue.rewound").await["turn"], 2);

        mock.apply_settings(&json!({"faults": [], "tokens_per_s": 0, "deltas": 8}))
            .unwrap();
        // The previous turn's extraction is not lost.
        wait_until_learned(&rest, "mira", "plums").await;
        let next = socket.say_line(&session, "I like pears.").await;
        assert_eq!(next.turn, 3);
        wait_until_learned(&rest, "mira", "pears").await;
        assert!(
            !rest
                .facts("mira")
                .await
                .iter()
                .any(|fact| fact["content"].as_str().unwrap().contains("figs"))
        );
        let again = rest.post(&path, &json!({"turn": 2, "key": "cut"})).await;
        assert_eq!(again, told, "a key takes nothing back twice");
        assert_eq!(transcript(&rest, &session).await.len(), 3);
    });
}

#[test]
fn rewind_survives_a_kill_and_is_published_to_absent_listeners() {
    run(async {
        let server = fresh(&[]).spawn();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "I like grapes.").await;
        wait_until_learned(&rest, "mira", "grapes").await;
        socket.say_line(&session, "I like figs.").await;
        wait_until_learned(&rest, "mira", "figs").await;
        let path = format!("/v1/sessions/{session}:rewind");
        let wish = json!({"turn": 1, "key": "back", "if_head": 2});
        let told = rest.post(&path, &wish).await;
        let rewound = wait_for_event(&mut socket, "dialogue.rewound").await;
        drop(socket);
        let server = server.kill().spawn();

        let rest = server.backend();
        assert_eq!(transcript(&rest, &session).await.len(), 1);
        assert!(
            !valid_contents(&rest, "mira")
                .await
                .iter()
                .any(|fact| fact.contains("figs"))
        );
        assert!(
            valid_contents(&rest, "mira")
                .await
                .iter()
                .any(|fact| fact.contains("grapes"))
        );
        assert_eq!(rest.post(&path, &wish).await, told, "the key is known");
        let mut socket = server.player("p1").await;
        let before = rewound["seq"].as_u64().unwrap() - 1;
        socket
            .send(&json!({"type": "session.resume", "session_id": session, "last_seq": before}))
            .await;
        let replayed = socket.until("dialogue.rewound").await;
        assert_eq!(replayed, rewound, "the same event");
        socket.until("session.resumed").await;
        let answer = socket.say_line(&session, "What fruit do I like?").await;
        assert_eq!(answer.turn, 2);
        assert!(
            answer.text.contains("grapes") && !answer.text.contains("figs"),
            "{answer:?}"
        );
    });
}

#[test]
fn reply_is_regenerated_and_players_rewind_only_their_own() {
    run(async {
        let server = fresh(&[]).start();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "Hello.").await;
        let first = rest.get(&format!("/v1/sessions/{session}/turns")).await["items"][0].clone();
        socket
            .send(&json!({"type": "player.regenerate", "session_id": session, "key": "anew", "event_id": "r1"}))
            .await;
        assert_eq!(socket.until("dialogue.rewound").await["turn"], 0);
        assert_eq!(socket.until("turn.started").await["re"], "r1");
        assert_eq!(socket.reply().await.turn, 1);
        let second = rest
            .post(&format!("/v1/sessions/{session}:regenerate"), &json!({"key": "anew"}))
            .await;
        assert_eq!((&second["turn"], &second["player_text"]), (&json!(1), &json!("Hello.")));
        assert_ne!(second["id"], first["id"]);

        let player = |name| {
            RestClient::new(
                server.address,
                server.token("demo", colloquy::tenancy::Role::Player, Some(name)),
            )
        };
        let back = format!("/v1/sessions/{session}:rewind");
        let cut = format!("/v1/sessions/{session}:interrupt");
        let (status, _) = player("p1").call(Method::POST, &back, Some(&json!({"turn": 0}))).await;
        assert_eq!(status.as_u16(), 403);
        for path in [&cut, &format!("/v1/sessions/{session}:regenerate")] {
            let (status, _) = player("p2").call(Method::POST, path, Some(&json!({}))).await;
            assert_eq!(status.as_u16(), 404, "{path}");
        }
        let (status, missing) = rest.call(Method::POST, &back, Some(&json!({"turn": 9}))).await;
        assert_eq!((status.as_u16(), &missing["param"]), (404, &json!("turn")));
        let unheard = rest.post(&cut, &json!({"turn": 1, "heard_utf16": 0})).await;
        assert_eq!(
            (&unheard["turn"], &unheard["rewound"]["removed_turns"]),
            (&json!(0), &json!([1]))
        );
        let admin = RestClient::new(
            server.address,
            server.token("demo", colloquy::tenancy::Role::Admin, None),
        );
        let rows = admin.get("/v1/audit?limit=5").await;
        let actions: Vec<&str> = rows["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["action"].as_str().unwrap())
            .collect();
        assert!(
            actions.contains(&"session.interrupt") && actions.contains(&"session.regenerate"),
            "{actions:?}"
        );
    });
}

/// Opens a session of `p1` with `mira`, whose client acknowledges playback.
async fn open_acknowledging_session(socket: &mut TestSocket) -> String {
    let create =
        json!({"type": "session.create", "world_id": "vale", "npc_id": "mira", "player_id": "p1", "playback": "ack"});
    socket.send(&create).await;
    let created = socket.until("session.created").await;
    created["session_id"].as_str().unwrap().to_owned()
}

#[test]
fn reply_is_not_learned_before_it_was_played() {
    run(async {
        let server = fresh(&[]).start();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = open_acknowledging_session(&mut socket).await;
        socket.say_line(&session, "I like grapes.").await;
        // Later lines of another session are learned meanwhile.
        let mut other = server.player("p2").await;
        let elsewhere = other.session("mira", "p2").await;
        other.say_line(&elsewhere, "I like figs.").await;
        wait_until_learned(&rest, "mira", "figs").await;
        assert!(
            !valid_contents(&rest, "mira")
                .await
                .iter()
                .any(|fact| fact.contains("grapes"))
        );
        socket
            .send(&json!({"type": "reply.played", "session_id": session, "turn": 1}))
            .await;
        wait_until_learned(&rest, "mira", "grapes").await;
        socket.say_line(&session, "I like plums.").await;
        socket.say_line(&session, "Hello again.").await;
        wait_until_learned(&rest, "mira", "plums").await;
        socket
            .send(&json!({"type": "reply.played", "session_id": session, "turn": 9}))
            .await;
        assert_eq!(wait_for_event(&mut socket, "error").await["error"]["param"], "turn");
    });
}

#[test]
fn reply_without_acknowledgement_is_learned_after_a_delay() {
    run(async {
        let server = fresh(&[("COLLOQUY__TURN__PLAYBACK_TIMEOUT_S", "2")]).start();
        let mut socket = server.player("p1").await;
        let session = open_acknowledging_session(&mut socket).await;
        socket.say_line(&session, "I like grapes.").await;
        // The delay is shorter than the intervals that look for leases and leftover jobs.
        wait_until_learned(&server.backend(), "mira", "grapes").await;
    });
}

/// A reply with a fact at its beginning and another at its end.
const TEACHES: &str = "Hanna likes plums. She told me at the mill, not long ago. Hanna hates figs.";

/// Asserts that only the first fact of [`TEACHES`] is learned, and that the model never saw the second.
async fn assert_only_heard_part_is_learned(mock: &MockHandle, rest: &RestClient) {
    wait_until_learned(rest, "mira", "plums").await;
    rest.idle().await;
    let facts = rest.facts("mira").await;
    assert!(facts.iter().all(|fact| !fact.to_string().contains("figs")), "{facts:?}");
    let read = mock
        .requests_of("extraction")
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>();
    assert!(read.iter().any(|read| read.contains("Hanna likes plums.")), "{read:?}");
    assert!(read.iter().all(|read| !read.contains("figs")), "{read:?}");
}

#[test]
fn reply_cut_before_playback_is_learned_as_far_as_heard() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = with_mock(&mock).start();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = open_acknowledging_session(&mut socket).await;
        mock.apply_settings(&json!({ "reply": TEACHES })).unwrap();
        let said = socket.say_line(&session, "Tell me of her.").await;
        assert_eq!(said.text, TEACHES);
        // Later lines of another session are learned meanwhile.
        mock.apply_settings(&json!({"reply": ""})).unwrap();
        let mut other = server.player("p2").await;
        let elsewhere = other.session("mira", "p2").await;
        other.say_line(&elsewhere, "I like grapes.").await;
        wait_until_learned(&rest, "mira", "grapes").await;
        let known = valid_contents(&rest, "mira").await;
        assert_eq!(
            known,
            ["The player likes grapes."],
            "nothing is learned before it was played"
        );

        let cut =
            json!({"type": "player.interrupt", "session_id": session, "turn": 1, "heard_chars": 30, "event_id": "i"});
        socket.send(&cut).await;
        let rewound = wait_for_event(&mut socket, "dialogue.rewound").await;
        assert_eq!(
            (&rewound["turn"], &rewound["heard_chars"]),
            (&json!(1), &json!(30)),
            "{rewound}"
        );
        assert_only_heard_part_is_learned(&mock, &rest).await;
        let heard: String = TEACHES.chars().take(30).collect();
        assert_eq!(transcript(&rest, &session).await[0].2, heard);
        // A later acknowledgement of the whole reply changes nothing, nor does another turn.
        socket
            .send(&json!({"type": "reply.played", "session_id": session, "turn": 1}))
            .await;
        socket.say_line(&session, "I like pears.").await;
        socket
            .send(&json!({"type": "reply.played", "session_id": session, "turn": 2}))
            .await;
        wait_until_learned(&rest, "mira", "pears").await;
        assert_only_heard_part_is_learned(&mock, &rest).await;
    });
}

#[test]
fn reply_cut_during_streaming_and_playback_is_learned_as_far_as_heard() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = with_mock(&mock).start();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = open_acknowledging_session(&mut socket).await;
        // More text is sent than played. Text sent ahead teaches no facts.
        let reply = format!(
            "Hanna likes plums. So it is. Hanna hates figs. {}",
            "And so on. ".repeat(100)
        );
        mock.apply_settings(&json!({ "reply": reply })).unwrap();
        let done = cut_while_streaming(&mock, &mut socket, &session, "first", 24).await;
        assert_eq!(done["text"], "Hanna likes plums. So it", "{done}");
        socket
            .send(&json!({"type": "reply.played", "session_id": session, "turn": 1}))
            .await;
        assert_only_heard_part_is_learned(&mock, &rest).await;
    });
}

/// Cuts a streaming reply of the mock model at the given number of heard characters.
async fn cut_while_streaming(
    mock: &MockHandle,
    socket: &mut TestSocket,
    session: &str,
    key: &str,
    heard: u64,
) -> Value {
    mock.apply_settings(&json!({"tokens_per_s": 50, "deltas": 400}))
        .unwrap();
    socket.send_line(session, key, "Tell me of the mill.").await;
    let mut said = 0;
    while said < heard + 40 {
        let delta = wait_for_event(socket, "reply.delta").await;
        said = delta["offset"].as_u64().unwrap() + delta["text"].as_str().unwrap().chars().count() as u64;
    }
    let cut =
        json!({"type": "player.interrupt", "session_id": session, "heard_chars": heard, "key": format!("cut {key}")});
    socket.send(&cut).await;
    let done = wait_for_event(socket, "reply.done").await;
    assert_eq!(done["status"], "interrupted");
    wait_for_event(socket, "turn.committed").await;
    mock.apply_settings(&json!({"tokens_per_s": 0, "deltas": 8})).unwrap();
    done
}

#[test]
fn reply_cut_while_streaming_is_resumed_with_all_streamed_text() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = with_mock(&mock).spawn();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "Hello.").await;
        let done = cut_while_streaming(&mock, &mut socket, &session, "first", 12).await;
        let heard = done["text"].as_str().unwrap().to_owned();
        assert!(heard.chars().count() <= 12);
        assert_eq!(
            transcript(&rest, &session).await[1].2,
            heard,
            "nothing else is seen of it"
        );
        let page = rest.get(&format!("/v1/sessions/{session}/turns")).await;
        let trace = rest.get(&format!("/v1/sessions/{session}/turns/2/trace")).await;

        let path = format!("/v1/sessions/{session}:resume");
        let resumed = rest.post(&path, &json!({"key": "up"})).await;
        assert_eq!(
            (&resumed["turn"], &resumed["goes_on"]),
            (&json!(1), &json!(2)),
            "{resumed}"
        );
        assert_eq!(
            wait_for_event(&mut socket, "dialogue.rewound").await["removed_turns"],
            json!([2])
        );
        let first = wait_for_event(&mut socket, "reply.delta").await;
        let again = first["text"].as_str().unwrap();
        assert_eq!(first["offset"], 0);
        assert!(
            again.starts_with(heard.trim_end()) && again.chars().count() > 40,
            "{again}"
        );
        assert!(!page.to_string().contains(again) && !trace.to_string().contains(again));
        let whole = wait_for_event(&mut socket, "reply.done").await;
        wait_for_event(&mut socket, "turn.committed").await;
        assert_eq!((&whole["turn"], &whole["status"]), (&json!(2), &json!("completed")));
        let text = whole["text"].as_str().unwrap();
        assert!(text.starts_with(again) && text.len() > again.len(), "{text}");
        let said = transcript(&rest, &session).await;
        assert_eq!(
            (said.len(), said[1].1.as_str(), said[1].2.as_str()),
            (2, "Tell me of the mill.", text)
        );
        assert_eq!(rest.post(&path, &json!({"key": "up"})).await, resumed);

        // The audit log names the caller, and the next process knows both keys.
        let server = server.kill().spawn();
        let rest = server.backend();
        assert_eq!(rest.post(&path, &json!({"key": "up"})).await, resumed);
        let cut = format!("/v1/sessions/{session}:interrupt");
        let told = rest.post(&cut, &json!({"key": "cut first"})).await;
        assert_eq!((&told["interrupted"], &told["turn"]), (&json!(true), &json!(2)));
        assert_eq!(transcript(&rest, &session).await, said);
        let admin = server.rest(colloquy::tenancy::Role::Admin);
        let log = admin.get("/v1/audit?limit=20").await["items"]
            .as_array()
            .unwrap()
            .clone();
        let of_it: Vec<_> = log
            .iter()
            .filter(|row| row["object"] == json!(session))
            .map(|row| (row["action"].as_str().unwrap(), row["player_id"].as_str()))
            .collect();
        assert_eq!(of_it, [("session.resume", None), ("session.interrupt", Some("p1"))]);
    });
}

#[test]
fn socket_resumes_the_last_cut_reply_and_no_reply_in_between() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = with_mock(&mock).start();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        cut_while_streaming(&mock, &mut socket, &session, "first", 20).await;
        socket
            .send(&json!({"type": "player.resume", "session_id": session, "key": "up", "event_id": "r"}))
            .await;
        let started = wait_for_event(&mut socket, "turn.started").await;
        assert_eq!((&started["re"], &started["turn"]), (&json!("r"), &json!(1)));
        let whole = wait_for_event(&mut socket, "reply.done").await;
        assert_eq!((&whole["re"], &whole["status"]), (&json!("r"), &json!("completed")));
        wait_for_event(&mut socket, "turn.committed").await;

        cut_while_streaming(&mock, &mut socket, &session, "second", 20).await;
        socket.say_line(&session, "Never mind.").await;
        socket
            .send(&json!({"type": "player.resume", "session_id": session}))
            .await;
        assert_eq!(
            wait_for_event(&mut socket, "error").await["error"]["code"],
            "nothing_to_resume"
        );
    });
}
