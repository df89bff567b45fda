//! Edge cases of the wire: conditions, refused text, keys, cursors, and closed or deleted objects.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{HttpTestClient, HttpTestServer, json_of};

/// Returns the status and body of a call with one additional header.
async fn with_header(
    client: &HttpTestClient,
    method: Method,
    path: &str,
    header: (&str, &str),
    body: Option<&Value>,
) -> (u16, Value) {
    let mut request = client.request(method, path).header(header.0, header.1);
    if let Some(body) = body {
        request = request.json(body);
    }
    let (status, answer) = json_of(request.send().await.unwrap()).await;
    (status.as_u16(), answer)
}

fn sample_fact() -> Value {
    json!({"subject": "player", "predicate": "likes", "object": "grapes", "content": "The player likes grapes.",
        "keywords": ["grape"], "kind": "preference"})
}

#[actix_web::test]
async fn deletions_are_conditional_and_existing_objects_are_not_created_again() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let npc = json!({"name": "Ergen"});
    let (status, answer) = with_header(
        &client,
        Method::PUT,
        "/v1/worlds/vale/npcs/ergen",
        ("if-none-match", "*"),
        Some(&npc),
    )
    .await;
    assert_eq!((status, &answer["param"]), (412, &json!("If-None-Match")), "{answer}");
    let put = |path: &'static str, tag: &'static str, body: Value| {
        let client = client.clone();
        async move {
            with_header(&client, Method::PUT, path, ("if-none-match", tag), Some(&body))
                .await
                .0
        }
    };
    assert_eq!(put("/v1/worlds/vale", "*", json!({"name": "Vale"})).await, 412);
    assert_eq!(put("/v1/worlds/moor", "\"1\"", json!({"name": "Moor"})).await, 400);
    assert_eq!(put("/v1/worlds/moor", "*", json!({"name": "Moor"})).await, 201);
    assert_eq!(put("/v1/worlds/moor/npcs/tomas", "*", npc.clone()).await, 201);
    let both = client
        .request(Method::PUT, "/v1/worlds/moor")
        .header("if-none-match", "*")
        .header("if-match", "*");
    assert_eq!(both.json(&json!({"name": "Moor"})).send().await.unwrap().status(), 400);
    // No object ever has version 0.
    let zero = with_header(
        &client,
        Method::PUT,
        "/v1/worlds/fen",
        ("if-match", "\"0\""),
        Some(&json!({"name": "Fen"})),
    )
    .await;
    assert_eq!(zero.0, 412);

    let fact = client.post("/v1/worlds/vale/npcs/ergen/facts", &sample_fact()).await;
    let fact = format!("/v1/facts/{}", fact["id"].as_str().unwrap());
    let restore = format!("{fact}:restore");
    for (method, path) in [
        (Method::DELETE, "/v1/worlds/vale"),
        (Method::DELETE, "/v1/worlds/vale/npcs/ergen"),
        (Method::DELETE, fact.as_str()),
        (Method::POST, restore.as_str()),
    ] {
        let stale = with_header(&client, method.clone(), path, ("if-match", "\"7\""), None).await;
        assert_eq!(
            (stale.0, &stale.1["code"]),
            (412, &json!("version_mismatch")),
            "{method} {path}"
        );
        let broken = with_header(&client, method.clone(), path, ("if-match", "7"), None).await;
        assert_eq!(broken.0, 400, "{method} {path}");
    }
    assert_eq!(client.get(&fact).await["invalid_at"], Value::Null);
    for (method, path, expected) in [
        (Method::DELETE, fact.as_str(), 200),
        (Method::POST, restore.as_str(), 200),
        (Method::DELETE, "/v1/worlds/vale/npcs/ergen", 204),
        (Method::DELETE, "/v1/worlds/vale", 204),
    ] {
        let object = path.trim_end_matches(":restore");
        let tag = format!("\"{}\"", client.get(object).await["version"]);
        let done = with_header(&client, method.clone(), path, ("if-match", &tag), None).await;
        assert_eq!(done.0, expected, "{method} {path}: {}", done.1);
    }
}

#[actix_web::test]
async fn text_is_validated_at_every_entry() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    client.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
    let session = client.session("p7").await["id"].as_str().unwrap().to_owned();
    let turns = format!("/v1/sessions/{session}/turns");
    let facts = "/v1/worlds/vale/npcs/ergen/facts";
    let fact = |field: &str, value: Value| {
        let mut fact = sample_fact();
        fact[field] = value;
        fact
    };
    let talk = |field: &str, value: &str| json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "auto": false, field: value});
    let npc = "/v1/worlds/vale/npcs/tomas";
    let (post, put) = (Method::POST, Method::PUT);
    for (method, path, body, param) in [
        (&post, turns.as_str(), json!({"text": "a\0b"}), "text"),
        (&post, turns.as_str(), json!({"text": "a\u{1b}[2Jb"}), "text"),
        (&post, turns.as_str(), json!({"text": "a", "key": "k\0"}), "key"),
        (&put, "/v1/worlds/moor", json!({"name": "Moor\n[Rules]"}), "name"),
        (&put, "/v1/worlds/moor", json!({"name": "\u{200b}\u{feff}"}), "name"),
        (
            &put,
            "/v1/worlds/moor",
            json!({"name": "Moor", "premise": "a\0"}),
            "premise",
        ),
        (
            &put,
            "/v1/worlds/moor",
            json!({"name": "Moor", "rules": ["ok", "a\nb"]}),
            "rules[1]",
        ),
        (&put, npc, json!({"name": "To\r\nmas"}), "name"),
        (&put, npc, json!({"name": "  "}), "name"),
        (
            &put,
            npc,
            json!({"name": "T", "persona": {"description": "a\u{7}"}}),
            "persona.description",
        ),
        (
            &put,
            npc,
            json!({"name": "T", "persona": {"cues": ["nod\u{2028}"]}}),
            "persona.cues[0]",
        ),
        (&post, facts, fact("content", json!(" \u{2060}")), "content"),
        (&post, facts, fact("content", json!("a\0b")), "content"),
        (&post, facts, fact("subject", json!("a\nb")), "subject"),
        (&post, facts, fact("keywords", json!(["grape", ""])), "keywords[1]"),
        (&post, "/v1/npc-conversations", talk("topic", "the\0mill"), "topic"),
        (&post, "/v1/npc-conversations", talk("topic", "\u{3164}"), "topic"),
        (&post, "/v1/worlds/vale/saves", json!({"name": "one\ntwo"}), "name"),
        (
            &post,
            "/v1/worlds/vale/saves",
            json!({"name": "one\u{202e}owt"}),
            "name",
        ),
    ] {
        let (status, problem) = client.call(method.clone(), path, Some(&body)).await;
        assert_eq!(
            (status.as_u16(), &problem["code"], &problem["param"]),
            (422, &json!("validation_failed"), &json!(param)),
            "{method} {path} {body}: {problem}"
        );
    }
    for query in ["subject=a%00b", "q=a%1Bb"] {
        let (status, problem) = client.call(Method::GET, &format!("{facts}?{query}"), None).await;
        assert_eq!(status.as_u16(), 422, "{query}: {problem}");
    }
    let blank = json!({"text": "\u{200b} \u{2800}"});
    assert_eq!(
        client.status_and_code(Method::POST, &turns, Some(&blank)).await,
        (422, "line_empty".to_owned())
    );
    // Line breaks and tabs are ordinary text.
    let turn = client.post(&turns, &json!({"text": "one\r\n\ttwo 👩‍👧"})).await;
    assert_eq!(turn["player_text"], "one\r\n\ttwo 👩‍👧");
    let mut socket = server.socket(&client.token).await;
    socket
        .send(json!({"type": "session.resume", "session_id": session}))
        .await;
    socket.until_event("session.resumed").await;
    socket
        .send(json!({"type": "player.say", "session_id": session, "text": "a\0b"}))
        .await;
    let told = socket.next().await.unwrap();
    assert_eq!(told["error"]["errors"][0]["param"], "text", "{told}");
    assert_eq!(client.get(&turns).await["items"].as_array().unwrap().len(), 1);
}

#[actix_web::test]
async fn deleted_npc_accepts_no_line_and_returns_with_its_memory() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let fact = client.post("/v1/worlds/vale/npcs/ergen/facts", &sample_fact()).await;
    let fact = format!("/v1/facts/{}", fact["id"].as_str().unwrap());
    let mut shared = sample_fact();
    shared["knowers"] = json!(["npc:ergen", "faction:smiths"]);
    let shared = client.post("/v1/worlds/vale/npcs/ergen/facts", &shared).await;
    let shared = format!("/v1/facts/{}", shared["id"].as_str().unwrap());
    let (npc, world) = (json!({"name": "Ergen"}), json!({"name": "Vale"}));
    for (path, body, still_shared) in [
        ("/v1/worlds/vale/npcs/ergen", &npc, 200),
        ("/v1/worlds/vale", &world, 404),
    ] {
        client.put("/v1/worlds/vale/npcs/ergen", &npc).await;
        let session = client.session("p7").await["id"].as_str().unwrap().to_owned();
        let turns = format!("/v1/sessions/{session}/turns");
        client.post(&turns, &json!({"text": "hello"})).await;
        client.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
        let talk = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "auto": false});
        let talk = client.post("/v1/npc-conversations", &talk).await;
        let step = format!("/v1/npc-conversations/{}:step", talk["id"].as_str().unwrap());
        client.post(&step, &json!({})).await;
        assert_eq!(client.call(Method::DELETE, path, None).await.0, 204);
        assert_eq!(
            client.status_and_code(Method::POST, &step, None).await,
            (409, "conversation_ended".to_owned()),
            "{path}"
        );
        assert_eq!(
            client
                .status_and_code(Method::POST, &turns, Some(&json!({"text": "still there?"})))
                .await,
            (409, "session_closed".to_owned()),
            "{path}"
        );
        for (method, path) in [
            (Method::GET, fact.clone()),
            (Method::GET, format!("{fact}/history")),
            (Method::DELETE, fact.clone()),
            (Method::POST, format!("{fact}:restore")),
        ] {
            assert_eq!(
                client.status_and_code(method.clone(), &path, None).await.0,
                404,
                "{method} {path}"
            );
        }
        assert_eq!(client.call(Method::GET, &shared, None).await.0, still_shared, "{path}");
        client.put(path, body).await;
    }
    client.put("/v1/worlds/vale/npcs/ergen", &npc).await;
    assert_eq!(client.get(&fact).await["invalid_at"], Value::Null);
    let known = client.get("/v1/worlds/vale/npcs/ergen/facts").await;
    assert_eq!(known["items"].as_array().unwrap().len(), 2, "{known}");
}

#[actix_web::test]
async fn idempotency_keys_in_header_and_body_must_match() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let session = client.session("p7").await["id"].as_str().unwrap().to_owned();
    let turns = format!("/v1/sessions/{session}/turns");
    let save = client.post("/v1/worlds/vale/saves", &json!({})).await;
    let restore = format!("/v1/worlds/vale/saves/{}:restore", save["id"].as_str().unwrap());
    for (path, body) in [
        (&turns, json!({"text": "hello", "key": "k2"})),
        (&restore, json!({"key": "k2"})),
        (&format!("/v1/sessions/{session}:regenerate"), json!({"key": "k2"})),
        (&format!("/v1/sessions/{session}:resume"), json!({"key": "k2"})),
    ] {
        let header = ("idempotency-key", "k1");
        let (status, problem) = with_header(&client, Method::POST, path, header, Some(&body)).await;
        assert_eq!((status, &problem["param"]), (422, &json!("key")), "{path}: {problem}");
    }
    assert_eq!(client.get(&turns).await["items"], json!([]));
    let body = json!({"text": "hello", "key": "k1"});
    let same = with_header(&client, Method::POST, &turns, ("idempotency-key", "k1"), Some(&body)).await;
    let again = with_header(
        &client,
        Method::POST,
        &turns,
        ("idempotency-key", "k1"),
        Some(&json!({"text": "hello"})),
    )
    .await;
    assert_eq!((same.0, &same.1["id"]), (200, &again.1["id"]), "{}", same.1);
}

#[actix_web::test]
async fn line_addresses_a_participant_and_its_key_belongs_to_it() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    for npc in ["mira", "tomas"] {
        let path = format!("/v1/worlds/vale/npcs/{npc}");
        client.put(&path, &json!({"name": npc})).await;
    }
    let body = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "player_id": "p7"});
    let session = client.post("/v1/sessions", &body).await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let turns = format!("/v1/sessions/{session}/turns");
    let line = |to: &str| json!({"text": "hello", "to": to, "key": "k1"});
    let (status, problem) = client.call(Method::POST, &turns, Some(&line("tomas"))).await;
    assert_eq!((status.as_u16(), &problem["param"]), (422, &json!("to")), "{problem}");
    assert_eq!(problem["detail"], "to: tomas takes no part in this session");
    let first = client.post(&turns, &line("mira")).await;
    assert_eq!(first["npc_id"], "mira");
    for body in [line("mira"), json!({"text": "hello", "key": "k1"})] {
        assert_eq!(client.post(&turns, &body).await, first);
    }
    let other = (422, "idempotency_mismatch".to_owned());
    assert_eq!(
        client.status_and_code(Method::POST, &turns, Some(&line("ergen"))).await,
        other
    );

    // The same holds while the line is being answered.
    let mut socket = server.socket(&client.token).await;
    socket
        .send(json!({"type": "session.resume", "session_id": session}))
        .await;
    socket.until_event("session.resumed").await;
    let say = |to: &str| json!({"type": "player.say", "session_id": session, "text": "STALL", "to": to, "key": "k2"});
    socket.send(say("mira")).await;
    socket.until_event("reply.delta").await;
    socket.send(say("ergen")).await;
    assert_eq!(socket.error_code().await, "idempotency_mismatch");
    socket.send(say("tomas")).await;
    assert_eq!(socket.error_code().await, "validation_failed");
    socket
        .send(json!({"type": "player.interrupt", "session_id": session}))
        .await;
    socket.until_event("turn.committed").await;
    assert_eq!(client.get(&turns).await["items"].as_array().unwrap().len(), 2);
}

#[actix_web::test]
async fn fact_knowers_must_exist() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let facts = "/v1/worlds/vale/npcs/ergen/facts";
    let mut fact = sample_fact();
    fact["knowers"] = json!(["npc:ergen", "npc:nobody", "npc:noone"]);
    let (status, problem) = client.call(Method::POST, facts, Some(&fact)).await;
    assert_eq!(status, 422, "{problem}");
    let told: Vec<_> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["detail"])
        .collect();
    assert_eq!(told.len(), 2, "{problem}");
    assert_eq!(told[0], "there is no NPC nobody in this world");
    assert_eq!(client.get(facts).await["items"], json!([]));
    fact["knowers"] = json!(["npc:ergen", "faction:anybody", "world"]);
    client.post(facts, &fact).await;
}

#[actix_web::test]
async fn cursor_must_be_one_that_was_issued() {
    let server = HttpTestServer::start();
    let client = server.as_role(Role::Admin);
    server.start_demo_world().await;
    client.session("p7").await;
    for (list, other) in [
        ("/v1/worlds", ""),
        ("/v1/worlds/vale/npcs", ""),
        ("/v1/worlds/vale/npcs/ergen/facts", "fact_00000000000000000000000000"),
        ("/v1/worlds/vale/saves", ""),
        ("/v1/sessions", "ses_00000000000000000000000000"),
        ("/v1/npc-conversations", "ses_00000000000000000000000000"),
        ("/v1/jobs", ""),
        ("/v1/audit", ""),
    ] {
        for cursor in ["No Cursor", "", other] {
            let path = format!("{list}?after={}", cursor.replace(' ', "%20"));
            let (status, problem) = client.call(Method::GET, &path, None).await;
            assert_eq!(
                (status.as_u16(), &problem["param"]),
                (422, &json!("after")),
                "{path}: {problem}"
            );
        }
    }
}

#[actix_web::test]
async fn operations_without_options_reject_a_body() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    client.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
    let body = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "auto": false});
    let talk = client.post("/v1/npc-conversations", &body).await;
    let talk = format!("/v1/npc-conversations/{}", talk["id"].as_str().unwrap());
    let fact = client.post("/v1/worlds/vale/npcs/ergen/facts", &sample_fact()).await;
    let fact = format!("/v1/facts/{}", fact["id"].as_str().unwrap());
    for path in [
        format!("{talk}:step"),
        format!("{talk}:resume"),
        format!("{fact}:restore"),
        "/v1/jobs/job_00000000000000000000000000:retry".to_owned(),
    ] {
        let (status, problem) = client.call(Method::POST, &path, Some(&json!({"bogus": 1}))).await;
        assert_eq!(
            (status.as_u16(), &problem["param"]),
            (422, &json!("bogus")),
            "{path}: {problem}"
        );
    }
    for body in [None, Some(json!({}))] {
        let resumed = client
            .call(Method::POST, &format!("{talk}:resume"), body.as_ref())
            .await;
        assert_eq!(resumed.0, 200, "{}", resumed.1);
    }
}

#[actix_web::test]
async fn closed_dialogue_can_be_closed_again() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    client.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
    let session = client.session("p7").await["id"].as_str().unwrap().to_owned();
    let body = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "auto": false});
    let talk = client.post("/v1/npc-conversations", &body).await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    for path in [
        format!("/v1/sessions/{session}"),
        format!("/v1/npc-conversations/{talk}"),
    ] {
        for _ in 0..2 {
            assert_eq!(client.call(Method::DELETE, &path, None).await.0, 204, "{path}");
        }
        assert_eq!(client.get(&path).await["status"], "closed");
    }
}

#[actix_web::test]
async fn listeners_of_a_conversation_are_hidden_from_players() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    client.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
    client
        .put("/v1/worlds/vale/npcs/tomas", &json!({"name": "Tomas"}))
        .await;
    let body = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "auto": false, "watchers": ["p7", "p8"],
        "witnesses": ["tomas"], "factions": ["smiths"]});
    let talk = client.post("/v1/npc-conversations", &body).await;
    let path = format!("/v1/npc-conversations/{}", talk["id"].as_str().unwrap());
    let seen = client.get(&path).await;
    for field in ["watchers", "witnesses", "factions"] {
        assert_eq!((&talk[field], &seen[field]), (&body[field], &body[field]), "{field}");
    }
    let seen = server.as_role(Role::Player).get(&path).await;
    assert_eq!(seen["npc_ids"], body["npc_ids"]);
    for field in ["watchers", "witnesses", "factions"] {
        assert!(seen.get(field).is_none(), "{field} is in {seen}");
    }
}

#[actix_web::test]
async fn name_contains_no_invisible_characters() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let hidden = "Er\u{fe0f}gen";
    let mut of_nobody = sample_fact();
    of_nobody["subject"] = json!(hidden);
    let items = json!({"name": "Vale", "settings": {"items": [hidden]}});
    for (method, path, body, field) in [
        (Method::PUT, "/v1/worlds/moor", json!({"name": hidden}), "name"),
        (Method::PUT, "/v1/worlds/moor", items, "settings.items[0]"),
        (
            Method::PUT,
            "/v1/worlds/vale/npcs/tomas",
            json!({"name": hidden}),
            "name",
        ),
        (Method::POST, "/v1/worlds/vale/npcs/ergen/facts", of_nobody, "subject"),
    ] {
        let (status, answer) = json_of(client.request(method, path).json(&body).send().await.unwrap()).await;
        let told = &answer["errors"][0];
        assert_eq!((status.as_u16(), &told["param"]), (422, &json!(field)), "{answer}");
        assert_eq!(told["detail"], "has the character U+FE0F, which nobody sees");
    }
    // An emoji with U+FE0F is visible, so the character is allowed there.
    for (object, status) in [("a red \u{2764}\u{fe0f}", 201), (hidden, 422)] {
        let mut fact = sample_fact();
        fact["object"] = json!(object);
        let facts = client.request(Method::POST, "/v1/worlds/vale/npcs/ergen/facts");
        let (told, answer) = json_of(facts.json(&fact).send().await.unwrap()).await;
        assert_eq!(told.as_u16(), status, "{answer}");
        assert!(status == 422 || answer["object"] == object, "{answer}");
    }
}

#[actix_web::test]
async fn verb_offers_its_methods_alone() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let npc = json!({"name": "Ergen"});
    for (method, path, allow) in [
        (Method::PUT, "/v1/worlds/vale/npcs/ergen:import", "POST"),
        (Method::PUT, "/v1/worlds/vale/npcs/ergen:export", "GET, POST"),
        (Method::DELETE, "/v1/worlds/vale/npcs/ergen:export", "GET, POST"),
    ] {
        let request = client.request(method.clone(), path).json(&npc);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 405, "{method} {path}");
        let allowed = answer.headers()["allow"].to_str().unwrap();
        assert_eq!(allowed.to_uppercase(), allow, "{method} {path}");
    }
    // A colon alone makes no verb.
    let unknown = client
        .status_and_code(Method::PUT, "/v1/worlds/vale/npcs/a:b", Some(&npc))
        .await;
    assert_eq!(unknown, (422, "validation_failed".to_owned()));
}

#[actix_web::test]
async fn query_and_upgrade_are_checked_as_documented() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    for (query, status) in [
        (format!("who={}", "x".repeat(200)), 200),
        (format!("who={}", "x".repeat(201)), 422),
        (format!("place={}", "x".repeat(65)), 422),
    ] {
        let path = format!("/v1/worlds/vale/state?{query}");
        let answer = client.call(Method::GET, &path, None).await;
        assert_eq!(answer.0.as_u16(), status, "{query}: {}", answer.1);
    }
    // A caller without a token is told so first, whether the request is an upgrade or not.
    for path in ["/v1/ws?ticket=x", "/v1/ws"] {
        let request = reqwest::Client::new().get(format!("http://{}{path}", server.address));
        assert_eq!(request.send().await.unwrap().status().as_u16(), 401, "{path}");
    }
}
