//! Tokens revoked, and tenants disabled, at another node.

use std::time::Duration;

use base64::Engine as _;
use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    NodeCluster,
    sockets::{conversation, resume_session},
};
use crate::{
    e2e::disabled_tenant::assert_talk_stops_and_continues,
    support::{RestClient, TestServer, TestSocket, run},
};

/// The time limit for a node to apply a revocation.
const SOON: Duration = Duration::from_secs(2);

async fn close_code(socket: &mut TestSocket) -> u16 {
    let ended = async {
        loop {
            if let Err(code) = socket.next_or_close().await {
                return code;
            }
        }
    };
    tokio::time::timeout(SOON, ended).await.expect("the socket stays open")
}

fn rest_client(server: &TestServer, tenant: &str, role: Role) -> RestClient {
    RestClient::new(server.address, server.token(tenant, role, None))
}

#[test]
fn revoked_token_closes_its_sockets_at_every_node() {
    run(async {
        let nodes = NodeCluster::start(2, &[("COLLOQUY__TENANTS", "studio")]).await;
        let (session, token) = nodes.session(0).await;
        // One socket at the other node, with a tunnel to the owner, and one at the owner.
        let mut through = nodes.servers[1].player("p1").await;
        resume_session(&mut through, &session, &token, 1).await;
        let mut bystander = nodes.servers[1].player("p2").await;
        let mut at_owner = nodes.servers[0].player("p1").await;
        let old = nodes.servers[0].token("demo", Role::Player, Some("p1"));
        let admin = rest_client(&nodes.servers[0], "demo", Role::Admin);
        let body = json!({"player_id": "p1"});
        let (status, answer) = admin
            .attempt(Method::POST, "/v1/tokens:revoke", Some(&body))
            .await
            .unwrap();
        assert_eq!(status, 204, "{answer}");
        for socket in [&mut through, &mut at_owner] {
            assert_eq!(close_code(socket).await, 4401);
        }
        let refused = RestClient::new(nodes.servers[1].address, old)
            .attempt(Method::GET, "/v1/sessions", None)
            .await;
        let (status, answer) = refused.unwrap();
        assert_eq!((status.as_u16(), &answer["code"]), (401, &json!("token_revoked")));

        // The operator of another tenant disables this tenant at a node without its sockets.
        let operator = rest_client(&nodes.servers[0], "studio", Role::Operator);
        let body = json!({"enabled": false});
        let (status, answer) = operator
            .attempt(Method::PATCH, "/v1/tenants/demo", Some(&body))
            .await
            .unwrap();
        assert_eq!(status, 200, "{answer}");
        assert_eq!(close_code(&mut bystander).await, 4401);
    });
}

#[test]
fn tenant_disabled_at_one_node_is_silenced_at_every_node() {
    run(async {
        let slow = ("COLLOQUY__CONVERSATION__PAUSE_MS", "100");
        let nodes = NodeCluster::start(2, &[("COLLOQUY__TENANTS", "studio"), slow]).await;
        conversation(&nodes.servers[1], true).await;
        assert_talk_stops_and_continues(&nodes.data, &nodes.servers[0]).await;
    });
}

/// Returns the id of a token.
fn token_id(token: &str) -> String {
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    claims["jti"].as_str().unwrap().to_owned()
}

#[test]
fn remote_socket_closes_with_its_refreshed_token() {
    run(async {
        let nodes = NodeCluster::start(2, &[]).await;
        let (session, resume_token) = nodes.session(0).await;
        let [opened, fresh] = [0, 1].map(|_| nodes.servers[0].token("demo", Role::Player, Some("p1")));
        let mut socket = TestSocket::open(nodes.servers[1].address, &opened).await;
        resume_session(&mut socket, &session, &resume_token, 1).await;
        socket.send(&json!({"type": "auth.refresh", "token": fresh})).await;
        socket.until("auth.refreshed").await;
        assert_eq!(socket.say_line(&session, "And you?").await.turn, 2);

        let admin = rest_client(&nodes.servers[0], "demo", Role::Admin);
        let revoke = async |token: &str| {
            let body = json!({"jti": token_id(token)});
            let answer = admin.call(Method::POST, "/v1/tokens:revoke", Some(&body)).await;
            assert_eq!(answer.0, 204, "{}", answer.1);
        };
        revoke(&opened).await;
        // The owner uses the refreshed token, too.
        assert_eq!(socket.say_line(&session, "Still there?").await.turn, 3);
        revoke(&fresh).await;
        assert_eq!(close_code(&mut socket).await, 4401);
    });
}
