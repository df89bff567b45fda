//! A proxy that records every request from a server to its stores.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// A recorded request: an executed statement, or a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The number of its connection.
    pub connection: usize,
    pub text: String,
    /// The types of a statement's parameters, as Postgres numbers types.
    pub types: Vec<u32>,
    pub at: Instant,
    /// The time when the answer, or its beginning, was forwarded.
    pub answered: Option<Instant>,
}

/// Returns the longest sequence of requests in which each request follows the answer to the one before.
pub fn in_sequence(requests: &[RecordedRequest]) -> Vec<&RecordedRequest> {
    let mut by_answer: Vec<&RecordedRequest> = requests.iter().filter(|request| request.answered.is_some()).collect();
    by_answer.sort_by_key(|request| request.answered);
    // The earliest answer leaves most room for later requests.
    let mut row: Vec<&RecordedRequest> = Vec::new();
    for request in by_answer {
        if row.last().is_none_or(|last| last.answered.unwrap() <= request.at) {
            row.push(request);
        }
    }
    row
}

/// A request's text, and the types of its parameters.
type WireMessage = (String, Vec<u32>);

/// Parses requests from a client's bytes.
trait WireProtocol: Send {
    /// Removes whole requests from the front of `bytes`, and leaves an incomplete request.
    fn read(&mut self, bytes: &mut Vec<u8>) -> Vec<WireMessage>;
}

/// The prefix of the settings requested at a connection's start.
const OPTIONS: &str = "options ";

/// A running proxy, which stops when dropped.
pub struct WireRecorder {
    address: SocketAddr,
    options: Arc<Mutex<String>>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    ended: Arc<AtomicBool>,
    /// The delay of answers, in milliseconds.
    delay_ms: Arc<AtomicU64>,
}

impl WireRecorder {
    /// Records the statements sent to the Postgres server in `url`. It skips preparations and the tenant's setting,
    /// which every connection does once.
    pub fn on_postgres(url: &str) -> (Self, String) {
        let (place, database) = url.rsplit_once('/').expect("a URL with a database");
        let (before, address) = place.rsplit_once('@').expect("a URL with a role");
        let tap = Self::start(address, || Box::<PostgresWire>::default());
        let tapped = format!("{before}@{}/{database}?sslmode=disable", tap.address);
        (tap, tapped)
    }

    /// Records the commands sent to a Redis server.
    pub fn on_redis(port: u16) -> (Self, String) {
        let tap = Self::start(&format!("127.0.0.1:{port}"), || Box::new(RedisWire));
        let tapped = format!("redis://{}", tap.address);
        (tap, tapped)
    }

    /// Records the calls to a Qdrant server, without their contents.
    pub fn on_qdrant(url: &str) -> (Self, String) {
        let address = url.strip_prefix("http://").expect("a URL without TLS");
        let tap = Self::start(address, || Box::<GrpcWire>::default());
        let tapped = format!("http://{}", tap.address);
        (tap, tapped)
    }

    fn start(server: &str, protocol: fn() -> Box<dyn WireProtocol>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let tap = Self {
            address: listener.local_addr().unwrap(),
            options: Arc::default(),
            requests: Arc::default(),
            ended: Arc::default(),
            delay_ms: Arc::default(),
        };
        let (server, requests, ended) = (server.to_owned(), tap.requests.clone(), tap.ended.clone());
        let (options, delay_ms) = (tap.options.clone(), tap.delay_ms.clone());
        thread::spawn(move || {
            for (connection, client) in listener.incoming().map_while(Result::ok).enumerate() {
                if ended.load(Ordering::Acquire) {
                    break;
                }
                let upstream = TcpStream::connect(&server).unwrap();
                let (down, up) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
                let (answers, delay_ms) = (requests.clone(), delay_ms.clone());
                thread::spawn(move || {
                    let _ = answer(down, &up, &delay_ms, || mark_answered(&answers, connection));
                    let _ = up.shutdown(Shutdown::Both);
                });
                let (requests, options) = (requests.clone(), options.clone());
                thread::spawn(move || {
                    let _ = record_stream(client, &upstream, &mut *protocol(), |(text, types)| {
                        match text.strip_prefix(OPTIONS) {
                            Some(wanted) => wanted.clone_into(&mut options.lock()),
                            None => requests.lock().push(RecordedRequest {
                                connection,
                                text,
                                types,
                                at: now(),
                                answered: None,
                            }),
                        }
                    });
                    let _ = upstream.shutdown(Shutdown::Both);
                });
            }
        });
        tap
    }

    /// Returns the settings requested by the last Postgres connection: names and values.
    pub fn options(&self) -> Vec<(String, String)> {
        let options = self.options.lock();
        let pairs = options.split("-c ").filter_map(|option| option.trim().split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Delays all answers, which separates dependent requests from concurrent requests.
    pub fn set_delay(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap();
        self.delay_ms.store(delay, Ordering::Relaxed);
    }

    /// Returns the number of recorded requests.
    pub fn count(&self) -> usize {
        self.requests.lock().len()
    }

    /// Returns the requests after the first `count`.
    pub fn requests_since(&self, count: usize) -> Vec<RecordedRequest> {
        self.requests.lock()[count..].to_vec()
    }
}

impl Drop for WireRecorder {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

#[expect(clippy::disallowed_methods, reason = "when requests pass by is what is looked at")]
fn now() -> Instant {
    Instant::now()
}

/// Marks all requests of a connection as answered, because a connection sends one request at a time.
fn mark_answered(requests: &Mutex<Vec<RecordedRequest>>, connection: usize) {
    let (mut requests, now) = (requests.lock(), now());
    let of_it = requests
        .iter_mut()
        .rev()
        .filter(|request| request.connection == connection);
    for request in of_it.take_while(|request| request.answered.is_none()) {
        request.answered = Some(now);
    }
}

/// Forwards answers with a delay.
fn answer(
    mut server: TcpStream,
    mut client: &TcpStream,
    delay_ms: &AtomicU64,
    mut passed: impl FnMut(),
) -> io::Result<()> {
    let mut some = [0; 16_384];
    loop {
        let read = server.read(&mut some)?;
        if read == 0 {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(delay_ms.load(Ordering::Relaxed)));
        passed();
        client.write_all(&some[..read])?;
    }
}

/// Forwards bytes. A request is recorded before the server can receive it.
fn record_stream(
    mut client: TcpStream,
    mut upstream: &TcpStream,
    protocol: &mut dyn WireProtocol,
    mut heard: impl FnMut(WireMessage),
) -> io::Result<()> {
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let (mut some, mut unread) = ([0; 16_384], Vec::new());
    loop {
        let read = client.read(&mut some)?;
        if read == 0 {
            return Ok(());
        }
        unread.extend_from_slice(&some[..read]);
        protocol.read(&mut unread).into_iter().for_each(&mut heard);
        upstream.write_all(&some[..read])?;
    }
}

/// The frontend's side of "PostgreSQL: Frontend/Backend Protocol".
#[derive(Default)]
struct PostgresWire {
    started: bool,
    /// Statements by prepared name.
    prepared: HashMap<Vec<u8>, WireMessage>,
}

/// Returns the bytes before a zero byte, and the rest.
fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .expect("a text ends with a zero");
    (&bytes[..end], &bytes[end + 1..])
}

impl PostgresWire {
    /// Returns the statement that a message executes; `None` for other messages.
    fn message(&mut self, kind: u8, body: &[u8]) -> Option<WireMessage> {
        let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match kind {
            b'Q' => Some((utf8(text(body).0), Vec::new())),
            b'P' => {
                let (name, rest) = text(body);
                let (statement, types) = text(rest);
                // The number of types, then the types.
                let types = types[2..].chunks_exact(4);
                let types = types.map(|oid| u32::from_be_bytes(oid.try_into().unwrap()));
                self.prepared.insert(name.to_vec(), (utf8(statement), types.collect()));
                None
            }
            b'B' => {
                let (_portal, rest) = text(body);
                let (name, _) = text(rest);
                self.prepared.get(name).cloned()
            }
            _ => None,
        }
    }
}

impl WireProtocol for PostgresWire {
    fn read(&mut self, bytes: &mut Vec<u8>) -> Vec<WireMessage> {
        let mut run = Vec::new();
        loop {
            // The first message has no kind.
            let kind = usize::from(self.started);
            let Some(length) = bytes.get(kind..kind + 4) else {
                return run;
            };
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if bytes.len() < kind + length {
                return run;
            }
            let message: Vec<u8> = bytes.drain(..kind + length).collect();
            if self.started {
                let statement = self.message(message[0], &message[5..]);
                run.extend(statement.filter(|(text, _)| !text.starts_with("SELECT set_config(")));
            }
            if !self.started {
                // The length, the protocol version, then names and values.
                let mut rest = &message[8..];
                while rest.len() > 1 {
                    let (name, more) = text(rest);
                    let (value, more) = text(more);
                    if name == b"options" {
                        run.push((format!("{OPTIONS}{}", String::from_utf8_lossy(value)), Vec::new()));
                    }
                    rest = more;
                }
            }
            self.started = true;
        }
    }
}

/// RESP: arrays of strings.
struct RedisWire;

impl RedisWire {
    /// Returns the words and length of the first command.
    fn command(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
        let mut at = 0;
        let number = |bytes: &[u8], at: &mut usize, kind: u8| -> Option<usize> {
            let end = *at + bytes[*at..].windows(2).position(|two| two == b"\r\n")?;
            assert_eq!(bytes[*at], kind, "this is no command");
            let digits = std::str::from_utf8(&bytes[*at + 1..end]).unwrap();
            *at = end + 2;
            Some(digits.parse().unwrap())
        };
        let words = number(bytes, &mut at, b'*')?;
        let mut command = Vec::new();
        for _ in 0..words {
            let length = number(bytes, &mut at, b'$')?;
            let word = bytes.get(at..at + length)?;
            command.push(String::from_utf8_lossy(word).into_owned());
            at += length + 2;
        }
        (at <= bytes.len()).then_some((command, at))
    }
}

impl WireProtocol for RedisWire {
    fn read(&mut self, bytes: &mut Vec<u8>) -> Vec<WireMessage> {
        let mut run = Vec::new();
        while let Some((command, length)) = Self::command(bytes) {
            bytes.drain(..length);
            // The name, with the key or the script's digest.
            let text = command.into_iter().take(2).collect::<Vec<_>>().join(" ");
            run.push((text, Vec::new()));
        }
        run
    }
}

/// Frames of HTTP/2. Every call begins with its headers.
#[derive(Default)]
struct GrpcWire {
    greeted: bool,
}

impl GrpcWire {
    /// The length of a connection's preface.
    const PREFACE: usize = 24;
    const FRAME: usize = 9;
    const HEADERS: u8 = 1;
}

impl WireProtocol for GrpcWire {
    fn read(&mut self, bytes: &mut Vec<u8>) -> Vec<WireMessage> {
        let mut run = Vec::new();
        if !self.greeted && bytes.len() >= Self::PREFACE {
            bytes.drain(..Self::PREFACE);
            self.greeted = true;
        }
        while self.greeted && bytes.len() >= Self::FRAME {
            let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
            if bytes.len() < Self::FRAME + length {
                break;
            }
            if bytes[3] == Self::HEADERS {
                run.push(("a call to Qdrant".to_owned(), Vec::new()));
            }
            bytes.drain(..Self::FRAME + length);
        }
        run
    }
}
