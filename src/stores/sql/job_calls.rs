//! The outcomes of a turn's jobs and their model calls. `jobs.calls` has a line for each attempt.

use super::rows::{Columns, to_json};
use colloquy_memory::trace::{JobTrace, TaskUsage};
use colloquy_ports::{StoreError, StoreResult};

/// Selects the jobs of a dialogue's standing turn, oldest first.
pub(super) const JOBS_OF_TURN: &str = concat!(
    "SELECT j.kind, j.status, j.attempts, j.last_error, COALESCE(j.calls, '') FROM turns t
    JOIN jobs j ON j.tenant = t.tenant AND j.dialogue = t.dialogue AND j.turn = t.id
    WHERE t.tenant = $1 AND t.dialogue = $2 AND t.number = $3 AND t.stands = TRUE ORDER BY ",
    unindexed!("j.id")
);

/// Returns the usage of an attempt as a line of `jobs.calls`; empty if the attempt called no model.
pub(super) fn usage_line(calls: &[TaskUsage]) -> StoreResult<String> {
    if calls.is_empty() {
        return Ok(String::new());
    }
    Ok(to_json(calls)? + "\n")
}

/// Sums the usage lines of a job.
fn sum_usage_lines(lines: &str) -> StoreResult<Vec<TaskUsage>> {
    let mut sums = Vec::new();
    for line in lines.lines() {
        let calls: Vec<TaskUsage> =
            serde_json::from_str(line).map_err(|error| StoreError::Corrupt(format!("calls of a job: {error}")))?;
        for call in &calls {
            TaskUsage::add_usage(&mut sums, &call.task, call.calls, call.usage);
        }
    }
    Ok(sums)
}

pub(super) fn read_job_trace(columns: &mut Columns<'_>) -> StoreResult<JobTrace> {
    Ok(JobTrace {
        kind: columns.next()?,
        status: columns.next()?,
        failed_attempts: columns.number()?,
        error: columns.next()?,
        calls: sum_usage_lines(columns.next()?)?,
    })
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn jobs_of_a_turn_are_found_by_turn() {
            assert_searches(JOBS_OF_TURN, &["turns_standing", "jobs_once (tenant=? AND dialogue=? AND turn=?)"]).await;
        }
    }
}
