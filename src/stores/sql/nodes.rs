//! The nodes of the server.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    context::Engine,
    leases,
    rows::{Columns, to_micros},
    scope::RowScope,
    statements::{execute, fetch_all},
};
use colloquy_core::ids::{DialogueId, NodeId, TenantId};
use colloquy_ports::{
    StoreResult,
    ledger::{
        dialogues::DialogueOptions,
        nodes::{DeadNode, HeartbeatOutcome, LiveNode, NodeStore},
    },
};

pub(super) struct SqlNodeStore(pub(super) Arc<Engine>);

/// The time by which a row outlives its node, in microseconds. No ownership lasts longer.
const NODE_RETENTION_MICROS: i64 = 2 * 24 * 3_600 * 1_000_000;

const DATABASE_TIME: &str = concat!("SELECT ", database_now!());
const RETIRE_NODES_AT_URL: &str =
    "UPDATE nodes SET until = CASE WHEN until > $3 THEN $3 ELSE until END, has_left = TRUE
    WHERE url = $2 AND id <> $1 AND has_left = FALSE";
const PROLONG_NODE: &str = "UPDATE nodes SET until = $2 WHERE id = $1 AND until > $3";
const UPSERT_NODE: &str = "INSERT INTO nodes (id, url, until, has_left, buried) VALUES ($1, $2, $3, FALSE, FALSE)
    ON CONFLICT (id) DO UPDATE SET url = excluded.url, until = excluded.until, has_left = FALSE, buried = FALSE";
const MARK_LEFT: &str =
    "UPDATE nodes SET until = CASE WHEN until > $2 THEN $2 ELSE until END, has_left = TRUE WHERE id = $1";
const LIVE_NODES: &str = "SELECT id, url, until FROM nodes WHERE until > $1 ORDER BY id";
const OWNED_DIALOGUES: &str = "SELECT tenant, id FROM dialogues WHERE owner_node = $1";
const DEAD_NODES: &str = "SELECT id FROM nodes WHERE buried = FALSE AND (has_left = TRUE OR until <= $1) ORDER BY id";
/// Ids begin with their kind.
const OPEN_CONVERSATIONS: &str = "SELECT tenant, id, options FROM dialogues
    WHERE owner_node = $1 AND status = 'open' AND id >= 'con_' AND id < 'con`'";
const MARK_BURIED: &str =
    "UPDATE nodes SET buried = TRUE WHERE id = $1 AND buried = FALSE AND (has_left = TRUE OR until <= $2)";
const DELETE_BURIED: &str = "DELETE FROM nodes WHERE buried = TRUE AND until <= $1";

fn read_live_node(columns: &mut Columns<'_>) -> StoreResult<LiveNode> {
    Ok(LiveNode {
        id: columns.id()?,
        url: columns.next()?,
        until: columns.time()?,
    })
}

fn read_dialogue_key(columns: &mut Columns<'_>) -> StoreResult<(TenantId, DialogueId)> {
    Ok((columns.id()?, columns.id()?))
}

#[async_trait]
impl NodeStore for SqlNodeStore {
    async fn ledger_time(&self) -> StoreResult<DateTime<Utc>> {
        let query = bind!(DATABASE_TIME);
        self.0.fetch_one(RowScope::All, query, |columns| columns.time()).await
    }

    async fn register_node(&self, node: &LiveNode, now: DateTime<Utc>) -> StoreResult<()> {
        let node = node.clone();
        write_transaction!(self.0, RowScope::All, |connection| {
            execute!(connection, RETIRE_NODES_AT_URL; node.id, node.url, to_micros(now)).await?;
            execute!(connection, UPSERT_NODE; node.id, node.url, to_micros(node.until)).await?;
            Ok(())
        })
        .await
    }

    async fn record_heartbeat(&self, node: &LiveNode, now: DateTime<Utc>) -> StoreResult<HeartbeatOutcome> {
        let node = node.clone();
        write_transaction!(self.0, RowScope::All, |connection| {
            let updated_rows =
                execute!(connection, PROLONG_NODE; node.id, to_micros(node.until), to_micros(now)).await?;
            if updated_rows == 1 {
                return Ok(HeartbeatOutcome::StillAlive);
            }
            execute!(connection, UPSERT_NODE; node.id, node.url, to_micros(node.until)).await?;
            Ok(HeartbeatOutcome::WasDead)
        })
        .await
    }

    async fn deregister_node(&self, node: NodeId, now: DateTime<Utc>) -> StoreResult<()> {
        let query = bind!(MARK_LEFT; node, to_micros(now));
        self.0.execute(RowScope::All, query).await.map(drop)
    }

    async fn list_live_nodes(&self, now: DateTime<Utc>) -> StoreResult<Vec<LiveNode>> {
        let query = bind!(LIVE_NODES; to_micros(now));
        self.0.fetch_all(RowScope::All, query, read_live_node).await
    }

    async fn list_owned_dialogues(&self, node: NodeId) -> StoreResult<Vec<(TenantId, DialogueId)>> {
        let query = bind!(OWNED_DIALOGUES; node);
        self.0.fetch_all(RowScope::All, query, read_dialogue_key).await
    }

    async fn list_dead_nodes(&self, now: DateTime<Utc>) -> StoreResult<Vec<DeadNode>> {
        let mut connection = self.0.acquire_reader(RowScope::All).await?;
        let rows = fetch_all!(connection, DEAD_NODES; to_micros(now)).await?;
        let mut dead_nodes = Vec::with_capacity(rows.len());
        for row in &rows {
            let id: NodeId = Columns::new(row).id()?;
            let conversations = fetch_all!(connection, OPEN_CONVERSATIONS; id).await?;
            let mut pacing = Vec::new();
            for row in &conversations {
                let mut columns = Columns::new(row);
                let key = read_dialogue_key(&mut columns)?;
                let options: DialogueOptions = columns.json()?;
                if options.auto && !options.paused {
                    pacing.push(key);
                }
            }
            dead_nodes.push(DeadNode {
                id,
                auto_conversations: pacing,
            });
        }
        Ok(dead_nodes)
    }

    async fn release_dead_node(&self, node: NodeId, now: DateTime<Utc>) -> StoreResult<bool> {
        write_transaction!(self.0, RowScope::All, |connection| {
            if execute!(connection, MARK_BURIED; node, to_micros(now)).await? == 0 {
                return Ok(false);
            }
            execute!(connection, leases::RELEASE_JOBS_OF_NODE; node).await?;
            execute!(connection, DELETE_BURIED; to_micros(now) - NODE_RETENTION_MICROS).await?;
            Ok(true)
        })
        .await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn dialogues_of_a_node_are_found_by_index() {
            assert_searches(OWNED_DIALOGUES, &["dialogues_owned"]).await;
            assert_searches(OPEN_CONVERSATIONS, &["dialogues_owned"]).await;
        }
    }
}
