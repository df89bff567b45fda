//! Tokens bound to a world, and read-only tokens.

use std::time::Duration;

use colloquy::{
    http::docs,
    ids::DialogueKind,
    ports::ledger::dialogues::{Dialogue, DialogueOptions, DialogueStatus},
    tenancy::{Role, TenantScope},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    harness::{HttpTestClient, HttpTestServer, HttpTestSocket},
    roles::{is_picture_missing, sample_body},
};

/// The objects of the world `vale`, by path parameter.
struct WorldObjects(Vec<(&'static str, String)>);

impl WorldObjects {
    async fn make(server: &HttpTestServer) -> (Self, HttpTestClient) {
        let backend = server.start_demo_world().await;
        backend.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
        backend.put("/v1/worlds/elsewhere", &json!({"name": "Elsewhere"})).await;
        let id = |made: Value| made["id"].as_str().unwrap().to_owned();
        let session = id(backend.session("p7").await);
        backend
            .post(&format!("/v1/sessions/{session}/turns"), &json!({"text": "hello"}))
            .await;
        let conversation = id(backend
            .post("/v1/npc-conversations", &sample_body("/v1/npc-conversations"))
            .await);
        let facts = "/v1/worlds/{world}/npcs/{npc}/facts";
        let fact = id(backend
            .post("/v1/worlds/vale/npcs/ergen/facts", &sample_body(facts))
            .await);
        let save = id(backend.post("/v1/worlds/vale/saves", &json!({})).await);
        let lore = sample_body("/v1/worlds/{world}/lore/{lore}");
        backend.put("/v1/worlds/vale/lore/well", &lore).await;
        let directive = sample_body("/v1/worlds/{world}/directives/{directive}");
        backend.put("/v1/worlds/vale/directives/well", &directive).await;
        let scenario = "/v1/worlds/{world}/npcs/{npc}/scenarios/{scenario}";
        backend
            .put("/v1/worlds/vale/npcs/ergen/scenarios/well", &sample_body(scenario))
            .await;
        let job = id(backend.get("/v1/jobs").await["items"][0].clone());
        let named = vec![
            ("{world}", "vale".to_owned()),
            ("{npc}", "ergen".to_owned()),
            ("/episodes", "/episodes?player_id=p7".to_owned()),
            ("{scenario}", "well".to_owned()),
            ("{lore}", "well".to_owned()),
            ("{directive}", "well".to_owned()),
            ("{player}", "p7".to_owned()),
            ("{turn}", "1".to_owned()),
            ("{session}", session),
            ("{conversation}", conversation),
            ("{fact}", fact),
            ("{save}", save),
            ("{job}", job),
            // No NPC of this server asks for an action (see `e2e::actions`).
            ("{action}", "act_00000000000000000000000000".to_owned()),
            // The fact has no flag (see `e2e::flags`).
            ("{flag}", "pii".to_owned()),
            // No pass has run (see `e2e::curation`).
            ("{finding}", "find_00000000000000000000000000".to_owned()),
            ("{insight}", "ins_00000000000000000000000000".to_owned()),
        ];
        (Self(named), backend)
    }
    fn concrete_path(&self, path: &str) -> String {
        let all = self.0.iter();
        all.fold(path.to_owned(), |path, (name, value)| path.replace(name, value))
    }
    fn get(&self, name: &str) -> &str {
        &self.0.iter().find(|(other, _)| *other == name).unwrap().1
    }
}

fn bound_client(server: &HttpTestServer, role: Role, world: &str) -> HttpTestClient {
    server.client(token(server, role, world))
}

fn token(server: &HttpTestServer, role: Role, world: &str) -> String {
    server.token_for("acme", role, None, Some(world), Duration::from_mins(10))
}

/// Operations without a world in the path, limited to the token's world.
const KEEP_TO_WORLD: [(&str, &str); 7] = [
    ("post", "/v1/tickets"),
    ("post", "/v1/tokens"),
    ("get", "/v1/worlds"),
    ("get", "/v1/sessions"),
    ("post", "/v1/sessions"),
    ("get", "/v1/npc-conversations"),
    ("post", "/v1/npc-conversations"),
];

#[actix_web::test]
async fn world_token_is_rejected_outside_its_world() {
    let server = HttpTestServer::start();
    let (vale, _) = WorldObjects::make(&server).await;
    let mut walked = 0;
    for (role, name) in [(Role::Backend, "backend"), (Role::Viewer, "viewer")] {
        let (outside, inside) = (
            bound_client(&server, role, "elsewhere"),
            bound_client(&server, role, "vale"),
        );
        for (path, item) in docs::openapi_document()["paths"].as_object().unwrap() {
            if !path.starts_with("/v1/") || path == "/v1/ws" {
                continue;
            }
            for (method, operation) in item.as_object().unwrap() {
                let roles = operation["x-roles"].as_array().unwrap();
                if !roles.iter().any(|role| role == name) {
                    continue;
                }
                let body = operation["requestBody"].is_object().then(|| sample_body(path));
                let concrete = vale.concrete_path(path);
                let verb: Method = method.to_uppercase().parse().unwrap();
                let (status, answer) = outside.call(verb.clone(), &concrete, body.as_ref()).await;
                let what = format!("{verb} {concrete} as a {name} of elsewhere: {status} {answer}");
                let keeps = KEEP_TO_WORLD.contains(&(method.as_str(), path.as_str()));
                if path.contains('{') {
                    assert_eq!(status, 404, "{what}");
                } else if keeps {
                    match (method.as_str(), path.as_str()) {
                        ("get", "/v1/worlds") => assert_eq!(answer["items"][0]["id"], "elsewhere", "{what}"),
                        ("get", _) => assert_eq!(answer["items"], json!([]), "{what}"),
                        ("post", "/v1/tickets" | "/v1/tokens") => assert_eq!(status, 201, "{what}"),
                        _ => assert_eq!((status.as_u16(), &answer["param"]), (404, &json!("world_id")), "{what}"),
                    }
                } else {
                    assert_eq!(status, 403, "{what}");
                }
                // A deletion would remove objects of the other calls.
                if method != "delete" {
                    let (status, answer) = inside.call(verb.clone(), &concrete, body.as_ref()).await;
                    let what = format!("{verb} {concrete} as a {name} of vale: {status} {answer}");
                    let told = ["job_not_dead", "nothing_to_resume"].map(Value::from);
                    if [
                        "{action}",
                        "{finding}",
                        "{flag}",
                        "curation:run",
                        "{conversation}/turns/{turn}",
                    ]
                    .iter()
                    .any(|part| path.contains(part))
                    {
                        assert_eq!(status, 404, "{what}");
                    } else if path.contains('{') || keeps {
                        let no_picture = is_picture_missing(path, status, &answer);
                        assert!(
                            status.is_success() || told.contains(&answer["code"]) || no_picture,
                            "{what}"
                        );
                    } else {
                        assert_eq!(status, 403, "{what}");
                    }
                }
                walked += 1;
            }
        }
    }
    assert!(walked >= 60, "only {walked} operations were walked");
}

#[actix_web::test]
async fn world_backend_admits_players_to_its_world_only() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let backend = bound_client(&server, Role::Backend, "vale");
    for body in [
        json!({"player_id": "p7"}),
        json!({"player_id": "p7", "world_id": "vale"}),
    ] {
        let made = backend.post("/v1/tokens", &body).await;
        let who = server
            .state
            .auth
            .verify_token(made["token"].as_str().unwrap())
            .await
            .unwrap();
        assert_eq!(who.world.unwrap().as_str(), "vale");
    }
    let elsewhere = json!({"player_id": "p7", "world_id": "elsewhere"});
    assert_eq!(
        backend
            .status_and_code(Method::POST, "/v1/tokens", Some(&elsewhere))
            .await
            .0,
        404
    );
}

async fn rejected_message(socket: &mut HttpTestSocket, message: Value) -> String {
    socket.send(message).await;
    socket.error_code().await
}

#[actix_web::test]
async fn socket_is_bound_like_its_token() {
    let server = HttpTestServer::start();
    let (vale, _) = WorldObjects::make(&server).await;
    let (session, conversation) = (vale.get("{session}"), vale.get("{conversation}"));
    let mut outside = server.socket(&token(&server, Role::Backend, "elsewhere")).await;
    for message in [
        json!({"type": "session.create", "world_id": "vale", "npc_id": "ergen", "player_id": "p7"}),
        json!({"type": "session.resume", "session_id": session}),
        json!({"type": "player.say", "session_id": session, "text": "hello"}),
        json!({"type": "npc_conversation.watch", "conversation_id": conversation}),
        json!({"type": "npc_conversation.interrupt", "conversation_id": conversation}),
    ] {
        assert_eq!(
            rejected_message(&mut outside, message.clone()).await,
            "not_found",
            "{message}"
        );
    }
    let mut inside = server.socket(&token(&server, Role::Backend, "vale")).await;
    inside
        .send(json!({"type": "session.resume", "session_id": session}))
        .await;
    inside.until_event("session.resumed").await;
}

#[actix_web::test]
async fn viewer_watches_and_changes_nothing() {
    let server = HttpTestServer::start();
    let (vale, backend) = WorldObjects::make(&server).await;
    let made = backend.session("p7").await;
    let (session, resume_token) = (made["id"].as_str().unwrap(), made["resume_token"].as_str().unwrap());
    let conversation = vale.get("{conversation}");
    let mut socket = server.socket(&server.token("acme", Role::Viewer, None)).await;
    for message in [
        json!({"type": "session.create", "world_id": "vale", "npc_id": "ergen", "player_id": "p7"}),
        json!({"type": "session.resume", "session_id": session, "resume_token": resume_token}),
        json!({"type": "player.say", "session_id": session, "text": "hello"}),
        json!({"type": "player.interrupt", "session_id": session}),
        json!({"type": "player.regenerate", "session_id": session}),
        json!({"type": "player.resume", "session_id": session}),
        json!({"type": "reply.played", "session_id": session, "turn": 1}),
        json!({"type": "session.close", "session_id": session}),
        json!({"type": "npc_conversation.interrupt", "conversation_id": conversation}),
    ] {
        assert_eq!(
            rejected_message(&mut socket, message.clone()).await,
            "forbidden",
            "{message}"
        );
    }
    socket
        .send(json!({"type": "npc_conversation.watch", "conversation_id": conversation}))
        .await;
    socket.until_event("npc_conversation.created").await;
    socket
        .send(json!({"type": "session.resume", "session_id": session, "include": ["memory.updated"]}))
        .await;
    socket.until_event("session.resumed").await;
    backend
        .post(&format!("/v1/sessions/{session}/turns"), &json!({"text": "hello"}))
        .await;
    assert_eq!(socket.until_event("turn.committed").await["turn"], 1);
    // A viewer may not speak in an open session either.
    let say = json!({"type": "player.say", "session_id": session, "text": "hello"});
    assert_eq!(rejected_message(&mut socket, say).await, "forbidden");
}

#[actix_web::test]
async fn viewer_cannot_resume_a_conversation() {
    let server = HttpTestServer::start();
    let (_, backend) = WorldObjects::make(&server).await;
    let services = &server.state.services;
    // The state after a restart: the dialogue exists only in the ledger.
    let asleep = Dialogue {
        id: services.ids.next_dialogue_id(DialogueKind::NpcConversation),
        world: "vale".parse().unwrap(),
        npcs: vec!["ergen".parse().unwrap(), "mira".parse().unwrap()],
        player: None,
        witnesses: Vec::new(),
        resume_token_hash: Vec::new(),
        status: DialogueStatus::Open,
        options: DialogueOptions {
            auto: true,
            ..DialogueOptions::default()
        },
        cause: None,
        created_at: services.clock.now(),
        updated_at: services.clock.now(),
        head_turn: 0,
    };
    let scope = TenantScope::new("acme".parse().unwrap());
    services
        .ledger
        .dialogues
        .create_dialogue(&scope, &asleep)
        .await
        .unwrap();
    let watch = json!({"type": "npc_conversation.watch", "conversation_id": asleep.id});
    let mut viewer = server.socket(&server.token("acme", Role::Viewer, None)).await;
    for _ in 0..2 {
        viewer.send(watch.clone()).await;
        let created = viewer.until_event("npc_conversation.created").await;
        assert_eq!((&created["auto"], &created["head_turn"]), (&json!(true), &json!(0)));
        // Waits long enough for a line to begin.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    viewer.send(json!({"type": "ping", "t": 1})).await;
    assert_eq!(viewer.next().await.unwrap()["type"], "pong", "nothing was begun");
    backend.get(&format!("/v1/npc-conversations/{}", asleep.id)).await;
    assert_eq!(viewer.until_event("npc_turn.started").await["turn"], 1);
}
