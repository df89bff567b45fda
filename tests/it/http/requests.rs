//! Features common to all requests: ids, problems, limits and idempotency.

use colloquy::tenancy::Role;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::harness::{HttpTestOptions, HttpTestServer, json_of};

#[actix_web::test]
async fn request_ids_are_echoed_or_generated() {
    let server = HttpTestServer::start();
    let client = server.as_role(Role::Backend);
    let request = client
        .request(Method::GET, "/v1/worlds/none")
        .header("x-request-id", "abc-1");
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-request-id"], "abc-1");
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let (_, problem) = json_of(response).await;
    assert_eq!(problem["request_id"], "abc-1");
    assert_eq!(problem["status"], 404);
    for name in ["type", "title", "detail", "code"] {
        assert!(problem[name].is_string(), "{name} of {problem}");
    }

    let response = client.request(Method::GET, "/healthz").send().await.unwrap();
    assert!(response.headers()["x-request-id"].to_str().unwrap().starts_with("req_"));
    let long = "x".repeat(129);
    let request = client.request(Method::GET, "/healthz").header("x-request-id", &long);
    let response = request.send().await.unwrap();
    assert_ne!(response.headers()["x-request-id"], long.as_str());
}

#[actix_web::test]
async fn unknown_routes_and_methods_are_problems_too() {
    let server = HttpTestServer::start();
    let client = server.as_role(Role::Backend);
    for path in ["/nowhere", "/v1", "/v1/sessions/x:dance"] {
        let expected = if path == "/v1/sessions/x:dance" { 405 } else { 404 };
        assert_eq!(
            client.status_and_code(Method::POST, path, None).await.0,
            expected,
            "{path}"
        );
    }
    let response = client.request(Method::PATCH, "/v1/worlds/vale").send().await.unwrap();
    assert_eq!(response.status(), 405);
    assert_eq!(response.headers()["allow"], "DELETE, GET, PUT");
    assert_eq!(json_of(response).await.1["code"], "method_not_allowed");
    let response = client
        .request(Method::GET, "/v1/sessions/ses_00000000000000000000000000:interrupt")
        .send()
        .await
        .unwrap();
    // The action is no part of a session's id.
    assert_eq!(response.status(), 405);
    assert_eq!(response.headers()["allow"], "POST");
}

#[actix_web::test]
async fn malformed_bodies_are_explained() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let put = |body: &'static str| {
        let request = client.request(Method::PUT, "/v1/worlds/vale");
        async move {
            let request = request.header("content-type", "application/json").body(body);
            json_of(request.send().await.unwrap()).await
        }
    };
    let (status, problem) = put("{").await;
    assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("malformed_json")));
    let (status, problem) = put(r#"{"premise": 5, "colour": "red", "rules": ["a", 7]}"#).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("validation_failed")));
    let params: Vec<_> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["param"].clone())
        .collect();
    for expected in ["name", "premise", "colour", "rules[1]"] {
        assert!(params.contains(&json!(expected)), "{expected} is not in {problem}");
    }
    let (status, problem) = put(r#"{"name": "", "settings": {"max_hp_delta": -1}, "rules": [""]}"#).await;
    assert_eq!(status, 422);
    let params: Vec<_> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["param"].clone())
        .collect();
    for expected in ["name", "settings.max_hp_delta", "rules[0]"] {
        assert!(params.contains(&json!(expected)), "{expected} is not in {problem}");
    }

    let response = client
        .request(Method::PUT, "/v1/worlds/vale")
        .body("name=Vale")
        .header("content-type", "text/plain");
    assert_eq!(response.send().await.unwrap().status(), 415);
    let large = json!({"name": "Vale", "premise": "x".repeat(20_000)});
    let (status, problem) = client.call(Method::PUT, "/v1/worlds/vale", Some(&large)).await;
    assert_eq!((status.as_u16(), &problem["code"]), (413, &json!("payload_too_large")));
    let (status, problem) = client
        .call(Method::PUT, "/v1/worlds/Vale!", Some(&json!({"name": "V"})))
        .await;
    assert_eq!((status.as_u16(), &problem["param"]), (422, &json!("world")));
    let (status, problem) = client.call(Method::GET, "/v1/worlds?limit=0", None).await;
    assert_eq!((status.as_u16(), &problem["param"]), (422, &json!("limit")));
    let (status, problem) = client.call(Method::GET, "/v1/worlds?colour=red", None).await;
    assert_eq!((status.as_u16(), &problem["param"]), (422, &json!("colour")));
}

#[actix_web::test]
async fn repeated_post_gets_the_first_answer() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let post = |key: &'static str, body: Value| {
        let request = client
            .request(Method::POST, "/v1/sessions")
            .header("idempotency-key", key)
            .json(&body);
        async move { json_of(request.send().await.unwrap()).await }
    };
    let body = json!({"world_id": "vale", "npc_id": "ergen", "player_id": "p1"});
    let (status, first) = post("k1", body.clone()).await;
    assert_eq!(status, 201);
    let (status, mut again) = post("k1", body.clone()).await;
    assert_eq!(status, StatusCode::CREATED);
    // The resume token is not stored. A repeated request gets another token, and the first becomes void.
    let renewed = again["resume_token"].clone();
    assert_ne!(renewed, first["resume_token"]);
    again["resume_token"] = first["resume_token"].clone();
    assert_eq!(again, first);
    let mut socket = server.socket(&client.token).await;
    let resume = |token: &Value| json!({"type": "session.resume", "session_id": first["id"], "resume_token": token});
    socket.send(resume(&first["resume_token"])).await;
    assert_eq!(socket.error_code().await, "wrong_resume_token");
    socket.send(resume(&renewed)).await;
    socket.until_event("session.resumed").await;
    let (_, other) = post("k2", body.clone()).await;
    assert_ne!(other["id"], first["id"]);
    let (status, problem) = post("k1", json!({"world_id": "vale", "npc_id": "ergen", "player_id": "p2"})).await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (422, &json!("idempotency_mismatch"))
    );
    let sessions = client.get("/v1/sessions?player_id=p1").await;
    assert_eq!(sessions["items"].as_array().unwrap().len(), 2);
    // A session with a greeting is greeted once.
    let greeted = json!({"world_id": "vale", "npc_id": "ergen", "player_id": "p3", "greeting": true});
    let (_, first) = post("k4", greeted.clone()).await;
    assert_eq!(first["greeting"]["turn"], 1, "{first}");
    let (_, again) = post("k4", greeted).await;
    assert_eq!((&again["id"], &again["greeting"]), (&first["id"], &first["greeting"]));
    let turns = format!("/v1/sessions/{}/turns", first["id"].as_str().unwrap());
    assert_eq!(client.get(&turns).await["items"].as_array().unwrap().len(), 1);
    // A failed request leaves its key free.
    let wrong = json!({"world_id": "vale", "npc_id": "nobody", "player_id": "p1"});
    assert_eq!(post("k3", wrong).await.0, 404);
    assert_eq!(post("k3", body).await.0, 201);
}

#[actix_web::test]
async fn tenant_over_its_limit_gets_a_retry_delay() {
    let mut options = HttpTestOptions::default();
    options.limits.tenant_requests_per_s = 2;
    let server = HttpTestServer::with(options);
    let client = server.as_role(Role::Backend);
    let mut refused = None;
    for _ in 0..20 {
        let response = client.request(Method::GET, "/v1/worlds").send().await.unwrap();
        if response.status() == 429 {
            refused = Some(response);
            break;
        }
    }
    let refused = refused.expect("twenty requests went through a limit of two a second");
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(json_of(refused).await.1["code"], "rate_limited");
    // Another tenant is unaffected.
    let rival = server.client(server.token("rival", Role::Backend, None));
    assert_eq!(rival.call(Method::GET, "/v1/worlds", None).await.0, 200);
}

#[actix_web::test]
async fn readiness_and_metrics_follow_the_server() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    assert_eq!(client.get("/readyz").await["status"], "ok");
    server.state.readiness.set(false);
    let response = client.request(Method::GET, "/readyz").send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    client.call(Method::GET, "/v1/worlds/none", None).await;
    let metrics = client
        .request(Method::GET, "/metrics")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    for line in [
        r#"colloquy_http_requests_total{method="PUT",route="/v1/worlds/{world}",status="201"} 1"#,
        r#"colloquy_errors_total{code="not_found"} 1"#,
        "colloquy_sockets_open 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[actix_web::test]
async fn node_of_several_whose_clock_is_off_is_not_ready() {
    let server = HttpTestServer::with(HttpTestOptions {
        is_clock_off: true,
        ..HttpTestOptions::default()
    });
    let client = server.as_role(Role::Backend);
    let refused = client.status_and_code(Method::GET, "/readyz", None).await;
    assert_eq!(refused, (503, "clock_off".to_owned()));
    assert_eq!(client.get("/healthz").await["status"], "ok", "a restart would not help");
}

#[actix_web::test]
async fn tokens_and_tickets_are_fresh_whatever_the_key() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let post = |path: &'static str, key: String| {
        let request = client
            .request(Method::POST, path)
            .header("idempotency-key", key)
            .json(&json!({"player_id": "p7"}));
        async move { json_of(request.send().await.unwrap()).await }
    };
    for path in ["/v1/tokens", "/v1/tickets"] {
        let (first, again) = (post(path, "k1".into()).await, post(path, "k1".into()).await);
        assert_eq!((first.0.as_u16(), again.0.as_u16()), (201, 201), "{path}");
        let (status, problem) = post(path, "x".repeat(129)).await;
        assert_eq!(
            (status.as_u16(), &problem["param"]),
            (422, &json!("Idempotency-Key")),
            "{path}"
        );
    }
    let (first, again) = (
        post("/v1/tickets", "k1".into()).await,
        post("/v1/tickets", "k1".into()).await,
    );
    assert_ne!(first.1["ticket"], again.1["ticket"], "a ticket works once");
}

#[actix_web::test]
async fn unreadable_parameters_are_explained_plainly() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    for (path, param) in [
        ("/v1/worlds?limit=abc", "limit"),
        ("/v1/sessions?status=asleep", "status"),
        ("/v1/sessions?world_id=Vale!", "world_id"),
        ("/v1/worlds/vale/npcs/ergen/facts?from=today", "from"),
    ] {
        let (status, problem) = client.call(Method::GET, path, None).await;
        assert_eq!(
            (status.as_u16(), &problem["param"]),
            (422, &json!(param)),
            "{path}: {problem}"
        );
    }
    let path = "/v1/sessions/ses_00000000000000000000000000/turns/abc/trace";
    let (status, problem) = client.call(Method::GET, path, None).await;
    let detail = problem["detail"].as_str().unwrap();
    assert_eq!(status, 404);
    assert!(detail.contains("turn \"abc\"") && !detail.contains("u32"), "{detail}");

    let mut socket = server.socket(&client.token).await;
    socket.send_text(r#"["ping", null]"#).await;
    let told = socket.next().await.unwrap();
    assert_eq!(told["error"]["message"], "body: must be object, not array", "{told}");
    for (text, expected) in [
        ("[1]", "a message is a JSON object"),
        ("{}", "type: is missing"),
        (r#"{"type": 5}"#, "type: must be a string"),
        (r#"{"type": "ping", "event_id": 5}"#, "event_id: must be a string"),
    ] {
        let mut socket = server.socket(&client.token).await;
        socket.send_text(text).await;
        let told = socket.next().await.unwrap();
        assert_eq!(told["error"]["message"], expected, "{told}");
        assert_eq!(socket.close_code().await, 4400);
    }
}
