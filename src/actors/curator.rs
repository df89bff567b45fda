//! The work after a reply, per tenant: jobs run in order, with bounded concurrency and retries after growing pauses.
//! The curator also picks up jobs that another process left behind, and queues summaries after a silence.
//!
//! `dialogue::jobs` does the work of a job. The ledger's queue is the truth. The curator holds only jobs leased to the
//! node, so a loss costs only the time of a lease.

mod attempts;
mod silence;
mod state;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) use self::silence::has_silent_dialogues;
pub(crate) use self::state::DescribeCurator;
pub use self::state::{CuratorState, NodeCurator};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};
use attempts::{Attempt, attempt_job, record_failure};
use futures_util::{
    FutureExt,
    future::{AbortHandle, Abortable},
};
use tokio::sync::{Semaphore, oneshot};

use super::{
    mailbox::mailbox,
    messages::{CuratorRequest, DrainCurator, JobEnded, StopCurator},
    metrics::{ActorKind, GaugeShare},
    node::Node,
};
use colloquy_core::{
    ids::{DialogueId, JobId},
    scope::TenantScope,
};
use colloquy_dialogue::{jobs::JobReport, models::with_usage_tally};
use colloquy_ports::{
    StoreError,
    ledger::jobs::{Job, JobKind},
};

/// Jobs leased ahead of the running jobs, so that a busy curator need not lease jobs singly.
const LEASE_AHEAD_FACTOR: usize = 4;
const SHORTEST_POLL_PAUSE: Duration = Duration::from_millis(50);
/// Jobs of a tenant in memory at once.
const MAX_HELD_JOBS: usize = 10_000;

pub(super) struct Curator {
    node: Arc<Node>,
    scope: TenantScope,
    generation: u64,
    /// Fact extraction, summaries and curation of each dialogue, oldest turn first: each job builds on the result of the previous
    /// job.
    lanes: HashMap<LaneKey, Lane>,
    /// All jobs in memory, so that a job leased again does not run twice.
    held_jobs: HashSet<JobId>,
    held_share: GaugeShare,
    running: HashMap<JobId, (Job, AbortHandle)>,
    slots: Arc<Semaphore>,
    /// The part of `slots` for curation and consolidation. Slow models of these jobs must not hold up what NPCs learn.
    curation_slots: Arc<Semaphore>,
    leasing: bool,
    reconciling: ReconcileState,
    silence: silence::SilenceWatch,
    draining: Option<Vec<oneshot::Sender<usize>>>,
    last_used_at: Instant,
}

type LaneKey = (DialogueId, JobKind);

/// Returns the job's lane, for kinds that run one at a time in a dialogue.
fn lane_of(job: &Job) -> Option<LaneKey> {
    match job.kind {
        JobKind::ExtractFacts | JobKind::Summarise | JobKind::Curate | JobKind::Consolidate => {
            Some((job.dialogue, job.kind))
        }
        JobKind::ExtractState => None,
    }
}

/// State of the reconciliation of dirty memories.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReconcileState {
    Idle,
    Running,
    /// Another turn was unsaid after the start.
    Again,
}

#[derive(Default)]
struct Lane {
    waiting: BTreeMap<JobId, Job>,
    running: bool,
    /// Set after the first job failed: later jobs of the lane wait until the first job is leased again.
    blocked_until: Option<Instant>,
}

impl Curator {
    pub fn new(node: Arc<Node>, scope: TenantScope, generation: u64) -> Self {
        let concurrency = node.ports.settings.jobs.concurrency.max(1);
        let last_used_at = node.ports.clock.monotonic_now();
        Self {
            held_share: GaugeShare::for_gauge(&node.metrics.jobs_held),
            node,
            scope,
            generation,
            lanes: HashMap::new(),
            held_jobs: HashSet::new(),
            running: HashMap::new(),
            slots: Arc::new(Semaphore::new(concurrency)),
            curation_slots: Arc::new(Semaphore::new(concurrency.div_ceil(2))),
            leasing: false,
            reconciling: ReconcileState::Idle,
            silence: silence::SilenceWatch::due_at(last_used_at),
            draining: None,
            last_used_at,
        }
    }

    fn enqueue_jobs(&mut self, jobs: Vec<Job>, ctx: &mut Context<Self>) {
        for job in jobs {
            // Further jobs stay leased in the ledger, and are found again when their leases have run out.
            if self.held_jobs.len() >= MAX_HELD_JOBS || !self.held_jobs.insert(job.id) {
                continue;
            }
            if let Some(key) = lane_of(&job) {
                let lane = self.lanes.entry(key).or_default();
                if job.attempts > 0 {
                    lane.blocked_until = None;
                }
                lane.waiting.insert(job.id, job.clone());
                self.run_next_in_lane(key, ctx);
                if self.lanes.get(&key).is_some_and(|lane| !lane.running) {
                    // The job waits for a failed job, or for a budget. The dialogue's next turn must not wait for it.
                    self.notify_dialogue(&job, None, ctx);
                }
            } else if self.draining.is_none() {
                self.run_job(job, ctx);
            }
        }
        debug_assert!(
            self.held_jobs.len() <= MAX_HELD_JOBS,
            "a curator has a bounded number of jobs"
        );
        self.held_share.set_count(self.held_jobs.len());
    }

    fn run_next_in_lane(&mut self, key: LaneKey, ctx: &mut Context<Self>) {
        let now = self.node.ports.clock.monotonic_now();
        let Some(lane) = self.lanes.get_mut(&key) else {
            return;
        };
        if lane.running || lane.blocked_until.is_some_and(|until| until > now) {
            return;
        }
        if self.draining.is_some() || self.node.is_over_job_budget(&self.scope) {
            return;
        }
        lane.blocked_until = None;
        match lane.waiting.pop_first() {
            Some((_, job)) => {
                lane.running = true;
                self.run_job(job, ctx);
            }
            None => {
                self.lanes.remove(&key);
            }
        }
    }

    /// Runs a job. Jobs of different dialogues run in parallel, even for the memory of the same NPC. Only their writes
    /// take turns (`BodyCache::write_memory`), never their model calls.
    fn run_job(&mut self, job: Job, ctx: &mut Context<Self>) {
        debug_assert!(self.held_jobs.contains(&job.id), "a running job is in memory");
        debug_assert!(!self.running.contains_key(&job.id), "a job runs once at a time");
        let (abort, aborted) = AbortHandle::new_pair();
        self.running.insert(job.id, (job.clone(), abort));
        let node = Arc::clone(&self.node);
        let scope = self.scope.clone();
        let slots = Arc::clone(&self.slots);
        let curation_slots = match job.kind {
            JobKind::Curate | JobKind::Consolidate => Some(Arc::clone(&self.curation_slots)),
            JobKind::ExtractFacts | JobKind::ExtractState | JobKind::Summarise => None,
        };
        let attempted = job.clone();
        let running = async move {
            let job = attempted;
            // The semaphores are never closed.
            let _curation_slot = match curation_slots {
                Some(slots) => slots.acquire_owned().await.ok(),
                None => None,
            };
            let _slot = slots.acquire().await.ok();
            let started = node.ports.clock.monotonic_now();
            let result = match attempt_job(&node, &scope, &job).await {
                Attempt::Ended(result) => result,
                not_run => return (not_run, None),
            };
            let duration = node.ports.clock.monotonic_now().saturating_duration_since(started);
            node.metrics
                .observe_job_attempt(&job, duration, result.is_ok(), node.ports.clock.now());
            let retry_in = match &result {
                Ok(_) => None,
                Err(error) => record_failure(&node, &scope, &job, error).await,
            };
            (Attempt::Ended(result), retry_in)
        };
        ctx.spawn(Abortable::new(with_usage_tally(running), aborted).into_actor(self).map(
            move |outcome, curator, ctx| {
                let (attempt, retry_in) = outcome.unwrap_or((Attempt::Obsolete, None));
                curator.on_job_ended(job, attempt, retry_in, ctx);
            },
        ));
    }

    /// Aborts running jobs of the dialogues whose turns no longer stand. The ledger has ended the jobs, and would
    /// refuse their writes.
    fn abort_unsaid_jobs(&mut self, dialogues: &[DialogueId], ctx: &mut Context<Self>) {
        let running = self.running.values().map(|(job, _)| job);
        let of_them = running.filter(|job| dialogues.contains(&job.dialogue));
        let jobs: Vec<Job> = of_them.cloned().collect();
        if jobs.is_empty() {
            return;
        }
        let node = Arc::clone(&self.node);
        let scope = self.scope.clone();
        let look = async move {
            let mut unsaid = Vec::new();
            for job in jobs {
                if let Ok(None) = node.ports.ledger.jobs.load_job_input(&scope, &job).await {
                    unsaid.push(job.id);
                }
            }
            unsaid
        };
        ctx.spawn(look.into_actor(self).map(|unsaid, curator, _| {
            for job in unsaid {
                if let Some((_, abort)) = curator.running.get(&job) {
                    abort.abort();
                }
            }
        }));
    }

    fn on_job_ended(&mut self, job: Job, attempt: Attempt, retry_in: Option<Duration>, ctx: &mut Context<Self>) {
        self.running.remove(&job.id);
        let now = self.node.ports.clock.monotonic_now();
        self.last_used_at = now;
        let lane = lane_of(&job);
        let waits = matches!(attempt, Attempt::Remote) && lane.is_some();
        if !waits {
            self.held_jobs.remove(&job.id);
            self.held_share.set_count(self.held_jobs.len());
            self.notify_dialogue(&job, attempt.into_report(), ctx);
        }
        if let Some(key) = lane {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.running = false;
                let poll = Duration::from_secs(self.node.ports.settings.jobs.poll_s);
                // By then the job is leased again, by the local node or a faster node.
                lane.blocked_until = retry_in.map(|pause| now + pause + 2 * poll + Duration::from_secs(1));
                if waits {
                    // Later jobs of the lane wait too, until the other node is done.
                    tracing::debug!(job = %job.id, "a job is another's by now");
                    lane.blocked_until = Some(now + poll.max(SHORTEST_POLL_PAUSE));
                    lane.waiting.insert(job.id, job);
                }
            }
            self.run_next_in_lane(key, ctx);
        }
        self.report_drained();
    }

    /// Notifies the job's dialogue. A stopped dialogue gets no message. `report`: of an attempt that succeeded.
    fn notify_dialogue(&self, job: &Job, report: Option<JobReport>, ctx: &mut Context<Self>) {
        let key = (self.scope.clone(), job.dialogue);
        let node = Arc::clone(&self.node);
        let job_ended = JobEnded {
            turn_id: job.turn,
            kind: Some(job.kind),
            report,
        };
        let tell = async move {
            if let Some(dialogue) = node.actors().and_then(|actors| actors.job_reports(&key)) {
                // A dialogue that is just stopping reads what its jobs changed at the next load.
                let _ = dialogue.send(&node.metrics, job_ended).await;
            }
        };
        ctx.spawn(tell.into_actor(self));
    }

    fn leave_directory(&self) {
        if let Some(actors) = self.node.actors() {
            actors.remove_curator(&self.scope, self.generation);
        }
    }

    fn report_drained(&mut self) {
        if !self.running.is_empty() {
            return;
        }
        let held_count = self.held_jobs.len();
        for reply in self.draining.iter_mut().flat_map(|replies| replies.drain(..)) {
            // The caller may have given up.
            let _ = reply.send(held_count);
        }
    }

    /// Looks for left-over or due jobs, and for lanes that need not wait any more.
    fn on_tick(&mut self, ctx: &mut Context<Self>) {
        let poll = Duration::from_secs(self.node.ports.settings.jobs.poll_s).max(SHORTEST_POLL_PAUSE);
        let idle = Duration::from_secs(self.node.settings.idle_s);
        let now = self.node.ports.clock.monotonic_now();
        let resting = self.held_jobs.is_empty()
            && !self.leasing
            && !self.silence.is_looking()
            && self.reconciling == ReconcileState::Idle;
        if resting && now.saturating_duration_since(self.last_used_at) >= idle {
            self.leave_directory();
            return ctx.stop();
        }
        let lanes: Vec<LaneKey> = self.lanes.keys().copied().collect();
        for key in lanes {
            self.run_next_in_lane(key, ctx);
        }
        self.lease_jobs(ctx);
        self.reconcile_dirty(ctx);
        self.look_for_silence(ctx);
        ctx.run_later(poll, Self::on_tick);
    }

    /// Reconciles the tenant's dirty memories one after the other. A failed memory stays dirty and comes again with the
    /// next tick.
    fn reconcile_dirty(&mut self, ctx: &mut Context<Self>) {
        if self.draining.is_some() || self.node.is_over_job_budget(&self.scope) {
            return;
        }
        if self.reconciling != ReconcileState::Idle {
            self.reconciling = ReconcileState::Again;
            return;
        }
        self.reconciling = ReconcileState::Running;
        let node = Arc::clone(&self.node);
        let scope = self.scope.clone();
        let settling = async move {
            AssertUnwindSafe(node.use_cases.reconcile_dirty(&scope))
                .catch_unwind()
                .await
        };
        ctx.spawn(settling.into_actor(self).map(|outcome, curator, ctx| {
            let runs_again = curator.reconciling == ReconcileState::Again;
            curator.reconciling = ReconcileState::Idle;
            match outcome {
                // More memories may be dirty than fit into a single run.
                Ok(Ok(count)) if count > 0 || runs_again => curator.reconcile_dirty(ctx),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(tenant = %curator.scope.tenant(), %error, "a memory could not be settled");
                }
                Err(_panic) => tracing::error!(tenant = %curator.scope.tenant(), "settling a memory panicked"),
            }
        }));
    }

    fn lease_jobs(&mut self, ctx: &mut Context<Self>) {
        let jobs = &self.node.ports.settings.jobs;
        let limit = (LEASE_AHEAD_FACTOR * jobs.concurrency).saturating_sub(self.held_jobs.len());
        if self.leasing || self.draining.is_some() || limit == 0 {
            return;
        }
        self.leasing = true;
        let node = Arc::clone(&self.node);
        let scope = self.scope.clone();
        let leasing = async move { lease_due_jobs(&node, &scope, limit).await };
        ctx.spawn(leasing.into_actor(self).map(|leased, curator, ctx| {
            curator.leasing = false;
            match leased {
                Ok(jobs) => curator.enqueue_jobs(jobs, ctx),
                Err(error) => tracing::warn!(tenant = %curator.scope.tenant(), %error, "jobs could not be leased"),
            }
        }));
    }
}

/// Leases due jobs of a tenant to the node; none while jobs have to wait.
pub(super) async fn lease_due_jobs(node: &Node, scope: &TenantScope, limit: usize) -> Result<Vec<Job>, StoreError> {
    if node.is_over_job_budget(scope) {
        return Ok(Vec::new());
    }
    let now = node.ports.clock.now();
    let until = now + Duration::from_secs(node.ports.settings.jobs.lease_s);
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    node.ports
        .ledger
        .jobs
        .lease_due_jobs(scope, node.id, now, until, limit)
        .await
}

impl Actor for Curator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.on_tick(ctx);
    }
}

impl Handler<CuratorRequest> for Curator {
    type Result = ();

    fn handle(&mut self, request: CuratorRequest, ctx: &mut Self::Context) {
        self.last_used_at = self.node.ports.clock.monotonic_now();
        match request {
            CuratorRequest::TakeJobs(jobs) => self.enqueue_jobs(jobs, ctx),
            CuratorRequest::TurnsUnsaid(dialogues) => {
                self.abort_unsaid_jobs(&dialogues, ctx);
                self.reconcile_dirty(ctx);
                // Turns that were cut or stand again left jobs without a lease.
                self.lease_jobs(ctx);
            }
            CuratorRequest::JobsDue => self.lease_jobs(ctx),
        }
    }
}

impl Handler<DrainCurator> for Curator {
    type Result = ();

    fn handle(&mut self, DrainCurator { reply }: DrainCurator, _: &mut Self::Context) {
        self.draining.get_or_insert_default().push(reply);
        self.report_drained();
    }
}

impl Handler<StopCurator> for Curator {
    type Result = ();

    fn handle(&mut self, StopCurator: StopCurator, ctx: &mut Self::Context) {
        self.leave_directory();
        ctx.stop();
    }
}

mailbox!(
    Curator,
    ActorKind::Curator,
    [CuratorRequest, DrainCurator, StopCurator, state::DescribeCurator]
);
