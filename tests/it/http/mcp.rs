//! The Model Context Protocol: negotiation, tools with the rights of their tokens, resources, reviews, and callers that
//! are refused.

use std::time::Duration;

use colloquy::tenancy::Role;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::harness::{HttpTestClient, HttpTestOptions, HttpTestServer, json_of};

const NEWEST: &str = "2026-07-28";
const OLDER: &str = "2025-06-18";

/// Returns a request to `/mcp` with what every client sends.
fn message(client: &HttpTestClient, body: &Value) -> RequestBuilder {
    client
        .request(Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream")
        .json(body)
}

/// Returns the body of a message of the newest revision.
fn newest_body(method: &str, params: &Value) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": NEWEST,
        "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

/// Returns a request of the newest revision, with the headers that it needs.
fn newest(client: &HttpTestClient, method: &str, params: &Value) -> RequestBuilder {
    let request = message(client, &newest_body(method, params))
        .header("mcp-protocol-version", NEWEST)
        .header("mcp-method", method);
    match params["name"].as_str().or_else(|| params["uri"].as_str()) {
        Some(name) => request.header("mcp-name", name),
        None => request,
    }
}

/// Returns the result of a message.
async fn result(client: &HttpTestClient, method: &str, params: Value) -> Value {
    let (status, answer) = json_of(newest(client, method, &params).send().await.unwrap()).await;
    assert_eq!(status, 200, "{method}: {answer}");
    assert_eq!(answer["id"], 7, "{answer}");
    assert!(answer["error"].is_null(), "{method}: {answer}");
    answer["result"].clone()
}

/// Returns the status and the error of a message.
async fn error(client: &HttpTestClient, method: &str, params: Value) -> (StatusCode, Value) {
    let (status, answer) = json_of(newest(client, method, &params).send().await.unwrap()).await;
    assert!(answer["result"].is_null(), "{method}: {answer}");
    (status, answer["error"].clone())
}

async fn call(client: &HttpTestClient, tool: &str, arguments: Value) -> Value {
    result(client, "tools/call", json!({"name": tool, "arguments": arguments})).await
}

/// Returns the structured content of a call that succeeds.
async fn done(client: &HttpTestClient, tool: &str, arguments: Value) -> Value {
    let result = call(client, tool, arguments).await;
    assert_eq!(result["isError"], false, "{tool}: {result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    let structured = result["structuredContent"].clone();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), structured);
    structured
}

/// Returns the code of a call that is refused.
async fn refused(client: &HttpTestClient, tool: &str, arguments: Value) -> String {
    let result = call(client, tool, arguments).await;
    assert_eq!(result["isError"], true, "{tool}: {result}");
    let problem = &result["structuredContent"];
    assert!(
        problem["title"].is_string() && problem["detail"].is_string(),
        "{problem}"
    );
    problem["code"].as_str().unwrap().to_owned()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap()).collect()
}

fn well(content: &str) -> Value {
    json!({"name": "Well", "content": content})
}

#[actix_web::test]
async fn older_revisions_are_negotiated_without_a_session() {
    let server = HttpTestServer::start();
    let backend = server.as_role(Role::Backend);
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": OLDER, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}
    }});
    let response = message(&backend, &initialize).send().await.unwrap();
    assert!(response.headers().get("mcp-session-id").is_none());
    let (status, answer) = json_of(response).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["result"]["protocolVersion"], OLDER);
    assert_eq!(answer["result"]["serverInfo"]["name"], "colloquy");
    for offered in ["tools", "resources", "prompts"] {
        assert!(answer["result"]["capabilities"][offered].is_object(), "{answer}");
    }

    let older = |body: Value| message(&backend, &body).header("mcp-protocol-version", OLDER).send();
    let initialized = older(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(initialized.await.unwrap().status(), 202);
    let ping = older(json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}));
    assert_eq!(json_of(ping.await.unwrap()).await.1["result"], json!({}));
    let tools = older(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"}));
    let listed = json_of(tools.await.unwrap()).await.1;
    assert!(names(&listed["result"]["tools"]).contains(&"put_lore"), "{listed}");
    assert!(listed["result"]["ttlMs"].is_null(), "only newer revisions have it");
}

#[actix_web::test]
async fn newest_revision_needs_no_handshake() {
    let server = HttpTestServer::start();
    let backend = server.as_role(Role::Backend);
    let discovered = result(&backend, "server/discover", json!({})).await;
    let versions = discovered["supportedVersions"].as_array().unwrap();
    assert!(
        versions.contains(&json!(NEWEST)) && versions.contains(&json!(OLDER)),
        "{discovered}"
    );
    let listed = result(&backend, "tools/list", json!({})).await;
    assert_eq!(listed["cacheScope"], "private");
    assert!(listed["ttlMs"].is_u64() && listed["nextCursor"].is_null());
    let (status, unknown) = error(&backend, "worlds/destroy", json!({})).await;
    assert_eq!((status.as_u16(), &unknown["code"]), (404, &json!(-32601)));
    // The method of a header is what a proxy believes.
    let forged = message(&backend, &newest_body("tools/list", &json!({})))
        .header("mcp-protocol-version", NEWEST)
        .header("mcp-method", "ping");
    assert_eq!(forged.send().await.unwrap().status(), 400);
}

#[actix_web::test]
async fn tools_end_in_the_operations_of_rest() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    let put = |content: &str, extra: Value| {
        let mut arguments = json!({"world": "vale", "lore": "well", "body": well(content)});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        arguments
    };
    let tried = done(&backend, "put_lore", put("It is dry.", json!({"dry_run": true}))).await;
    assert_eq!(
        (&tried["version"], &tried["content"]),
        (&json!(1), &json!("It is dry."))
    );
    let address = json!({"world": "vale", "lore": "well"});
    assert_eq!(refused(&backend, "get_lore", address.clone()).await, "not_found");

    let made = call(&backend, "put_lore", put("It is dry.", json!({"if_none_match": "*"}))).await;
    assert_eq!(made["_meta"]["etag"], "\"1\"", "{made}");
    let outdated = put("It is deep.", json!({"if_match": 5}));
    assert_eq!(
        refused(&backend, "put_lore", outdated.clone()).await,
        "version_mismatch"
    );
    let mut outdated_try = outdated;
    outdated_try["dry_run"] = json!(true);
    assert_eq!(refused(&backend, "put_lore", outdated_try).await, "version_mismatch");
    let changed = done(&backend, "put_lore", put("It is deep.", json!({"if_match": 1}))).await;
    assert_eq!(changed["version"], 2);
    assert_eq!(backend.get("/v1/worlds/vale/lore/well").await, changed);
    assert_eq!(done(&backend, "get_lore", address.clone()).await, changed);

    let faulty = json!({"world": "vale", "lore": "well", "body": {"name": "", "colour": "red"}});
    let result = call(&backend, "put_lore", faulty).await;
    let faults = result["structuredContent"]["errors"].as_array().unwrap();
    assert!(faults.iter().any(|fault| fault["param"] == "colour"), "{result}");
    assert_eq!(done(&backend, "delete_lore", address).await, json!({"status": 204}));
}

#[actix_web::test]
async fn dry_runs_store_nothing() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    for (path, body) in [
        ("/v1/worlds/vale", json!({"name": "Vale of ash"})),
        ("/v1/worlds/vale/npcs/ergen", json!({"name": "Ergen the old"})),
        (
            "/v1/worlds/vale/npcs/ergen/scenarios/war",
            json!({"title": "The war", "content": "He fled."}),
        ),
        (
            "/v1/worlds/vale/lore/war",
            json!({"name": "War", "content": "It was long."}),
        ),
        (
            "/v1/worlds/vale/directives/war",
            json!({"keys": ["world:vale"], "instructions": ["Be grim."]}),
        ),
    ] {
        // Each answer of a missing object has a request id of its own.
        let stored_object = async || {
            let (status, object) = backend.call(Method::GET, path, None).await;
            (status == 200).then_some(object)
        };
        let before = stored_object().await;
        let version = before.as_ref().map_or(0, |object| object["version"].as_u64().unwrap());
        let tried = backend.put(&format!("{path}?dry_run=true"), &body).await;
        assert_eq!(tried["version"], version + 1, "{path}: {tried}");
        assert_eq!(stored_object().await, before, "{path}");
    }
    let nowhere = "/v1/worlds/nowhere/lore/war?dry_run=true";
    assert_eq!(
        backend.status_and_code(Method::PUT, nowhere, Some(&well("Dry."))).await,
        (404, "not_found".to_owned())
    );
    let faulty = backend
        .status_and_code(Method::PUT, "/v1/worlds/vale/lore/war?dry_run=true", Some(&json!({})))
        .await;
    assert_eq!(faulty, (422, "validation_failed".to_owned()));
}

#[actix_web::test]
async fn tools_have_the_rights_of_their_token() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    done(
        &backend,
        "put_world",
        json!({"world": "elsewhere", "body": {"name": "Elsewhere"}}),
    )
    .await;

    let viewer = server.as_role(Role::Viewer);
    let listed = result(&viewer, "tools/list", json!({})).await;
    assert!(names(&listed["tools"]).contains(&"get_lore") && !names(&listed["tools"]).contains(&"put_lore"));
    let put = json!({"world": "vale", "lore": "well", "body": well("It is dry.")});
    assert_eq!(refused(&viewer, "put_lore", put.clone()).await, "forbidden");
    assert_eq!(
        done(&viewer, "list_lore", json!({"world": "vale"})).await["items"],
        json!([])
    );

    let player = server.as_role(Role::Player);
    let facts = json!({"world": "vale", "npc": "ergen"});
    assert_eq!(refused(&player, "search_facts", facts).await, "forbidden");
    let operator = server.as_role(Role::Operator);
    assert_eq!(result(&operator, "tools/list", json!({})).await["tools"], json!([]));

    let stranger = server.client(server.token("rival", Role::Admin, None));
    assert_eq!(
        refused(&stranger, "get_world", json!({"world": "vale"})).await,
        "not_found"
    );
    assert_eq!(refused(&stranger, "put_lore", put).await, "not_found");

    let hour = Duration::from_hours(1);
    let bound = server.client(server.token_for("acme", Role::Backend, None, Some("vale"), hour));
    assert_eq!(done(&bound, "get_world", json!({"world": "vale"})).await["id"], "vale");
    assert_eq!(
        refused(&bound, "get_world", json!({"world": "elsewhere"})).await,
        "not_found"
    );
}

#[actix_web::test]
async fn replies_are_made_explained_and_previewed() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    let session = json!({"body": {"world_id": "vale", "npc_id": "ergen", "player_id": "p7"}});
    let session = done(&backend, "create_session", session).await["id"].clone();
    let line = json!({"session": session, "idempotency_key": "k1", "body": {"text": "hello"}});
    let turn = done(&backend, "say_line", line.clone()).await;
    assert_eq!(done(&backend, "say_line", line).await["turn"], turn["turn"]);
    let transcript = done(&backend, "read_transcript", json!({"session": session, "limit": 10})).await;
    assert_eq!(transcript["items"].as_array().unwrap().len(), 1);
    let trace = done(
        &backend,
        "explain_reply",
        json!({"session": session, "turn": turn["turn"]}),
    )
    .await;
    assert!(trace.is_object());
    let preview = json!({"session": session, "body": {"text": "who are you?"}});
    assert!(done(&backend, "preview_prompt", preview).await.is_object());
    let limit = json!({"session": session, "limit": 201});
    assert_eq!(refused(&backend, "read_transcript", limit).await, "validation_failed");
}

#[actix_web::test]
async fn faulty_messages_are_refused() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    let (status, unknown) = error(&backend, "tools/call", json!({"name": "destroy_world"})).await;
    assert_eq!((status.as_u16(), &unknown["code"]), (200, &json!(-32602)));
    let result = call(&backend, "get_lore", json!({"lore": ["well"], "colour": "red"})).await;
    let faults = result["structuredContent"]["errors"].as_array().unwrap();
    let params: Vec<_> = faults.iter().map(|fault| fault["param"].as_str().unwrap()).collect();
    assert_eq!(params, ["world", "lore", "colour"], "{result}");

    let long = "x".repeat(17_000);
    let oversized = newest(
        &backend,
        "tools/call",
        &json!({"name": "get_lore", "arguments": {"world": long}}),
    );
    let (status, answer) = json_of(oversized.send().await.unwrap()).await;
    assert_eq!((status.as_u16(), &answer["code"]), (413, &json!("payload_too_large")));
    let listen = backend
        .request(Method::GET, "/mcp")
        .header("accept", "text/event-stream");
    assert_eq!(listen.send().await.unwrap().status(), 405);
}

#[actix_web::test]
async fn pages_of_browsers_and_callers_without_a_token_are_refused() {
    let server = HttpTestServer::start();
    let backend = server.as_role(Role::Backend);
    let status = async |header: &'static str, value: &'static str| {
        let request = newest(&backend, "tools/list", &json!({})).header(header, value);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("host", "attacker.example").await, 403);
    assert_eq!(status("origin", "http://attacker.example").await, 403);
    assert_eq!(status("origin", "null").await, 403);
    assert_eq!(status("origin", "http://localhost:5173").await, 200);
    assert_eq!(status("host", "localhost:1").await, 200);

    let anonymous = backend
        .anonymous(Method::POST, "/mcp")
        .json(&json!({}))
        .send()
        .await
        .unwrap();
    assert_eq!(anonymous.status(), 401);
    assert_eq!(anonymous.headers()["www-authenticate"], "Bearer");

    let mut options = HttpTestOptions::default();
    options.mcp.enabled = false;
    let server = HttpTestServer::with(options);
    let off = newest(&server.as_role(Role::Backend), "tools/list", &json!({}))
        .send()
        .await
        .unwrap();
    assert_eq!(off.status(), 404);
}

#[actix_web::test]
async fn a_call_counts_as_one_request() {
    let mut options = HttpTestOptions::default();
    options.limits.tenant_requests_per_s = 1;
    let server = HttpTestServer::with(options);
    let admin = server.as_role(Role::Admin);
    // With the operation counted too, the only place would be taken.
    assert_eq!(done(&admin, "list_worlds", json!({})).await["items"], json!([]));
    let mut statuses = Vec::new();
    for _ in 0..100 {
        let sent = newest(&admin, "tools/list", &json!({})).send().await.unwrap();
        statuses.push(sent.status().as_u16());
        if sent.status() == 429 {
            return;
        }
    }
    panic!("no message was refused: {statuses:?}");
}

#[actix_web::test]
async fn resources_are_listed_page_by_page_and_read() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    backend.put("/v1/worlds/elsewhere", &json!({"name": "Elsewhere"})).await;
    backend.put("/v1/worlds/vale/lore/well", &well("It is dry.")).await;
    let session = backend.session("p7").await["id"].as_str().unwrap().to_owned();
    let transcript = format!("colloquy://sessions/{session}/transcript");

    let all = async |client: &HttpTestClient| {
        let mut uris = Vec::new();
        let mut page = json!({});
        for _ in 0..20 {
            let listed = result(client, "resources/list", page).await;
            let items = listed["resources"].as_array().unwrap().clone();
            uris.extend(items.iter().map(|item| item["uri"].as_str().unwrap().to_owned()));
            match listed["nextCursor"].as_str() {
                Some(cursor) => page = json!({"cursor": cursor}),
                None => return uris,
            }
        }
        panic!("the list does not end: {uris:?}");
    };
    assert_eq!(
        all(&backend).await,
        [
            "colloquy://worlds/elsewhere",
            "colloquy://worlds/vale",
            "colloquy://worlds/vale/npcs/ergen",
            "colloquy://worlds/vale/lore/well",
            transcript.as_str(),
        ]
    );
    assert_eq!(all(&server.as_role(Role::Player)).await, [transcript.as_str()]);
    let stranger = server.client(server.token("rival", Role::Admin, None));
    assert_eq!(all(&stranger).await, Vec::<String>::new());

    let templates = result(&backend, "resources/templates/list", json!({})).await;
    assert_eq!(templates["resourceTemplates"].as_array().unwrap().len(), 6);
    let persona = "colloquy://worlds/vale/npcs/ergen";
    let read = result(&backend, "resources/read", json!({"uri": persona})).await;
    let text = read["contents"][0]["text"].as_str().unwrap();
    let stored = backend.get("/v1/worlds/vale/npcs/ergen").await;
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), stored);
    result(
        &backend,
        "resources/read",
        json!({"uri": format!("{transcript}?limit=5")}),
    )
    .await;

    for (client, uri) in [(&stranger, persona), (&backend, "colloquy://nothing")] {
        let (_, refused) = error(client, "resources/read", json!({"uri": uri})).await;
        assert_eq!(
            (&refused["code"], &refused["data"]["uri"]),
            (&json!(-32602), &json!(uri))
        );
    }
    let (_, cursor) = error(&backend, "resources/list", json!({"cursor": "tenants/x"})).await;
    assert_eq!(cursor["code"], -32602);
}

#[actix_web::test]
async fn reviews_are_prompts_with_ids() {
    let server = HttpTestServer::start();
    let viewer = server.as_role(Role::Viewer);
    let listed = result(&viewer, "prompts/list", json!({})).await;
    let reviews = [
        "find_contradictions",
        "find_lore_gaps",
        "find_unreached_scenarios",
        "check_secrets",
        "review_tone",
    ];
    assert_eq!(names(&listed["prompts"]), reviews);
    let asked = json!({"name": "find_contradictions", "arguments": {"world": "vale", "npc": "ergen"}});
    let prompt = result(&viewer, "prompts/get", asked).await;
    let text = prompt["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.contains("NPC ergen in the world vale"), "{text}");
    let (_, missing) = error(&viewer, "prompts/get", json!({"name": "find_contradictions"})).await;
    assert_eq!(missing["code"], -32602);
}
