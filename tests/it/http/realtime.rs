//! The Realtime API in text: items, responses, cancel and truncate, and errors.

use std::{sync::Arc, time::Duration};

use colloquy::{http::ChatSettings, tenancy::Role};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    fakes::{NumberedLlm, PIECES, REPLY},
    harness::{HttpTestClient, HttpTestOptions, HttpTestServer, HttpTestSocket},
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

/// Begins a reply that stops after its first piece, and returns the id of its item.
async fn say_until_stalled(socket: &mut HttpTestSocket, text: &str) -> String {
    add_line(socket, text).await;
    socket.send(json!({"type": "response.create"})).await;
    let delta = socket.until_event("response.output_text.delta").await;
    assert_eq!(delta["delta"], PIECES[0]);
    delta["item_id"].as_str().unwrap().to_owned()
}

async fn truncate(socket: &mut HttpTestSocket, item: &str, position: Value) -> Value {
    let mut event = json!({"type": "conversation.item.truncate", "event_id": "t", "item_id": item, "content_index": 0});
    event
        .as_object_mut()
        .unwrap()
        .extend(position.as_object().unwrap().clone());
    socket.send(event).await;
    socket.until_event("conversation.item.truncated").await
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
async fn waiting_lines_are_answered_together_and_none_lets_the_npc_speak() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    assert_eq!(respond(&mut socket).await.text(), REPLY);
    add_line(&mut socket, "One.").await;
    let second = add_line(&mut socket, "Two.").await;
    // A line before the last one, and one that is taken away again.
    let mut between = line("Between.");
    between["previous_item_id"] = json!(add_line(&mut socket, "Gone.").await);
    between["previous_item_id"] = json!(second);
    socket.send(between).await;
    let added = socket.until_event("conversation.item.added").await;
    assert_eq!(added["previous_item_id"], json!(second));
    socket.until_event("conversation.item.done").await;
    socket
        .send(json!({"type": "conversation.item.delete", "item_id": second}))
        .await;
    let deleted = socket.until_event("conversation.item.deleted").await;
    assert_eq!(deleted["item_id"], json!(second));
    respond(&mut socket).await;
    respond(&mut socket).await;
    let lines: Vec<String> = turns(&client, &session).await.into_iter().map(|turn| turn.0).collect();
    assert_eq!(lines, ["", "One.\n\nBetween.\n\nGone.", ""]);
}

#[actix_web::test]
async fn cancel_ends_the_reply_at_the_sent_words() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    socket.send(json!({"type": "response.cancel", "event_id": "c0"})).await;
    let error = next_error(&mut socket).await;
    assert_eq!(
        (&error["code"], &error["event_id"]),
        (&json!("response_cancel_not_active"), &json!("c0"))
    );

    say_until_stalled(&mut socket, "STALL").await;
    socket.send(json!({"type": "response.create", "event_id": "r2"})).await;
    let error = next_error(&mut socket).await;
    assert_eq!(error["code"], "conversation_already_has_active_response");
    socket
        .send(json!({"type": "response.cancel", "response_id": "resp_other"}))
        .await;
    assert_eq!(next_error(&mut socket).await["code"], "response_cancel_not_active");
    socket.send(json!({"type": "response.cancel"})).await;
    let done = socket.until_event("response.done").await;
    assert_eq!(done["response"]["status"], "cancelled");
    assert_eq!(
        done["response"]["status_details"],
        json!({"type": "cancelled", "reason": "client_cancelled"})
    );
    let heard = PIECES[0].trim_end();
    assert_eq!(done["response"]["output"][0]["status"], "incomplete");
    assert_eq!(
        done["response"]["output"][0]["content"][0]["text"]
            .as_str()
            .unwrap()
            .trim_end(),
        heard
    );
    let stored = turns(&client, &session).await;
    assert_eq!(stored[0].1.trim_end(), heard);
    // The next reply comes as always.
    assert_eq!(say(&mut socket, "Go on.").await.status(), "completed");
    assert_eq!(turns(&client, &session).await.len(), 2);
}

#[actix_web::test]
async fn truncate_ends_the_reply_where_it_was_heard() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    let first = say(&mut socket, "One.").await;
    let second = say(&mut socket, "Two.").await;

    // Beyond the end: nothing changes, not even for an earlier turn.
    for position in [
        json!({"audio_end_ms": 3_600_000}),
        json!({"heard_chars": 9_999}),
        json!({"heard_utf16": 9_999}),
    ] {
        for reply in [&first, &second] {
            let truncated = truncate(&mut socket, &reply.item_id, position.clone()).await;
            assert_eq!(
                (&truncated["heard_chars"], &truncated["content_index"]),
                (&json!(REPLY.chars().count()), &json!(0))
            );
            // 32 characters at 15 in a second.
            assert_eq!(truncated["audio_end_ms"], 2_134, "{truncated}");
        }
    }
    assert_eq!(
        turns(&client, &session).await,
        said(&[("One.", REPLY), ("Two.", REPLY)])
    );

    // "Well 😀, hello" has 13 characters and 14 UTF-16 units.
    let truncated = truncate(
        &mut socket,
        &second.item_id,
        json!({"heard_chars": 20, "audio_end_ms": 1}),
    )
    .await;
    assert_eq!(truncated["heard_chars"], 20);
    let truncated = truncate(&mut socket, &second.item_id, json!({"heard_utf16": 14})).await;
    assert_eq!(truncated["heard_chars"], 13);
    assert_eq!(turns(&client, &session).await[1].1, "Well 😀, hello");
    let truncated = truncate(&mut socket, &second.item_id, json!({"audio_end_ms": 400})).await;
    assert_eq!(
        (&truncated["heard_chars"], &truncated["audio_end_ms"]),
        (&json!(6), &json!(400))
    );
    socket
        .send(json!({"type": "conversation.item.retrieve", "item_id": second.item_id}))
        .await;
    let retrieved = socket.until_event("conversation.item.retrieved").await;
    assert_eq!(
        (&retrieved["item"]["content"][0]["text"], &retrieved["item"]["status"]),
        (&json!("Well 😀"), &json!("incomplete"))
    );
    say(&mut socket, "Three.").await;
    assert_eq!(
        turns(&client, &session).await,
        said(&[("One.", REPLY), ("Two.", "Well 😀"), ("Three.", REPLY)])
    );
}

#[actix_web::test]
async fn truncate_of_an_earlier_reply_takes_later_turns_back() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    let first = say(&mut socket, "One.").await;
    let second_line = add_line(&mut socket, "Two.").await;
    let second = respond(&mut socket).await;
    socket
        .send(
            json!({"type": "conversation.item.truncate", "item_id": first.item_id, "content_index": 0,
            "audio_end_ms": 0, "heard_chars": 4}),
        )
        .await;
    let mut deleted = Vec::new();
    let truncated = loop {
        let event = socket.next().await.unwrap();
        match event["type"].as_str().unwrap() {
            "conversation.item.deleted" => deleted.push(event["item_id"].as_str().unwrap().to_owned()),
            "conversation.item.truncated" => break event,
            other => panic!("{other}"),
        }
    };
    assert_eq!(deleted, [second_line, second.item_id.clone()]);
    assert_eq!(truncated["heard_chars"], 4);
    assert_eq!(turns(&client, &session).await, said(&[("One.", "Well")]));
    for kind in ["retrieve", "delete", "truncate"] {
        let mut event = json!({"type": format!("conversation.item.{kind}"), "item_id": second.item_id});
        if kind == "truncate" {
            event["audio_end_ms"] = json!(1);
        }
        socket.send(event).await;
        let error = next_error(&mut socket).await;
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!(format!("item_{kind}_invalid_item_id")), &json!("item_id"))
        );
    }
}

#[actix_web::test]
async fn reply_of_which_nothing_was_heard_leaves_its_line_waiting() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    let reply = say(&mut socket, "One.").await;
    let truncated = truncate(&mut socket, &reply.item_id, json!({"audio_end_ms": 0})).await;
    assert_eq!(
        (&truncated["heard_chars"], &truncated["audio_end_ms"]),
        (&json!(0), &json!(0))
    );
    assert!(turns(&client, &session).await.is_empty());
    say(&mut socket, "Two.").await;
    assert_eq!(turns(&client, &session).await, said(&[("One.\n\nTwo.", REPLY)]));
}

#[actix_web::test]
async fn truncate_cuts_the_reply_under_way() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    let item = say_until_stalled(&mut socket, "STALL").await;
    socket
        .send(
            json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 99_000,
            "heard_chars": 4}),
        )
        .await;
    let done = socket.until_event("response.done").await;
    assert_eq!(done["response"]["status"], "cancelled");
    let truncated = socket.until_event("conversation.item.truncated").await;
    assert_eq!(
        (&truncated["item_id"], &truncated["heard_chars"]),
        (&json!(item), &json!(4))
    );
    assert_eq!(turns(&client, &session).await, said(&[("STALL", "Well")]));

    // Beyond the sent words: all of them were heard.
    let item = say_until_stalled(&mut socket, "STALL again").await;
    let event = json!({"type": "conversation.item.truncate", "item_id": item, "audio_end_ms": 99_000});
    socket.send(event).await;
    socket.until_event("conversation.item.truncated").await;
    assert_eq!(turns(&client, &session).await[1].1.trim_end(), PIECES[0].trim_end());
}

#[actix_web::test]
async fn deleted_items_take_back_the_last_turn_alone() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    let first = say(&mut socket, "One.").await;
    let line_id = add_line(&mut socket, "Two.").await;
    let second = respond(&mut socket).await;
    let delete = |id: &str| json!({"type": "conversation.item.delete", "event_id": "d", "item_id": id});
    socket.send(delete(&first.item_id)).await;
    let error = next_error(&mut socket).await;
    assert_eq!(
        (&error["code"], &error["param"], &error["event_id"]),
        (&json!("validation_failed"), &json!("item_id"), &json!("d"))
    );
    // Without its reply, the line waits again.
    socket.send(delete(&second.item_id)).await;
    assert_eq!(
        socket.until_event("conversation.item.deleted").await["item_id"],
        json!(second.item_id)
    );
    assert_eq!(turns(&client, &session).await, said(&[("One.", REPLY)]));
    let again = respond(&mut socket).await;
    assert_eq!(
        turns(&client, &session).await,
        said(&[("One.", REPLY), ("Two.", REPLY)])
    );
    // Without its line, a reply does not stand.
    socket.send(delete(&line_id)).await;
    let deleted = [
        socket.until_event("conversation.item.deleted").await["item_id"].clone(),
        socket.until_event("conversation.item.deleted").await["item_id"].clone(),
    ];
    assert_eq!(deleted, [json!(again.item_id), json!(line_id)]);
    assert_eq!(turns(&client, &session).await, said(&[("One.", REPLY)]));
}

#[actix_web::test]
async fn replies_of_elsewhere_are_stored_for_backends() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    let reply = |text: &str| {
        json!({"type": "conversation.item.create", "event_id": "a", "item": {"type": "message",
        "role": "assistant", "content": [{"type": "output_text", "text": text}]}})
    };
    add_line(&mut socket, "Elsewhere.").await;
    socket.send(reply("Said elsewhere.")).await;
    let done = socket.until_event("conversation.item.done").await;
    assert_eq!(done["item"]["role"], "assistant");
    assert_eq!(
        turns(&client, &session).await,
        said(&[("Elsewhere.", "Said elsewhere.")])
    );
    // Items cannot stand before turns.
    for previous in [json!("root"), json!("item_x")] {
        let mut event = line("Too late.");
        event["previous_item_id"] = previous;
        socket.send(event).await;
        assert_eq!(next_error(&mut socket).await["param"], "previous_item_id");
    }

    let mut player = player_connection(&server).await;
    let created = player.until_event("session.created").await;
    let session = created["session"]["id"].as_str().unwrap();
    add_line(&mut player, "Hello.").await;
    player.send(reply("The gold is yours.")).await;
    let error = next_error(&mut player).await;
    assert_eq!((&error["code"], &error["event_id"]), (&json!("forbidden"), &json!("a")));
    assert!(turns(&client, session).await.is_empty());
    // A reply of the NPC that the client deletes may come back as far as it was heard.
    let heard = respond(&mut player).await;
    player
        .send(json!({"type": "conversation.item.delete", "item_id": heard.item_id}))
        .await;
    player.until_event("conversation.item.deleted").await;
    player.send(reply("Well 😀,")).await;
    player.until_event("conversation.item.done").await;
    assert_eq!(turns(&client, session).await, said(&[("Hello.", "Well 😀,")]));
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
async fn faults_are_errors_and_the_socket_stays_open() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let (mut socket, _) = backend_connection(&server).await;
    for (event, code) in [
        (
            json!({"type": "input_audio_buffer.append", "audio": "AAAA"}),
            "not_supported",
        ),
        (json!({"type": "input_audio_buffer.commit"}), "not_supported"),
        (json!({"type": "output_audio_buffer.clear"}), "not_supported"),
        (
            json!({"type": "session.update", "session": {"type": "transcription"}}),
            "not_supported",
        ),
        (
            json!({"type": "session.update", "session": {"output_modalities": ["audio"]}}),
            "not_supported",
        ),
        (
            json!({"type": "response.create", "response": {"output_modalities": ["audio"]}}),
            "not_supported",
        ),
        (
            json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
                "content": [{"type": "input_audio", "audio": "AAAA"}]}}),
            "not_supported",
        ),
        (json!({"type": "conversation.dance"}), "unknown_type"),
        (json!({"no": "type"}), "validation_failed"),
        (line(&"x".repeat(2_001)), "line_too_long"),
    ] {
        let mut event = event;
        event["event_id"] = json!("e1");
        socket.send(event.clone()).await;
        let error = next_error(&mut socket).await;
        assert_eq!(
            (&error["code"], &error["event_id"]),
            (&json!(code), &json!("e1")),
            "{event}"
        );
        assert_eq!(error["type"], "invalid_request_error", "{event}");
    }
    socket.send_text("no json").await;
    assert_eq!(next_error(&mut socket).await["code"], "malformed_json");
    let refused = say(&mut socket, "REFUSE").await;
    assert_eq!(
        (refused.status(), &refused.response["status_details"]["error"]["code"]),
        ("failed", &json!("model_failed"))
    );
    // The line waits still, and is not lost.
    socket.send(json!({"type": "response.create"})).await;
    assert_eq!(read_reply(&mut socket).await.status(), "failed");
}

#[actix_web::test]
async fn too_large_and_binary_messages_close_the_socket() {
    let chat = ChatSettings {
        max_event_bytes: 4_096,
        ..ChatSettings::default()
    };
    let server = HttpTestServer::with(HttpTestOptions {
        chat,
        ..HttpTestOptions::default()
    });
    server.start_demo_world().await;
    let (mut socket, _) = backend_connection(&server).await;
    socket.send_text(&"x".repeat(5_000)).await;
    let error = next_error(&mut socket).await;
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("payload_too_large"), &json!("invalid_request_error"))
    );
    assert_eq!(socket.close_code().await, 4413);
    let (mut socket, _) = backend_connection(&server).await;
    socket.send_binary(b"audio").await;
    assert_eq!(next_error(&mut socket).await["code"], "malformed_request");
    assert_eq!(socket.close_code().await, 4400);
}

#[actix_web::test]
async fn connections_are_refused_as_requests_are() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let backend = server.token("acme", Role::Backend, None);
    let player = server.token("acme", Role::Player, Some("p7"));
    let others = client.session("p8").await["id"].as_str().unwrap().to_owned();
    for (token, query, status) in [
        ("no token", ERGEN.to_owned(), 401),
        (&backend, String::new(), 400),
        (&backend, "?model=vale/nobody".to_owned(), 404),
        (&backend, "?model=nothing".to_owned(), 404),
        (&backend, "?model=vale/ergen&call_id=c".to_owned(), 501),
        (&backend, "?intent=transcription".to_owned(), 501),
        (&backend, "?session=ses_0000000000000000000000000Z".to_owned(), 404),
        (&player, "?model=colloquy/proxy".to_owned(), 403),
        (&player, format!("?session={others}"), 404),
        (&server.token("acme", Role::Viewer, None), ERGEN.to_owned(), 403),
        (
            &server.token("rival", Role::Backend, None),
            format!("?session={others}"),
            404,
        ),
    ] {
        let refused = HttpTestSocket::open(server.realtime_request(token, &query)).await;
        assert_eq!(refused.err().map(|status| status.as_u16()), Some(status), "{query}");
    }
    let (status, answer) = client.call(Method::GET, "/v1/realtime?model=vale/ergen", None).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (400, &json!("malformed_request"))
    );

    // A web page offers its token as a subprotocol, and reads a refusal on the socket.
    let mut request = server.realtime_request("", ERGEN);
    request.headers_mut().remove("authorization");
    let offer = format!("realtime, openai-insecure-api-key.{player}").parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", offer);
    let mut page = HttpTestSocket::open(request.clone()).await.unwrap();
    assert_eq!(page.protocol.as_deref(), Some("realtime"));
    page.until_event("session.created").await;
    let offer = "realtime, openai-insecure-api-key.nonsense".parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", offer);
    let mut page = HttpTestSocket::open(request).await.unwrap();
    assert_eq!(next_error(&mut page).await["type"], "authentication_error");
    assert_eq!(page.close_code().await, 4401);

    let ticket = client.post("/v1/tickets", &json!({})).await["ticket"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut request = server.realtime_request("", &format!("{ERGEN}&ticket={ticket}"));
    request.headers_mut().remove("authorization");
    HttpTestSocket::open(request)
        .await
        .unwrap()
        .until_event("session.created")
        .await;
}

#[actix_web::test]
async fn named_talks_go_on() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let token = server.token("acme", Role::Backend, None);
    let mut sessions = Vec::new();
    for (query, text) in [
        ("?model=vale/ergen&conversation=night&user=p1", "One."),
        ("?model=vale/ergen&conversation=night&user=p1", "Two."),
        ("?model=vale/ergen&conversation=night&user=p2", "Three."),
        (ERGEN, "Four."),
    ] {
        let mut socket = connect(&server, &token, query).await;
        let created = socket.until_event("session.created").await;
        sessions.push(created["session"]["id"].as_str().unwrap().to_owned());
        say(&mut socket, text).await;
    }
    assert_eq!(sessions[0], sessions[1]);
    assert!(sessions[1] != sessions[2] && sessions[2] != sessions[3]);
    assert_eq!(
        turns(&client, &sessions[0]).await,
        said(&[("One.", REPLY), ("Two.", REPLY)])
    );
}

#[actix_web::test]
async fn what_others_do_in_the_session_is_told() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    let own = say(&mut socket, "One.").await;
    client
        .post(&format!("/v1/sessions/{session}/turns"), &json!({"text": "By REST."}))
        .await;
    let mut items = Vec::new();
    for _ in 0..2 {
        let added = socket.until_event("conversation.item.added").await;
        items.push(added["item"].clone());
        assert_eq!(
            socket.until_event("conversation.item.done").await["item"],
            added["item"]
        );
    }
    assert_eq!(
        (&items[0]["content"][0]["text"], &items[1]["content"][0]["text"]),
        (&json!("By REST."), &json!(REPLY))
    );
    client
        .post(&format!("/v1/sessions/{session}:rewind"), &json!({"turn": 1}))
        .await;
    for item in &items {
        let deleted = socket.until_event("conversation.item.deleted").await;
        assert_eq!(deleted["item_id"], item["id"]);
    }
    client
        .post(
            &format!("/v1/sessions/{session}:interrupt"),
            &json!({"turn": 1, "heard_chars": 4}),
        )
        .await;
    let truncated = socket.until_event("conversation.item.truncated").await;
    assert_eq!(
        (&truncated["item_id"], &truncated["heard_chars"]),
        (&json!(own.item_id), &json!(4))
    );
    assert_eq!(say(&mut socket, "Two.").await.status(), "completed");
    assert_eq!(
        turns(&client, &session).await,
        said(&[("One.", "Well"), ("Two.", REPLY)])
    );
}

#[actix_web::test]
async fn client_that_hangs_up_has_heard_what_was_sent() {
    let model = Arc::new(NumberedLlm::default());
    let server = HttpTestServer::with(HttpTestOptions {
        llm: model.clone(),
        ..HttpTestOptions::default()
    });
    let client = server.start_demo_world().await;
    let (mut socket, session) = backend_connection(&server).await;
    model.stall_next_stream(1);
    add_line(&mut socket, "Tell me.").await;
    socket.send(json!({"type": "response.create"})).await;
    let delta = socket.until_event("response.output_text.delta").await;
    drop(socket);
    let heard = delta["delta"].as_str().unwrap().trim_end().to_owned();
    crate::support::eventually("the reply to end", || async {
        let turns = turns(&client, &session).await;
        turns
            .first()
            .is_some_and(|turn| turn.1.trim_end() == heard)
            .then_some(())
    })
    .await;
}

#[actix_web::test]
async fn limits_and_lost_tokens_are_told() {
    let mut options = HttpTestOptions::default();
    options.limits.player_turns_per_min = 1;
    options.limits.player_sockets = 1;
    let server = HttpTestServer::with(options);
    server.start_demo_world().await;
    let token = server.token_for("acme", Role::Player, Some("p7"), None, Duration::from_secs(3));
    let mut socket = connect(&server, &token, ERGEN).await;
    // The sockets of a player are counted together, whatever they speak.
    let second = HttpTestSocket::open(server.realtime_request(&token, ERGEN)).await;
    assert_eq!(second.err().map(|status| status.as_u16()), Some(429));
    say(&mut socket, "One.").await;
    add_line(&mut socket, "Two.").await;
    socket.send(json!({"type": "response.create", "event_id": "r"})).await;
    let error = next_error(&mut socket).await;
    assert_eq!(
        (&error["code"], &error["type"], &error["event_id"]),
        (&json!("rate_limited"), &json!("rate_limit_error"), &json!("r"))
    );
    assert!(error["retry_after_ms"].is_u64(), "{error}");
    assert_eq!(next_error(&mut socket).await["code"], "token_expired");
    assert_eq!(socket.close_code().await, 4401);
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

#[actix_web::test]
async fn shutdown_is_told_in_the_form_of_the_api() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let (mut socket, _) = backend_connection(&server).await;
    server.state.sockets.broadcast_draining(&"{}".into());
    let error = next_error(&mut socket).await;
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("draining"), &json!("server_error"))
    );
    drop(server);
    assert_eq!(socket.close_code().await, 4503);
}
