//! REST requests at a node other than the owner.

use colloquy::{
    ports::clock::{Clock as _, SystemClock},
    tenancy::Role,
};
use jsonwebtoken::{EncodingKey, Header};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{NodeCluster, counter_value, forwarded_count, say, standing_lines, turns_of};
use crate::support::{RestClient, run};

#[test]
fn request_at_the_wrong_node_is_answered_by_the_owner() {
    run(async {
        let nodes = NodeCluster::start(3, &[]).await;
        let (session, _) = nodes.session(0).await;
        let [owner, second, third] = [0, 1, 2].map(|at| nodes.servers[at].backend());

        let turn = say(&second, &session, "k2", "And you?").await;
        assert_eq!(turn["turn"], 2, "{turn}");
        // The same key is the same turn at every node.
        for rest in [&owner, &second, &third] {
            assert_eq!(say(rest, &session, "k2", "And you?").await["id"], turn["id"]);
        }
        assert!(forwarded_count(&nodes.servers[1], "request").await >= 2.0);
        assert!(forwarded_count(&nodes.servers[2], "request").await >= 1.0);
        for (at, actors) in [(0, 1.0), (1, 0.0), (2, 0.0)] {
            let live = counter_value(&nodes.servers[at], "colloquy_actors{kind=\"session\"}").await;
            assert!((live - actors).abs() < 0.1, "node {at} has {live} sessions");
        }

        // The owner's refusals are forwarded unchanged.
        let path = format!("/v1/sessions/{session}:rewind");
        let stale = json!({"turn": 1, "if_head": 7});
        let (status, problem) = third.call(Method::POST, &path, Some(&stale)).await;
        assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("stale_head")));
        assert!(problem["request_id"].is_string(), "{problem}");
        let rewound = third.post(&path, &json!({"turn": 1, "key": "back"})).await;
        assert_eq!(rewound["rewound"]["removed_turns"], json!([2]), "{rewound}");
        // The key of an unsaid turn is refused at every node.
        let again = json!({"text": "And you?", "key": "k2"});
        let (status, problem) = second.call(Method::POST, &turns_of(&session), Some(&again)).await;
        assert_eq!(
            (status, &problem["code"]),
            (StatusCode::CONFLICT, &json!("turn_unsaid"))
        );
        let preview = second
            .post(&format!("/v1/sessions/{session}/context"), &json!({"text": "Well?"}))
            .await;
        assert!(preview["messages"].to_string().contains("Hello."), "{preview}");
        assert_eq!(standing_lines(&third, &session).await, ["Hello."]);
    });
}

#[test]
fn turn_events_stream_through_a_forwarding_node() {
    run(async {
        let nodes = NodeCluster::start(2, &[]).await;
        let (session, _) = nodes.session(0).await;
        let other = &nodes.servers[1];
        let response = reqwest::Client::new()
            .post(format!("http://{}{}", other.address, turns_of(&session)))
            .bearer_auth(other.token("demo", Role::Backend, None))
            .header("accept", "text/event-stream")
            .json(&json!({"text": "Tell me more.", "key": "k2"}))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let body = response.text().await.unwrap();
        let names: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        assert_eq!(names.first(), Some(&"turn.started"), "{body}");
        assert!(names.contains(&"reply.delta"), "{body}");
        assert_eq!(names.last(), Some(&"turn.committed"), "{body}");
        assert!(forwarded_count(other, "request").await >= 1.0);
    });
}

#[test]
fn interrupt_at_the_wrong_node_cuts_the_reply() {
    run(async {
        let nodes = NodeCluster::start(2, &[]).await;
        nodes
            .mock
            .apply_settings(&json!({"tokens_per_s": 5, "deltas": 400}))
            .unwrap();
        let mut socket = nodes.servers[0].player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.send_line(&session, "k1", "A long story.").await;
        socket.until("reply.delta").await;
        let other = nodes.servers[1].backend();
        let cut = other
            .post(&format!("/v1/sessions/{session}:interrupt"), &json!({}))
            .await;
        assert_eq!((&cut["interrupted"], &cut["turn"]), (&json!(true), &json!(1)), "{cut}");
        assert_eq!(socket.reply().await.status, "interrupted");
        assert!(forwarded_count(&nodes.servers[1], "request").await >= 1.0);
    });
}

#[test]
fn foreign_tenant_is_not_forwarded() {
    run(async {
        let nodes = NodeCluster::start(2, &[("COLLOQUY__TENANTS", r#"["rival"]"#)]).await;
        let (session, _) = nodes.session(0).await;
        let other = &nodes.servers[1];
        let strangers = [
            other.token("rival", Role::Backend, None),
            other.token("demo", Role::Player, Some("p2")),
        ];
        for token in strangers {
            let rest = RestClient::new(other.address, token);
            let line = json!({"text": "Hello?"});
            let (status, problem) = rest.call(Method::POST, &turns_of(&session), Some(&line)).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{problem}");
            let path = format!("/v1/sessions/{session}:interrupt");
            assert_eq!(rest.call(Method::POST, &path, None).await.0, StatusCode::NOT_FOUND);
        }
        assert!(forwarded_count(other, "request").await < 0.1);
    });
}

/// Returns a token as an attacker who knows the source would write it.
fn forward_token(node: &str, secret: &str, request: &str) -> String {
    signed_forward_token(node, secret, request, b"", 10)
}

fn signed_forward_token(node: &str, secret: &str, request: &str, body: &[u8], lives_s: i64) -> String {
    let who = json!({"subject": "nobody", "tenant": "demo", "role": "admin", "player": null, "world": null,
        "expires_at": "2100-01-01T00:00:00Z"});
    forward_token_for(&who, &other_node_id(node), node, secret, request, body, lives_s)
}

/// Returns the id of a nonexistent node.
pub(super) fn other_node_id(node: &str) -> String {
    node.replace(&node[node.len() - 4..], "0000")
}

pub(super) fn forward_token_for(
    who: &Value,
    from: &str,
    node: &str,
    secret: &str,
    request: &str,
    body: &[u8],
    lives_s: i64,
) -> String {
    let body = Sha256::digest(body)
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let now = SystemClock.now().timestamp();
    let claims = json!({"from": from, "to": node, "request": request, "who": who, "body": body,
        "aud": "colloquy-nodes", "iat": now, "exp": now + lives_s, "jti": format!("{:x}", rand::random::<u64>())});
    jsonwebtoken::encode(
        &Header::default(),
        &claims,
        &EncodingKey::from_secret(secret.as_bytes()),
    )
    .unwrap()
}

#[test]
fn forward_token_not_signed_by_a_node_is_rejected() {
    run(async {
        colloquy::adapters::openai::install_crypto();
        let nodes = NodeCluster::start(1, &[]).await;
        let server = &nodes.servers[0];
        let node = super::dying::node_ids(&nodes).await.remove(0);
        let known = "what only the nodes of these tests know";
        let get = async |path: &str, hop: String| {
            let request = reqwest::Client::new().get(format!("http://{}{path}", server.address));
            request.header("x-colloquy-hop", hop).send().await.unwrap()
        };
        // A valid token works. The requests below are therefore refused for their single fault.
        let once = forward_token(&node, known, "GET /v1/worlds");
        assert_eq!(get("/v1/worlds", once.clone()).await.status(), StatusCode::OK);
        for (what, path, hop) in [
            ("garbage", "/v1/worlds", "x.y.z".to_owned()),
            ("used before", "/v1/worlds", once),
            (
                "good for longer than hops are",
                "/v1/worlds",
                signed_forward_token(&node, known, "GET /v1/worlds", b"", 60),
            ),
            (
                "another secret",
                "/v1/worlds",
                forward_token(&node, "a secret of somebody else's, 32 bytes", "GET /v1/worlds"),
            ),
            (
                "another request",
                "/v1/sessions",
                forward_token(&node, known, "GET /v1/worlds"),
            ),
            (
                "another node",
                "/v1/worlds",
                forward_token(&other_node_id(&node), known, "GET /v1/worlds"),
            ),
        ] {
            let refused = get(path, hop).await;
            assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{what}");
            let problem: Value = refused.json().await.unwrap();
            assert_eq!(problem["code"], "unauthenticated", "{what}");
        }
        let session = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"});
        for (signed, status) in [
            (session.to_string(), StatusCode::CREATED),
            (session.to_string().replace("p1", "p2"), StatusCode::UNAUTHORIZED),
        ] {
            let hop = signed_forward_token(&node, known, "POST /v1/sessions", signed.as_bytes(), 10);
            let request = reqwest::Client::new().post(format!("http://{}/v1/sessions", server.address));
            let request = request
                .header("x-colloquy-hop", hop)
                .header("content-type", "application/json");
            let answer = request.body(session.to_string()).send().await.unwrap();
            assert_eq!(answer.status(), status, "signed for {signed}");
        }
        // Notices between nodes are closed to everyone else, with any token.
        let admin = server.rest(Role::Admin);
        let notice = json!({"what": "authored", "tenant": "demo", "world": "vale"});
        let told = admin.call(Method::POST, "/internal/v1/notices", Some(&notice)).await;
        assert_eq!(told.0, StatusCode::NOT_FOUND);
        // A single server accepts no forward token.
        let alone = crate::support::ServerData::new(&[]).start();
        let request = reqwest::Client::new().get(format!("http://{}/v1/worlds", alone.address));
        let request = request
            .bearer_auth(alone.token("demo", Role::Admin, None))
            .header("x-colloquy-hop", forward_token(&node, known, "GET /v1/worlds"));
        assert_eq!(request.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    });
}
