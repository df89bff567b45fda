//! Disabled tenants, revoked tokens, and the closing of their streams.

use std::time::Duration;

use colloquy::tenancy::Role;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::harness::{HttpTestClient, HttpTestServer, HttpTestSocket, json_of};

/// Returns the id of a token.
async fn token_id(server: &HttpTestServer, token: &str) -> String {
    server.state.auth.verify_token(token).await.unwrap().issued.id.unwrap()
}

/// Returns the error event's code, and the code with which the socket closes.
async fn error_and_close(socket: &mut HttpTestSocket) -> (String, u16) {
    (socket.error_code().await, socket.close_code().await)
}

async fn patch(client: &HttpTestClient, path: &str, body: &Value) -> (StatusCode, Value) {
    client.call(Method::PATCH, path, Some(body)).await
}

fn rejection_with(code: &str) -> (u16, String) {
    (401, code.to_owned())
}

#[actix_web::test]
async fn operator_creates_lists_and_edits_tenants() {
    let server = HttpTestServer::start();
    let operator = server.as_role(Role::Operator);
    let studio = json!({"id": "studio-a", "name": "Studio A"});
    let make = || {
        operator
            .request(Method::POST, "/v1/tenants")
            .header("idempotency-key", "k1")
            .json(&studio)
    };
    // A request comes before the tenant exists, and the node caches the tenant's absence.
    let early = server.client(server.token("studio-a", Role::Admin, None));
    assert_eq!(
        early.status_and_code(Method::GET, "/v1/worlds", None).await,
        rejection_with("unauthenticated")
    );
    let response = make().send().await.unwrap();
    assert_eq!(response.headers()["location"], "/v1/tenants/studio-a");
    let (status, made) = json_of(response).await;
    assert_eq!(
        (status.as_u16(), &made["enabled"], &made["version"]),
        (201, &json!(true), &json!(1))
    );
    assert_eq!(json_of(make().send().await.unwrap()).await, (status, made.clone()));
    assert_eq!(
        operator
            .status_and_code(Method::POST, "/v1/tenants", Some(&studio))
            .await,
        (409, "tenant_exists".to_owned())
    );
    assert_eq!(early.get("/v1/worlds").await["items"], json!([]));

    let first = operator.get("/v1/tenants?limit=3").await;
    let ids: Vec<&str> = first["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["acme", "closed", "rival"]);
    let rest = operator.get("/v1/tenants?after=rival").await;
    assert_eq!((&rest["items"][0], &rest["next"]), (&made, &json!(null)));

    let path = "/v1/tenants/studio-a";
    let response = operator.request(Method::GET, path).send().await.unwrap();
    assert_eq!(response.headers()["etag"], "\"1\"");
    let edit = |tag: &str, body: Value| {
        operator
            .request(Method::PATCH, path)
            .header("if-match", tag)
            .json(&body)
    };
    let renamed = json_of(edit("\"1\"", json!({"name": "Workshop"})).send().await.unwrap()).await;
    assert_eq!((renamed.0.as_u16(), &renamed.1["name"]), (200, &json!("Workshop")));
    let stale = json_of(edit("\"1\"", json!({"name": "Late"})).send().await.unwrap()).await;
    assert_eq!((stale.0.as_u16(), &stale.1["code"]), (412, &json!("version_mismatch")));
    for bad in [
        json!({"name": ""}),
        json!({"name": "two\nlines"}),
        json!({"id": "other"}),
    ] {
        assert_eq!(patch(&operator, path, &bad).await.0, 422, "{bad}");
    }
    assert_eq!(
        patch(&operator, "/v1/tenants/nobody", &json!({"enabled": false}))
            .await
            .0,
        404
    );
    let own = patch(&operator, "/v1/tenants/acme", &json!({"enabled": false})).await;
    assert_eq!((own.0.as_u16(), &own.1["param"]), (422, &json!("enabled")));
    // The tenant's administrators see the operator's edits in the audit log.
    let log = early.get("/v1/audit").await;
    let actions: Vec<&str> = log["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["tenant.edit", "tenant.create"]);
}

#[actix_web::test]
async fn disabled_tenant_is_locked_out_at_once_and_can_return() {
    let server = HttpTestServer::start();
    let operator = server.as_role(Role::Operator);
    let token = server.token("rival", Role::Player, Some("p1"));
    let (player, admin) = (
        server.client(token.clone()),
        server.client(server.token("rival", Role::Admin, None)),
    );
    let mut sockets = vec![server.socket(&token).await];
    let ticket = player.post("/v1/tickets", &json!({})).await["ticket"]
        .as_str()
        .unwrap()
        .to_owned();
    sockets.push(
        HttpTestSocket::open(server.upgrade_request(&format!("?ticket={ticket}")))
            .await
            .unwrap(),
    );
    let unused = player.post("/v1/tickets", &json!({})).await["ticket"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut bystander = server.socket(&server.token("acme", Role::Player, Some("p1"))).await;

    let (status, _) = patch(&operator, "/v1/tenants/rival", &json!({"enabled": false})).await;
    assert_eq!(status, 200);
    for socket in &mut sockets {
        assert_eq!(error_and_close(socket).await, ("unauthenticated".to_owned(), 4401));
    }
    for client in [&player, &admin] {
        assert_eq!(
            client.status_and_code(Method::GET, "/v1/sessions", None).await,
            rejection_with("unauthenticated")
        );
    }
    let mut late = HttpTestSocket::open(server.upgrade_request(&format!("?ticket={unused}")))
        .await
        .unwrap();
    assert_eq!(error_and_close(&mut late).await, ("unauthenticated".to_owned(), 4401));
    bystander.send(json!({"type": "ping", "t": 1})).await;
    assert_eq!(bystander.next().await.unwrap()["type"], "pong");

    let (status, _) = patch(&operator, "/v1/tenants/rival", &json!({"enabled": true})).await;
    assert_eq!(status, 200);
    assert_eq!(player.get("/v1/sessions").await["items"], json!([]));
}

#[actix_web::test]
async fn revoked_token_is_rejected_and_its_streams_close() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    let admin = server.as_role(Role::Admin);
    let mint = async |player: &str| {
        let made = backend.post("/v1/tokens", &json!({"player_id": player})).await;
        made["token"].as_str().unwrap().to_owned()
    };
    let (first, second, other) = (mint("p7").await, mint("p7").await, mint("p8").await);
    let mut sockets = Vec::new();
    for token in [&first, &second, &other] {
        sockets.push(server.socket(token).await);
    }
    let revoke = async |body: Value| admin.call(Method::POST, "/v1/tokens:revoke", Some(&body)).await.0;
    let left_in = async |token: &str| {
        let (status, answer) = server
            .client(token.to_owned())
            .call(Method::GET, "/v1/sessions", None)
            .await;
        assert!(status == 200 || answer["code"] == "token_revoked", "{status} {answer}");
        status == 200
    };

    assert_eq!(revoke(json!({"jti": token_id(&server, &first).await})).await, 204);
    assert_eq!(
        error_and_close(&mut sockets[0]).await,
        ("token_revoked".to_owned(), 4401)
    );
    assert!(!left_in(&first).await && left_in(&second).await && left_in(&other).await);

    assert_eq!(revoke(json!({"player_id": "p7"})).await, 204);
    assert_eq!(
        error_and_close(&mut sockets[1]).await,
        ("token_revoked".to_owned(), 4401)
    );
    assert!(!left_in(&second).await && left_in(&other).await);
    let fresh = mint("p7").await;
    assert!(left_in(&fresh).await, "what is minted afterwards is not meant");

    let before = server.state.services.clock.now() - Duration::from_hours(1);
    assert_eq!(revoke(json!({"subject": "player:p8", "before": before})).await, 204);
    assert!(left_in(&other).await);
    assert_eq!(revoke(json!({"subject": "player:p8"})).await, 204);
    assert_eq!(
        error_and_close(&mut sockets[2]).await,
        ("token_revoked".to_owned(), 4401)
    );
    assert!(!left_in(&other).await && left_in(&fresh).await);
    // A revocation does not affect another tenant.
    let rival = server.client(server.token("rival", Role::Admin, None));
    rival
        .call(Method::POST, "/v1/tokens:revoke", Some(&json!({"player_id": "p7"})))
        .await;
    assert!(left_in(&fresh).await);

    for (bad, param) in [
        (json!({}), "jti"),
        (json!({"jti": "a", "subject": "b"}), "jti"),
        (json!({"jti": ""}), "jti"),
        (json!({"jti": "a\u{0}"}), "jti"),
        (json!({"jti": "a", "before": before}), "before"),
        (json!({"subject": "a", "expires_at": before}), "expires_at"),
        (json!({"subject": "a", "before": "2999-01-01T00:00:00Z"}), "before"),
    ] {
        let (status, answer) = admin.call(Method::POST, "/v1/tokens:revoke", Some(&bad)).await;
        assert_eq!(
            (status.as_u16(), &answer["param"]),
            (422, &json!(param)),
            "{bad}: {answer}"
        );
    }
    let log = admin.get("/v1/audit").await;
    assert_eq!(log["items"][0]["action"], "token.revoke");
    assert_eq!(log["items"][0]["object"], "subject:player:p8");
}

/// Revocations from before a restart, or from another process, are read.
#[actix_web::test]
async fn revocations_in_the_ledger_are_applied() {
    let server = HttpTestServer::start();
    let token = server.token("acme", Role::Player, Some("p7"));
    let mut socket = server.socket(&token).await;
    let revocation = colloquy::ports::ledger::revocations::Revocation {
        tenant: "acme".parse().unwrap(),
        revoked: colloquy::ports::ledger::revocations::Revoked::Token(token_id(&server, &token).await),
        matters_until: server.state.services.clock.now() + Duration::from_hours(1),
        revoked_at: server.state.services.clock.now(),
    };
    let services = &server.state.services;
    let who = server
        .state
        .auth
        .verify_token(&server.token("acme", Role::Admin, None))
        .await
        .unwrap();
    let edit =
        colloquy::ports::ledger::audit::Edit::made_by(&who, &services.ids, revocation.revoked_at, "token.revoke", "it");
    services
        .ledger
        .revocations
        .add_revocation(&who.scope(), &revocation, &edit)
        .await
        .unwrap();
    colloquy::http::refusals::catch_up(&server.state).await.unwrap();
    assert_eq!(error_and_close(&mut socket).await, ("token_revoked".to_owned(), 4401));
}

#[actix_web::test]
async fn event_stream_ends_with_its_token() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    let session = backend.session("p7").await["id"].as_str().unwrap().to_owned();
    let player = server.as_role(Role::Player);
    let request = player
        .request(Method::POST, &format!("/v1/sessions/{session}/turns"))
        .header("accept", "text/event-stream")
        .json(&json!({"text": "STALL"}));
    let mut response = request.send().await.unwrap();
    let mut told = String::new();
    while !told.contains("reply.delta") {
        told.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
    let admin = server.as_role(Role::Admin);
    let (status, _) = admin
        .call(Method::POST, "/v1/tokens:revoke", Some(&json!({"player_id": "p7"})))
        .await;
    assert_eq!(status, 204);
    while let Some(chunk) = response.chunk().await.unwrap() {
        told.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(
        told.contains("event: error") && told.contains("token_revoked"),
        "{told}"
    );
}

/// A socket with a refreshed token stays open when its first token is revoked. It closes with the newer token.
#[actix_web::test]
async fn socket_closes_with_its_refreshed_token() {
    let server = HttpTestServer::start();
    let admin = server.as_role(Role::Admin);
    let (opened, fresh) = (
        server.token("acme", Role::Player, Some("p7")),
        server.token("acme", Role::Player, Some("p7")),
    );
    let mut socket = server.socket(&opened).await;
    socket.send(json!({"type": "auth.refresh", "token": fresh})).await;
    socket.until_event("auth.refreshed").await;
    let revoke = async |token: &str| {
        let body = json!({"jti": token_id(&server, token).await, "expires_at": "2999-01-01T00:00:00Z"});
        assert_eq!(admin.call(Method::POST, "/v1/tokens:revoke", Some(&body)).await.0, 204);
    };
    revoke(&opened).await;
    socket.send(json!({"type": "ping", "t": 1})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "pong");
    revoke(&fresh).await;
    assert_eq!(error_and_close(&mut socket).await, ("token_revoked".to_owned(), 4401));
}
