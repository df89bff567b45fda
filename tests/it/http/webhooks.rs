//! Webhooks over REST: their life, their keys, and the addresses that are refused.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{HttpTestClient, HttpTestOptions, HttpTestServer, json_of};

/// A public address, which needs no look-up.
const URL: &str = "https://1.1.1.1/webhooks";

async fn create(client: &HttpTestClient, body: Value) -> Value {
    client.post("/v1/webhooks", &body).await
}

fn path(webhook: &Value) -> String {
    format!("/v1/webhooks/{}", webhook["id"].as_str().unwrap())
}

#[actix_web::test]
async fn webhooks_are_created_listed_changed_and_deleted() {
    let server = HttpTestServer::start();
    let admin = server.as_role(Role::Admin);
    let body = json!({"url": URL, "description": "the game", "types": ["turn.committed", "action.requested"],
        "world_ids": ["vale"]});
    let request = admin.request(Method::POST, "/v1/webhooks").json(&body).send();
    let made = request.await.unwrap();
    assert_eq!(made.status(), 201);
    let location = made.headers()["location"].to_str().unwrap().to_owned();
    let made = json_of(made).await.1;
    let path = path(&made);
    assert_eq!(location, path);
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 50, "{secret}");
    let expected = json!(["turn.committed", "turn.taken_back", "action.requested", "action.undone"]);
    assert_eq!(made["types"], expected, "with the retractions");
    assert_eq!(
        json!([made["include_text"], made["signature"], made["enabled"]]),
        json!([false, "hmac", true])
    );

    let shown = admin.get(&path).await;
    assert!(shown.get("secret").is_none(), "the secret is shown once");
    assert_eq!(shown["public_keys"], json!([]));
    let known = admin
        .request(Method::GET, &path)
        .header("if-none-match", "\"1\"")
        .send();
    assert_eq!(known.await.unwrap().status(), 304);
    create(&admin, json!({"url": URL})).await;
    let page = admin.get("/v1/webhooks?limit=1").await;
    assert_eq!(json!([page["items"][0], page["next"]]), json!([shown, shown["id"]]));

    let patch = async |tag: &str, body: Value| {
        let request = admin.request(Method::PATCH, &path).header("if-match", tag).json(&body);
        json_of(request.send().await.unwrap()).await
    };
    let (status, changed) = patch("\"1\"", json!({"enabled": false, "types": [], "include_text": true})).await;
    assert_eq!(status, 200, "{changed}");
    let fields = [
        "enabled",
        "disabled_reason",
        "types",
        "include_text",
        "version",
        "description",
    ];
    let changed: Vec<&Value> = fields.iter().map(|field| &changed[*field]).collect();
    assert_eq!(json!(changed), json!([false, "by_hand", [], true, 2, "the game"]));
    assert_eq!(patch("\"1\"", json!({})).await.0, 412);
    let disabled = admin.status_and_code(Method::POST, &format!("{path}:test"), None).await;
    assert_eq!(disabled, (409, "webhook_disabled".to_owned()));
    assert_eq!(
        patch("*", json!({"enabled": true})).await.1["disabled_reason"],
        Value::Null
    );
    let (status, queued) = admin.call(Method::POST, &format!("{path}:test"), None).await;
    assert!(
        status == 202 && queued["message_id"].as_str().unwrap().starts_with("msg_"),
        "{queued}"
    );
    assert_eq!(admin.get(&format!("{path}/attempts")).await["items"], json!([]));

    let replay = format!("{path}:replay");
    let one = json!({"message_id": queued["message_id"]});
    assert_eq!(admin.post(&replay, &one).await, json!({"messages": 1}));
    let since = json!({"since": "2020-01-01T00:00:00Z"});
    assert_eq!(admin.post(&replay, &since).await, json!({"messages": 1}));
    let both = json!({"message_id": queued["message_id"], "since": "2020-01-01T00:00:00Z"});
    for (body, status) in [(both, 422), (json!({}), 422), (json!({"message_id": "msg_1"}), 422)] {
        assert_eq!(
            admin.status_and_code(Method::POST, &replay, Some(&body)).await.0,
            status,
            "{body}"
        );
    }

    assert_eq!(admin.call(Method::DELETE, &path, None).await.0, 204);
    assert_eq!(admin.status_and_code(Method::GET, &path, None).await.0, 404);
    assert_eq!(
        admin
            .status_and_code(Method::GET, &format!("{path}/attempts"), None)
            .await
            .0,
        404
    );
    let audit = admin.get("/v1/audit").await.to_string();
    for action in [
        "webhook.create",
        "webhook.disable",
        "webhook.test",
        "webhook.replay",
        "webhook.delete",
    ] {
        assert!(audit.contains(action), "{audit}");
    }
    assert!(!audit.contains("1.1.1.1") && !audit.contains("whsec"), "{audit}");
}

#[actix_web::test]
async fn repeated_creation_makes_one_webhook_and_stores_no_secret() {
    let server = HttpTestServer::start();
    let admin = server.as_role(Role::Admin);
    let create = async || {
        let request = admin
            .request(Method::POST, "/v1/webhooks")
            .header("idempotency-key", "once");
        json_of(request.json(&json!({"url": URL})).send().await.unwrap()).await
    };
    let (first, again) = (create().await, create().await);
    assert_eq!(first.0, 201);
    assert_eq!(first, again);
    assert_eq!(admin.get("/v1/webhooks").await["items"].as_array().unwrap().len(), 1);
    admin.call(Method::DELETE, &path(&first.1), None).await;
    assert_eq!(create().await.0, 404, "the webhook is gone");
}

#[actix_web::test]
async fn keys_are_rotated() {
    let server = HttpTestServer::start();
    let admin = server.as_role(Role::Admin);
    let shared = create(&admin, json!({"url": URL})).await;
    let rotated = admin.post(&format!("{}:rotate", path(&shared)), &json!({})).await;
    assert_ne!(rotated["secret"], shared["secret"]);
    assert!(
        rotated["old_key_until"].is_string() && rotated["version"] == 2,
        "{rotated}"
    );

    let pair = create(&admin, json!({"url": URL, "signature": "ed25519"})).await;
    assert_eq!(pair["secret"], Value::Null, "the private key is never shown");
    let first = pair["public_keys"][0].as_str().unwrap().to_owned();
    assert!(first.starts_with("whpk_") && first.len() == 49, "{first}");
    let rotated = admin.post(&format!("{}:rotate", path(&pair)), &json!({})).await;
    let keys = rotated["public_keys"].as_array().unwrap();
    assert!(
        keys.len() == 2 && keys[0] != keys[1] && keys[1] == first.as_str(),
        "{rotated}"
    );
    assert!(!rotated.to_string().contains("whsk_"));
}

#[actix_web::test]
async fn addresses_of_the_servers_own_network_are_refused() {
    let server = HttpTestServer::start();
    let admin = server.as_role(Role::Admin);
    for url in [
        "http://1.1.1.1/hook",
        "https://localhost/hook",
        "https://127.0.0.1/hook",
        "https://10.0.0.7/hook",
        "https://[::1]/hook",
        "https://[::ffff:192.168.0.1]/hook",
        "https://169.254.169.254/latest/meta-data",
        "https://user:password@1.1.1.1/hook",
        "ftp://1.1.1.1/hook",
        "hook",
    ] {
        let (status, answer) = admin
            .call(Method::POST, "/v1/webhooks", Some(&json!({"url": url})))
            .await;
        assert_eq!(
            (status.as_u16(), &answer["param"]),
            (422, &json!("url")),
            "{url}: {answer}"
        );
    }
    let path = path(&create(&admin, json!({"url": URL})).await);
    let moved = json!({"url": "https://127.0.0.1/hook"});
    assert_eq!(admin.status_and_code(Method::PATCH, &path, Some(&moved)).await.0, 422);

    let mut options = HttpTestOptions::default();
    options.webhooks.allowed_hosts = vec!["hooks.internal".to_owned()];
    options.webhooks.allowed_networks = vec!["10.0.0.0/8".parse().unwrap()];
    let server = HttpTestServer::with(options);
    let admin = server.as_role(Role::Admin);
    for url in ["http://hooks.internal:8080/hook", "http://10.0.0.7/hook"] {
        create(&admin, json!({"url": url})).await;
    }
}

#[actix_web::test]
async fn webhooks_of_a_tenant_are_limited_and_its_own() {
    let mut options = HttpTestOptions::default();
    options.webhooks.max_per_tenant = 1;
    let server = HttpTestServer::with(options);
    let admin = server.as_role(Role::Admin);
    let path = path(&create(&admin, json!({"url": URL})).await);
    let second = admin
        .status_and_code(Method::POST, "/v1/webhooks", Some(&json!({"url": URL})))
        .await;
    assert_eq!(second, (409, "too_many_webhooks".to_owned()));
    let rival = server.client(server.token("rival", Role::Admin, None));
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::DELETE, path.clone()),
        (Method::GET, format!("{path}/attempts")),
        (Method::POST, format!("{path}:rotate")),
        (Method::POST, format!("{path}:test")),
    ] {
        assert_eq!(
            rival.status_and_code(method.clone(), &path, None).await.0,
            404,
            "{method} {path}"
        );
    }
    assert_eq!(rival.get("/v1/webhooks").await["items"], json!([]));
}

#[actix_web::test]
async fn operator_may_turn_webhooks_off() {
    let mut options = HttpTestOptions::default();
    options.webhooks.enabled = false;
    let server = HttpTestServer::with(options);
    let admin = server.as_role(Role::Admin);
    let refused = admin
        .status_and_code(Method::POST, "/v1/webhooks", Some(&json!({"url": URL})))
        .await;
    assert_eq!(refused, (501, "not_supported".to_owned()));
}
