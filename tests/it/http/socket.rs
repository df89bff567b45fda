//! The socket's protocol.

use std::time::Duration;

use colloquy::tenancy::Role;
use serde_json::{Value, json};

use super::{
    fakes::REPLY,
    harness::{HttpTestOptions, HttpTestServer, HttpTestSocket, json_of},
};

async fn player_socket(server: &HttpTestServer) -> HttpTestSocket {
    server.socket(&server.token("acme", Role::Player, Some("p7"))).await
}

#[actix_web::test]
async fn session_is_opened_spoken_in_and_closed() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let mut socket = player_socket(&server).await;
    socket
        .send(json!({"type": "session.create", "event_id": "c1", "world_id": "vale", "npc_id": "ergen", "player_id": "p7"}))
        .await;
    let created = socket.until_event("session.created").await;
    assert_eq!(
        (&created["re"], &created["seq"], &created["head_turn"]),
        (&json!("c1"), &json!(1), &json!(0))
    );
    let session = created["session_id"].as_str().unwrap().to_owned();
    assert_eq!(created["dialogue_id"], session.as_str());

    let line = json!({"type": "player.say", "event_id": "c2", "session_id": session, "key": "k", "text": "hello"});
    socket.send(line.clone()).await;
    let started = socket.until_event("turn.started").await;
    assert_eq!((&started["re"], &started["turn"]), (&json!("c2"), &json!(1)));
    let mut streamed = String::new();
    let done = loop {
        let event = socket.next().await.unwrap();
        match event["type"].as_str().unwrap() {
            "reply.delta" => {
                assert_eq!(event["offset"], streamed.chars().count());
                streamed.push_str(event["text"].as_str().unwrap());
            }
            "reply.done" => break event,
            other => panic!("{other}"),
        }
    };
    assert_eq!((streamed.as_str(), &done["text"]), (REPLY, &json!(REPLY)));
    let committed = socket.until_event("turn.committed").await;
    assert!(committed["seq"].as_u64() > done["seq"].as_u64());

    // A repeated key returns the same turn.
    socket.send(line).await;
    let again = socket.until_event("reply.done").await;
    assert_eq!(
        (&again["turn"], &again["seq"], &again["re"]),
        (&json!(1), &done["seq"], &json!("c2"))
    );
    socket.until_event("turn.committed").await;

    socket
        .send(json!({"type": "reply.played", "session_id": session, "turn": 1}))
        .await;
    socket.send(json!({"type": "ping", "t": 123, "event_id": "c3"})).await;
    // `pong` comes next, because `reply.played` was accepted without an answer.
    let pong = socket.next().await.unwrap();
    assert_eq!(pong, json!({"type": "pong", "re": "c3", "t": 123}));

    socket
        .send(json!({"type": "session.close", "session_id": session}))
        .await;
    socket.until_event("session.closed").await;
    socket
        .send(json!({"type": "player.say", "session_id": session, "text": "hello?"}))
        .await;
    assert_eq!(socket.error_code().await, "not_found");
}

#[actix_web::test]
async fn lost_socket_is_resumed_where_it_was() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let mut first = player_socket(&server).await;
    first
        .send(json!({"type": "session.create", "world_id": "vale", "npc_id": "ergen"}))
        .await;
    let created = first.until_event("session.created").await;
    let session = created["session_id"].clone();
    first
        .send(json!({"type": "player.say", "session_id": session, "text": "hello"}))
        .await;
    let started = first.until_event("turn.started").await;
    first.until_event("turn.committed").await;
    drop(first);

    let mut second = player_socket(&server).await;
    let resume = |token: &Value| json!({"type": "session.resume", "session_id": session, "resume_token": token, "last_seq": started["seq"]});
    second.send(resume(&json!("wrong"))).await;
    assert_eq!(second.error_code().await, "wrong_resume_token");
    second.send(resume(&created["resume_token"])).await;
    assert_eq!(second.next().await.unwrap()["type"], "reply.done");
    assert_eq!(second.next().await.unwrap()["type"], "turn.committed");
    let resumed = second.next().await.unwrap();
    assert_eq!(
        (&resumed["type"], &resumed["replayed"]),
        (&json!("session.resumed"), &json!(2))
    );

    let mut stranger = server.socket(&server.token("acme", Role::Player, Some("p8"))).await;
    stranger.send(resume(&created["resume_token"])).await;
    assert_eq!(stranger.error_code().await, "not_found");
    let mut rival = server.socket(&server.token("rival", Role::Backend, None)).await;
    rival.send(resume(&created["resume_token"])).await;
    assert_eq!(rival.error_code().await, "not_found");
}

#[actix_web::test]
async fn reply_is_cut_where_it_was_heard_in_either_unit() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let mut socket = player_socket(&server).await;
    let session = socket.session().await;
    // "Well 😀" has six characters and seven UTF-16 units.
    for heard in [json!({"heard_chars": 6}), json!({"heard_utf16": 7})] {
        socket
            .send(json!({"type": "player.say", "session_id": session, "text": "STALL"}))
            .await;
        let delta = socket.until_event("reply.delta").await;
        assert!(delta["text"].as_str().unwrap().starts_with("Well 😀"), "{delta}");
        let mut cut = json!({"type": "player.interrupt", "session_id": session, "turn": delta["turn"]});
        cut.as_object_mut().unwrap().extend(heard.as_object().unwrap().clone());
        socket.send(cut).await;
        let done = socket.until_event("reply.done").await;
        assert_eq!(
            (&done["status"], &done["text"]),
            (&json!("interrupted"), &json!("Well 😀")),
            "{heard}"
        );
        socket.until_event("turn.committed").await;
    }
    socket
        .send(json!({"type": "player.interrupt", "session_id": session}))
        .await;
    assert_eq!(socket.error_code().await, "turn_not_running");
    let both = json!({"type": "player.interrupt", "session_id": session, "heard_chars": 1, "heard_utf16": 1});
    socket.send(both).await;
    assert_eq!(socket.error_code().await, "validation_failed");
}

#[actix_web::test]
async fn invalid_messages_are_reported_and_leave_the_socket_open() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let mut socket = player_socket(&server).await;
    socket.send(json!({"type": "player.dance", "event_id": "e1"})).await;
    let error = socket.next().await.unwrap();
    assert_eq!(
        (&error["re"], &error["error"]["code"]),
        (&json!("e1"), &json!("unknown_type"))
    );
    socket.send(json!({"type": "world.watch", "world_id": "vale"})).await;
    assert_eq!(socket.error_code().await, "forbidden");
    socket
        .send(json!({"type": "session.create", "world_id": "V!", "colour": "red"}))
        .await;
    let error = socket.next().await.unwrap();
    assert_eq!(error["error"]["code"], "validation_failed");
    assert_eq!(error["error"]["errors"].as_array().unwrap().len(), 2, "{error}");
    socket
        .send(json!({"type": "session.create", "world_id": "vale", "npc_id": "nobody"}))
        .await;
    let error = socket.next().await.unwrap();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["param"]),
        (&json!("not_found"), &json!("npc_id"))
    );
    for secret in [
        json!({"include": ["memory.updated"]}),
        json!({"witnesses": ["mira"]}),
        json!({"player_id": "p8"}),
    ] {
        let mut create = json!({"type": "session.create", "world_id": "vale", "npc_id": "ergen"});
        create
            .as_object_mut()
            .unwrap()
            .extend(secret.as_object().unwrap().clone());
        socket.send(create).await;
        assert_eq!(socket.error_code().await, "forbidden", "{secret}");
    }
    let session = socket.session().await;
    let long = "x".repeat(2_001);
    socket
        .send(json!({"type": "player.say", "event_id": "e2", "session_id": session, "text": long}))
        .await;
    let error = socket.next().await.unwrap();
    assert_eq!((&error["re"], &error["dialogue_id"]), (&json!("e2"), &json!(session)));
    assert_eq!(error["error"]["code"], "line_too_long");
    socket.session().await;
    socket
        .send(json!({"type": "session.create", "world_id": "vale", "npc_id": "ergen"}))
        .await;
    assert_eq!(socket.error_code().await, "too_many_sessions");
    socket.send_text("not json").await;
    assert_eq!(socket.error_code().await, "malformed_json");
    assert_eq!(socket.close_code().await, 4400);
}

#[actix_web::test]
async fn flooding_socket_is_closed() {
    let mut options = HttpTestOptions::default();
    options.limits.socket_messages_per_s = 2;
    let server = HttpTestServer::with(options);
    let mut socket = player_socket(&server).await;
    for n in 0..8 {
        socket.send(json!({"type": "ping", "event_id": format!("e{n}")})).await;
    }
    let mut codes = Vec::new();
    let closed = loop {
        match socket.next().await {
            Ok(event) if event["type"] == "error" => {
                assert!(event["error"]["retry_after_ms"].is_u64());
                codes.push(event["error"]["code"].as_str().unwrap().to_owned());
            }
            Ok(_) => {}
            Err(code) => break code,
        }
    };
    assert_eq!(closed, 4429);
    assert_eq!(codes, ["rate_limited"; 4], "three strikes and a last word");
}

#[actix_web::test]
async fn player_cannot_take_more_than_its_share() {
    let mut options = HttpTestOptions::default();
    options.limits.player_sockets = 1;
    options.limits.player_requests_per_s = 4;
    options.limits.tenant_requests_per_s = 1_000;
    let server = HttpTestServer::with(options);
    let mut socket = player_socket(&server).await;
    let bearer = format!("Bearer {}", server.token("acme", Role::Player, Some("p7")));
    let again = || {
        let mut request = server.upgrade_request("");
        request.headers_mut().insert("authorization", bearer.parse().unwrap());
        request
    };
    assert_eq!(
        HttpTestSocket::open(again()).await.err().map(|status| status.as_u16()),
        Some(429)
    );
    // Another player of the same tenant has a separate limit.
    let mut other = server.socket(&server.token("acme", Role::Player, Some("p8"))).await;
    for _ in 0..8 {
        socket.send(json!({"type": "ping"})).await;
    }
    assert_eq!(socket.error_code().await, "rate_limited");
    other.send(json!({"type": "ping"})).await;
    other.until_event("pong").await;
}

#[actix_web::test]
async fn full_server_answers_with_a_retry_delay() {
    let mut options = HttpTestOptions::default();
    options.sockets.max_open = 1;
    let server = HttpTestServer::with(options);
    let _socket = player_socket(&server).await;
    let refused = server
        .as_role(Role::Player)
        .request(reqwest::Method::GET, "/v1/ws")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .send()
        .await
        .unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    let (status, body) = json_of(refused).await;
    assert_eq!((status.as_u16(), &body["code"]), (503, &json!("overloaded")), "{body}");
}

#[actix_web::test]
async fn socket_credentials_are_accepted_in_every_documented_form() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let token = server.token("acme", Role::Player, Some("p7"));

    let mut request = server.upgrade_request("");
    let offer = format!("colloquy.v1, bearer.{token}").parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", offer);
    let mut socket = HttpTestSocket::open(request).await.unwrap();
    assert_eq!(socket.protocol.as_deref(), Some("colloquy.v1"));
    socket.session().await;

    let ticket = server.client(token.clone()).post("/v1/tickets", &json!({})).await["ticket"]
        .as_str()
        .unwrap()
        .to_owned();
    let query = format!("?ticket={ticket}&coalesce_ms=20");
    HttpTestSocket::open(server.upgrade_request(&query))
        .await
        .unwrap()
        .session()
        .await;
    // A browser cannot read the status, so the error comes on the socket.
    let mut used = HttpTestSocket::open(server.upgrade_request(&query)).await.unwrap();
    assert_eq!(used.error_code().await, "unauthenticated");
    assert_eq!(used.close_code().await, 4401);

    let refused = |authorization: Option<String>, query: &str| {
        let mut request = server.upgrade_request(query);
        if let Some(value) = authorization {
            request.headers_mut().insert("authorization", value.parse().unwrap());
        }
        async move { HttpTestSocket::open(request).await.map(drop) }
    };
    assert_eq!(refused(None, "").await.unwrap_err(), 401);
    assert_eq!(refused(Some("Bearer nonsense".into()), "").await.unwrap_err(), 401);
    let operator = format!("Bearer {}", server.token("acme", Role::Operator, None));
    assert_eq!(refused(Some(operator), "").await.unwrap_err(), 403);
    assert_eq!(
        refused(Some(format!("Bearer {token}")), "?coalesce_ms=5000")
            .await
            .unwrap_err(),
        422
    );
}

#[actix_web::test]
async fn token_is_renewed_in_time_or_the_socket_closes() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let short = server.token_for("acme", Role::Player, Some("p7"), None, Duration::from_secs(2));
    let mut late = server.socket(&short).await;
    let mut renewed = server.socket(&short).await;
    let other = server.token("acme", Role::Player, Some("p8"));
    renewed.send(json!({"type": "auth.refresh", "token": other})).await;
    assert_eq!(renewed.error_code().await, "forbidden");
    let fresh = server.token("acme", Role::Player, Some("p7"));
    renewed.send(json!({"type": "auth.refresh", "token": fresh})).await;
    renewed.until_event("auth.refreshed").await;
    assert_eq!(late.error_code().await, "token_expired");
    assert_eq!(late.close_code().await, 4401);
    // The old token has expired, and the socket still works.
    renewed.session().await;
}

#[actix_web::test]
async fn failed_resume_leaves_the_session_open() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let mut socket = player_socket(&server).await;
    socket
        .send(json!({"type": "session.create", "world_id": "vale", "npc_id": "ergen", "player_id": "p7"}))
        .await;
    let created = socket.until_event("session.created").await;
    let session = created["session_id"].clone();
    socket
        .send(json!({"type": "session.resume", "session_id": session, "resume_token": "rt_wrong"}))
        .await;
    socket.until_event("error").await;
    socket
        .send(json!({"type": "player.say", "session_id": session, "text": "hello"}))
        .await;
    assert_eq!(socket.until_event("turn.started").await["turn"], 1);
    socket.until_event("turn.committed").await;
    // A successful resume replaces the old subscription, so no event comes twice.
    socket
        .send(json!({"type": "session.resume", "session_id": session, "resume_token": created["resume_token"]}))
        .await;
    socket.until_event("session.resumed").await;
    socket
        .send(json!({"type": "player.say", "session_id": session, "text": "again"}))
        .await;
    let first = socket.until_event("turn.started").await;
    let next = socket.next().await.unwrap();
    assert_eq!((&first["turn"], &next["type"]), (&json!(2), &json!("reply.delta")));
}

#[actix_web::test]
async fn client_that_returns_mid_reply_misses_nothing_of_it() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let mut first = player_socket(&server).await;
    let session = first.session().await;
    first
        .send(json!({"type": "player.say", "session_id": session, "text": "STALL"}))
        .await;
    let started = first.until_event("turn.started").await;
    let said = first.until_event("reply.delta").await;
    drop(first);
    let mut second = player_socket(&server).await;
    second
        .send(json!({"type": "session.resume", "session_id": session, "last_seq": started["seq"]}))
        .await;
    let caught_up = second.next().await.unwrap();
    assert_eq!(caught_up, said, "what was said so far, from its beginning");
    let resumed = second.next().await.unwrap();
    assert_eq!(
        (&resumed["type"], &resumed["replayed"]),
        (&json!("session.resumed"), &json!(0))
    );
    second
        .send(json!({"type": "player.interrupt", "session_id": session}))
        .await;
    assert_eq!(second.next().await.unwrap()["type"], "reply.done");
}

#[actix_web::test]
async fn newer_connection_takes_the_session_over() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let open = async |socket: &mut HttpTestSocket| {
        socket
            .send(json!({"type": "session.create", "world_id": "vale", "npc_id": "ergen", "player_id": "p7"}))
            .await;
        let created = socket.until_event("session.created").await;
        (created["session_id"].clone(), created["resume_token"].clone())
    };
    let (mut only, mut both) = (player_socket(&server).await, player_socket(&server).await);
    let (one, one_token) = open(&mut only).await;
    let (two, two_token) = open(&mut both).await;
    let (three, _) = open(&mut both).await;
    let resume = |session: &Value, token: &Value| json!({"type": "session.resume", "session_id": session, "resume_token": token});

    // A watcher replaces no connection, and is not replaced.
    let mut watcher = player_socket(&server).await;
    watcher.send(json!({"type": "session.resume", "session_id": one})).await;
    watcher.until_event("session.resumed").await;
    let mut newer = player_socket(&server).await;
    newer.send(resume(&one, &one_token)).await;
    newer.until_event("session.resumed").await;
    let told = only.next().await.unwrap();
    assert_eq!(
        (&told["error"]["code"], &told["dialogue_id"]),
        (&json!("replaced"), &one)
    );
    assert_eq!(only.close_code().await, 4409);

    newer.send(resume(&two, &two_token)).await;
    newer.until_event("session.resumed").await;
    let told = both.next().await.unwrap();
    assert_eq!(
        (&told["error"]["code"], &told["dialogue_id"]),
        (&json!("replaced"), &two)
    );
    let say = |session: &Value| json!({"type": "player.say", "session_id": session, "text": "hello"});
    both.send(say(&two)).await;
    assert_eq!(both.error_code().await, "not_found", "it has lost that session");
    both.send(say(&three)).await;
    assert_eq!(both.until_event("turn.started").await["dialogue_id"], three);

    newer.send(say(&one)).await;
    newer.until_event("turn.committed").await;
    watcher.until_event("turn.committed").await;
    // A resume on the same socket is no replacement.
    newer.send(resume(&one, &one_token)).await;
    newer.until_event("session.resumed").await;
    newer.send(say(&one)).await;
    newer.until_event("turn.committed").await;
}

#[actix_web::test]
async fn handler_panic_closes_only_its_own_socket() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let (mut unlucky, mut other) = (player_socket(&server).await, player_socket(&server).await);
    let session = other.session().await;
    let poison = server.token("panic", Role::Backend, None);
    unlucky
        .send(json!({"type": "auth.refresh", "event_id": "e1", "token": poison}))
        .await;
    let told = unlucky.next().await.unwrap();
    assert_eq!(
        (&told["re"], &told["error"]["code"]),
        (&json!("e1"), &json!("internal"))
    );
    assert!(!told.to_string().contains("a test asked for it"), "{told}");
    assert_eq!(unlucky.close_code().await, 4500);
    other
        .send(json!({"type": "player.say", "session_id": session, "text": "hello"}))
        .await;
    other.until_event("turn.committed").await;
    player_socket(&server).await.session().await;
}

#[actix_web::test]
async fn interrupt_is_answered_each_time() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let mut socket = player_socket(&server).await;
    let session = socket.session().await;
    socket
        .send(json!({"type": "player.say", "session_id": session, "text": "STALL"}))
        .await;
    socket.until_event("reply.delta").await;
    let interrupt = |re: &str, key: &str, turn: u32| json!({"type": "player.interrupt", "session_id": session, "event_id": re, "key": key, "turn": turn});
    for re in ["c1", "c2"] {
        socket.send(interrupt(re, "cut", 1)).await;
        let done = socket.until_event("interrupt.done").await;
        assert_eq!(
            (&done["re"], &done["interrupted"], &done["turn"]),
            (&json!(re), &json!(true), &json!(1)),
            "{done}"
        );
    }
    for turn in 2..=3 {
        socket
            .send(json!({"type": "player.say", "session_id": session, "text": "Hello."}))
            .await;
        while socket.until_event("turn.committed").await["turn"] != turn {}
    }
    let mut seqs = Vec::new();
    // The second repeats the key, and the third requests the current state.
    for (re, key, turn) in [("c3", "back", 2), ("c4", "back", 2), ("c5", "late", 3)] {
        socket.send(interrupt(re, key, turn)).await;
        let told = loop {
            let event = socket.until_event("dialogue.rewound").await;
            if event["re"] == re {
                break event;
            }
        };
        assert_eq!(told["removed_turns"], json!([3]), "{told}");
        seqs.push(told["seq"].clone());
    }
    assert!(seqs.iter().all(|seq| *seq == seqs[0]), "{seqs:?}");
}
