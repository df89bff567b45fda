//! Every node restarted, one after the other, while players speak.

use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{Nodes, in_time, said, sockets::conversation, turns_of};
use crate::support::{Rest, Socket, run};

/// Where a balancer would send clients now.
#[derive(Clone)]
struct Balancer(Arc<Mutex<Vec<(std::net::SocketAddr, Rest, String)>>>);

impl Balancer {
    fn of(nodes: &Nodes) -> Self {
        let balancer = Self(Arc::default());
        balancer.now(nodes);
        balancer
    }
    fn now(&self, nodes: &Nodes) {
        let servers = nodes.servers.iter().map(|server| {
            let player = server.token("demo", colloquy::tenancy::Role::Player, Some("p1"));
            (server.address, server.backend(), player)
        });
        *self.0.lock() = servers.collect();
    }
    fn pick(&self, at: usize) -> (std::net::SocketAddr, Rest, String) {
        let open = self.0.lock();
        open[at % open.len()].clone()
    }
}

/// Says lines over REST until told to stop; what was acknowledged, with the status of each turn.
async fn speak(balancer: Balancer, session: String, stop: tokio::sync::watch::Receiver<bool>) -> Vec<(String, String)> {
    let (mut acknowledged, mut at) = (Vec::new(), 0);
    while !*stop.borrow() {
        let text = format!("Line {}.", acknowledged.len());
        let body = json!({"text": text, "key": text});
        loop {
            at += 1;
            let (_, rest, _) = balancer.pick(at);
            match rest.attempt(Method::POST, &turns_of(&session), Some(&body)).await {
                Ok((StatusCode::OK, turn)) => {
                    acknowledged.push((text, turn["status"].as_str().unwrap().to_owned()));
                    break;
                }
                Ok((status, problem)) => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}"),
                Err(_) => {}
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    acknowledged
}

/// The same over a socket that is opened again whenever it is closed.
async fn speak_by_socket(
    balancer: Balancer,
    session: String,
    token: String,
    stop: tokio::sync::watch::Receiver<bool>,
) -> Vec<String> {
    let (mut acknowledged, mut at, mut seen) = (Vec::new(), 0, 1);
    'connections: while !*stop.borrow() {
        at += 1;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let (address, _, player) = balancer.pick(at);
        let Some(mut socket) = Socket::open_if_there(address, &player).await else {
            continue;
        };
        socket
            .send(&json!({"type": "session.resume", "session_id": session, "resume_token": token, "last_seq": seen}))
            .await;
        loop {
            match socket.next_or_close().await {
                Ok(event) if event["type"] == "session.resumed" => break,
                // The node that owns it stops just now.
                Ok(event) if event["type"] == "error" => {
                    if event["error"]["code"] == "resume_expired" {
                        seen = 0;
                    }
                    continue 'connections;
                }
                Ok(event) => seen = event["seq"].as_u64().unwrap_or(seen),
                Err(_) => continue 'connections,
            }
        }
        while !*stop.borrow() {
            let text = format!("Aloud {}.", acknowledged.len());
            if !socket.try_tell(&session, &text, &text).await {
                continue 'connections;
            }
            loop {
                match socket.next_or_close().await {
                    Ok(event) => {
                        seen = event["seq"].as_u64().unwrap_or(seen);
                        if event["re"] != text.as_str() {
                            continue;
                        }
                        match event["type"].as_str().unwrap() {
                            "turn.committed" => break,
                            "error" => continue 'connections,
                            "reply.done" => assert_eq!(event["status"], "completed", "{event}"),
                            _ => {}
                        }
                    }
                    Err(_) => continue 'connections,
                }
            }
            acknowledged.push(text);
        }
    }
    acknowledged
}

#[test]
fn a_rolling_restart_fails_no_turn() {
    run(async {
        let mut nodes = Nodes::start(3, &[]).await;
        let balancer = Balancer::of(&nodes);
        // Replies take a while, so that every restart meets some.
        nodes.mock.control(&json!({"tokens_per_s": 100, "deltas": 20})).unwrap();
        let talk = conversation(&nodes.servers[0], true).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (mut sessions, mut clients) = (Vec::new(), Vec::new());
        for at in 0..4 {
            let (session, _) = nodes.session(at % 3).await;
            clients.push(tokio::spawn(speak(balancer.clone(), session.clone(), stopped.clone())));
            sessions.push(session);
        }
        let (aloud, token) = nodes.session(1).await;
        let loud = tokio::spawn(speak_by_socket(balancer.clone(), aloud.clone(), token, stopped));

        for _ in 0..3 {
            let rest = nodes.servers[2].backend();
            let mut before = Vec::new();
            for session in sessions.iter().chain([&aloud]) {
                before.push(said(&rest, session).await.len());
            }
            in_time("everybody to have said something", || async {
                for (session, before) in sessions.iter().chain([&aloud]).zip(&before) {
                    if said(&rest, session).await.len() <= *before {
                        return None;
                    }
                }
                Some(())
            })
            .await;
            let leaving = nodes.servers.remove(0);
            // What a readiness probe does.
            balancer.now(&nodes);
            let joining = nodes.another();
            tokio::task::spawn_blocking(move || leaving.stop()).await.unwrap();
            nodes.servers.push(joining);
            balancer.now(&nodes);
        }
        let rest = nodes.servers[0].backend();
        let path = format!("/v1/npc-conversations/{talk}/turns?limit=200");
        let lines = async || rest.get(&path).await["items"].as_array().unwrap().len();
        let before = lines().await;
        in_time("the conversation to go on at a node that began later", || async {
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
            assert_eq!(said(&rest, session).await, lines);
        }
        let mut lines = vec!["Hello.".to_owned()];
        lines.extend(loud.await.unwrap());
        let mut aloud = said(&rest, &aloud).await;
        // The last line may have been committed when the client had stopped listening.
        aloud.truncate(lines.len().max(aloud.len().saturating_sub(1)));
        assert_eq!(aloud, lines);
        assert!(lines.len() > 3, "{lines:?}");
    });
}
