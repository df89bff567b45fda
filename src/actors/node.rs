//! The state that all actors of a node share, and the way from one actor to another.
//!
//! Actors know the node, and no other actor's type. [`ActorDirectory`] gives them mailboxes; the registry implements it.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use actix::{Addr, Arbiter, ArbiterHandle, Handler};
use async_trait::async_trait;
use moka::sync::Cache;
use parking_lot::Mutex;

use super::{
    ActorSettings, DialogueError,
    authored_npc::{AuthoredNpc, NpcCell, NpcKey},
    mailbox::{ActorMailbox, Mailbox, QueuedMessage},
    membership::Membership,
    messages::{ClosedInLedger, CuratorRequest, DialogueKey, JobEnded, LastSeq},
    metrics::ActorMetrics,
    use_cases::{Ports, UseCases},
};
use colloquy_core::{
    ids::{NodeId, NpcId, TenantId, WorldId},
    scope::TenantScope,
    shares::{Residents, Shares},
};

/// Evicted sessions whose sequence numbers are remembered.
const MAX_REMEMBERED_SEQS: u64 = 200_000;
/// How long a tenant without idle dialogues is skipped: a search may cover many dialogues.
const NONE_IDLE_TTL: Duration = Duration::from_millis(50);

/// The other actors of the node, as an actor sees them.
#[async_trait]
pub(super) trait ActorDirectory: Send + Sync {
    /// Returns the mailbox of the tenant's curator; spawns a missing curator. `None`: the curator just crashed, or the
    /// tenant is disabled.
    fn curator(&self, scope: &TenantScope) -> Option<ActorMailbox<CuratorRequest>>;
    /// Removes a curator that stops normally.
    fn remove_curator(&self, scope: &TenantScope, generation: u64);
    /// Returns the mailbox of a live dialogue, for reports of its jobs.
    fn job_reports(&self, key: &DialogueKey) -> Option<ActorMailbox<JobEnded>>;
    /// Returns the mailbox of a live session, for the notice that the ledger has closed the session.
    fn closed_notices(&self, key: &DialogueKey) -> Option<ActorMailbox<ClosedInLedger>>;
    /// Removes a dialogue that stops normally.
    fn remove_dialogue(&self, key: &DialogueKey, generation: u64);
    /// Resets the crash count of a dialogue that stops because the stores did not answer. The entry and its listeners
    /// stay. The next message may spawn an actor at once, since the actor did not crash.
    fn clear_crashes(&self, key: &DialogueKey, generation: u64);
    /// Returns the current world and NPC records, and the cell where later versions will appear.
    async fn read_authored(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
    ) -> Result<(AuthoredNpc, Arc<NpcCell>), DialogueError>;
    /// Removes an NPC that stops normally, unless a session uses the NPC again. `true`: removed.
    fn remove_npc_if_unused(&self, key: &NpcKey, generation: u64) -> bool;
    /// Removes an NPC that is not in the ledger. The cell is empty, so a session that still holds the cell asks again
    /// and finds the cell of a later actor.
    fn remove_unknown_npc(&self, key: &NpcKey, generation: u64);
}

/// The state that all actors of the local node share.
pub(super) struct Node {
    pub id: NodeId,
    pub settings: ActorSettings,
    pub ports: Ports,
    pub use_cases: Arc<dyn UseCases>,
    /// Permits for requests to sessions.
    pub admission: Arc<Shares<TenantId>>,
    pub draining: AtomicBool,
    /// Set if the node is part of a cluster.
    pub membership: Option<Arc<Membership>>,
    /// Actors of dialogues in memory, including stopping actors.
    pub residents: Arc<Residents<TenantId, DialogueKey>>,
    /// Tenants without an idle dialogue in memory a moment ago.
    pub tenants_without_idle: Cache<TenantId, ()>,
    pub metrics: ActorMetrics,
    /// The last sequence number and epoch of evicted dialogues. Events after a turn's own events are not in the ledger,
    /// and their numbers must not be used again.
    pub last_seqs: Cache<DialogueKey, LastSeq>,
    /// The actors of the node, for messages between actors. Gone when the registry is dropped.
    actors: Weak<dyn ActorDirectory>,
    threads: ActorThreads,
    generations: AtomicU64,
}

struct ActorThreads {
    handles: Vec<ArbiterHandle>,
    owned: Mutex<Vec<Arbiter>>,
    placement: RandomState,
}

impl Node {
    /// Starts the threads. Must be called where an actix `System` runs.
    pub fn new(
        id: NodeId,
        settings: ActorSettings,
        ports: Ports,
        use_cases: Arc<dyn UseCases>,
        membership: Option<Arc<Membership>>,
        actors: Weak<dyn ActorDirectory>,
    ) -> Self {
        let threads = match settings.arbiters {
            0 => std::thread::available_parallelism().map_or(2, usize::from),
            n => n,
        };
        let owned: Vec<Arbiter> = (0..threads).map(|_| Arbiter::new()).collect();
        Self {
            id,
            ports,
            use_cases,
            admission: Shares::new("requests to dialogues", settings.max_in_flight.max(1)),
            draining: AtomicBool::new(false),
            membership,
            residents: Residents::new("dialogues in memory", settings.max_sessions.max(1)),
            tenants_without_idle: Cache::builder().time_to_live(NONE_IDLE_TTL).build(),
            metrics: ActorMetrics::default(),
            last_seqs: Cache::new(MAX_REMEMBERED_SEQS),
            threads: ActorThreads {
                handles: owned.iter().map(Arbiter::handle).collect(),
                owned: Mutex::new(owned),
                placement: RandomState::new(),
            },
            generations: AtomicU64::new(1),
            settings,
            actors,
        }
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Returns the thread of all actors with this key.
    pub fn arbiter_for<K: Hash>(&self, key: &K) -> &ArbiterHandle {
        let hash = self.threads.placement.hash_one(key);
        let count = self.threads.handles.len() as u64;
        // The remainder is below the number of handles.
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of a small count")]
        &self.threads.handles[(hash % count) as usize]
    }

    /// Stops the threads and waits for them.
    pub fn stop_threads(&self) {
        let owned = std::mem::take(&mut *self.threads.owned.lock());
        for arbiter in &owned {
            arbiter.stop();
        }
        for arbiter in owned {
            if arbiter.join().is_err() {
                tracing::warn!("an actor thread had panicked");
            }
        }
    }

    /// Returns another node that was lately known to own the dialogue. `None` if the local node has the actor.
    pub async fn remote_owner(&self, key: &DialogueKey, is_here: bool) -> Option<NodeId> {
        let membership = self.membership.as_ref().filter(|_| !is_here)?;
        let owner = match membership.owners.as_ref()?.load_owner(&key.0, key.1).await {
            Ok(owner) => owner.filter(|owner| *owner != self.id)?,
            Err(error) => {
                tracing::debug!(%error, "owners are looked up in the ledger for now");
                return None;
            }
        };
        membership.neighbours.url_of(owner).await.ok().flatten().map(|_| owner)
    }

    /// Caches the owner of a dialogue, so that the next caller need not ask the ledger.
    pub async fn cache_owner(&self, key: &DialogueKey, owner: NodeId) {
        if let Some(owners) = self
            .membership
            .as_ref()
            .and_then(|membership| membership.owners.as_ref())
            && let Err(error) = owners.record_owner(&key.0, key.1, owner).await
        {
            tracing::debug!(%error, "an owner could not be noted");
        }
    }

    /// True if the tenant is disabled: no work is done for the tenant.
    pub fn is_disabled(&self, scope: &TenantScope) -> bool {
        self.ports.disabled.contains(scope.tenant())
    }

    /// True if the tenant's jobs have used up their model budget of the day; the jobs then wait.
    pub fn is_over_job_budget(&self, scope: &TenantScope) -> bool {
        !self.ports.budgets.can_run_jobs(scope.tenant())
    }

    /// Returns a number that no earlier actor of the node has.
    pub fn next_generation(&self) -> u64 {
        self.generations.fetch_add(1, Relaxed)
    }

    /// Returns the other actors of the node. `None`: the node has stopped.
    pub fn actors(&self) -> Option<Arc<dyn ActorDirectory>> {
        self.actors.upgrade()
    }
}

/// Delivers a message; waits while the mailbox is full. An error: the actor is gone and the message is lost.
pub(super) async fn send_message<A, M>(node: &Node, addr: &Addr<A>, message: M) -> Result<(), ()>
where
    A: Mailbox + Handler<QueuedMessage<M>>,
    M: Send + 'static,
{
    ActorMailbox::of(addr.clone()).send(&node.metrics, message).await
}
