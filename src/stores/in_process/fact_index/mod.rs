//! The in-process index: exact search over the facts of a knower.
//!
//! A partition per (tenant, world, knower) is read from the ledger on first use, and the outbox relay keeps the
//! partition up to date. The index has no files that could be corrupt. A search scans the visible part of a partition
//! completely: 8-bit dot products, and full precision for the best. Recall is therefore exact by construction. Only
//! segments of many thousands of points are first reduced by one bit per dimension. Memory is bounded: the least
//! recently used partitions are dropped, and read again when needed.

mod binary_quantizer;
mod block_scores;
mod partition;
mod partition_search;
mod point_change;
mod segment;
mod term_counts;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use parking_lot::RwLock;

use self::{
    partition::Partition,
    partition_search::{PartitionSearch, Visibility},
    point_change::PointChange,
};
use colloquy_core::{
    ids::{FactId, TenantId, WorldId},
    planted_leak,
    scope::TenantScope,
};
use colloquy_memory::{
    disclosure::audience::{Knower, Viewpoint},
    keywords::{TermStatistics, TermWeights},
};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::priority::with_interactive_priority,
    vectors::{Candidate, CandidateQuery, FactIndex, IndexPoint, MemoryScope, PointSource, SimilarFactsQuery},
};
use term_counts::TermCounts;

/// Scans of more points run on the blocking pool. The limit is about half a millisecond of work; a longer scan would
/// delay other dialogues of the same thread.
const MAX_INLINE_SCAN_POINTS: usize = 12_000;

/// Larger partitions are built on the blocking pool.
const MAX_INLINE_BUILD_POINTS: usize = 2_000;

/// The size of an empty partition, so that partitions of NPCs without facts are dropped too.
const ENTRY_BYTES: u64 = 512;
/// An eviction frees this part of the limit: one in so many.
const EVICTION_HEADROOM: u64 = 8;

/// Limits of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactIndexOptions {
    /// Approximate bytes of resident partitions. Beyond the limit, the least recently used partitions are dropped.
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
    /// True if points are stored without their vectors.
    bare: bool,
    partitions: RwLock<HashMap<PartitionKey, Arc<PartitionEntry>>>,
    clock: AtomicU64,
    /// The resident bytes at the last count, plus all later additions.
    bytes: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PartitionKey {
    tenant: TenantId,
    world: WorldId,
    knower: Knower,
}

struct PartitionEntry {
    state: RwLock<PartitionState>,
    /// Locked while the partition is read from the ledger, so that only one reader works.
    loading: tokio::sync::Mutex<()>,
    /// The value of `InProcessFactIndex::clock` at the last use.
    used: AtomicU64,
    /// The bytes of the points after the last change, readable without the lock.
    bytes: AtomicU64,
}

enum PartitionState {
    /// Changes during the read of the ledger, applied afterwards. The entry exists before the read, so no change is
    /// lost.
    Loading(Vec<PointChange>),
    Ready(Partition),
}

impl InProcessFactIndex {
    /// Returns an empty index that reads partitions from `source`.
    #[must_use]
    pub fn new(source: Arc<dyn PointSource>, options: FactIndexOptions) -> Self {
        Self {
            source,
            options,
            bare: false,
            partitions: RwLock::default(),
            clock: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Returns an index without vectors, which counts words for a remote index at a quarter of the memory.
    #[must_use]
    pub fn new_term_counter(source: Arc<dyn PointSource>, options: FactIndexOptions) -> Self {
        Self {
            bare: true,
            ..Self::new(source, options)
        }
    }

    /// Returns the partition. Reads the partition from the ledger if it is not resident.
    async fn load_partition(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        knower: Knower,
    ) -> StoreResult<Arc<PartitionEntry>> {
        let key = PartitionKey {
            tenant: scope.tenant().clone(),
            world: world.clone(),
            knower,
        };
        let existing = self.partitions.read().get(&key).cloned();
        let entry = existing.unwrap_or_else(|| {
            let mut partitions = self.partitions.write();
            Arc::clone(
                partitions
                    .entry(key.clone())
                    .or_insert_with(|| Arc::new(PartitionEntry::new())),
            )
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
            // A player may wait for this read too, even if a background job is the first to need it.
            let points = if self.bare {
                with_interactive_priority(self.source.bare_points_of(scope, world, &key.knower)).await?
            } else {
                with_interactive_priority(self.source.points_of(scope, world, &key.knower)).await?
            };
            if points.len() <= MAX_INLINE_BUILD_POINTS {
                entry.become_ready(&points);
            } else {
                let entry = Arc::clone(&entry);
                tokio::task::spawn_blocking(move || entry.become_ready(&points))
                    .await
                    .map_err(|error| StoreError::Unavailable(format!("the partition was not built: {error}")))?;
            }
        }
        self.on_bytes_added(entry.resident_bytes(), Some(&key));
        Ok(entry)
    }

    /// Adds to the count of bytes. Counts exactly only if the total may exceed the limit.
    fn on_bytes_added(&self, bytes: u64, keep: Option<&PartitionKey>) {
        let resident = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if resident > self.options.memory_bytes {
            self.evict_partitions(keep);
        }
    }

    /// Drops the least recently used partitions until the rest fits with some room, so that evictions are rare. Retains
    /// `keep` and the last used partition, which would be read again at once.
    fn evict_partitions(&self, keep: Option<&PartitionKey>) {
        let mut partitions = self.partitions.write();
        // Bytes added meanwhile are counted once or twice.
        let counted = self.bytes.load(Ordering::Relaxed);
        let mut total: u64 = partitions.values().map(|entry| entry.resident_bytes()).sum();
        self.bytes.fetch_add(total.wrapping_sub(counted), Ordering::Relaxed);
        if total <= self.options.memory_bytes {
            return;
        }
        let fits = self.options.memory_bytes - self.options.memory_bytes / EVICTION_HEADROOM;
        let mut sizes: Vec<(u64, u64, PartitionKey)> = partitions
            .iter()
            .map(|(key, entry)| (entry.used.load(Ordering::Relaxed), entry.resident_bytes(), key.clone()))
            .collect();
        sizes.sort_unstable_by_key(|(used, ..)| *used);
        sizes.pop();
        for (_, bytes, key) in sizes {
            if total <= fits {
                break;
            }
            if keep != Some(&key) {
                partitions.remove(&key);
                total -= bytes;
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }

    /// Returns every resident partition of a tenant.
    fn resident_partitions(&self, scope: &TenantScope) -> Vec<Arc<PartitionEntry>> {
        self.partitions
            .read()
            .iter()
            .filter(|(key, _)| key.tenant == *scope.tenant())
            .map(|(_, entry)| Arc::clone(entry))
            .collect()
    }

    /// Returns the partitions of a viewpoint. Reads missing partitions from the ledger.
    async fn load_visible_partitions(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
    ) -> StoreResult<Vec<Arc<PartitionEntry>>> {
        let mut entries = Vec::new();
        for knower in viewpoint.knowers() {
            entries.push(self.load_partition(scope, &viewpoint.world, knower).await?);
        }
        Ok(entries)
    }

    /// Runs a search over partitions, on another thread if the search is long.
    async fn search_partitions(
        entries: Vec<Arc<PartitionEntry>>,
        search: PartitionSearch,
    ) -> StoreResult<Vec<Candidate>> {
        let points: usize = entries
            .iter()
            .map(|entry| entry.read_partition(|partition| partition.count_visible(&search)))
            .sum();
        let run = move || {
            let mut best: HashMap<FactId, Candidate> = HashMap::new();
            for entry in &entries {
                entry.read_partition(|partition| partition.search_segments(&search, &mut best));
            }
            best.into_values().collect()
        };
        if points <= MAX_INLINE_SCAN_POINTS {
            return Ok(run());
        }
        tokio::task::spawn_blocking(run)
            .await
            .map_err(|error| StoreError::Unavailable(format!("the index search did not finish: {error}")))
    }
}

#[async_trait]
impl FactIndex for InProcessFactIndex {
    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>> {
        let entries = self.load_visible_partitions(scope, proposal.viewpoint).await?;
        Self::search_partitions(entries, PartitionSearch::for_candidates(&proposal)).await
    }

    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        let entries = self.load_visible_partitions(scope, viewpoint).await?;
        let sees = if planted_leak!("recall.rarity") {
            Visibility::Everything
        } else {
            Visibility::of_viewpoint(viewpoint)
        };
        let mut counts = TermCounts::default();
        for entry in &entries {
            entry.read_partition(|partition| partition.count_terms(&sees, terms, &mut counts));
        }
        Ok(counts.into())
    }

    async fn find_similar(&self, scope: &TenantScope, query: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>> {
        // Each partition has all facts of its knower, so one partition has every fact common to all knowers.
        let (audience, partitions) = match query.memories {
            MemoryScope::Of(audience) => (audience, 1),
            MemoryScope::Overlapping(audience) => (audience, usize::MAX),
        };
        let mut entries = Vec::new();
        for knower in audience.knowers.iter().take(partitions) {
            entries.push(self.load_partition(scope, query.world, knower.clone()).await?);
        }
        let mut candidates = Self::search_partitions(entries, PartitionSearch::for_similarity(query)).await?;
        candidates.retain(|candidate| candidate.cosine >= query.min_cosine);
        candidates.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then(a.fact.cmp(&b.fact)));
        candidates.truncate(query.limit);
        Ok(candidates)
    }

    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()> {
        let mut grown = 0;
        for point in points {
            let entries: Vec<Arc<PartitionEntry>> = {
                let partitions = self.partitions.read();
                let keys = point.audience.knowers.iter().map(|knower| PartitionKey {
                    tenant: scope.tenant().clone(),
                    world: point.world.clone(),
                    knower: knower.clone(),
                });
                keys.filter_map(|key| partitions.get(&key).cloned()).collect()
            };
            if entries.is_empty() {
                continue;
            }
            let mut point = point.clone();
            if self.bare {
                point.embedding = Vec::new();
            }
            let point = Arc::new(point);
            for entry in entries {
                grown += entry.apply_change(PointChange::Put(Arc::clone(&point)));
            }
        }
        if grown > 0 {
            self.on_bytes_added(grown, None);
        }
        Ok(())
    }

    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
        if facts.is_empty() {
            return Ok(());
        }
        for entry in self.resident_partitions(scope) {
            entry.drop_facts(facts);
        }
        Ok(())
    }

    /// Counts points in resident partitions, each fact once. Unused partitions do not count: they are read from the
    /// ledger and cannot differ from it.
    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64> {
        let mut facts = std::collections::HashSet::new();
        for entry in self.resident_partitions(scope) {
            entry.read_partition(|partition| facts.extend(partition.fact_ids()));
        }
        Ok(facts.len() as u64)
    }

    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()> {
        self.partitions.write().retain(|key, _| key.tenant != *scope.tenant());
        Ok(())
    }
}

impl PartitionEntry {
    fn new() -> Self {
        Self {
            state: RwLock::new(PartitionState::Loading(Vec::new())),
            loading: tokio::sync::Mutex::default(),
            used: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn is_ready(&self) -> bool {
        matches!(*self.state.read(), PartitionState::Ready(_))
    }

    fn become_ready(&self, points: &[IndexPoint]) {
        let mut partition = Partition::default();
        for point in points {
            partition.put_point(point);
        }
        let mut state = self.state.write();
        if let PartitionState::Loading(changes) = &mut *state {
            for change in std::mem::take(changes) {
                partition.apply_change(&change);
            }
            self.bytes.store(partition.approximate_bytes(), Ordering::Relaxed);
            *state = PartitionState::Ready(partition);
        }
    }

    /// Applies a change. Returns the growth in bytes.
    fn apply_change(&self, change: PointChange) -> u64 {
        match &mut *self.state.write() {
            PartitionState::Loading(changes) => {
                changes.push(change);
                0
            }
            PartitionState::Ready(partition) => {
                partition.apply_change(&change);
                let bytes = partition.approximate_bytes();
                bytes.saturating_sub(self.bytes.swap(bytes, Ordering::Relaxed))
            }
        }
    }

    /// Removes facts. Blocks searches only for facts that are present.
    fn drop_facts(&self, facts: &[FactId]) {
        let contained: Vec<FactId> = match &*self.state.read() {
            // The running read may still return these facts.
            PartitionState::Loading(_) => facts.to_vec(),
            PartitionState::Ready(partition) => {
                facts.iter().copied().filter(|fact| partition.has_fact(*fact)).collect()
            }
        };
        for fact in contained {
            self.apply_change(PointChange::Drop(fact));
        }
    }

    /// Runs `reader` on the partition. Returns the default (empty) value while the partition is still loading.
    fn read_partition<T: Default>(&self, reader: impl FnOnce(&Partition) -> T) -> T {
        match &*self.state.read() {
            PartitionState::Loading(_) => T::default(),
            PartitionState::Ready(partition) => reader(partition),
        }
    }

    fn resident_bytes(&self) -> u64 {
        ENTRY_BYTES + self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use chrono::DateTime;

    use super::*;
    use colloquy_memory::{disclosure::audience::Audience, fact::Importance};

    /// A ledger in which one NPC knows many facts, and other NPCs none.
    struct Learned(u128);

    #[async_trait]
    impl PointSource for Learned {
        async fn points_of(&self, _: &TenantScope, _: &WorldId, knower: &Knower) -> StoreResult<Vec<IndexPoint>> {
            let learned = *knower == Knower::Npc("scholar".parse().unwrap());
            Ok((1..=self.0).filter(|_| learned).map(|n| point(n, "scholar")).collect())
        }
    }

    fn point(n: u128, npc: &str) -> IndexPoint {
        IndexPoint {
            fact: FactId::from_u128(n),
            version: 1,
            world: "vale".parse().unwrap(),
            audience: Audience {
                knowers: BTreeSet::from([Knower::Npc(npc.parse().unwrap())]),
                private_to: None,
            },
            subject: "player:p7".to_owned(),
            importance: Importance::DEFAULT,
            valid_at: DateTime::UNIX_EPOCH,
            is_locked: false,
            embedding: vec![1.0, 0.0],
            terms: TermWeights(vec![(u64::try_from(n).unwrap(), 1.0)]),
        }
    }

    fn index(points: u128, memory_bytes: u64) -> (InProcessFactIndex, TenantScope) {
        let index = InProcessFactIndex::new(Arc::new(Learned(points)), FactIndexOptions { memory_bytes });
        (index, TenantScope::new("acme".parse().unwrap()))
    }

    async fn visit(index: &InProcessFactIndex, scope: &TenantScope, npc: &str) -> Arc<PartitionEntry> {
        let knower = Knower::Npc(npc.parse().unwrap());
        index
            .load_partition(scope, &"vale".parse().unwrap(), knower)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn knowers_without_facts_are_evicted_too() {
        let (index, scope) = index(0, 10 * ENTRY_BYTES);
        for n in 0..50 {
            visit(&index, &scope, &format!("npc-{n}")).await;
        }
        assert!((8..=10).contains(&index.partitions.read().len()));
        let newest = PartitionKey {
            tenant: scope.tenant().clone(),
            world: "vale".parse().unwrap(),
            knower: Knower::Npc("npc-49".parse().unwrap()),
        };
        assert!(index.partitions.read().contains_key(&newest));
    }

    #[tokio::test]
    async fn partitions_queried_longest_ago_are_evicted_for_new_facts() {
        for (learner, left) in [("mira", "mira"), ("scholar", "mira")] {
            let (index, scope) = index(0, 4_096);
            visit(&index, &scope, "scholar").await;
            visit(&index, &scope, "mira").await;
            let points: Vec<IndexPoint> = (1..=100).map(|n| point(n, learner)).collect();
            index.upsert_points(&scope, &points[..1]).await.unwrap();
            assert_eq!(index.partitions.read().len(), 2);
            index.upsert_points(&scope, &points).await.unwrap();
            let resident: Vec<Knower> = index.partitions.read().keys().map(|key| key.knower.clone()).collect();
            assert_eq!(resident, [Knower::Npc(left.parse().unwrap())], "{learner} learns");
        }
    }

    #[tokio::test]
    async fn byte_count_follows_the_index_contents() {
        let (index, scope) = index(0, u64::MAX);
        let entry = visit(&index, &scope, "scholar").await;
        assert_eq!(entry.resident_bytes(), ENTRY_BYTES);
        let points: Vec<IndexPoint> = (1..=100).map(|n| point(n, "scholar")).collect();
        index.upsert_points(&scope, &points).await.unwrap();
        let full = entry.resident_bytes();
        assert!(full > ENTRY_BYTES + 100 * 64, "{full}");
        // The same points again have about the same size.
        index.upsert_points(&scope, &points).await.unwrap();
        assert!(
            entry.resident_bytes() < full * 2,
            "{} after {full}",
            entry.resident_bytes()
        );
        let gone: Vec<FactId> = points.iter().map(|point| point.fact).collect();
        index.remove_points(&scope, &gone).await.unwrap();
        assert_eq!(entry.resident_bytes(), ENTRY_BYTES);
        // A point of another NPC takes no space here.
        index.upsert_points(&scope, &[point(7, "stranger")]).await.unwrap();
        assert_eq!(entry.resident_bytes(), ENTRY_BYTES);
    }

    #[tokio::test]
    async fn nearest_facts_are_found_anywhere_in_a_large_partition() {
        let (index, scope) = index(0, u64::MAX);
        visit(&index, &scope, "scholar").await;
        // Enough for several parallel scans. The near points are in all of them, including the first and the last
        // point.
        let near = [1_u128, 20_000, 39_999, 40_001, 60_000, 80_000];
        let points: Vec<IndexPoint> = (1..=80_000)
            .map(|n| {
                let embedding = if near.contains(&n) {
                    vec![0.6, 0.8]
                } else {
                    vec![1.0, 0.0]
                };
                IndexPoint {
                    embedding,
                    ..point(n, "scholar")
                }
            })
            .collect();
        index.upsert_points(&scope, &points).await.unwrap();
        index.remove_points(&scope, &[FactId::from_u128(60_000)]).await.unwrap();
        let audience = points[0].audience.clone();
        let with = SimilarFactsQuery {
            world: &points[0].world,
            memories: MemoryScope::Of(&audience),
            subjects: None,
            before: None,
            embedding: &[0.0, 1.0],
            min_cosine: 0.5,
            limit: 9,
        };
        let found = index.find_similar(&scope, with).await.unwrap();
        let mut facts: Vec<FactId> = found.iter().map(|candidate| candidate.fact).collect();
        facts.sort_unstable();
        let wanted = near.into_iter().filter(|n| *n != 60_000).map(FactId::from_u128);
        assert_eq!(facts, wanted.collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn large_partition_is_built_whole() {
        let many = MAX_INLINE_BUILD_POINTS + 1;
        let (index, scope) = index(many as u128, u64::MAX);
        let entry = visit(&index, &scope, "scholar").await;
        assert_eq!(entry.read_partition(Partition::fact_ids).len(), many);
        assert_eq!(index.count_points(&scope).await.unwrap(), many as u64);
    }
}
