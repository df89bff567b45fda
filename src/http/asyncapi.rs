//! The AsyncAPI 3.0 document of the socket, built from the schemas of its messages.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{
    errors::Code,
    socket::{
        events::{self},
        message_schema::MessageSchema,
        messages,
    },
};

static DOCUMENT: LazyLock<Value> = LazyLock::new(build_document);

/// The document as served.
pub fn document() -> &'static Value {
    &DOCUMENT
}

fn build_document() -> Value {
    let mut schemas = Map::new();
    let mut messages = Map::new();
    let client_messages = add_messages(messages::message_schemas(), &mut messages, &mut schemas);
    let server_messages = add_messages(events::event_schemas(), &mut messages, &mut schemas);
    let references: Map<String, Value> = messages
        .keys()
        .map(|name| (name.clone(), json!({"$ref": format!("#/components/messages/{name}")})))
        .collect();
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Colloquy socket",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Text frames, one JSON object each. A socket may carry many sessions. Durable events carry `seq`, \
                rising per dialogue; deltas carry `turn` and `offset`. `reply.done` comes once per started turn. An `error` \
                goes out before a close that it explains. Close codes: 4400 malformed, 4401 unauthenticated, 4403 forbidden, \
                4408 idle, 4409 replaced, 4413 too large, 4429 too many, 4430 slow consumer, 4500 internal, 4503 draining, or a dialogue moved to another \
                node: connect again and resume.",
            "license": {"name": "MIT OR Apache-2.0"}
        },
        "x-error-codes": codes,
        "channels": {
            "socket": {
                "address": "/v1/ws",
                "description": "Authorised by the Authorization header, by `?ticket=`, or by the subprotocols `colloquy.v1, bearer.<jwt>`.",
                "messages": references,
                "bindings": {"ws": {"method": "GET", "query": {"type": "object", "properties": {
                    "ticket": {"type": "string"},
                    "coalesce_ms": {"type": "integer", "minimum": 0, "maximum": 1000}
                }}}}
            }
        },
        "operations": {
            "receive": {"action": "receive", "channel": {"$ref": "#/channels/socket"}, "summary": "What clients send",
                "messages": client_messages},
            "send": {"action": "send", "channel": {"$ref": "#/channels/socket"}, "summary": "What the server sends",
                "messages": server_messages}
        },
        "components": {"messages": messages, "schemas": schemas}
    })
}

/// Adds messages and their schemas; returns references to the messages.
fn add_messages(
    described: Vec<MessageSchema>,
    messages: &mut Map<String, Value>,
    schemas: &mut Map<String, Value>,
) -> Vec<Value> {
    described
        .into_iter()
        .map(|message| {
            let name = message.kind.replace('.', "_");
            schemas.extend(message.components);
            messages.insert(
                name.clone(),
                json!({
                    "name": message.kind,
                    "summary": message.schema["description"],
                    "contentType": "application/json",
                    "payload": message.schema,
                }),
            );
            json!({"$ref": format!("#/channels/socket/messages/{name}")})
        })
        .collect()
}
