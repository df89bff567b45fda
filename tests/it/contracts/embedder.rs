//! The contract of the embedder port, and how the OpenAI adapter handles a misbehaving endpoint.
#![allow(clippy::unwrap_used)]

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use colloquy::{
    adapters::{
        offline_embedder::OfflineEmbedder,
        openai::{ConnectError, Endpoint, HttpClient, InputType, OpenAiEmbedder, OpenAiEmbedderOptions},
    },
    memory::calibration::Calibration,
    mock_llm::{self, MockHandle, MockOptions},
    ports::{
        embedder::{EmbedAs, Embedder},
        llm::LlmError,
    },
};
use serde_json::json;

/// An embedder under test, with the resources that must outlive the test.
struct EmbedderSubject {
    embedder: Box<dyn Embedder>,
    _server: Option<MockHandle>,
}

/// Generates the suite for the listed adapters, one line per adapter.
macro_rules! adapters {
    ($($name:ident: $subject:expr;)+) => {$(
        mod $name {
            use super::*;
            adapters!(@cases $subject, [
                embedder_returns_one_unit_vector_per_text_in_order,
                equal_texts_have_equal_vectors,
                empty_input_yields_empty_output,
                related_texts_are_nearer_than_others,
                embedder_accepts_any_text,
            ]);
        }
    )+};
    (@cases $subject:expr, [$($case:ident,)+]) => {$(
        #[tokio::test]
        async fn $case() {
            super::$case(&$subject.await).await;
        }
    )+};
}

adapters! {
    openai: openai();
    offline: std::future::ready(offline());
}

fn offline() -> EmbedderSubject {
    EmbedderSubject {
        embedder: Box::new(OfflineEmbedder::new()),
        _server: None,
    }
}

async fn openai() -> EmbedderSubject {
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    EmbedderSubject {
        embedder: Box::new(connect(options(&server)).await.unwrap()),
        _server: Some(server),
    }
}

fn options(server: &MockHandle) -> OpenAiEmbedderOptions {
    let endpoint = Endpoint {
        base_url: server.base_url(),
        api_key: None,
    };
    OpenAiEmbedderOptions {
        calibration: Some(Calibration::IDENTITY),
        timeout: Duration::from_secs(5),
        ..OpenAiEmbedderOptions::new(endpoint, "mock")
    }
}

async fn connect(options: OpenAiEmbedderOptions) -> Result<OpenAiEmbedder, ConnectError> {
    OpenAiEmbedder::connect(&HttpClient::new().unwrap(), options).await
}

fn owned_texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

async fn embedder_returns_one_unit_vector_per_text_in_order(subject: &EmbedderSubject) {
    let embedder = &subject.embedder;
    let many: Vec<String> = (0..150).map(|n| format!("The player owns {n} goats.")).collect();
    for kind in [EmbedAs::Query, EmbedAs::Passage] {
        let vectors = embedder.embed_texts(kind, &many).await.unwrap();
        assert_eq!(vectors.len(), many.len());
        for vector in &vectors {
            assert_eq!(vector.len(), embedder.info().dimensions);
            let norm = cosine(vector, vector).sqrt();
            assert!((norm - 1.0).abs() < 1e-3, "norm {norm}");
        }
        for place in [0, 70, 149] {
            let alone = embedder.embed_texts(kind, &many[place..=place]).await.unwrap();
            assert!(
                cosine(&alone[0], &vectors[place]) > 0.999,
                "text {place} has another's vector"
            );
        }
    }
    assert!(!embedder.info().model.is_empty());
}

async fn equal_texts_have_equal_vectors(subject: &EmbedderSubject) {
    let text = owned_texts(&["나는 포도를 좋아해"]);
    let once = subject.embedder.embed_texts(EmbedAs::Passage, &text).await.unwrap();
    let again = subject.embedder.embed_texts(EmbedAs::Passage, &text).await.unwrap();
    assert!(cosine(&once[0], &again[0]) > 0.9999);
}

async fn empty_input_yields_empty_output(subject: &EmbedderSubject) {
    assert!(
        subject
            .embedder
            .embed_texts(EmbedAs::Query, &[])
            .await
            .unwrap()
            .is_empty()
    );
}

async fn related_texts_are_nearer_than_others(subject: &EmbedderSubject) {
    for [fact, near, far] in [
        [
            "The player likes grapes.",
            "The player really likes grapes.",
            "A bridge fell down at noon.",
        ],
        [
            "플레이어는 포도를 좋아한다.",
            "플레이어는 포도를 아주 좋아한다.",
            "다리가 어제 무너졌다.",
        ],
    ] {
        let vectors = subject
            .embedder
            .embed_texts(EmbedAs::Passage, &owned_texts(&[fact, near, far]))
            .await
            .unwrap();
        let (near, far) = (cosine(&vectors[0], &vectors[1]), cosine(&vectors[0], &vectors[2]));
        assert!(near > far, "{fact}: {near} and {far}");
    }
}

async fn embedder_accepts_any_text(subject: &EmbedderSubject) {
    let long = "긴 이야기 ".repeat(400);
    let odd = owned_texts(&[" ", "?!", "🙂", "\u{0}", &long]);
    let vectors = subject.embedder.embed_texts(EmbedAs::Passage, &odd).await.unwrap();
    assert!(vectors.iter().flatten().all(|x| x.is_finite()));
}

#[tokio::test]
async fn query_and_passage_are_marked_as_configured() {
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let cases = [
        (
            InputType::None,
            [json!(["x"]), json!(null)],
            [json!(["x"]), json!(null)],
        ),
        (
            InputType::Field,
            [json!(["x"]), json!("query")],
            [json!(["x"]), json!("passage")],
        ),
        (
            InputType::Prefix {
                query: "query: ".into(),
                passage: "passage: ".into(),
            },
            [json!(["query: x"]), json!(null)],
            [json!(["passage: x"]), json!(null)],
        ),
    ];
    for (input_type, query, passage) in cases {
        let embedder = connect(OpenAiEmbedderOptions {
            input_type,
            ..options(&server)
        })
        .await
        .unwrap();
        for (kind, [input, field]) in [(EmbedAs::Query, query), (EmbedAs::Passage, passage)] {
            embedder.embed_texts(kind, &owned_texts(&["x"])).await.unwrap();
            let sent = server.requests_of("embedding").pop().unwrap();
            assert_eq!((&sent["input"], &sent["input_type"]), (&input, &field));
        }
    }
}

#[tokio::test]
async fn endpoint_faults_have_distinct_errors() {
    type EmbedderCheck = fn(&LlmError) -> bool;
    let cases: [(&str, EmbedderCheck); 7] = [
        ("500", |error| matches!(error, LlmError::Unavailable(_))),
        ("refuse", |error| matches!(error, LlmError::Refused(_))),
        ("429", |error| {
            matches!(error, LlmError::RateLimited { retry_after: Some(_) })
        }),
        ("invalid-body", |error| matches!(error, LlmError::Broken(_))),
        ("broken-stream", |error| matches!(error, LlmError::Broken(_))),
        ("hang", |error| matches!(error, LlmError::Timeout)),
        ("slow", |error| matches!(error, LlmError::Timeout)),
    ];
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let patient = connect(options(&server)).await.unwrap();
    let hurried = connect(OpenAiEmbedderOptions {
        timeout: Duration::from_millis(200),
        ..options(&server)
    })
    .await
    .unwrap();
    for (fault, is_expected) in cases {
        let embedder = if matches!(fault, "hang" | "slow") {
            &hurried
        } else {
            &patient
        };
        server
            .apply_settings(&json!({"faults": [format!("embedding={fault}")]}))
            .unwrap();
        let error = embedder
            .embed_texts(EmbedAs::Query, &owned_texts(&["x"]))
            .await
            .unwrap_err();
        assert!(is_expected(&error), "{fault}: {error:?}");
    }
}

#[tokio::test]
async fn vector_of_wrong_length_is_an_error() {
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let embedder = connect(options(&server)).await.unwrap();
    assert_eq!(embedder.info().dimensions, 384);
    server.apply_settings(&json!({"dimensions": 256})).unwrap();
    let error = embedder
        .embed_texts(EmbedAs::Query, &owned_texts(&["x"]))
        .await
        .unwrap_err();
    assert!(matches!(error, LlmError::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn embedder_of_known_length_is_not_probed() {
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let told = |dimensions| OpenAiEmbedderOptions {
        dimensions,
        ..options(&server)
    };
    let [right, wrong] = [connect(told(384)).await.unwrap(), connect(told(385)).await.unwrap()];
    assert_eq!(server.calls_of("embedding"), 0);
    assert_eq!((right.info().dimensions, wrong.info().dimensions), (384, 385));
    let vectors = right.embed_texts(EmbedAs::Query, &owned_texts(&["x"])).await.unwrap();
    assert_eq!(vectors[0].len(), 384);
    let error = wrong
        .embed_texts(EmbedAs::Query, &owned_texts(&["x"]))
        .await
        .unwrap_err();
    assert!(matches!(error, LlmError::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn embedder_temporarily_unavailable_is_awaited() {
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    for fault in ["500", "429"] {
        server
            .apply_settings(&json!({"faults": [format!("embedding={fault}")]}))
            .unwrap();
        let before = server.calls_of("embedding");
        let patient = OpenAiEmbedderOptions {
            patience: Duration::from_mins(2),
            ..options(&server)
        };
        let connecting = tokio::spawn(connect(patient));
        crate::support::eventually("it to be asked twice", || async {
            (server.calls_of("embedding") >= before + 2).then_some(())
        })
        .await;
        assert!(!connecting.is_finished(), "{fault}");
        server.apply_settings(&json!({"faults": []})).unwrap();
        let embedder = connecting.await.unwrap().unwrap();
        assert_eq!(embedder.info().dimensions, 384, "{fault}");
    }
}

/// Starts an endpoint that answers every request with `status`, and counts the requests.
fn rejecting_endpoint(status: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            counted.fetch_add(1, SeqCst);
            // The request is small and arrives in one piece.
            let _ = client.read(&mut [0; 4_096]);
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = client.write_all(answer.as_bytes());
        }
    });
    (url, asked)
}

#[tokio::test]
async fn embedder_rejecting_permanently_is_called_once() {
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    for status in ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found"] {
        let (base_url, asked) = rejecting_endpoint(status);
        let patient = OpenAiEmbedderOptions {
            endpoint: Endpoint {
                base_url,
                api_key: None,
            },
            patience: Duration::from_hours(1),
            ..options(&server)
        };
        let error = connect(patient).await.err().unwrap();
        assert!(matches!(error, ConnectError::Call(_)), "{status}: {error}");
        assert_eq!(asked.load(SeqCst), 1, "{status}");
    }
}

#[tokio::test]
async fn embedder_requires_a_responding_endpoint_and_a_calibration() {
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let unknown = OpenAiEmbedderOptions {
        calibration: None,
        ..options(&server)
    };
    let error = connect(unknown.clone()).await.err().unwrap();
    assert!(matches!(&error, ConnectError::NoCalibration(_)));
    assert!(error.to_string().contains("calibrate"), "{error}");
    let http = HttpClient::new().unwrap();
    assert!(OpenAiEmbedder::connect_uncalibrated(&http, unknown).await.is_ok());
    let options = options(&server);
    server.stop();
    assert!(matches!(
        connect(options).await.err().unwrap(),
        ConnectError::Call(LlmError::Unavailable(_))
    ));
}

/// Reads `COLLOQUY_TEST_EMBEDDER_URL` (ending in `/v1`), `…_MODEL` and optionally `…_INPUT_TYPE=field`.
#[tokio::test]
#[ignore = "needs a real embedding server in COLLOQUY_TEST_EMBEDDER_URL"]
async fn real_embedder_fulfils_the_contract_and_separates_meanings() {
    let var = |name: &str| std::env::var(format!("COLLOQUY_TEST_EMBEDDER_{name}"));
    let endpoint = Endpoint {
        base_url: var("URL").expect("COLLOQUY_TEST_EMBEDDER_URL is set"),
        api_key: None,
    };
    let mut options = OpenAiEmbedderOptions::new(endpoint, var("MODEL").unwrap_or_else(|_| "default".into()));
    options.timeout = Duration::from_mins(1);
    if var("INPUT_TYPE").is_ok_and(|name| name == "field") {
        options.input_type = InputType::Field;
    }
    let embedder = OpenAiEmbedder::connect_uncalibrated(&HttpClient::new().unwrap(), options)
        .await
        .unwrap();
    let report = colloquy::adapters::calibration::measure_shipped_pairs(&embedder)
        .await
        .unwrap();
    println!("{report}");
    let subject = EmbedderSubject {
        embedder: Box::new(embedder),
        _server: None,
    };
    embedder_returns_one_unit_vector_per_text_in_order(&subject).await;
    equal_texts_have_equal_vectors(&subject).await;
    empty_input_yields_empty_output(&subject).await;
    related_texts_are_nearer_than_others(&subject).await;
    embedder_accepts_any_text(&subject).await;
}
