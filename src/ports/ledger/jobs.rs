//! Durable after-turn jobs: at least once, idempotent by (dialogue, turn, kind), leased, retried,
//! dead-lettered (docs/algorithms.md#jobs).

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{audit::Edit, dialogues::Dialogue};
use crate::{
    ids::{DialogueId, JobId, NodeId, TurnId, WorldId},
    memory::{
        authored::{Npc, World},
        trace::{JobTrace, TaskUsage, TurnTrace},
        turn::Turn,
    },
    ports::{Page, PageRequest, StoreResult, buffer::BufferedTurn},
    tenancy::TenantScope,
};

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Extract facts from a turn and reconcile them with memory.
    ExtractFacts,
    /// Extract state changes from a turn whose state block did not parse.
    ExtractState,
    /// Summarise the oldest unsummarised turns.
    Summarise,
}

impl JobKind {
    pub const ALL: [Self; 3] = [Self::ExtractFacts, Self::ExtractState, Self::Summarise];

    /// The name in the ledger and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExtractFacts => "extract_facts",
            Self::ExtractState => "extract_state",
            Self::Summarise => "summarise",
        }
    }
    /// The inverse of [`Self::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A job to be written with the turn that causes it, leased to the committing node from the start
/// so that the usual case needs no second write before it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub id: JobId,
    pub kind: JobKind,
    pub dialogue: DialogueId,
    pub turn: TurnId,
    pub text_version: u32,
    pub created_at: DateTime<Utc>,
    pub leased_to: NodeId,
    pub leased_until: DateTime<Utc>,
    /// Set: nobody has leased it, and it is due then, or when [`JobStore::make_due`] says so.
    pub held_until: Option<DateTime<Utc>>,
}

/// A job this node may run until `leased_until`.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub kind: JobKind,
    pub dialogue: DialogueId,
    pub turn: TurnId,
    pub text_version: u32,
    /// Attempts that failed before this one.
    pub attempts: u32,
    /// Of these, those whose model answered and the answer was of no use.
    pub useless: u32,
    pub created_at: DateTime<Utc>,
    /// Since when it is tried: since it was written, since a person had it tried again, or since its turn stands again.
    pub since: DateTime<Utc>,
    /// What the model answered an earlier attempt ([`JobStore::store_answer`]).
    pub answer: Option<String>,
    pub leased_until: DateTime<Utc>,
}

impl From<&NewJob> for Job {
    fn from(new: &NewJob) -> Self {
        Self {
            id: new.id,
            kind: new.kind,
            dialogue: new.dialogue,
            turn: new.turn,
            text_version: new.text_version,
            attempts: 0,
            useless: 0,
            created_at: new.created_at,
            since: new.created_at,
            answer: None,
            leased_until: new.leased_until,
        }
    }
}

/// The condition under which a job may write: its turn still stands with this text version, and
/// the job has not finished. Checked in the writing transaction, which also finishes the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobFence {
    pub job: JobId,
    pub turn: TurnId,
    pub text_version: u32,
}

impl Job {
    /// The fence of this job's write.
    #[must_use]
    pub fn fence(&self) -> JobFence {
        JobFence {
            job: self.id,
            turn: self.turn,
            text_version: self.text_version,
        }
    }
}

/// What a job works on: a turn that stands, and where it was said.
#[derive(Debug, Clone, PartialEq)]
pub struct JobInput {
    pub turn: Turn,
    /// The two turns before it, oldest first, as models are shown them.
    pub before: Vec<BufferedTurn>,
    /// What its prompt was made of, where facts are to be extracted; `None`: it is not kept, or the job is another.
    pub trace: Option<TurnTrace>,
    pub dialogue: Dialogue,
    pub world: World,
    pub npc: Npc,
}

/// Status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    Pending,
    Done,
    /// Given up after the last attempt; a person should look.
    Dead,
}

/// A job as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobRow {
    pub id: JobId,
    pub kind: JobKind,
    pub dialogue: DialogueId,
    pub turn: TurnId,
    pub status: JobStatus,
    pub attempts: u32,
    pub last_error: Option<String>,
    pub created_at: DateTime<Utc>,
}

/// What to do with a job that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobFailure {
    RetryAt(DateTime<Utc>),
    /// As [`Self::RetryAt`], and it counts among the [`Job::useless`].
    RetryUselessAt(DateTime<Utc>),
    Dead,
}

/// What came of prolonging the lease of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRenewal {
    Renewed,
    /// Somebody else has it, or it waits until it is tried again.
    NotHeld,
    /// It is done or dead.
    Finished,
}

/// What came of having a dead job tried again.
#[derive(Debug, Clone, PartialEq)]
pub enum JobRetry {
    /// It is due now, as if it had never been tried.
    Done(JobRow),
    /// It is pending or done: nothing was changed.
    NotDead(JobStatus),
    NotFound,
}

/// The job queue.
#[async_trait]
pub trait JobStore: Send + Sync {
    /// Leases due jobs whose lease is free or has run out, oldest first. Jobs of turns that no
    /// longer stand are finished instead.
    async fn lease_due_jobs(
        &self,
        scope: &TenantScope,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<Job>>;
    /// Prolongs the lease of a job that `node` was given, or takes it anew if it has run out and nobody else has the job
    /// by now. Otherwise nothing is changed.
    async fn renew_lease(
        &self,
        scope: &TenantScope,
        job: JobId,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> StoreResult<LeaseRenewal>;
    /// Frees every lease of `node`: called once at start, since nothing of an earlier process runs.
    async fn release_all_leases(&self, node: NodeId) -> StoreResult<()>;
    /// Frees every lease of `node` on jobs of this tenant.
    async fn release_tenant_leases(&self, scope: &TenantScope, node: NodeId) -> StoreResult<()>;
    /// What a job works on, in one read. `None`: its turn was unsaid or cut since. A world or an NPC that
    /// was deleted since is given as it was last: what was said stands, and others heard it.
    async fn load_job_input(&self, scope: &TenantScope, job: &Job) -> StoreResult<Option<JobInput>>;
    /// Keeps a model's answer with a job, so that another attempt need not ask for it again. It goes when
    /// the job is done. `false`: the fence is closed and nothing was written.
    async fn store_answer(&self, scope: &TenantScope, fence: &JobFence, answer: &str) -> StoreResult<bool>;
    /// Ends a job that had nothing to write. `calls`: what this attempt used.
    async fn finish_job(&self, scope: &TenantScope, job: JobId, calls: &[TaskUsage]) -> StoreResult<()>;
    /// Ends a job for which [`Self::load_job_input`] found nothing, unless its turn stands after all by now: then it
    /// stays. Should the turn stand again later, the job is due again.
    async fn finish_unsaid(&self, scope: &TenantScope, job: JobId) -> StoreResult<()>;
    /// A job that `node` ran came to nothing, and used `calls`. One that another node has leased by now is that node's to end.
    async fn fail_job(
        &self,
        scope: &TenantScope,
        job: JobId,
        node: NodeId,
        error: &str,
        then: JobFailure,
        calls: &[TaskUsage],
    ) -> StoreResult<()>;
    /// Has a dead job tried again; its audit row is written with it.
    async fn retry_dead_job(&self, scope: &TenantScope, job: JobId, edit: &Edit) -> StoreResult<JobRetry>;
    /// Ends the wait of a turn's held jobs; how many jobs of it are due now that nobody has leased or tried.
    async fn make_due(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        turn: TurnId,
        now: DateTime<Utc>,
    ) -> StoreResult<u64>;
    /// Newest first.
    async fn list_jobs(
        &self,
        scope: &TenantScope,
        status: Option<JobStatus>,
        page: &PageRequest,
    ) -> StoreResult<Page<JobRow>>;
    /// The world of the dialogue that a job is for.
    async fn world_of(&self, scope: &TenantScope, job: JobId) -> StoreResult<Option<WorldId>>;
    /// What became of the jobs of a dialogue's turn that stands, and what they used; oldest first.
    async fn list_turn_job_traces(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        number: u32,
    ) -> StoreResult<Vec<JobTrace>>;
    /// Pending jobs of a dialogue's turns up to `through`: what the next turn may wait for.
    async fn count_pending_jobs(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<u64>;
    /// Whether the facts of this turn are still to be extracted, and that not only after a pause.
    async fn is_extraction_pending(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        turn: TurnId,
        now: DateTime<Utc>,
    ) -> StoreResult<bool>;
}
