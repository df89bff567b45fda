//! World state as events.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use serde_json::json;

use super::{
    Connection, Engine, Lock, Row, jobs, lock,
    rows::{Columns, micros, store_error},
};
use crate::{
    ids::{TenantId, WorldId},
    ports::{
        StoreError, StoreResult,
        ledger::{
            jobs::JobFence,
            state::{NewStateChange, StateStore, StoredStateChange},
        },
    },
    tenancy::TenantScope,
};

pub(super) struct SqlStateStore(pub(super) Arc<Engine>);

/// Inserts the rows of [`rows_json`], bound as `$rows`, in their order. Also part of a turn's commit.
macro_rules! insert_state_events {
    ($rows:literal) => {
        concat!(
            "INSERT INTO state_events (tenant, id, world, dialogue, change, cause_kind, cause_id, at)
             SELECT $1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
                CAST(value ->> 6 AS BIGINT)
             FROM ",
            rows!($rows),
            " v ORDER BY key"
        )
    };
}
pub(super) use insert_state_events;

const INSERT: &str = insert_state_events!("$2");
const STANDING: &str = "SELECT id, seq, change, cause_kind, cause_id, at FROM state_events
    WHERE tenant = $1 AND world = $2 AND lifted_at IS NULL ORDER BY at, seq";
const SINCE: &str = "SELECT id, seq, change, cause_kind, cause_id, at FROM state_events
    WHERE tenant = $1 AND world = $2 AND seq > $3 AND lifted_at IS NULL ORDER BY seq";

fn read(row: &Row) -> StoreResult<StoredStateChange> {
    let mut columns = Columns::of(row);
    Ok(StoredStateChange {
        id: columns.id()?,
        seq: columns.next()?,
        change: columns.json()?,
        cause: columns.cause()?,
        at: columns.time()?,
    })
}

/// State changes as one JSON bind.
pub(super) fn rows_json(changes: &[NewStateChange]) -> StoreResult<String> {
    let mut rows = Vec::with_capacity(changes.len());
    for change in changes {
        let (cause_kind, cause_id) = change.cause.columns();
        rows.push(json!([
            change.id,
            change.world,
            change.dialogue,
            super::rows::json(&change.change)?,
            cause_kind,
            cause_id,
            micros(change.at),
        ]));
    }
    serde_json::to_string(&rows).map_err(|error| StoreError::Rejected(error.to_string()))
}

/// The worlds that changes are of.
pub(super) fn worlds_of(changes: &[NewStateChange]) -> BTreeSet<WorldId> {
    changes.iter().map(|change| change.world.clone()).collect()
}

/// Before changes are numbered: a reader that has seen one asks for later numbers only.
pub(super) async fn hold_order(
    connection: &mut Connection,
    tenant: &TenantId,
    worlds: &BTreeSet<WorldId>,
) -> StoreResult<()> {
    for world in worlds {
        lock(connection, tenant, Lock::State(world)).await?;
    }
    Ok(())
}

#[async_trait]
impl StateStore for SqlStateStore {
    async fn standing(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<Vec<StoredStateChange>> {
        let mut connection = self.0.read(scope).await?;
        let rows = sqlx::query(STANDING)
            .bind(scope.tenant().as_str())
            .bind(world.as_str())
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(read).collect()
    }
    async fn since(&self, scope: &TenantScope, world: &WorldId, after: i64) -> StoreResult<Vec<StoredStateChange>> {
        let mut connection = self.0.read(scope).await?;
        let rows = sqlx::query(SINCE)
            .bind(scope.tenant().as_str())
            .bind(world.as_str())
            .bind(after)
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(read).collect()
    }
    async fn commit(&self, scope: &TenantScope, fence: &JobFence, changes: &[NewStateChange]) -> StoreResult<bool> {
        let (tenant, fence, now) = (scope.tenant().clone(), *fence, self.0.clock.now());
        let (rows, worlds) = (rows_json(changes)?, worlds_of(changes));
        self.0
            .write(scope, move |connection| {
                Box::pin(async move {
                    if !jobs::pass_fence(connection, &tenant, &fence, now).await? {
                        return Ok(false);
                    }
                    hold_order(connection, &tenant, &worlds).await?;
                    sqlx::query(INSERT)
                        .bind(tenant.as_str())
                        .bind(&rows)
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
        use crate::adapters::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn state_is_read_in_order_off_its_index() {
            assert_searches(STANDING, &["state_events_standing"]).await;
            assert_searches(SINCE, &["state_events_since (tenant=? AND world=? AND seq>?)"]).await;
            for statement in [STANDING, SINCE] {
                assert!(!plan(statement).await.contains("TEMP B-TREE"));
            }
        }
    }
}
