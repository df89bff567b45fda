//! The waiting work of the queues, for `/metrics`. The queries use partial indexes of open rows, so the cost depends on
//! waiting work and not on history.

use super::{
    context::Engine,
    rows::{Columns, to_micros},
    scope::RowScope,
    statements::fetch_all,
};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::{
        jobs::JobKind,
        metrics::{Backlog, QueueBacklog},
    },
};

/// Counts the outbox, pending jobs and dead jobs by kind, with the age of the oldest in microseconds (0 for dead jobs).
const COUNT_WAITING: &str = concat!(
    "SELECT 'outbox', '', COUNT(*), COALESCE(",
    database_now!(),
    " - MIN(at), 0) FROM outbox
    UNION ALL
    SELECT 'pending', kind, COUNT(*), $1 - MIN(created_at) FROM jobs WHERE status = 'pending' GROUP BY kind
    UNION ALL
    SELECT 'dead', kind, COUNT(*), 0 FROM jobs WHERE status = 'dead' GROUP BY kind"
);

pub(super) async fn measure_backlog(engine: &Engine) -> StoreResult<Backlog> {
    let now = to_micros(engine.clock.now());
    let mut connection = engine.acquire_reader(RowScope::All).await?;
    let rows = fetch_all!(connection, COUNT_WAITING; now).await?;
    drop(connection);
    let mut backlog = Backlog::default();
    for row in &rows {
        let mut columns = Columns::new(row);
        let (queue, kind): (&str, &str) = (columns.next()?, columns.next()?);
        let (count, age): (u64, i64) = (columns.number()?, columns.next()?);
        #[expect(clippy::cast_precision_loss, reason = "an age in microseconds stays below 2^53")]
        let oldest_s = age.max(0) as f64 / 1e6;
        let queue_backlog = QueueBacklog { count, oldest_s };
        if queue == "outbox" {
            backlog.outbox = queue_backlog;
            continue;
        }
        let kind = JobKind::parse(kind).ok_or_else(|| StoreError::Corrupt(format!("`{kind}` is no kind of job")))?;
        match queue {
            "pending" => backlog.pending.push((kind, queue_backlog)),
            _ => backlog.dead.push((kind, count)),
        }
    }
    Ok(backlog)
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::plan;

        #[tokio::test]
        async fn backlog_query_reads_only_open_jobs() {
            let plan = plan(COUNT_WAITING).await;
            assert!(plan.contains("jobs USING INDEX jobs_dead") || plan.contains("jobs USING COVERING INDEX jobs_dead"), "{plan}");
            assert!(plan.lines().filter(|step| step.contains("jobs")).all(|step| step.contains("INDEX jobs_")), "{plan}");
        }
    }
}
