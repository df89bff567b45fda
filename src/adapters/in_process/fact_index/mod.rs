//! The in-process index: exact search over the facts one knower may know.
//!
//! A partition per (tenant, world, knower) is read from the ledger on first use and kept up to date
//! by the outbox relay; there is nothing on disk to corrupt. Searches scan the visible part of a
//! partition completely (8-bit dot products, the best rescored in full precision), so recall is
//! exact by construction. Memory is bounded: the partitions used longest ago are dropped, and read
//! again when needed.

mod partition;
mod shelf;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use parking_lot::RwLock;

use crate::{
    ids::{FactId, TenantId, WorldId},
    memory::fact::{Audience, Knower},
    ports::{
        StoreError, StoreResult,
        vectors::{Candidate, FactIndex, IndexPoint, PointSource, Proposal},
    },
    tenancy::TenantScope,
};
use partition::{Partition, Search};

/// Scans of more points than this run on the blocking pool: about half a millisecond of work,
/// beyond which other dialogues of the same thread would feel it.
const SCAN_INLINE: usize = 12_000;

/// Bounds of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactIndexOptions {
    /// Approximate bytes of resident partitions; the least recently used go beyond it.
    pub memory_bytes: u64,
}

impl Default for FactIndexOptions {
    /// 1 GiB: about half a million facts of 384 dimensions.
    fn default() -> Self {
        Self { memory_bytes: 1 << 30 }
    }
}

/// An exact index in this process.
pub struct InProcessFactIndex {
    source: Arc<dyn PointSource>,
    options: FactIndexOptions,
    partitions: RwLock<HashMap<PartitionKey, Arc<Entry>>>,
    clock: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PartitionKey {
    tenant: TenantId,
    world: WorldId,
    knower: Knower,
}

struct Entry {
    state: RwLock<State>,
    /// Held while the partition is read from the ledger: one reader at a time.
    loading: tokio::sync::Mutex<()>,
    /// Value of `InProcessFactIndex::clock` when it was last used.
    used: AtomicU64,
}

enum State {
    /// Changes that arrive while the ledger is being read; applied on top of what it returns. The
    /// entry exists before the read starts, so no change falls between the two.
    Loading(Vec<Change>),
    Ready(Partition),
}

enum Change {
    Put(Arc<IndexPoint>),
    Drop(FactId),
}

impl InProcessFactIndex {
    /// An empty index that reads partitions from `source`.
    #[must_use]
    pub fn new(source: Arc<dyn PointSource>, options: FactIndexOptions) -> Self {
        Self {
            source,
            options,
            partitions: RwLock::default(),
            clock: AtomicU64::new(0),
        }
    }

    /// The partition, read from the ledger if it is not resident.
    async fn partition(&self, scope: &TenantScope, world: &WorldId, knower: Knower) -> StoreResult<Arc<Entry>> {
        let key = PartitionKey {
            tenant: scope.tenant().clone(),
            world: world.clone(),
            knower,
        };
        let found = self.partitions.read().get(&key).cloned();
        let entry = found.unwrap_or_else(|| {
            let mut partitions = self.partitions.write();
            Arc::clone(partitions.entry(key.clone()).or_insert_with(|| Arc::new(Entry::new())))
        });
        entry
            .used
            .store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        if entry.is_ready() {
            return Ok(entry);
        }
        {
            let _one_reader = entry.loading.lock().await;
            if entry.is_ready() {
                return Ok(Arc::clone(&entry));
            }
            let points = self.source.points_of(scope, world, &key.knower).await?;
            entry.become_ready(points);
        }
        self.evict(&key);
        Ok(entry)
    }

    /// Drops the partitions used longest ago until the rest fits, but never `keep`.
    fn evict(&self, keep: &PartitionKey) {
        let mut partitions = self.partitions.write();
        let mut sizes: Vec<(u64, u64, PartitionKey)> = partitions
            .iter()
            .map(|(key, entry)| (entry.used.load(Ordering::Relaxed), entry.bytes(), key.clone()))
            .collect();
        let mut total: u64 = sizes.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= self.options.memory_bytes {
            return;
        }
        sizes.sort_unstable_by_key(|(used, ..)| *used);
        for (_, bytes, key) in sizes {
            if total <= self.options.memory_bytes {
                break;
            }
            if key != *keep {
                partitions.remove(&key);
                total -= bytes;
            }
        }
    }

    /// Every resident partition of a tenant, or of one of its worlds.
    fn resident(&self, scope: &TenantScope, world: Option<&WorldId>) -> Vec<(Knower, Arc<Entry>)> {
        self.partitions
            .read()
            .iter()
            .filter(|(key, _)| key.tenant == *scope.tenant() && world.is_none_or(|world| key.world == *world))
            .map(|(key, entry)| (key.knower.clone(), Arc::clone(entry)))
            .collect()
    }

    /// Runs a search over partitions, off this thread when it is long.
    async fn search(entries: Vec<Arc<Entry>>, search: Search) -> StoreResult<Vec<Candidate>> {
        let points: usize = entries
            .iter()
            .map(|entry| entry.read(|partition| partition.visible(&search)))
            .sum();
        let run = move || {
            let mut best: HashMap<FactId, f32> = HashMap::new();
            for entry in &entries {
                entry.read(|partition| partition.search(&search, &mut best));
            }
            best.into_iter()
                .map(|(fact, cosine)| Candidate { fact, cosine })
                .collect()
        };
        if points <= SCAN_INLINE {
            return Ok(run());
        }
        tokio::task::spawn_blocking(run)
            .await
            .map_err(|error| StoreError::Unavailable(format!("the index search did not finish: {error}")))
    }
}

#[async_trait]
impl FactIndex for InProcessFactIndex {
    async fn propose(&self, scope: &TenantScope, proposal: Proposal<'_>) -> StoreResult<Vec<Candidate>> {
        let mut entries = Vec::new();
        for knower in proposal.viewpoint.knowers() {
            entries.push(self.partition(scope, &proposal.viewpoint.world, knower).await?);
        }
        Self::search(entries, Search::propose(&proposal)).await
    }

    async fn similar(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        audience: &Audience,
        embedding: &[f32],
        min_cosine: f32,
        limit: usize,
    ) -> StoreResult<Vec<Candidate>> {
        // A fact is in the partition of each of its knowers, so any one of them has all of them.
        let Some(knower) = audience.knowers.first() else {
            return Ok(Vec::new());
        };
        let entry = self.partition(scope, world, knower.clone()).await?;
        let mut near = Self::search(vec![entry], Search::similar(audience, embedding, limit)).await?;
        near.retain(|candidate| candidate.cosine >= min_cosine);
        near.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then(a.fact.cmp(&b.fact)));
        near.truncate(limit);
        Ok(near)
    }

    async fn upsert(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        for point in points {
            let mut shared = None;
            for (knower, entry) in self.resident(scope, Some(&point.world)) {
                if point.audience.knowers.contains(&knower) {
                    let point = shared.get_or_insert_with(|| Arc::new(point.clone()));
                    entry.apply(Change::Put(Arc::clone(point)));
                }
            }
        }
        Ok(())
    }

    async fn remove(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        if facts.is_empty() {
            return Ok(());
        }
        for (_, entry) in self.resident(scope, None) {
            for fact in facts {
                entry.apply(Change::Drop(*fact));
            }
        }
        Ok(())
    }

    /// Points in resident partitions, each fact once. Partitions that nobody used are not counted:
    /// they are read from the ledger, so they cannot drift from it.
    async fn count(&self, scope: &TenantScope) -> StoreResult<u64> {
        let mut facts = std::collections::HashSet::new();
        for (_, entry) in self.resident(scope, None) {
            entry.read(|partition| facts.extend(partition.facts()));
        }
        Ok(facts.len() as u64)
    }

    async fn clear(&self, scope: &TenantScope) -> StoreResult<()> {
        self.partitions.write().retain(|key, _| key.tenant != *scope.tenant());
        Ok(())
    }
}

impl Entry {
    fn new() -> Self {
        Self {
            state: RwLock::new(State::Loading(Vec::new())),
            loading: tokio::sync::Mutex::default(),
            used: AtomicU64::new(0),
        }
    }

    fn is_ready(&self) -> bool {
        matches!(*self.state.read(), State::Ready(_))
    }

    fn become_ready(&self, points: Vec<IndexPoint>) {
        let mut partition = Partition::default();
        for point in points {
            partition.put(&point);
        }
        let mut state = self.state.write();
        if let State::Loading(changes) = &mut *state {
            for change in std::mem::take(changes) {
                partition.apply(&change);
            }
            *state = State::Ready(partition);
        }
    }

    fn apply(&self, change: Change) {
        match &mut *self.state.write() {
            State::Loading(changes) => changes.push(change),
            State::Ready(partition) => partition.apply(&change),
        }
    }

    /// `read` on the partition; the default (nothing) while it is still being read.
    fn read<T: Default>(&self, read: impl FnOnce(&Partition) -> T) -> T {
        match &*self.state.read() {
            State::Loading(_) => T::default(),
            State::Ready(partition) => read(partition),
        }
    }

    fn bytes(&self) -> u64 {
        self.read(Partition::bytes)
    }
}

impl std::fmt::Debug for InProcessFactIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcessFactIndex")
            .field("partitions", &self.partitions.read().len())
            .finish_non_exhaustive()
    }
}
