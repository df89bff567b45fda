//! A tenant at ten times its quota beside a tenant with its usual load, for every resource shared by a node's tenants.
//!
//! Quiet and loud rounds alternate. The medians of their 95th percentiles are compared, as other load on the machine
//! affects both.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use colloquy::{
    mock_llm::{self, MockHandle, MockOptions},
    tenancy::Role,
};
use futures_util::future::join_all;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::sleep,
};

use super::fresh;
use crate::support::{RestClient, ServerData, TestServer, TestSocket, eventually, run};

const ROUNDS: usize = 3;
/// The maximum factor by which a 95th percentile may rise.
const MAX_SLOWDOWN: f64 = 1.5;
/// For waits of a few milliseconds, a difference up to this value is noise.
const NOISE: Duration = Duration::from_millis(25);
/// A pause of the loud tenant between its requests.
const LOUD_TENANT_PAUSE: Duration = Duration::from_millis(20);

/// A server with two tenants and mock models.
struct SharedServer {
    server: TestServer,
    address: SocketAddr,
    metrics: RestClient,
    _models: MockHandle,
}

impl SharedServer {
    async fn with(data: ServerData, latency_ms: u64) -> Self {
        let models = mock_llm::start_on_thread(MockOptions {
            latency_ms,
            jitter_ms: latency_ms / 4,
            ..MockOptions::default()
        })
        .unwrap();
        let data = data.with(&[("COLLOQUY__TENANTS", r#"["quiet", "loud"]"#)]);
        let server = data.with_mock(&models.base_url()).spawn();
        for tenant in ["quiet", "loud"] {
            let admin = RestClient::new(server.address, server.token(tenant, Role::Admin, None));
            let npc = json!({"name": "Ergen", "persona": {"description": "A smith."}});
            for (path, body) in [
                ("/v1/worlds/vale", json!({"name": "Vale"})),
                ("/v1/worlds/vale/npcs/ergen", npc),
            ] {
                let (status, answer) = admin.call(Method::PUT, path, Some(&body)).await;
                assert!(status.is_success(), "{answer}");
            }
        }
        Self {
            address: server.address,
            metrics: RestClient::new(server.address, String::new()),
            server,
            _models: models,
        }
    }

    fn token(&self, tenant: &str, player: Option<&str>) -> String {
        let role = player.map_or(Role::Backend, |_| Role::Player);
        self.server.token(tenant, role, player)
    }
    fn backend(&self, tenant: &str) -> RestClient {
        RestClient::new(self.address, self.token(tenant, None))
    }

    /// Returns the sum of the `/metrics` values on lines starting with `name`.
    async fn figure(&self, name: &str) -> f64 {
        let metrics = self.metrics.text("/metrics").await;
        let of = |line: &str| line.strip_prefix(name)?.trim().parse::<f64>().ok();
        metrics.lines().filter_map(of).sum()
    }

    /// Compares the waits of `quiet` alone and beside the loud tenant. Fails if a request of `quiet` fails.
    async fn compare<L: Future<Output = ()>>(
        &self,
        resource: &str,
        quiet: impl AsyncFn(usize) -> Vec<Duration>,
        loud: impl Fn(Arc<LoudTenant>) -> L + Clone + Send + 'static,
        is_full: impl AsyncFn(&LoudTenant) -> bool,
    ) -> WaitFigures {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        let answers = Arc::new(LoudTenant::default());
        // The warm-up takes the waits that occur only once.
        quiet(2 * ROUNDS).await;
        for round in 0..ROUNDS {
            alone.push(p95(quiet(2 * round).await));
            let shouting = LoudTenantThread::start(Arc::clone(&answers), loud.clone());
            eventually("the loud tenant to have all it can get", async || {
                is_full(&answers).await.then_some(())
            })
            .await;
            beside.push(p95(quiet(2 * round + 1).await));
            shouting.end();
        }
        let figures = WaitFigures {
            alone: median(alone),
            beside: median(beside),
            answers: answers.answers.lock().clone(),
        };
        println!("| {resource} | {figures} |");
        assert!(
            figures.beside < figures.alone.mul_f64(MAX_SLOWDOWN).max(figures.alone + NOISE),
            "{resource}: {figures}"
        );
        figures
    }
}

struct WaitFigures {
    alone: Duration,
    beside: Duration,
    /// The loud tenant's answers: statuses with their counts.
    answers: BTreeMap<u16, usize>,
}

impl std::fmt::Display for WaitFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let times = self.beside.as_secs_f64() / self.alone.as_secs_f64();
        write!(
            f,
            "p95 alone {:.1?} | beside {:.1?} | {times:.2} | loud: {:?}",
            self.alone, self.beside, self.answers
        )
    }
}

fn p95(mut waited: Vec<Duration>) -> Duration {
    waited.sort();
    waited[waited.len() * 95 / 100]
}

fn median(mut of: Vec<Duration>) -> Duration {
    of.sort();
    of[of.len() / 2]
}

/// The stop signal of the loud tenant, and its answers.
#[derive(Default)]
struct LoudTenant {
    stop: AtomicBool,
    answers: Mutex<BTreeMap<u16, usize>>,
}

impl LoudTenant {
    fn is_running(&self) -> bool {
        !self.stop.load(Relaxed)
    }
    fn count(&self, status: u16) {
        *self.answers.lock().entry(status).or_default() += 1;
    }
    fn answered(&self, status: u16) -> usize {
        self.answers.lock().get(&status).copied().unwrap_or_default()
    }
}

/// A thread for the loud tenant, so that the quiet tenant's client is not slowed down.
struct LoudTenantThread {
    loud: Arc<LoudTenant>,
    thread: JoinHandle<()>,
}

impl LoudTenantThread {
    fn start<L: Future<Output = ()>>(
        loud: Arc<LoudTenant>,
        shout: impl FnOnce(Arc<LoudTenant>) -> L + Send + 'static,
    ) -> Self {
        loud.stop.store(false, Relaxed);
        let theirs = Arc::clone(&loud);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(shout(theirs));
        });
        Self { loud, thread }
    }
    fn end(self) {
        self.loud.stop.store(true, Relaxed);
        self.thread.join().unwrap();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what a client waits is measured by the client's clock"
)]
async fn measure_duration<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let asked = Instant::now();
    let done = work.await;
    (done, asked.elapsed())
}

/// Runs `work` `count` times in sequence, and returns the durations.
async fn repeat_timed(count: usize, work: impl AsyncFn(usize)) -> Vec<Duration> {
    let mut waited = Vec::new();
    for number in 0..count {
        waited.push(measure_duration(work(number)).await.1);
    }
    waited
}

/// Opens a session of a player, or returns the error's status.
async fn session(backend: &RestClient, player: &str) -> Result<String, u16> {
    let body = json!({"world_id": "vale", "npc_id": "ergen", "player_id": player});
    let (status, answer) = backend.call(Method::POST, "/v1/sessions", Some(&body)).await;
    let id = answer["id"].as_str().map(str::to_owned);
    id.ok_or_else(|| status.as_u16())
}

async fn turn(backend: &RestClient, session: &str) -> u16 {
    let path = format!("/v1/sessions/{session}/turns");
    let line = json!({"text": "I like apples. What do you do all day?"});
    backend.call(Method::POST, &path, Some(&line)).await.0.as_u16()
}

/// Says a turn in a new session.
async fn first_turn(backend: &RestClient, player: &str) -> u16 {
    match session(backend, player).await {
        Ok(session) => turn(backend, &session).await,
        Err(status) => status,
    }
}

#[test]
fn dialogues_in_memory_are_shared_fairly() {
    run(async {
        let caps = [
            ("COLLOQUY__ACTORS__MAX_SESSIONS", "20"),
            ("COLLOQUY__ACTORS__IDLE_S", "3600"),
        ];
        let shared = SharedServer::with(fresh(&caps), 80).await;
        let (quiet, loud) = (shared.backend("quiet"), shared.backend("loud"));
        let talk = async |round| {
            repeat_timed(6, async |number| {
                let status = first_turn(&quiet, &format!("q{round}-{number}")).await;
                assert_eq!(status, 200, "a turn of the quiet tenant fails");
            })
            .await
        };
        // Every session stays in memory after its one turn.
        let shout = move |told: Arc<LoudTenant>| {
            let loud = loud.clone();
            async move {
                let workers = (0..3).map(async |worker| {
                    while told.is_running() {
                        told.count(first_turn(&loud, &format!("l{worker}")).await);
                        sleep(LOUD_TENANT_PAUSE).await;
                    }
                });
                join_all(workers).await;
            }
        };
        let is_full = async |_: &LoudTenant| shared.figure("colloquy_actors{kind=\"session\"}").await >= 16.0;
        let figures = shared.compare("dialogues in memory", talk, shout, is_full).await;
        assert!(figures.answers[&200] > 40, "it never wanted more than there are");
    });
}

#[test]
fn sockets_are_shared_fairly() {
    run(async {
        let shared = SharedServer::with(fresh(&[("COLLOQUY__SOCKET__MAX_OPEN", "20")]), 0).await;
        let (address, tokens) = (shared.address, [None, Some("p")]);
        let of_quiet = tokens.map(|player| shared.token("quiet", player));
        let open = async |_| {
            let mut waited = Vec::new();
            for token in of_quiet.iter().cycle().take(16) {
                let (opened, took) = measure_duration(TestSocket::try_open(address, token)).await;
                assert!(opened.is_ok(), "a socket of the quiet tenant is refused");
                waited.push(took);
                drop(opened);
                // The loud tenant has at most sixteen sockets.
                eventually("the server to see it closed", async || {
                    (shared.figure("colloquy_sockets_open").await <= 16.0).then_some(())
                })
                .await;
            }
            waited
        };
        // The loud tenant opens sockets of its backend and of ten players, without end.
        let mut of_loud = vec![shared.token("loud", None)];
        of_loud.extend((0..10).map(|player| shared.token("loud", Some(&format!("l{player}")))));
        let shout = move |told: Arc<LoudTenant>| {
            let of_loud = of_loud.clone();
            async move {
                let mut held = Vec::new();
                for token in of_loud.iter().cycle() {
                    if !told.is_running() {
                        break;
                    }
                    match TestSocket::try_open(address, token).await {
                        Ok(socket) => {
                            told.count(101);
                            held.push(socket);
                        }
                        Err(status) => {
                            told.count(status.as_u16());
                            sleep(LOUD_TENANT_PAUSE / 4).await;
                        }
                    }
                }
            }
        };
        let is_full = async |told: &LoudTenant| {
            let open = shared.figure("colloquy_sockets_open").await;
            open >= 16.0 && told.answered(429) > 0
        };
        let figures = shared.compare("sockets", open, shout, is_full).await;
        assert!(figures.answers[&429] > 10, "{figures}");
    });
}

/// Opens a connection from another address than the quiet tenant's.
async fn connection(to: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    socket.connect(to).await.ok()
}

#[test]
fn requests_in_flight_are_shared_fairly() {
    run(async {
        let caps = [
            ("COLLOQUY__HTTP__MAX_CONNECTIONS", "50"),
            ("COLLOQUY__ACTORS__MAX_IN_FLIGHT", "10"),
        ];
        let shared = SharedServer::with(fresh(&caps), 80).await;
        let address = shared.address;
        let quiet = shared.backend("quiet");
        let own = session(&quiet, "q").await.unwrap();
        let talk = async |_| {
            repeat_timed(6, async |_| {
                assert_eq!(turn(&quiet, &own).await, 200, "a turn of the quiet tenant fails");
            })
            .await
        };
        // Every request waits for the rest of its body.
        let head = format!(
            "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: 100\r\n\r\n{{",
            shared.token("loud", None)
        );
        let shout = move |told: Arc<LoudTenant>| {
            let head = head.clone();
            async move {
                let workers = (0..100).map(async |_| {
                    while told.is_running() {
                        let Some(mut stream) = connection(address).await else {
                            continue;
                        };
                        let asked = async {
                            stream.write_all(head.as_bytes()).await?;
                            let mut status = [0; 12];
                            stream.read_exact(&mut status).await.map(|_| status)
                        };
                        tokio::select! {
                            answer = asked => if let Ok(status) = answer {
                                told.count(String::from_utf8_lossy(&status[9..]).parse().unwrap());
                            },
                            () = async { while told.is_running() { sleep(LOUD_TENANT_PAUSE).await } } => {}
                        }
                        sleep(LOUD_TENANT_PAUSE * 10).await;
                    }
                });
                join_all(workers).await;
            }
        };
        let is_full = async |told: &LoudTenant| told.answered(429) > 10;
        shared.compare("requests under way", talk, shout, is_full).await;
        assert!(
            shared
                .figure("colloquy_share_refusals_total{resource=\"requests\"}")
                .await
                > 10.0
        );
    });
}

#[test]
fn connections_are_shared_fairly() {
    run(async {
        let shared = SharedServer::with(fresh(&[("COLLOQUY__HTTP__MAX_CONNECTIONS", "30")]), 0).await;
        let address = shared.address;
        let token = shared.token("quiet", None);
        let read = async |_| {
            repeat_timed(16, async |_| {
                let newcomer = RestClient::new(address, token.clone());
                let status = newcomer.status("/v1/worlds/vale").await;
                assert_eq!(status.as_u16(), 200, "a request of the quiet tenant fails");
            })
            .await
        };
        // Idle connections. A closed connection is replaced at once.
        let shout = move |told: Arc<LoudTenant>| async move {
            let workers = (0..60).map(async |_| {
                while told.is_running() {
                    let Some(mut stream) = connection(address).await else {
                        continue;
                    };
                    let end = async {
                        while told.is_running() {
                            sleep(LOUD_TENANT_PAUSE).await;
                        }
                    };
                    tokio::select! {
                        _ = stream.read_u8() => told.count(0),
                        () = end => {}
                    }
                    sleep(LOUD_TENANT_PAUSE * 10).await;
                }
            });
            join_all(workers).await;
        };
        let is_full =
            async |told: &LoudTenant| told.answered(0) > 10 && shared.figure("colloquy_connections_open").await >= 29.0;
        shared.compare("connections", read, shout, is_full).await;
    });
}

#[test]
fn model_calls_are_shared_fairly() {
    run(async {
        let caps = [
            ("COLLOQUY__LLM__CONCURRENCY", "8"),
            ("COLLOQUY__LLM__TENANT_CONCURRENCY", "8"),
            // The lines repeat each other, so a turn would also wait for the jobs of the last turn. Jobs come after turns.
            ("COLLOQUY__TURN__LONGEST_WAIT_FOR_MEMORY_MS", "0"),
        ];
        let shared = SharedServer::with(fresh(&caps), 200).await;
        let (quiet, loud) = (shared.backend("quiet"), shared.backend("loud"));
        let own = join_all(["q0", "q1", "q2"].map(|player| session(&quiet, player))).await;
        let talk = async |_| {
            let players = own.iter().map(async |own| {
                repeat_timed(3, async |_| {
                    let own = own.as_ref().unwrap();
                    assert_eq!(turn(&quiet, own).await, 200, "a turn of the quiet tenant fails");
                })
                .await
            });
            join_all(players).await.concat()
        };
        let shout = move |told: Arc<LoudTenant>| {
            let loud = loud.clone();
            async move {
                let workers = (0..16).map(async |worker| {
                    let own = session(&loud, &format!("l{worker}")).await.unwrap();
                    while told.is_running() {
                        told.count(turn(&loud, &own).await);
                    }
                });
                join_all(workers).await;
            }
        };
        let is_full = async |_: &LoudTenant| shared.figure("colloquy_model_calls{state=\"running\"}").await >= 8.0;
        shared.compare("calls of a model", talk, shout, is_full).await;
    });
}

#[test]
fn queued_writes_are_shared_fairly() {
    assert_writes_are_shared_fairly(ServerData::new);
}

#[test]
fn queued_writes_are_shared_fairly_on_postgres() {
    assert_writes_are_shared_fairly(ServerData::on_postgres);
}

fn assert_writes_are_shared_fairly(column: impl FnOnce(&[(&str, &str)]) -> ServerData) {
    run(async {
        let caps = [
            ("COLLOQUY__LEDGER__WRITE_QUEUE", "16"),
            ("COLLOQUY__LEDGER__CONNECTIONS", "4"),
            ("COLLOQUY__LIMITS__TENANT_REQUESTS_PER_S", "0"),
        ];
        let shared = SharedServer::with(column(&caps), 0).await;
        let (quiet, loud) = (shared.backend("quiet"), shared.backend("loud"));
        let make = async |round| {
            repeat_timed(16, async |number| {
                let made = session(&quiet, &format!("q{round}-{number}")).await;
                assert!(made.is_ok(), "a write of the quiet tenant fails: {made:?}");
            })
            .await
        };
        // The loud tenant sends more writes than there are places, and the writes of a world wait for each other.
        let events = json!({"events": vec![json!({"type": "event", "text": "It rains."}); 8]});
        let shout = move |told: Arc<LoudTenant>| {
            let (loud, events) = (loud.clone(), events.clone());
            async move {
                while told.is_running() {
                    let burst = (0..30).map(async |_| {
                        let written = loud.call(Method::POST, "/v1/worlds/vale/events", Some(&events));
                        written.await.0.as_u16()
                    });
                    for status in join_all(burst).await {
                        told.count(status);
                    }
                    sleep(LOUD_TENANT_PAUSE * 5).await;
                }
            }
        };
        let is_full = async |told: &LoudTenant| told.answered(503) > 0;
        shared.compare("writes that wait", make, shout, is_full).await;
        let refused = shared
            .figure("colloquy_share_refusals_total{resource=\"writes\"}")
            .await;
        assert!(refused > 0.0);
    });
}
