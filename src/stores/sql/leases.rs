//! Job leases: which node runs a job, until the lease expires.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    jobs::{SqlJobStore, read_job},
    rows::{Columns, to_micros},
    scope::RowScope,
    statements::{execute, fetch_all, fetch_optional},
};
use colloquy_core::{
    ids::{JobId, NodeId},
    scope::TenantScope,
};
use colloquy_ports::{
    StoreResult,
    ledger::jobs::{Job, LeaseRenewal, LeaseStore},
};

/// A condition that stops leases for disabled tenants.
macro_rules! is_enabled {
    () => {
        " AND NOT EXISTS (SELECT 1 FROM tenants WHERE id = $1 AND enabled = FALSE)"
    };
}
// Only due jobs reach the writer, so an idle poll writes nothing.
const HAS_DUE_JOB: &str = concat!(
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
// The CTE selects the jobs once instead of once per row. Locked jobs are skipped, even by the transaction that holds
// the locks.
const LEASE_DUE_JOBS: &str = concat!(
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
const RENEW_JOB_LEASE: &str = concat!(
    "UPDATE jobs SET leased_to = $3, leased_until = $5
    WHERE tenant = $1 AND id = $2 AND status = 'pending' AND due_at <= $4
      AND (leased_to = $3 OR leased_until IS NULL OR leased_until <= $4)",
    is_enabled!()
);
const IS_PENDING: &str = "SELECT 1 FROM jobs WHERE tenant = $1 AND id = $2 AND status = 'pending'";
pub(super) const RELEASE_JOBS_OF_NODE: &str = "UPDATE jobs SET leased_to = NULL, leased_until = NULL
    WHERE status = 'pending' AND leased_to = $1";
const RELEASE_JOBS_OF_TENANT: &str = "UPDATE jobs SET leased_to = NULL, leased_until = NULL
    WHERE tenant = $1 AND status = 'pending' AND leased_to = $2";

#[async_trait]
impl LeaseStore for SqlJobStore {
    async fn lease_due_jobs(
        &self,
        scope: &TenantScope,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<Job>> {
        let has_due = bind!(HAS_DUE_JOB; scope.tenant(), to_micros(now));
        if !self.0.fetch_one(scope, has_due, |columns| columns.next()).await? {
            return Ok(Vec::new());
        }
        let tenant = scope.tenant().clone();
        write_transaction!(self.0, scope, |connection| {
            execute!(connection, FINISH_UNSAID; tenant, to_micros(now)).await?;
            let rows = fetch_all!(
                connection, LEASE_DUE_JOBS;
                tenant, to_micros(now), node, to_micros(until), i64::from(limit)
            )
            .await?;
            debug_assert!(rows.len() <= limit as usize, "no more jobs are leased than asked for");
            let mut jobs = Columns::read_rows(&rows, read_job)?;
            // RETURNING promises no order.
            jobs.sort_by_key(|job| (job.created_at, job.id));
            Ok(jobs)
        })
        .await
    }
    async fn renew_lease(
        &self,
        scope: &TenantScope,
        job: JobId,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> StoreResult<LeaseRenewal> {
        let tenant = scope.tenant().clone();
        write_statement!(self.0, scope, |connection| {
            let leased =
                execute!(connection, RENEW_JOB_LEASE; tenant, job, node, to_micros(now), to_micros(until)).await?;
            debug_assert!(leased <= 1, "a lease is of one job");
            if leased == 1 {
                return Ok(LeaseRenewal::Renewed);
            }
            let pending = fetch_optional!(connection, IS_PENDING; tenant, job).await?;
            Ok(pending.map_or(LeaseRenewal::Finished, |_| LeaseRenewal::NotHeld))
        })
        .await
    }
    async fn release_all_leases(&self, node: NodeId) -> StoreResult<()> {
        let query = bind!(RELEASE_JOBS_OF_NODE; node);
        self.0.execute(RowScope::All, query).await.map(drop)
    }
    async fn release_tenant_leases(&self, scope: &TenantScope, node: NodeId) -> StoreResult<()> {
        let query = bind!(RELEASE_JOBS_OF_TENANT; scope.tenant(), node);
        self.0.execute(scope, query).await.map(drop)
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn due_leases_are_found_by_index() {
            for statement in [HAS_DUE_JOB, FINISH_UNSAID, LEASE_DUE_JOBS] {
                assert_searches(statement, &["jobs_due"]).await;
            }
            for statement in [HAS_DUE_JOB, LEASE_DUE_JOBS, RENEW_JOB_LEASE] {
                assert_searches(statement, &["tenants"]).await;
            }
            assert_searches(RENEW_JOB_LEASE, &["sqlite_autoindex_jobs_1 (tenant=? AND id=?)"]).await;
        }
    }
}
