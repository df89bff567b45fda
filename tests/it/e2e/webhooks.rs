//! Webhooks end to end: a receiver that fails half of the time, a server that is killed, and signatures checked by an
//! implementation of their own.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    env,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, dev::ServerHandle, web};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use colloquy::tenancy::Role;
use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::Sha256;

use super::fresh;
use crate::support::{PATIENCE, RestClient, ServerData, TestServer, eventually, eventually_after_outage, run};

/// After so many attempts of a message, the receiver no longer fails.
const FAILING_ATTEMPTS: u32 = 6;

/// An accepted message.
#[derive(Debug, Clone)]
struct Message {
    id: String,
    body: Value,
}

#[derive(Default)]
struct Received {
    /// Keys of the webhook: a request with another signature fails the test.
    secrets: Vec<String>,
    is_failing: bool,
    /// The answer to every request, instead of success and failure.
    answer: Option<u16>,
    attempts: HashMap<String, u32>,
    requests: u32,
    failures: u32,
    /// In the order of their first success.
    accepted: Vec<Message>,
    faults: Vec<String>,
}

/// A backend that receives messages.
struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    fn start() -> Self {
        let received = Arc::new(Mutex::new(Received::default()));
        let (started, ready) = mpsc::sync_channel(1);
        let shared = web::Data::from(Arc::clone(&received));
        let thread = thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server =
                    HttpServer::new(move || App::new().app_data(shared.clone()).default_service(web::to(receive)))
                        .workers(1)
                        .disable_signals()
                        .shutdown_timeout(1)
                        .bind(("127.0.0.1", 0))
                        .unwrap();
                let address = server.addrs()[0];
                let server = server.run();
                started.send((address, server.handle())).unwrap();
                server.await.unwrap();
            });
        });
        let (address, handle) = ready.recv_timeout(PATIENCE).expect("the receiver did not start");
        Self {
            address,
            received,
            handle,
            thread: Some(thread),
        }
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Waits for `count` messages. Returns all, in the order of their delivery.
    async fn wait_for(&self, count: usize) -> Vec<Message> {
        eventually_after_outage("the messages", || async {
            let accepted = self.received.lock().accepted.clone();
            (accepted.len() >= count).then_some(accepted)
        })
        .await
    }

    fn assert_signed(&self) {
        let received = self.received.lock();
        assert!(received.faults.is_empty(), "{:?}", received.faults);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The future only sends a message.
        drop(self.handle.stop(false));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// True for half of the first attempts, by the message's id alone.
fn fails(id: &str, attempt: u32) -> bool {
    let sum: u32 = id.bytes().map(u32::from).sum();
    attempt <= FAILING_ATTEMPTS && (sum.wrapping_mul(2_654_435_761) >> (attempt + 8)) & 1 == 1
}

async fn receive(received: web::Data<Mutex<Received>>, request: HttpRequest, body: web::Bytes) -> HttpResponse {
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let mut received = received.lock();
    received.requests += 1;
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", &body].concat();
    let signatures = header("webhook-signature");
    let is_signed_by = |secret: &String| {
        let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(&signed);
        let expected = format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()));
        signatures.split(' ').any(|signature| signature == expected)
    };
    if !received.secrets.iter().all(is_signed_by) || received.secrets.is_empty() {
        received.faults.push(format!("{id} is signed {signatures}"));
        return HttpResponse::Unauthorized().finish();
    }
    if let Some(status) = received.answer {
        let status = actix_web::http::StatusCode::from_u16(status).unwrap();
        return HttpResponse::build(status).finish();
    }
    let attempt = received.attempts.entry(id.clone()).or_default();
    *attempt += 1;
    let attempt = *attempt;
    if received.is_failing && fails(&id, attempt) {
        received.failures += 1;
        return HttpResponse::ServiceUnavailable().finish();
    }
    if !received.accepted.iter().any(|known| known.id == id) {
        let body = serde_json::from_slice(&body).unwrap();
        received.accepted.push(Message { id, body });
    }
    HttpResponse::NoContent().finish()
}

fn with_webhooks(env: &[(&str, &str)]) -> ServerData {
    fresh(&[
        ("COLLOQUY__WEBHOOKS__ALLOWED_HOSTS", r#"["127.0.0.1"]"#),
        (
            "COLLOQUY__WEBHOOKS__RETRY_DELAYS_MS",
            "[10, 20, 40, 80, 100, 100, 100, 100, 100, 100]",
        ),
        ("COLLOQUY__WEBHOOKS__POLL_MS", "20"),
    ])
    .with(env)
}

/// Creates a webhook at the receiver, which then knows the secret.
async fn create(server: &TestServer, receiver: &Receiver, body: Value) -> Value {
    create_as(&server.rest(Role::Admin), receiver, body).await
}

async fn create_as(admin: &RestClient, receiver: &Receiver, body: Value) -> Value {
    let mut whole = json!({"url": receiver.url()});
    let fields = body.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(fields);
    let made = admin.post("/v1/webhooks", &whole).await;
    receiver.received.lock().secrets = vec![made["secret"].as_str().unwrap().to_owned()];
    made
}

/// A session with the messages that the receiver shall get, in their order.
struct ToldSession {
    id: String,
    /// The ids of the standing turns.
    turns: Vec<String>,
    expected: Vec<(String, Vec<String>)>,
}

impl ToldSession {
    async fn open(server: &TestServer, player: &str) -> Self {
        let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": player});
        let made = server.backend().post("/v1/sessions", &body).await;
        Self {
            id: made["id"].as_str().unwrap().to_owned(),
            turns: Vec::new(),
            expected: Vec::new(),
        }
    }

    async fn say(&mut self, server: &TestServer, text: &str) {
        let path = format!("/v1/sessions/{}/turns", self.id);
        let turn = server.backend().post(&path, &json!({"text": text})).await;
        let id = turn["id"].as_str().unwrap().to_owned();
        self.expected.push(("turn.committed".to_owned(), vec![id.clone()]));
        self.turns.push(id);
    }

    async fn rewind(&mut self, server: &TestServer, to: usize) {
        let path = format!("/v1/sessions/{}:rewind", self.id);
        server.backend().post(&path, &json!({"turn": to})).await;
        let removed = self.turns.split_off(to);
        self.expected.push(("turn.taken_back".to_owned(), removed));
    }
}

/// The type of a message, with the ids of its turns.
fn told(message: &Message) -> (String, Vec<String>) {
    let data = &message.body["data"];
    let id = |value: &Value| value["turn_id"].as_str().unwrap().to_owned();
    let turns = match data["turns"].as_array() {
        Some(turns) => turns.iter().map(id).collect(),
        None => vec![id(data)],
    };
    (message.body["type"].as_str().unwrap().to_owned(), turns)
}

#[test]
fn thousand_messages_arrive_in_order_though_half_of_the_attempts_fail_and_the_server_is_killed() {
    const SESSIONS: usize = 10;
    const ROUNDS: usize = 9;
    const LINES: usize = 10;
    run(async {
        let receiver = Receiver::start();
        let mut server = with_webhooks(&[]).spawn();
        create(
            &server,
            &receiver,
            json!({"types": ["turn.committed"], "world_ids": ["vale"]}),
        )
        .await;
        receiver.received.lock().is_failing = true;
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            sessions.push(ToldSession::open(&server, &format!("p{number}")).await);
        }
        for round in 0..ROUNDS {
            let talking = sessions.iter_mut().map(async |session| {
                for line in 0..LINES {
                    session.say(&server, &format!("Line {line} of round {round}.")).await;
                }
                let before = session.turns.len();
                session.rewind(&server, before - 2).await;
            });
            futures_util::future::join_all(talking).await;
            // Messages wait, and some are being sent.
            if round == 2 || round == 5 {
                server = server.kill().spawn();
            }
        }
        let count: usize = sessions.iter().map(|session| session.expected.len()).sum();
        assert_eq!(count, SESSIONS * ROUNDS * (LINES + 1));
        let accepted = receiver.wait_for(count).await;
        receiver.assert_signed();
        let mut by_dialogue: BTreeMap<String, Vec<(String, Vec<String>)>> = BTreeMap::new();
        for message in &accepted {
            let dialogue = message.body["data"]["dialogue_id"].as_str().unwrap().to_owned();
            by_dialogue.entry(dialogue).or_default().push(told(message));
        }
        for session in &sessions {
            assert_eq!(by_dialogue[&session.id], session.expected, "{}", session.id);
        }
        assert_eq!(accepted.len(), count, "nothing was told that did not happen");
        let (failures, requests) = {
            let log = receiver.received.lock();
            (log.failures, log.requests)
        };
        assert!(failures * 3 >= requests, "{failures} of {requests} attempts failed");
    });
}

#[test]
fn silent_receivers_of_a_tenant_hold_up_no_other_tenant() {
    run(async {
        // Connections succeed, and no request is ever answered.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        silent.set_nonblocking(true).unwrap();
        let server = with_webhooks(&[
            ("COLLOQUY__WEBHOOKS__CONCURRENCY", "4"),
            ("COLLOQUY__WEBHOOKS__TIMEOUT_MS", "120000"),
        ])
        .start();
        let test = async |admin: &RestClient, webhook: &Value| {
            let path = format!("/v1/webhooks/{}:test", webhook["id"].as_str().unwrap());
            admin.post(&path, &json!({})).await;
        };
        let types = json!(["turn.committed"]);
        let admin = server.rest(Role::Admin);
        for _ in 0..6 {
            let body = json!({"url": format!("http://{}/", silent.local_addr().unwrap()), "types": types});
            test(&admin, &admin.post("/v1/webhooks", &body).await).await;
        }
        let _connection = eventually("an attempt", async || silent.accept().ok()).await;

        let rival = json!({"id": "rival", "name": "Rival"});
        server.rest(Role::Operator).post("/v1/tenants", &rival).await;
        let rival = RestClient::new(server.address, server.token("rival", Role::Admin, None));
        let receiver = Receiver::start();
        let webhook = create_as(&rival, &receiver, json!({"types": types})).await;
        test(&rival, &webhook).await;
        let accepted = eventually("the message of the other tenant", async || {
            receiver.received.lock().accepted.first().cloned()
        });
        assert_eq!(accepted.await.body["type"], "webhook.test");
        receiver.assert_signed();
    });
}

#[test]
fn message_has_texts_only_if_the_webhook_asks_for_them() {
    run(async {
        let receiver = Receiver::start();
        let server = with_webhooks(&[]).start();
        create(
            &server,
            &receiver,
            json!({"types": ["turn.committed", "conversation.ended"]}),
        )
        .await;
        let mut session = ToldSession::open(&server, "p1").await;
        session.say(&server, "I like plums.").await;
        let bare = receiver.wait_for(1).await.remove(0).body;
        assert!(!bare.to_string().contains("plums"), "{bare}");
        let data = &bare["data"];
        let ids = json!([
            data["world_id"],
            data["dialogue_id"],
            data["npc_id"],
            data["player_id"],
            data["turn"]
        ]);
        assert_eq!(ids, json!(["vale", session.id, "mira", "p1", 1]));

        let second = Receiver::start();
        create(
            &server,
            &second,
            json!({"types": ["turn.committed"], "include_text": true}),
        )
        .await;
        session.say(&server, "I like figs.").await;
        let whole = second.wait_for(1).await.remove(0).body;
        assert_eq!(whole["data"]["player_text"], "I like figs.");
        assert!(!whole["data"]["reply_text"].as_str().unwrap().is_empty());

        let admin = server.rest(Role::Admin);
        let path = format!("/v1/sessions/{}", session.id);
        assert!(admin.call(Method::DELETE, &path, None).await.0.is_success());
        let ended = receiver.wait_for(3).await.remove(2).body;
        let kinds = json!([ended["type"], ended["data"]["dialogue_kind"], ended["data"]["reason"]]);
        assert_eq!(kinds, json!(["conversation.ended", "session", "closed"]));
        receiver.assert_signed();
        second.assert_signed();
    });
}

#[test]
fn gone_receiver_disables_the_webhook_and_its_messages_wait() {
    run(async {
        let receiver = Receiver::start();
        let server = with_webhooks(&[]).start();
        let made = create(&server, &receiver, json!({"types": ["turn.committed"]})).await;
        let (admin, path) = (
            server.rest(Role::Admin),
            format!("/v1/webhooks/{}", made["id"].as_str().unwrap()),
        );
        receiver.received.lock().answer = Some(410);
        let mut session = ToldSession::open(&server, "p1").await;
        session.say(&server, "Hello.").await;
        let gone = eventually("the end of the webhook", || async {
            let shown = admin.get(&path).await;
            (shown["enabled"] == false).then_some(shown)
        })
        .await;
        assert_eq!(gone["disabled_reason"], "gone");
        let attempts = admin.get(&format!("{path}/attempts")).await;
        let attempt = &attempts["items"][0];
        assert_eq!(
            json!([attempt["status"], attempt["delivered"], attempt["number"]]),
            json!([410, false, 1])
        );

        receiver.received.lock().answer = None;
        let (status, _) = admin.call(Method::PATCH, &path, Some(&json!({"enabled": true}))).await;
        assert!(status.is_success());
        let accepted = receiver.wait_for(1).await;
        assert_eq!(told(&accepted[0]), session.expected[0]);
        receiver.assert_signed();
    });
}

#[test]
fn redirects_are_not_followed_and_rotated_keys_sign_together() {
    run(async {
        let receiver = Receiver::start();
        let server = with_webhooks(&[("COLLOQUY__WEBHOOKS__RETRY_DELAYS_MS", "[10, 600000]")]).start();
        let made = create(&server, &receiver, json!({"types": ["turn.committed"]})).await;
        let (admin, path) = (
            server.rest(Role::Admin),
            format!("/v1/webhooks/{}", made["id"].as_str().unwrap()),
        );
        receiver.received.lock().answer = Some(302);
        let mut session = ToldSession::open(&server, "p1").await;
        session.say(&server, "Hello.").await;
        let failed = eventually("two attempts", || async {
            let attempts = admin.get(&format!("{path}/attempts")).await["items"].clone();
            (attempts.as_array().unwrap().len() == 2).then_some(attempts)
        })
        .await;
        assert_eq!(failed[0]["detail"], "redirects are not followed");

        let rotated = admin.post(&format!("{path}:rotate"), &json!({})).await;
        {
            let mut log = receiver.received.lock();
            log.secrets.push(rotated["secret"].as_str().unwrap().to_owned());
            log.answer = None;
        }
        // By hand, instead of in ten minutes.
        let message = json!({"message_id": failed[0]["message_id"]});
        assert_eq!(admin.post(&format!("{path}:replay"), &message).await["messages"], 1);
        receiver.wait_for(1).await;
        receiver.assert_signed();
        let ids: HashSet<String> = receiver
            .received
            .lock()
            .accepted
            .iter()
            .map(|message| message.id.clone())
            .collect();
        assert!(
            ids.contains(failed[0]["message_id"].as_str().unwrap()),
            "the id is the same in all attempts"
        );
        let metrics = server.rest(Role::Operator).text("/metrics").await;
        assert!(
            metrics.contains("colloquy_webhook_attempts_total{outcome=\"delivered\"} 1"),
            "{metrics}"
        );
    });
}

/// The folder of the example receivers: that of `tests/webhook-libraries.sh`, which has their libraries, or else the
/// examples themselves.
fn folder_of_receivers() -> PathBuf {
    let examples = || Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/webhooks");
    env::var_os("COLLOQUY_WEBHOOK_LIBRARIES").map_or_else(examples, PathBuf::from)
}

/// Runs a receiver of `examples/webhooks` with the secret, and returns it with its port.
fn start_example(program: &str, script: &str, secret: &str) -> (Child, u16, mpsc::Receiver<String>) {
    let mut child = Command::new(program)
        .arg(folder_of_receivers().join(script))
        .arg("0")
        .env("COLLOQUY_WEBHOOK_SECRET", secret)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let port = first.strip_prefix("listens on ").unwrap().parse().unwrap();
    let (sender, printed) = mpsc::channel();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // The test may have ended.
            let _ = sender.send(line);
        }
    });
    (child, port, printed)
}

/// Asserts that a receiver with a library of Standard Webhooks accepts messages, also after a rotation.
fn assert_library_verifies(program: &str, script: &str) {
    run(async {
        let server = with_webhooks(&[]).start();
        let admin = server.rest(Role::Admin);
        let body = json!({"url": "http://127.0.0.1:1/", "types": ["turn.committed"], "include_text": true});
        let made = admin.post("/v1/webhooks", &body).await;
        let path = format!("/v1/webhooks/{}", made["id"].as_str().unwrap());
        let (mut child, port, printed) = start_example(program, script, made["secret"].as_str().unwrap());
        let moved = json!({"url": format!("http://127.0.0.1:{port}/")});
        assert!(admin.call(Method::PATCH, &path, Some(&moved)).await.0.is_success());
        let mut session = ToldSession::open(&server, "p1").await;
        session.say(&server, "I like plums.").await;
        let line = printed.recv_timeout(PATIENCE).unwrap();
        assert!(
            line.starts_with("turn.committed {") && line.contains("I like plums."),
            "{line}"
        );
        admin.post(&format!("{path}:rotate"), &json!({})).await;
        session.say(&server, "나는 자두를 좋아한다.").await;
        let line = printed.recv_timeout(PATIENCE).unwrap();
        assert!(
            line.starts_with("turn.committed {"),
            "the old key still verifies: {line}"
        );
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

/// True if a command succeeds in the folder of the examples. If not, says that its test is skipped.
fn is_available(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder_of_receivers());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = command.status().is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("skipped: {program} with the library of Standard Webhooks is not installed");
    }
    is_there
}

#[test]
fn python_library_verifies_messages() {
    if is_available("python3", &["-c", "import standardwebhooks"]) {
        assert_library_verifies("python3", "receiver.py");
    }
}

#[test]
fn javascript_library_verifies_messages() {
    if is_available("node", &["--input-type=module", "-e", "import 'standardwebhooks'"]) {
        assert_library_verifies("node", "receiver.mjs");
    }
}
