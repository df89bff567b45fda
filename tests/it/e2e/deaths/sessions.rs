//! Deaths in a session's turns and rewinds.

use colloquy::mock_llm::{self, MockOptions};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    After, Before, CrashAction, PreparedDialogue, PutBack, act_over_socket, assert_deaths_at_all_points, data,
    perform_action, wait_until_idle,
};
use crate::support::{RestClient, ServerData, TestServer, run};

pub(super) const DEEDS: &[&CrashAction] = &[
    &TURN,
    &TWO_MEMORIES,
    &CUT,
    &BARGE_IN,
    &RESUME,
    &REGENERATE,
    &CONSOLIDATE,
];

/// Adds a turn that ends a fact, changes state, and makes a summary and a curation pass due.
const TURN: CrashAction = CrashAction {
    path: "/v1/sessions/$d/turns",
    body: || json!({"text": "I don't like plums anymore. Let's go to the lake.", "key": "deed"}),
    points: &[
        ("turn.said", Before),
        ("turn.durable", After),
        ("turn.buffered", After),
        ("turn.told", After),
        ("facts.extracted", After),
        ("facts.passed", After),
        ("facts.inserted", After),
        ("facts.lifted", After),
        ("facts.ended", After),
        ("facts.folded", After),
        ("facts.durable", After),
        ("summary.made", After),
        ("summary.written", After),
        ("summary.durable", After),
        ("pass.made", After),
        ("pass.written", After),
        ("pass.durable", After),
        ("outbox.read", After),
        ("outbox.indexed", After),
        ("outbox.done", After),
    ],
    inside: false,
};

/// Adds a turn with a private fact of the player and a self-fact of the NPC for everyone.
const TWO_MEMORIES: CrashAction = CrashAction {
    path: "/v1/sessions/$d/turns",
    body: || json!({"text": "I hate plums.", "key": "deed"}),
    points: &[
        ("facts.extracted", After),
        ("facts.passed", After),
        // At these points only one of the two memories is written.
        ("facts.inserted", After),
        ("facts.ended", After),
        ("facts.folded", After),
        ("facts.durable", After),
    ],
    inside: true,
};

/// Cuts a reply where the player stopped listening, and unsays later turns.
const CUT: CrashAction = CrashAction {
    path: "/v1/sessions/$d:interrupt",
    body: || json!({"turn": 3, "heard_chars": 9, "key": "deed"}),
    points: &[
        ("rewind.planned", Before),
        ("rewind.begun", Before),
        ("rewind.unsaid", Before),
        ("rewind.unchecked", Before),
        ("rewind.jobs", Before),
        ("rewind.cached", Before),
        ("rewind.replaced", Before),
        ("rewind.head", Before),
        ("rewind.audited", Before),
        ("rewind.durable", After),
        ("rewind.truncated", After),
        ("rewind.followed", After),
        ("rewind.told", After),
        ("settle.marked", After),
        ("settle.unmarked", After),
        ("facts.folded", After),
        ("settle.durable", After),
        ("facts.extracted", After),
        ("outbox.read", After),
        ("outbox.indexed", After),
        ("outbox.done", After),
    ],
    inside: true,
};

/// Cuts a streaming reply. The turn is committed with the heard part.
const BARGE_IN: CrashAction = CrashAction {
    path: "ws:player.interrupt",
    body: || json!({"text": "I hate plums.", "key": "deed", "heard_chars": 3}),
    points: &[
        ("turn.said", Before),
        ("turn.head", Before),
        ("turn.written", Before),
        ("turn.durable", After),
        ("turn.buffered", After),
        ("turn.told", After),
        ("facts.extracted", After),
        ("facts.durable", After),
    ],
    inside: false,
};

/// Resumes the cut reply.
const RESUME: CrashAction = CrashAction {
    path: "/v1/sessions/$d:resume",
    body: || json!({"key": "up"}),
    points: &[
        ("rewind.unsaid", Before),
        ("rewind.said_again", Before),
        ("rewind.put_back", Before),
        ("rewind.cached", Before),
        ("rewind.head", Before),
        ("rewind.audited", Before),
        ("rewind.durable", After),
        ("rewind.followed", After),
        ("settle.unmarked", After),
        ("settle.durable", After),
    ],
    inside: false,
};

/// Regenerates the last reply.
const REGENERATE: CrashAction = CrashAction {
    path: "/v1/sessions/$d:regenerate",
    body: || json!({"key": "deed"}),
    points: &[
        ("rewind.planned", Before),
        ("rewind.unchecked", Before),
        ("rewind.head", Before),
        ("rewind.audited", Before),
        ("rewind.durable", PutBack),
        ("rewind.told", PutBack),
        ("turn.said", PutBack),
        ("turn.head", PutBack),
        ("turn.written", PutBack),
        ("turn.durable", After),
        ("turn.told", After),
    ],
    inside: false,
};

/// Consolidates the facts of a session.
const CONSOLIDATE: CrashAction = CrashAction {
    path: "/v1/worlds/vale/consolidation:run",
    body: || json!({}),
    points: &[
        ("consolidation.made", After),
        ("consolidation.inserted", After),
        ("consolidation.written", After),
        ("consolidation.durable", After),
        ("outbox.read", After),
    ],
    inside: true,
};

/// Says a line over a socket, and cuts the reply after the first delta.
pub(super) async fn interrupt_running_reply(server: &TestServer, session: &str, body: Value) -> Option<u16> {
    let resume = json!({"type": "session.resume", "session_id": session});
    let say = json!({"type": "player.say", "session_id": session, "text": body["text"], "key": body["key"]});
    let cut =
        json!({"type": "player.interrupt", "session_id": session, "heard_chars": body["heard_chars"], "key": "cut"});
    act_over_socket(server, &resume, |event| match event["type"].as_str() {
        Some("session.resumed") => Some(say.clone()),
        Some("reply.delta") if event["offset"] == 0 => Some(cut.clone()),
        _ => None,
    })
    .await
}

const LINES: [&str; 5] = [
    "I like grapes.",
    "My sister Yuna lives in Harbour Town.",
    "I hate plums. Let's go to the old mill.",
    "I don't like grapes anymore.",
    "I like plums now. Let's go to the market.",
];

/// Prepares lines that end earlier facts, with a summary and changes of state.
async fn prepare_session() -> PreparedDialogue {
    prepare_spoken_session(data(), &LINES, &["I like pears.", "What fruit do I like?"]).await
}

/// Starts a clock, of which a part passes at once. Allows actions, which the scripted model asks for at lines that have the
/// words of the name.
async fn author_world(rest: &RestClient) {
    let mut world = rest.get("/v1/worlds/vale").await;
    let actions = ["go_mill", "go_market", "go_lake"]
        .map(|name| json!({"name": name, "description": "It is done.", "expires_s": 86_400}));
    world["settings"]["actions"] = json!(actions);
    world["settings"]["clock"] = json!({"start": "0007-05-01 12:00"});
    let body =
        ["name", "premise", "language", "rules", "settings"].map(|field| (field.to_owned(), world[field].clone()));
    let body = Value::Object(body.into_iter().collect());
    let (status, answer) = rest.call(Method::PUT, "/v1/worlds/vale", Some(&body)).await;
    assert!(status.is_success(), "{answer}");
    let passed = json!({"events": [{"type": "time_passed", "hours": 30}]});
    rest.post("/v1/worlds/vale/events", &passed).await;
}

/// Prepares a session with `lines`, and with `goes_on` as its later lines.
async fn prepare_spoken_session(data: ServerData, lines: &[&str], goes_on: &[&str]) -> PreparedDialogue {
    let server = data.spawn();
    let rest = server.backend();
    author_world(&rest).await;
    let opened = rest
        .post(
            "/v1/sessions",
            &json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"}),
        )
        .await;
    let dialogue = opened["id"].as_str().unwrap().to_owned();
    let turns = format!("/v1/sessions/{dialogue}/turns");
    for line in lines {
        rest.post(&turns, &json!({"text": line})).await;
        wait_until_idle(&data).await;
    }
    server.stop();
    PreparedDialogue {
        data,
        dialogue,
        goes_on: goes_on
            .iter()
            .map(|line| (turns.clone(), json!({"text": line})))
            .collect(),
    }
}

async fn assert_deaths_in(prepared: &PreparedDialogue, deed: &CrashAction) {
    let [before, _] = assert_deaths_at_all_points(prepared, deed).await;
    assert!(
        before["facts"].to_string().contains(r#""valid":false"#),
        "no fact was ended: {before}"
    );
    let session = &before["sessions"][0];
    assert!(
        !session["summaries"]["items"].as_array().unwrap().is_empty(),
        "{before}"
    );
    assert!(session["context"].to_string().contains("location"), "{before}");
    let notes = before["passes"].to_string();
    assert!(notes.contains("Turn 1: the player said"), "{notes}");
    assert_eq!(before["clock"]["time"], "0007-05-02 18:00", "{before}");
    let told = before["episodes"].as_array().unwrap().len();
    assert_eq!(told, session["turns"]["items"].as_array().unwrap().len(), "{before}");
    let actions = before["actions"].to_string();
    assert!(
        actions.contains("go_mill") && actions.contains("go_market"),
        "{actions}"
    );
}

#[test]
fn death_during_a_turn_leaves_the_state_before_or_after_it() {
    run(async { assert_deaths_in(&prepare_session().await, &TURN).await });
}

#[test]
fn death_during_a_consolidation_leaves_one_conclusion() {
    run(async {
        let lines = ["I like grapes.", "I like pears.", "I like bread."];
        let prepared = prepare_spoken_session(data(), &lines, &["I don't like pears anymore."]).await;
        let [before, after] = assert_deaths_at_all_points(&prepared, &CONSOLIDATE).await;
        let concluded = |observed: &Value| {
            let facts = observed["facts"].as_array().unwrap().iter();
            facts
                .filter(|fact| {
                    fact["fact"]["derived_from"]
                        .as_array()
                        .is_some_and(|from| !from.is_empty())
                })
                .count()
        };
        assert_eq!((concluded(&before), concluded(&after)), (0, 1), "{after}");
    });
}

#[test]
fn death_between_two_memories_of_a_turn_loses_nothing_and_doubles_nothing() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let data = data().with_mock(&mock.base_url());
        let prepared = prepare_spoken_session(data, &["Hello."], &["I like pears."]).await;
        mock.apply_settings(&json!({"reply": "Mira likes elderberry wine."}))
            .unwrap();
        let [_, after] = assert_deaths_at_all_points(&prepared, &TWO_MEMORIES).await;
        let facts = after["facts"].to_string();
        for told in ["hates plums", "elderberry"] {
            assert!(facts.contains(told), "{facts}");
        }
    });
}

#[test]
fn death_during_a_rewind_leaves_the_state_before_or_after_it() {
    run(async { assert_deaths_in(&prepare_session().await, &CUT).await });
}

#[test]
fn death_during_a_cut_leaves_the_state_before_or_after_it() {
    run(async {
        // A reply takes about three seconds.
        let slowly = MockOptions {
            tokens_per_s: 3,
            ..MockOptions::default()
        };
        let mock = mock_llm::start_on_thread(slowly).unwrap();
        let data = data().with_mock(&mock.base_url());
        let prepared = prepare_spoken_session(data, &["I like grapes."], &["I like pears."]).await;
        let [_, after] = assert_deaths_at_all_points(&prepared, &BARGE_IN).await;
        let cut = &after["sessions"][0]["turns"]["items"][1];
        assert_eq!(cut["status"], "interrupted", "{after}");
        // The heard part is the first word, even if more was streamed by then.
        assert_eq!(cut["reply_text"], "The", "{cut}");
        assert!(after["facts"].to_string().contains("plums"), "{after}");
    });
}

#[test]
fn death_during_a_regeneration_leaves_the_state_before_or_after_it() {
    run(async { assert_deaths_in(&prepare_session().await, &REGENERATE).await });
}

#[test]
fn death_during_a_reply_resume_leaves_the_state_before_or_after_it() {
    run(async {
        let prepared = prepare_session().await;
        let server = prepared.data.spawn();
        perform_action(&server, &prepared.dialogue, &CUT).await.unwrap();
        wait_until_idle(&prepared.data).await;
        server.stop();
        assert_deaths_in(&prepared, &RESUME).await;
    });
}
