//! Every operation of the document, with every role. Roles outside the stated list are refused, and stated roles are
//! not.

use colloquy::{http::docs, tenancy::Role};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::harness::HttpTestServer;

const ROLES: [(Role, &str); 5] = [
    (Role::Operator, "operator"),
    (Role::Admin, "admin"),
    (Role::Backend, "backend"),
    (Role::Viewer, "viewer"),
    (Role::Player, "player"),
];

/// Returns a valid body for an operation, so that a refusal is due to the role.
pub(super) fn sample_body(path: &str) -> Value {
    match path {
        "/v1/tokens:revoke" => json!({"jti": "of-nobody"}),
        "/v1/tenants" => json!({"id": "newcomer"}),
        "/v1/tokens" | "/v1/npc-conversations/{conversation}:join" => json!({"player_id": "p7"}),
        // A public address, which needs no look-up.
        "/v1/webhooks" => json!({"url": "https://1.1.1.1/hook"}),
        "/v1/webhooks/{webhook}:replay" => json!({"since": "2026-01-31T12:00:00Z"}),
        "/v1/chat-models" => json!({"models": []}),
        "/v1/worlds/{world}" => json!({"name": "Vale"}),
        "/v1/worlds/{world}/npcs/{npc}" => json!({"name": "Ergen"}),
        "/v1/sessions" => json!({"world_id": "vale", "npc_id": "ergen", "player_id": "p7"}),
        "/v1/npc-conversations" => {
            json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "auto": false, "open": true, "interrupters": "all"})
        }
        "/v1/worlds/{world}/npcs/{npc}/scenarios/{scenario}" => json!({"title": "The well", "content": "It is dry."}),
        "/v1/worlds/{world}/players/{player}/progress/{npc}" => json!({"progress": 1}),
        "/v1/worlds/{world}/lore:import" => json!({"spec": "lorebook_v3", "data": {"entries": []}}),
        "/v1/worlds/{world}/npcs/{npc}:import" => json!({"name": "Wolf", "first_mes": "Hello, grandmother."}),
        "/v1/worlds/{world}/npcs/{npc}:adopt" => json!({"world_id": "vale", "npc_id": "mira"}),
        "/v1/worlds/{world}/directives/{directive}" => json!({"keys": ["world:*"], "instructions": ["Whisper."]}),
        "/v1/worlds/{world}/lore/{lore}" => json!({"name": "Well", "content": "It is dry."}),
        "/v1/worlds/{world}/events" => json!({"events": [{"type": "location", "who": "mira", "to": "the mill"}]}),
        "/v1/worlds/{world}/curation:run" => json!({"dialogue_id": "ses_00000000000000000000000000"}),
        "/v1/worlds/{world}/curation/{finding}:decide" => json!({"decision": "intended"}),
        "/v1/worlds/{world}/flags/{fact}/{flag}:decide" => json!({"decision": "dismissed"}),
        "/v1/sessions/{session}:rewind" => json!({"turn": 1}),
        "/v1/sessions/{session}/turns" | "/v1/sessions/{session}/context" => json!({"text": "hello"}),
        "/v1/worlds/{world}/npcs/{npc}/facts" => json!({
            "subject": "player", "predicate": "likes", "object": "grapes", "content": "The player likes grapes.",
            "kind": "preference"
        }),
        _ => json!({}),
    }
}

/// True if a card could not be put into a picture, because the body is none.
pub fn is_picture_missing(path: &str, status: StatusCode, answer: &Value) -> bool {
    path.ends_with("/npcs/{npc}:export") && status == 422 && answer["param"] == "body"
}

#[actix_web::test]
async fn operations_admit_exactly_their_stated_roles() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    let session = backend.session("p7").await["id"].as_str().unwrap().to_owned();
    let mira = json!({"name": "Mira"});
    backend.put("/v1/worlds/vale/npcs/mira", &mira).await;
    let facts = "/v1/worlds/vale/npcs/ergen/facts";
    let fact = backend
        .post(facts, &sample_body("/v1/worlds/{world}/npcs/{npc}/facts"))
        .await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    backend
        .post(&format!("/v1/sessions/{session}/turns"), &json!({"text": "hello"}))
        .await;
    let save = backend.post("/v1/worlds/vale/saves", &json!({})).await["id"]
        .as_str()
        .unwrap()
        .to_owned();

    let scenario = "/v1/worlds/{world}/npcs/{npc}/scenarios/{scenario}";
    backend
        .put("/v1/worlds/vale/npcs/ergen/scenarios/well", &sample_body(scenario))
        .await;

    let lore = sample_body("/v1/worlds/{world}/lore/{lore}");
    backend.put("/v1/worlds/vale/lore/well", &lore).await;
    let directive = sample_body("/v1/worlds/{world}/directives/{directive}");
    backend.put("/v1/worlds/vale/directives/well", &directive).await;

    let webhook = server
        .as_role(Role::Admin)
        .post("/v1/webhooks", &sample_body("/v1/webhooks"))
        .await["id"]
        .as_str()
        .unwrap()
        .to_owned();

    let mut walked = 0;
    for (path, item) in docs::openapi_document()["paths"].as_object().unwrap() {
        if !path.starts_with("/v1/") || path == "/v1/ws" {
            continue;
        }
        for (method, operation) in item.as_object().unwrap() {
            // A deletion would remove objects of the other calls. A missing id tests the role as well.
            let (world, session) = if method == "delete" {
                ("gone", "ses_00000000000000000000000000")
            } else {
                ("vale", session.as_str())
            };
            // The next call needs a conversation that is neither closed nor joined.
            let conversation = if method == "delete" {
                "con_00000000000000000000000000".to_owned()
            } else if path.contains("{conversation}") {
                let made = backend
                    .post("/v1/npc-conversations", &sample_body("/v1/npc-conversations"))
                    .await;
                made["id"].as_str().unwrap().to_owned()
            } else {
                String::new()
            };
            let concrete = path
                .replace("{conversation}", &conversation)
                .replace("{world}", world)
                .replace("{npc}", "ergen")
                .replace("/episodes", "/episodes?player_id=p7")
                .replace("{tenant}", "rival")
                .replace("{scenario}", "well")
                .replace("{lore}", "well")
                .replace("{directive}", "well")
                .replace("{player}", "p7")
                .replace("{session}", session)
                .replace("{fact}", &fact)
                .replace("{flag}", "pii")
                .replace("{save}", &save)
                .replace(
                    "{webhook}",
                    if method == "delete" {
                        "whk_00000000000000000000000000"
                    } else {
                        &webhook
                    },
                )
                .replace("{job}", "job_00000000000000000000000000")
                .replace("{action}", "act_00000000000000000000000000")
                .replace("{finding}", "find_00000000000000000000000000")
                .replace("{insight}", "ins_00000000000000000000000000")
                .replace("{turn}", "1");
            let stated: Vec<&str> = operation["x-roles"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            for (role, name) in ROLES {
                let body = operation["requestBody"].is_object().then(|| sample_body(path));
                let method: Method = method.to_uppercase().parse().unwrap();
                let (status, answer) = server
                    .as_role(role)
                    .call(method.clone(), &concrete, body.as_ref())
                    .await;
                let what = format!("{method} {concrete} as {name}: {status} {answer}");
                if stated.contains(&name) {
                    // No reply was cut, so permitted callers get `nothing_to_resume`.
                    let nothing = path.ends_with(":resume") && answer["code"] == "nothing_to_resume";
                    // The body is JSON and no picture.
                    let nothing = nothing || is_picture_missing(path, status, &answer);
                    // These name nothing that exists.
                    let unknown = [
                        "{job}",
                        "{action}",
                        "{finding}",
                        "{flag}",
                        "curation:run",
                        "{conversation}/turns/{turn}",
                    ];
                    let is_unknown = method == Method::DELETE || unknown.iter().any(|part| path.contains(part));
                    assert!(nothing || status.is_success() || status == 404 && is_unknown, "{what}");
                } else {
                    assert_eq!(status, 403, "{what}");
                    assert_eq!(answer["code"], "forbidden", "{what}");
                }
                // The document must state the answer's status.
                let told = &operation["responses"][status.as_str()];
                assert!(told.is_object(), "not in the document: {what}");
                walked += 1;
            }
        }
    }
    assert!(walked >= 100, "only {walked} calls were made");
}

#[actix_web::test]
async fn anonymous_callers_reach_only_health_and_documents() {
    let server = HttpTestServer::start();
    let client = server.as_role(Role::Backend);
    for (path, item) in docs::openapi_document()["paths"].as_object().unwrap() {
        for (method, _) in item.as_object().unwrap() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let status = client.anonymous(method.clone(), path).send().await.unwrap().status();
            if path.starts_with("/v1/") {
                assert_eq!(status, 401, "{method} {path}");
            } else {
                assert_eq!(status, 200, "{method} {path}");
            }
        }
    }
}

#[actix_web::test]
async fn tokens_of_disabled_tenants_and_strangers_are_rejected() {
    let server = HttpTestServer::start();
    for tenant in ["closed", "nobody"] {
        let client = server.client(server.token(tenant, Role::Admin, None));
        assert_eq!(
            client.status_and_code(Method::GET, "/v1/worlds", None).await,
            (401, "unauthenticated".to_owned())
        );
    }
    let client = server.client("not.a.token".to_owned());
    assert_eq!(
        client.status_and_code(Method::GET, "/v1/worlds", None).await,
        (401, "unauthenticated".to_owned())
    );
}

#[actix_web::test]
async fn objects_of_other_callers_are_not_found() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    let own = backend.session("p7").await["id"].as_str().unwrap().to_owned();
    let fact = backend
        .post(
            "/v1/worlds/vale/npcs/ergen/facts",
            &sample_body("/v1/worlds/{world}/npcs/{npc}/facts"),
        )
        .await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let rival = server.client(server.token("rival", Role::Admin, None));
    for path in [
        "/v1/worlds/vale".to_owned(),
        "/v1/worlds/vale/npcs/ergen".to_owned(),
        "/v1/worlds/vale/npcs/ergen/facts".to_owned(),
        format!("/v1/sessions/{own}"),
        format!("/v1/sessions/{own}/turns"),
        format!("/v1/sessions/{own}/summaries"),
        format!("/v1/facts/{fact}"),
        format!("/v1/facts/{fact}/history"),
    ] {
        assert_eq!(rival.status_and_code(Method::GET, &path, None).await.0, 404, "{path}");
    }
    let line = json!({"text": "let me in"});
    let turns = format!("/v1/sessions/{own}/turns");
    assert_eq!(rival.status_and_code(Method::POST, &turns, Some(&line)).await.0, 404);
    let other = server.client(server.token("acme", Role::Player, Some("p8")));
    assert_eq!(other.status_and_code(Method::POST, &turns, Some(&line)).await.0, 404);
    assert_eq!(other.status_and_code(Method::GET, &turns, None).await.0, 404);
    let cut = format!("/v1/sessions/{own}:interrupt");
    assert_eq!(other.status_and_code(Method::POST, &cut, Some(&json!({}))).await.0, 404);
    assert_eq!(other.get("/v1/sessions").await["items"], json!([]));
    assert_eq!(other.get("/v1/sessions?player_id=p7").await["items"], json!([]));
    let elsewhere = server.token_for(
        "acme",
        Role::Player,
        Some("p7"),
        Some("otherworld"),
        std::time::Duration::from_mins(1),
    );
    assert_eq!(
        server
            .client(elsewhere)
            .status_and_code(Method::GET, &turns, None)
            .await
            .0,
        404
    );
    assert_eq!(
        server.as_role(Role::Player).get("/v1/sessions").await["items"][0]["id"],
        own
    );
}
