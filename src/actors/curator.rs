//! Everything that may happen after a reply has gone out, per tenant: its jobs, in order, with
//! bounded concurrency, retried with growing pauses, and picked up when another process left them.
//!
//! What a job does is `dialogue::jobs`. The ledger's queue is the truth; what is held here is only
//! what this node has leased, so losing it costs a lease's time and nothing else.

mod attempts;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};
use attempts::{Attempt, attempt, note_failure};
use futures_util::{
    FutureExt,
    future::{AbortHandle, Abortable},
};
use tokio::sync::{Semaphore, oneshot};

use super::{mailbox::send, meters::Share, registry::Node, session::JobEnded};
use crate::{
    dialogue::models::tallied,
    ids::{DialogueId, JobId},
    ports::{
        StoreError,
        ledger::jobs::{Job, JobKind},
    },
    tenancy::TenantScope,
};

/// Jobs leased at once beyond those that can run, so that a busy curator need not ask for each.
const AHEAD: usize = 4;
const SHORTEST_POLL: Duration = Duration::from_millis(50);
/// Jobs of one tenant in memory at once.
const MOST_HELD: usize = 10_000;

/// Jobs of this tenant, leased to this node.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct TakeOn {
    pub jobs: Vec<Job>,
}

/// Turns of these dialogues were unsaid, or stand again: what runs for one that does not stand is let go,
/// so that those after it need not wait until it has timed out, jobs may be due, and the memories
/// concerned are reconciled again.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Unsaid(pub Vec<DialogueId>);

/// Jobs that waited may be due.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct JobsDue;

/// Starts nothing new; answers when nothing runs, with how many jobs were left.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Drain {
    pub reply: oneshot::Sender<usize>,
}

/// Stops at once. What runs is dropped and stays leased.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Stop;

pub(super) struct Curator {
    node: Arc<Node>,
    scope: TenantScope,
    generation: u64,
    /// Fact extraction and summaries of each dialogue, oldest turn first: what a job of a lane writes
    /// is what the next one builds on.
    lanes: HashMap<LaneKey, Lane>,
    /// Everything held here, so that a job leased again is not run twice.
    held: HashSet<JobId>,
    held_share: Share,
    running: HashMap<JobId, (Job, AbortHandle)>,
    slots: Arc<Semaphore>,
    leasing: bool,
    settling: Settling,
    draining: Option<Vec<oneshot::Sender<usize>>>,
    used: Instant,
}

type LaneKey = (DialogueId, JobKind);

/// The lane a job waits in, for kinds that run one at a time in a dialogue.
fn lane_of(job: &Job) -> Option<LaneKey> {
    match job.kind {
        JobKind::ExtractFacts | JobKind::Summarise => Some((job.dialogue, job.kind)),
        JobKind::ExtractState => None,
    }
}

/// Whether memories are being settled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settling {
    Idle,
    Running,
    /// Something was unsaid since it began.
    Again,
}

#[derive(Default)]
struct Lane {
    waiting: BTreeMap<JobId, Job>,
    running: bool,
    /// The first job failed and is to be leased again; later ones wait for it until then.
    blocked_until: Option<Instant>,
}

impl Curator {
    pub fn new(node: Arc<Node>, scope: TenantScope, generation: u64) -> Self {
        let slots = Arc::new(Semaphore::new(node.ports.settings.jobs.concurrency.max(1)));
        let used = node.ports.clock.instant();
        Self {
            held_share: Share::of(&node.meters.jobs_held),
            node,
            scope,
            generation,
            lanes: HashMap::new(),
            held: HashSet::new(),
            running: HashMap::new(),
            slots,
            leasing: false,
            settling: Settling::Idle,
            draining: None,
            used,
        }
    }

    fn take_on(&mut self, jobs: Vec<Job>, ctx: &mut Context<Self>) {
        for job in jobs {
            // What is beyond stays in the ledger, leased, and is found again when its lease has run out.
            if self.held.len() >= MOST_HELD || !self.held.insert(job.id) {
                continue;
            }
            if let Some(key) = lane_of(&job) {
                let lane = self.lanes.entry(key).or_default();
                if job.attempts > 0 {
                    lane.blocked_until = None;
                }
                lane.waiting.insert(job.id, job);
                self.next_in_lane(key, ctx);
            } else if self.draining.is_none() {
                self.run(job, ctx);
            }
        }
        self.held_share.set(self.held.len());
    }

    fn next_in_lane(&mut self, key: LaneKey, ctx: &mut Context<Self>) {
        let now = self.node.ports.clock.instant();
        let Some(lane) = self.lanes.get_mut(&key) else {
            return;
        };
        if lane.running || lane.blocked_until.is_some_and(|until| until > now) {
            return;
        }
        if self.draining.is_some() || may_not_call(&self.node, &self.scope) {
            return;
        }
        lane.blocked_until = None;
        match lane.waiting.pop_first() {
            Some((_, job)) => {
                lane.running = true;
                self.run(job, ctx);
            }
            None => {
                self.lanes.remove(&key);
            }
        }
    }

    /// Runs a job. Jobs of different dialogues run side by side even when they write to the memory of the
    /// same NPC: only their writes take turns (`BodyCache::write_memory`), never their model calls.
    fn run(&mut self, job: Job, ctx: &mut Context<Self>) {
        let (abort, aborted) = AbortHandle::new_pair();
        self.running.insert(job.id, (job.clone(), abort));
        let (node, scope, slots) = (Arc::clone(&self.node), self.scope.clone(), Arc::clone(&self.slots));
        let attempted = job.clone();
        let running = async move {
            let job = attempted;
            // The semaphore is never closed.
            let _slot = slots.acquire().await.ok();
            let begun = node.ports.clock.instant();
            let result = match attempt(&node, &scope, &job).await {
                Attempt::Ended(result) => result,
                not_run => return (not_run, None),
            };
            let took = node.ports.clock.instant().saturating_duration_since(begun);
            node.meters
                .job_ended(&job, took, result.is_ok(), node.ports.clock.now());
            let retry_in = match &result {
                Ok(_) => None,
                Err(error) => note_failure(&node, &scope, &job, error).await,
            };
            (Attempt::Ended(result), retry_in)
        };
        ctx.spawn(
            Abortable::new(tallied(running), aborted)
                .into_actor(self)
                .map(move |ended, curator, ctx| {
                    let (attempt, retry_in) = ended.unwrap_or((Attempt::Over, None));
                    curator.ended(job, attempt, retry_in, ctx);
                }),
        );
    }

    /// Lets go what runs for turns of these dialogues that no longer stand. The ledger has ended those
    /// jobs, and would not let them write.
    fn let_go(&mut self, dialogues: &[DialogueId], ctx: &mut Context<Self>) {
        let running = self.running.values().map(|(job, _)| job);
        let of_them = running.filter(|job| dialogues.contains(&job.dialogue));
        let jobs: Vec<Job> = of_them.cloned().collect();
        if jobs.is_empty() {
            return;
        }
        let (node, scope) = (Arc::clone(&self.node), self.scope.clone());
        let look = async move {
            let mut unsaid = Vec::new();
            for job in jobs {
                if let Ok(None) = node.ports.ledger.jobs.said(&scope, &job).await {
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

    fn ended(&mut self, job: Job, attempt: Attempt, retry_in: Option<Duration>, ctx: &mut Context<Self>) {
        self.running.remove(&job.id);
        let now = self.node.ports.clock.instant();
        self.used = now;
        let lane = lane_of(&job);
        let waits = matches!(attempt, Attempt::Elsewhere) && lane.is_some();
        if !waits {
            self.held.remove(&job.id);
            self.held_share.set(self.held.len());
            self.tell_of(&job, attempt, ctx);
        }
        if let Some(key) = lane {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.running = false;
                let poll = Duration::from_secs(self.node.ports.settings.jobs.poll_s);
                // Leased again by then, by this node or by another that saw it first.
                lane.blocked_until = retry_in.map(|pause| now + pause + 2 * poll + Duration::from_secs(1));
                if waits {
                    // Those after it wait with it, until whoever has it is done.
                    tracing::debug!(job = %job.id, "a job is another's by now");
                    lane.blocked_until = Some(now + poll.max(SHORTEST_POLL));
                    lane.waiting.insert(job.id, job);
                }
            }
            self.next_in_lane(key, ctx);
        }
        self.report_drained();
    }

    /// Tells the job's dialogue. One that stopped meanwhile has nobody to tell.
    fn tell_of(&self, job: &Job, attempt: Attempt, ctx: &mut Context<Self>) {
        let (key, node) = ((self.scope.clone(), job.dialogue), Arc::clone(&self.node));
        let ended = JobEnded {
            turn_id: job.turn,
            kind: Some(job.kind),
            report: match attempt {
                Attempt::Ended(result) => result.ok(),
                Attempt::Elsewhere | Attempt::Over => None,
            },
        };
        let tell = async move {
            if let Some(session) = node.sessions.live(&key) {
                let _ = send(&node, &session, ended).await;
            } else if let Some(conversation) = node.conversations.live(&key) {
                let _ = send(&node, &conversation, ended).await;
            }
        };
        ctx.spawn(tell.into_actor(self));
    }

    fn report_drained(&mut self) {
        if !self.running.is_empty() {
            return;
        }
        let left = self.held.len();
        for reply in self.draining.iter_mut().flat_map(|waiting| waiting.drain(..)) {
            // Whoever waited may have given up.
            let _ = reply.send(left);
        }
    }

    /// Looks for jobs that were left behind or are due again, and for lanes that need wait no more.
    fn tick(&mut self, ctx: &mut Context<Self>) {
        let poll = Duration::from_secs(self.node.ports.settings.jobs.poll_s).max(SHORTEST_POLL);
        let idle = Duration::from_secs(self.node.settings.idle_s);
        let now = self.node.ports.clock.instant();
        let resting = self.held.is_empty() && !self.leasing && self.settling == Settling::Idle;
        if resting && now.saturating_duration_since(self.used) >= idle {
            self.node.curator_ends(&self.scope, self.generation);
            return ctx.stop();
        }
        let lanes: Vec<LaneKey> = self.lanes.keys().copied().collect();
        for key in lanes {
            self.next_in_lane(key, ctx);
        }
        self.lease(ctx);
        self.settle(ctx);
        ctx.run_later(poll, Self::tick);
    }

    /// Settles what is marked, in this tenant, one after the other. What fails stays marked and comes
    /// again with the next tick.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        if self.draining.is_some() || may_not_call(&self.node, &self.scope) {
            return;
        }
        if self.settling != Settling::Idle {
            self.settling = Settling::Again;
            return;
        }
        self.settling = Settling::Running;
        let (node, scope) = (Arc::clone(&self.node), self.scope.clone());
        let settling = async move { AssertUnwindSafe(node.use_cases.settle(&scope)).catch_unwind().await };
        ctx.spawn(settling.into_actor(self).map(|settled, curator, ctx| {
            let again = curator.settling == Settling::Again;
            curator.settling = Settling::Idle;
            match settled {
                // There may be more than fitted into one go.
                Ok(Ok(some)) if some > 0 || again => curator.settle(ctx),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(tenant = %curator.scope.tenant(), %error, "a memory could not be settled");
                }
                Err(_panic) => tracing::error!(tenant = %curator.scope.tenant(), "settling a memory panicked"),
            }
        }));
    }

    fn lease(&mut self, ctx: &mut Context<Self>) {
        let jobs = &self.node.ports.settings.jobs;
        let limit = (AHEAD * jobs.concurrency).saturating_sub(self.held.len());
        if self.leasing || self.draining.is_some() || limit == 0 {
            return;
        }
        self.leasing = true;
        let (node, scope) = (Arc::clone(&self.node), self.scope.clone());
        let leasing = async move { lease(&node, &scope, limit).await };
        ctx.spawn(leasing.into_actor(self).map(|leased, curator, ctx| {
            curator.leasing = false;
            match leased {
                Ok(jobs) => curator.take_on(jobs, ctx),
                Err(error) => tracing::warn!(tenant = %curator.scope.tenant(), %error, "jobs could not be leased"),
            }
        }));
    }
}

/// Whether the tenant has used up what its jobs may use of models today: they wait.
fn may_not_call(node: &Node, scope: &TenantScope) -> bool {
    !node.ports.budgets.may_do_jobs(scope.tenant())
}

/// Leases due jobs of a tenant to this node; none where they have to wait.
pub(super) async fn lease(node: &Node, scope: &TenantScope, limit: usize) -> Result<Vec<Job>, StoreError> {
    if may_not_call(node, scope) {
        return Ok(Vec::new());
    }
    let now = node.ports.clock.now();
    let until = now + Duration::from_secs(node.ports.settings.jobs.lease_s);
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    node.ports.ledger.jobs.lease(scope, node.id, now, until, limit).await
}

impl Actor for Curator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.tick(ctx);
    }
}

impl Handler<TakeOn> for Curator {
    type Result = ();

    fn handle(&mut self, TakeOn { jobs }: TakeOn, ctx: &mut Self::Context) {
        self.used = self.node.ports.clock.instant();
        self.take_on(jobs, ctx);
    }
}

impl Handler<Unsaid> for Curator {
    type Result = ();

    fn handle(&mut self, Unsaid(dialogues): Unsaid, ctx: &mut Self::Context) {
        self.used = self.node.ports.clock.instant();
        self.let_go(&dialogues, ctx);
        self.settle(ctx);
        // Turns that were cut or stand again left jobs that nobody has leased.
        self.lease(ctx);
    }
}

impl Handler<JobsDue> for Curator {
    type Result = ();

    fn handle(&mut self, JobsDue: JobsDue, ctx: &mut Self::Context) {
        self.used = self.node.ports.clock.instant();
        self.lease(ctx);
    }
}

impl Handler<Drain> for Curator {
    type Result = ();

    fn handle(&mut self, Drain { reply }: Drain, _: &mut Self::Context) {
        self.draining.get_or_insert_default().push(reply);
        self.report_drained();
    }
}

impl Handler<Stop> for Curator {
    type Result = ();

    fn handle(&mut self, Stop: Stop, ctx: &mut Self::Context) {
        self.node.curator_ends(&self.scope, self.generation);
        ctx.stop();
    }
}
