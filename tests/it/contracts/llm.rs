//! The contract of the language-model port, and how the OpenAI adapter handles a misbehaving endpoint.
#![allow(clippy::unwrap_used)]

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use colloquy::{
    adapters::{
        openai::{Endpoint, HttpClient, OpenAiLlm, OpenAiLlmOptions},
        scripted::ScriptedLlm,
    },
    dialogue::models::parse_json_answer,
    memory::turn::{Intent, Usage},
    mock_llm::{self, MockHandle, MockOptions},
    ports::llm::{ChatMessage, ChatRole, Chunk, JsonSchema, Llm, LlmError, LlmRequest, Task},
};
use futures_util::{StreamExt, stream::BoxStream};
use serde_json::{Value, json};

/// A model under test, with the resources that must outlive the test.
struct LlmSubject {
    llm: Arc<dyn Llm>,
    _server: Option<MockHandle>,
}

/// Generates the suite for the listed adapters, one line per adapter.
macro_rules! adapters {
    ($($name:ident: $subject:expr;)+) => {$(
        mod $name {
            use super::*;
            adapters!(@cases $subject, [
                llm_answers_every_task,
                whole_and_streamed_answers_are_equal,
                stream_ends_with_its_usage,
                dropped_call_does_not_affect_others,
                calls_run_concurrently,
            ]);
        }
    )+};
    (@cases $subject:expr, [$($case:ident,)+]) => {$(
        #[tokio::test]
        async fn $case() {
            super::$case(&$subject).await;
        }
    )+};
}

adapters! {
    openai: openai();
    scripted: scripted();
}

fn scripted() -> LlmSubject {
    LlmSubject {
        llm: Arc::new(ScriptedLlm::new()),
        _server: None,
    }
}

fn openai() -> LlmSubject {
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    LlmSubject {
        llm: Arc::new(client(&server)),
        _server: Some(server),
    }
}

fn options(server: &MockHandle) -> OpenAiLlmOptions {
    let endpoint = Endpoint {
        base_url: server.base_url(),
        api_key: Some("sk-test".into()),
    };
    OpenAiLlmOptions::new(endpoint, "mock")
}

fn client(server: &MockHandle) -> OpenAiLlm {
    OpenAiLlm::new(&HttpClient::new().unwrap(), options(server)).unwrap()
}

/// Returns a prompt for `task`, in the template wording that adapters may rely on.
fn request(task: Task) -> LlmRequest {
    let turn = "<npc_name>Mira</npc_name>\n<player_line>\nI like grapes.\n</player_line>\n\
                <npc_reply>\nSo do I.\n</npc_reply>";
    let prompt = match task {
        Task::Reply => "<player_line>\nHello, Mira!\n</player_line>".to_owned(),
        Task::Intent => format!("Sort the player's last line: chat, memory, scenario, world or overheard.\n{turn}"),
        Task::Extraction => format!("Answer with JSON only:\n{{\"facts\": []}}\n{turn}"),
        Task::Judge => "Answer with JSON only: {\"verdicts\": [{\"pair\": 1, \"verdict\": \"same\"}]}\n\n\
                        1. <older>The player likes apples.</older> <newer>The player likes grapes.</newer>"
            .to_owned(),
        Task::Summary => "<npc_name>Mira</npc_name>\n<turn number=\"1\">\n<player>Hello.</player>\n\
                          <npc>Well met.</npc>\n</turn>\nAnswer with JSON only: {\"summary\": \"…\", \"importance\": 5}"
            .to_owned(),
        Task::Curation => "Answer with JSON only: {}".to_owned(),
    };
    LlmRequest {
        task,
        model: None,
        messages: vec![
            ChatMessage::new(ChatRole::System, "You are Mira, a character in Vale."),
            ChatMessage::new(ChatRole::User, prompt),
        ],
        max_output_tokens: 200,
        temperature: 0.0,
        json_schema: None,
        client: None,
        timeout: Duration::from_secs(5),
    }
}

/// Returns the text of a stream up to its end or error, and the result at the end.
async fn drain_stream(
    mut stream: BoxStream<'static, Result<Chunk, LlmError>>,
) -> (String, Result<Option<Usage>, LlmError>) {
    let mut text = String::new();
    let mut usage = None;
    while let Some(chunk) = stream.next().await {
        assert!(usage.is_none(), "something followed the usage");
        match chunk {
            Ok(Chunk::Text(piece)) => text.push_str(&piece),
            Ok(Chunk::AtCap | Chunk::ToolCalls(_)) => {}
            Ok(Chunk::Usage(reported)) => usage = Some(reported),
            Err(error) => return (text, Err(error)),
        }
    }
    (text, Ok(usage))
}

async fn llm_answers_every_task(subject: &LlmSubject) {
    assert!(!subject.llm.model().is_empty());
    for task in Task::ALL {
        let answer = subject.llm.complete_chat(&request(task)).await.unwrap();
        assert!(!answer.text.trim().is_empty(), "{}", task.as_str());
        assert!(!answer.model.is_empty());
        match task {
            Task::Reply => {}
            Task::Intent => assert!(Intent::find_in(&answer.text).is_some(), "{}", answer.text),
            Task::Extraction | Task::Judge | Task::Summary | Task::Curation => {
                let json = parse_json_answer::<Value>(&answer.text).unwrap();
                let key = match task {
                    Task::Extraction => "facts",
                    Task::Judge => "verdicts",
                    Task::Summary => "summary",
                    _ => continue,
                };
                assert!(json.get(key).is_some(), "{}: {json}", task.as_str());
            }
        }
    }
}

async fn whole_and_streamed_answers_are_equal(subject: &LlmSubject) {
    let request = request(Task::Reply);
    let whole = subject.llm.complete_chat(&request).await.unwrap().text;
    let (streamed, end) = drain_stream(subject.llm.stream_chat(&request).await.unwrap()).await;
    assert!(end.is_ok());
    assert_eq!(whole, streamed);
}

async fn stream_ends_with_its_usage(subject: &LlmSubject) {
    let (text, end) = drain_stream(subject.llm.stream_chat(&request(Task::Reply)).await.unwrap()).await;
    assert!(!text.is_empty());
    let usage = end.unwrap().expect("a usage");
    assert!(usage.prompt_tokens > 0 && usage.completion_tokens > 0, "{usage:?}");
    assert!(usage.cached_tokens <= usage.prompt_tokens);
}

async fn dropped_call_does_not_affect_others(subject: &LlmSubject) {
    let request = request(Task::Reply);
    for _ in 0..8 {
        drop(subject.llm.complete_chat(&request));
        let mut stream = subject.llm.stream_chat(&request).await.unwrap();
        assert!(stream.next().await.is_some());
        drop(stream);
    }
    assert!(subject.llm.complete_chat(&request).await.is_ok());
}

async fn calls_run_concurrently(subject: &LlmSubject) {
    let calls = Task::ALL.map(|task| {
        let llm = subject.llm.clone();
        async move { llm.complete_chat(&request(task)).await }
    });
    for answer in futures_util::future::join_all(calls).await {
        assert!(answer.is_ok());
    }
}

// The following tests check how the OpenAI adapter handles an endpoint's faults.

fn faulty_client(fault: &str) -> (MockHandle, OpenAiLlm) {
    let server = mock_llm::start_on_thread(MockOptions {
        faults: vec![fault.parse().unwrap()],
        retry_after_ms: 1_500,
        ..MockOptions::default()
    })
    .unwrap();
    let llm = client(&server);
    (server, llm)
}

fn short_timeout_request(task: Task) -> LlmRequest {
    LlmRequest {
        timeout: Duration::from_millis(300),
        ..request(task)
    }
}

/// Returns the errors of a complete answer and of a stream, and the streamed text before the error.
async fn both_failures(llm: &OpenAiLlm, request: &LlmRequest) -> (LlmError, LlmError, String) {
    let whole = llm.complete_chat(request).await.unwrap_err();
    let (text, streamed) = match llm.stream_chat(request).await {
        Ok(stream) => {
            let (text, end) = drain_stream(stream).await;
            (text, end.unwrap_err())
        }
        Err(error) => (String::new(), error),
    };
    (whole, streamed, text)
}

#[tokio::test]
async fn endpoint_faults_have_distinct_errors() {
    type LlmCheck = fn(&LlmError) -> bool;
    let cases: [(&str, LlmCheck); 6] = [
        (
            "500",
            |error| matches!(error, LlmError::Unavailable(text) if text.contains("500") && !text.contains("as it was told")),
        ),
        (
            "refuse",
            |error| matches!(error, LlmError::Refused(text) if text.contains("400") && !text.contains("as it was told")),
        ),
        (
            "429",
            |error| matches!(error, LlmError::RateLimited { retry_after: Some(wait) } if *wait == Duration::from_millis(1_500)),
        ),
        ("broken-stream", |error| matches!(error, LlmError::Broken(_))),
        ("no-end-mark", |error| matches!(error, LlmError::Broken(_))),
        ("invalid-body", |error| matches!(error, LlmError::Broken(_))),
    ];
    for (fault, is_expected) in cases {
        let (server, llm) = faulty_client(fault);
        let (whole, streamed, _) = both_failures(&llm, &request(Task::Reply)).await;
        assert!(is_expected(&whole), "{fault}: {whole:?}");
        assert!(is_expected(&streamed), "{fault}, streamed: {streamed:?}");
        assert_eq!(server.calls_of("reply"), 2, "{fault}: one attempt per call");
    }
}

#[tokio::test]
async fn endpoint_that_is_late_or_silent_times_out() {
    for fault in ["slow", "hang", "stall"] {
        let (_server, llm) = faulty_client(fault);
        let (whole, streamed, text) = both_failures(&llm, &short_timeout_request(Task::Reply)).await;
        assert!(matches!(whole, LlmError::Timeout), "{fault}: {whole:?}");
        assert!(matches!(streamed, LlmError::Timeout), "{fault}, streamed: {streamed:?}");
        assert_eq!(text.is_empty(), fault != "stall", "a stall comes in the middle");
    }
}

#[tokio::test]
async fn missing_endpoint_is_unavailable() {
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let llm = client(&server);
    server.stop();
    let (whole, streamed, _) = both_failures(&llm, &request(Task::Reply)).await;
    assert!(matches!(whole, LlmError::Unavailable(_)), "{whole:?}");
    assert!(matches!(streamed, LlmError::Unavailable(_)), "{streamed:?}");
    assert!(
        !whole.to_string().contains("127.0.0.1"),
        "an error names no address: {whole}"
    );
}

#[tokio::test]
async fn non_json_answer_is_left_to_the_caller() {
    let (_server, llm) = faulty_client("extraction=invalid-json");
    let answer = llm.complete_chat(&request(Task::Extraction)).await.unwrap();
    assert!(parse_json_answer::<Value>(&answer.text).is_err());
}

#[tokio::test]
async fn slow_but_steady_stream_outlives_its_timeout() {
    let server = mock_llm::start_on_thread(MockOptions {
        tokens_per_s: 20,
        deltas: 10,
        ..MockOptions::default()
    })
    .unwrap();
    let llm = client(&server);
    let started = tokio::time::Instant::now();
    let (text, end) = drain_stream(llm.stream_chat(&short_timeout_request(Task::Reply)).await.unwrap()).await;
    assert!(end.is_ok() && text.split_whitespace().count() == 10, "{text}: {end:?}");
    assert!(
        started.elapsed() > Duration::from_millis(150),
        "the timeout is for each chunk"
    );
}

#[tokio::test]
async fn dropped_call_closes_its_connection() {
    let server = mock_llm::start_on_thread(MockOptions {
        tokens_per_s: 50,
        deltas: 10_000,
        ..MockOptions::default()
    })
    .unwrap();
    let llm = client(&server);
    let mut stream = llm.stream_chat(&request(Task::Reply)).await.unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    drop(stream);
    let seen = Duration::from_secs(5);
    tokio::time::timeout(seen, server.wait_for_aborted(1))
        .await
        .expect("the stream goes on");

    server
        .apply_settings(&json!({"tokens_per_s": 0, "faults": ["hang"]}))
        .unwrap();
    assert!(llm.complete_chat(&short_timeout_request(Task::Reply)).await.is_err());
    tokio::time::timeout(seen, server.wait_for_aborted(2))
        .await
        .expect("the call goes on");

    server.apply_settings(&json!({"faults": ["stall"]})).unwrap();
    let mut stream = llm.stream_chat(&request(Task::Reply)).await.unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    drop(stream);
    tokio::time::timeout(seen, server.wait_for_aborted(3))
        .await
        .expect("the silent stream goes on");
}

#[tokio::test]
async fn request_contains_what_its_options_allow() {
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let http = HttpClient::new().unwrap();
    let mut asked = request(Task::Judge);
    asked.model = Some("npc-model".into());
    asked.messages[0].cache_breakpoint = true;
    asked.temperature = 0.7;
    asked.json_schema = Some(JsonSchema {
        name: "verdict",
        schema: json!({"type": "object"}).into(),
    });
    OpenAiLlm::new(&http, options(&server))
        .unwrap()
        .complete_chat(&asked)
        .await
        .unwrap();
    let extra = json!({"top_k": 40, "options": {"num_ctx": 8192}});
    let other = OpenAiLlmOptions {
        supports_json_schema: false,
        supports_json_object: true,
        explicit_cache_marks: true,
        max_completion_tokens: true,
        stream_usage: false,
        send_temperature: false,
        stop: vec!["\nPlayer:".into()],
        extra_body: extra.as_object().unwrap().clone(),
        ..options(&server)
    };
    let other = OpenAiLlm::new(&http, other).unwrap();
    other.complete_chat(&asked).await.unwrap();
    let sent = server.requests_of("judge");
    assert_eq!(sent[0]["model"], "npc-model");
    assert_eq!(sent[0]["max_tokens"], 200);
    assert_eq!(sent[0]["temperature"], 0.7);
    assert_eq!(sent[0]["stream"], false);
    assert_eq!(sent[0]["response_format"]["json_schema"]["name"], "verdict");
    assert_eq!(sent[0]["messages"][0]["content"], "You are Mira, a character in Vale.");
    assert_eq!(sent[1]["max_completion_tokens"], 200);
    assert_eq!(sent[1].get("max_tokens"), None);
    assert_eq!(sent[1]["response_format"], json!({"type": "json_object"}));
    assert_eq!(sent[1].get("temperature"), None);
    assert_eq!(
        (&sent[1]["top_k"], &sent[1]["options"]),
        (&json!(40), &extra["options"])
    );
    assert_eq!(sent[0].get("stop"), None);
    assert_eq!(sent[1].get("stop"), None, "only replies end at a text");
    assert_eq!(
        sent[1]["messages"][0]["content"][0]["cache_control"],
        json!({"type": "ephemeral"})
    );
    let mut streamed = request(Task::Reply);
    streamed.json_schema = None;
    let (_, end) = drain_stream(client(&server).stream_chat(&streamed).await.unwrap()).await;
    assert!(end.is_ok());
    let (_, end) = drain_stream(other.stream_chat(&streamed).await.unwrap()).await;
    assert!(end.is_ok());
    let sent = server.requests_of("reply");
    assert_eq!(
        (&sent[0]["stream"], &sent[0]["stream_options"]["include_usage"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(sent[1].get("stream_options"), None);
    assert_eq!(sent[1]["stop"], json!(["\nPlayer:"]));
}

#[tokio::test]
async fn thoughts_are_neither_streamed_nor_part_of_an_answer() {
    for fault in ["think", "reasoning"] {
        let (_server, llm) = faulty_client(fault);
        let (text, end) = drain_stream(llm.stream_chat(&request(Task::Reply)).await.unwrap()).await;
        assert!(end.is_ok() && text.starts_with("The road"), "{fault}: {text}");
        assert!(!text.contains("ponder") && !text.contains("think"), "{fault}: {text}");
        for task in [Task::Reply, Task::Extraction, Task::Intent] {
            let answer = llm.complete_chat(&request(task)).await.unwrap().text;
            assert!(
                !answer.contains("ponder") && !answer.contains("think"),
                "{fault}: {answer}"
            );
        }
        let observed = llm.observed_thoughts();
        assert!(observed.any && !observed.prefilled, "{fault}: {observed:?}");
    }
    let (_server, llm) = faulty_client("think-unclosed");
    let (whole, streamed, text) = both_failures(&llm, &request(Task::Reply)).await;
    assert_eq!(text, "");
    for error in [whole, streamed] {
        assert!(
            matches!(&error, LlmError::Broken(what) if what.contains("llm.reasoning")),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn closing_tag_alone_ends_the_first_stream_and_withholds_the_thought_of_the_next() {
    let (server, llm) = faulty_client("think-closing");
    let (_, end) = drain_stream(llm.stream_chat(&request(Task::Reply)).await.unwrap()).await;
    assert!(matches!(end, Err(LlmError::Broken(_))), "{end:?}");
    assert!(llm.observed_thoughts().prefilled);
    let (text, end) = drain_stream(llm.stream_chat(&request(Task::Reply)).await.unwrap()).await;
    assert!(end.is_ok() && text.starts_with("The road"), "{text}");
    // A whole answer teaches it before any stream.
    let other = client(&server);
    let answer = other.complete_chat(&request(Task::Intent)).await.unwrap().text;
    assert_eq!(answer, "chat");
    let (text, end) = drain_stream(other.stream_chat(&request(Task::Reply)).await.unwrap()).await;
    assert!(end.is_ok() && text.starts_with("The road"), "{text}");
    // So does the setting. An answer without a tag is spoken at its end.
    let set = OpenAiLlmOptions {
        reasoning_prefilled: true,
        ..options(&server)
    };
    let set = OpenAiLlm::new(&HttpClient::new().unwrap(), set).unwrap();
    let (text, end) = drain_stream(set.stream_chat(&request(Task::Reply)).await.unwrap()).await;
    assert!(end.is_ok() && text.starts_with("The road"), "{text}");
    server.apply_settings(&json!({"faults": []})).unwrap();
    let (text, end) = drain_stream(set.stream_chat(&request(Task::Reply)).await.unwrap()).await;
    assert!(end.is_ok() && text.starts_with("The road"), "{text}");
}

/// Reads `COLLOQUY_TEST_LLM_URL` (ending in `/v1`) and `COLLOQUY_TEST_LLM_MODEL`. Checks only the protocol, because a
/// small model writes no dependable JSON.
#[tokio::test]
#[ignore = "needs a real model server in COLLOQUY_TEST_LLM_URL"]
async fn real_llm_streams_and_stops() {
    let endpoint = Endpoint {
        base_url: std::env::var("COLLOQUY_TEST_LLM_URL").expect("COLLOQUY_TEST_LLM_URL is set"),
        api_key: None,
    };
    let model = std::env::var("COLLOQUY_TEST_LLM_MODEL").unwrap_or_else(|_| "default".into());
    let llm = OpenAiLlm::new(&HttpClient::new().unwrap(), OpenAiLlmOptions::new(endpoint, model)).unwrap();
    let mut asked = request(Task::Reply);
    asked.timeout = Duration::from_mins(1);
    asked.max_output_tokens = 60;

    let started = tokio::time::Instant::now();
    let mut stream = llm.stream_chat(&asked).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    let first_after = started.elapsed();
    let (rest, end) = drain_stream(stream).await;
    println!(
        "first piece {first:?} after {first_after:?}, all after {:?}: {rest:?}, {end:?}",
        started.elapsed()
    );
    let usage = end.unwrap().expect("a usage");
    assert!(usage.prompt_tokens > 0 && (1..=60).contains(&usage.completion_tokens));

    let whole = llm.complete_chat(&asked).await.unwrap();
    println!("whole: {whole:?}");
    assert!(!whole.text.is_empty() && whole.usage.completion_tokens > 0);

    // The stream is dropped in the middle. A server with one slot then serves the next call at once.
    asked.max_output_tokens = 2_000;
    let mut cut = llm.stream_chat(&asked).await.unwrap();
    assert!(cut.next().await.unwrap().is_ok());
    drop(cut);
    asked.max_output_tokens = 5;
    let started = tokio::time::Instant::now();
    llm.complete_chat(&asked).await.unwrap();
    println!("the call after a cut took {:?}", started.elapsed());

    asked.json_schema = Some(JsonSchema {
        name: "verdict",
        schema: json!({
            "type": "object",
            "properties": {"verdict": {"type": "string", "enum": ["same", "independent"]}},
            "required": ["verdict"],
            "additionalProperties": false,
        })
        .into(),
    });
    asked.max_output_tokens = 60;
    let judged = llm.complete_chat(&asked).await.unwrap();
    println!("with a schema: {}", judged.text);
    assert!(
        parse_json_answer::<Value>(&judged.text)
            .unwrap()
            .get("verdict")
            .is_some()
    );

    asked.json_schema = None;
    asked.max_output_tokens = 2_000;
    asked.timeout = Duration::from_millis(50);
    assert!(matches!(llm.complete_chat(&asked).await, Err(LlmError::Timeout)));
}

/// Prints the cost of a call. The figures are meaningful only in an optimised build.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "a measurement, not a check"]
async fn llm_calls_per_second_are_measured() {
    const CALLS: u32 = 4_000;
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let llm: Arc<dyn Llm> = Arc::new(client(&server));
    for (name, streamed) in [("whole", false), ("streamed", true)] {
        let started = tokio::time::Instant::now();
        futures_util::stream::iter(0..CALLS)
            .for_each_concurrent(16, |_| {
                let llm = llm.clone();
                async move {
                    let request = request(Task::Reply);
                    if streamed {
                        let (_, end) = drain_stream(llm.stream_chat(&request).await.unwrap()).await;
                        end.unwrap();
                    } else {
                        llm.complete_chat(&request).await.unwrap();
                    }
                }
            })
            .await;
        let took = started.elapsed();
        println!("{name}: {:.0} calls/s", f64::from(CALLS) / took.as_secs_f64());
    }
}

/// An endpoint whose JSON never ends. Returns its address, and the number of bytes that it has sent.
fn endless_endpoint() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 16_384];
            let _ = stream.read(&mut head);
            let begin =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"choices\": \"";
            let _ = stream.write_all(begin.as_bytes());
            let part = vec![b'x'; 65_536];
            while stream.write_all(&part).is_ok() && counted.load(Ordering::Relaxed) < 1 << 29 {
                counted.fetch_add(part.len(), Ordering::Relaxed);
            }
        }
    });
    (url, sent)
}

#[tokio::test]
async fn answer_without_end_is_given_up() {
    let (url, sent) = endless_endpoint();
    let endpoint = Endpoint {
        base_url: url,
        api_key: None,
    };
    let llm = OpenAiLlm::new(&HttpClient::new().unwrap(), OpenAiLlmOptions::new(endpoint, "m")).unwrap();
    let error = llm.complete_chat(&request(Task::Extraction)).await.unwrap_err();
    assert!(!matches!(error, LlmError::Timeout), "{error}");
    assert!(sent.load(Ordering::Relaxed) < 64 << 20, "{sent:?}");
}
