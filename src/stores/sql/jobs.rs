//! The job queue, and the fence that every job's write passes.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::{
    audit,
    authored::{self, KnownWorlds, MAX_KNOWN_WORLDS},
    context::Engine,
    dialogues,
    job_calls::{self, usage_line},
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, to_micros, without_nul},
    statements::{execute, fetch_all, fetch_optional},
    turns,
};
use colloquy_core::{
    ids::{DialogueId, JobId, NodeId, NpcId, TenantId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    state::StateChange,
    trace::{JobTrace, TaskUsage},
    turn::TurnStatus,
};
use colloquy_ports::{
    Page, PageRequest, StoreError, StoreResult,
    buffer::{BufferedTurn, mark_if_interrupted},
    ledger::{
        audit::Edit,
        jobs::{
            ExtractionStatus, Job, JobFailure, JobFence, JobInput, JobKind, JobRetry, JobRow, JobStatus, JobStore,
            LearningProgress,
        },
    },
};

/// The second field has the worlds of the latest jobs.
pub(super) struct SqlJobStore(pub(super) Arc<Engine>, KnownWorlds);

impl SqlJobStore {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self(engine, KnownWorlds::new(MAX_KNOWN_WORLDS))
    }
}

/// Reads the turn first and all related rows by primary key. Deleted worlds and NPCs are included, because other NPCs
/// may have heard the turn. `MATERIALIZED` fixes the order: before Postgres has analyzed the tables of a new ledger, it
/// might start with all dialogues of a tenant. Events and notes begin with their tags. Those of a turn with a job for
/// its state come from that job: a block that could be read has none.
const SPOKEN_FOR_JOB: &str = concat!(
    "WITH t AS MATERIALIZED (SELECT * FROM turns WHERE tenant = $1 AND id = $2),
        d AS MATERIALIZED (SELECT d.* FROM t CROSS JOIN dialogues d WHERE d.tenant = $1 AND d.id = t.dialogue)
     SELECT ",
    turns::turn_columns!(),
    ", ",
    dialogues::dialogue_columns!("d."),
    ", ",
    authored::world_columns!(),
    ", ",
    authored::npc_columns!(),
    ", (SELECT ",
    json_rows!(
        "'id', b.id, 'number', b.number, 'status', b.status, 'line', b.player_text, 'npc', b.npc, 'reply', b.reply_text"
    ),
    " FROM turns b WHERE b.tenant = $1 AND b.dialogue = t.dialogue AND b.stands = TRUE
            AND b.number BETWEEN t.number - 2 AND t.number - 1),
        (SELECT c.body FROM traces c WHERE c.tenant = $1 AND c.turn = t.id AND $4), (SELECT ",
    json_rows!(concat!("'seq', e.seq, 'change', ", json_of!("e.change"))),
    " FROM state_events e
         WHERE e.tenant = $1 AND e.cause_id = t.id AND e.cause_kind = 'turn' AND e.lifted_at IS NULL AND $4
            AND substr(e.change, 1, 15) IN ('{\"change\":\"happ', '{\"change\":\"note')
            AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.tenant = $1 AND j.dialogue = t.dialogue AND j.turn = t.id
                AND j.kind = 'extract_state'))
      FROM t CROSS JOIN d CROSS JOIN worlds w CROSS JOIN npcs n
      WHERE t.stands = TRUE AND t.text_version = $3
        AND w.tenant = $1 AND w.id = d.world
        AND n.tenant = $1 AND n.world = d.world AND n.id = t.npc"
);
const STORE_ANSWER: &str = "UPDATE jobs SET answer = $5
    WHERE tenant = $1 AND id = $2 AND turn = $3 AND text_version = $4 AND status = 'pending'
      AND EXISTS (SELECT 1 FROM turns WHERE turns.tenant = $1 AND turns.id = $3
                  AND turns.stands = TRUE AND turns.text_version = $4)";
const FINISH_JOB: &str = "UPDATE jobs SET status = 'done', finished_at = $3, leased_to = NULL, leased_until = NULL,
        answer = NULL, calls = COALESCE(calls, '') || $4
    WHERE tenant = $1 AND id = $2 AND status = 'pending'";
const FINISH_UNSAID_JOB: &str = "UPDATE jobs SET status = 'done', last_error = 'unsaid', finished_at = $3,
        leased_to = NULL, leased_until = NULL, answer = NULL
    WHERE tenant = $1 AND id = $2 AND status = 'pending'
      AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.tenant = $1 AND turns.id = jobs.turn
                      AND turns.stands = TRUE AND turns.text_version = jobs.text_version)";
const FAIL_JOB: &str =
    "UPDATE jobs SET attempts = attempts + 1, last_error = $3, leased_to = NULL, leased_until = NULL,
        useless = useless + $5, status = CASE WHEN $4 IS NULL THEN 'dead' ELSE status END,
        due_at = COALESCE($4, due_at), calls = COALESCE(calls, '') || $7, failed_at = $8
    WHERE tenant = $1 AND id = $2 AND status = 'pending' AND leased_to = $6";
const RETRY_JOB: &str = "UPDATE jobs SET status = 'pending', attempts = 0, useless = 0, due_at = $3, retried_at = $3,
        leased_to = NULL, leased_until = NULL
    WHERE tenant = $1 AND id = $2 AND status = 'dead' AND turn IS NOT NULL";
const JOB_BY_ID: &str = "SELECT id, kind, dialogue, turn, status, attempts, last_error, created_at FROM jobs
    WHERE tenant = $1 AND id = $2 AND turn IS NOT NULL";
// A failed job waits for its retry time; a player's next turn does not shorten the wait. A leased job only returns its
// kind.
const MAKE_DUE: &str = "UPDATE jobs SET due_at = CASE WHEN due_at > $3 AND leased_to IS NULL THEN $3 ELSE due_at END
    WHERE tenant = $1 AND dialogue = $2 AND turn = $4 AND status = 'pending' AND (attempts = 0 OR leased_to IS NOT NULL)
    RETURNING kind";
/// Builds a list query with a literal status: pending and dead jobs have partial indexes. The index of pending jobs is
/// not sorted by id.
/// The end of an INSERT of a pending job. A job of the turn that ended before runs again.
macro_rules! or_run_again {
    () => {
        " ON CONFLICT (tenant, dialogue, turn, kind, text_version) DO UPDATE SET status = 'pending', attempts = 0,
            useless = 0, last_error = NULL, due_at = excluded.due_at, retried_at = excluded.due_at, finished_at = NULL
        WHERE jobs.status = 'done'"
    };
}
pub(super) use or_run_again;

macro_rules! list_jobs {
    ($id:expr, $status:literal) => {
        concat!(
            "SELECT id, kind, dialogue, turn, status, attempts, last_error, created_at FROM jobs WHERE tenant = $1 AND ",
            $id,
            " < CASE WHEN $2 IS NULL THEN '~' ELSE $2 END AND turn IS NOT NULL",
            $status,
            " ORDER BY ",
            $id,
            " DESC LIMIT $3"
        )
    };
}
const LIST: &str = list_jobs!("id", "");
const LIST_PENDING: &str = list_jobs!(unindexed!("id"), " AND status = 'pending'");
const LIST_DONE: &str = list_jobs!("id", " AND status = 'done'");
const LIST_DEAD: &str = list_jobs!("id", " AND status = 'dead'");
/// Selects whether the turn's extraction is due, and whether it is held.
const EXTRACTION_STATUS: &str = "SELECT due_at <= $5, due_at > $5 AND attempts = 0 AND leased_to IS NULL FROM jobs
    WHERE tenant = $1 AND dialogue = $2 AND turn = $3 AND kind = $4 AND status = 'pending'";
const UNFINISHED_JOB: &str = "SELECT TRUE FROM jobs
    WHERE tenant = $1 AND dialogue = $2 AND turn = $3 AND kind = $4 AND status <> 'done' LIMIT 1";
const WORLD_OF_JOB: &str = "SELECT d.world FROM jobs j CROSS JOIN dialogues d
    WHERE j.tenant = $1 AND j.id = $2 AND d.tenant = $1 AND d.id = j.dialogue";
const COUNT_PENDING: &str = "SELECT COUNT(*) FROM jobs WHERE tenant = $1 AND dialogue = $2 AND status = 'pending'";
/// Selects the number of standing turns, of those with a pending job, of those with a dead job alone (`pending` sorts after
/// `dead`), and the last turn in a summary. Done jobs are pruned after a while, so they are not counted.
const LEARNING_PROGRESS: &str = "WITH open AS (SELECT MAX(j.status) AS status
        FROM jobs j CROSS JOIN turns t
        WHERE j.tenant = $1 AND j.dialogue = $2 AND j.status IN ('pending', 'dead')
          AND j.kind IN ('extract_facts', 'extract_state')
          AND t.tenant = $1 AND t.id = j.turn AND t.stands = TRUE AND t.text_version = j.text_version
        GROUP BY j.turn)
    SELECT d.head_turn, (SELECT COUNT(*) FROM open WHERE status = 'pending'),
        (SELECT COUNT(*) FROM open WHERE status = 'dead'),
        COALESCE((SELECT MAX(s.to_turn) FROM summaries s
            WHERE s.tenant = $1 AND s.dialogue = $2 AND s.lifted_at IS NULL), 0)
    FROM dialogues d WHERE d.tenant = $1 AND d.id = $2";

const fn status_name(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Pending => "pending",
        JobStatus::Done => "done",
        JobStatus::Dead => "dead",
    }
}

pub(super) fn read_status(columns: &mut Columns<'_>) -> StoreResult<JobStatus> {
    columns.named([JobStatus::Pending, JobStatus::Done, JobStatus::Dead], status_name)
}

pub(super) fn read_job(columns: &mut Columns<'_>) -> StoreResult<Job> {
    Ok(Job {
        id: columns.id()?,
        kind: columns.parse_with(JobKind::parse)?,
        dialogue: columns.id()?,
        turn: columns.id()?,
        text_version: columns.number()?,
        attempts: columns.number()?,
        useless: columns.number()?,
        created_at: columns.time()?,
        since: columns.time()?,
        answer: columns.next()?,
        leased_until: columns.time()?,
    })
}

#[derive(Deserialize)]
struct PrecedingTurn {
    id: TurnId,
    number: u32,
    status: String,
    line: String,
    npc: NpcId,
    reply: String,
}

/// An event or a note, with its place in the order of writes.
#[derive(Deserialize)]
struct BlockSentence {
    seq: i64,
    change: StateChange,
}

fn read_spoken_turn(columns: &mut Columns<'_>, tenant: &TenantId, worlds: &KnownWorlds) -> StoreResult<JobInput> {
    let turn = turns::read_turn(columns)?.turn;
    let dialogue = dialogues::read_dialogue(columns)?;
    let world = authored::read_known_world(columns, tenant, worlds)?;
    let npc = authored::read_npc(columns)?;
    let mut before: Vec<PrecedingTurn> = columns.json()?;
    before.sort_by_key(|turn| turn.number);
    let trace = columns.maybe_json()?;
    let mut sentences: Vec<BlockSentence> = columns.json()?;
    sentences.sort_by_key(|sentence| sentence.seq);
    let before = before.into_iter().map(|turn| {
        let status = TurnStatus::parse(&turn.status);
        Ok(BufferedTurn {
            id: turn.id,
            number: turn.number,
            player_text: turn.line,
            npc: turn.npc,
            reply_text: mark_if_interrupted(
                turn.reply,
                status.ok_or_else(|| StoreError::Corrupt(format!("unknown status `{}`", turn.status)))?,
            ),
            committed_at: None,
        })
    });
    Ok(JobInput {
        before: before.collect::<StoreResult<_>>()?,
        trace,
        block_sentences: sentences.into_iter().map(|sentence| sentence.change).collect(),
        turn,
        dialogue,
        world,
        npc,
    })
}

fn read_job_row(columns: &mut Columns<'_>) -> StoreResult<JobRow> {
    Ok(JobRow {
        id: columns.id()?,
        kind: columns.parse_with(JobKind::parse)?,
        dialogue: columns.id()?,
        turn: columns.id()?,
        status: read_status(columns)?,
        attempts: columns.number()?,
        last_error: columns.next()?,
        created_at: columns.time()?,
    })
}

#[async_trait]
impl JobStore for SqlJobStore {
    async fn load_job_input(&self, scope: &TenantScope, job: &Job) -> StoreResult<Option<JobInput>> {
        let mut connection = self.0.acquire_reader(scope).await?;
        let row = fetch_optional!(
            connection, SPOKEN_FOR_JOB;
            scope.tenant(), job.turn, i64::from(job.text_version), job.kind == JobKind::ExtractFacts
        )
        .await?;
        drop(connection);
        row.map(|row| read_spoken_turn(&mut Columns::new(&row), scope.tenant(), &self.1))
            .transpose()
    }
    async fn store_answer(&self, scope: &TenantScope, fence: &JobFence, answer: &str) -> StoreResult<bool> {
        let query = bind!(
            STORE_ANSWER;
            scope.tenant(), fence.job, fence.turn, i64::from(fence.text_version), answer
        );
        Ok(self.0.execute(scope, query).await? == 1)
    }
    async fn finish_unsaid(&self, scope: &TenantScope, job: JobId) -> StoreResult<()> {
        let query = bind!(FINISH_UNSAID_JOB; scope.tenant(), job, to_micros(self.0.clock.now()));
        self.0.execute(scope, query).await.map(drop)
    }
    async fn finish_job(&self, scope: &TenantScope, job: JobId, calls: &[TaskUsage]) -> StoreResult<()> {
        let now = to_micros(self.0.clock.now());
        let query = bind!(FINISH_JOB; scope.tenant(), job, now, usage_line(calls)?);
        self.0.execute(scope, query).await.map(drop)
    }
    async fn fail_job(
        &self,
        scope: &TenantScope,
        job: JobId,
        node: NodeId,
        error: &str,
        failure: JobFailure,
        calls: &[TaskUsage],
    ) -> StoreResult<()> {
        let retry_at = match failure {
            JobFailure::RetryAt(retry_time) | JobFailure::RetryUselessAt(retry_time) => Some(to_micros(retry_time)),
            JobFailure::Dead => None,
        };
        let useless = i64::from(matches!(failure, JobFailure::RetryUselessAt(_)));
        let query = bind!(
            FAIL_JOB;
            scope.tenant(), job, without_nul(error), retry_at, useless, node, usage_line(calls)?,
            to_micros(self.0.clock.now())
        );
        self.0.execute(scope, query).await.map(drop)
    }
    async fn retry_dead_job(&self, scope: &TenantScope, job: JobId, edit: &Edit) -> StoreResult<JobRetry> {
        let tenant = scope.tenant().clone();
        let now = self.0.clock.now();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| {
            let retried = execute!(connection, RETRY_JOB; tenant, job, to_micros(now)).await?;
            let Some(row) = fetch_optional!(connection, JOB_BY_ID; tenant, job).await? else {
                return Ok(JobRetry::NotFound);
            };
            let row = read_job_row(&mut Columns::new(&row))?;
            if retried == 0 {
                return Ok(JobRetry::NotDead(row.status));
            }
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(JobRetry::Done(row))
        })
        .await
    }
    async fn make_due(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        turn: TurnId,
        now: DateTime<Utc>,
    ) -> StoreResult<Vec<JobKind>> {
        let tenant = scope.tenant().clone();
        let now = to_micros(now);
        write_statement!(self.0, scope, |connection| {
            let rows = fetch_all!(connection, MAKE_DUE; tenant, dialogue, now, turn).await?;
            Columns::read_rows(&rows, |columns| columns.parse_with(JobKind::parse))
        })
        .await
    }
    async fn list_jobs(
        &self,
        scope: &TenantScope,
        status: Option<JobStatus>,
        page: &PageRequest,
    ) -> StoreResult<Page<JobRow>> {
        let statement = match status {
            None => LIST,
            Some(JobStatus::Pending) => LIST_PENDING,
            Some(JobStatus::Done) => LIST_DONE,
            Some(JobStatus::Dead) => LIST_DEAD,
        };
        let query = bind!(statement; scope.tenant(), page_cursor(page), page_row_limit(page));
        fetch_page(&self.0, scope, query, page, read_job_row, |row| row.id.to_string()).await
    }
    async fn world_of(&self, scope: &TenantScope, job: JobId) -> StoreResult<Option<WorldId>> {
        let query = bind!(WORLD_OF_JOB; scope.tenant(), job);
        self.0.fetch_optional(scope, query, |columns| columns.id()).await
    }
    async fn list_turn_job_traces(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        number: u32,
    ) -> StoreResult<Vec<JobTrace>> {
        let query = bind!(job_calls::JOBS_OF_TURN; scope.tenant(), dialogue, i64::from(number));
        self.0.fetch_all(scope, query, job_calls::read_job_trace).await
    }
    async fn count_pending_jobs(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<u64> {
        let query = bind!(COUNT_PENDING; scope.tenant(), dialogue);
        self.0.fetch_one(scope, query, |columns| columns.number()).await
    }
    async fn load_learning_progress(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
    ) -> StoreResult<Option<LearningProgress>> {
        let query = bind!(LEARNING_PROGRESS; scope.tenant(), dialogue);
        let read_row = |columns: &mut Columns<'_>| {
            let turns: u32 = columns.number()?;
            let waiting: u32 = columns.number()?;
            let failed: u32 = columns.number()?;
            Ok(LearningProgress {
                turns,
                learned: turns.saturating_sub(waiting).saturating_sub(failed),
                waiting,
                failed,
                summarised_to: columns.number()?,
            })
        };
        self.0.fetch_optional(scope, query, read_row).await
    }
    async fn load_extraction_status(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        turn: TurnId,
        now: DateTime<Utc>,
    ) -> StoreResult<ExtractionStatus> {
        let query = bind!(
            EXTRACTION_STATUS;
            scope.tenant(), dialogue, turn, JobKind::ExtractFacts.as_str(), to_micros(now)
        );
        let status = self.0.fetch_optional(scope, query, |columns| {
            let is_due: bool = columns.next()?;
            let is_held: bool = columns.next()?;
            Ok(match (is_due, is_held) {
                (true, _) => ExtractionStatus::Due,
                (false, true) => ExtractionStatus::Held,
                (false, false) => ExtractionStatus::None,
            })
        });
        Ok(status.await?.unwrap_or_default())
    }
    async fn has_unfinished_job(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        turn: TurnId,
        kind: JobKind,
    ) -> StoreResult<bool> {
        let query = bind!(UNFINISHED_JOB; scope.tenant(), dialogue, turn, kind.as_str());
        let job = self
            .0
            .fetch_optional(scope, query, |columns| columns.next::<bool>())
            .await?;
        Ok(job.is_some())
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn job_queue_is_read_from_its_pending_rows() {
            assert_searches(LIST_PENDING, &["(tenant=?)", "jobs_"]).await;
            assert_searches(COUNT_PENDING, &["jobs_open"]).await;
            assert_searches(MAKE_DUE, &["jobs_once"]).await;
            assert_searches(EXTRACTION_STATUS, &["jobs_once"]).await;
            assert_searches(UNFINISHED_JOB, &["jobs_once"]).await;
            assert_searches(LIST_DEAD, &["jobs_dead"]).await;
            assert_searches(LEARNING_PROGRESS, &["jobs_once", "sqlite_autoindex_turns_1", "summaries_of_dialogue"]).await;
            for statement in [LIST, LIST_DONE] {
                assert_searches(statement, &["sqlite_autoindex_jobs_1 (tenant=? AND id<?)"]).await;
            }
            assert_searches(
                SPOKEN_FOR_JOB,
                &["SEARCH turns USING INDEX sqlite_autoindex_turns_1 (tenant=? AND id=?)", "turns_standing (tenant=? AND dialogue=? AND number>? AND number<?)", "SEARCH d USING INDEX sqlite_autoindex_dialogues_1 (tenant=? AND id=?)", "SEARCH c USING INDEX sqlite_autoindex_traces_1 (tenant=? AND turn=?)", "SEARCH e USING INDEX state_events_by_cause (tenant=? AND cause_id=?)", "jobs_once (tenant=? AND dialogue=? AND turn=? AND kind=?)", "SEARCH x USING INDEX sqlite_autoindex_tenant_settings_1 (tenant=?)"],
            )
            .await;
            for statement in [STORE_ANSWER, FINISH_JOB, FINISH_UNSAID_JOB, FAIL_JOB, RETRY_JOB, JOB_BY_ID] {
                assert_searches(statement, &["sqlite_autoindex_jobs_1 (tenant=? AND id=?)"]).await;
            }
        }
    }
}
