//! The process dies at every named point of a turn, of a rewind and of what follows them
//! (`src/failpoint.rs`). After a restart on the same data, everything that can be observed is as it was
//! before or as it is after: compared with a run that nothing happened to.

use std::{collections::BTreeSet, path::Path};

use colloquy::failpoint::{DIE_AT, POINTS};
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, sqlite::SqliteConnectOptions};

use crate::support::{Data, Rest, Server, eventually, run};

/// Points that are died at side by side.
const AT_ONCE: usize = 3;

/// What a death at a point leaves: the state before, or the state after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Before,
    /// The state before, put back by the next process: what the facts' histories tell of.
    PutBack,
    After,
}
use Leaves::{After, Before, PutBack};

/// Something that is done to a prepared dialogue.
struct Deed {
    /// Below the session's.
    path: &'static str,
    body: fn() -> Value,
    /// Points that it passes, in the order in which it does.
    points: &'static [(&'static str, Leaves)],
}

/// A further turn: one that ends a fact, changes state, and makes a summary due.
const TURN: Deed = Deed {
    path: "turns",
    body: || json!({"text": "I don't like plums anymore. Let's go to the lake.", "key": "deed"}),
    points: &[
        ("turn.said", Before),
        ("turn.head", Before),
        ("turn.written", Before),
        ("turn.durable", After),
        ("turn.buffered", After),
        ("turn.told", After),
        ("facts.extracted", After),
        ("facts.passed", After),
        ("facts.kept", After),
        ("facts.inserted", After),
        ("facts.lifted", After),
        ("facts.ended", After),
        ("facts.folded", After),
        ("facts.durable", After),
        ("summary.made", After),
        ("summary.written", After),
        ("summary.durable", After),
        ("outbox.read", After),
        ("outbox.indexed", After),
        ("outbox.done", After),
    ],
};

/// A reply cut where it was heard, and turns after it taken back.
const CUT: Deed = Deed {
    path: ":interrupt",
    body: || json!({"turn": 3, "heard_chars": 9, "key": "deed"}),
    points: &[
        ("rewind.planned", Before),
        ("rewind.begun", Before),
        ("rewind.unsaid", Before),
        ("rewind.unchecked", Before),
        ("rewind.jobs", Before),
        ("rewind.caused", Before),
        ("rewind.facts", Before),
        ("rewind.cached", Before),
        ("rewind.replaced", Before),
        ("rewind.head", Before),
        ("rewind.recorded", Before),
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
};

/// What was cut, taken up again.
const RESUME: Deed = Deed {
    path: ":resume",
    body: || json!({}),
    points: &[
        ("rewind.unsaid", Before),
        ("rewind.said_again", Before),
        ("rewind.put_back", Before),
        ("rewind.facts_again", Before),
        ("rewind.cached", Before),
        ("rewind.head", Before),
        ("rewind.audited", Before),
        ("rewind.durable", After),
        ("rewind.followed", After),
        ("settle.unmarked", After),
        ("settle.durable", After),
    ],
};

/// The last reply said anew.
const ANEW: Deed = Deed {
    path: ":regenerate",
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
};

fn data() -> Data {
    Data::new(&[
        ("COLLOQUY__ACTORS__SWEEP_S", "1"),
        ("COLLOQUY__JOBS__POLL_S", "1"),
        ("COLLOQUY__SUMMARIES__FIRST_AFTER_TURNS", "2"),
        ("COLLOQUY__SUMMARIES__THEN_EVERY_TURNS", "2"),
        ("COLLOQUY__SUMMARIES__BUFFER_MIN_TURNS", "2"),
        // A cut reply can still be taken up again after some restarts.
        ("COLLOQUY__TURN__SEAL_S", "3600"),
    ])
}

const LINES: [&str; 5] = [
    "I like grapes.",
    "My sister Yuna lives in Harbour Town.",
    "I hate plums. Let's go to the old mill.",
    "I don't like grapes anymore.",
    "I like plums now. Let's go to the market.",
];

/// Lines that end what earlier ones taught, with a summary and changes of state; the session.
async fn prepared(data: &Data) -> String {
    let server = data.spawn();
    let rest = server.backend();
    let opened = rest
        .post(
            "/v1/sessions",
            &json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"}),
        )
        .await;
    let session = opened["id"].as_str().unwrap().to_owned();
    for line in LINES {
        rest.post(&format!("/v1/sessions/{session}/turns"), &json!({"text": line}))
            .await;
        quiet(data).await;
    }
    server.stop();
    session
}

/// Waits until nothing is left to be done, as the ledger tells it.
async fn quiet(data: &Data) {
    let file = ledger(data.path());
    let left = "SELECT (SELECT COUNT(*) FROM jobs WHERE status = 'pending') + (SELECT COUNT(*) FROM outbox)
        + (SELECT COUNT(*) FROM unsettled) + (SELECT COUNT(*) FROM dialogues WHERE replacing IS NOT NULL)";
    eventually("the end of all jobs", || async {
        let mut ledger = SqliteConnectOptions::new()
            .filename(&file)
            .read_only(true)
            .connect()
            .await
            .unwrap();
        let left: i64 = sqlx::query_scalar(left).fetch_one(&mut ledger).await.unwrap();
        (left == 0).then_some(())
    })
    .await;
}

fn ledger(folder: &Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files = files.filter(|file| file.extension().is_some_and(|kind| kind == "db"));
    files.next().expect("no ledger")
}

/// Everything that can be observed, without ids and clock times. The state of the world is in the context.
async fn observed(rest: &Rest, session: &str) -> Value {
    let mut facts = Vec::new();
    for fact in rest.facts("mira").await {
        let history = rest
            .get(&format!("/v1/facts/{}/history", fact["id"].as_str().unwrap()))
            .await;
        let valid = fact["invalid_at"].is_null();
        facts.push(scrubbed(&json!({"valid": valid, "fact": fact, "history": history})));
    }
    facts.sort_by_key(Value::to_string);
    let at = |what: &str| format!("/v1/sessions/{session}{what}");
    let probe = json!({"text": "What fruit do I like?"});
    json!({
        "turns": scrubbed(&rest.get(&at("/turns")).await),
        "facts": facts,
        "summaries": scrubbed(&rest.get(&at("/summaries")).await),
        "context": scrubbed(&rest.post(&at("/context"), &probe).await),
    })
}

/// How it is now, however it came to be so.
fn now(observed: &Value) -> Value {
    let facts = observed["facts"].as_array().unwrap().iter();
    let mut facts: Vec<Value> = facts
        .filter(|fact| fact["valid"] == true)
        .map(|fact| fact["fact"].clone())
        .collect();
    facts.sort_by_key(Value::to_string);
    let mut now = observed.clone();
    now["facts"] = facts.into();
    now
}

/// Without what differs from run to run.
fn scrubbed(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| {
                let name = name.as_str();
                // A reply said anew may be asked for before the index has followed the rewind: `usage`.
                let clock = [
                    "at",
                    "id",
                    "seq",
                    "by",
                    "invalid_by",
                    "timings",
                    "version",
                    "hash",
                    "usage",
                ];
                !clock.contains(&name) && !["_at", "_id", "_ms", "_hash"].iter().any(|end| name.ends_with(end))
            })
            .map(|(name, value)| (name.clone(), scrubbed(value)))
            .collect(),
        Value::Array(values) => values.iter().map(scrubbed).collect(),
        other => other.clone(),
    }
}

async fn does(rest: &Rest, session: &str, deed: &Deed) -> Result<u16, reqwest::Error> {
    let slash = if deed.path.starts_with(':') { "" } else { "/" };
    let path = format!("/v1/sessions/{session}{slash}{}", deed.path);
    let (status, answer) = rest.attempt(Method::POST, &path, Some(&(deed.body)())).await?;
    assert!(
        status.is_success() || answer["code"] == "nothing_to_resume",
        "{}: {status} {answer}",
        deed.path
    );
    Ok(status.as_u16())
}

/// The dialogue goes on: another turn, what it teaches, and what is known then.
async fn goes_on(server: &Server, session: &str) -> Value {
    let rest = server.backend();
    for line in ["I like pears.", "What fruit do I like?"] {
        rest.post(&format!("/v1/sessions/{session}/turns"), &json!({"text": line}))
            .await;
        quiet(&server.data).await;
    }
    observed(&rest, session).await
}

fn assert_same(left: &Value, right: &Value, what: &str) {
    for part in ["turns", "facts", "summaries", "context"] {
        let lines = |value: &Value| serde_json::to_string_pretty(&value[part]).unwrap();
        let (left, right) = (lines(left), lines(right));
        let differs = left.lines().zip(right.lines()).find(|(left, right)| left != right);
        assert!(left == right, "{what}: {part} differs at {differs:?}:\n{left}");
    }
}

/// Dies at `point`, comes back, is asked again and goes on; compared with the unharmed run's states
/// before the deed, after it and later.
async fn dies_at(
    point: &str,
    leaves: Leaves,
    prepared: &Data,
    session: &str,
    deed: &Deed,
    [before, after, later]: [&Value; 3],
) {
    let data = prepared.copy();
    let armed = data.with(&[(DIE_AT, point)]).spawn();
    let acknowledged = does(&armed.backend(), session, deed).await.is_ok();
    armed.died(point).await;

    let server = data.spawn();
    let rest = server.backend();
    quiet(&data).await;
    let expected = if leaves == After { after } else { before };
    let of = |observed: &Value| {
        if leaves == PutBack {
            now(observed)
        } else {
            observed.clone()
        }
    };
    assert_same(&of(&observed(&rest, session).await), &of(expected), point);
    assert!(
        !acknowledged || leaves == After,
        "{point}: what was acknowledged is lost"
    );
    // Whoever got no answer asks again.
    does(&rest, session, deed).await.unwrap();
    quiet(&data).await;
    let again = observed(&rest, session).await;
    assert_same(&of(&again), &of(after), &format!("{point}, asked again"));
    let then = goes_on(&server, session).await;
    assert_same(&of(&then), &of(later), &format!("{point}, two turns later"));
    server.kill();
    let checked = data.command().args(["reindex", "--check"]).output().unwrap();
    assert!(checked.status.success(), "{point}: {checked:?}");
}

/// Does `deed` to what `prepared` holds once without harm, then with a death at each of its points.
async fn dies_everywhere(prepared: &Data, session: &str, deed: &Deed) {
    let control = prepared.copy();
    let server = control.spawn();
    let before = observed(&server.backend(), session).await;
    assert_eq!(does(&server.backend(), session, deed).await.unwrap(), 200);
    quiet(&control).await;
    let after = observed(&server.backend(), session).await;
    assert_ne!(before, after, "a deed that does nothing shows nothing");
    assert!(
        before.to_string().contains(r#""valid":false"#),
        "no fact was ended: {before}"
    );
    assert!(!before["summaries"]["items"].as_array().unwrap().is_empty(), "{before}");
    assert!(before["context"].to_string().contains("location"), "{before}");
    let later = goes_on(&server, session).await;
    server.stop();

    let points = Mutex::new(deed.points.iter());
    let next = || points.lock().next();
    // Most of the time is spent waiting for servers to start.
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((point, leaves)) = next() {
                    run(dies_at(
                        point,
                        *leaves,
                        prepared,
                        session,
                        deed,
                        [&before, &after, &later],
                    ));
                }
            });
        }
    });
}

#[test]
fn every_point_is_died_at() {
    let died_at: BTreeSet<&str> = [&TURN, &CUT, &RESUME, &ANEW]
        .iter()
        .flat_map(|deed| deed.points.iter().map(|(point, _)| *point))
        .collect();
    let known: BTreeSet<&str> = POINTS.iter().copied().collect();
    assert_eq!(died_at, known);
}

#[test]
fn a_death_in_a_turn_leaves_the_state_before_or_after_it() {
    run(async {
        let data = data();
        let session = prepared(&data).await;
        dies_everywhere(&data, &session, &TURN).await;
    });
}

#[test]
fn a_death_in_a_rewind_leaves_the_state_before_or_after_it() {
    run(async {
        let data = data();
        let session = prepared(&data).await;
        dies_everywhere(&data, &session, &CUT).await;
    });
}

#[test]
fn a_death_while_a_reply_is_said_anew_leaves_the_state_before_or_after_it() {
    run(async {
        let data = data();
        let session = prepared(&data).await;
        dies_everywhere(&data, &session, &ANEW).await;
    });
}

#[test]
fn a_death_in_taking_a_reply_up_again_leaves_the_state_before_or_after_it() {
    run(async {
        let data = data();
        let session = prepared(&data).await;
        let server = data.spawn();
        does(&server.backend(), &session, &CUT).await.unwrap();
        quiet(&data).await;
        server.stop();
        dies_everywhere(&data, &session, &RESUME).await;
    });
}
