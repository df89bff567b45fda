//! The actors of the local node: id → address, get-or-spawn on long-lived arbiters, respawn after a panic.
//!
//! An actor removes its entry when the actor stops normally (idle, closed). An entry with a closed address belongs to
//! an actor that panicked. The next message spawns a new actor, which loads from the stores. The pause before a respawn
//! doubles with every further panic. The event log stays with the entry, so listeners and sequence numbers survive.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use actix::{Actor, Addr, Arbiter, ArbiterHandle};
use moka::sync::Cache;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::{
    ActorSettings, DialogueError,
    curator::Curator,
    dialogue::load::LoadedDialogue,
    event_log::{EventLog, LedgerPosition},
    eviction::NONE_IDLE_TTL,
    mailbox::send_message,
    membership::Membership,
    messages::{DialogueKey, LastSeq, ResidencyPermit},
    metrics::ActorMetrics,
    npc::{AuthoredNpc, FetchAuthored, NpcActor, NpcCell, NpcKey},
    npc_conversation::NpcConversation,
    session::Session,
    use_cases::{Ports, UseCases},
};
use crate::{
    ids::{DialogueKind, NodeId, NpcId, TenantId, WorldId},
    shares::{NoCapacity, Residents, Shares},
    tenancy::TenantScope,
};

/// Messages that may wait for an actor. Further requests wait outside the mailbox with their permits.
const MAILBOX_CAPACITY: usize = 256;
/// An actor that lived this long is not in a crash loop.
const STABLE_AFTER: Duration = Duration::from_mins(1);
const FIRST_RESPAWN_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_RESPAWN_PAUSE: Duration = Duration::from_secs(10);
/// Evicted sessions whose sequence numbers are remembered.
const MAX_REMEMBERED_SEQS: u64 = 200_000;

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
    pub sessions: Directory<DialogueKey, DialogueEntry<Session>>,
    pub conversations: Directory<DialogueKey, DialogueEntry<NpcConversation>>,
    pub npcs: Directory<NpcKey, NpcEntry>,
    pub curators: Directory<TenantScope, ActorEntry<Curator>>,
    /// Actors of dialogues in memory, including stopping actors.
    pub residents: Arc<Residents<TenantId, DialogueKey>>,
    /// Tenants without an idle dialogue in memory a moment ago.
    pub tenants_without_idle: Cache<TenantId, ()>,
    pub metrics: ActorMetrics,
    /// The last sequence number and epoch of evicted dialogues. Events after a turn's own events are not in the ledger,
    /// and their numbers must not be used again.
    pub last_seqs: Cache<DialogueKey, LastSeq>,
    threads: ActorThreads,
    generations: AtomicU64,
}

struct ActorThreads {
    handles: Vec<ArbiterHandle>,
    owned: Mutex<Vec<Arbiter>>,
    placement: RandomState,
}

/// An actor that is, or was, alive.
pub(super) struct ActorEntry<A: Actor> {
    pub addr: Addr<A>,
    /// Distinguishes an actor's own entry from the entry of a successor.
    pub generation: u64,
    crashes: u32,
    spawned: Instant,
}

/// The actor of a dialogue, and the log that outlives the actor.
pub(super) struct DialogueEntry<A: Actor> {
    pub actor: ActorEntry<A>,
    pub log: Arc<EventLog>,
}

pub(super) struct NpcEntry {
    pub actor: ActorEntry<NpcActor>,
    pub cell: Arc<NpcCell>,
}

impl Node {
    /// Starts the threads. Must be called where an actix `System` runs.
    pub fn new(
        id: NodeId,
        settings: ActorSettings,
        ports: Ports,
        use_cases: Arc<dyn UseCases>,
        membership: Option<Arc<Membership>>,
    ) -> Arc<Self> {
        let threads = match settings.arbiters {
            0 => std::thread::available_parallelism().map_or(2, usize::from),
            n => n,
        };
        let owned: Vec<Arbiter> = (0..threads).map(|_| Arbiter::new()).collect();
        Arc::new(Self {
            id,
            ports,
            use_cases,
            admission: Shares::new("requests to dialogues", settings.max_in_flight.max(1)),
            draining: AtomicBool::new(false),
            membership,
            sessions: Directory::new(),
            conversations: Directory::new(),
            npcs: Directory::new(),
            curators: Directory::new(),
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
        })
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
        let several = self.membership.as_ref().filter(|_| !is_here)?;
        let owner = match several.owners.as_ref()?.load_owner(&key.0, key.1).await {
            Ok(owner) => owner.filter(|owner| *owner != self.id)?,
            Err(error) => {
                tracing::debug!(%error, "owners are looked up in the ledger for now");
                return None;
            }
        };
        several.neighbours.url_of(owner).await.ok().flatten().map(|_| owner)
    }

    /// Updates the event log from a dialogue that was just loaded.
    pub fn sync_event_log(&self, key: &DialogueKey, log: &EventLog, loaded: &LoadedDialogue) {
        let known = self.last_seqs.get(key);
        // The gap grows with each load. Two processes that are killed one after the other then share no number.
        let gap = (self.settings.replay_events as u64).saturating_mul(loaded.epoch);
        let start = LedgerPosition {
            ledger_next: loaded.next_seq,
            head_turn: loaded.dialogue.head_turn,
            epoch: loaded.epoch,
            gap,
            among_others: self.membership.is_some(),
        };
        log.on_loaded(start, known);
    }

    /// Caches the owner of a dialogue, so that the next caller need not ask the ledger.
    pub async fn cache_owner(&self, key: &DialogueKey, owner: NodeId) {
        if let Some(owners) = self.membership.as_ref().and_then(|several| several.owners.as_ref())
            && let Err(error) = owners.record_owner(&key.0, key.1, owner).await
        {
            tracing::debug!(%error, "an owner could not be noted");
        }
    }

    /// Returns the session's actor; spawns a missing actor.
    pub async fn get_or_spawn_session(self: &Arc<Self>, key: &DialogueKey) -> Result<Addr<Session>, DialogueError> {
        self.get_or_spawn_dialogue(&self.sessions, key, |generation, log, live| {
            let (node, their_key) = (Arc::clone(self), key.clone());
            Session::start_in_arbiter(self.arbiter_for(key), move |ctx| {
                ctx.set_mailbox_capacity(MAILBOX_CAPACITY);
                Session::new(node, their_key, generation, log, live)
            })
        })
        .await
    }

    /// Returns the conversation's actor; spawns a missing actor.
    pub async fn get_or_spawn_conversation(
        self: &Arc<Self>,
        key: &DialogueKey,
    ) -> Result<Addr<NpcConversation>, DialogueError> {
        self.get_or_spawn_conversation_as(false, key).await
    }

    /// As [`Self::get_or_spawn_conversation`], but a spawned actor stays silent until the first request.
    pub async fn get_or_spawn_asleep(
        self: &Arc<Self>,
        key: &DialogueKey,
    ) -> Result<Addr<NpcConversation>, DialogueError> {
        self.get_or_spawn_conversation_as(true, key).await
    }

    async fn get_or_spawn_conversation_as(
        self: &Arc<Self>,
        sleeps: bool,
        key: &DialogueKey,
    ) -> Result<Addr<NpcConversation>, DialogueError> {
        self.get_or_spawn_dialogue(&self.conversations, key, |generation, log, live| {
            let (node, their_key) = (Arc::clone(self), key.clone());
            NpcConversation::start_in_arbiter(self.arbiter_for(key), move |ctx| {
                ctx.set_mailbox_capacity(MAILBOX_CAPACITY);
                NpcConversation::new(node, their_key, generation, log, live, sleeps)
            })
        })
        .await
    }

    async fn get_or_spawn_dialogue<A: Actor>(
        &self,
        directory: &Directory<DialogueKey, DialogueEntry<A>>,
        key: &DialogueKey,
        spawn: impl Fn(u64, Arc<EventLog>, ResidencyPermit) -> Addr<A>,
    ) -> Result<Addr<A>, DialogueError> {
        self.spawn_with_room(key, |place| self.get_or_spawn_in_place(directory, key, place, &spawn))
            .await
    }

    /// Returns the actor of a dialogue. A missing actor is spawned in `place`, or else in a free place.
    fn get_or_spawn_in_place<A: Actor>(
        &self,
        directory: &Directory<DialogueKey, DialogueEntry<A>>,
        key: &DialogueKey,
        place: Option<ResidencyPermit>,
        spawn: impl Fn(u64, Arc<EventLog>, ResidencyPermit) -> Addr<A>,
    ) -> Result<Result<Addr<A>, NoCapacity>, DialogueError> {
        let mut shard = directory.lock_shard(key);
        let now = self.ports.clock.monotonic_now();
        let (log, crashes) = match shard.get(key) {
            Some(entry) if entry.actor.addr.connected() => return Ok(Ok(entry.actor.addr.clone())),
            _ if self.is_draining() => return Err(DialogueError::Draining),
            Some(entry) => (Arc::clone(&entry.log), entry.actor.next_crash_count(now)?),
            None => {
                let log = EventLog::new(key.1, &self.settings, Arc::clone(&self.ports.clock));
                (Arc::new(log), 0)
            }
        };
        let live = match place.map_or_else(|| self.residents.acquire_place(key.0.tenant(), key.clone()), Ok) {
            Ok(live) => live,
            Err(none) => return Ok(Err(none)),
        };
        let generation = self.next_generation();
        let addr = spawn(generation, Arc::clone(&log), live);
        let actor = ActorEntry::new(addr.clone(), generation, crashes, now);
        shard.insert(key.clone(), DialogueEntry { actor, log });
        Ok(Ok(addr))
    }

    /// Removes a session that stops normally.
    pub fn remove_session(&self, key: &DialogueKey, generation: u64) {
        self.remove_dialogue(&self.sessions, key, generation);
    }

    /// Removes a dialogue that stops normally.
    pub fn remove_dialogue<A: Actor>(
        &self,
        directory: &Directory<DialogueKey, DialogueEntry<A>>,
        key: &DialogueKey,
        generation: u64,
    ) {
        let mut shard = directory.lock_shard(key);
        if let Some(entry) = shard.get(key).filter(|entry| entry.actor.generation == generation) {
            self.last_seqs.insert(key.clone(), entry.log.last_seq());
            shard.remove(key);
        }
    }

    /// Removes a listener from a dialogue's log. Also removes the entry of a dead actor without further listeners.
    pub fn detach_listener(&self, key: &DialogueKey, listener: u64) {
        match key.1.kind() {
            DialogueKind::Session => self.detach_listener_from(&self.sessions, key, listener),
            DialogueKind::NpcConversation => self.detach_listener_from(&self.conversations, key, listener),
        }
    }

    fn detach_listener_from<A: Actor>(
        &self,
        directory: &Directory<DialogueKey, DialogueEntry<A>>,
        key: &DialogueKey,
        listener: u64,
    ) {
        let mut shard = directory.lock_shard(key);
        if let Some(entry) = shard.get(key) {
            entry.log.detach_listener(listener);
            if !entry.actor.addr.connected() && !entry.log.has_listeners() {
                self.last_seqs.insert(key.clone(), entry.log.last_seq());
                shard.remove(key);
            }
        }
    }

    /// Returns the NPC's actor; spawns a missing actor.
    pub fn get_or_spawn_npc(self: &Arc<Self>, key: &NpcKey) -> Result<(Addr<NpcActor>, Arc<NpcCell>), DialogueError> {
        let mut shard = self.npcs.lock_shard(key);
        let now = self.ports.clock.monotonic_now();
        let (cell, crashes) = match shard.get(key) {
            Some(entry) if entry.actor.addr.connected() => {
                return Ok((entry.actor.addr.clone(), Arc::clone(&entry.cell)));
            }
            Some(entry) => (Arc::clone(&entry.cell), entry.actor.next_crash_count(now)?),
            None => (Arc::default(), 0),
        };
        let generation = self.next_generation();
        let (node, their_key, their_cell) = (Arc::clone(self), key.clone(), Arc::clone(&cell));
        let addr = NpcActor::start_in_arbiter(self.arbiter_for(key), move |ctx| {
            ctx.set_mailbox_capacity(MAILBOX_CAPACITY);
            NpcActor::new(node, their_key, generation, their_cell)
        });
        let actor = ActorEntry::new(addr.clone(), generation, crashes, now);
        let entry = NpcEntry {
            actor,
            cell: Arc::clone(&cell),
        };
        shard.insert(key.clone(), entry);
        Ok((addr, cell))
    }

    /// Removes an NPC that stops normally, unless a session uses the NPC again. `true`: removed.
    pub fn remove_npc_if_unused(&self, key: &NpcKey, generation: u64) -> bool {
        let mut shard = self.npcs.lock_shard(key);
        let Some(entry) = shard.get(key).filter(|entry| entry.actor.generation == generation) else {
            return true;
        };
        // The entry and the actor hold the cell. Further holders are sessions that would miss an edit.
        let unused = Arc::strong_count(&entry.cell) <= 2;
        if unused {
            shard.remove(key);
        }
        unused
    }

    /// Removes an NPC that is not in the ledger. The cell is empty, so a session that still holds the cell asks again
    /// and finds the cell of a later actor.
    pub fn remove_unknown_npc(&self, key: &NpcKey, generation: u64) {
        let mut shard = self.npcs.lock_shard(key);
        if shard.get(key).is_some_and(|entry| entry.actor.generation == generation) {
            shard.remove(key);
        }
    }

    /// Returns the current world and NPC records, and the cell where later versions will appear.
    pub async fn read_authored(
        self: &Arc<Self>,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
    ) -> Result<(AuthoredNpc, Arc<NpcCell>), DialogueError> {
        let key = (scope.clone(), world.clone(), npc.clone());
        for _ in 0..3 {
            let (addr, cell) = self.get_or_spawn_npc(&key)?;
            if let Some(authored) = cell.get() {
                return Ok((authored, cell));
            }
            let (reply, answer) = oneshot::channel();
            if send_message(self, &addr, FetchAuthored { reply }).await.is_err() {
                continue;
            }
            if let Ok(answer) = answer.await {
                return answer.map(|authored| (authored, cell));
            }
        }
        Err(DialogueError::Overloaded {
            retry_after: FIRST_RESPAWN_PAUSE,
        })
    }

    /// Clears the cached records of a world; the next use reads the ledger again.
    pub fn forget_authored(&self, scope: &TenantScope, world: &WorldId) {
        self.npcs.for_each_entry(|(tenant, of, _), entry| {
            if tenant == scope && of == world {
                entry.cell.clear_rows();
            }
        });
    }

    /// True if the tenant is disabled: no work is done for the tenant.
    pub fn is_disabled(&self, scope: &TenantScope) -> bool {
        self.ports.disabled.contains(scope.tenant())
    }

    /// Returns the tenant's curator; spawns a missing curator. `None`: the curator just crashed, or the tenant is
    /// disabled.
    pub fn get_or_spawn_curator(self: &Arc<Self>, scope: &TenantScope) -> Option<Addr<Curator>> {
        if self.is_disabled(scope) {
            return None;
        }
        let mut shard = self.curators.lock_shard(scope);
        let now = self.ports.clock.monotonic_now();
        let crashes = match shard.get(scope) {
            Some(entry) if entry.addr.connected() => return Some(entry.addr.clone()),
            Some(entry) => entry.next_crash_count(now).ok()?,
            None => 0,
        };
        let generation = self.next_generation();
        let (node, their_scope) = (Arc::clone(self), scope.clone());
        let addr = Curator::start_in_arbiter(self.arbiter_for(scope), move |ctx| {
            ctx.set_mailbox_capacity(4 * MAILBOX_CAPACITY);
            Curator::new(node, their_scope, generation)
        });
        shard.insert(scope.clone(), ActorEntry::new(addr.clone(), generation, crashes, now));
        Some(addr)
    }

    /// Removes a curator that stops normally.
    pub fn remove_curator(&self, scope: &TenantScope, generation: u64) {
        let mut shard = self.curators.lock_shard(scope);
        if shard.get(scope).is_some_and(|entry| entry.generation == generation) {
            shard.remove(scope);
        }
    }

    fn next_generation(&self) -> u64 {
        self.generations.fetch_add(1, Relaxed)
    }
}

impl<A: Actor> ActorEntry<A> {
    fn new(addr: Addr<A>, generation: u64, crashes: u32, spawned: Instant) -> Self {
        Self {
            addr,
            generation,
            crashes,
            spawned,
        }
    }

    /// Returns the number of crashes in a row, including the present crash. An error: the successor has to wait.
    fn next_crash_count(&self, now: Instant) -> Result<u32, DialogueError> {
        let lived = now.saturating_duration_since(self.spawned);
        if lived >= STABLE_AFTER {
            return Ok(1);
        }
        let pause = match self.crashes {
            0 => Duration::ZERO,
            n => FIRST_RESPAWN_PAUSE
                .saturating_mul(1 << (n - 1).min(16))
                .min(LONGEST_RESPAWN_PAUSE),
        };
        match pause.checked_sub(lived) {
            Some(wait) if !wait.is_zero() => Err(DialogueError::Overloaded { retry_after: wait }),
            _ => Ok(self.crashes.saturating_add(1)),
        }
    }
}

impl<A: Actor> Directory<DialogueKey, DialogueEntry<A>> {
    /// Returns the dialogue's actor, if alive.
    pub fn find_live(&self, key: &DialogueKey) -> Option<Addr<A>> {
        let shard = self.lock_shard(key);
        let addr = &shard.get(key)?.actor.addr;
        addr.connected().then(|| addr.clone())
    }

    /// As [`Self::find_live`], if the dialogue has no listeners.
    pub fn find_unattended(&self, key: &DialogueKey) -> Option<Addr<A>> {
        let shard = self.lock_shard(key);
        let entry = shard.get(key)?;
        let is_unattended = entry.actor.addr.connected() && !entry.log.has_listeners();
        is_unattended.then(|| entry.actor.addr.clone())
    }

    /// Resets the crash count of an actor that stops because the stores did not answer. The entry and its listeners
    /// stay. The next message may spawn an actor at once, since the actor did not crash.
    pub fn clear_crashes(&self, key: &DialogueKey, generation: u64) {
        let mut shard = self.lock_shard(key);
        if let Some(entry) = shard.get_mut(key).filter(|entry| entry.actor.generation == generation) {
            entry.actor.crashes = 0;
        }
    }

    /// Returns the addresses of all live actors.
    pub fn live_addrs(&self) -> Vec<Addr<A>> {
        let mut addrs = Vec::new();
        self.for_each_entry(|_, entry| {
            if entry.actor.addr.connected() {
                addrs.push(entry.actor.addr.clone());
            }
        });
        addrs
    }
}

/// A sharded map, so that callers with different ids rarely contend.
pub(super) struct Directory<K, V> {
    shards: Box<[Mutex<HashMap<K, V>>]>,
    hasher: RandomState,
}

impl<K: Eq + Hash, V> Directory<K, V> {
    const SHARDS: usize = 64;

    fn new() -> Self {
        Self {
            shards: (0..Self::SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the low bits pick a shard")]
    pub fn lock_shard(&self, key: &K) -> MutexGuard<'_, HashMap<K, V>> {
        self.shards[self.hasher.hash_one(key) as usize % Self::SHARDS].lock()
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    pub fn for_each_entry(&self, mut visit: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            for (key, value) in shard.lock().iter() {
                visit(key, value);
            }
        }
    }
}
