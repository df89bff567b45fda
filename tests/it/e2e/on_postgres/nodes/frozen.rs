//! A frozen node writes after a takeover, before noticing the takeover. The ledger refuses the write.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::{Connection as _, PgConnection, Row as _};

use super::{
    NodeCluster, counter_value,
    dying::{line_numbers, node_ids},
    eventually_after_outage, rewind_at_frozen_node, say, say_at_any_node,
    sockets::{conversation, resume_session},
    standing_lines,
};
use crate::support::run;

/// Returns whether a node was found dead, and the end of its lease.
async fn node_entry(ledger: &mut PgConnection, node: &str) -> (bool, i64) {
    let row = sqlx::query("SELECT buried, until FROM nodes WHERE id = $1")
        .bind(node)
        .fetch_one(ledger)
        .await
        .unwrap();
    (row.get("buried"), row.get("until"))
}

/// Waits until a node's entry satisfies `is_so`.
async fn wait_for_node_entry(ledger: &mut PgConnection, node: &str, what: &str, is_so: impl Fn((bool, i64)) -> bool) {
    let looking = async { while !is_so(node_entry(ledger, node).await) {} };
    tokio::time::timeout(Duration::from_mins(2), looking)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen"));
}

/// Returns the number of a node's writes that the ledger has refused.
async fn fenced_writes(nodes: &NodeCluster, at: usize, write: &str) -> f64 {
    let metric = format!("colloquy_fenced_writes_total{{write=\"{write}\"}}");
    counter_value(&nodes.servers[at], &metric).await
}

#[test]
fn frozen_node_is_fenced_by_the_ledger_before_it_notices() {
    const WRITES: [&str; 3] = ["turn", "line", "move"];
    run(async {
        // No ownership is renewed meanwhile.
        let nodes = NodeCluster::start(3, &[("COLLOQUY__ACTORS__OWNERSHIP_S", "3600")]).await;
        let [frozen, second, third] = [0, 1, 2].map(|at| nodes.servers[at].backend());
        let node = node_ids(&nodes).await.remove(0);
        let (spoken, token) = nodes.session(0).await;
        let (taken_back, _) = nodes.session(0).await;
        let talk = conversation(&nodes.servers[0], false).await;
        let step = format!("/v1/npc-conversations/{talk}:step");
        frozen.post(&step, &json!({})).await;
        frozen.idle().await;
        let mut socket = nodes.servers[0].player("p1").await;
        resume_session(&mut socket, &spoken, &token, 1).await;

        // A reply and an NPC line are streaming at the freeze, and the model finishes both meanwhile.
        nodes.mock.apply_settings(&json!({"faults": ["reply=hold"]})).unwrap();
        let calls = nodes.mock.calls_of("reply");
        socket.send_line(&spoken, "late", "I come too late.").await;
        let stepping = tokio::spawn({
            let (rest, step) = (frozen.clone(), step.clone());
            async move { rest.attempt(Method::POST, &step, Some(&json!({}))).await }
        });
        eventually_after_outage("both to be asked for", || async {
            (nodes.mock.calls_of("reply") >= calls + 2).then_some(())
        })
        .await;
        let mut ledger = nodes.data.database().connect().await;
        let (_, until) = node_entry(&mut ledger, &node).await;
        // The freeze must not come in the middle of a heartbeat.
        wait_for_node_entry(&mut ledger, &node, "a heartbeat", |(_, now)| now > until).await;
        nodes.servers[0].freeze().await;
        nodes.mock.apply_settings(&json!({"faults": []})).unwrap();
        let others = [second.clone(), third.clone()];
        for session in [&spoken, &taken_back] {
            let (turn, _) = say_at_any_node(&others, session, "meanwhile", "Is anybody there?").await;
            assert_eq!(turn["turn"], 2, "{turn}");
        }
        eventually_after_outage("the conversation to go on", || async {
            let (status, _) = second.call(Method::POST, &step, Some(&json!({}))).await;
            (status == StatusCode::OK).then_some(())
        })
        .await;
        let mut taken_over = 0.0;
        for server in &nodes.servers[1..] {
            taken_over += counter_value(server, "colloquy_takeovers_total").await;
        }
        assert!((taken_over - 3.0).abs() < 0.1, "{taken_over} dialogues were taken over");
        wait_for_node_entry(&mut ledger, &node, "its burial", |(buried, _)| buried).await;

        // The node's heartbeat waits here for its locked row. No other message tells the node of its death.
        let mut holding = ledger.begin().await.unwrap();
        sqlx::query("SELECT 1 FROM nodes WHERE id = $1 FOR UPDATE")
            .bind(&node)
            .execute(&mut *holding)
            .await
            .unwrap();
        let before = node_entry(&mut holding, &node).await;
        // The node believes that the last turn is 1.
        let back = rewind_at_frozen_node(&frozen, &taken_back);
        nodes.servers[0].thaw();
        for write in WRITES {
            eventually_after_outage(&format!("a {write} to be refused"), || async {
                (fenced_writes(&nodes, 0, write).await > 0.5).then_some(())
            })
            .await;
        }
        assert_eq!(
            node_entry(&mut holding, &node).await,
            before,
            "it has noticed before it wrote"
        );
        holding.rollback().await.unwrap();

        let mut committed = false;
        let code = loop {
            match socket.next_or_close().await {
                Ok(event) => committed |= event["type"] == "turn.committed" && event["turn"] == 2,
                Err(code) => break code,
            }
        };
        assert_eq!((code, committed), (4503, false));
        back.await.unwrap();
        // The step may have been forwarded, and may have become another line.
        let _ = stepping.await.unwrap();
        for session in [&spoken, &taken_back] {
            assert_eq!(standing_lines(&third, session).await, ["Hello.", "Is anybody there?"]);
        }
        let numbers = line_numbers(&third, &talk).await;
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        for (at, server) in nodes.servers.iter().enumerate() {
            let refused = fenced_writes(&nodes, at, "turn").await;
            let ought = if at == 0 { 1.0 } else { 0.0 };
            assert!((refused - ought).abs() < 0.1, "{refused} turns of {}", server.address);
        }
        // An unacknowledged line is said again, once.
        let (turn, _) = say_at_any_node(std::slice::from_ref(&frozen), &spoken, "late", "I come too late.").await;
        assert_eq!(turn["turn"], 3, "{turn}");
        let again = say(&third, &spoken, "late", "I come too late.").await;
        assert_eq!(again["id"], turn["id"]);
    });
}
