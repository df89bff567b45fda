//! Usage counters: sums per tenant, day, task and model.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use chrono::NaiveDate;
use serde_json::json;

use super::{
    Engine,
    rows::{Columns, store_error},
};
use crate::{
    memory::turn::Usage,
    ports::{
        StoreResult,
        ledger::usage::{UsageDelta, UsageRow, UsageStore},
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
}
