//! Items of the conversation: lines, replies of elsewhere, deletions, and what others do.

use serde_json::json;

use super::{add_line, backend_connection, line, next_error, player_connection, respond, said, say, turns};
use crate::http::{fakes::REPLY, harness::HttpTestServer};

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
    let delete = |id: &str| json!({"type": "conversation.item.delete", "item_id": id});
    player.send(delete(&heard.item_id)).await;
    player.until_event("conversation.item.deleted").await;
    player.send(reply("Well 😀,")).await;
    let back = player.until_event("conversation.item.done").await;
    assert_eq!(turns(&client, session).await, said(&[("Hello.", "Well 😀,")]));
    // The same words once more.
    add_line(&mut player, "Hello.").await;
    player.send(reply("Well 😀,")).await;
    assert_eq!(next_error(&mut player).await["code"], "forbidden");
    // The NPC has answered no other line so.
    player.send(delete(back["item"]["id"].as_str().unwrap())).await;
    player.until_event("conversation.item.deleted").await;
    add_line(&mut player, "Is the gold mine?").await;
    player.send(reply("Well 😀,")).await;
    assert_eq!(next_error(&mut player).await["code"], "forbidden");
    assert!(turns(&client, session).await.is_empty());
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
