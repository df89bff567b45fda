//! Sockets over real connections: framing, closing, joined deltas, and a client that never reads.

#![allow(clippy::unwrap_used)]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use actix_web::{HttpRequest, dev::ServerHandle, web};
use bytestring::ByteString;
use futures_util::{SinkExt, StreamExt};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{
        Message,
        protocol::frame::{
            Frame,
            coding::{Data, OpCode},
        },
    },
};

use crate::socket::player_socket::{
    OwnEvents, SocketConnection, SocketHub, SocketOptions, SocketProtocol, SocketSettings, close_code,
};
use colloquy_actors::VisibleEvent;
use colloquy_core::{
    ids::{DialogueId, DialogueKind},
    scope::Role,
};
use colloquy_dialogue::{
    disclosure::EventViewer,
    events::{DialogueEvent, EventBody},
};
use colloquy_ports::clock::SystemClock;
use colloquy_transport as transport;
use colloquy_transport::{ConnectionLimits, ConnectionRegistry};

impl Default for SocketSettings {
    fn default() -> Self {
        Self {
            max_open: 20_000,
            max_message_bytes: 16 * 1024,
            max_queued: 512,
            ping_s: 15,
            silence_s: 30,
        }
    }
}

/// How long a test waits for an expected message.
const PATIENCE: Duration = Duration::from_mins(1);

async fn wait_until(label: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("{label}: waited in vain"));
}

type SocketClient = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Echoes text; `bye` closes the connection after the echo.
#[derive(Default)]
struct EchoProtocol {
    open: Mutex<Vec<Arc<SocketConnection>>>,
    closed: Mutex<Vec<u64>>,
}

impl SocketProtocol for EchoProtocol {
    fn on_open(&self, connection: &Arc<SocketConnection>) {
        self.open.lock().push(Arc::clone(connection));
    }
    fn on_text(&self, connection: &Arc<SocketConnection>, text: ByteString) {
        // A lost echo is harmless.
        let _ = connection.send_text(text.clone());
        if text == "bye" {
            connection.close_after_flush(close_code::FORBIDDEN, "forbidden");
        }
    }
    fn on_close(&self, connection: &Arc<SocketConnection>) {
        self.closed.lock().push(connection.id());
    }
}

struct SocketTestServer {
    hub: SocketHub,
    echo: Arc<EchoProtocol>,
    addr: SocketAddr,
    handle: ServerHandle,
}

impl SocketTestServer {
    fn start_server(settings: SocketSettings, coalesce: Duration) -> Self {
        let hub = SocketHub::start(settings, Arc::new(SystemClock));
        let echo = Arc::new(EchoProtocol::default());
        let their_hub = hub.clone();
        let their_echo = Arc::clone(&echo);
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = ConnectionRegistry::start_watching(ConnectionLimits::default(), Arc::new(SystemClock));
        let server = transport::start_server(listener, 1, &connections, move |app| {
            let hub = their_hub.clone();
            let echo = Arc::clone(&their_echo);
            app.route(
                    "/ws",
                    web::get().to(move |request: HttpRequest, payload: web::Payload| {
                        let hub = hub.clone();
                        let echo = Arc::clone(&echo);
                        let options = SocketOptions {
                            tenant: Some("acme".parse().unwrap()),
                            subprotocols: &["colloquy.v1"],
                            coalesce,
                            max_message_bytes: None,
                            own_events: OwnEvents::default(),
                        };
                        let opened = hub.serve_upgrade(&request, payload, echo, &options);
                        async move {
                            opened.map_err(|error| actix_web::error::ErrorServiceUnavailable(format!("{error:?}")))
                        }
                    }),
                );
        })
        .unwrap();
        let handle = server.handle();
        actix::spawn(server);
        Self {
            hub,
            echo,
            addr,
            handle,
        }
    }
    async fn connect_client(&self) -> SocketClient {
        let url = format!("ws://{}/ws", self.addr);
        tokio_tungstenite::connect_async(url).await.unwrap().0
    }
    async fn shut_down(self) {
        self.hub
            .close_all(close_code::DRAINING, "draining", Duration::from_secs(5))
            .await;
        wait_until("every socket is gone", || self.hub.open_count() == 0).await;
        let opened = self.echo.open.lock().len();
        wait_until("each was told so once", || self.echo.closed.lock().len() == opened).await;
        self.handle.stop(false).await;
    }
}

/// Reads until the server closes; returns the texts and the close code.
async fn read_until_close(client: &mut SocketClient) -> (Vec<String>, Option<u16>) {
    let mut texts = Vec::new();
    let listening = async {
        while let Some(Ok(message)) = client.next().await {
            match message {
                Message::Text(text) => texts.push(text.to_string()),
                Message::Close(frame) => return frame.map(|frame| frame.code.into()),
                _ => {}
            }
        }
        None
    };
    let code = tokio::time::timeout(PATIENCE, listening).await.unwrap();
    (texts, code)
}

fn error_code_of(text: &str) -> String {
    let event: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(event["type"], "error");
    event["error"]["code"].as_str().unwrap().to_owned()
}

#[actix::test]
async fn text_messages_pass_in_one_or_many_frames() {
    let server = SocketTestServer::start_server(SocketSettings::default(), Duration::ZERO);
    let mut client = server.connect_client().await;
    client.send(Message::text("안녕")).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text("안녕"));
    // Cut inside a character.
    let (head, tail) = "안녕".as_bytes().split_at(4);
    let part = |bytes: &[u8], code, last| Message::Frame(Frame::message(bytes.to_vec(), OpCode::Data(code), last));
    client.send(part(head, Data::Text, false)).await.unwrap();
    client.send(part(tail, Data::Continue, true)).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text("안녕"));
    client.send(Message::Ping("x".into())).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong("x".into()));
    client.close(None).await.unwrap();
    wait_until("it is gone", || server.hub.open_count() == 0).await;
    assert!(server.hub.closed_by_code().is_empty());
    server.shut_down().await;
}

#[actix::test]
async fn non_text_or_oversized_message_is_reported_and_closes_the_socket() {
    let server = SocketTestServer::start_server(SocketSettings::default(), Duration::ZERO);
    let part = |size: usize, code, last| Message::Frame(Frame::message(vec![b'x'; size], OpCode::Data(code), last));
    let cases: [(&str, Vec<Message>, u16); 6] = [
        ("malformed_request", vec![Message::binary("x")], close_code::MALFORMED),
        (
            "payload_too_large",
            vec![Message::text("x".repeat(16 * 1024 + 1))],
            close_code::TOO_LARGE,
        ),
        (
            "payload_too_large",
            vec![
                part(10_000, Data::Text, false),
                part(6_000, Data::Continue, false),
                part(1_000, Data::Continue, true),
            ],
            close_code::TOO_LARGE,
        ),
        (
            "malformed_request",
            vec![part(1, Data::Binary, false), part(1, Data::Continue, true)],
            close_code::MALFORMED,
        ),
        (
            "malformed_request",
            vec![Message::Frame(Frame::message(
                vec![0xff, 0xfe],
                OpCode::Data(Data::Text),
                true,
            ))],
            close_code::MALFORMED,
        ),
        (
            "malformed_request",
            vec![part(1, Data::Continue, true)],
            close_code::MALFORMED,
        ),
    ];
    for (name, messages, code) in cases {
        let mut client = server.connect_client().await;
        for message in messages {
            client.send(message).await.unwrap();
        }
        let (texts, closed) = read_until_close(&mut client).await;
        assert_eq!(closed, Some(code), "{name}");
        assert_eq!(texts.iter().map(|text| error_code_of(text)).collect::<Vec<_>>(), [name]);
    }
    let longest = "x".repeat(16 * 1024);
    let mut client = server.connect_client().await;
    client.send(Message::text(longest.clone())).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text(longest));
    assert_eq!(
        server.hub.closed_by_code(),
        [(close_code::MALFORMED, 4), (close_code::TOO_LARGE, 2)]
    );
    server.shut_down().await;
}

#[actix::test]
async fn frame_with_a_huge_declared_length_is_not_buffered() {
    use tokio::io::AsyncWriteExt;
    let server = SocketTestServer::start_server(SocketSettings::default(), Duration::ZERO);
    let mut client = server.connect_client().await;
    let MaybeTlsStream::Plain(tcp) = client.get_mut() else {
        panic!("no TLS here")
    };
    // A masked text frame of 2^40 bytes.
    let mut header = vec![0x81, 0xff];
    header.extend_from_slice(&(1_u64 << 40).to_be_bytes());
    header.extend_from_slice(&[0; 4]);
    tcp.write_all(&header).await.unwrap();
    for _ in 0..40 {
        tcp.write_all(&[b'x'; 8 * 1024]).await.unwrap();
    }
    wait_until("it is closed", || {
        server.hub.closed_by_code() == [(close_code::TOO_LARGE, 1)]
    })
    .await;
    let (texts, code) = read_until_close(&mut client).await;
    assert_eq!(
        (error_code_of(&texts[0]).as_str(), code),
        ("payload_too_large", Some(close_code::TOO_LARGE))
    );
    drop(client);
    wait_until("it is gone", || server.hub.open_count() == 0).await;
    server.shut_down().await;
}

#[actix::test]
async fn messages_sent_before_a_close_arrive_before_it() {
    let server = SocketTestServer::start_server(SocketSettings::default(), Duration::ZERO);
    let mut client = server.connect_client().await;
    client.send(Message::text("bye")).await.unwrap();
    assert_eq!(
        read_until_close(&mut client).await,
        (vec!["bye".to_owned()], Some(close_code::FORBIDDEN))
    );
    server.shut_down().await;
}

#[actix::test]
async fn client_that_never_reads_is_dropped_without_affecting_others() {
    let settings = SocketSettings {
        max_queued: 64,
        ..SocketSettings::default()
    };
    let server = SocketTestServer::start_server(settings, Duration::ZERO);
    let jammed = server.connect_client().await;
    wait_until("it is open", || server.echo.open.lock().len() == 1).await;
    let mut well = server.connect_client().await;
    wait_until("both are open", || server.echo.open.lock().len() == 2).await;
    let connection = Arc::clone(&server.echo.open.lock()[0]);
    let text = ByteString::from("x".repeat(10_000));
    wait_until("the jammed one is cut", || connection.send_text(text.clone()).is_err()).await;
    assert!(connection.is_gone());
    assert_eq!(server.hub.closed_by_code(), [(close_code::SLOW_CONSUMER, 1)]);
    wait_until("its actor stops", || server.hub.open_count() == 1).await;
    assert_eq!(*server.echo.closed.lock(), [connection.id()]);
    well.send(Message::text("still here")).await.unwrap();
    assert_eq!(well.next().await.unwrap().unwrap(), Message::text("still here"));
    drop(jammed);
    server.shut_down().await;
}

#[actix::test]
async fn silent_socket_is_pinged_and_then_closed() {
    let settings = SocketSettings {
        ping_s: 1,
        // Much longer than the ping interval, so that on a busy machine the lively client does not look silent.
        silence_s: 4,
        ..SocketSettings::default()
    };
    let server = SocketTestServer::start_server(settings, Duration::ZERO);
    // The silent client answers nothing, because no task polls it; the lively client answers.
    let mut silent = server.connect_client().await;
    let mut lively = server.connect_client().await;
    let lively = actix::spawn(async move {
        let mut pings = 0;
        while let Some(Ok(message)) = lively.next().await {
            pings += usize::from(message.is_ping());
        }
        pings
    });
    wait_until("the silent one is closed", || {
        server.hub.closed_by_code() == [(close_code::IDLE, 1)]
    })
    .await;
    let (texts, code) = read_until_close(&mut silent).await;
    assert_eq!(
        (error_code_of(&texts[0]).as_str(), code),
        ("idle", Some(close_code::IDLE))
    );
    wait_until("one is left", || server.hub.open_count() == 1).await;
    server.shut_down().await;
    assert!(lively.await.unwrap() > 0);
}

#[actix::test]
async fn consecutive_deltas_are_joined() {
    let server = SocketTestServer::start_server(SocketSettings::default(), Duration::from_millis(40));
    let mut client = server.connect_client().await;
    wait_until("it is open", || server.echo.open.lock().len() == 1).await;
    let connection = Arc::clone(&server.echo.open.lock()[0]);
    let delta = |kind, turn, offset, text: &str| {
        let event = DialogueEvent {
            dialogue_id: DialogueId::new(kind, ulid::Ulid(1)),
            seq: None,
            re: None,
            body: EventBody::reply_delta(kind, turn, offset, "mira".parse().unwrap(), text.to_owned()),
        };
        VisibleEvent::of_event(event, &EventViewer::of_role(Role::Player)).unwrap()
    };
    for kind in [DialogueKind::Session, DialogueKind::NpcConversation] {
        for event in [
            delta(kind, 1, 0, "안녕"),
            delta(kind, 1, 2, ", "),
            delta(kind, 1, 4, "you"),
            delta(kind, 2, 0, "Next"),
        ] {
            connection.deliver_event(&event).unwrap();
        }
    }
    connection.send_text("done").unwrap();
    connection.close_after_flush(close_code::DRAINING, "draining");
    let (texts, _) = read_until_close(&mut client).await;
    let joined: Vec<_> = texts[..texts.len() - 1]
        .iter()
        .map(|text| {
            let event: serde_json::Value = serde_json::from_str(text).unwrap();
            (
                event["type"].as_str().unwrap().to_owned(),
                event["turn"].as_u64().unwrap(),
                event["offset"].as_u64().unwrap(),
                event["text"].to_string(),
            )
        })
        .collect();
    let expected: Vec<_> = ["reply.delta", "npc_turn.delta"]
        .into_iter()
        .flat_map(|kind| [(1, "\"안녕, you\""), (2, "\"Next\"")].map(|(turn, text)| (kind, turn, text)))
        .map(|(kind, turn, text)| (kind.to_owned(), turn, 0, text.to_owned()))
        .collect();
    assert_eq!(joined, expected);
    assert_eq!(texts.last().unwrap(), "done");
    server.shut_down().await;
}
