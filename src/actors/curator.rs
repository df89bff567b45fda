//! Everything that may happen after a reply has gone out, per tenant: its jobs, in order, with
//! bounded concurrency, retried with growing pauses, and picked up when another process left them.
//!
//! What a job does is `dialogue::jobs`. The ledger's queue is the truth; what is held here is only
//! what this node has leased, so losing it costs a lease's time and nothing else.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};
use futures_util::{
    FutureExt,
    future::{AbortHandle, Abortable},
};
use tokio::sync::{Semaphore, oneshot};
use tracing::Instrument as _;

use super::{
    meters::Share,
    registry::{Node, send},
    session::JobEnded,
};
use crate::{
    dialogue::{
        jobs::{JobError, JobReport},
        settings::JobSettings,
    },
    ids::{DialogueId, JobId},
    ports::{
        StoreError,
        ledger::jobs::{Job, JobFailure, JobKind},
        llm::LlmError,
    },
    tenancy::TenantScope,
};

const LONGEST_RETRY: Duration = Duration::from_mins(10);
/// How soon the failure of a job is written down again that could not be.
const FAILURE_AGAIN: Duration = Duration::from_secs(1);
/// Jobs leased at once beyond those that can run, so that a busy curator need not ask for each.
const AHEAD: usize = 4;
/// A job with so many eighths of its lease left runs without a look at the ledger.
const FRESH: u32 = 7;
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
        if self.draining.is_some() {
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
            let Some(result) = attempt(&node, &scope, &job).await else {
                tracing::debug!(job = %job.id, "a job is another's by now");
                return (Ok(JobReport::default()), None);
            };
            let took = node.ports.clock.instant().saturating_duration_since(begun);
            node.meters
                .job_ended(&job, took, result.is_ok(), node.ports.clock.now());
            let retry_at = match &result {
                Ok(_) => None,
                Err(error) => Some(note_failure(&node, &scope, &job, error).await),
            };
            (result, retry_at.flatten())
        };
        ctx.spawn(
            Abortable::new(running, aborted)
                .into_actor(self)
                .map(move |ended, curator, ctx| {
                    let (result, retry_in) = ended.unwrap_or_else(|_let_go| (Ok(JobReport::default()), None));
                    curator.ended(&job, result, retry_in, ctx);
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

    fn ended(
        &mut self,
        job: &Job,
        result: Result<JobReport, JobError>,
        retry_in: Option<Duration>,
        ctx: &mut Context<Self>,
    ) {
        self.running.remove(&job.id);
        self.held.remove(&job.id);
        self.held_share.set(self.held.len());
        let now = self.node.ports.clock.instant();
        self.used = now;
        let (key, node) = ((self.scope.clone(), job.dialogue), Arc::clone(&self.node));
        let ended = JobEnded {
            turn_id: job.turn,
            kind: job.kind,
            report: result.ok(),
        };
        let tell = async move {
            // A dialogue that stopped meanwhile has nobody to tell.
            if let Some(session) = node.sessions.live(&key) {
                let _ = send(&session, ended).await;
            } else if let Some(conversation) = node.conversations.live(&key) {
                let _ = send(&conversation, ended).await;
            }
        };
        ctx.spawn(tell.into_actor(self));
        if let Some(key) = lane_of(job) {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.running = false;
                // Leased again by then, by this node or by another that saw it first.
                let jobs = &self.node.ports.settings.jobs;
                lane.blocked_until = retry_in.map(|pause| now + pause + Duration::from_secs(2 * jobs.poll_s + 1));
            }
            self.next_in_lane(key, ctx);
        }
        self.report_drained();
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
        let poll = Duration::from_secs(self.node.ports.settings.jobs.poll_s).max(Duration::from_millis(50));
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
        if self.draining.is_some() {
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

/// Leases due jobs of a tenant to this node.
pub(super) async fn lease(node: &Node, scope: &TenantScope, limit: usize) -> Result<Vec<Job>, StoreError> {
    let now = node.ports.clock.now();
    let until = now + Duration::from_secs(node.ports.settings.jobs.lease_s);
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    node.ports.ledger.jobs.lease(scope, node.id, now, until, limit).await
}

/// Runs a job once, within its lease. `None`: somebody else has it, or it is done.
async fn attempt(node: &Arc<Node>, scope: &TenantScope, job: &Job) -> Option<Result<JobReport, JobError>> {
    let left = match lease_left(node, scope, job).await {
        Ok(left) => left?,
        Err(error) => return Some(Err(error.into())),
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
    Some(match tokio::time::timeout(left, run).await {
        Ok(Ok(result)) => result,
        Ok(Err(_panic)) => Err(StoreError::Rejected("the job panicked".into()).into()),
        Err(_elapsed) => Err(JobError::Model(LlmError::Timeout)),
    })
}

/// How long this node may run a job. What has waited here for a while is leased anew first, since its lease could
/// run out on the way and another node would pay the model once more. `None`: it is not this node's any longer.
async fn lease_left(node: &Node, scope: &TenantScope, job: &Job) -> Result<Option<Duration>, StoreError> {
    let lease = Duration::from_secs(node.ports.settings.jobs.lease_s.max(1));
    let now = node.ports.clock.now();
    let left = (job.leased_until - now).to_std().unwrap_or_default();
    if left >= lease * FRESH / 8 {
        return Ok(Some(left));
    }
    let jobs = &node.ports.ledger.jobs;
    let leased = jobs.lease_again(scope, job.id, node.id, now, now + lease).await?;
    Ok(leased.then_some(lease))
}

/// Writes down that a job failed. `Some`: it is tried again after so long.
async fn note_failure(node: &Node, scope: &TenantScope, job: &Job, error: &JobError) -> Option<Duration> {
    let jobs = &node.ports.settings.jobs;
    let now = node.ports.clock.now();
    let age = (now - job.since).to_std().unwrap_or_default();
    let useless = matches!(error, JobError::Unusable(_));
    // Waiting makes no answer better, and the dialogue's later jobs wait too.
    let doublings = if useless { 0 } else { job.attempts };
    let pause = is_worth_another_try(error, jobs, job, age)
        .then(|| retry_pause(Duration::from_secs(jobs.retry_base_s), doublings, rand::random()));
    let then = match pause {
        Some(pause) if useless => JobFailure::RetryUselessAt(now + pause),
        Some(pause) => JobFailure::RetryAt(now + pause),
        None => JobFailure::Dead,
    };
    tracing::warn!(
        tenant = %scope.tenant(), job = %job.id, kind = job.kind.as_str(), attempts = job.attempts + 1, %error,
        dead = pause.is_none(), "an after-turn job failed"
    );
    write_failure(node, scope, job, &error.to_string(), then).await;
    pause
}

/// Jobs mostly fail because the ledger is away, and then that cannot be written either. It is tried until it can:
/// a job that stays leased to this node is run by nobody until the lease has run out.
async fn write_failure(node: &Node, scope: &TenantScope, job: &Job, error: &str, then: JobFailure) {
    let clock = &node.ports.clock;
    let (begun, lease) = (clock.instant(), Duration::from_secs(node.ports.settings.jobs.lease_s));
    loop {
        let written = node.ports.ledger.jobs.fail(scope, job.id, error, then).await;
        let Err(unwritten) = written else { return };
        let held = clock.instant().saturating_duration_since(begun) < lease;
        if !held || node.is_draining() || !matches!(unwritten, StoreError::Unavailable(_)) {
            // It stays leased and is found again when the lease runs out.
            tracing::warn!(job = %job.id, error = %unwritten, "a job's failure could not be written");
            return;
        }
        tokio::time::sleep(FAILURE_AGAIN).await;
    }
}

/// Whether a job that has failed again is tried once more, `age` after it was written.
///
/// What cannot be reached comes back, however often it was asked meanwhile: only time ends that. An
/// answer of no use, or a job that panics, will not be much better the hundredth time.
fn is_worth_another_try(error: &JobError, jobs: &JobSettings, job: &Job, age: Duration) -> bool {
    match error {
        JobError::Model(error) if error.is_transient() => age < Duration::from_secs(jobs.give_up_after_s),
        JobError::Store(StoreError::Unavailable(_)) => age < Duration::from_secs(jobs.give_up_after_s),
        JobError::Model(_) | JobError::Store(StoreError::Corrupt(_)) => false,
        JobError::Store(_) => job.attempts + 1 < jobs.max_attempts,
        JobError::Unusable(_) => job.useless + 1 < jobs.max_useless,
    }
}

/// Doubles with each failed attempt, up to ten minutes, and adds up to a quarter so that jobs that failed
/// together do not come back together. `random` picks how much.
fn retry_pause(base: Duration, attempts: u32, random: u16) -> Duration {
    let pause = base.saturating_mul(1 << attempts.min(20)).min(LONGEST_RETRY);
    pause + pause.mul_f64(f64::from(random) / f64::from(u16::MAX) / 4.0)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(attempts: u32, useless: u32) -> Job {
        let at = chrono::DateTime::UNIX_EPOCH;
        Job {
            id: JobId::from_u128(1),
            kind: JobKind::ExtractFacts,
            dialogue: DialogueId::new(crate::ids::DialogueKind::Session, ulid::Ulid(1)),
            turn: crate::ids::TurnId::from_u128(1),
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
    fn only_time_ends_the_wait_for_what_cannot_be_reached() {
        let jobs = JobSettings {
            max_attempts: 3,
            max_useless: 2,
            give_up_after_s: 3_600,
            lease_s: 120,
            retry_base_s: 2,
            concurrency: 1,
            poll_s: 5,
        };
        let (soon, late) = (Duration::from_mins(59), Duration::from_mins(61));
        for passing in [
            JobError::Model(LlmError::Timeout),
            JobError::Model(LlmError::Unavailable("502".into())),
            JobError::Model(LlmError::RateLimited { retry_after: None }),
            JobError::Model(LlmError::Broken("cut".into())),
            JobError::Store(StoreError::Unavailable("locked".into())),
        ] {
            assert!(is_worth_another_try(&passing, &jobs, &tried(500, 1), soon), "{passing}");
            assert!(!is_worth_another_try(&passing, &jobs, &tried(0, 0), late), "{passing}");
        }
        let useless = JobError::Unusable("prose".into());
        assert!(
            is_worth_another_try(&useless, &jobs, &tried(500, 0), late),
            "after an outage"
        );
        assert!(!is_worth_another_try(&useless, &jobs, &tried(1, 1), soon));
        let defect = JobError::Store(StoreError::Rejected("syntax".into()));
        assert!(is_worth_another_try(&defect, &jobs, &tried(1, 1), late));
        assert!(!is_worth_another_try(&defect, &jobs, &tried(2, 0), soon));
        let refused = JobError::Model(LlmError::Refused("400".into()));
        assert!(!is_worth_another_try(&refused, &jobs, &tried(0, 0), soon));
    }

    #[test]
    fn the_pause_before_a_retry_doubles_with_jitter_and_is_bounded() {
        let base = Duration::from_secs(2);
        assert_eq!(retry_pause(base, 0, 0), base);
        assert_eq!(retry_pause(base, 3, 0), 8 * base);
        assert_eq!(retry_pause(base, 0, u16::MAX), Duration::from_millis(2_500));
        assert_eq!(retry_pause(base, 4_000_000, 0), LONGEST_RETRY);
    }
}
