//! Postgres is unreachable for all nodes, longer than a node's lease, and then returns.

use std::time::Duration;

use super::{NodeCluster, counter_value, forwarded_count, say_at_any_node};
use crate::support::{PostgresServer, TestServer, run};

#[test]
fn nodes_without_heartbeat_during_an_outage_are_not_taken_over() {
    run(async {
        let mut postgres = PostgresServer::start().await;
        let short = [
            ("COLLOQUY__NODE__HEARTBEAT_MS", "1000"),
            ("COLLOQUY__NODE__LEASE_MS", "3000"),
            ("COLLOQUY__LEDGER__CONNECTIONS", "8"),
        ];
        let nodes = NodeCluster::start_on(&postgres, 3, &short).await;
        let mut sessions = Vec::new();
        for owner in 0..3 {
            for _ in 0..2 {
                sessions.push((owner, nodes.session(owner).await.0));
            }
        }
        postgres.kill();
        tokio::time::sleep(Duration::from_secs(5)).await;
        postgres.start_again().await;
        // The lines come at once to nodes other than the owner. The first to speak after the outage sees no live node.
        let rests: Vec<_> = nodes.servers.iter().map(TestServer::backend).collect();
        for line in 0..6 {
            let key = format!("line {line}");
            let asked = sessions.iter().map(|(owner, session)| {
                let elsewhere = std::slice::from_ref(&rests[(owner + 1) % 3]);
                say_at_any_node(elsewhere, session, &key, &key)
            });
            for (turn, _) in futures_util::future::join_all(asked).await {
                assert_eq!(turn["player_text"], key.as_str());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        for server in &nodes.servers {
            let taken_over = counter_value(server, "colloquy_takeovers_total").await;
            assert!(taken_over < 0.5, "{taken_over} dialogues were taken over");
            let sent_on = forwarded_count(server, "request").await;
            assert!(sent_on >= 12.0, "still the other's: {sent_on} of 12 lines were sent on");
        }
    });
}
