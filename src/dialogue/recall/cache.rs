//! The memory that this node caches between turns. All of it can be lost and read again.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use moka::sync::Cache;

use crate::{
    Services,
    disclosure::Disclosable,
    jobs::{UnembeddedTenants, outbox::OutboxRelay},
    knowledge::{EpisodeCache, lore::LoreCache},
    prompt::SentPrompts,
    state_blocks::BlockHabits,
};
use colloquy_core::{
    ids::{FactId, NpcId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{disclosure::audience::Audience, fact::NewFact, state::WorldState};
use colloquy_ports::{
    StoreError,
    ledger::{
        facts::{ConfirmedFact, RecallBody},
        priority::with_interactive_priority,
        state::StoredStateChange,
    },
};

/// The number of worlds with a cached state.
const MAX_CACHED_WORLDS: u64 = 1_024;

/// The number of NPCs with a cached writer lock.
const MAX_CACHED_WRITERS: u64 = 10_000;

/// The number of recorded writes to an NPC's memory: more than occur during a judge call.
const MAX_LATEST_WRITES: usize = 64;

/// The bodies of facts by (id, version), the folded states of worlds, their lore, vectors of episodes, and last prompts.
/// Shared by all dialogues of this node.
pub struct MemoryCache {
    bodies: Cache<FactId, Arc<RecallBody>>,
    worlds: Cache<(TenantId, WorldId), Arc<tokio::sync::Mutex<FoldedState>>>,
    /// Orders this node's writes to an NPC's memory. Concurrent writers would only make each other plan again.
    writers: Cache<(TenantId, WorldId, NpcId), Arc<tokio::sync::Mutex<LatestWrites>>>,
    pub(crate) relays: OutboxRelay,
    pub(crate) unembedded: UnembeddedTenants,
    pub(crate) lore: LoreCache,
    pub(crate) episodes: EpisodeCache,
    pub(crate) sent_prompts: SentPrompts,
    pub(crate) block_habits: BlockHabits,
}

/// This node's latest writes to an NPC's memory: the memory's position before each write, and the audiences. Each write
/// raised `memory_seq` by 1. Writes of other nodes are not included.
#[derive(Default)]
pub(crate) struct LatestWrites(VecDeque<(u64, Vec<Audience>)>);

impl LatestWrites {
    pub(crate) fn record_write(&mut self, seq_before: u64, audiences: Vec<Audience>) {
        if self.0.len() == MAX_LATEST_WRITES {
            self.0.pop_front();
        }
        self.0.push_back((seq_before, audiences));
    }

    /// Returns the memory's position after this node's writes since `seq`. `None`: the audience of such a write
    /// overlaps one of `audiences`.
    pub(crate) fn position_if_disjoint(&self, audiences: &[Audience], seq: u64) -> Option<u64> {
        let mut position = seq;
        while let Some((_, other_audiences)) = self.0.iter().find(|(seq_before, _)| *seq_before == position) {
            let overlaps = |other: &Audience| audiences.iter().any(|audience| other.overlaps_audience(audience));
            if other_audiences.iter().any(overlaps) {
                return None;
            }
            position += 1;
        }
        Some(position)
    }
}

/// Which changes a folded state of a world has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatePosition {
    /// The highest `seq` of a change in the state; 0: no change.
    pub seq: i64,
    /// As in [`StateChanges`](colloquy_ports::ledger::state::StateChanges).
    pub generation: i64,
}

/// A world's state, as far as it was read.
#[derive(Default)]
struct FoldedState {
    /// The generation of the state. `None` before the first read.
    generation: Option<i64>,
    /// The highest `seq` in the state; 0 before the first read.
    seq: i64,
    /// The time of the last change in the state.
    latest_at: DateTime<Utc>,
    state: Arc<WorldState>,
}

impl FoldedState {
    /// Folds later changes into the state, in their order.
    fn fold_changes(&mut self, changes: &[StoredStateChange]) {
        if changes.is_empty() {
            return;
        }
        let state = Arc::make_mut(&mut self.state);
        for stored in changes {
            state.apply_change(&stored.change, stored.changed_at, stored.dialogue);
            self.seq = self.seq.max(stored.seq);
            self.latest_at = self.latest_at.max(stored.changed_at);
        }
    }
}

impl MemoryCache {
    /// Creates a cache for at most `capacity` bodies.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self {
            bodies: Cache::new(capacity),
            worlds: Cache::new(MAX_CACHED_WORLDS),
            writers: Cache::new(MAX_CACHED_WRITERS),
            relays: OutboxRelay::default(),
            unembedded: UnembeddedTenants::default(),
            lore: LoreCache::default(),
            episodes: EpisodeCache::default(),
            sent_prompts: SentPrompts::default(),
            block_habits: BlockHabits::default(),
        }
    }

    /// Waits for this node's other writers to these NPCs' memories. The guards must not be held across a model call.
    ///
    /// `npcs` are sorted, which prevents deadlocks.
    pub(crate) async fn lock_writers(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
    ) -> Vec<tokio::sync::OwnedMutexGuard<LatestWrites>> {
        let mut guards = Vec::with_capacity(npcs.len());
        for npc in npcs {
            let key = (scope.tenant().clone(), world.clone(), npc.clone());
            guards.push(self.writers.get_with(key, Arc::default).lock_owned().await);
        }
        guards
    }

    /// Caches the bodies of newly written facts, because the next turn is likely to need them.
    pub(crate) fn cache_written(&self, new_facts: &[NewFact]) {
        for fact in new_facts.iter().filter(|fact| !fact.embedding.is_empty()) {
            self.bodies.insert(fact.id, Arc::new(RecallBody::from_new_fact(fact)));
        }
    }

    /// Returns the bodies of facts that the ledger has just confirmed and the gate has opened, in no particular order.
    /// Missing bodies are read.
    pub(crate) async fn read_open_bodies(
        &self,
        services: &Services,
        scope: &TenantScope,
        confirmed: &[Disclosable<ConfirmedFact>],
    ) -> Result<Vec<Disclosable<Arc<RecallBody>>>, StoreError> {
        let ids: Vec<ConfirmedFact> = confirmed.iter().map(|open| **open).collect();
        let bodies = self.read_bodies(services, scope, &ids).await?;
        let open: HashMap<FactId, &Disclosable<ConfirmedFact>> =
            confirmed.iter().map(|open| (open.fact, open)).collect();
        Ok(bodies
            .into_iter()
            .filter_map(|body| open.get(&body.id)?.cover(body))
            .collect())
    }

    /// Returns the bodies of facts that the ledger has just confirmed, in no particular order. Missing bodies are read.
    pub(crate) async fn read_bodies(
        &self,
        services: &Services,
        scope: &TenantScope,
        confirmed: &[ConfirmedFact],
    ) -> Result<Vec<Arc<RecallBody>>, StoreError> {
        let mut bodies = Vec::with_capacity(confirmed.len());
        let mut missing = Vec::new();
        for expected in confirmed {
            match self.bodies.get(&expected.fact) {
                Some(body) if body.version == expected.version => bodies.push(body),
                _ => missing.push(expected.fact),
            }
        }
        if !missing.is_empty() {
            for body in services.ledger.facts.load_bodies(scope, &missing).await? {
                let body = Arc::new(body);
                // A body without a vector later gets its vector without a new version.
                if !body.embedding.is_empty() {
                    self.bodies.insert(body.id, Arc::clone(&body));
                }
                bodies.push(body);
            }
        }
        Ok(bodies)
    }

    /// Returns the state of a world, folded from its standing changes. Reads the changes of all nodes since the last
    /// read, or all changes after a rewind. Only one reader runs at a time. The read always has interactive priority,
    /// because speakers wait for it.
    pub(crate) async fn world_state(
        &self,
        services: &Services,
        scope: &TenantScope,
        world: &WorldId,
    ) -> Result<Arc<WorldState>, StoreError> {
        Ok(self.positioned_state(services, scope, world).await?.0)
    }

    /// Returns the state of a world as [`Self::world_state`] does, with its position.
    pub(crate) async fn positioned_state(
        &self,
        services: &Services,
        scope: &TenantScope,
        world: &WorldId,
    ) -> Result<(Arc<WorldState>, StatePosition), StoreError> {
        let entry = self
            .worlds
            .get_with((scope.tenant().clone(), world.clone()), Arc::default);
        let mut folded = entry.lock().await;
        let store = &services.ledger.state;
        let mut loaded = with_interactive_priority(store.load_changes_since(scope, world, folded.seq)).await?;
        // A rewind removed changes, or a late job read an earlier turn's state, which must not override later changes.
        let is_outdated = folded
            .generation
            .is_some_and(|generation| generation != loaded.generation)
            || loaded
                .changes
                .first()
                .is_some_and(|change| change.changed_at < folded.latest_at);
        if is_outdated {
            *folded = FoldedState::default();
            loaded = with_interactive_priority(store.load_changes_since(scope, world, 0)).await?;
        }
        folded.generation = Some(loaded.generation);
        folded.fold_changes(&loaded.changes);
        let position = StatePosition {
            seq: folded.seq,
            generation: loaded.generation,
        };
        Ok((folded.state.clone(), position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colloquy_memory::disclosure::audience::Knower;

    fn told(player: Option<&str>) -> Audience {
        Audience {
            knowers: [Knower::Npc("mira".parse().expect("an id"))].into(),
            private_to: player.map(|player| player.parse().expect("an id")),
        }
    }

    #[test]
    fn recall_plan_holds_while_only_memories_of_other_players_change() {
        let mut writes = LatestWrites::default();
        writes.record_write(7, vec![told(Some("p8"))]);
        writes.record_write(8, vec![told(Some("p9"))]);
        let p7 = [told(Some("p7"))];
        assert_eq!(
            writes.position_if_disjoint(&p7, 9),
            Some(9),
            "nothing was written since"
        );
        assert_eq!(writes.position_if_disjoint(&p7, 7), Some(9));
        assert_eq!(
            writes.position_if_disjoint(&p7, 6),
            Some(6),
            "somebody else wrote before"
        );
        assert_eq!(
            writes.position_if_disjoint(&[told(Some("p9"))], 7),
            None,
            "its own memory"
        );
        assert_eq!(
            writes.position_if_disjoint(&[told(Some("p7")), told(None)], 7),
            None,
            "all may hear of a part of it"
        );
        writes.record_write(9, vec![told(Some("p8")), told(None)]);
        assert_eq!(
            writes.position_if_disjoint(&p7, 7),
            None,
            "all players may hear of a part of what was written"
        );
        assert!((10..10 + MAX_LATEST_WRITES as u64).all(|seq| {
            writes.record_write(seq, vec![told(Some("p8"))]);
            writes.0.len() <= MAX_LATEST_WRITES
        }));
    }
}
