//! Durable jobs after turns: run at least once, idempotent by (dialogue, turn, kind), leased, retried and dead-lettered
//! (docs/algorithms.md#jobs).

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

pub use super::new_job::{JobFence, JobKind, NewJob};
use super::{audit::Edit, dialogues::Dialogue};
use crate::{Page, PageRequest, StoreResult, buffer::BufferedTurn};
use colloquy_core::{
    ids::{DialogueId, JobId, NodeId, NpcId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Npc, World},
    disclosure::audience::{Audience, Knower},
    state::StateChange,
    trace::{JobTrace, TaskUsage, TurnTrace},
    turn::Turn,
};

/// What the turn after a turn has to expect from the extraction of the turn's facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExtractionStatus {
    /// The job has ended, waits for a retry, or does not exist.
    #[default]
    None,
    /// The job is running or due.
    Due,
    /// The job is held, and has not run yet. [`JobStore::make_due`] ends the hold.
    Held,
}

/// A job under this node's lease until `leased_until`.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub kind: JobKind,
    pub dialogue: DialogueId,
    pub turn: TurnId,
    pub text_version: u32,
    /// Failed attempts before this attempt.
    pub attempts: u32,
    /// The failed attempts with a useless answer of the model.
    pub useless: u32,
    pub created_at: DateTime<Utc>,
    /// The start of the present attempts: the job's creation, a manual retry, or the time when its turn stood again.
    pub since: DateTime<Utc>,
    /// The model's answer to an earlier attempt ([`JobStore::store_answer`]).
    pub answer: Option<String>,
    pub leased_until: DateTime<Utc>,
}

impl From<&NewJob> for Job {
    fn from(job: &NewJob) -> Self {
        Self {
            id: job.id,
            kind: job.kind,
            dialogue: job.dialogue,
            turn: job.turn,
            text_version: job.text_version,
            attempts: 0,
            useless: 0,
            created_at: job.created_at,
            since: job.created_at,
            answer: None,
            leased_until: job.leased_until,
        }
    }
}

impl Job {
    /// Returns the fence for this job's write.
    #[must_use]
    pub fn fence(&self) -> JobFence {
        JobFence {
            job: self.id,
            turn: self.turn,
            text_version: self.text_version,
        }
    }
}

/// The input of a job: a standing turn and its surroundings.
#[derive(Debug, Clone, PartialEq)]
pub struct JobInput {
    pub turn: Turn,
    /// The two previous turns, oldest first, in the form for models.
    pub before: Vec<BufferedTurn>,
    /// The trace of the turn's prompt, for jobs that extract facts; `None` for other jobs, or if the trace is not
    /// stored.
    pub trace: Option<TurnTrace>,
    /// The standing events and notes of the reply's state block, in order, for jobs that extract facts; empty for other
    /// jobs. What a job found in a reply without a readable block is not among them: that job read the same words.
    pub block_sentences: Vec<StateChange>,
    pub dialogue: Dialogue,
    pub world: Arc<World>,
    pub npc: Npc,
}

impl JobInput {
    /// Returns the NPCs that took part or overheard, sorted.
    #[must_use]
    pub fn learner_npcs(&self) -> Vec<NpcId> {
        let mut npcs: Vec<NpcId> = self
            .dialogue
            .npcs
            .iter()
            .chain(&self.dialogue.witnesses)
            .cloned()
            .collect();
        npcs.sort();
        npcs.dedup();
        npcs
    }

    /// Returns the audience of the line: the NPCs and factions that heard it. The audience may use the facts only in
    /// talks with this player, unless the world shares facts between players.
    #[must_use]
    pub fn audience(&self) -> Audience {
        let shared = self.world.settings.share_between_players.unwrap_or(false);
        let factions = self.dialogue.options.factions.iter().cloned().map(Knower::Faction);
        Audience {
            knowers: self
                .learner_npcs()
                .into_iter()
                .map(Knower::Npc)
                .chain(factions)
                .collect(),
            private_to: if shared { None } else { self.turn.player.clone() },
        }
    }
}

/// Status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    Pending,
    Done,
    /// Given up after the last attempt. A person should check the job.
    Dead,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = JobView)]
pub struct JobRow {
    #[schema(value_type = String)]
    pub id: JobId,
    pub kind: JobKind,
    #[serde(rename = "dialogue_id")]
    #[schema(value_type = String)]
    pub dialogue: DialogueId,
    #[serde(rename = "turn_id")]
    #[schema(value_type = String)]
    pub turn: TurnId,
    pub status: JobStatus,
    pub attempts: u32,
    pub last_error: Option<String>,
    pub created_at: DateTime<Utc>,
}

/// The next step for a failed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobFailure {
    RetryAt(DateTime<Utc>),
    /// As [`Self::RetryAt`], and counted in [`Job::useless`].
    RetryUselessAt(DateTime<Utc>),
    Dead,
}

/// The outcome of a lease renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRenewal {
    Renewed,
    /// Another node has the lease, or the job waits for a retry.
    NotHeld,
    /// The job is done or dead.
    Finished,
}

/// The outcome of a manual retry.
#[derive(Debug, Clone, PartialEq)]
pub enum JobRetry {
    /// The job is due now, with its attempts reset.
    Done(JobRow),
    /// The job is pending or done, and unchanged.
    NotDead(JobStatus),
    NotFound,
}

/// How far NPCs have learned from the standing turns of a dialogue: `turns` is the sum of `learned`, `waiting` and
/// `failed`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = LearningView)]
pub struct LearningProgress {
    /// Stored turns.
    pub turns: u32,
    /// Turns whose jobs have ended, and turns with nothing to learn from.
    pub learned: u32,
    /// Turns with a job that runs, is due, or waits for its time.
    pub waiting: u32,
    /// Turns with a job that was given up. `GET /v1/jobs?status=dead` names the error, and `POST /v1/jobs/{job}:retry`
    /// tries again.
    pub failed: u32,
    /// The number of the last turn that a summary covers; 0: there is no summary yet.
    pub summarised_to: u32,
}

/// The leases of the job queue.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Leases due jobs without a valid lease, oldest first. Finishes jobs of unsaid turns instead.
    async fn lease_due_jobs(
        &self,
        scope: &TenantScope,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<Job>>;
    /// Extends the lease of `node` on a job, or renews an expired lease unless another node has the job by now.
    /// Otherwise the job is unchanged.
    async fn renew_lease(
        &self,
        scope: &TenantScope,
        job: JobId,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> StoreResult<LeaseRenewal>;
    /// Frees every lease of `node`. Called once at start, since no job of the earlier process runs any more.
    async fn release_all_leases(&self, node: NodeId) -> StoreResult<()>;
    /// Frees every lease of `node` on jobs of this tenant.
    async fn release_tenant_leases(&self, scope: &TenantScope, node: NodeId) -> StoreResult<()>;
}

/// The job queue.
#[async_trait]
pub trait JobStore: LeaseStore {
    /// Returns the input of a job, in one read. `None`: the job's turn was unsaid or cut meanwhile. A deleted world or
    /// NPC is returned in its last version, since the turn stands and other NPCs heard it.
    async fn load_job_input(&self, scope: &TenantScope, job: &Job) -> StoreResult<Option<JobInput>>;
    /// Stores a model's answer with the job until the job is done, so that a retry need not ask again. Returns `false`,
    /// without a write, if the fence is closed.
    async fn store_answer(&self, scope: &TenantScope, fence: &JobFence, answer: &str) -> StoreResult<bool>;
    /// Ends a job without results. `calls` is the usage of this attempt.
    async fn finish_job(&self, scope: &TenantScope, job: JobId, calls: &[TaskUsage]) -> StoreResult<()>;
    /// Ends a job without an input ([`Self::load_job_input`]), unless its turn stands again by now. If the turn stands
    /// again later, the job becomes due again.
    async fn finish_unsaid(&self, scope: &TenantScope, job: JobId) -> StoreResult<()>;
    /// Records a failed attempt of `node` and its usage `calls`. If another node has leased the job, the job is
    /// unchanged.
    async fn fail_job(
        &self,
        scope: &TenantScope,
        job: JobId,
        node: NodeId,
        error: &str,
        failure: JobFailure,
        calls: &[TaskUsage],
    ) -> StoreResult<()>;
    /// Retries a dead job, and writes the audit row in the same transaction.
    async fn retry_dead_job(&self, scope: &TenantScope, job: JobId, edit: &Edit) -> StoreResult<JobRetry>;
    /// Makes a turn's held jobs due. Returns the kinds of the turn's jobs that run or are due: without those that have
    /// ended, and those that wait for a retry.
    async fn make_due(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        turn: TurnId,
        now: DateTime<Utc>,
    ) -> StoreResult<Vec<JobKind>>;
    /// Returns jobs, newest first.
    async fn list_jobs(
        &self,
        scope: &TenantScope,
        status: Option<JobStatus>,
        page: &PageRequest,
    ) -> StoreResult<Page<JobRow>>;
    /// Returns the world of the job's dialogue.
    async fn world_of(&self, scope: &TenantScope, job: JobId) -> StoreResult<Option<WorldId>>;
    /// Returns outcomes and usage of the jobs of a standing turn, oldest first.
    async fn list_turn_job_traces(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        number: u32,
    ) -> StoreResult<Vec<JobTrace>>;
    /// Returns the number of the dialogue's pending jobs, for which the next turn may wait.
    async fn count_pending_jobs(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<u64>;
    /// Returns how far NPCs have learned from the standing turns of a dialogue, by the jobs for facts and state. `None`:
    /// there is no such dialogue.
    async fn load_learning_progress(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
    ) -> StoreResult<Option<LearningProgress>>;
    /// Returns what the next turn has to expect from the extraction job of this turn.
    async fn load_extraction_status(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        turn: TurnId,
        now: DateTime<Utc>,
    ) -> StoreResult<ExtractionStatus>;
    /// Returns whether the turn has a job of this kind that is not done: pending or dead.
    async fn has_unfinished_job(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        turn: TurnId,
        kind: JobKind,
    ) -> StoreResult<bool>;
}
