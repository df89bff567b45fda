//! The fence of a job: its writes count once, and only while its turn stands.

use chrono::{DateTime, Utc};

use super::{context::Connection, job_calls::usage_line, rows::to_micros, statements::execute};
use colloquy_core::ids::TenantId;
use colloquy_memory::trace::TaskUsage;
use colloquy_ports::{StoreResult, ledger::jobs::JobFence};

/// Ends the job if its turn stands with the fence's text version and the job is pending. On `false` the fence is
/// closed, and the caller must write nothing. `calls` is the job's model usage.
pub(super) async fn pass_fence(
    connection: &mut Connection,
    tenant: &TenantId,
    fence: &JobFence,
    calls: &[TaskUsage],
    now: DateTime<Utc>,
) -> StoreResult<bool> {
    const PASS_FENCE: &str = "UPDATE jobs SET status = 'done', finished_at = $5, leased_to = NULL, leased_until = NULL,
            answer = NULL, calls = COALESCE(calls, '') || $6
        WHERE tenant = $1 AND id = $2 AND turn = $3 AND text_version = $4 AND status = 'pending'
          AND EXISTS (SELECT 1 FROM turns WHERE turns.tenant = $1 AND turns.id = $3
                      AND turns.stands = TRUE AND turns.text_version = $4)";
    let passed = execute!(
        connection, PASS_FENCE;
        tenant, fence.job, fence.turn, i64::from(fence.text_version), to_micros(now), usage_line(calls)?
    )
    .await?;
    debug_assert!(passed <= 1, "a fence is of one job");
    Ok(passed == 1)
}
