//! The process dies at every named point of an action on a dialogue, and of the work afterwards (`src/core/failpoint.rs`).
//! After a restart on the same stores, the observable state equals the state before or after the action. The reference
//! is a run without a death.
//!
//! On Postgres and Redis the server is one node of several. Until its lease ends, a dead node still owns its dialogues.
//! Its buffers are still there, as far as the node had written them.

mod conversations;
mod saves;
mod sessions;

use std::{collections::BTreeSet, time::Duration};

use colloquy::{
    failpoint::{DIE_AT_ENV, POINTS},
    tenancy::Role,
};
use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, ServerData, TestServer, TestSocket, eventually, run};

/// The number of deaths that run in parallel.
const CONCURRENT_DEATHS: usize = 3;

/// Set to `all` for the nightly run (`scripts/replays.sh`): on Postgres, too, every action dies at all of its points.
const DEATHS: &str = "COLLOQUY_DEATHS";

/// Steps inside a transaction, other than the last. The code is the same for both databases, and the last steps show
/// that Postgres rolls all steps back. In ordinary runs on Postgres only some actions die here.
const POINTS_INSIDE_TRANSACTION: [&str; 17] = [
    "turn.head",
    "facts.passed",
    "facts.inserted",
    "facts.lifted",
    "facts.ended",
    "rewind.begun",
    "rewind.unsaid",
    "rewind.unchecked",
    "rewind.jobs",
    "rewind.said_again",
    "rewind.put_back",
    "rewind.cached",
    "rewind.replaced",
    "rewind.head",
    "restore.fenced",
    "restore.head",
    "restore.all_moved",
];

/// The points inside a transaction where actions on Postgres die only at night.
const NIGHTLY_POINTS: [&str; 7] = [
    "turn.head",
    "facts.lifted",
    "rewind.said_again",
    "rewind.put_back",
    "restore.fenced",
    "restore.head",
    "restore.all_moved",
];

/// The state after a death at a point: the state before or after the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateAfterDeath {
    Before,
    /// The state before, restored by the next process. The histories of facts show the restoration.
    PutBack,
    /// After the first of several actions in one message. Other dialogues equal the state after the message. Dialogues
    /// of the later actions are not compared, nor episodes, nor the audit log, which comes at the end.
    Begun,
    After,
}
use StateAfterDeath::{After, Before, Begun, PutBack};

/// An action on prepared dialogues.
struct CrashAction {
    /// `$d` is the dialogue's id.
    path: &'static str,
    /// Has a key, unless repeating the request should repeat the action.
    body: fn() -> Value,
    /// The points that the action passes, in order.
    points: &'static [(&'static str, StateAfterDeath)],
    /// True if the action also dies at [`POINTS_INSIDE_TRANSACTION`] on Postgres in every run.
    inside: bool,
}

impl CrashAction {
    fn is_keyed(&self) -> bool {
        !(self.body)()["key"].is_null()
    }

    /// Returns the points where the action dies, for one database.
    fn points_on(
        &self,
        postgres: bool,
        at_night: bool,
    ) -> impl Iterator<Item = &'static (&'static str, StateAfterDeath)> + use<> {
        let all = !postgres || at_night || self.inside;
        self.points
            .iter()
            .filter(move |(point, _)| all || !POINTS_INSIDE_TRANSACTION.contains(point))
    }

    fn all() -> impl Iterator<Item = &'static Self> {
        sessions::DEEDS
            .iter()
            .chain(conversations::DEEDS)
            .chain(saves::DEEDS)
            .copied()
    }
}

/// Prepared dialogues, and the dialogue of the action.
struct PreparedDialogue {
    data: ServerData,
    dialogue: String,
    /// The later lines, as path and body.
    goes_on: Vec<(String, Value)>,
}

fn data() -> ServerData {
    let data = fresh(&[
        ("COLLOQUY__ACTORS__SWEEP_S", "1"),
        ("COLLOQUY__JOBS__POLL_S", "1"),
        ("COLLOQUY__SUMMARIES__FIRST_AFTER_TURNS", "2"),
        ("COLLOQUY__SUMMARIES__THEN_EVERY_TURNS", "2"),
        ("COLLOQUY__SUMMARIES__BUFFER_MIN_TURNS", "2"),
        ("COLLOQUY__CURATION__EVERY_TURNS", "2"),
        ("COLLOQUY__CURATION__CONSOLIDATE_EVERY_D", "0"),
        ("COLLOQUY__CURATION__CONSOLIDATE_AFTER_D", "0"),
        // A cut reply can still be resumed after some restarts.
        ("COLLOQUY__TURN__SEAL_S", "3600"),
    ]);
    if !data.is_on_postgres() {
        return data;
    }
    data.with(&[
        ("COLLOQUY__NODE__URL", "http://127.0.0.1:0"),
        ("COLLOQUY__NODE__SECRET", "what only the nodes of these tests know"),
        // The next node waits for the same time.
        ("COLLOQUY__NODE__HEARTBEAT_MS", "250"),
        ("COLLOQUY__NODE__LEASE_MS", "1000"),
    ])
}

/// Waits until the ledger has no pending work.
async fn wait_until_idle(data: &ServerData) {
    eventually("the end of all jobs", || async {
        let left = data.count(
            "SELECT (SELECT COUNT(*) FROM jobs WHERE status = 'pending') + (SELECT COUNT(*) FROM outbox)
            + (SELECT COUNT(*) FROM unsettled) + (SELECT COUNT(*) FROM dialogues WHERE replacing IS NOT NULL)",
        );
        (left.await == 0).then_some(())
    })
    .await;
}

/// Asserts that each standing turn with a player has exactly one episode once its facts are extracted, and that no unsaid
/// turn has one.
async fn assert_one_episode_per_turn(data: &ServerData, what: &str) {
    let wrong = data.count(
        "SELECT COUNT(*) FROM turns t WHERE t.player IS NOT NULL AND
            CASE WHEN t.stands = TRUE AND (t.player_text = '' OR EXISTS (SELECT 1 FROM jobs j WHERE j.tenant = t.tenant
                AND j.turn = t.id AND j.kind = 'extract_facts' AND j.status = 'done')) THEN 1 ELSE 0 END
            <> (SELECT COUNT(*) FROM episodes e WHERE e.tenant = t.tenant AND e.cause_id = t.id AND e.lifted_at IS NULL)",
    );
    assert_eq!(
        wrong.await,
        0,
        "{what}: turns without their episode, or unsaid turns with one"
    );
}

/// Returns the whole observable state, without ids and clock times. The context has the world's state.
async fn observe_state(server: &TestServer) -> Value {
    let rest = server.rest(Role::Admin);
    let mut facts = Vec::new();
    for npc in ["mira", "ergen"] {
        for fact in rest.facts(npc).await {
            let history = rest
                .get(&format!("/v1/facts/{}/history", fact["id"].as_str().unwrap()))
                .await;
            let valid = fact["invalid_at"].is_null();
            facts.push(without_volatile_fields(
                &json!({"npc": npc, "valid": valid, "fact": fact, "history": history}),
            ));
        }
    }
    facts.sort_by_key(Value::to_string);
    let mut episodes = Vec::new();
    for npc in ["mira", "ergen"] {
        for player in ["p1", "p2"] {
            let path = format!("/v1/worlds/vale/npcs/{npc}/episodes?player_id={player}&limit=200");
            let listed = rest.get(&path).await;
            episodes.extend(listed["items"].as_array().unwrap().iter().map(without_volatile_fields));
        }
    }
    let audit = rest.get("/v1/audit?limit=200").await;
    let actions = rest.get("/v1/worlds/vale/actions?limit=200").await;
    let state = rest.get("/v1/worlds/vale/state").await;
    let curation = rest.get("/v1/worlds/vale/curation?limit=200").await;
    let passes = rest.get("/v1/worlds/vale/curation/passes?limit=200").await;
    let mut seen = json!({
        "findings": without_volatile_fields(&curation["items"]),
        "passes": without_volatile_fields(&passes["items"]),
        "clock": without_volatile_fields(&state["clock"]),
        "facts": facts,
        "episodes": episodes,
        "audit": without_volatile_fields(&audit["items"]),
        "actions": without_volatile_fields(&actions["items"]),
    });
    for kind in ["sessions", "npc-conversations"] {
        let mut dialogues = Vec::new();
        for view in rest.get(&format!("/v1/{kind}?limit=200")).await["items"]
            .as_array()
            .unwrap()
        {
            let at = |what: &str| format!("/v1/{kind}/{}{what}", view["id"].as_str().unwrap());
            let mut dialogue = json!({
                "view": without_volatile_fields(view),
                "turns": without_volatile_fields(&rest.get(&at("/turns")).await),
                "summaries": without_volatile_fields(&rest.get(&at("/summaries")).await),
            });
            if kind == "sessions" && view["status"] == "open" {
                let probe = json!({"text": "What fruit do I like?"});
                let (status, context) = request_until_answered(&rest, &at("/context"), &probe).await.unwrap();
                assert_eq!(status, StatusCode::OK, "{context}");
                dialogue["context"] = without_volatile_fields(&context);
            }
            dialogues.push(dialogue);
        }
        seen[kind] = dialogues.into();
    }
    seen
}

/// Returns the current state without its history.
fn current_state(observed: &Value) -> Value {
    let facts = observed["facts"].as_array().unwrap().iter();
    let mut facts: Vec<Value> = facts
        .filter(|fact| fact["valid"] == true)
        .map(|fact| fact["fact"].clone())
        .collect();
    facts.sort_by_key(Value::to_string);
    let mut now = observed.clone();
    now["facts"] = facts.into();
    now["audit"].take();
    now
}

impl StateAfterDeath {
    /// Returns the compared part of a state.
    fn of(self, observed: &Value) -> Value {
        match self {
            Before | After => observed.clone(),
            PutBack => current_state(observed),
            Begun => {
                let mut begun = observed.clone();
                begun["sessions"].take();
                begun["episodes"].take();
                begun["findings"].take();
                begun["passes"].take();
                begun["audit"].take();
                begun
            }
        }
    }
}

/// Removes fields that differ between runs.
fn without_volatile_fields(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| {
                let name = name.as_str();
                // `usage`: a regenerated reply may be requested before the index has followed the rewind.
                let clock = [
                    "at",
                    "id",
                    "seq",
                    "by",
                    "object",
                    "invalid_by",
                    "insight",
                    "timings",
                    "version",
                    "hash",
                    "usage",
                ];
                !clock.contains(&name) && !["_at", "_id", "_ms", "_hash"].iter().any(|end| name.ends_with(end))
            })
            .map(|(name, value)| (name.clone(), without_volatile_fields(value)))
            .collect(),
        Value::Array(values) => values.iter().map(without_volatile_fields).collect(),
        other => other.clone(),
    }
}

/// Retries like a client, because a dead node owns its dialogues for a moment longer.
async fn request_until_answered(rest: &RestClient, path: &str, body: &Value) -> reqwest::Result<(StatusCode, Value)> {
    let asking = async {
        loop {
            let (status, answer) = rest.attempt(Method::POST, path, Some(body)).await?;
            if status != StatusCode::SERVICE_UNAVAILABLE {
                return Ok((status, answer));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(2), asking)
        .await
        .unwrap_or_else(|_| panic!("{path} was never answered"))
}

/// Sends a message as player `p1`, and the `replies` to events, until a turn is committed. `None` if the server is
/// gone. After a refusal or a lost connection, the function tries again.
async fn act_over_socket(server: &TestServer, first: &Value, replies: impl Fn(&Value) -> Option<Value>) -> Option<u16> {
    let token = server.token("demo", Role::Player, Some("p1"));
    let asking = async {
        'connecting: loop {
            let mut socket = TestSocket::open_if_reachable(server.address, &token).await?;
            let mut next = Some(first.clone());
            loop {
                if let Some(message) = next
                    && !socket.try_send(&message).await
                {
                    continue 'connecting;
                }
                let Ok(event) = socket.next_or_close().await else {
                    continue 'connecting;
                };
                if event["type"] == "turn.committed" {
                    return Some(200);
                }
                if event["type"] == "error" {
                    let code = event["error"]["code"].as_str().unwrap();
                    let refused = ["overloaded", "store_unavailable", "wrong_node"];
                    assert!(refused.contains(&code), "{event}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue 'connecting;
                }
                next = replies(&event);
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(2), asking)
        .await
        .expect("it was never done")
}

/// Returns the status of the answer. `None` if the server is gone.
async fn perform_action(server: &TestServer, dialogue: &str, deed: &CrashAction) -> Option<u16> {
    let path = deed.path.replace("$d", dialogue);
    let body = (deed.body)();
    match deed.path {
        "ws:npc_conversation.interrupt" => return conversations::interrupt_with_line(server, dialogue, body).await,
        "ws:player.interrupt" => return sessions::interrupt_running_reply(server, dialogue, body).await,
        _ => {}
    }
    let (status, answer) = request_until_answered(&server.backend(), &path, &body).await.ok()?;
    assert!(
        status.is_success() || answer["code"] == "nothing_to_resume",
        "{path}: {status} {answer}"
    );
    Some(status.as_u16())
}

/// Continues the dialogues with further turns, and returns the later state.
async fn continue_dialogues(server: &TestServer, lines: &[(String, Value)]) -> Value {
    for (path, body) in lines {
        let (status, answer) = request_until_answered(&server.backend(), path, body).await.unwrap();
        assert!(status.is_success(), "{path}: {status} {answer}");
        wait_until_idle(&server.data).await;
    }
    observe_state(server).await
}

fn assert_same(left: &Value, right: &Value, what: &str) {
    for part in [
        "npc-conversations",
        "sessions",
        "facts",
        "episodes",
        "clock",
        "actions",
        "audit",
    ] {
        let lines = |value: &Value| serde_json::to_string_pretty(&value[part]).unwrap();
        let (left, right) = (lines(left), lines(right));
        let differs = left.lines().zip(right.lines()).find(|(left, right)| left != right);
        assert!(
            left == right,
            "{what}: {part} differs at {differs:?}:\n{left}\nis not\n{right}"
        );
    }
}

/// Dies at `point`, restarts, repeats the request and continues. Compares with the states of the unharmed run: before
/// the action, after it, and later.
async fn assert_death_at(
    point: &str,
    leaves: StateAfterDeath,
    prepared: &PreparedDialogue,
    deed: &CrashAction,
    [before, after, later]: [&Value; 3],
) {
    let data = prepared.data.copy();
    let armed = data.with(&[(DIE_AT_ENV, point)]).spawn();
    let acknowledged = perform_action(&armed, &prepared.dialogue, deed).await.is_some();
    armed.wait_for_death(point).await;

    let server = data.spawn();
    wait_until_idle(&data).await;
    assert_one_episode_per_turn(&data, point).await;
    let expected = if matches!(leaves, After | Begun) { after } else { before };
    assert_same(&leaves.of(&observe_state(&server).await), &leaves.of(expected), point);
    assert!(
        !acknowledged || leaves == After,
        "{point}: what was acknowledged is lost"
    );
    // A client without an answer repeats the request.
    if leaves != After || deed.is_keyed() {
        perform_action(&server, &prepared.dialogue, deed).await.unwrap();
        wait_until_idle(&data).await;
    }
    let of = |observed: &Value| {
        if leaves == PutBack {
            current_state(observed)
        } else {
            observed.clone()
        }
    };
    let again = observe_state(&server).await;
    assert_same(&of(&again), &of(after), &format!("{point}, asked again"));
    assert_one_episode_per_turn(&data, &format!("{point}, asked again")).await;
    let then = continue_dialogues(&server, &prepared.goes_on).await;
    assert_same(&of(&then), &of(later), &format!("{point}, some turns later"));
    assert_one_episode_per_turn(&data, &format!("{point}, some turns later")).await;
    server.kill();
    if !data.is_on_postgres() && deed.points.last().is_some_and(|(last, _)| *last == point) {
        let checked = data.command().args(["reindex", "--check"]).output().unwrap();
        assert!(checked.status.success(), "{point}: {checked:?}");
    }
}

/// Performs `deed` once without a death, then with a death at each point. Returns the states before and after.
async fn assert_deaths_at_all_points(prepared: &PreparedDialogue, deed: &CrashAction) -> [Value; 2] {
    let control = prepared.data.copy();
    let server = control.spawn();
    let before = observe_state(&server).await;
    let status = perform_action(&server, &prepared.dialogue, deed).await.unwrap();
    assert!(matches!(status, 200 | 202), "{}: {status}", deed.path);
    wait_until_idle(&control).await;
    assert_one_episode_per_turn(&control, "without a death").await;
    let after = observe_state(&server).await;
    assert_ne!(before, after, "a deed that does nothing shows nothing");
    let later = continue_dialogues(&server, &prepared.goes_on).await;
    server.stop();

    let at_night = std::env::var(DEATHS).is_ok_and(|which| which == "all");
    let points = Mutex::new(deed.points_on(control.is_on_postgres(), at_night));
    let next = || points.lock().next();
    // Most of the time is spent on starting servers.
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENT_DEATHS {
            scope.spawn(|| {
                while let Some((point, leaves)) = next() {
                    run(assert_death_at(
                        point,
                        *leaves,
                        prepared,
                        deed,
                        [&before, &after, &later],
                    ));
                }
            });
        }
    });
    [before, after]
}

/// Checks ordinary and nightly runs for this database.
#[test]
fn failpoints_are_all_covered_by_a_death() {
    let postgres = data().is_on_postgres();
    let died_at = |at_night| -> BTreeSet<&str> {
        let points = CrashAction::all().flat_map(|deed| deed.points_on(postgres, at_night));
        points.map(|(point, _)| *point).collect()
    };
    let known: BTreeSet<&str> = POINTS.iter().copied().collect();
    assert_eq!(died_at(true), known);
    let left: BTreeSet<&str> = if postgres {
        NIGHTLY_POINTS.into()
    } else {
        BTreeSet::new()
    };
    assert_eq!(died_at(false), &known - &left);
}
