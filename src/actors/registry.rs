//! The actors of the local node: id → address, get-or-spawn on long-lived arbiters, respawn after a panic.
//!
//! An actor removes its entry when the actor stops normally (idle, closed). An entry with a closed address belongs to
//! an actor that panicked. The next message spawns a new actor, which loads from the stores. The pause before a respawn
//! doubles with every further panic. The event log stays with the entry, so listeners and sequence numbers survive.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    ops::Deref,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use actix::{Actor, Addr};
use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::{
    ActorSettings, DialogueError,
    authored_npc::{AuthoredNpc, NpcCell, NpcKey},
    curator::Curator,
    dialogue::{actor::DialogueActor, kind::DialogueBehaviour},
    event_log::EventLog,
    mailbox::ActorMailbox,
    membership::Membership,
    messages::{ClosedInLedger, CuratorRequest, DialogueKey, JobEnded, ResidencyPermit},
    node::{ActorDirectory, Node, send_message},
    npc::{FetchAuthored, NpcActor},
    npc_conversation::ConversationKind,
    session::SessionKind,
    use_cases::{Ports, UseCases},
};
use colloquy_core::{
    ids::{DialogueKind, NodeId, NpcId, WorldId},
    scope::TenantScope,
    shares::NoCapacity,
};
use colloquy_dialogue::npc_conversation::SceneMember;

/// Messages that may wait for an actor. Further requests wait outside the mailbox with their permits.
const MAILBOX_CAPACITY: usize = 256;
/// An actor that lived this long is not in a crash loop.
const STABLE_AFTER: Duration = Duration::from_mins(1);
const FIRST_RESPAWN_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_RESPAWN_PAUSE: Duration = Duration::from_secs(10);

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

/// The dialogues of one kind.
pub(super) type DialogueDirectory<K> = Directory<DialogueKey, DialogueEntry<DialogueActor<K>>>;

/// A kind of dialogue, with its place in the registry.
pub(super) trait RegisteredKind: DialogueBehaviour + Send {
    const KIND: DialogueKind;

    fn directory(registry: &Registry) -> &DialogueDirectory<Self>;
}

impl RegisteredKind for SessionKind {
    const KIND: DialogueKind = DialogueKind::Session;

    fn directory(registry: &Registry) -> &DialogueDirectory<Self> {
        &registry.sessions
    }
}

impl RegisteredKind for ConversationKind {
    const KIND: DialogueKind = DialogueKind::NpcConversation;

    fn directory(registry: &Registry) -> &DialogueDirectory<Self> {
        &registry.conversations
    }
}

pub(super) struct NpcEntry {
    pub actor: ActorEntry<NpcActor>,
    pub cell: Arc<NpcCell>,
}

/// The actors of the local node by id, above the node that the actors share.
pub(super) struct Registry {
    pub node: Arc<Node>,
    pub sessions: DialogueDirectory<SessionKind>,
    pub conversations: DialogueDirectory<ConversationKind>,
    pub npcs: Directory<NpcKey, NpcEntry>,
    pub curators: Directory<TenantScope, ActorEntry<Curator>>,
}

impl Deref for Registry {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl Registry {
    /// Starts the node's threads. Must be called where an actix `System` runs.
    pub fn new(
        id: NodeId,
        settings: ActorSettings,
        ports: Ports,
        use_cases: Arc<dyn UseCases>,
        membership: Option<Arc<Membership>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|registry: &Weak<Self>| Self {
            node: Arc::new(Node::new(id, settings, ports, use_cases, membership, registry.clone())),
            sessions: Directory::new(),
            conversations: Directory::new(),
            npcs: Directory::new(),
            curators: Directory::new(),
        })
    }

    /// Returns the dialogue's actor. A missing actor is spawned with the state `new_kind`.
    pub async fn get_or_spawn_dialogue<K: RegisteredKind>(
        &self,
        key: &DialogueKey,
        new_kind: impl Fn() -> K,
    ) -> Result<Addr<DialogueActor<K>>, DialogueError> {
        let spawn = |generation, log, residency| {
            let node = Arc::clone(&self.node);
            let actor_key = key.clone();
            let kind = new_kind();
            DialogueActor::start_in_arbiter(self.arbiter_for(key), move |ctx| {
                ctx.set_mailbox_capacity(MAILBOX_CAPACITY);
                DialogueActor::new(node, actor_key, generation, log, residency, kind)
            })
        };
        self.spawn_with_room(key, |place| self.get_or_spawn_in_place(key, place, spawn))
            .await
    }

    /// Returns the actor of a dialogue. A missing actor is spawned in `place`, or else in a free place.
    fn get_or_spawn_in_place<K: RegisteredKind>(
        &self,
        key: &DialogueKey,
        place: Option<ResidencyPermit>,
        spawn: impl Fn(u64, Arc<EventLog>, ResidencyPermit) -> Addr<DialogueActor<K>>,
    ) -> Result<Result<Addr<DialogueActor<K>>, NoCapacity>, DialogueError> {
        let mut shard = K::directory(self).lock_shard(key);
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
        let residency = match place.map_or_else(|| self.residents.acquire_place(key.0.tenant(), key.clone()), Ok) {
            Ok(residency) => residency,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let generation = self.next_generation();
        let addr = spawn(generation, Arc::clone(&log), residency);
        let actor = ActorEntry::new(addr.clone(), generation, crashes, now);
        debug_assert!(
            shard.get(key).is_none_or(|before| before.actor.generation < generation),
            "the generations of a dialogue's actors rise"
        );
        shard.insert(key.clone(), DialogueEntry { actor, log });
        Ok(Ok(addr))
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
    pub fn get_or_spawn_npc(&self, key: &NpcKey) -> Result<(Addr<NpcActor>, Arc<NpcCell>), DialogueError> {
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
        let addr = NpcActor::start_in_arbiter(self.arbiter_for(key), {
            let node = Arc::clone(&self.node);
            let key = key.clone();
            let cell = Arc::clone(&cell);
            move |ctx| {
                ctx.set_mailbox_capacity(MAILBOX_CAPACITY);
                NpcActor::new(node, key, generation, cell)
            }
        });
        let actor = ActorEntry::new(addr.clone(), generation, crashes, now);
        let entry = NpcEntry {
            actor,
            cell: Arc::clone(&cell),
        };
        shard.insert(key.clone(), entry);
        Ok((addr, cell))
    }

    /// Clears the cached records of a world; the next use reads the ledger again.
    pub fn forget_authored(&self, scope: &TenantScope, world: &WorldId) {
        self.npcs.for_each_entry(|(tenant, entry_world, _), entry| {
            if tenant == scope && entry_world == world {
                entry.cell.clear_rows();
            }
        });
    }

    /// Returns the tenant's curator; spawns a missing curator. `None`: the curator just crashed, or the tenant is
    /// disabled.
    pub fn get_or_spawn_curator(&self, scope: &TenantScope) -> Option<Addr<Curator>> {
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
        let addr = Curator::start_in_arbiter(self.arbiter_for(scope), {
            let node = Arc::clone(&self.node);
            let scope = scope.clone();
            move |ctx| {
                ctx.set_mailbox_capacity(4 * MAILBOX_CAPACITY);
                Curator::new(node, scope, generation)
            }
        });
        shard.insert(scope.clone(), ActorEntry::new(addr.clone(), generation, crashes, now));
        Some(addr)
    }

    fn remove_dialogue_from<A: Actor>(
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
}

impl Registry {
    /// Checks that the NPCs of a new dialogue exist and are alive.
    pub async fn check_participants(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
        witnesses: &[NpcId],
    ) -> Result<(), DialogueError> {
        let mut members = Vec::with_capacity(npcs.len() + witnesses.len());
        let mut record = None;
        for npc in npcs.iter().chain(witnesses) {
            let (authored, _) = self.read_authored(scope, world, npc).await?;
            members.push(SceneMember::of_npc(&authored.npc));
            record = Some(authored.world);
        }
        let Some(record) = record else { return Ok(()) };
        let living = self.use_cases.living_members(scope, &record, &members).await?;
        match members.into_iter().find(|member| !living.contains(member)) {
            Some(dead) => Err(DialogueError::NpcDead(dead.id)),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl ActorDirectory for Registry {
    fn curator(&self, scope: &TenantScope) -> Option<ActorMailbox<CuratorRequest>> {
        self.get_or_spawn_curator(scope).map(ActorMailbox::of)
    }

    fn remove_curator(&self, scope: &TenantScope, generation: u64) {
        let mut shard = self.curators.lock_shard(scope);
        if shard.get(scope).is_some_and(|entry| entry.generation == generation) {
            shard.remove(scope);
        }
    }

    fn job_reports(&self, key: &DialogueKey) -> Option<ActorMailbox<JobEnded>> {
        match key.1.kind() {
            DialogueKind::Session => self.sessions.find_live(key).map(ActorMailbox::of),
            DialogueKind::NpcConversation => self.conversations.find_live(key).map(ActorMailbox::of),
        }
    }

    fn closed_notices(&self, key: &DialogueKey) -> Option<ActorMailbox<ClosedInLedger>> {
        self.sessions.find_live(key).map(ActorMailbox::of)
    }

    fn remove_dialogue(&self, key: &DialogueKey, generation: u64) {
        match key.1.kind() {
            DialogueKind::Session => self.remove_dialogue_from(&self.sessions, key, generation),
            DialogueKind::NpcConversation => self.remove_dialogue_from(&self.conversations, key, generation),
        }
    }

    fn clear_crashes(&self, key: &DialogueKey, generation: u64) {
        match key.1.kind() {
            DialogueKind::Session => self.sessions.clear_crashes(key, generation),
            DialogueKind::NpcConversation => self.conversations.clear_crashes(key, generation),
        }
    }

    async fn read_authored(
        &self,
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
            if send_message(&self.node, &addr, FetchAuthored { reply }).await.is_err() {
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

    fn remove_npc_if_unused(&self, key: &NpcKey, generation: u64) -> bool {
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

    fn remove_unknown_npc(&self, key: &NpcKey, generation: u64) {
        let mut shard = self.npcs.lock_shard(key);
        if shard.get(key).is_some_and(|entry| entry.actor.generation == generation) {
            shard.remove(key);
        }
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
        debug_assert!(!self.addr.connected(), "only a dead actor has a successor");
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

    fn clear_crashes(&self, key: &DialogueKey, generation: u64) {
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
