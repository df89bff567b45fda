//! Fields of a client in requests to an endpoint, and calls of its tools in the answers, as the OpenAI adapter hands them
//! on.
#![allow(clippy::unwrap_used)]

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
    time::Duration,
};

use colloquy::{
    adapters::openai::{Endpoint, HttpClient, OpenAiLlm, OpenAiLlmOptions},
    mock_llm::{self, MockOptions},
    ports::llm::{ChatMessage, ChatRole, Chunk, ClientFields, Llm, LlmError, LlmRequest, Task},
};
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};

fn options(base_url: String) -> OpenAiLlmOptions {
    let endpoint = Endpoint {
        base_url,
        api_key: None,
    };
    OpenAiLlmOptions::new(endpoint, "m")
}

fn client(base_url: String) -> OpenAiLlm {
    OpenAiLlm::new(&HttpClient::new().unwrap(), options(base_url)).unwrap()
}

/// An endpoint that answers each request with the same body.
fn endpoint(content_type: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 16_384];
            let _ = stream.read(&mut head);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

fn streaming(deltas: &[Value], finish_reason: &str) -> String {
    let mut events: Vec<Value> = deltas
        .iter()
        .map(|delta| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
        .collect();
    events.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}));
    let frames = events.iter().map(|event| format!("data: {event}\n\n"));
    let frames: Vec<String> = frames.chain(["data: [DONE]\n\n".to_owned()]).collect();
    endpoint("text/event-stream", frames.concat())
}

fn request(fields: &Value) -> LlmRequest {
    let client = ClientFields {
        fields: fields.as_object().unwrap().clone(),
        ..ClientFields::default()
    };
    LlmRequest {
        task: Task::Reply,
        model: None,
        messages: vec![ChatMessage::new(ChatRole::User, "Is it raining?")],
        max_output_tokens: 100,
        temperature: 0.0,
        json_schema: None,
        client: Some(client.into()),
        timeout: Duration::from_secs(5),
    }
}

fn with_tools() -> LlmRequest {
    let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]});
    request(&json!({"tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}]}))
}

async fn chunks(llm: &OpenAiLlm, request: &LlmRequest) -> Result<Vec<Chunk>, LlmError> {
    llm.stream_chat(request).await?.try_collect().await
}

/// The text and the pieces of calls.
fn parts(chunks: &[Chunk]) -> (String, Vec<Value>) {
    let mut text = String::new();
    let mut pieces = Vec::new();
    for chunk in chunks {
        match chunk {
            Chunk::Text(piece) => text.push_str(piece),
            Chunk::ToolCalls(calls) => pieces.extend(calls.clone()),
            Chunk::AtCap | Chunk::Usage(_) => {}
        }
    }
    (text, pieces)
}

#[tokio::test]
async fn reasoning_of_a_client_replaces_that_of_the_endpoint_and_not_that_of_the_operator() {
    let effort = |effort: &str| json!({ "reasoning_effort": effort });
    let thinks = |thinks: bool| json!({"chat_template_kwargs": {"enable_thinking": thinks}});
    let nothing = || json!({});
    let both = |one: &Value, other: &Value| {
        let mut fields = one.clone();
        fields
            .as_object_mut()
            .unwrap()
            .extend(other.as_object().unwrap().clone());
        fields
    };
    let server = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    // The endpoint's own fields, those of the client, those of the operator, and what is sent.
    let cases = [
        (effort("none"), nothing(), nothing(), effort("none")),
        (
            effort("none"),
            json!({"min_p": 0.1}),
            nothing(),
            both(&effort("none"), &json!({"min_p": 0.1})),
        ),
        (effort("none"), effort("high"), nothing(), effort("high")),
        (
            effort("none"),
            json!({"reasoning_effort": null}),
            nothing(),
            effort("none"),
        ),
        (effort("none"), effort("high"), effort("low"), effort("low")),
        (effort("none"), nothing(), effort("low"), effort("low")),
        (thinks(false), effort("high"), nothing(), effort("high")),
        (
            thinks(false),
            effort("none"),
            nothing(),
            both(&thinks(false), &effort("none")),
        ),
        (thinks(false), thinks(true), nothing(), thinks(true)),
        (
            thinks(false),
            effort("high"),
            thinks(false),
            both(&thinks(false), &effort("high")),
        ),
    ];
    for (of_endpoint, of_client, of_operator, expected) in cases {
        let options = OpenAiLlmOptions {
            reasoning_fields: of_endpoint.as_object().unwrap().clone(),
            extra_body: of_operator.as_object().unwrap().clone(),
            ..options(server.base_url())
        };
        let llm = OpenAiLlm::new(&HttpClient::new().unwrap(), options).unwrap();
        llm.complete_chat(&request(&of_client)).await.unwrap();
        let mut sent = server.requests_of("reply").pop().unwrap();
        let own = ["model", "messages", "max_tokens", "temperature", "stream"];
        sent.as_object_mut()
            .unwrap()
            .retain(|name, _| !own.contains(&name.as_str()));
        assert_eq!(sent, expected, "{of_client}");
    }
}

#[tokio::test]
async fn calls_are_read_if_the_client_has_tools() {
    let options = MockOptions {
        tool_calls: 2,
        tool_words: "Let me look.".into(),
        ..MockOptions::default()
    };
    let server = mock_llm::start_on_thread(options).unwrap();
    let llm = client(server.base_url());
    let whole = llm.complete_chat(&with_tools()).await.unwrap();
    assert_eq!(whole.text, "Let me look.");
    let names: Vec<_> = whole.tool_calls.iter().map(|call| &call["function"]["name"]).collect();
    assert_eq!(names, ["look", "look"]);
    assert_eq!(whole.tool_calls[0]["function"]["arguments"], r#"{"at":"text"}"#);
    let streamed = chunks(&llm, &with_tools()).await.unwrap();
    assert!(matches!(streamed.last(), Some(Chunk::Usage(usage)) if usage.completion_tokens > 0));
    let (text, pieces) = parts(&streamed);
    let places: Vec<_> = pieces.iter().map(|piece| piece["index"].as_u64().unwrap()).collect();
    assert_eq!((text.as_str(), places), ("Let me look.", vec![0, 0, 1, 1]));

    let off = json!({"tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": "none"});
    for without in [json!({}), json!({"tools": []}), off] {
        let answer = llm.complete_chat(&request(&without)).await.unwrap();
        assert!(answer.tool_calls.is_empty() && answer.text.len() > 20, "{answer:?}");
    }
}

#[tokio::test]
async fn calls_that_nobody_asked_for_are_left_out() {
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let with_text = [json!({"content": "Hm."}), json!({ "tool_calls": [call] })];
    let llm = client(streaming(&with_text, "tool_calls"));
    let read = chunks(&llm, &request(&json!({}))).await.unwrap();
    assert_eq!(parts(&read), ("Hm.".to_owned(), Vec::new()));
    let llm = client(streaming(&with_text[1..], "tool_calls"));
    assert!(chunks(&llm, &request(&json!({}))).await.unwrap().is_empty());

    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let body = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).to_string();
    let llm = client(endpoint("application/json", body));
    assert_eq!(llm.complete_chat(&with_tools()).await.unwrap().tool_calls, [call]);
    let error = llm.complete_chat(&request(&json!({}))).await.unwrap_err();
    assert!(matches!(error, LlmError::Broken(_)), "{error}");
}

#[tokio::test]
async fn malformed_pieces_come_as_they_are() {
    let odd = [
        json!({"id": "c1", "function": {"name": "look", "arguments": "{oops"}}),
        json!({"index": "first", "function": {"arguments": 7}, "extra": {"signature": "x"}}),
        json!("no call"),
    ];
    let deltas = [
        json!({"reasoning_content": "Hm."}),
        json!({"content": null, "tool_calls": odd[..1]}),
        json!({"content": "", "tool_calls": odd[1..]}),
        json!({"tool_calls": null}),
        json!({"tool_calls": {"not": "a list"}}),
    ];
    let llm = client(streaming(&deltas, "stop"));
    let read = chunks(&llm, &with_tools()).await.unwrap();
    assert_eq!(parts(&read), (String::new(), odd.to_vec()));
}

#[tokio::test]
async fn call_that_ends_at_the_cap_says_so() {
    let piece = json!({"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{\"at"}});
    let llm = client(streaming(&[json!({ "tool_calls": [piece] })], "length"));
    let read = chunks(&llm, &with_tools()).await.unwrap();
    assert_eq!(read, [Chunk::ToolCalls(vec![piece]), Chunk::AtCap]);
}
