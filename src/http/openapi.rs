//! The OpenAPI 3.1 document, collected from the routes. Adds the common parts of every operation: security, roles in
//! words, problem responses.

mod bodies;
mod parameters;
mod patterns;
mod texts;

use std::sync::LazyLock;

use actix_web::{App, dev::ResourceDef};
use serde_json::{Map, Value, json};
use utoipa::{OpenApi, PartialSchema, ToSchema};
use utoipa_actix_web::AppExt;

use super::errors::{Code, FieldError, ProblemBody};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Colloquy",
        description = "A multi-tenant server for NPC dialogue. The socket is described in `/asyncapi.json`."
    ),
    tags(
        (name = "tenants", description = "Who shares the server; the operator's"),
        (name = "access", description = "Tokens for players, tickets for sockets"),
        (name = "worlds", description = "Games, or save universes"),
        (name = "npcs", description = "Who lives in them"),
        (name = "scenarios", description = "What NPCs remember of their own past, and how far players have come with them"),
        (name = "settings", description = "Settings of the tenant, its worlds, NPCs and sessions"),
        (name = "directives", description = "What NPCs keep to in some dialogues"),
        (name = "lore", description = "What is known of a world"),
        (name = "sessions", description = "A player's dialogues with an NPC"),
        (name = "turns", description = "Lines and replies"),
        (name = "npc-conversations", description = "NPCs who talk with each other"),
        (name = "saves", description = "Moments of a world that can be gone back to"),
        (name = "facts", description = "What NPCs know"),
        (name = "webhooks", description = "Addresses that are told of events"),
        (name = "socket", description = "The WebSocket"),
        (name = "operation", description = "Running the server")
    )
)]
struct OpenApiBase;

static DOCUMENT: LazyLock<Value> = LazyLock::new(build_document);

/// The document as served.
pub fn document() -> &'static Value {
    &DOCUMENT
}

fn build_document() -> Value {
    let (_, api) = App::new()
        .into_utoipa_app()
        .openapi(OpenApiBase::openapi())
        .configure(super::documented_routes)
        .split_for_parts();
    // The document is plain data. If the conversion ever failed, the staleness test would see an empty document.
    let mut document = serde_json::to_value(api).unwrap_or_default();
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["info"]["license"] = json!({"name": "MIT OR Apache-2.0"});
    document["x-error-codes"] = json!(Code::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>());
    let schemas = &mut document["components"]["schemas"];
    schemas[&*ProblemBody::name()] = serde_json::to_value(ProblemBody::schema()).unwrap_or_default();
    schemas[&*FieldError::name()] = serde_json::to_value(FieldError::schema()).unwrap_or_default();
    let components = schemas.clone();
    parameters::merge_flattened_schemas(&components, &mut document);
    parameters::complete_ids(&mut document["components"]["schemas"]);
    bodies::complete_bodies(&mut document);
    document["components"]["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
    });
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete_operation(path, method, operation);
        }
    }
    document
}

/// The operations whose body may be omitted: `OptionalBody` in their handlers.
const OPTIONAL_BODIES: [&str; 12] = [
    "complete_action",
    "create_save",
    "interrupt_turn",
    "refuse_action",
    "regenerate_turn",
    "restore_fact",
    "restore_save",
    "resume_conversation",
    "resume_turn",
    "retry_job",
    "step_conversation",
    "test_webhook",
];

/// Adds parts that follow from an operation's shape.
fn complete_operation(path: &str, method: &str, operation: &mut Value) {
    // Summaries are plain text; only descriptions are Markdown.
    if let Some(summary) = operation["summary"].as_str() {
        operation["summary"] = json!(summary.replace('`', ""));
    }
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        parameters::complete_parameter(path, parameter);
    }
    let mut statuses = vec![500];
    // Viewers may read all that backends may read, as in the extractor.
    if method == "get"
        && let Some(roles) = operation["x-roles"].as_array_mut()
        && let Some(position) = roles.iter().position(|role| role == "backend")
    {
        roles.insert(position + 1, json!("viewer"));
    }
    if let Some(roles) = operation["x-roles"].as_array() {
        let names: Vec<&str> = roles.iter().filter_map(Value::as_str).collect();
        let roles_text = format!("Roles: {}.", names.join(", "));
        let text = operation["description"].as_str().map(|text| format!("{text}\n\n"));
        operation["description"] = json!(text.unwrap_or_default() + &roles_text);
        operation["security"] = json!([{"token": []}]);
        statuses.extend([401, 403, 429, 503]);
    }
    if path == "/readyz" {
        statuses.push(503);
    }
    let has_parameter_in = |place: &str| {
        operation["parameters"]
            .as_array()
            .is_some_and(|parameters| parameters.iter().any(|parameter| parameter["in"] == place))
    };
    if has_parameter_in("path") {
        statuses.push(404);
    }
    if has_parameter_in("query") {
        statuses.push(422);
    }
    let has_header = |name: &str| {
        let mut parameters = operation["parameters"].as_array().into_iter().flatten();
        parameters.any(|parameter| parameter["in"] == "header" && parameter["name"] == name)
    };
    if has_header("If-Match") {
        statuses.push(400);
    }
    if has_header("Idempotency-Key") {
        statuses.push(422);
    }
    if OPTIONAL_BODIES.iter().any(|id| operation["operationId"] == *id) && operation["requestBody"].is_object() {
        operation["requestBody"]["required"] = json!(false);
    }
    if operation["requestBody"].is_object() {
        statuses.extend([400, 413, 415, 422]);
    }
    let responses = operation["responses"].as_object_mut();
    let Some(responses) = responses else { return };
    for status in statuses {
        responses.entry(status.to_string()).or_insert_with(|| json!({}));
    }
    for (status, response) in responses.iter_mut() {
        fill_description(status, response);
        if status.as_str() >= "400" {
            fill_problem(status, response);
        }
    }
    let sorted_responses: Map<String, Value> = {
        let mut entries: Vec<_> = std::mem::take(responses).into_iter().collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.into_iter().collect()
    };
    *responses = sorted_responses;
}

/// Adds a missing description: OpenAPI requires a description, and the status says enough.
fn fill_description(status: &str, response: &mut Value) {
    if response["description"].as_str().is_none_or(str::is_empty) {
        let reason = status
            .parse()
            .ok()
            .and_then(|code| actix_web::http::StatusCode::from_u16(code).ok())
            .and_then(|code| code.canonical_reason())
            .unwrap_or("Error");
        response["description"] = json!(reason);
    }
}

fn fill_problem(status: &str, response: &mut Value) {
    response["content"] = json!({
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}
    });
    if matches!(status, "429" | "503") {
        response["headers"] = json!({
            "Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer", "minimum": 1}}
        });
    }
}

static ROUTES: LazyLock<Vec<(ResourceDef, Vec<String>)>> = LazyLock::new(|| {
    document()["paths"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(path, item)| {
            let methods = item.as_object().into_iter().flatten();
            (
                ResourceDef::new(path.as_str()),
                methods.map(|(method, _)| method.to_uppercase()).collect(),
            )
        })
        .collect()
});

/// The methods of a path; `None` if no route matches. If patterns overlap (`/v1/sessions/{session}` and `…:interrupt`),
/// the more specific pattern counts.
pub fn methods_of(path: &str) -> Option<String> {
    ROUTES
        .iter()
        .filter(|(pattern, _)| pattern.is_match(path))
        .max_by_key(|(pattern, _)| pattern.pattern().map_or(0, str::len))
        .map(|(_, methods)| methods.join(", "))
}
