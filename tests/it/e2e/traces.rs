//! The traces sent to a collector and to the model's endpoint.

use std::{net::SocketAddr, sync::Arc};

use colloquy::{
    mock_llm::{self, MockOptions},
    tenancy::Role,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value as AnyValue, trace::v1::Span,
};
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use super::fresh;
use crate::support::{PATIENCE, TestServer, run};

/// Headers in lower case, with the bodies of the requests.
type ExportRequests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// Accepts OTLP over HTTP, as protobuf.
struct TraceCollector {
    address: SocketAddr,
    got: ExportRequests,
}

impl TraceCollector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::default();
        let theirs: ExportRequests = Arc::clone(&got);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&theirs)));
            }
        });
        Self { address, got }
    }
    fn url(&self) -> String {
        format!("http://{}/v1/traces", self.address)
    }
    fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for (head, body) in self.got.lock().iter() {
            assert!(head.starts_with("post /v1/traces "), "{head}");
            assert!(head.contains("authorization: bearer of-the-collector"), "{head}");
            let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
            for resource in request.resource_spans {
                let about = resource.resource.unwrap();
                assert_eq!(text_of(&about.attributes, "service.name"), "inn");
                spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        spans
    }
}

async fn serve(stream: TcpStream, got: ExportRequests) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let head = head.to_lowercase();
        let length = head
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next());
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        got.lock().push((head, body));
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
    }
}

/// Forwards all bytes to a local port, and records them.
async fn start_recording_proxy(port: u16) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    let theirs = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let ((mut from, mut to), (mut back, mut forth)) = (client.into_split(), server.into_split());
            let seen = Arc::clone(&theirs);
            tokio::spawn(async move {
                let mut piece = vec![0; 16 * 1024];
                while let Ok(length @ 1..) = from.read(&mut piece).await {
                    seen.lock().extend_from_slice(&piece[..length]);
                    if forth.write_all(&piece[..length]).await.is_err() {
                        return;
                    }
                }
            });
            tokio::spawn(async move { tokio::io::copy(&mut back, &mut to).await });
        }
    });
    (address, seen)
}

fn text_of(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(AnyValue::StringValue(text)) => text.clone(),
        other => panic!("{key} is {other:?} in {attributes:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

async fn turn(server: &TestServer, session: &str, text: &str, traceparent: &str) -> Value {
    let token = server.token("demo", Role::Backend, None);
    let answer = reqwest::Client::new()
        .post(format!("http://{}/v1/sessions/{session}/turns", server.address))
        .bearer_auth(token)
        .header("traceparent", traceparent)
        .timeout(PATIENCE)
        .json(&json!({"text": text}))
        .send()
        .await
        .unwrap();
    assert!(answer.status().is_success(), "{}", answer.status());
    answer.json().await.unwrap()
}

const THEIRS: &str = "0af7651916cd43dd8448eb211c80319c";
const NOT_SAMPLED: &str = "1bf7651916cd43dd8448eb211c80319d";
const PARENT: &str = "b7ad6b7169203331";

#[test]
fn trace_spans_caller_turn_and_model() {
    let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    run(async {
        let collector = TraceCollector::start().await;
        let port = mock
            .base_url()
            .split(':')
            .nth(2)
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let (endpoint, sent) = start_recording_proxy(port).await;
        let server = fresh(&[
            ("COLLOQUY__TELEMETRY__TRACES_URL", &collector.url()),
            ("COLLOQUY__TELEMETRY__TRACES_AUTHORIZATION", "Bearer of-the-collector"),
            ("COLLOQUY__TELEMETRY__SERVICE_NAME", "inn"),
            ("COLLOQUY__LLM__BASE_URL", &format!("http://{endpoint}/v1")),
            ("COLLOQUY__LLM__MODEL", "mock"),
        ])
        .spawn();
        let made = server
            .backend()
            .post(
                "/v1/sessions",
                &json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"}),
            )
            .await;
        let session = made["id"].as_str().or(made["session_id"].as_str()).unwrap().to_owned();
        turn(&server, &session, "I like grapes.", &format!("00-{THEIRS}-{PARENT}-01")).await;
        turn(&server, &session, "And figs.", &format!("00-{NOT_SAMPLED}-{PARENT}-00")).await;
        // Remaining spans are sent at the server's end.
        server.stop();

        let spans = collector.spans();
        assert!(spans.iter().all(|span| hex(&span.trace_id) != NOT_SAMPLED));
        let theirs: Vec<&Span> = spans.iter().filter(|span| hex(&span.trace_id) == THEIRS).collect();
        let one = |name: &str| {
            let mut named = theirs.iter().filter(|span| span.name == name);
            let found = named
                .next()
                .unwrap_or_else(|| panic!("no {name} among {:?}", span_names(&theirs)));
            assert!(named.next().is_none(), "one {name}");
            *found
        };
        let request = one("http.request");
        assert_eq!(hex(&request.parent_span_id), PARENT);
        let turn = one("turn");
        assert_eq!(turn.parent_span_id, request.span_id);
        assert_eq!(text_of(&turn.attributes, "tenant"), "demo");
        assert_eq!(text_of(&turn.attributes, "dialogue"), session);
        assert!(text_of(&turn.attributes, "turn_id").len() > 20);
        for (name, parent) in [
            ("turn.gather", turn),
            ("turn.assemble", turn),
            ("turn.reply", turn),
            ("turn.commit", turn),
            ("turn.recall", one("turn.gather")),
            ("turn.embed", one("turn.gather")),
            ("turn.intent", one("turn.gather")),
        ] {
            assert_eq!(one(name).parent_span_id, parent.span_id, "{name}");
        }
        let reply = theirs
            .iter()
            .find(|span| span.name == "model.call" && span.parent_span_id == one("turn.reply").span_id)
            .expect("the reply's call");
        assert_eq!(text_of(&reply.attributes, "model"), "mock");

        // The endpoint receives the id of the calling span, also for an unsampled trace.
        let sent = String::from_utf8_lossy(&sent.lock()).to_lowercase();
        let told = format!("traceparent: 00-{THEIRS}-{}-01", hex(&reply.span_id));
        assert!(sent.contains(&told), "no {told} in what was sent");
        assert!(sent.contains(&format!("traceparent: 00-{NOT_SAMPLED}-")));

        // A job is not part of the request that caused it.
        let job = spans.iter().find(|span| span.name == "job").expect("an extraction");
        assert_ne!(hex(&job.trace_id), THEIRS);
        assert_eq!(text_of(&job.attributes, "dialogue"), session);
        // No text of a dialogue is sent.
        let all = format!("{spans:?}");
        assert!(!all.contains("grapes") && !all.contains("figs"), "{all}");
    });
}

fn span_names<'a>(spans: &[&'a Span]) -> Vec<&'a str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}
