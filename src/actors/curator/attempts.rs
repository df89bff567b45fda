//! A single attempt at a job: within the lease, and with the handling of a failure.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tracing::Instrument as _;

use crate::node::Node;
use colloquy_core::scope::TenantScope;
use colloquy_dialogue::{
    jobs::{JobError, JobReport, retry_pause},
    models::tallied_usage,
    settings::JobSettings,
};
use colloquy_ports::{
    StoreError,
    ledger::jobs::{Job, JobFailure, LeaseRenewal},
    ledger::usage::OverBudget,
    llm::LlmError,
};

/// Delay before a failed write of a job's failure is repeated.
const FAILURE_WRITE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay before a job whose tenant had used up its budget is tried again.
const BUDGET_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Eighths of a lease: a job with this much lease left runs without a look at the ledger.
const FRESH_LEASE_EIGHTHS: u32 = 7;

/// The result of an attempt at a job.
pub(super) enum Attempt {
    Ended(Result<JobReport, JobError>),
    /// Another node has the job.
    Remote,
    /// The job was done before, or cancelled.
    Obsolete,
}

impl Attempt {
    /// Returns the report of an attempt that succeeded.
    pub(super) fn into_report(self) -> Option<JobReport> {
        match self {
            Self::Ended(result) => result.ok(),
            Self::Remote | Self::Obsolete => None,
        }
    }
}

/// Runs a job once, within its lease.
pub(super) async fn attempt_job(node: &Arc<Node>, scope: &TenantScope, job: &Job) -> Attempt {
    let remaining = match remaining_lease(node, scope, job).await {
        Ok(remaining) => remaining,
        Err(not_run) => return not_run,
    };
    let span = tracing::debug_span!(
        parent: None,
        "job",
        kind = job.kind.as_str(),
        tenant = %scope.tenant(),
        dialogue = %job.dialogue,
        turn_id = %job.turn,
        attempt = job.attempts + 1,
    );
    let run = AssertUnwindSafe(node.use_cases.run_job(scope, job).instrument(span)).catch_unwind();
    Attempt::Ended(match tokio::time::timeout(remaining, run).await {
        Ok(Ok(result)) => result,
        Ok(Err(_panic)) => Err(JobError::Panicked),
        Err(_elapsed) => Err(JobError::LeaseExpired),
    })
}

/// Returns how long the node may run a job. A job that has waited in memory first gets a new lease. Otherwise the lease
/// could run out on the way, and another node would pay the model again. `Err`: the job does not run here.
async fn remaining_lease(node: &Node, scope: &TenantScope, job: &Job) -> Result<Duration, Attempt> {
    let lease = Duration::from_secs(node.ports.settings.jobs.lease_s.max(1));
    let now = node.ports.clock.now();
    let remaining = (job.leased_until - now).to_std().unwrap_or_default();
    if remaining >= lease * FRESH_LEASE_EIGHTHS / 8 {
        return Ok(remaining);
    }
    let jobs = &node.ports.ledger.jobs;
    match jobs.renew_lease(scope, job.id, node.id, now, now + lease).await {
        Ok(LeaseRenewal::Renewed) => Ok(lease),
        Ok(LeaseRenewal::NotHeld) => Err(Attempt::Remote),
        Ok(LeaseRenewal::Finished) => Err(Attempt::Obsolete),
        Err(error) => Err(Attempt::Ended(Err(error.into()))),
    }
}

/// Records that a job failed. `Some`: the pause before the next try.
pub(super) async fn record_failure(node: &Node, scope: &TenantScope, job: &Job, error: &JobError) -> Option<Duration> {
    let jobs = &node.ports.settings.jobs;
    let now = node.ports.clock.now();
    let age = (now - job.since).to_std().unwrap_or_default();
    let useless = matches!(error, JobError::Unusable(_));
    // Waiting makes no answer better, and the dialogue's later jobs wait too.
    let doublings = if useless { 0 } else { job.attempts };
    let pause = match error {
        // The job waits for the next day, or for a larger budget.
        JobError::Model(LlmError::OverBudget(OverBudget { retry_after, .. })) => {
            Some((*retry_after).min(BUDGET_RETRY_DELAY))
        }
        // No other budget ends this wait, and each attempt reads the turns again.
        JobError::OverCurationBudget { retry_after } => Some(*retry_after),
        _ => can_retry(error, jobs, job, age)
            .then(|| retry_pause(Duration::from_secs(jobs.retry_base_s), doublings, rand::random())),
    };
    let failure = match pause {
        Some(pause) if useless => JobFailure::RetryUselessAt(now + pause),
        Some(pause) => JobFailure::RetryAt(now + pause),
        None => JobFailure::Dead,
    };
    tracing::warn!(
        tenant = %scope.tenant(), job = %job.id, kind = job.kind.as_str(), attempts = job.attempts + 1, %error,
        dead = pause.is_none(), "an after-turn job failed"
    );
    write_failure(node, scope, job, &error.to_string(), failure).await;
    pause
}

/// Writes a job's failure. Jobs mostly fail because the ledger is away, and then the write fails too. The write is
/// repeated until it succeeds: no node runs a leased job until the lease has run out.
async fn write_failure(node: &Node, scope: &TenantScope, job: &Job, error: &str, failure: JobFailure) {
    let clock = &node.ports.clock;
    let calls = tallied_usage();
    let started = clock.monotonic_now();
    let lease = Duration::from_secs(node.ports.settings.jobs.lease_s);
    loop {
        let result = node
            .ports
            .ledger
            .jobs
            .fail_job(scope, job.id, node.id, error, failure, &calls)
            .await;
        let Err(unwritten) = result else { return };
        let is_leased = clock.monotonic_now().saturating_duration_since(started) < lease;
        if !is_leased || node.is_draining() || !unwritten.is_transient() {
            // The job stays leased and is found again when the lease runs out.
            tracing::warn!(job = %job.id, error = %unwritten, "a job's failure could not be written");
            return;
        }
        tokio::time::sleep(FAILURE_WRITE_RETRY_DELAY).await;
    }
}

/// True if a failed job is tried again, `age` after the job was written.
///
/// An unreachable dependency comes back, however many attempts fail meanwhile. Only time ends the retries, and not for
/// a job with few attempts: the job waited for its tenant's budget or a stopped server. A useless answer or a panic
/// will hardly improve with the hundredth attempt.
fn can_retry(error: &JobError, jobs: &JobSettings, job: &Job, age: Duration) -> bool {
    let has_tries = job.attempts + 1 < jobs.max_attempts;
    let may_pass = age < Duration::from_secs(jobs.give_up_after_s) || has_tries;
    match error {
        JobError::Model(error) if error.is_transient() => may_pass,
        JobError::Store(error) if error.is_transient() => may_pass,
        JobError::LeaseExpired | JobError::OverCurationBudget { .. } => may_pass,
        JobError::Model(_) | JobError::Store(StoreError::Corrupt(_)) => false,
        JobError::Store(_) | JobError::Panicked => has_tries,
        JobError::Unusable(_) => job.useless + 1 < jobs.max_useless,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colloquy_core::ids::{DialogueId, JobId};
    use colloquy_ports::ledger::jobs::JobKind;

    fn job_tried(attempts: u32, useless: u32) -> Job {
        let at = chrono::DateTime::UNIX_EPOCH;
        Job {
            id: JobId::from_u128(1),
            kind: JobKind::ExtractFacts,
            dialogue: DialogueId::new(colloquy_core::ids::DialogueKind::Session, ulid::Ulid(1)),
            turn: colloquy_core::ids::TurnId::from_u128(1),
            text_version: 1,
            attempts,
            useless,
            created_at: at,
            since: at,
            answer: None,
            leased_until: at,
        }
    }

    #[test]
    fn retries_for_unreachable_dependencies_are_limited_by_time_only() {
        let jobs = JobSettings {
            max_attempts: 3,
            max_useless: 2,
            give_up_after_s: 3_600,
            lease_s: 120,
            retry_base_s: 2,
            concurrency: 1,
            poll_s: 5,
            judge_tokens: 800,
        };
        let soon = Duration::from_mins(59);
        let late = Duration::from_mins(61);
        for passing in [
            JobError::Model(LlmError::Timeout),
            JobError::Model(LlmError::Unavailable("502".into())),
            JobError::Model(LlmError::RateLimited { retry_after: None }),
            JobError::Model(LlmError::Broken("cut".into())),
            JobError::Store(StoreError::Unavailable("locked".into())),
            JobError::Store(StoreError::NotWritable("full".into())),
            JobError::LeaseExpired,
        ] {
            assert!(can_retry(&passing, &jobs, &job_tried(500, 1), soon), "{passing}");
            assert!(can_retry(&passing, &jobs, &job_tried(0, 0), late), "{passing}");
            assert!(!can_retry(&passing, &jobs, &job_tried(2, 0), late), "{passing}");
        }
        let useless = JobError::Unusable("prose".into());
        assert!(can_retry(&useless, &jobs, &job_tried(500, 0), late), "after an outage");
        assert!(!can_retry(&useless, &jobs, &job_tried(1, 1), soon));
        for defect in [
            JobError::Store(StoreError::Rejected("syntax".into())),
            JobError::Panicked,
        ] {
            assert!(can_retry(&defect, &jobs, &job_tried(1, 1), late), "{defect}");
            assert!(!can_retry(&defect, &jobs, &job_tried(2, 0), soon), "{defect}");
        }
        let refused = JobError::Model(LlmError::Refused("400".into()));
        assert!(!can_retry(&refused, &jobs, &job_tried(0, 0), soon));
    }
}
