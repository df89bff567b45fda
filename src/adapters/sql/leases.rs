//! Who has which job: leases, which run out.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::{
    Engine, Reach,
    jobs::read_job,
    rows::{micros, store_error},
};
use crate::{
    ids::{JobId, NodeId},
    ports::{
        StoreResult,
        ledger::jobs::{Job, LeasedAgain},
    },
    tenancy::TenantScope,
};

/// Nothing is leased for a tenant that is disabled.
macro_rules! is_enabled {
    () => {
        " AND NOT EXISTS (SELECT 1 FROM tenants WHERE id = $1 AND enabled = FALSE)"
    };
}
// Only what is due goes to the writer: an idle poll writes nothing.
const ANY_DUE: &str = concat!(
    "SELECT EXISTS (SELECT 1 FROM jobs
    WHERE tenant = $1 AND status = 'pending' AND due_at <= $2 AND (leased_until IS NULL OR leased_until <= $2))",
    is_enabled!()
);
const FINISH_UNSAID: &str =
    "UPDATE jobs SET status = 'done', last_error = 'unsaid', finished_at = $2, leased_to = NULL, leased_until = NULL,
        answer = NULL
    WHERE tenant = $1 AND status = 'pending' AND due_at <= $2 AND turn IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.tenant = $1 AND turns.id = jobs.turn
                      AND turns.stands = TRUE AND turns.text_version = jobs.text_version)";
// Looked for once, and not anew for each row: what is held is skipped, also by whoever holds it.
const LEASE: &str = concat!(
    "WITH due (id) AS MATERIALIZED (
        SELECT id FROM jobs
        WHERE tenant = $1 AND status = 'pending' AND due_at <= $2 AND (leased_until IS NULL OR leased_until <= $2)",
    is_enabled!(),
    " ORDER BY created_at, id LIMIT $5",
    skip_locked!(),
    ")
     UPDATE jobs SET leased_to = $3, leased_until = $4
     WHERE tenant = $1 AND id IN (SELECT id FROM due)
     RETURNING id, kind, dialogue, turn, text_version, attempts, useless, created_at, COALESCE(retried_at, created_at),
        answer, leased_until"
);
const LEASE_AGAIN: &str = concat!(
    "UPDATE jobs SET leased_to = $3, leased_until = $5
    WHERE tenant = $1 AND id = $2 AND status = 'pending' AND due_at <= $4
      AND (leased_to = $3 OR leased_until IS NULL OR leased_until <= $4)",
    is_enabled!()
);
const IS_PENDING: &str = "SELECT 1 FROM jobs WHERE tenant = $1 AND id = $2 AND status = 'pending'";
pub(super) const RELEASE_ALL: &str = "UPDATE jobs SET leased_to = NULL, leased_until = NULL
    WHERE status = 'pending' AND leased_to = $1";
const RELEASE: &str = "UPDATE jobs SET leased_to = NULL, leased_until = NULL
    WHERE tenant = $1 AND status = 'pending' AND leased_to = $2";

pub(super) async fn lease(
    engine: &Arc<Engine>,
    scope: &TenantScope,
    node: NodeId,
    now: DateTime<Utc>,
    until: DateTime<Utc>,
    limit: u32,
) -> StoreResult<Vec<Job>> {
    let due: bool = {
        let mut connection = engine.read(scope).await?;
        sqlx::query_scalar(ANY_DUE)
            .bind(scope.tenant().as_str())
            .bind(micros(now))
            .fetch_one(&mut *connection)
            .await
            .map_err(store_error)?
    };
    if !due {
        return Ok(Vec::new());
    }
    let tenant = scope.tenant().clone();
    engine
        .write(scope, move |connection| {
            Box::pin(async move {
                sqlx::query(FINISH_UNSAID)
                    .bind(tenant.as_str())
                    .bind(micros(now))
                    .execute(&mut *connection)
                    .await
                    .map_err(store_error)?;
                let rows = sqlx::query(LEASE)
                    .bind(tenant.as_str())
                    .bind(micros(now))
                    .bind(node.to_string())
                    .bind(micros(until))
                    .bind(i64::from(limit))
                    .fetch_all(connection)
                    .await
                    .map_err(store_error)?;
                let mut jobs = rows.iter().map(read_job).collect::<StoreResult<Vec<_>>>()?;
                // RETURNING promises no order.
                jobs.sort_by_key(|job| (job.created_at, job.id));
                Ok(jobs)
            })
        })
        .await
}

pub(super) async fn lease_again(
    engine: &Arc<Engine>,
    scope: &TenantScope,
    job: JobId,
    node: NodeId,
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> StoreResult<LeasedAgain> {
    let tenant = scope.tenant().clone();
    engine
        .write_once(scope, move |connection| {
            Box::pin(async move {
                let leased = sqlx::query(LEASE_AGAIN)
                    .bind(tenant.as_str())
                    .bind(job.to_string())
                    .bind(node.to_string())
                    .bind(micros(now))
                    .bind(micros(until))
                    .execute(&mut *connection)
                    .await
                    .map_err(store_error)?;
                if leased.rows_affected() == 1 {
                    return Ok(LeasedAgain::Here);
                }
                let pending = sqlx::query(IS_PENDING)
                    .bind(tenant.as_str())
                    .bind(job.to_string())
                    .fetch_optional(connection)
                    .await
                    .map_err(store_error)?;
                Ok(match pending {
                    Some(_) => LeasedAgain::Elsewhere,
                    None => LeasedAgain::Over,
                })
            })
        })
        .await
}

pub(super) async fn release_all(engine: &Arc<Engine>, node: NodeId) -> StoreResult<()> {
    engine
        .write_once(Reach::All, move |connection| {
            Box::pin(async move {
                sqlx::query(RELEASE_ALL)
                    .bind(node.to_string())
                    .execute(connection)
                    .await
                    .map(drop)
                    .map_err(store_error)
            })
        })
        .await
}

pub(super) async fn release(engine: &Arc<Engine>, scope: &TenantScope, node: NodeId) -> StoreResult<()> {
    let tenant = scope.tenant().clone();
    engine
        .write_once(scope, move |connection| {
            Box::pin(async move {
                sqlx::query(RELEASE)
                    .bind(tenant.as_str())
                    .bind(node.to_string())
                    .execute(connection)
                    .await
                    .map(drop)
                    .map_err(store_error)
            })
        })
        .await
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn what_is_due_is_found_by_its_index() {
            for statement in [ANY_DUE, FINISH_UNSAID, LEASE] {
                assert_searches(statement, &["jobs_due"]).await;
            }
            for statement in [ANY_DUE, LEASE, LEASE_AGAIN] {
                assert_searches(statement, &["tenants"]).await;
            }
            assert_searches(LEASE_AGAIN, &["sqlite_autoindex_jobs_1 (tenant=? AND id=?)"]).await;
        }
    }
}
