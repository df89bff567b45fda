//! Sessions and turns over REST.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    fakes::{PIECES, REPLY},
    harness::{HttpTestOptions, HttpTestServer, json_of},
};

#[actix_web::test]
async fn rewind_with_a_header_key_is_safe_to_repeat() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let session = client.session("p7").await;
    let base = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    let said = async || {
        let page = client.get(&format!("{base}/turns")).await;
        page["items"].as_array().unwrap().len()
    };
    for text in ["one", "two", "three", "four"] {
        client.post(&format!("{base}/turns"), &json!({"text": text})).await;
    }
    let (rewind, interrupt) = (format!("{base}:rewind"), format!("{base}:interrupt"));
    for (path, body, removed, stand) in [
        (&rewind, json!({"turn": 3}), json!([4]), 3),
        (&interrupt, json!({"turn": 2}), json!([3, 4]), 2),
    ] {
        let asked = || client.request(Method::POST, path).header("idempotency-key", path);
        let (status, first) = json_of(asked().json(&body).send().await.unwrap()).await;
        assert_eq!(
            (status.as_u16(), &first["rewound"]["removed_turns"]),
            (200, &removed),
            "{first}"
        );
        assert_eq!(said().await, stand);
        // A repeated request does not rewind turns said meanwhile.
        client.post(&format!("{base}/turns"), &json!({"text": "and on"})).await;
        let (status, again) = json_of(asked().json(&body).send().await.unwrap()).await;
        assert_eq!(
            (status.as_u16(), &again["rewound"]["removed_turns"]),
            (200, &removed),
            "{again}"
        );
        assert_eq!(said().await, stand + 1);
        let mut other = body;
        other["key"] = json!("another");
        let (status, problem) = json_of(asked().json(&other).send().await.unwrap()).await;
        assert_eq!((status.as_u16(), &problem["param"]), (422, &json!("key")), "{problem}");
    }
}

#[actix_web::test]
async fn player_speaks_and_reads_its_transcript_only() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    let player = server.as_role(Role::Player);
    let session = player.session("p7").await;
    let base = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    assert!(session["resume_token"].as_str().unwrap().len() >= 16);

    let turn = player
        .post(&format!("{base}/turns"), &json!({"text": "hello", "key": "k1"}))
        .await;
    assert_eq!(
        (&turn["turn"], &turn["reply_text"], &turn["status"]),
        (&json!(1), &json!(REPLY), &json!("completed"))
    );
    let again = player
        .post(&format!("{base}/turns"), &json!({"text": "hello", "key": "k1"}))
        .await;
    assert_eq!(again, turn);
    player
        .post(&format!("{base}/turns"), &json!({"text": "and again"}))
        .await;

    let page = player.get(&format!("{base}/turns?limit=1")).await;
    assert_eq!((&page["items"][0]["turn"], &page["next"]), (&json!(1), &json!("1")));
    let page = player.get(&format!("{base}/turns?limit=1&after=1")).await;
    assert_eq!((&page["items"][0]["turn"], &page["next"]), (&json!(2), &Value::Null));

    // Players' answers contain neither memories nor prompts.
    let seen = format!("{}{turn}", player.get(&format!("{base}/turns")).await);
    for word in ["trace", "prompt_hash", "candidates", "facts", "sections"] {
        assert!(!seen.contains(word), "{word} is in {seen}");
    }
    for path in ["turns/1/trace", "summaries"] {
        assert_eq!(
            player
                .status_and_code(Method::GET, &format!("{base}/{path}"), None)
                .await
                .0,
            403,
            "{path}"
        );
    }
    let trace = backend.get(&format!("{base}/turns/1/trace")).await;
    assert!(trace["prompt_tokens"].as_u64().unwrap() > 0);
    assert_eq!(
        backend
            .status_and_code(Method::GET, &format!("{base}/turns/9/trace"), None)
            .await
            .0,
        404
    );

    let preview = backend
        .post(&format!("{base}/context"), &json!({"text": "what now?"}))
        .await;
    assert!(preview["messages"].as_array().unwrap().len() > 1 && preview["prompt_tokens"].as_u64().unwrap() > 0);

    assert_eq!(player.call(Method::DELETE, &base, None).await.0, 204);
    let late = json!({"text": "are you there?"});
    assert_eq!(
        player
            .status_and_code(Method::POST, &format!("{base}/turns"), Some(&late))
            .await,
        (409, "session_closed".to_owned())
    );
    assert_eq!(player.get(&base).await["status"], "closed");
}

#[actix_web::test]
async fn lines_that_cannot_be_spoken_are_rejected() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let session = client.session("p7").await;
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    let say = |text: String| {
        let (client, turns) = (client.clone(), turns.clone());
        async move {
            client
                .status_and_code(Method::POST, &turns, Some(&json!({"text": text})))
                .await
        }
    };
    assert_eq!(say("  ".into()).await, (422, "line_empty".to_owned()));
    assert_eq!(say("x".repeat(2_001)).await, (422, "line_too_long".to_owned()));
    let (status, problem) = client
        .call(Method::POST, &turns, Some(&json!({"text": "REFUSE"})))
        .await;
    assert_eq!((status.as_u16(), &problem["code"]), (502, &json!("model_failed")));
    assert!(!problem.to_string().contains("secret"), "{problem}");
    let unknown = json!({"world_id": "vale", "npc_id": "nobody", "player_id": "p7"});
    let (status, problem) = client.call(Method::POST, "/v1/sessions", Some(&unknown)).await;
    assert_eq!((status.as_u16(), &problem["param"]), (404, &json!("npc_id")));
}

/// Returns the events of an SSE answer: name and data.
fn events(text: &str) -> Vec<(String, Value)> {
    text.split("\n\n")
        .filter(|frame| !frame.is_empty())
        .map(|frame| {
            let (name, data) = frame.split_once('\n').unwrap();
            let data = data.strip_prefix("data: ").unwrap();
            (
                name.strip_prefix("event: ").unwrap().to_owned(),
                serde_json::from_str(data).unwrap(),
            )
        })
        .collect()
}

#[actix_web::test]
async fn turn_can_be_streamed_as_events() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let session = client.session("p7").await;
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    let stream = |body: Value| {
        let request = client
            .request(Method::POST, &turns)
            .header("accept", "text/event-stream")
            .json(&body);
        async move { request.send().await.unwrap() }
    };
    let response = stream(json!({"text": "hello", "key": "k1"})).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let all = events(&response.text().await.unwrap());
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.first(), Some(&"turn.started"));
    assert_eq!(names[names.len() - 2..], ["reply.done", "turn.committed"]);
    let streamed: String = all
        .iter()
        .filter(|(name, _)| name == "reply.delta")
        .map(|(_, event)| event["text"].as_str().unwrap())
        .collect();
    assert_eq!(streamed, PIECES.concat());

    let repeated = events(
        &stream(json!({"text": "hello", "key": "k1"}))
            .await
            .text()
            .await
            .unwrap(),
    );
    let names: Vec<_> = repeated.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["turn.started", "reply.done", "turn.committed"]);
    for (name, event) in &repeated {
        let first = all.iter().find(|(other, _)| other == name).unwrap();
        assert_eq!((&event["seq"], &event["turn"]), (&first.1["seq"], &json!(1)), "{event}");
    }
    assert_eq!(repeated[1].1["text"], REPLY);

    let failed = events(&stream(json!({"text": "REFUSE"})).await.text().await.unwrap());
    let (name, last) = failed.last().unwrap();
    assert_eq!((name.as_str(), &last["status"]), ("reply.done", &json!("failed")));
    assert_eq!(last["error"]["code"], "model_failed");
    assert_eq!(stream(json!({"text": ""})).await.status(), 422);
}

#[actix_web::test]
async fn running_reply_is_cut() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let session = client.session("p7").await;
    let base = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    let idle = client.post(&format!("{base}:interrupt"), &json!({})).await;
    assert_eq!(idle, json!({"interrupted": false, "turn": 0}));
    // An invalid turn number does not mean the whole session.
    let none = json!({"turn": 0});
    let (status, problem) = client
        .call(Method::POST, &format!("{base}:interrupt"), Some(&none))
        .await;
    assert_eq!((status.as_u16(), &problem["param"]), (422, &json!("turn")));

    let request = client
        .request(Method::POST, &format!("{base}/turns"))
        .header("accept", "text/event-stream");
    let mut response = request.json(&json!({"text": "STALL"})).send().await.unwrap();
    let mut seen = String::new();
    while !seen.contains("reply.delta") {
        let chunk = response
            .chunk()
            .await
            .unwrap()
            .expect("the stream ended before a delta");
        seen.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let busy = json!({"text": "me too", "on_busy": "reject"});
    let (status, problem) = client.call(Method::POST, &format!("{base}/turns"), Some(&busy)).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("turn_in_progress")));
    assert_eq!(
        client
            .status_and_code(Method::POST, &format!("{base}:interrupt"), Some(&json!({"turn": 7})))
            .await
            .1,
        "turn_not_running"
    );
    let cut = client
        .post(&format!("{base}:interrupt"), &json!({"turn": 1, "heard_chars": 4}))
        .await;
    assert_eq!(cut, json!({"interrupted": true, "turn": 1}));
    while let Some(chunk) = response.chunk().await.unwrap() {
        seen.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let all = events(&seen);
    let done = &all.iter().find(|(name, _)| name == "reply.done").unwrap().1;
    assert_eq!(
        (&done["status"], &done["text"]),
        (&json!("interrupted"), &json!("Well"))
    );
    assert_eq!(
        client.get(&format!("{base}/turns")).await["items"][0]["reply_text"],
        "Well"
    );
}

#[actix_web::test]
async fn player_that_talks_too_much_must_wait() {
    let mut options = HttpTestOptions::default();
    options.limits.player_turns_per_min = 1;
    let server = HttpTestServer::with(options);
    let client = server.start_demo_world().await;
    let session = client.session("p7").await;
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    client.post(&turns, &json!({"text": "one"})).await;
    let response = client
        .request(Method::POST, &turns)
        .json(&json!({"text": "two"}))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
    let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let other = client.session("p8").await;
    client
        .post(
            &format!("/v1/sessions/{}/turns", other["id"].as_str().unwrap()),
            &json!({"text": "hi"}),
        )
        .await;
}

#[actix_web::test]
async fn player_that_opens_too_many_sessions_must_wait() {
    let mut options = HttpTestOptions::default();
    options.limits.player_sessions_per_min = 2;
    let server = HttpTestServer::with(options);
    let backend = server.start_demo_world().await;
    backend.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
    let talk = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "auto": false, "open": true,
        "interrupters": "all"});
    let talk = backend.post("/v1/npc-conversations", &talk).await;
    let join = format!("/v1/npc-conversations/{}:join", talk["id"].as_str().unwrap());
    let token = server.token("acme", Role::Player, Some("p7"));
    let player = server.client(token.clone());
    let new = json!({"world_id": "vale", "npc_id": "ergen"});
    player.post("/v1/sessions", &new).await;
    player.post(&join, &json!({})).await;
    for (path, body) in [("/v1/sessions", &new), (join.as_str(), &json!({}))] {
        let response = player.request(Method::POST, path).json(body).send().await.unwrap();
        assert_eq!(response.status(), 429, "{path}");
        let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=30).contains(&wait), "{wait}");
    }
    let mut socket = server.socket(&token).await;
    let mut on_socket = new.clone();
    on_socket["type"] = json!("session.create");
    socket.send(on_socket).await;
    assert_eq!(socket.error_code().await, "rate_limited");
    // Other players, and backends for any player, are not concerned.
    let other = server.client(server.token("acme", Role::Player, Some("p8")));
    other.post("/v1/sessions", &new).await;
    for _ in 0..3 {
        backend.session("p7").await;
    }
}

#[actix_web::test]
async fn streamed_line_repeated_while_running_ends_with_its_turn() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let session = client.session("p7").await;
    let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    let stream = || {
        client
            .request(Method::POST, &format!("{path}/turns"))
            .header("accept", "text/event-stream")
            .json(&json!({"text": "STALL", "key": "k1"}))
            .send()
    };
    let mut first = stream().await.unwrap();
    let mut seen = String::new();
    while !seen.contains("reply.delta") {
        seen.push_str(&String::from_utf8_lossy(&first.chunk().await.unwrap().unwrap()));
    }
    let second = stream().await.unwrap();
    client.post(&format!("{path}:interrupt"), &json!({})).await;
    let told = events(&second.text().await.unwrap());
    let names: Vec<_> = told.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["turn.started", "reply.done", "turn.committed"], "{told:?}");
    let done = &told[1].1;
    assert_eq!((&done["turn"], &done["status"]), (&json!(1), &json!("interrupted")));
    while let Some(chunk) = first.chunk().await.unwrap() {
        seen.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(seen.contains("event: turn.committed"), "{seen}");
}

#[actix_web::test]
async fn interrupt_counts_characters_as_the_client_does_or_is_rejected() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let mut socket = server.socket(&client.token).await;
    socket
        .send(json!({"type": "session.create", "world_id": "vale", "npc_id": "ergen", "player_id": "p7"}))
        .await;
    let session = socket.until_event("session.created").await["session_id"].clone();
    let path = format!("/v1/sessions/{}:interrupt", session.as_str().unwrap());
    for (body, kept) in [
        (Some(json!({"heard_utf16": 7})), "Well 😀"),
        (Some(json!({"heard_chars": 6})), "Well 😀"),
        (None, PIECES[0].trim_end()),
    ] {
        socket
            .send(json!({"type": "player.say", "session_id": session, "text": "STALL"}))
            .await;
        socket.until_event("reply.delta").await;
        let (status, done) = client.call(Method::POST, &path, body.as_ref()).await;
        assert_eq!((status.as_u16(), &done["interrupted"]), (200, &json!(true)), "{done}");
        assert_eq!(
            socket.until_event("reply.done").await["text"]
                .as_str()
                .unwrap()
                .trim_end(),
            kept
        );
        socket.until_event("turn.committed").await;
    }
    let both = json!({"heard_chars": 1, "heard_utf16": 1});
    let (status, problem) = client.call(Method::POST, &path, Some(&both)).await;
    assert_eq!((status.as_u16(), &problem["param"]), (422, &json!("heard_utf16")));
}

#[actix_web::test]
async fn listeners_are_hidden_from_players() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    backend.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
    let body = json!({"world_id": "vale", "npc_id": "ergen", "player_id": "p7", "witnesses": ["mira"]});
    let session = backend.post("/v1/sessions", &body).await;
    assert_eq!(session["witnesses"], json!(["mira"]));
    let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    assert_eq!(backend.get(&path).await["witnesses"], json!(["mira"]));
    let player = server.as_role(Role::Player);
    let list = player.get("/v1/sessions").await;
    assert_eq!(list["items"][0]["id"], session["id"]);
    let own = player.session("p7").await;
    for seen in [player.get(&path).await, list, own] {
        for hidden in ["witnesses", "factions"] {
            assert!(!seen.to_string().contains(hidden), "{seen}");
        }
    }
}

#[actix_web::test]
async fn idempotency_key_with_another_text_is_rejected() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let mut socket = server.socket(&client.token).await;
    let session = client.session("p7").await["id"].clone();
    let turns = format!("/v1/sessions/{}/turns", session.as_str().unwrap());
    let first = client.post(&turns, &json!({"text": "hello", "key": "k1"})).await;
    let other = json!({"text": "something else", "key": "k1"});
    let (status, problem) = client.call(Method::POST, &turns, Some(&other)).await;
    assert_eq!(
        (status.as_u16(), &problem["code"], &problem["param"]),
        (422, &json!("idempotency_mismatch"), &json!("key"))
    );
    let again = client.post(&turns, &json!({"text": "hello", "key": "k1"})).await;
    assert_eq!(again["id"], first["id"]);
    socket
        .send(json!({"type": "session.resume", "session_id": session}))
        .await;
    socket.until_event("session.resumed").await;
    socket
        .send(json!({"type": "player.say", "session_id": session, "key": "k1", "text": "something else"}))
        .await;
    assert_eq!(socket.error_code().await, "idempotency_mismatch");
    assert_eq!(client.get(&turns).await["items"].as_array().unwrap().len(), 1);
}
