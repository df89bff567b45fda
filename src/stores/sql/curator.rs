//! The marks by which a curator finds silent dialogues, and the report of a tenant's jobs.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    context::{Engine, Row},
    jobs::{self, read_status},
    rows::{Columns, to_micros},
    statements::{execute, fetch_all, fetch_one},
};
use colloquy_core::{
    ids::{DialogueId, DialogueKind},
    scope::TenantScope,
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        curator::{
            CuratorReport, CuratorStore, FailedJob, JobPass, KindQueue, PassOutcome, SilenceCheck, SilenceOutcome,
            SilentHead,
        },
        jobs::{JobKind, JobStatus},
    },
};

/// Pending jobs that a report counts.
const MAX_COUNTED_JOBS: u32 = 10_000;
/// Dialogues due for a check that a report counts.
const MAX_COUNTED_CHECKS: u32 = 1_000;
/// Ended jobs of a report, per kind.
const PASSES_PER_KIND: u32 = 10;
/// Failed jobs of a report.
const MAX_FAILURES: u32 = 20;

pub(super) struct SqlCuratorStore(pub(super) Arc<Engine>);

const LIST_SILENCE_CHECKS: &str = "SELECT d.id, d.silence_check_from, d.status = 'open',
        (SELECT COALESCE(MAX(s.to_turn), 0) FROM summaries s
            WHERE s.tenant = $1 AND s.dialogue = d.id AND s.lifted_at IS NULL),
        (SELECT COALESCE(MAX(p.to_turn), 0) FROM curation_passes p
            WHERE p.tenant = $1 AND p.dialogue = d.id AND p.lifted_at IS NULL),
        h.id, h.number, h.text_version, h.committed_at
    FROM dialogues d LEFT JOIN turns h ON h.tenant = $1 AND h.id = d.head_turn_id
    WHERE d.tenant = $1 AND d.silence_check_from <= $2 ORDER BY d.silence_check_from LIMIT $3";
const SETTLE_SILENCE_CHECK: &str = "UPDATE dialogues SET silence_check_from = $5
    WHERE tenant = $1 AND id = $2 AND silence_check_from = $3 AND head_turn_id IS NOT DISTINCT FROM $4";
/// A job of the turn that ended before, when nothing was due yet, runs again.
const QUEUE_JOB: &str = concat!(
    "INSERT INTO jobs (tenant, id, kind, dialogue, turn, text_version, status, due_at, created_at)
    VALUES ($1, $2, $7, $3, $4, $5, 'pending', $6, $6)",
    jobs::or_run_again!()
);

/// The oldest pending jobs by the time when they are due, grouped by kind.
const COUNT_PENDING_JOBS: &str = "SELECT kind, COUNT(*),
        COUNT(CASE WHEN leased_until > $2 THEN 1 END),
        COUNT(CASE WHEN leased_until <= $2 THEN 1 END),
        COUNT(CASE WHEN leased_until IS NULL AND due_at > $2 THEN 1 END),
        MIN(created_at)
    FROM (SELECT kind, leased_until, due_at, created_at FROM jobs
          WHERE tenant = $1 AND status = 'pending' ORDER BY due_at LIMIT $3) pending
    GROUP BY kind";
macro_rules! last_passes_of {
    ($kind:literal) => {
        concat!(
            "SELECT * FROM (SELECT kind, dialogue, turn, last_error, attempts, COALESCE(retried_at, created_at), finished_at
                FROM jobs WHERE tenant = $1 AND kind = '",
            $kind,
            "' AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT $2) ",
            $kind
        )
    };
}
const LIST_LAST_PASSES: &str = concat!(
    last_passes_of!("extract_facts"),
    " UNION ALL ",
    last_passes_of!("extract_state"),
    " UNION ALL ",
    last_passes_of!("summarise"),
    " UNION ALL ",
    last_passes_of!("curate"),
    " UNION ALL ",
    last_passes_of!("consolidate")
);
const LIST_FAILURES: &str = "SELECT j.id, j.kind, j.dialogue, j.turn,
        (SELECT t.number FROM turns t WHERE t.tenant = $1 AND t.id = j.turn),
        j.status, j.attempts, COALESCE(j.last_error, ''), j.failed_at, j.due_at
    FROM jobs j WHERE j.tenant = $1 AND j.failed_at IS NOT NULL ORDER BY j.failed_at DESC LIMIT $2";
const COUNT_SILENCE_CHECKS: &str = "SELECT
        (SELECT COUNT(*) FROM (SELECT 1 FROM dialogues WHERE tenant = $1 AND silence_check_from <= $2 LIMIT $3) due),
        (SELECT MIN(silence_check_from) FROM dialogues WHERE tenant = $1 AND silence_check_from IS NOT NULL)";

fn read_silence_check(columns: &mut Columns<'_>) -> StoreResult<SilenceCheck> {
    let dialogue: DialogueId = columns.id()?;
    let since = columns.time()?;
    let is_open: bool = columns.next()?;
    Ok(SilenceCheck {
        dialogue,
        since,
        summarised_through: columns.number()?,
        curated_through: columns.number()?,
        head: match columns.maybe_id()? {
            None => None,
            Some(turn) => Some(SilentHead {
                turn,
                number: columns.number()?,
                text_version: columns.number()?,
                committed_at: columns.time()?,
            }),
        },
        is_closed: !is_open,
        is_read_again: is_open || dialogue.kind() == DialogueKind::Session,
    })
}

fn read_pass(columns: &mut Columns<'_>) -> StoreResult<JobPass> {
    Ok(JobPass {
        kind: columns.parse_with(JobKind::parse)?,
        dialogue: columns.id()?,
        turn: columns.id()?,
        outcome: match columns.next::<Option<&str>>()? {
            Some("unsaid") => PassOutcome::Unsaid,
            _ => PassOutcome::Done,
        },
        failed_attempts: columns.number()?,
        since: columns.time()?,
        ended_at: columns.time()?,
    })
}

fn read_failure(columns: &mut Columns<'_>) -> StoreResult<FailedJob> {
    let mut failed = FailedJob {
        job_id: columns.id()?,
        kind: columns.parse_with(JobKind::parse)?,
        dialogue_id: columns.id()?,
        turn_id: columns.id()?,
        turn: columns.maybe_number()?,
        status: read_status(columns)?,
        attempts: columns.number()?,
        error: columns.next()?,
        failed_at: columns.time()?,
        retry_at: Some(columns.time()?),
    };
    failed.retry_at.take_if(|_| failed.status != JobStatus::Pending);
    Ok(failed)
}

/// Returns the counts of all kinds, and whether all pending jobs are counted.
fn read_queue(rows: &[Row]) -> StoreResult<(Vec<KindQueue>, bool)> {
    let mut queue: Vec<KindQueue> = JobKind::ALL
        .into_iter()
        .map(|kind| KindQueue {
            kind,
            waiting: 0,
            running: 0,
            delayed: 0,
            lease_expired: 0,
            oldest_at: None,
        })
        .collect();
    let mut counted = 0;
    for row in rows {
        let mut columns = Columns::new(row);
        let kind = columns.parse_with(JobKind::parse)?;
        let job_count: u64 = columns.number()?;
        let running = columns.number()?;
        let lease_expired = columns.number()?;
        let delayed = columns.number()?;
        let oldest_at = columns.maybe_time()?;
        counted += job_count;
        if let Some(of_kind) = queue.iter_mut().find(|of_kind| of_kind.kind == kind) {
            *of_kind = KindQueue {
                kind,
                waiting: job_count.saturating_sub(running).saturating_sub(delayed),
                running,
                delayed,
                lease_expired,
                oldest_at,
            };
        }
    }
    Ok((queue, counted < u64::from(MAX_COUNTED_JOBS)))
}

#[async_trait]
impl CuratorStore for SqlCuratorStore {
    async fn list_silence_checks(
        &self,
        scope: &TenantScope,
        until: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<SilenceCheck>> {
        let query = bind!(LIST_SILENCE_CHECKS; scope.tenant(), to_micros(until), i64::from(limit));
        self.0.fetch_all(scope, query, read_silence_check).await
    }
    async fn settle_silence_check(
        &self,
        scope: &TenantScope,
        check: &SilenceCheck,
        outcome: SilenceOutcome,
    ) -> StoreResult<bool> {
        let tenant = scope.tenant().clone();
        let now = self.0.clock.now();
        let check = check.clone();
        write_transaction!(self.0, scope, |connection| {
            let (from, summary, pass) = match outcome {
                SilenceOutcome::Queue { summary, pass } => (None, summary, pass),
                SilenceOutcome::CheckFrom(moment) => (Some(moment), None, None),
                SilenceOutcome::Nothing => (None, None, None),
            };
            let head = check.head.as_ref().map(|head| head.turn);
            let updated_rows = execute!(
                connection, SETTLE_SILENCE_CHECK;
                tenant, check.dialogue, to_micros(check.since), head, from.map(to_micros)
            )
            .await?;
            if updated_rows == 0 {
                return Ok(false);
            }
            let Some(head) = &check.head else { return Ok(true) };
            for (kind, job) in [(JobKind::Summarise, summary), (JobKind::Curate, pass)] {
                let Some(job) = job else { continue };
                execute!(
                    connection, QUEUE_JOB;
                    tenant, job, check.dialogue, head.turn, i64::from(head.text_version), to_micros(now), kind.as_str()
                )
                .await?;
            }
            Ok(true)
        })
        .await
    }
    async fn load_curator_report(
        &self,
        scope: &TenantScope,
        now: DateTime<Utc>,
        silent_until: DateTime<Utc>,
    ) -> StoreResult<CuratorReport> {
        let tenant = scope.tenant();
        let counted = i64::from(MAX_COUNTED_JOBS);
        let checks = i64::from(MAX_COUNTED_CHECKS);
        let mut connection = self.0.acquire_reader(scope).await?;
        let pending = fetch_all!(connection, COUNT_PENDING_JOBS; tenant, to_micros(now), counted).await?;
        let passes = fetch_all!(connection, LIST_LAST_PASSES; tenant, i64::from(PASSES_PER_KIND)).await?;
        let failures = fetch_all!(connection, LIST_FAILURES; tenant, i64::from(MAX_FAILURES)).await?;
        let silence = fetch_one!(connection, COUNT_SILENCE_CHECKS; tenant, to_micros(silent_until), checks).await?;
        drop(connection);
        let (queue, queue_is_complete) = read_queue(&pending)?;
        let mut passes = Columns::read_rows(&passes, read_pass)?;
        passes.sort_by_key(|pass| std::cmp::Reverse(pass.ended_at));
        let mut silence = Columns::new(&silence);
        Ok(CuratorReport {
            queue,
            queue_is_complete,
            passes,
            failures: Columns::read_rows(&failures, read_failure)?,
            silence_checks_due: silence.number()?,
            next_silence_check: silence.maybe_time()?,
        })
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn silent_dialogues_are_found_by_their_marks() {
            let by_mark = "dialogues_silence (tenant=? AND silence_check_from<?)";
            assert_searches(LIST_SILENCE_CHECKS, &[by_mark, "summaries_of_dialogue", "sqlite_autoindex_turns_1 (tenant=? AND id=?)"]).await;
            assert_searches(COUNT_SILENCE_CHECKS, &[by_mark, "dialogues_silence (tenant=? AND silence_check_from>?)"]).await;
            assert_searches(SETTLE_SILENCE_CHECK, &["sqlite_autoindex_dialogues_1 (tenant=? AND id=?)"]).await;
        }

        #[tokio::test]
        async fn report_reads_open_failed_and_last_jobs_by_index() {
            assert_searches(COUNT_PENDING_JOBS, &["jobs_due (tenant=?)"]).await;
            assert_searches(LIST_LAST_PASSES, &["jobs_ended (tenant=? AND kind=? AND finished_at>?)"]).await;
            assert_searches(LIST_FAILURES, &["jobs_failed (tenant=? AND failed_at>?)"]).await;
        }
    }
}
