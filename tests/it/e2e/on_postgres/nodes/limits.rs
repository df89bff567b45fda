//! A player's limits at the owner of the dialogue, whichever nodes forward the requests.

use colloquy::tenancy::Role;
use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    NodeCluster, counter_value,
    forwarding::{forward_token_for, other_node_id},
    say,
    sockets::resume_session,
    turns_of,
};
use crate::support::{RestAnswer, RestClient, eventually, run};

async fn answer(rest: &RestClient, path: &str, body: &Value) -> RestAnswer {
    rest.answer(Method::POST, path, Some(body), &[]).await.unwrap()
}

#[test]
fn player_line_limit_holds_across_nodes() {
    run(async {
        let nodes = NodeCluster::start(3, &[("COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN", "4")]).await;
        let (session, _) = nodes.session(0).await;
        let [owner, second, third] = [0, 1, 2].map(|at| nodes.servers[at].backend());
        // The owner counts every line once, whichever node receives the line.
        for (rest, turn) in [(&second, 2), (&owner, 3), (&third, 4)] {
            let said = say(rest, &session, &format!("k{turn}"), "Hello there.").await;
            assert_eq!(said["turn"], turn, "{said}");
        }
        for rest in [&owner, &second, &third] {
            let refused = answer(rest, &turns_of(&session), &json!({"text": "One too many."})).await;
            assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{refused:?}");
            assert_eq!(refused.body["code"], "rate_limited");
            assert!(refused.retry_after > Some(1), "{refused:?}");
        }
    });
}

#[test]
fn player_request_limit_holds_across_nodes() {
    run(async {
        let nodes = NodeCluster::start(3, &[("COLLOQUY__LIMITS__PLAYER_IN_FLIGHT", "1")]).await;
        let (session, _) = nodes.session(0).await;
        let [second, third] = [1, 2].map(|at| nodes.servers[at].rest(Role::Player));
        nodes
            .mock
            .apply_settings(&json!({"tokens_per_s": 5, "deltas": 400}))
            .unwrap();
        let first = {
            let (second, session) = (second.clone(), session.clone());
            tokio::spawn(async move { answer(&second, &turns_of(&session), &json!({"text": "A long story."})).await })
        };
        eventually("a reply to run", || async {
            let running = counter_value(&nodes.servers[0], "colloquy_turns_running").await;
            (running > 0.5).then_some(())
        })
        .await;
        let refused = answer(
            &third,
            &turns_of(&session),
            &json!({"text": "And?", "on_busy": "queue"}),
        )
        .await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{refused:?}");
        let detail = &refused.body["detail"];
        assert_eq!(detail, "a player may have 1 requests under way at once");
        nodes
            .mock
            .apply_settings(&json!({"tokens_per_s": 0, "deltas": 3}))
            .unwrap();
        let path = format!("/v1/sessions/{session}:interrupt");
        nodes.servers[0].backend().post(&path, &json!({})).await;
        // The turn was cut or dropped.
        first.await.unwrap();
        say(&third, &session, "k3", "And now?").await;
    });
}

#[test]
fn node_that_forwards_too_much_for_a_player_is_rejected() {
    run(async {
        colloquy::adapters::openai::install_crypto();
        let nodes = NodeCluster::start(1, &[("COLLOQUY__LIMITS__PLAYER_REQUESTS_PER_S", "2")]).await;
        let node = super::dying::node_ids(&nodes).await.remove(0);
        let who = json!({"subject": "p1", "tenant": "demo", "role": "player", "player": "p1", "world": null,
            "expires_at": "2100-01-01T00:00:00Z"});
        let client = reqwest::Client::new();
        let get = |from: &str| {
            let secret = "what only the nodes of these tests know";
            let hop = forward_token_for(&who, from, &node, secret, "GET /v1/sessions", b"", 10);
            let url = format!("http://{}/v1/sessions", nodes.servers[0].address);
            let request = client.get(url).header("x-colloquy-hop", hop);
            async { request.send().await.unwrap().status() }
        };
        let statuses = join_all((0..50).map(|_| get(&other_node_id(&node)))).await;
        let refused = statuses
            .iter()
            .filter(|status| **status == StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.count() >= 30, "{statuses:?}");
        // Nor can a sender avoid the count by naming the receiving node as its origin.
        assert_eq!(get(&node).await, StatusCode::UNAUTHORIZED);
    });
}

#[test]
fn player_message_limit_holds_across_sockets_of_all_nodes() {
    run(async {
        let limits = [
            ("COLLOQUY__LIMITS__PLAYER_REQUESTS_PER_S", "10"),
            ("COLLOQUY__LIMITS__SOCKET_MESSAGES_PER_S", "0"),
            ("COLLOQUY__LIMITS__PLAYER_SOCKETS", "2"),
        ];
        let nodes = NodeCluster::start(3, &limits).await;
        let mut sockets = Vec::new();
        for at in 1..3 {
            let (session, token) = nodes.session(0).await;
            let mut socket = nodes.servers[at].player("p1").await;
            resume_session(&mut socket, &session, &token, 1).await;
            sockets.push((socket, session));
        }
        // The player has no sockets left at the owner.
        let (session, token) = nodes.session(0).await;
        let mut third = nodes.servers[1].player("p1").await;
        third
            .send(&json!({"type": "session.resume", "event_id": "r", "session_id": session, "resume_token": token}))
            .await;
        let error = &third.next().await["error"];
        assert_eq!(error["code"], "rate_limited", "{error}");
        assert_eq!(error["message"], "a player may have 2 sockets open at once");

        // The player has no messages left either. Each node allows ten, and refills the allowance over time.
        for (socket, session) in &mut sockets {
            for _ in 0..30 {
                let cut = json!({"type": "player.interrupt", "event_id": "i", "session_id": session});
                socket.send(&cut).await;
            }
        }
        for (socket, _) in &mut sockets {
            for _ in 0..30 {
                let event = socket.next().await;
                let code = event["error"]["code"].as_str().unwrap();
                assert!(["rate_limited", "turn_not_running"].contains(&code), "{event}");
            }
        }
        let refused = counter_value(&nodes.servers[0], r#"colloquy_errors_total{code="rate_limited"}"#).await;
        assert!(refused >= 5.0, "the owner refused {refused}");
    });
}
