//! What players asked to have forgotten, kept for what lands later.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::SqliteConnection;

use crate::{
    adapters::sqlite::{
        Engine,
        rows::{Columns, micros, store_error},
    },
    ids::{TenantId, WorldId},
    memory::fact::Audience,
    ports::{
        StoreResult,
        ledger::facts::{ForgetRequest, Reconciliation},
    },
};

const INSERT: &str = "INSERT INTO forget_requests (tenant, turn, text_version, place, world, audience, text, at)
    SELECT $1, $2, $3, key, $4, value ->> 0, value ->> 1, value ->> 2 FROM json_each($5)";
const SINCE: &str = "SELECT t.id, t.player, r.text, r.at, EXISTS (
        SELECT 1 FROM invalidations i
        WHERE i.tenant = r.tenant AND i.cause_id = r.turn AND i.reason = 'forgotten' AND i.lifted_at IS NULL)
    FROM forget_requests r CROSS JOIN turns t ON t.tenant = r.tenant AND t.id = r.turn
    WHERE r.tenant = $1 AND r.world = $2 AND r.audience = $3 AND r.at > $4
      AND t.stands = 1 AND t.text_version = r.text_version
    ORDER BY r.at, r.turn, r.place LIMIT $5";

/// Writes the requests of a reconciliation whose fence has been passed.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    tenant: &TenantId,
    result: &Reconciliation,
) -> StoreResult<()> {
    let requests: serde_json::Value = result
        .forget
        .iter()
        .map(|request| json!([request.audience.fingerprint(), request.text, micros(request.at)]))
        .collect();
    sqlx::query(INSERT)
        .bind(tenant.as_str())
        .bind(result.fence.turn.to_string())
        .bind(i64::from(result.fence.text_version))
        .bind(result.world.as_str())
        .bind(requests.to_string())
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

pub(super) async fn since(
    engine: &Engine,
    tenant: &TenantId,
    world: &WorldId,
    audience: &Audience,
    since: DateTime<Utc>,
    limit: u32,
) -> StoreResult<Vec<ForgetRequest>> {
    let mut connection = engine.read().await?;
    let rows = sqlx::query(SINCE)
        .bind(tenant.as_str())
        .bind(world.as_str())
        .bind(audience.fingerprint())
        .bind(micros(since))
        .bind(i64::from(limit))
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    rows.iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(ForgetRequest {
                turn: columns.id()?,
                player: columns.maybe_id()?,
                text: columns.next()?,
                at: columns.time()?,
                met: columns.next()?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::sqlite::plans::assert_searches;

    #[tokio::test]
    async fn requests_are_found_by_what_they_may_reach() {
        assert_searches(SINCE, &["forget_requests_since", "invalidations_by_cause"]).await;
        assert_searches(INSERT, &[]).await;
    }
}
