//! Tokens that are revoked, and tenants that are disabled, at another node.

use std::time::Duration;

use base64::Engine as _;
use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Nodes,
    sockets::{conversation, resume},
};
use crate::{
    e2e::disabled::talk_stops_and_goes_on,
    support::{Rest, Server, Socket, run},
};

/// What a node has to have done by itself.
const SOON: Duration = Duration::from_secs(2);

async fn closed(socket: &mut Socket) -> u16 {
    let ended = async {
        loop {
            if let Err(code) = socket.next_or_close().await {
                return code;
            }
        }
    };
    tokio::time::timeout(SOON, ended).await.expect("the socket stays open")
}

fn rest(server: &Server, tenant: &str, role: Role) -> Rest {
    Rest::new(server.address, server.token(tenant, role, None))
}

#[test]
fn what_was_revoked_at_one_node_closes_at_every_other() {
    run(async {
        let nodes = Nodes::start(2, &[("COLLOQUY__TENANTS", "studio")]).await;
        let (session, token) = nodes.session(0).await;
        // At the other node, with a tunnel to the owner; and one at the owner.
        let mut through = nodes.servers[1].player("p1").await;
        resume(&mut through, &session, &token, 1).await;
        let mut bystander = nodes.servers[1].player("p2").await;
        let mut at_owner = nodes.servers[0].player("p1").await;
        let old = nodes.servers[0].token("demo", Role::Player, Some("p1"));
        let admin = rest(&nodes.servers[0], "demo", Role::Admin);
        let body = json!({"player_id": "p1"});
        let (status, answer) = admin
            .attempt(Method::POST, "/v1/tokens:revoke", Some(&body))
            .await
            .unwrap();
        assert_eq!(status, 204, "{answer}");
        for socket in [&mut through, &mut at_owner] {
            assert_eq!(closed(socket).await, 4401);
        }
        let refused = Rest::new(nodes.servers[1].address, old)
            .attempt(Method::GET, "/v1/sessions", None)
            .await;
        let (status, answer) = refused.unwrap();
        assert_eq!((status.as_u16(), &answer["code"]), (401, &json!("token_revoked")));

        // The operator of another tenant disables this one, at a node that has none of its sockets.
        let operator = rest(&nodes.servers[0], "studio", Role::Operator);
        let body = json!({"enabled": false});
        let (status, answer) = operator
            .attempt(Method::PATCH, "/v1/tenants/demo", Some(&body))
            .await
            .unwrap();
        assert_eq!(status, 200, "{answer}");
        assert_eq!(closed(&mut bystander).await, 4401);
    });
}

#[test]
fn a_tenant_that_is_disabled_at_one_node_is_silent_at_every_other() {
    run(async {
        let slow = ("COLLOQUY__CONVERSATION__PAUSE_MS", "100");
        let nodes = Nodes::start(2, &[("COLLOQUY__TENANTS", "studio"), slow]).await;
        conversation(&nodes.servers[1], true).await;
        talk_stops_and_goes_on(&nodes.data, &nodes.servers[0]).await;
    });
}

/// The id of a token.
fn id_of(token: &str) -> String {
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    claims["jti"].as_str().unwrap().to_owned()
}

#[test]
fn a_socket_at_another_node_goes_with_the_token_it_has_now() {
    run(async {
        let nodes = Nodes::start(2, &[]).await;
        let (session, resume_token) = nodes.session(0).await;
        let [opened, fresh] = [0, 1].map(|_| nodes.servers[0].token("demo", Role::Player, Some("p1")));
        let mut socket = Socket::open(nodes.servers[1].address, &opened).await;
        resume(&mut socket, &session, &resume_token, 1).await;
        socket.send(&json!({"type": "auth.refresh", "token": fresh})).await;
        socket.until("auth.refreshed").await;
        assert_eq!(socket.say(&session, "And you?").await.turn, 2);

        let admin = rest(&nodes.servers[0], "demo", Role::Admin);
        let revoke = async |token: &str| {
            let body = json!({"jti": id_of(token)});
            let answer = admin.call(Method::POST, "/v1/tokens:revoke", Some(&body)).await;
            assert_eq!(answer.0, 204, "{}", answer.1);
        };
        revoke(&opened).await;
        // The owner goes by the new one as well.
        assert_eq!(socket.say(&session, "Still there?").await.turn, 3);
        revoke(&fresh).await;
        assert_eq!(closed(&mut socket).await, 4401);
    });
}
