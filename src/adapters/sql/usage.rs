//! Usage counters: sums per tenant, day, task and model.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use chrono::NaiveDate;
use serde_json::json;

use super::{
    Engine, Reach,
    rows::{Columns, store_error},
};
use crate::{
    ids::PlayerId,
    memory::turn::Usage,
    ports::{
        StoreResult,
        ledger::usage::{ModelDay, Stored, UsageDelta, UsageRow, UsageStore},
    },
    tenancy::TenantScope,
};

pub(super) struct SqlUsageStore(pub(super) Arc<Engine>);

const ADD: &str = concat!(
    "INSERT INTO model_usage
        (tenant, day, task, model, calls, prompt_tokens, cached_tokens, completion_tokens)
     SELECT $1, value ->> 0, value ->> 1, value ->> 2, CAST(value ->> 3 AS BIGINT), CAST(value ->> 4 AS BIGINT),
        CAST(value ->> 5 AS BIGINT), CAST(value ->> 6 AS BIGINT)
     FROM ",
    rows!("$2"),
    " v WHERE TRUE ORDER BY key
    ON CONFLICT (tenant, day, task, model) DO UPDATE SET
        calls = model_usage.calls + excluded.calls,
        prompt_tokens = model_usage.prompt_tokens + excluded.prompt_tokens,
        cached_tokens = model_usage.cached_tokens + excluded.cached_tokens,
        completion_tokens = model_usage.completion_tokens + excluded.completion_tokens"
);
const BETWEEN: &str = "SELECT day, task, model, calls, prompt_tokens, cached_tokens, completion_tokens
    FROM model_usage WHERE tenant = $1 AND day BETWEEN $2 AND $3 ORDER BY day, task, model";
const OF_DAY: &str = "SELECT tenant, model, CAST(SUM(prompt_tokens) AS BIGINT), CAST(SUM(cached_tokens) AS BIGINT),
        CAST(SUM(completion_tokens) AS BIGINT)
    FROM model_usage WHERE day = $1 GROUP BY tenant, model";
/// Not beyond what is asked for: it may be millions.
const STORED: &str = "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM dialogues WHERE tenant = $1 LIMIT $2) d),
    (SELECT COUNT(*) FROM (SELECT 1 FROM turns WHERE tenant = $1 LIMIT $3) t)";

const SESSIONS_OF: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM dialogues WHERE tenant = $1 AND player = $2 LIMIT $3) d";

fn most(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[async_trait]
impl UsageStore for SqlUsageStore {
    async fn add(&self, scope: &TenantScope, deltas: &[UsageDelta]) -> StoreResult<()> {
        if deltas.is_empty() {
            return Ok(());
        }
        let tenant = scope.tenant().clone();
        // Each counter once, and in one order for everybody who adds to several.
        let mut sums = BTreeMap::<_, (u32, Usage)>::new();
        for delta in deltas {
            let (calls, usage) = sums.entry((delta.day, delta.task, delta.model.as_str())).or_default();
            *calls = calls.saturating_add(delta.calls);
            *usage += delta.usage;
        }
        let rows = sums
            .into_iter()
            .map(|((day, task, model), (calls, usage))| {
                json!([
                    day.to_string(),
                    task,
                    model,
                    calls,
                    usage.prompt_tokens,
                    usage.cached_tokens,
                    usage.completion_tokens,
                ])
            })
            .collect::<serde_json::Value>()
            .to_string();
        self.0
            .write(scope, move |connection| {
                Box::pin(async move {
                    sqlx::query(ADD)
                        .bind(tenant.as_str())
                        .bind(&rows)
                        .execute(connection)
                        .await
                        .map(drop)
                        .map_err(store_error)
                })
            })
            .await
    }
    async fn between(&self, scope: &TenantScope, from: NaiveDate, to: NaiveDate) -> StoreResult<Vec<UsageRow>> {
        let mut connection = self.0.read(scope).await?;
        let rows = sqlx::query(BETWEEN)
            .bind(scope.tenant().as_str())
            .bind(from.to_string())
            .bind(to.to_string())
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter()
            .map(|row| {
                let mut columns = Columns::of(row);
                Ok(UsageRow {
                    day: columns.id()?,
                    task: columns.next()?,
                    model: columns.next()?,
                    calls: columns.number()?,
                    prompt_tokens: columns.number()?,
                    cached_tokens: columns.number()?,
                    completion_tokens: columns.number()?,
                })
            })
            .collect()
    }
    async fn of_day(&self, day: NaiveDate) -> StoreResult<Vec<ModelDay>> {
        let mut connection = self.0.read(Reach::All).await?;
        let rows = sqlx::query(OF_DAY)
            .bind(day.to_string())
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter()
            .map(|row| {
                let mut columns = Columns::of(row);
                Ok(ModelDay {
                    tenant: columns.id()?,
                    model: columns.next()?,
                    prompt_tokens: columns.number()?,
                    cached_tokens: columns.number()?,
                    completion_tokens: columns.number()?,
                })
            })
            .collect()
    }
    async fn sessions_of(&self, scope: &TenantScope, player: &PlayerId, at_most: u64) -> StoreResult<u64> {
        let mut connection = self.0.read(scope).await?;
        let row = sqlx::query(SESSIONS_OF)
            .bind(scope.tenant().as_str())
            .bind(player.as_str())
            .bind(most(at_most))
            .fetch_one(&mut *connection)
            .await
            .map_err(store_error)?;
        Columns::of(&row).number()
    }
    async fn stored(&self, scope: &TenantScope, at_most: Stored) -> StoreResult<Stored> {
        let mut connection = self.0.read(scope).await?;
        let row = sqlx::query(STORED)
            .bind(scope.tenant().as_str())
            .bind(most(at_most.dialogues))
            .bind(most(at_most.turns))
            .fetch_one(&mut *connection)
            .await
            .map_err(store_error)?;
        let mut columns = Columns::of(&row);
        Ok(Stored {
            dialogues: columns.number()?,
            turns: columns.number()?,
        })
    }
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn what_is_used_and_stored_is_found_without_reading_the_rest() {
            assert_searches(OF_DAY, &["model_usage_of_day (day=?)"]).await;
            assert_searches(SESSIONS_OF, &["dialogues_of_player (tenant=? AND player=?)"]).await;
            let stored = plan(STORED).await;
            // What the subqueries found is scanned.
            assert!(!stored.contains("SCAN dialogues") && !stored.contains("SCAN turns"), "{stored}");
        }
    }
}
