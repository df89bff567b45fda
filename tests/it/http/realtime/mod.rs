//! The Realtime API in text: sessions and responses.

mod connections;
mod items;
mod truncate;

use colloquy::tenancy::Role;
use serde_json::{Value, json};

use super::{
    fakes::REPLY,
    harness::{HttpTestClient, HttpTestServer, HttpTestSocket},
};

const ERGEN: &str = "?model=vale/ergen";

async fn connect(server: &HttpTestServer, token: &str, query: &str) -> HttpTestSocket {
    let opened = HttpTestSocket::open(server.realtime_request(token, query)).await;
    opened.expect("the socket was refused")
}

/// A connection of the player `p7` with `ergen`.
async fn player_connection(server: &HttpTestServer) -> HttpTestSocket {
    connect(server, &server.token("acme", Role::Player, Some("p7")), ERGEN).await
}

/// A connection of a backend with `ergen`, and the id of its session.
async fn backend_connection(server: &HttpTestServer) -> (HttpTestSocket, String) {
    let mut socket = connect(server, &server.token("acme", Role::Backend, None), ERGEN).await;
    let created = socket.until_event("session.created").await;
    let session = created["session"]["id"].as_str().unwrap().to_owned();
    (socket, session)
}

fn line(text: &str) -> Value {
    json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": text}]}})
}

/// Adds a line, and returns the id of its item.
async fn add_line(socket: &mut HttpTestSocket, text: &str) -> String {
    socket.send(line(text)).await;
    let added = socket.until_event("conversation.item.added").await;
    let done = socket.until_event("conversation.item.done").await;
    assert_eq!(added["item"], done["item"]);
    done["item"]["id"].as_str().unwrap().to_owned()
}

/// What was sent of a response.
struct Reply {
    /// `response.done`.
    response: Value,
    item_id: String,
    /// The deltas, joined.
    streamed: String,
}

impl Reply {
    fn status(&self) -> &str {
        self.response["status"].as_str().unwrap()
    }
    fn text(&self) -> &str {
        self.response["output"][0]["content"][0]["text"].as_str().unwrap()
    }
}

/// Reads the events of a response to its end.
async fn read_reply(socket: &mut HttpTestSocket) -> Reply {
    let added = socket.until_event("response.output_item.added").await;
    let item_id = added["item"]["id"].as_str().unwrap().to_owned();
    let mut streamed = String::new();
    loop {
        let event = socket.next().await.unwrap();
        match event["type"].as_str().unwrap() {
            "response.output_text.delta" => {
                assert_eq!(event["item_id"], item_id.as_str());
                streamed.push_str(event["delta"].as_str().unwrap());
            }
            "response.done" => {
                return Reply {
                    response: event["response"].clone(),
                    item_id,
                    streamed,
                };
            }
            "error" => panic!("{event}"),
            _ => {}
        }
    }
}

async fn respond(socket: &mut HttpTestSocket) -> Reply {
    socket.send(json!({"type": "response.create"})).await;
    read_reply(socket).await
}

async fn say(socket: &mut HttpTestSocket, text: &str) -> Reply {
    add_line(socket, text).await;
    respond(socket).await
}

/// The code and the place of the fault of the next error.
async fn next_error(socket: &mut HttpTestSocket) -> Value {
    loop {
        let event = socket.next().await.unwrap();
        if event["type"] == "error" {
            assert!(
                event["event_id"].is_string() && event["error"]["message"].is_string(),
                "{event}"
            );
            return event["error"].clone();
        }
    }
}

/// The lines and replies of the standing turns.
async fn turns(client: &HttpTestClient, session: &str) -> Vec<(String, String)> {
    let page = client.get(&format!("/v1/sessions/{session}/turns?limit=200")).await;
    let text = |turn: &Value, field: &str| turn[field].as_str().unwrap().to_owned();
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|turn| (text(turn, "player_text"), text(turn, "reply_text")))
        .collect()
}

fn said(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(line, reply): &(&str, &str)| ((*line).to_owned(), (*reply).to_owned());
    pairs.iter().map(owned).collect()
}

#[actix_web::test]
async fn response_is_a_turn_of_the_session() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let mut socket = player_connection(&server).await;
    let created = socket.next().await.unwrap();
    assert_eq!(created["type"], "session.created");
    let session = &created["session"];
    assert_eq!(
        (
            &session["type"],
            &session["object"],
            &session["model"],
            &session["output_modalities"]
        ),
        (
            &json!("realtime"),
            &json!("realtime.session"),
            &json!("vale/ergen"),
            &json!(["text"])
        )
    );
    let id = session["id"].as_str().unwrap().to_owned();

    let line_id = add_line(&mut socket, "Hello.").await;
    socket
        .send(json!({"type": "response.create", "response": {"metadata": {"n": "1"}}}))
        .await;
    let mut kinds = Vec::new();
    let mut streamed = String::new();
    let done = loop {
        let event = socket.next().await.unwrap();
        let kind = event["type"].as_str().unwrap().to_owned();
        match kind.as_str() {
            "response.output_text.delta" => {
                streamed.push_str(event["delta"].as_str().unwrap());
                if kinds.last() == Some(&kind) {
                    continue;
                }
            }
            "conversation.item.added" => assert_eq!(event["previous_item_id"], line_id.as_str()),
            "response.output_text.done" => assert_eq!(event["text"], REPLY),
            "response.done" => {
                kinds.push(kind);
                break event;
            }
            _ => {}
        }
        kinds.push(kind);
    };
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
    );
    assert_eq!(streamed, REPLY);
    let response = &done["response"];
    assert_eq!(
        (&response["status"], &response["metadata"], &response["conversation_id"]),
        (&json!("completed"), &json!({"n": "1"}), &json!(id))
    );
    // A player does not learn the size of the prompt.
    assert_eq!(
        (&response["usage"]["input_tokens"], &response["usage"]["output_tokens"]),
        (&json!(0), &json!(5))
    );
    assert_eq!(turns(&client, &id).await, said(&[("Hello.", REPLY)]));

    // The response is one of the Responses API too.
    let stored = client
        .get(&format!("/v1/responses/{}", response["id"].as_str().unwrap()))
        .await;
    assert_eq!(stored["output"][0]["content"][0]["text"], REPLY);

    // A later connection goes on with the session, and knows its items by their ids.
    drop(socket);
    let token = server.token("acme", Role::Player, Some("p7"));
    let mut again = connect(&server, &token, &format!("?session={id}")).await;
    let created = again.until_event("session.created").await;
    assert_eq!(
        (&created["session"]["id"], &created["session"]["model"]),
        (&json!(id), &json!("vale/ergen"))
    );
    let item = response["output"][0]["id"].clone();
    again
        .send(json!({"type": "conversation.item.retrieve", "item_id": item}))
        .await;
    let retrieved = again.until_event("conversation.item.retrieved").await;
    assert_eq!(
        retrieved["item"]["content"],
        json!([{"type": "output_text", "text": REPLY}])
    );
    assert_eq!(say(&mut again, "Good day.").await.text(), REPLY);
    assert_eq!(
        turns(&client, &id).await,
        said(&[("Hello.", REPLY), ("Good day.", REPLY)])
    );
}

#[actix_web::test]
async fn answers_beside_the_conversation_store_nothing() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    let beside = json!({"type": "response.create", "response": {"conversation": "none", "instructions": "Sum up.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What was said?"}]}]}});
    socket.send(beside.clone()).await;
    let reply = read_reply(&mut socket).await;
    assert_eq!(
        (reply.status(), reply.text(), reply.streamed.as_str()),
        ("completed", REPLY, REPLY)
    );
    assert!(reply.response.get("conversation_id").is_none());
    assert!(turns(&client, &session).await.is_empty());
    let input = json!({"type": "response.create", "response": {"input": []}});
    socket.send(input).await;
    assert_eq!(next_error(&mut socket).await["param"], "response.input");

    let mut player = player_connection(&server).await;
    player.send(beside).await;
    assert_eq!(next_error(&mut player).await["code"], "forbidden");
}

#[actix_web::test]
async fn session_update_shows_what_it_sets() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let (mut socket, _) = backend_connection(&server).await;
    let tool = json!({"type": "function", "name": "wave", "parameters": {"type": "object"}});
    socket
        .send(
            json!({"type": "session.update", "session": {"type": "realtime", "instructions": "It rains.",
            "output_modalities": ["text"], "max_output_tokens": 50, "tools": [tool], "tool_choice": "none",
            "audio": {"input": {"turn_detection": null}}}}),
        )
        .await;
    let session = socket.until_event("session.updated").await["session"].clone();
    assert_eq!(
        (
            &session["instructions"],
            &session["max_output_tokens"],
            &session["tools"],
            &session["tool_choice"]
        ),
        (&json!("It rains."), &json!(50), &json!([tool]), &json!("none"))
    );
    socket
        .send(json!({"type": "session.update", "session": {"max_output_tokens": "inf"}}))
        .await;
    let session = socket.until_event("session.updated").await["session"].clone();
    assert_eq!(
        (&session["instructions"], &session["max_output_tokens"]),
        (&json!("It rains."), &json!("inf"))
    );
    socket
        .send(json!({"type": "session.update", "session": {"model": "vale/mira"}}))
        .await;
    assert_eq!(next_error(&mut socket).await["param"], "session.model");
}

#[actix_web::test]
async fn character_of_the_program_begins_with_its_first_response() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let token = server.token("acme", Role::Backend, None);
    let mut socket = connect(&server, &token, "?model=colloquy/proxy").await;
    let created = socket.until_event("session.created").await;
    assert!(
        created["session"]["id"].as_str().unwrap().starts_with("sess_"),
        "{created}"
    );
    socket
        .send(json!({"type": "session.update", "session": {"instructions": "You are Tam, a miller."}}))
        .await;
    socket.until_event("session.updated").await;
    add_line(&mut socket, "Hello.").await;
    socket.send(json!({"type": "response.create"})).await;
    let updated = socket.until_event("session.updated").await;
    let session = updated["session"]["id"].as_str().unwrap().to_owned();
    let reply = read_reply(&mut socket).await;
    assert_eq!(reply.text(), REPLY);
    assert_eq!(turns(&client, &session).await, said(&[("Hello.", REPLY)]));
    let view = client.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!(view["npc_id"], "tam");
}
