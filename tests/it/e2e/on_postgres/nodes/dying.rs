//! A killed node, and a node frozen until other nodes have taken over.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::Row as _;

use super::{
    NodeCluster, eventually_after_outage,
    resilient_client::ResilientClient,
    rewind_at_frozen_node, say, say_at_any_node,
    sockets::{conversation, watch_conversation},
    standing_lines, turns_of,
};
use crate::support::{RestClient, TestServer, TestSocket, run};

/// Returns the registered nodes, in the order of their ids.
pub(super) async fn node_ids(nodes: &NodeCluster) -> Vec<String> {
    let mut ledger = nodes.data.database().connect().await;
    let rows = sqlx::query("SELECT id FROM nodes ORDER BY id")
        .fetch_all(&mut ledger)
        .await;
    rows.unwrap().iter().map(|row| row.get("id")).collect()
}

pub(super) async fn line_numbers(rest: &RestClient, conversation: &str) -> Vec<u64> {
    let path = format!("/v1/npc-conversations/{conversation}/turns?limit=200");
    let page = rest.get(&path).await;
    let turns = page["items"].as_array().unwrap();
    turns.iter().map(|turn| turn["turn"].as_u64().unwrap()).collect()
}

/// Waits until a conversation has a few more lines.
async fn wait_for_more_lines(rest: &RestClient, conversation: &str) {
    let before = line_numbers(rest, conversation).await.len();
    eventually_after_outage("the conversation to go on", || async {
        (line_numbers(rest, conversation).await.len() >= before + 2).then_some(())
    })
    .await;
}

/// The maximum time from the kill to the first commit on another node, with default settings.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(10);

/// The address for a player's sockets, and the player's token.
#[derive(Clone)]
struct NodeEntry {
    address: SocketAddr,
    player: String,
    rest: RestClient,
}

impl NodeEntry {
    fn of(server: &TestServer) -> Self {
        Self {
            address: server.address,
            player: server.token("demo", colloquy::tenancy::Role::Player, Some("p1")),
            rest: server.backend(),
        }
    }
}

/// Speaks at one entry after another until `enough` is true.
async fn speak_at_entries(
    doors: &[NodeEntry],
    client: &mut ResilientClient,
    mut enough: impl FnMut(&ResilientClient) -> bool,
) {
    let speaking = async {
        for door in doors.iter().cycle() {
            if let Some(mut socket) = TestSocket::open_if_reachable(door.address, &door.player).await
                && client.resume(&mut socket, &door.rest).await
                && client.speak(&mut socket, &mut enough).await
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(2), speaking)
        .await
        .expect("the player was not heard any more");
}

#[test]
fn killed_node_is_taken_over_without_loss_of_acknowledged_turns() {
    const SESSIONS: usize = 6;
    const AFTER: usize = 5;
    run(async {
        let mut nodes = NodeCluster::start(3, &[]).await;
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            sessions.push(nodes.session(0).await.0);
        }
        let all: Vec<RestClient> = nodes.servers.iter().map(TestServer::backend).collect();
        let (killed, is_killed) = tokio::sync::watch::channel(None::<Instant>);
        let mut clients = Vec::new();
        for (at, session) in sessions.iter().cloned().enumerate() {
            // Every client starts with another node, and all clients reach the dead node.
            let rests: Vec<RestClient> = (0..3).map(|i| all[(at + i) % 3].clone()).collect();
            let is_killed = is_killed.clone();
            clients.push(tokio::spawn(async move {
                let (mut acknowledged, mut after, mut taken_over) = (vec!["Hello.".to_owned()], 0, Duration::ZERO);
                while after < AFTER {
                    let text = format!("Line {}.", acknowledged.len());
                    let (turn, _) = say_at_any_node(&rests, &session, &text, &text).await;
                    assert_eq!(turn["player_text"], text.as_str());
                    acknowledged.push(text);
                    if let Some(died) = *is_killed.borrow() {
                        if after == 0 {
                            taken_over = died.elapsed();
                        }
                        after += 1;
                    }
                }
                (acknowledged, taken_over)
            }));
        }
        // One more player speaks over a socket to the dying node.
        let (session, token) = nodes.session(0).await;
        let mut aloud = ResilientClient::new(&session, &token).allowing_lost_turns();
        let doors: Vec<NodeEntry> = nodes.servers.iter().map(NodeEntry::of).collect();
        let loud = tokio::spawn(async move {
            let mut at_kill = None;
            speak_at_entries(&doors, &mut aloud, |aloud| {
                let so_far = aloud.acknowledged.len();
                let died = is_killed.borrow().is_some();
                died && so_far >= *at_kill.get_or_insert(so_far) + AFTER
            })
            .await;
            aloud
        });
        // The kill comes in the middle of the lines.
        eventually_after_outage("some lines", || async {
            for speaker in [&sessions[SESSIONS - 1], &session] {
                if standing_lines(&all[1], speaker).await.len() <= 3 {
                    return None;
                }
            }
            Some(())
        })
        .await;
        #[expect(clippy::disallowed_methods, reason = "how long it takes is what is looked at")]
        let now = Instant::now();
        nodes.servers.remove(0).kill();
        killed.send(Some(now)).unwrap();
        let mut longest = Duration::ZERO;
        for (client, session) in clients.into_iter().zip(&sessions) {
            let (acknowledged, taken_over) = client.await.unwrap();
            longest = longest.max(taken_over);
            // Every acknowledged line is there once and in order, and no other line.
            assert_eq!(standing_lines(&all[2], session).await, acknowledged, "{session}");
        }
        let aloud = loud.await.unwrap();
        aloud.assert_acknowledged_lines_stand(&all[2], false).await;
        assert!(aloud.resumed > 1, "it was not cut off");
        println!("taken over {longest:?} after the kill");
        assert!(longest <= TAKEN_OVER_WITHIN, "{longest:?}");
    });
}

#[test]
fn events_missed_at_a_killed_node_are_replayed_by_another() {
    run(async {
        let mut nodes = NodeCluster::start(2, &[]).await;
        let (session, token) = nodes.session(0).await;
        let doors: Vec<NodeEntry> = nodes.servers.iter().map(NodeEntry::of).collect();
        let mut aloud = ResilientClient::new(&session, &token).allowing_lost_turns();
        // The socket is closed when this call returns.
        speak_at_entries(&doors[..1], &mut aloud, |aloud| aloud.acknowledged.len() == 1).await;
        say(&doors[1].rest, &session, "unheard", "Nobody hears this one.").await;
        nodes.servers.remove(0).kill();

        let seen = aloud.seen;
        let mut heard = Vec::new();
        speak_at_entries(&doors[1..], &mut aloud, |aloud| {
            if heard.is_empty() {
                heard.clone_from(&aloud.missed);
            }
            aloud.acknowledged.len() == 3
        })
        .await;
        assert!(aloud.wrong.is_empty(), "{:#?}", aloud.wrong);
        let kinds: Vec<(&str, u64)> = heard
            .iter()
            .map(|event| (event["type"].as_str().unwrap(), event["turn"].as_u64().unwrap()))
            .collect();
        assert_eq!(
            (aloud.expired, &kinds[..]),
            (0, &[("turn.started", 3), ("reply.done", 3), ("turn.committed", 3)][..])
        );
        let seqs = heard.iter().map(|event| event["seq"].as_u64().unwrap());
        assert!(seqs.is_sorted_by(|one, next| seen < *one && one < next), "{heard:?}");
        assert_eq!(
            standing_lines(&doors[1].rest, &session).await,
            ["Hello.", "Aloud 0.", "Nobody hears this one.", "Aloud 1.", "Aloud 2."]
        );
    });
}

#[test]
fn jobs_left_by_a_killed_node_are_resumed() {
    run(async {
        // A line a second: held extractions of the conversation leave room for the session's extraction, and the
        // conversation does not end during the test.
        let mut nodes = NodeCluster::start(2, &[("COLLOQUY__CONVERSATION__PAUSE_MS", "1000")]).await;
        let other = nodes.servers[1].backend();
        let talk = conversation(&nodes.servers[0], true).await;
        wait_for_more_lines(&other, &talk).await;
        let (session, _) = nodes.session(0).await;
        nodes
            .mock
            .apply_settings(&json!({"faults": ["extraction=hold"]}))
            .unwrap();
        let calls = nodes.mock.calls_of("extraction");
        say(&nodes.servers[0].backend(), &session, "grapes", "I like grapes.").await;
        eventually_after_outage("the extraction to begin", || async {
            (nodes.mock.calls_of("extraction") > calls).then_some(())
        })
        .await;
        nodes.servers.remove(0).kill();
        nodes.mock.apply_settings(&json!({"faults": []})).unwrap();
        wait_for_more_lines(&other, &talk).await;
        let numbers = line_numbers(&other, &talk).await;
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        let grapes = eventually_after_outage("the extraction to happen elsewhere", || async {
            let facts = other.facts("mira").await;
            let grapes = facts
                .iter()
                .filter(|fact| fact["content"].as_str().unwrap().contains("grapes"));
            let count = grapes.count();
            (count > 0).then_some(count)
        })
        .await;
        assert_eq!(grapes, 1);
    });
}

#[test]
fn step_of_a_dead_node_is_not_repeated() {
    run(async {
        let mut nodes = NodeCluster::start(2, &[]).await;
        let other = nodes.servers[1].backend();
        let talk = conversation(&nodes.servers[0], false).await;
        let step = format!("/v1/npc-conversations/{talk}:step");
        nodes.servers[0].backend().post(&step, &json!({})).await;
        nodes.mock.apply_settings(&json!({"faults": ["reply=hold"]})).unwrap();
        let calls = nodes.mock.calls_of("reply");
        let asking = tokio::spawn({
            let (other, step) = (other.clone(), step.clone());
            // This route does not support the key, so the key gives no guarantee.
            async move {
                other
                    .answer(Method::POST, &step, None, &[("Idempotency-Key", "once")])
                    .await
            }
        });
        eventually_after_outage("the line to be asked for", || async {
            (nodes.mock.calls_of("reply") > calls).then_some(())
        })
        .await;
        nodes.servers.remove(0).kill();
        nodes.mock.apply_settings(&json!({"faults": []})).unwrap();
        let answer = asking.await.unwrap().unwrap();
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (StatusCode::SERVICE_UNAVAILABLE, &json!("wrong_node"))
        );
        assert_eq!(answer.retry_after, Some(1));
        eventually_after_outage("the client's own second try to be answered", || async {
            let (status, _) = other.call(Method::POST, &step, None).await;
            (status == StatusCode::OK).then_some(())
        })
        .await;
        assert_eq!(line_numbers(&other, &talk).await, [1, 2]);
    });
}

#[test]
fn writes_of_a_frozen_node_after_its_lease_are_rejected() {
    run(async {
        let nodes = NodeCluster::start(3, &[]).await;
        let (session, token) = nodes.session(0).await;
        let [frozen, second, third] = [0, 1, 2].map(|at| nodes.servers[at].backend());
        let talk = conversation(&nodes.servers[0], true).await;
        wait_for_more_lines(&second, &talk).await;
        let mut watcher = nodes.servers[0].player("p3").await;
        watch_conversation(&mut watcher, &talk).await;
        let mut socket = nodes.servers[0].player("p1").await;
        socket
            .send(&json!({"type": "session.resume", "session_id": session, "resume_token": token, "last_seq": 1}))
            .await;
        socket.until("session.resumed").await;

        let (quiet, quiet_token) = nodes.session(0).await;
        let mut ear = nodes.servers[0].player("p1").await;
        ear.send(&json!({"type": "session.resume", "session_id": quiet, "resume_token": quiet_token, "last_seq": 1}))
            .await;
        ear.until("session.resumed").await;

        // A reply is streaming at the freeze, and the model finishes the reply meanwhile.
        nodes.mock.apply_settings(&json!({"faults": ["reply=hold"]})).unwrap();
        socket.send_line(&session, "late", "I come too late.").await;
        eventually_after_outage("the reply to be asked for", || async {
            let asked = nodes.mock.requests_of("reply");
            let late = asked
                .iter()
                .any(|request| request.to_string().contains("I come too late."));
            late.then_some(())
        })
        .await;
        nodes.servers[0].freeze().await;
        nodes.mock.apply_settings(&json!({"faults": []})).unwrap();
        let others = [second.clone(), third.clone()];
        let (turn, _) = say_at_any_node(&others, &session, "meanwhile", "Is anybody there?").await;
        assert_eq!(turn["turn"], 2, "{turn}");
        wait_for_more_lines(&second, &talk).await;
        // The request goes to the frozen node, which believes that the last turn is 1.
        let back = rewind_at_frozen_node(&frozen, &session);
        nodes.servers[0].thaw();

        let mut committed = false;
        let code = loop {
            match socket.next_or_close().await {
                Ok(event) => committed |= event["type"] == "turn.committed" && event["turn"] == 2,
                Err(code) => break code,
            }
        };
        assert_eq!((code, committed), (4503, false));
        let code = loop {
            if let Err(code) = watcher.next_or_close().await {
                break code;
            }
        };
        assert_eq!(code, 4503);
        back.await.unwrap();
        assert_eq!(standing_lines(&third, &session).await, ["Hello.", "Is anybody there?"]);
        let numbers = line_numbers(&third, &talk).await;
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());

        // An unacknowledged line is said again, once, also at the node that was frozen.
        let (turn, _) = say_at_any_node(std::slice::from_ref(&frozen), &session, "late", "I come too late.").await;
        assert_eq!(turn["turn"], 3, "{turn}");
        let again: Value = say(&third, &session, "late", "I come too late.").await;
        assert_eq!(again["id"], turn["id"]);
        // A dialogue without requests meanwhile stays with its node, and so do its listeners.
        eventually_after_outage("the frozen node to say that it lives", || async {
            let mut ledger = nodes.data.database().connect().await;
            let live = "SELECT count(*) FROM nodes WHERE until > 1000000 * extract(epoch FROM now())";
            let live: i64 = sqlx::query_scalar(live).fetch_one(&mut ledger).await.unwrap();
            (live == 3).then_some(())
        })
        .await;
        assert_eq!(say(&second, &quiet, "k", "Are you there?").await["turn"], 2);
        loop {
            if ear.until("turn.committed").await["turn"] == 2 {
                break;
            }
        }
        // The node also owns its new dialogues.
        let (fresh, _) = nodes.session(0).await;
        assert_eq!(say(&second, &fresh, "k", "Good morning.").await["turn"], 2);
        assert!(frozen.status(&turns_of(&fresh)).await.is_success());
    });
}
