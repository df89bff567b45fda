//! The contract of the embedder port, and what the OpenAI adapter makes of an endpoint that
//! misbehaves.
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

/// An embedder under test, and what must stay alive beside it.
struct Subject {
    embedder: Box<dyn Embedder>,
    _server: Option<MockHandle>,
}

/// One line per adapter.
macro_rules! adapters {
    ($($name:ident: $subject:expr;)+) => {$(
        mod $name {
            use super::*;
            adapters!(@cases $subject, [
                gives_one_unit_vector_per_text_in_order,
                the_same_text_has_the_same_vector,
                nothing_in_nothing_out,
                near_texts_are_nearer_than_others,
                any_text_can_be_embedded,
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

fn offline() -> Subject {
    Subject {
        embedder: Box::new(OfflineEmbedder::new()),
        _server: None,
    }
}

async fn openai() -> Subject {
    let server = mock_llm::start(MockOptions::default()).unwrap();
    Subject {
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

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

async fn gives_one_unit_vector_per_text_in_order(subject: &Subject) {
    let embedder = &subject.embedder;
    let many: Vec<String> = (0..150).map(|n| format!("The player owns {n} goats.")).collect();
    for kind in [EmbedAs::Query, EmbedAs::Passage] {
        let vectors = embedder.embed(kind, &many).await.unwrap();
        assert_eq!(vectors.len(), many.len());
        for vector in &vectors {
            assert_eq!(vector.len(), embedder.info().dimensions);
            let norm = cosine(vector, vector).sqrt();
            assert!((norm - 1.0).abs() < 1e-3, "norm {norm}");
        }
        for place in [0, 70, 149] {
            let alone = embedder.embed(kind, &many[place..=place]).await.unwrap();
            assert!(
                cosine(&alone[0], &vectors[place]) > 0.999,
                "text {place} has another's vector"
            );
        }
    }
    assert!(!embedder.info().model.is_empty());
}

async fn the_same_text_has_the_same_vector(subject: &Subject) {
    let text = texts(&["나는 포도를 좋아해"]);
    let once = subject.embedder.embed(EmbedAs::Passage, &text).await.unwrap();
    let again = subject.embedder.embed(EmbedAs::Passage, &text).await.unwrap();
    assert!(cosine(&once[0], &again[0]) > 0.9999);
}

async fn nothing_in_nothing_out(subject: &Subject) {
    assert!(subject.embedder.embed(EmbedAs::Query, &[]).await.unwrap().is_empty());
}

async fn near_texts_are_nearer_than_others(subject: &Subject) {
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
            .embed(EmbedAs::Passage, &texts(&[fact, near, far]))
            .await
            .unwrap();
        let (near, far) = (cosine(&vectors[0], &vectors[1]), cosine(&vectors[0], &vectors[2]));
        assert!(near > far, "{fact}: {near} and {far}");
    }
}

async fn any_text_can_be_embedded(subject: &Subject) {
    let long = "긴 이야기 ".repeat(400);
    let odd = texts(&[" ", "?!", "🙂", "\u{0}", &long]);
    let vectors = subject.embedder.embed(EmbedAs::Passage, &odd).await.unwrap();
    assert!(vectors.iter().flatten().all(|x| x.is_finite()));
}

#[tokio::test]
async fn a_query_is_told_from_a_passage_as_configured() {
    let server = mock_llm::start(MockOptions::default()).unwrap();
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
            embedder.embed(kind, &texts(&["x"])).await.unwrap();
            let sent = server.requests("embedding").pop().unwrap();
            assert_eq!((&sent["input"], &sent["input_type"]), (&input, &field));
        }
    }
}

#[tokio::test]
async fn each_fault_is_told_apart() {
    type Check = fn(&LlmError) -> bool;
    let cases: [(&str, Check); 7] = [
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
    let server = mock_llm::start(MockOptions::default()).unwrap();
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
            .control(&json!({"faults": [format!("embedding={fault}")]}))
            .unwrap();
        let error = embedder.embed(EmbedAs::Query, &texts(&["x"])).await.unwrap_err();
        assert!(is_expected(&error), "{fault}: {error:?}");
    }
}

#[tokio::test]
async fn a_vector_of_another_length_is_broken() {
    let server = mock_llm::start(MockOptions::default()).unwrap();
    let embedder = connect(options(&server)).await.unwrap();
    assert_eq!(embedder.info().dimensions, 384);
    server.control(&json!({"dimensions": 256})).unwrap();
    let error = embedder.embed(EmbedAs::Query, &texts(&["x"])).await.unwrap_err();
    assert!(matches!(error, LlmError::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn one_whose_length_is_told_is_not_asked() {
    let server = mock_llm::start(MockOptions::default()).unwrap();
    let told = |dimensions| OpenAiEmbedderOptions {
        dimensions,
        ..options(&server)
    };
    let [right, wrong] = [connect(told(384)).await.unwrap(), connect(told(385)).await.unwrap()];
    assert_eq!(server.calls("embedding"), 0);
    assert_eq!((right.info().dimensions, wrong.info().dimensions), (384, 385));
    let vectors = right.embed(EmbedAs::Query, &texts(&["x"])).await.unwrap();
    assert_eq!(vectors[0].len(), 384);
    let error = wrong.embed(EmbedAs::Query, &texts(&["x"])).await.unwrap_err();
    assert!(matches!(error, LlmError::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn one_that_is_away_for_a_while_is_waited_for() {
    let server = mock_llm::start(MockOptions::default()).unwrap();
    for fault in ["500", "429"] {
        server
            .control(&json!({"faults": [format!("embedding={fault}")]}))
            .unwrap();
        let before = server.calls("embedding");
        let patient = OpenAiEmbedderOptions {
            patience: Duration::from_mins(2),
            ..options(&server)
        };
        let connecting = tokio::spawn(connect(patient));
        crate::support::eventually("it to be asked twice", || async {
            (server.calls("embedding") >= before + 2).then_some(())
        })
        .await;
        assert!(!connecting.is_finished(), "{fault}");
        server.control(&json!({"faults": []})).unwrap();
        let embedder = connecting.await.unwrap().unwrap();
        assert_eq!(embedder.info().dimensions, 384, "{fault}");
    }
}

/// Answers every request with this status, and counts them.
fn refusing(status: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            counted.fetch_add(1, SeqCst);
            // The request is small, and comes in one piece.
            let _ = client.read(&mut [0; 4_096]);
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = client.write_all(answer.as_bytes());
        }
    });
    (url, asked)
}

#[tokio::test]
async fn one_that_refuses_for_good_is_asked_once() {
    let server = mock_llm::start(MockOptions::default()).unwrap();
    for status in ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found"] {
        let (base_url, asked) = refusing(status);
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
async fn an_embedder_needs_an_endpoint_that_answers_and_a_calibration() {
    let server = mock_llm::start(MockOptions::default()).unwrap();
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

/// `COLLOQUY_TEST_EMBEDDER_URL` (ending in `/v1`), `…_MODEL`, and `…_INPUT_TYPE=field` where wanted.
#[tokio::test]
#[ignore = "needs a real embedding server in COLLOQUY_TEST_EMBEDDER_URL"]
async fn a_real_server_keeps_the_contract_and_separates_meanings() {
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
    let report = colloquy::calibrate::measure(&embedder).await.unwrap();
    println!("{report}");
    let subject = Subject {
        embedder: Box::new(embedder),
        _server: None,
    };
    gives_one_unit_vector_per_text_in_order(&subject).await;
    the_same_text_has_the_same_vector(&subject).await;
    nothing_in_nothing_out(&subject).await;
    near_texts_are_nearer_than_others(&subject).await;
    any_text_can_be_embedded(&subject).await;
}
