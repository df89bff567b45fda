//! The nodes of the server.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    Engine, Reach, Row, leases,
    rows::{Columns, micros, store_error},
};
use crate::{
    ids::{DialogueId, NodeId, TenantId},
    ports::{
        StoreResult,
        ledger::{
            dialogues::DialogueOptions,
            nodes::{Beat, DeadNode, LiveNode, NodeStore},
        },
    },
};

pub(super) struct SqlNodeStore(pub(super) Arc<Engine>);

/// A row outlives its node by this much, longer than any ownership is taken for.
const KEPT_MICROS: i64 = 2 * 24 * 3_600 * 1_000_000;

const TIME: &str = concat!("SELECT ", its_now!());
const SUPPLANT: &str = "UPDATE nodes SET until = CASE WHEN until > $3 THEN $3 ELSE until END, has_left = TRUE
    WHERE url = $2 AND id <> $1 AND has_left = FALSE";
const PROLONG: &str = "UPDATE nodes SET until = $2 WHERE id = $1 AND until > $3";
const ENTER: &str = "INSERT INTO nodes (id, url, until, has_left, buried) VALUES ($1, $2, $3, FALSE, FALSE)
    ON CONFLICT (id) DO UPDATE SET url = excluded.url, until = excluded.until, has_left = FALSE, buried = FALSE";
const LEAVE: &str =
    "UPDATE nodes SET until = CASE WHEN until > $2 THEN $2 ELSE until END, has_left = TRUE WHERE id = $1";
const LIVE: &str = "SELECT id, url, until FROM nodes WHERE until > $1 ORDER BY id";
const OWNED: &str = "SELECT tenant, id FROM dialogues WHERE owner_node = $1";
const DEAD: &str = "SELECT id FROM nodes WHERE buried = FALSE AND (has_left = TRUE OR until <= $1) ORDER BY id";
/// Ids begin with their kind.
const CONVERSATIONS: &str = "SELECT tenant, id, options FROM dialogues
    WHERE owner_node = $1 AND status = 'open' AND id >= 'con_' AND id < 'con`'";
const BURY: &str =
    "UPDATE nodes SET buried = TRUE WHERE id = $1 AND buried = FALSE AND (has_left = TRUE OR until <= $2)";
const FORGET: &str = "DELETE FROM nodes WHERE buried = TRUE AND until <= $1";

fn read_live(row: &Row) -> StoreResult<LiveNode> {
    let mut columns = Columns::of(row);
    Ok(LiveNode {
        id: columns.id()?,
        url: columns.next()?,
        until: columns.time()?,
    })
}

fn read_key(columns: &mut Columns<'_>) -> StoreResult<(TenantId, DialogueId)> {
    Ok((columns.id()?, columns.id()?))
}

#[async_trait]
impl NodeStore for SqlNodeStore {
    async fn time(&self) -> StoreResult<DateTime<Utc>> {
        let mut connection = self.0.read(Reach::All).await?;
        let row = sqlx::query(TIME)
            .fetch_one(&mut *connection)
            .await
            .map_err(store_error)?;
        Columns::of(&row).time()
    }

    async fn join(&self, node: &LiveNode, now: DateTime<Utc>) -> StoreResult<()> {
        let node = node.clone();
        self.0
            .write(Reach::All, move |connection| {
                Box::pin(async move {
                    sqlx::query(SUPPLANT)
                        .bind(node.id.to_string())
                        .bind(&node.url)
                        .bind(micros(now))
                        .execute(&mut *connection)
                        .await
                        .map_err(store_error)?;
                    sqlx::query(ENTER)
                        .bind(node.id.to_string())
                        .bind(&node.url)
                        .bind(micros(node.until))
                        .execute(connection)
                        .await
                        .map(drop)
                        .map_err(store_error)
                })
            })
            .await
    }

    async fn beat(&self, node: &LiveNode, now: DateTime<Utc>) -> StoreResult<Beat> {
        let node = node.clone();
        self.0
            .write(Reach::All, move |connection| {
                Box::pin(async move {
                    let kept = sqlx::query(PROLONG)
                        .bind(node.id.to_string())
                        .bind(micros(node.until))
                        .bind(micros(now))
                        .execute(&mut *connection)
                        .await
                        .map_err(store_error)?;
                    if kept.rows_affected() == 1 {
                        return Ok(Beat::Kept);
                    }
                    sqlx::query(ENTER)
                        .bind(node.id.to_string())
                        .bind(&node.url)
                        .bind(micros(node.until))
                        .execute(connection)
                        .await
                        .map_err(store_error)?;
                    Ok(Beat::WasDead)
                })
            })
            .await
    }

    async fn leave(&self, node: NodeId, now: DateTime<Utc>) -> StoreResult<()> {
        self.0
            .write_once(Reach::All, move |connection| {
                Box::pin(async move {
                    sqlx::query(LEAVE)
                        .bind(node.to_string())
                        .bind(micros(now))
                        .execute(connection)
                        .await
                        .map(drop)
                        .map_err(store_error)
                })
            })
            .await
    }

    async fn live(&self, now: DateTime<Utc>) -> StoreResult<Vec<LiveNode>> {
        let mut connection = self.0.read(Reach::All).await?;
        let rows = sqlx::query(LIVE)
            .bind(micros(now))
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(read_live).collect()
    }

    async fn owned(&self, node: NodeId) -> StoreResult<Vec<(TenantId, DialogueId)>> {
        let mut connection = self.0.read(Reach::All).await?;
        let rows = sqlx::query(OWNED)
            .bind(node.to_string())
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(|row| read_key(&mut Columns::of(row))).collect()
    }

    async fn dead(&self, by: DateTime<Utc>) -> StoreResult<Vec<DeadNode>> {
        let mut connection = self.0.read(Reach::All).await?;
        let rows = sqlx::query(DEAD)
            .bind(micros(by))
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        let mut dead = Vec::with_capacity(rows.len());
        for row in &rows {
            let id: NodeId = Columns::of(row).id()?;
            let conversations = sqlx::query(CONVERSATIONS)
                .bind(id.to_string())
                .fetch_all(&mut *connection)
                .await
                .map_err(store_error)?;
            let mut pacing = Vec::new();
            for row in &conversations {
                let mut columns = Columns::of(row);
                let key = read_key(&mut columns)?;
                let options: DialogueOptions = columns.json()?;
                if options.auto && !options.paused {
                    pacing.push(key);
                }
            }
            dead.push(DeadNode { id, pacing });
        }
        Ok(dead)
    }

    async fn bury(&self, node: NodeId, by: DateTime<Utc>) -> StoreResult<bool> {
        self.0
            .write(Reach::All, move |connection| {
                Box::pin(async move {
                    let buried = sqlx::query(BURY)
                        .bind(node.to_string())
                        .bind(micros(by))
                        .execute(&mut *connection)
                        .await
                        .map_err(store_error)?;
                    if buried.rows_affected() == 0 {
                        return Ok(false);
                    }
                    sqlx::query(leases::RELEASE_ALL)
                        .bind(node.to_string())
                        .execute(&mut *connection)
                        .await
                        .map_err(store_error)?;
                    sqlx::query(FORGET)
                        .bind(micros(by) - KEPT_MICROS)
                        .execute(connection)
                        .await
                        .map_err(store_error)?;
                    Ok(true)
                })
            })
            .await
    }
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn what_a_node_owns_is_found_by_index() {
            assert_searches(OWNED, &["dialogues_owned"]).await;
            assert_searches(CONVERSATIONS, &["dialogues_owned"]).await;
        }
    }
}
