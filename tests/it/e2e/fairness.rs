//! A tenant at ten times its quota, in everything that a node's tenants share, beside one that only talks.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use colloquy::{
    mock_llm::{self, MockOptions},
    tenancy::Role,
};
use futures_util::future::join_all;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::json;

use super::fresh;
use crate::support::{Rest, Server, Socket, run};

const PLAYERS: usize = 3;
const TURNS: usize = 6;
const ROUNDS: usize = 3;
/// Requests of the loud tenant that are always under way: each is followed by the next at once.
const LOUD: usize = 40;

async fn world(admin: &Rest) {
    admin
        .call(Method::PUT, "/v1/worlds/vale", Some(&json!({"name": "Vale"})))
        .await;
    let npc = json!({"name": "Ergen", "persona": {"description": "A smith."}});
    admin.call(Method::PUT, "/v1/worlds/vale/npcs/ergen", Some(&npc)).await;
}

/// A session of a player; a status, if there is none.
async fn session(backend: &Rest, player: &str) -> Result<String, u16> {
    let body = json!({"world_id": "vale", "npc_id": "ergen", "player_id": player});
    let (status, answer) = backend.call(Method::POST, "/v1/sessions", Some(&body)).await;
    let id = answer["id"].as_str().map(str::to_owned);
    id.ok_or_else(|| status.as_u16())
}

async fn turn(backend: &Rest, session: &str) -> u16 {
    let path = format!("/v1/sessions/{session}/turns");
    let line = json!({"text": "I like apples. What do you do all day?"});
    backend.call(Method::POST, &path, Some(&line)).await.0.as_u16()
}

/// What a few players wait for their turns, in sessions of their own.
#[expect(
    clippy::disallowed_methods,
    reason = "what a client waits is measured by the client's clock"
)]
async fn talk(backend: &Rest, round: usize) -> Vec<Duration> {
    let players = (0..PLAYERS).map(async |player| {
        let session = session(backend, &format!("q{round}-{player}"))
            .await
            .expect("a session is refused");
        let mut waited = Vec::new();
        for _ in 0..TURNS {
            let asked = Instant::now();
            assert_eq!(turn(backend, &session).await, 200, "a turn of the quiet tenant fails");
            waited.push(asked.elapsed());
        }
        waited
    });
    join_all(players).await.concat()
}

/// Goes on until it is told to stop; counts what it was answered.
async fn shout(backend: Rest, worker: usize, stop: Arc<AtomicBool>, answers: Arc<Mutex<BTreeMap<u16, usize>>>) {
    let mut own: Option<String> = None;
    let mut count = 0;
    while !stop.load(Relaxed) {
        count += 1;
        let status = match &own {
            // A new dialogue now and then: those before stay in memory.
            Some(session) if count % 4 != 0 => turn(&backend, session).await,
            _ => match session(&backend, &format!("l{worker}-{count}")).await {
                Ok(session) => {
                    own = Some(session);
                    201
                }
                Err(status) => status,
            },
        };
        *answers.lock().entry(status).or_default() += 1;
        if status == 429 {
            // Ten times the quota, not as fast as the machine can.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// As many sockets as there are to be had.
async fn sockets(server: &Server, tenant: &str) -> Vec<Socket> {
    let token = server.token(tenant, Role::Backend, None);
    let mut open = Vec::new();
    while let Ok(socket) = Socket::try_open(server.address, &token).await {
        open.push(socket);
    }
    open
}

fn p95(mut waited: Vec<Duration>) -> Duration {
    waited.sort();
    waited[waited.len() * 95 / 100]
}

#[test]
fn a_tenant_at_ten_times_its_quota_fails_and_slows_no_other() {
    run(async {
        let mock = mock_llm::start(MockOptions {
            latency_ms: 300,
            ..MockOptions::default()
        })
        .unwrap();
        let server = fresh(&[
            ("COLLOQUY__TENANTS", r#"["quiet", "loud"]"#),
            ("COLLOQUY__LIMITS__TENANT_REQUESTS_PER_S", "20"),
            ("COLLOQUY__LLM__CONCURRENCY", "8"),
            ("COLLOQUY__LLM__TENANT_CONCURRENCY", "8"),
            ("COLLOQUY__ACTORS__MAX_IN_FLIGHT", "30"),
            ("COLLOQUY__ACTORS__MAX_SESSIONS", "40"),
            ("COLLOQUY__ACTORS__IDLE_S", "1"),
            ("COLLOQUY__LEDGER__WRITE_QUEUE", "32"),
            ("COLLOQUY__SOCKET__MAX_OPEN", "20"),
            ("COLLOQUY__HTTP__MAX_CONNECTIONS", "120"),
        ])
        .with_mock(&mock.base_url())
        .spawn();
        let of = |tenant: &str, role| Rest::new(server.address, server.token(tenant, role, None));
        for tenant in ["quiet", "loud"] {
            world(&of(tenant, Role::Admin)).await;
        }
        let quiet = of("quiet", Role::Backend);
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        let answers = Arc::new(Mutex::new(BTreeMap::new()));
        // What is waited for once each is not what is measured.
        talk(&quiet, ROUNDS).await;
        for round in 0..ROUNDS {
            alone.extend(talk(&quiet, 2 * round).await);

            let held = sockets(&server, "loud").await;
            assert!((10..20).contains(&held.len()), "{} sockets", held.len());
            let stop = Arc::new(AtomicBool::new(false));
            let loud: Vec<_> = (0..LOUD)
                .map(|worker| tokio::spawn(shout(of("loud", Role::Backend), worker, stop.clone(), answers.clone())))
                .collect();
            beside.extend(talk(&quiet, 2 * round + 1).await);
            let token = server.token("quiet", Role::Backend, None);
            assert!(
                Socket::try_open(server.address, &token).await.is_ok(),
                "no socket is left"
            );
            stop.store(true, Relaxed);
            for worker in loud {
                worker.await.unwrap();
            }
        }
        let (alone, beside) = (p95(alone), p95(beside));
        let answers = answers.lock().clone();
        println!(
            "p95 of a turn alone {alone:?}, beside the loud tenant {beside:?}; the loud one was answered {answers:?}"
        );
        assert!(answers.get(&429).is_some_and(|refused| *refused > 20), "{answers:?}");
        assert!(
            beside < alone.mul_f64(1.5),
            "p95 of a turn: {alone:?} alone, {beside:?} beside the loud tenant"
        );
    });
}
