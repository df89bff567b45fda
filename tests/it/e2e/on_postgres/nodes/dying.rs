//! A node that is killed, and one that is frozen until others have taken over.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::Row as _;

use super::{
    Nodes,
    aloud::Aloud,
    in_time, said, say, say_somewhere,
    sockets::{conversation, watch},
    take_back, turns_of,
};
use crate::support::{Rest, Server, Socket, run};

/// The nodes that the ledger knows, in the order of their ids.
pub(super) async fn node_ids(nodes: &Nodes) -> Vec<String> {
    let mut ledger = nodes.data.database().connect().await;
    let rows = sqlx::query("SELECT id FROM nodes ORDER BY id")
        .fetch_all(&mut ledger)
        .await;
    rows.unwrap().iter().map(|row| row.get("id")).collect()
}

pub(super) async fn lines(rest: &Rest, conversation: &str) -> Vec<u64> {
    let path = format!("/v1/npc-conversations/{conversation}/turns?limit=200");
    let page = rest.get(&path).await;
    let turns = page["items"].as_array().unwrap();
    turns.iter().map(|turn| turn["turn"].as_u64().unwrap()).collect()
}

/// Waits until a conversation has gone on by a few lines.
async fn goes_on(rest: &Rest, conversation: &str) {
    let before = lines(rest, conversation).await.len();
    in_time("the conversation to go on", || async {
        (lines(rest, conversation).await.len() >= before + 2).then_some(())
    })
    .await;
}

/// From the kill to the first turn that is committed elsewhere, with the settings as they are shipped.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(10);

/// Where a player's sockets are opened, and what the player is let in with.
#[derive(Clone)]
struct Door {
    address: SocketAddr,
    player: String,
    rest: Rest,
}

impl Door {
    fn of(server: &Server) -> Self {
        Self {
            address: server.address,
            player: server.token("demo", colloquy::tenancy::Role::Player, Some("p1")),
            rest: server.backend(),
        }
    }
}

/// Speaks at one door after the other until there was enough.
async fn speak_at(doors: &[Door], client: &mut Aloud, mut enough: impl FnMut(&Aloud) -> bool) {
    let speaking = async {
        for door in doors.iter().cycle() {
            if let Some(mut socket) = Socket::open_if_there(door.address, &door.player).await
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
fn a_killed_node_is_taken_over_and_nothing_acknowledged_is_lost() {
    const SESSIONS: usize = 6;
    const AFTER: usize = 5;
    run(async {
        let mut nodes = Nodes::start(3, &[]).await;
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            sessions.push(nodes.session(0).await.0);
        }
        let all: Vec<Rest> = nodes.servers.iter().map(Server::backend).collect();
        let (killed, is_killed) = tokio::sync::watch::channel(None::<Instant>);
        let mut clients = Vec::new();
        for (at, session) in sessions.iter().cloned().enumerate() {
            // Each begins with another node; all of them come by the dead one.
            let rests: Vec<Rest> = (0..3).map(|i| all[(at + i) % 3].clone()).collect();
            let is_killed = is_killed.clone();
            clients.push(tokio::spawn(async move {
                let (mut acknowledged, mut after, mut taken_over) = (vec!["Hello.".to_owned()], 0, Duration::ZERO);
                while after < AFTER {
                    let text = format!("Line {}.", acknowledged.len());
                    let (turn, _) = say_somewhere(&rests, &session, &text, &text).await;
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
        // One more speaks over a socket, to the node that dies.
        let (session, token) = nodes.session(0).await;
        let mut aloud = Aloud::new(&session, &token).among_the_dying();
        let doors: Vec<Door> = nodes.servers.iter().map(Door::of).collect();
        let loud = tokio::spawn(async move {
            let mut at_kill = None;
            speak_at(&doors, &mut aloud, |aloud| {
                let so_far = aloud.acknowledged.len();
                let died = is_killed.borrow().is_some();
                died && so_far >= *at_kill.get_or_insert(so_far) + AFTER
            })
            .await;
            aloud
        });
        // In the middle of it.
        in_time("some lines", || async {
            for speaker in [&sessions[SESSIONS - 1], &session] {
                if said(&all[1], speaker).await.len() <= 3 {
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
            // Each line once, in the order in which they were acknowledged, and nothing else.
            assert_eq!(said(&all[2], session).await, acknowledged, "{session}");
        }
        let aloud = loud.await.unwrap();
        aloud.stands(&all[2], false).await;
        assert!(aloud.resumed > 1, "it was not cut off");
        println!("taken over {longest:?} after the kill");
        assert!(longest <= TAKEN_OVER_WITHIN, "{longest:?}");
    });
}

#[test]
fn what_a_client_missed_when_its_node_was_killed_it_hears_at_another() {
    run(async {
        let mut nodes = Nodes::start(2, &[]).await;
        let (session, token) = nodes.session(0).await;
        let doors: Vec<Door> = nodes.servers.iter().map(Door::of).collect();
        let mut aloud = Aloud::new(&session, &token).among_the_dying();
        // Its socket is gone when this returns.
        speak_at(&doors[..1], &mut aloud, |aloud| aloud.acknowledged.len() == 1).await;
        say(&doors[1].rest, &session, "unheard", "Nobody hears this one.").await;
        nodes.servers.remove(0).kill();

        let seen = aloud.seen;
        let mut heard = Vec::new();
        speak_at(&doors[1..], &mut aloud, |aloud| {
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
            said(&doors[1].rest, &session).await,
            ["Hello.", "Aloud 0.", "Nobody hears this one.", "Aloud 1.", "Aloud 2."]
        );
    });
}

#[test]
fn what_a_killed_node_left_behind_is_taken_up() {
    run(async {
        let mut nodes = Nodes::start(2, &[]).await;
        let other = nodes.servers[1].backend();
        let talk = conversation(&nodes.servers[0], true).await;
        goes_on(&other, &talk).await;
        nodes.mock.control(&json!({"faults": ["extraction=hold"]})).unwrap();
        let (session, _) = nodes.session(0).await;
        let calls = nodes.mock.calls("extraction");
        say(&nodes.servers[0].backend(), &session, "grapes", "I like grapes.").await;
        in_time("the extraction to begin", || async {
            (nodes.mock.calls("extraction") > calls).then_some(())
        })
        .await;
        nodes.servers.remove(0).kill();
        nodes.mock.control(&json!({"faults": []})).unwrap();
        goes_on(&other, &talk).await;
        let numbers = lines(&other, &talk).await;
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        let grapes = in_time("the extraction to happen elsewhere", || async {
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
fn a_step_whose_node_died_is_not_made_twice() {
    run(async {
        let mut nodes = Nodes::start(2, &[]).await;
        let other = nodes.servers[1].backend();
        let talk = conversation(&nodes.servers[0], false).await;
        let step = format!("/v1/npc-conversations/{talk}:step");
        nodes.servers[0].backend().post(&step, &json!({})).await;
        nodes.mock.control(&json!({"faults": ["reply=hold"]})).unwrap();
        let calls = nodes.mock.calls("reply");
        let asking = tokio::spawn({
            let (other, step) = (other.clone(), step.clone());
            // A key that the route knows nothing of promises nothing.
            async move {
                other
                    .answer(Method::POST, &step, None, &[("Idempotency-Key", "once")])
                    .await
            }
        });
        in_time("the line to be asked for", || async {
            (nodes.mock.calls("reply") > calls).then_some(())
        })
        .await;
        nodes.servers.remove(0).kill();
        nodes.mock.control(&json!({"faults": []})).unwrap();
        let answer = asking.await.unwrap().unwrap();
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (StatusCode::SERVICE_UNAVAILABLE, &json!("wrong_node"))
        );
        assert_eq!(answer.retry_after, Some(1));
        in_time("the client's own second try to be answered", || async {
            let (status, _) = other.call(Method::POST, &step, None).await;
            (status == StatusCode::OK).then_some(())
        })
        .await;
        assert_eq!(lines(&other, &talk).await, [1, 2]);
    });
}

#[test]
fn what_a_frozen_node_writes_after_its_lease_is_refused() {
    run(async {
        let nodes = Nodes::start(3, &[]).await;
        let (session, token) = nodes.session(0).await;
        let [frozen, second, third] = [0, 1, 2].map(|at| nodes.servers[at].backend());
        let talk = conversation(&nodes.servers[0], true).await;
        goes_on(&second, &talk).await;
        let mut watcher = nodes.servers[0].player("p3").await;
        watch(&mut watcher, &talk).await;
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

        // A reply is on its way when it freezes, and comes to its end meanwhile.
        nodes.mock.control(&json!({"faults": ["reply=hold"]})).unwrap();
        socket.tell(&session, "late", "I come too late.").await;
        in_time("the reply to be asked for", || async {
            let asked = nodes.mock.requests("reply");
            let late = asked
                .iter()
                .any(|request| request.to_string().contains("I come too late."));
            late.then_some(())
        })
        .await;
        nodes.servers[0].freeze().await;
        nodes.mock.control(&json!({"faults": []})).unwrap();
        let others = [second.clone(), third.clone()];
        let (turn, _) = say_somewhere(&others, &session, "meanwhile", "Is anybody there?").await;
        assert_eq!(turn["turn"], 2, "{turn}");
        goes_on(&second, &talk).await;
        // Asked of the frozen one, which believes that the last turn is 1.
        let back = take_back(&frozen, &session);
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
        assert_eq!(said(&third, &session).await, ["Hello.", "Is anybody there?"]);
        let numbers = lines(&third, &talk).await;
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());

        // What was not acknowledged is said again, once, at the node that was frozen, too.
        let (turn, _) = say_somewhere(std::slice::from_ref(&frozen), &session, "late", "I come too late.").await;
        assert_eq!(turn["turn"], 3, "{turn}");
        let again: Value = say(&third, &session, "late", "I come too late.").await;
        assert_eq!(again["id"], turn["id"]);
        // What nobody asked for meanwhile has gone nowhere, and neither have those who listen.
        in_time("the frozen node to say that it lives", || async {
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
        // And it owns what it begins from now on.
        let (fresh, _) = nodes.session(0).await;
        assert_eq!(say(&second, &fresh, "k", "Good morning.").await["turn"], 2);
        assert!(frozen.status(&turns_of(&fresh)).await.is_success());
    });
}
