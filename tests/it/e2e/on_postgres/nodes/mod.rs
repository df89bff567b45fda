//! Several servers on one Postgres and one Redis, with an index each or a shared index in Qdrant. The tests cover
//! requests at the wrong node, killed nodes, frozen nodes and rolling restarts.

mod actions;
mod cluster_wide;
mod dying;
mod forwarding;
mod frozen;
mod joining;
mod limits;
mod outage;
mod realtime;
mod resilient_client;
mod revocations;
mod rolling;
mod silence;
mod sockets;
mod world_state;

use std::time::Duration;

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{PostgresServer, RedisServer, RestClient, ServerData, TestServer, eventually_after_outage};

/// A cluster of servers with the mock model.
struct NodeCluster {
    mock: MockHandle,
    servers: Vec<TestServer>,
    data: ServerData,
    redis: RedisServer,
}

impl NodeCluster {
    async fn start(count: usize, env: &[(&str, &str)]) -> Self {
        Self::start_with(count, env, ServerData::on_postgres).await
    }

    /// Starts the cluster on a separate Postgres.
    async fn start_on(postgres: &PostgresServer, count: usize, env: &[(&str, &str)]) -> Self {
        let url = postgres.url();
        let with = [&[("COLLOQUY__LEDGER__URL", url.as_str())], env].concat();
        Self::start_with(count, &with, ServerData::new).await
    }

    async fn start_with(count: usize, env: &[(&str, &str)], data: fn(&[(&str, &str)]) -> ServerData) -> Self {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let redis = RedisServer::start().await;
        let (llm, buffers) = (mock.base_url(), redis.url());
        let mut all = vec![
            ("COLLOQUY__LLM__BASE_URL", llm.as_str()),
            ("COLLOQUY__LLM__MODEL", "mock"),
            ("COLLOQUY__BUFFER__URL", buffers.as_str()),
            ("COLLOQUY__NODE__URL", "http://127.0.0.1:0"),
            ("COLLOQUY__NODE__SECRET", "what only the nodes of these tests know"),
            ("COLLOQUY__CONVERSATION__PAUSE_MS", "20"),
            // The default value. Facts from a dead node's turns come when its jobs are taken over.
            ("COLLOQUY__TURN__WAIT_FOR_MEMORY_MS", "300"),
            ("COLLOQUY__CONVERSATION__READING_MS_PER_CHAR", "0"),
            // Without a balancer, no notice before the drain is needed.
            ("COLLOQUY__SERVER__DRAIN_NOTICE_MS", "0"),
        ];
        all.extend_from_slice(env);
        let data = super::in_common(data(&all));
        let servers = (0..count).map(|_| data.with_own_folder().spawn()).collect();
        Self {
            mock,
            servers,
            data,
            redis,
        }
    }

    /// Starts another node.
    fn start_another(&self) -> TestServer {
        self.data.with_own_folder().spawn()
    }

    /// Opens a session of the demo's player `p1` with `mira` and one turn at the node `owner`. Returns id and token.
    async fn session(&self, owner: usize) -> (String, String) {
        let rest = self.servers[owner].backend();
        let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"});
        let made = rest.post("/v1/sessions", &body).await;
        let session = made["id"].as_str().unwrap().to_owned();
        let first = say(&rest, &session, "first", "Hello.").await;
        assert_eq!(first["turn"], 1, "{first}");
        (session, made["resume_token"].as_str().unwrap().to_owned())
    }
}

/// Says a line, and returns the finished turn.
async fn say(rest: &RestClient, session: &str, key: &str, text: &str) -> Value {
    rest.post(&turns_of(session), &json!({"text": text, "key": key})).await
}

fn turns_of(session: &str) -> String {
    format!("/v1/sessions/{session}/turns")
}

/// Says a line at one node after another, like a client behind a balancer that retries on request or without an answer.
/// Returns the turn and the number of retries.
async fn say_at_any_node(rests: &[RestClient], session: &str, key: &str, text: &str) -> (Value, usize) {
    let body = json!({"text": text, "key": key});
    let trying = async {
        let mut tries = 0;
        loop {
            let rest = &rests[tries % rests.len()];
            match rest.attempt(Method::POST, &turns_of(session), Some(&body)).await {
                Ok((StatusCode::OK, turn)) => return (turn, tries),
                Ok((status, problem)) => {
                    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
                }
                // The node is restarting, or was killed during the answer.
                Err(_) => {}
            }
            tries += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(2), trying)
        .await
        .unwrap_or_else(|_| panic!("{key} was never answered"))
}

/// Rewinds a session of one turn at a frozen node that lost ownership. After the thaw, the node refuses the request or
/// does not answer.
fn rewind_at_frozen_node(frozen: &RestClient, session: &str) -> JoinHandle<()> {
    let (rest, path) = (frozen.clone(), format!("/v1/sessions/{session}:rewind"));
    let body = json!({"turn": 0, "if_head": 1});
    tokio::spawn(async move {
        eventually_after_outage("a node that was frozen to answer", || async {
            let Ok((status, problem)) = rest.attempt(Method::POST, &path, Some(&body)).await else {
                return Some(());
            };
            // By its frozen clock, the node may consider the request too old.
            if status == StatusCode::REQUEST_TIMEOUT {
                return None;
            }
            let refused = [StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE].contains(&status);
            assert!(refused, "{status} {problem}");
            Some(())
        })
        .await;
    })
}

/// Returns the standing lines of a session from the ledger.
pub(super) async fn standing_lines(rest: &RestClient, session: &str) -> Vec<String> {
    let page = rest.get(&format!("{}?limit=200", turns_of(session))).await;
    let turns = page["items"].as_array().unwrap();
    turns
        .iter()
        .map(|turn| turn["player_text"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns a counter of one node.
pub(super) async fn counter_value(server: &TestServer, metric: &str) -> f64 {
    let [count] = counter_values(server, [metric]).await;
    count
}

/// Returns several counters of one node, read at the same moment.
pub(super) async fn counter_values<const N: usize>(server: &TestServer, metrics: [&str; N]) -> [f64; N] {
    let text = server.backend().text("/metrics").await;
    metrics.map(|metric| {
        let line = text.lines().find(|line| line.starts_with(metric));
        line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    })
}

/// Returns the number of requests or sockets that a node forwarded to an answering owner.
async fn forwarded_count(server: &TestServer, kind: &str) -> f64 {
    counter_value(
        server,
        &format!(r#"colloquy_forwarded_total{{kind="{kind}",outcome="answered"}}"#),
    )
    .await
}
