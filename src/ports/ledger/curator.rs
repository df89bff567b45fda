//! The queries of a tenant's curator, and the ledger's view of its work.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{jobs::JobStatus, new_job::JobKind};
use crate::StoreResult;
use colloquy_core::{
    ids::{DialogueId, JobId, TurnId},
    scope::TenantScope,
};

/// A dialogue with turns, cuts or rewinds after which nobody checked for a silence.
#[derive(Debug, Clone, PartialEq)]
pub struct SilenceCheck {
    pub dialogue: DialogueId,
    /// The time of the first of these changes.
    pub since: DateTime<Utc>,
    /// The last turn; `None` if none stands.
    pub head: Option<SilentHead>,
    /// The last turn with a summary.
    pub summarised_through: u32,
    /// The last turn that a curation pass has read.
    pub curated_through: u32,
    /// False for an NPC conversation that has ended: no prompt reads its summaries.
    pub is_read_again: bool,
    /// A closed dialogue is silent from its last turn on.
    pub is_closed: bool,
}

/// The last turn of a dialogue.
#[derive(Debug, Clone, PartialEq)]
pub struct SilentHead {
    pub turn: TurnId,
    pub number: u32,
    pub text_version: u32,
    pub committed_at: DateTime<Utc>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SilenceOutcome {
    /// A summary, a curation pass, or both are due up to the last turn: jobs with these ids, unless the turn has one of the
    /// kind that is pending or dead.
    Queue {
        summary: Option<JobId>,
        pass: Option<JobId>,
    },
    /// Not silent for long enough: the next check counts from this time.
    CheckFrom(DateTime<Utc>),
    /// Silent, and nothing is due.
    Nothing,
}

/// Pending jobs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = CuratorQueueView)]
pub struct KindQueue {
    pub kind: JobKind,
    /// Jobs that could run now.
    pub waiting: u64,
    /// Jobs that a node runs, or holds to run them next.
    pub running: u64,
    /// Jobs that are due later: after a failure, or once the player has heard the reply.
    pub delayed: u64,
    /// Of `waiting`: jobs whose node ended, or which ran longer than their lease. Another attempt follows.
    pub lease_expired: u64,
    /// When the oldest of these jobs was created; null without a job.
    pub oldest_at: Option<DateTime<Utc>>,
}

/// The end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PassOutcome {
    /// The job did its work, or found nothing to do.
    Done,
    /// The job's turn was taken back.
    Unsaid,
}

/// A job that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPass {
    pub kind: JobKind,
    pub dialogue: DialogueId,
    pub turn: TurnId,
    pub outcome: PassOutcome,
    /// Failed attempts before the end.
    pub failed_attempts: u32,
    /// The job's creation, a manual retry, or the time when its turn stood again.
    pub since: DateTime<Utc>,
    pub ended_at: DateTime<Utc>,
}

/// A job whose last attempt failed, or failed before the job succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = CuratorFailureView)]
pub struct FailedJob {
    #[schema(value_type = String)]
    pub job_id: JobId,
    pub kind: JobKind,
    #[schema(value_type = String)]
    pub dialogue_id: DialogueId,
    #[schema(value_type = String)]
    pub turn_id: TurnId,
    /// The number of the turn; null if the turn is not stored any more.
    pub turn: Option<u32>,
    /// `pending`: will be tried again. `dead`: given up. `done`: a later attempt succeeded.
    pub status: JobStatus,
    pub attempts: u32,
    /// The error of the last failed attempt.
    pub error: String,
    /// When the last failed attempt ended.
    #[serde(rename = "at")]
    pub failed_at: DateTime<Utc>,
    /// When a pending job is tried again; otherwise null.
    pub retry_at: Option<DateTime<Utc>>,
}

/// The work of a tenant's curators on all nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct CuratorReport {
    /// All kinds, in the order of [`JobKind::ALL`].
    pub queue: Vec<KindQueue>,
    /// False if the tenant has more pending jobs than are counted.
    pub queue_is_complete: bool,
    /// The last ended jobs of each kind, newest first.
    pub passes: Vec<JobPass>,
    /// Newest first.
    pub failures: Vec<FailedJob>,
    /// Dialogues to check for a silence by now, counted up to a limit.
    pub silence_checks_due: u64,
    /// [`SilenceCheck::since`] of the next dialogue to check.
    pub next_silence_check: Option<DateTime<Utc>>,
}

/// The curator's view of the ledger.
#[async_trait]
pub trait CuratorStore: Send + Sync {
    /// Returns dialogues with [`SilenceCheck::since`] up to `until`, longest first.
    async fn list_silence_checks(
        &self,
        scope: &TenantScope,
        until: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<SilenceCheck>>;
    /// Writes the outcome of a check. `false`, without a write: the dialogue has changed, or another node has written
    /// an outcome.
    async fn settle_silence_check(
        &self,
        scope: &TenantScope,
        check: &SilenceCheck,
        outcome: SilenceOutcome,
    ) -> StoreResult<bool>;
    /// Returns the tenant's queue, recent ends and recent failures. Dialogues with [`SilenceCheck::since`] up to
    /// `silent_until` are due for a check.
    async fn load_curator_report(
        &self,
        scope: &TenantScope,
        now: DateTime<Utc>,
        silent_until: DateTime<Utc>,
    ) -> StoreResult<CuratorReport>;
}
