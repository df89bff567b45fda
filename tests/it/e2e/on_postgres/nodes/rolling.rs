//! All nodes are restarted in turn while players speak.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle};

use super::{
    NodeCluster, eventually_after_outage,
    resilient_client::{RETRY_CODES, ResilientClient},
    sockets::conversation,
    standing_lines, turns_of,
};
use crate::support::{RestClient, TestServer, TestSocket, run};

/// Longer than the balancer needs to notice, even on a busy machine.
const NOTICE: (&str, &str) = ("COLLOQUY__SERVER__DRAIN_NOTICE_MS", "4000");

/// A node as seen by a balancer.
struct BalancedNode {
    address: SocketAddr,
    rest: RestClient,
    player: String,
    /// The number of failed checks in a row. A new node must pass one check first.
    failed: u32,
}

/// A balancer that asks every node for its readiness, and knows nothing more about the nodes.
#[derive(Clone, Default)]
struct TestBalancer {
    backends: Arc<Mutex<Vec<BalancedNode>>>,
    /// The answers to players that were failures.
    failures: Arc<Mutex<Vec<String>>>,
}

impl TestBalancer {
    const FALL: u32 = 2;

    fn add(&self, server: &TestServer) {
        self.backends.lock().push(BalancedNode {
            address: server.address,
            rest: server.backend(),
            player: server.token("demo", colloquy::tenancy::Role::Player, Some("p1")),
            failed: Self::FALL,
        });
    }

    /// Checks like `docker/haproxy/haproxy.cfg`, but faster.
    fn run_health_checks(&self, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
        let balancer = self.clone();
        let client = reqwest::Client::new();
        tokio::spawn(async move {
            while !*stop.borrow() {
                let addresses: Vec<_> = balancer.backends.lock().iter().map(|backend| backend.address).collect();
                for address in addresses {
                    let answer = client.get(format!("http://{address}/readyz")).send().await;
                    let ready = answer.is_ok_and(|answer| answer.status() == StatusCode::OK);
                    for backend in balancer.backends.lock().iter_mut() {
                        if backend.address == address {
                            backend.failed = if ready { 0 } else { backend.failed + 1 };
                        }
                    }
                }
                let _ = tokio::time::timeout(Duration::from_millis(200), stop.changed()).await;
            }
        })
    }

    /// Returns one of the ready nodes.
    fn pick_node(&self, at: usize) -> Option<(SocketAddr, RestClient, String)> {
        let backends = self.backends.lock();
        let up: Vec<_> = backends.iter().filter(|backend| backend.failed < Self::FALL).collect();
        let backend = up.get(at % up.len().max(1))?;
        Some((backend.address, backend.rest.clone(), backend.player.clone()))
    }

    async fn wait_for_node(&self, at: usize) -> (SocketAddr, RestClient, String) {
        eventually_after_outage("some node to be ready", || async { self.pick_node(at) }).await
    }

    fn record_failure(&self, what: String) {
        self.failures.lock().push(what);
    }
}

/// Says lines over REST until stopped. Returns the acknowledged lines with the statuses of their turns.
async fn speak_by_rest(balancer: TestBalancer, session: String, stop: watch::Receiver<bool>) -> Vec<(String, String)> {
    let (mut acknowledged, mut at) = (Vec::new(), 0);
    while !*stop.borrow() {
        let text = format!("Line {}.", acknowledged.len());
        let body = json!({"text": text, "key": text});
        loop {
            at += 1;
            let (address, rest, _) = balancer.wait_for_node(at).await;
            match rest.attempt(Method::POST, &turns_of(&session), Some(&body)).await {
                Ok((StatusCode::OK, turn)) => {
                    acknowledged.push((text, turn["status"].as_str().unwrap().to_owned()));
                    break;
                }
                Ok((status, problem)) => {
                    balancer.record_failure(format!("{address}: {status} {problem}"));
                    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
                }
                Err(error) => balancer.record_failure(format!("{address}: {error:?}")),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    acknowledged
}

/// Says lines over a socket, and reopens a closed socket.
async fn speak_by_socket(
    balancer: TestBalancer,
    mut client: ResilientClient,
    stop: watch::Receiver<bool>,
) -> ResilientClient {
    let mut at = 0;
    while !*stop.borrow() {
        at += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (address, rest, player) = balancer.wait_for_node(at).await;
        let Some(mut socket) = TestSocket::open_if_reachable(address, &player).await else {
            balancer.record_failure(format!("{address}: no socket could be opened"));
            continue;
        };
        if client.resume(&mut socket, &rest).await {
            client.speak(&mut socket, |_| *stop.borrow()).await;
        }
    }
    client
}

/// Listens to a conversation until stopped or until its end. Returns the number of completely received lines.
async fn listen_by_socket(balancer: TestBalancer, talk: String, mut stop: watch::Receiver<bool>) -> usize {
    let (mut at, mut seen, mut heard) = (1, Some(1), 0);
    'connections: while !*stop.borrow() {
        at += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (address, _, player) = balancer.wait_for_node(at).await;
        let Some(mut socket) = TestSocket::open_if_reachable(address, &player).await else {
            balancer.record_failure(format!("{address}: no socket could be opened"));
            continue;
        };
        let mut watch = json!({"type": "npc_conversation.watch", "conversation_id": talk});
        if let Some(seen) = seen {
            watch["last_seq"] = json!(seen);
        }
        if !socket.try_send(&watch).await {
            continue;
        }
        loop {
            let event = tokio::select! {
                event = socket.next_or_close() => event,
                _ = stop.changed() => return heard,
            };
            let Ok(event) = event else { continue 'connections };
            seen = seen.max(event["seq"].as_u64());
            match event["type"].as_str().unwrap() {
                "npc_turn.done" if event["status"] == "failed" => balancer.record_failure(event.to_string()),
                "npc_turn.done" => heard += 1,
                "npc_conversation.ended" if event["reason"] == "moved" => continue 'connections,
                "npc_conversation.ended" => return heard,
                "error" => {
                    let code = event["error"]["code"].as_str().unwrap();
                    if code == "resume_expired" {
                        seen = None;
                    } else if !RETRY_CODES.contains(&code) {
                        balancer.record_failure(event.to_string());
                    }
                    continue 'connections;
                }
                _ => {}
            }
        }
    }
    heard
}

#[test]
fn rolling_restart_fails_no_turn() {
    run(async {
        let mut nodes = NodeCluster::start(3, &[NOTICE]).await;
        let (stop, stopped) = watch::channel(false);
        let balancer = TestBalancer::default();
        nodes.servers.iter().for_each(|server| balancer.add(server));
        let checking = balancer.run_health_checks(stopped.clone());
        // Replies take long enough for every restart to meet some.
        nodes
            .mock
            .apply_settings(&json!({"tokens_per_s": 100, "deltas": 20}))
            .unwrap();
        let talk = conversation(&nodes.servers[0], true).await;
        let (mut sessions, mut clients) = (Vec::new(), Vec::new());
        for at in 0..4 {
            let (session, _) = nodes.session(at % 3).await;
            clients.push(tokio::spawn(speak_by_rest(
                balancer.clone(),
                session.clone(),
                stopped.clone(),
            )));
            sessions.push(session);
        }
        let (aloud, token) = nodes.session(1).await;
        let client = ResilientClient::new(&aloud, &token);
        let loud = tokio::spawn(speak_by_socket(balancer.clone(), client, stopped.clone()));
        let listening = tokio::spawn(listen_by_socket(balancer.clone(), talk.clone(), stopped));

        for _ in 0..3 {
            let rest = nodes.servers[2].backend();
            let mut before = Vec::new();
            for session in sessions.iter().chain([&aloud]) {
                before.push(standing_lines(&rest, session).await.len());
            }
            eventually_after_outage("everybody to have said something", || async {
                for (session, before) in sessions.iter().chain([&aloud]).zip(&before) {
                    if standing_lines(&rest, session).await.len() <= *before {
                        return None;
                    }
                }
                Some(())
            })
            .await;
            let leaving = nodes.servers.remove(0);
            let joining = nodes.start_another();
            // The balancer gets no notice.
            balancer.add(&joining);
            tokio::task::spawn_blocking(move || leaving.stop()).await.unwrap();
            nodes.servers.push(joining);
        }
        let rest = nodes.servers[0].backend();
        let path = format!("/v1/npc-conversations/{talk}/turns?limit=200");
        let lines = async || rest.get(&path).await["items"].as_array().unwrap().len();
        let before = lines().await;
        eventually_after_outage("the conversation to go on at a node that began later", || async {
            (lines().await > before).then_some(())
        })
        .await;
        stop.send(true).unwrap();
        for (client, session) in clients.into_iter().zip(&sessions) {
            let acknowledged = client.await.unwrap();
            let failed: Vec<_> = acknowledged
                .iter()
                .filter(|(_, status)| status != "completed")
                .collect();
            assert!(failed.is_empty(), "{failed:?}");
            let mut lines = vec!["Hello.".to_owned()];
            lines.extend(acknowledged.into_iter().map(|(text, _)| text));
            assert_eq!(standing_lines(&rest, session).await, lines);
        }
        let loud = loud.await.unwrap();
        loud.assert_acknowledged_lines_stand(&rest, true).await;
        assert!(loud.acknowledged.len() > 2, "{:?}", loud.acknowledged);
        let page = rest.get(&path).await;
        for (at, line) in page["items"].as_array().unwrap().iter().enumerate() {
            assert_eq!(
                (&line["turn"], &line["status"]),
                (&json!(at + 1), &json!("completed")),
                "{line}"
            );
        }
        assert!(listening.await.unwrap() > 2);
        checking.await.unwrap();
        let failures = balancer.failures.lock().clone();
        assert!(failures.is_empty(), "players saw {failures:?}");
    });
}
