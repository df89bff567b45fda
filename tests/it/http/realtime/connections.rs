//! Connections: admission, faults, limits and the end.

use std::time::Duration;

use colloquy::{http::ChatSettings, tenancy::Role};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    ERGEN, add_line, backend_connection, connect, line, next_error, player_connection, read_reply, said, say, turns,
};
use crate::http::{
    fakes::REPLY,
    harness::{HttpTestOptions, HttpTestServer, HttpTestSocket},
};

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
async fn limits_and_lost_tokens_are_told() {
    let mut options = HttpTestOptions::default();
    options.limits.player_turns_per_min = 1;
    options.limits.player_sockets = 1;
    let server = HttpTestServer::with(options);
    server.start_demo_world().await;
    let token = server.token("acme", Role::Player, Some("p7"));
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

    let token = server.token_for("acme", Role::Player, Some("p8"), None, Duration::from_secs(2));
    let mut socket = connect(&server, &token, ERGEN).await;
    assert_eq!(next_error(&mut socket).await["code"], "token_expired");
    assert_eq!(socket.close_code().await, 4401);
}

#[actix_web::test]
async fn revoked_token_closes_the_socket() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let mut socket = player_connection(&server).await;
    say(&mut socket, "One.").await;
    let admin = server.as_role(Role::Admin);
    let body = json!({"player_id": "p7"});
    let (status, _) = admin.call(Method::POST, "/v1/tokens:revoke", Some(&body)).await;
    assert_eq!(status, 204);
    let error = next_error(&mut socket).await;
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("token_revoked"), &json!("authentication_error"))
    );
    assert_eq!(socket.close_code().await, 4401);
}

#[actix_web::test]
async fn response_over_a_spent_budget_fails_without_a_turn() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let operator = server.as_role(Role::Operator);
    let set_budget = async |budget: Value| {
        let body = json!({ "budget": budget });
        let (status, _) = operator.call(Method::PATCH, "/v1/tenants/acme", Some(&body)).await;
        assert_eq!(status, 200);
    };
    set_budget(json!({"tokens_per_day": 1})).await;
    let (mut socket, session) = backend_connection(&server).await;
    say(&mut socket, "One.").await;
    let refused = say(&mut socket, "Two.").await;
    assert_eq!(
        (refused.status(), &refused.response["status_details"]["error"]["code"]),
        ("failed", &json!("budget_spent"))
    );
    assert_eq!(turns(&client, &session).await, said(&[("One.", REPLY)]));
    // The line waits for a larger budget.
    set_budget(json!({})).await;
    socket.send(json!({"type": "response.create"})).await;
    assert_eq!(read_reply(&mut socket).await.status(), "completed");
    assert_eq!(
        turns(&client, &session).await,
        said(&[("One.", REPLY), ("Two.", REPLY)])
    );
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
