//! Attempts of one client, or of many clients without a token, to make a node unavailable for others.

use std::time::Duration;

use colloquy::{tenancy::Role, transport::ConnectionLimits};
use futures_util::future::join_all;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    fakes::PATIENCE,
    harness::{HttpTestOptions, HttpTestServer, HttpTestSocket, json_of},
};

/// Returns options with short limits and few places. Heads have time: on a busy machine, a head may wait for its turn.
fn options(max_open: usize) -> HttpTestOptions {
    let mut options = HttpTestOptions {
        connections: ConnectionLimits {
            max_open,
            reserve: 2,
            head: PATIENCE,
            write: Duration::from_millis(700),
        },
        ..HttpTestOptions::default()
    };
    options.http.body_timeout_ms = 600;
    options
}

/// As [`options`], with a short limit for heads. The limit also ends a connection whose answer was given.
fn options_with_short_heads(max_open: usize) -> HttpTestOptions {
    let mut options = options(max_open);
    options.connections.head = Duration::from_millis(400);
    options
}

async fn connect(server: &HttpTestServer) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

async fn send(stream: &mut TcpStream, text: &str) {
    // The server may already have closed the connection.
    let _ = stream.write_all(text.as_bytes()).await;
}

/// Reads until the text `end` or the end of the stream.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&text).contains(end) {
            let mut part = [0; 4096];
            match stream.read(&mut part).await {
                Ok(0) | Err(_) => break,
                Ok(count) => text.extend_from_slice(&part[..count]),
            }
        }
    };
    timeout(PATIENCE, reading)
        .await
        .expect("the server neither answers nor closes");
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads until the connection ends.
async fn read_to_end(stream: &mut TcpStream) -> String {
    read_until(stream, "\0 comes never").await
}

/// Returns the status of an answer on a new connection.
async fn status(server: &HttpTestServer, path: &str, token: Option<&str>) -> u16 {
    let mut stream = connect(server).await;
    let token = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
    send(&mut stream, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n{token}\r\n")).await;
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0)
}

fn slow_body(token: &str) -> String {
    format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: 100\r\n\r\n{{"
    )
}

#[actix_web::test]
async fn slow_bodies_hold_few_connections_briefly() {
    let mut options = options(32);
    options.limits.player_in_flight = 4;
    // Longer than the loop below takes on a busy machine: the first four bodies must be open to its end.
    options.http.body_timeout_ms = 5_000;
    let server = HttpTestServer::with(options);
    server.start_demo_world().await;
    let (player, other) = (
        server.token("acme", Role::Player, Some("p7")),
        server.token("rival", Role::Admin, None),
    );
    let mut streams = join_all((0..24).map(|_| connect(&server))).await;
    for stream in &mut streams {
        send(stream, &slow_body(&player)).await;
        assert_eq!(status(&server, "/healthz", None).await, 200);
        assert_eq!(status(&server, "/v1/worlds", Some(&other)).await, 200);
    }
    let answers = join_all(streams.iter_mut().map(read_to_end)).await;
    let of = |status: &str| answers.iter().filter(|answer| answer.starts_with(status)).count();
    assert_eq!((of("HTTP/1.1 429"), of("HTTP/1.1 408")), (20, 4), "{answers:?}");
    // Refused clients may come again.
    assert_eq!(status(&server, "/v1/sessions", Some(&player)).await, 200);
}

/// Begins an import of which only the head comes.
async fn begin_import(server: &HttpTestServer, token: &str) -> TcpStream {
    let mut stream = connect(server).await;
    let head = format!(
        "POST /v1/worlds/vale/lore:import HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-length: 60000\r\n\r\n"
    );
    send(&mut stream, &head).await;
    stream
}

#[actix_web::test]
async fn imports_over_the_limits_are_refused_before_their_file_is_read() {
    let mut options = options(32);
    options.http.body_timeout_ms = 1_500;
    options.limits.imports = 1;
    let server = HttpTestServer::with(options);
    let client = server.start_demo_world().await;
    let rival = server.token("rival", Role::Admin, None);
    let mut running = begin_import(&server, &client.token).await;
    for (token, whose) in [
        (&client.token, "a tenant may have 1"),
        (&rival, "the server may have 1"),
    ] {
        // The running import has the place as soon as its head was read.
        let answer = loop {
            let answer = read_until(&mut begin_import(&server, token).await, "}").await;
            if !answer.starts_with("HTTP/1.1 408") {
                break answer;
            }
        };
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        assert!(answer.contains("retry-after: ") && answer.contains(whose), "{answer}");
    }
    // Other requests are not refused.
    assert_eq!(status(&server, "/v1/worlds", Some(&client.token)).await, 200);
    assert!(read_to_end(&mut running).await.starts_with("HTTP/1.1 408"));
    let book = json!({"spec": "lorebook_v3", "data": {"entries": []}});
    client.post("/v1/worlds/vale/lore:import", &book).await;
}

#[actix_web::test]
async fn idle_connections_make_room_for_others() {
    let server = HttpTestServer::with(options(16));
    let mut idle = Vec::new();
    for _ in 0..64 {
        let mut stream = connect(&server).await;
        send(&mut stream, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(read_until(&mut stream, "}").await.starts_with("HTTP/1.1 200"));
        idle.push(stream);
    }
    assert_eq!(status(&server, "/healthz", None).await, 200);
}

#[actix_web::test]
async fn silent_connections_make_room_for_others() {
    let server = HttpTestServer::with(options_with_short_heads(16));
    let silent = join_all((0..64).map(|_| connect(&server))).await;
    for _ in 0..4 {
        assert_eq!(status(&server, "/healthz", None).await, 200);
    }
    drop(silent);
}

#[actix_web::test]
async fn request_head_has_a_timeout_on_the_second_request_too() {
    let server = HttpTestServer::with(options_with_short_heads(16));
    let mut first = connect(&server).await;
    send(&mut first, "GET /heal").await;
    let mut second = connect(&server).await;
    send(&mut second, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(read_until(&mut second, "}").await.starts_with("HTTP/1.1 200"));
    send(&mut second, "GET").await;
    read_to_end(&mut first).await;
    read_to_end(&mut second).await;
}

#[actix_web::test]
async fn request_body_after_a_rejection_is_read_for_a_bounded_time() {
    let server = HttpTestServer::with(options_with_short_heads(16));
    let mut stream = connect(&server).await;
    send(
        &mut stream,
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n",
    )
    .await;
    assert!(read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 401"));
    let going_on = async {
        while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, going_on).await.expect("the server reads on");
}

#[actix_web::test]
async fn client_that_reads_no_answers_is_cut() {
    let server = HttpTestServer::with(options(16));
    let mut stream = connect(&server).await;
    let asking = async {
        loop {
            if stream
                .write_all(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n")
                .await
                .is_err()
            {
                break;
            }
        }
    };
    timeout(PATIENCE, asking)
        .await
        .expect("the server waits for its client");
}

#[actix_web::test]
async fn probes_are_answered_when_all_connections_are_busy() {
    let mut options = options(4);
    options.http.body_timeout_ms = 5_000;
    let server = HttpTestServer::with(options);
    let player = server.token("acme", Role::Player, Some("p7"));
    let rival = server.token("rival", Role::Player, Some("p7"));
    let mut busy = join_all((0..4).map(|_| connect(&server))).await;
    for (stream, token) in busy.iter_mut().zip([&player, &player, &player, &rival]) {
        send(stream, &slow_body(token)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let full = async {
        while status(&server, "/v1/sessions", Some(&player)).await != 503 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(4), full)
        .await
        .expect("the reserve is for nobody else");
    assert_eq!(status(&server, "/healthz", None).await, 200);
    assert_eq!(status(&server, "/metrics", None).await, 200);
    drop(busy);
}

#[actix_web::test]
async fn rejected_sockets_hold_no_place() {
    let mut options = options(512);
    options.sockets.max_open = 4;
    let server = HttpTestServer::with(options);
    server.start_demo_world().await;
    // Sockets that only tell why they are refused. A client that does not answer the close frame soon gives its place back,
    // so more clients may be told in all.
    let most_at_once = 64;
    let (mut refused, mut told) = (Vec::new(), 0);
    for number in 0..100 {
        let mut stream = connect(&server).await;
        send(
            &mut stream,
            "GET /v1/ws?ticket=tkt_none HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
        let answer = read_until(&mut stream, "\r\n\r\n").await;
        let is_told = answer.starts_with("HTTP/1.1 101");
        assert!(is_told || answer.starts_with("HTTP/1.1 401"), "{number}: {answer}");
        told += usize::from(is_told);
        let open = server.state.sockets.open_count();
        assert!(open <= most_at_once, "{open} sockets are open after {number}");
        refused.push(stream);
    }
    assert!(told > 0);
    let mut socket = server.socket(&server.token("acme", Role::Player, Some("p7"))).await;
    socket.session().await;
}

#[actix_web::test]
async fn tenant_and_its_backends_leave_sockets_to_others() {
    let mut options = options(512);
    options.sockets.max_open = 20;
    let server = HttpTestServer::with(options);
    server.start_demo_world().await;
    let backend = server.token("acme", Role::Backend, None);
    let mut open = Vec::new();
    let refused = loop {
        let mut request = server.upgrade_request("");
        let bearer = format!("Bearer {backend}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        match HttpTestSocket::open(request).await {
            Ok(socket) => open.push(socket),
            Err(refused) => break refused,
        }
    };
    assert_eq!(open.len(), 16);
    assert!(refused.to_string().contains("429"), "{refused}");
    let _theirs = server.socket(&server.token("rival", Role::Admin, None)).await;
}

#[actix_web::test]
async fn tenant_leaves_requests_to_others() {
    let mut options = options(20);
    options.http.body_timeout_ms = 5_000;
    let server = HttpTestServer::with(options);
    let backend = server.token("acme", Role::Backend, None);
    let mut busy = Vec::new();
    for _ in 0..18 {
        let mut stream = connect(&server).await;
        send(&mut stream, &slow_body(&backend)).await;
        busy.push(stream);
    }
    let mine = async {
        while status(&server, "/v1/worlds", Some(&backend)).await != 429 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(4), mine)
        .await
        .expect("the tenant has no share of its own");
    let other = server.token("rival", Role::Admin, None);
    assert_eq!(status(&server, "/v1/worlds", Some(&other)).await, 200);
}

#[actix_web::test]
async fn header_of_a_client_does_not_hide_its_address() {
    let mut options = options(64);
    options.limits.address_in_flight = 2;
    options.http.body_timeout_ms = 5_000;
    let server = HttpTestServer::with(options);
    server.start_demo_world().await;
    let mut streams = join_all((0..3).map(|_| connect(&server))).await;
    for (number, stream) in streams.iter_mut().enumerate() {
        let token = server.token("acme", Role::Player, Some(&format!("p{number}")));
        let claim = format!("host: x\r\nx-forwarded-for: 192.0.2.{number}");
        send(stream, &slow_body(&token).replacen("host: x", &claim, 1)).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let refused = read_until(&mut streams[2], "}").await;
    assert!(refused.contains("an address may have 2"), "{refused}");
}

#[actix_web::test]
async fn requests_per_address_are_limited_by_the_address_from_a_trusted_proxy() {
    let mut options = options(64);
    options.limits.address_in_flight = 2;
    options.http.body_timeout_ms = 5_000;
    options.http.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let server = HttpTestServer::with(options);
    server.start_demo_world().await;
    let behind = |player: &str, address: &str| {
        let token = server.token("acme", Role::Player, Some(player));
        slow_body(&token).replacen("host: x", &format!("host: x\r\nx-forwarded-for: {address}"), 1)
    };
    let mut streams = join_all((0..4).map(|_| connect(&server))).await;
    send(&mut streams[0], &behind("p1", "192.0.2.1")).await;
    // The header has the client's own claim first, then the address seen by the proxy.
    send(&mut streams[1], &behind("p2", "198.51.100.7, 192.0.2.1")).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    send(&mut streams[2], &behind("p3", "192.0.2.1, 127.0.0.9")).await;
    let refused = read_until(&mut streams[2], "}").await;
    assert!(refused.contains("an address may have 2"), "{refused}");
    let other = server.client(server.token("acme", Role::Player, Some("p4")));
    let sent = other
        .request(reqwest::Method::POST, "/v1/sessions")
        .header("x-forwarded-for", "192.0.2.2")
        .json(&json!({"world_id": "vale", "npc_id": "ergen", "player_id": "p4"}))
        .send();
    let (status, body) = json_of(sent.await.unwrap()).await;
    assert_eq!(status.as_u16(), 201, "{body}");
}
