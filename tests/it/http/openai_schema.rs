//! OpenAI's published schema, by which the tests check every answer of the paths of the OpenAI API.
//!
//! `COLLOQUY_OPENAI_SCHEMA` names the file: OpenAPI 3.1 as JSON, or the same compressed by gzip. Without the variable,
//! no answer is checked, and the test below says so.

use std::{collections::HashMap, env, fs, io::Read as _, sync::LazyLock};

use flate2::read::GzDecoder;
use jsonschema::{Draft, Validator};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

const VARIABLE: &str = "COLLOQUY_OPENAI_SCHEMA";

static DOCUMENT: LazyLock<Option<Value>> = LazyLock::new(|| {
    let path = env::var(VARIABLE).ok()?;
    let file = fs::read(&path).unwrap_or_else(|error| panic!("{VARIABLE}: {path}: {error}"));
    let mut text = Vec::new();
    if file.starts_with(&[0x1f, 0x8b]) {
        GzDecoder::new(file.as_slice()).read_to_end(&mut text).unwrap();
    } else {
        text = file;
    }
    let mut document = serde_json::from_slice(&text).unwrap();
    allow_null_where_nullable(&mut document);
    Some(document)
});

static VALIDATORS: LazyLock<Mutex<HashMap<String, Validator>>> = LazyLock::new(Mutex::default);

/// Rewrites `nullable: true` of OpenAPI 3.0, which JSON Schema does not know.
fn allow_null_where_nullable(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(allow_null_where_nullable),
        Value::Object(fields) => {
            fields.values_mut().for_each(allow_null_where_nullable);
            if fields.get("nullable") == Some(&json!(true)) {
                fields.remove("nullable");
                let with_value: Map<String, Value> = std::mem::take(fields);
                fields.insert("anyOf".to_owned(), json!([with_value, {"type": "null"}]));
            }
        }
        _ => {}
    }
}

/// Checks a value by the schema with this name, if the document is at hand.
pub fn assert_valid(schema: &str, value: &Value) {
    let Some(document) = &*DOCUMENT else { return };
    let mut validators = VALIDATORS.lock();
    let validator = validators.entry(schema.to_owned()).or_insert_with(|| {
        assert!(
            document["components"]["schemas"][schema].is_object(),
            "the document has no schema {schema}"
        );
        let reference = format!("#/components/schemas/{schema}");
        let with_components = json!({"$ref": reference, "components": document["components"]});
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .build(&with_components)
            .unwrap()
    });
    if let Err(error) = validator.validate(value) {
        panic!("not a valid {schema}: {error} at {}\n{value:#}", error.instance_path());
    }
}

/// Checks the answer to a request by the schema of its path, if the path is one of the OpenAI API.
pub fn assert_valid_answer(path: &str, status: u16, answer: &Value) {
    let schema = match path {
        _ if !path.starts_with("/v1/chat/")
            && !path.starts_with("/v1/models")
            && !path.starts_with("/v1/responses") =>
        {
            return;
        }
        _ if status >= 400 => "ErrorResponse",
        "/v1/models" => "ListModelsResponse",
        "/v1/chat/completions" => "CreateChatCompletionResponse",
        _ if path.starts_with("/v1/models/") => "Model",
        // The document describes no answer to a deletion.
        _ if answer["deleted"] == true => return,
        _ => "Response",
    };
    assert_valid(schema, answer);
}

/// Checks an event of a stream: a chunk of a chat completion, an event of a response, or an error.
pub fn assert_valid_event(event: &Value) {
    let schema = if event["object"] == "chat.completion.chunk" {
        "CreateChatCompletionStreamResponse"
    } else if event["type"].is_string() {
        "ResponseStreamEvent"
    } else {
        "ErrorResponse"
    };
    assert_valid(schema, event);
}

/// Checks an event that the server sends on a connection of the Realtime API.
pub fn assert_valid_realtime_event(event: &Value) {
    assert_valid("RealtimeServerEvent", event);
}

#[test]
fn answers_are_checked_by_the_published_schema() {
    if DOCUMENT.is_none() {
        eprintln!("The published schema is not at hand: no answer was checked. Set {VARIABLE} to its file.");
        return;
    }
    let error = json!({"error": {"message": "no such model", "type": "invalid_request_error", "param": "model", "code": "not_found"}});
    assert_valid_answer("/v1/models/nobody", 404, &error);
    let wrong = std::panic::catch_unwind(|| assert_valid("ErrorResponse", &json!({"error": {"message": 5}})));
    assert!(wrong.is_err(), "the schema allows anything");
    let mut event = json!({"type": "conversation.item.deleted", "event_id": "event_1", "item_id": "item_1"});
    assert_valid_realtime_event(&event);
    event["item_id"] = json!(1);
    let wrong = std::panic::catch_unwind(|| assert_valid_realtime_event(&event));
    assert!(wrong.is_err(), "the schema of events allows anything");
}
