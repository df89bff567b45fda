//! Replies that end before their end: truncate, cancel, and clients that hang up.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{add_line, backend_connection, next_error, respond, said, say, turns};
use crate::{
    http::{
        fakes::{NumberedLlm, PIECES, REPLY},
        harness::{HttpTestOptions, HttpTestServer, HttpTestSocket},
    },
    support::eventually,
};

/// Begins a reply that stops after its first piece, and returns the id of its item.
async fn say_until_stalled(socket: &mut HttpTestSocket, text: &str) -> String {
    add_line(socket, text).await;
    socket.send(json!({"type": "response.create"})).await;
    let delta = socket.until_event("response.output_text.delta").await;
    assert_eq!(delta["delta"], PIECES[0].trim_end());
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
            // 31 characters at 15 in a second.
            assert_eq!(truncated["audio_end_ms"], 2_067, "{truncated}");
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
    eventually("the reply to end", || async {
        let turns = turns(&client, &session).await;
        turns
            .first()
            .is_some_and(|turn| turn.1.trim_end() == heard)
            .then_some(())
    })
    .await;
}
