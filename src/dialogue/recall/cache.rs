//! What this node keeps of memory between turns. All of it can be lost and read again.

use std::{collections::VecDeque, sync::Arc};

use chrono::{DateTime, Utc};
use moka::sync::Cache;

use crate::{
    dialogue::{Services, jobs::outbox::OutboxRelay},
    ids::{FactId, NpcId, TenantId, WorldId},
    memory::{
        fact::{Audience, NewFact},
        state::WorldState,
    },
    ports::{
        StoreError,
        ledger::{
            facts::{ConfirmedFact, RecallBody},
            priority::with_interactive_priority,
            state::StoredStateChange,
        },
    },
    tenancy::TenantScope,
};

/// Worlds whose folded state is kept.
const MAX_CACHED_WORLDS: u64 = 1_024;

/// NPCs whose memory is being written to.
const MAX_CACHED_WRITERS: u64 = 10_000;

/// Writes to an NPC's memory that are remembered: more than are made while a judge is asked.
const MAX_LATEST_WRITES: usize = 64;

/// Bodies of facts by (id, version), and the folded state of worlds; shared by every dialogue of
/// this node.
pub struct MemoryCache {
    bodies: Cache<FactId, Arc<RecallBody>>,
    worlds: Cache<(TenantId, WorldId), Arc<tokio::sync::Mutex<FoldedState>>>,
    /// Orders this node's writes to an NPC's memory, which would only make each other plan anew.
    writers: Cache<(TenantId, WorldId, NpcId), Arc<tokio::sync::Mutex<LatestWrites>>>,
    /// Those who move the outbox on this node.
    pub(in crate::dialogue) relays: OutboxRelay,
}

/// What this node wrote to an NPC's memory lately: where the memory stood before each write, which raised its `memory_seq` by
/// one, and for which audiences it was. What others wrote is not in it.
#[derive(Default)]
pub(in crate::dialogue) struct LatestWrites(VecDeque<(u64, Vec<Audience>)>);

impl LatestWrites {
    pub(in crate::dialogue) fn record_write(&mut self, before: u64, audiences: Vec<Audience>) {
        if self.0.len() == MAX_LATEST_WRITES {
            self.0.pop_front();
        }
        self.0.push_back((before, audiences));
    }

    /// Where the memory stands after all that this node wrote to it since it stood at `seq`; `None`: whoever may know some of
    /// that may know what is told to one of `audiences`.
    pub(in crate::dialogue) fn position_if_disjoint(&self, audiences: &[Audience], seq: u64) -> Option<u64> {
        let mut now = seq;
        while let Some((_, others)) = self.0.iter().find(|(before, _)| *before == now) {
            let overlaps = |other: &Audience| audiences.iter().any(|audience| other.overlaps_audience(audience));
            if others.iter().any(overlaps) {
                return None;
            }
            now += 1;
        }
        Some(now)
    }
}

/// A world's state as far as it was read.
#[derive(Default)]
struct FoldedState {
    /// Of the state as it was read; `None`: nothing was yet.
    generation: Option<i64>,
    /// The highest `seq` in it; 0: nothing yet.
    seq: i64,
    /// When the last change in it happened.
    at: DateTime<Utc>,
    state: Arc<WorldState>,
}

impl FoldedState {
    /// Folds changes that happened after those in it, in their order.
    fn fold_changes(&mut self, changes: &[StoredStateChange]) {
        if changes.is_empty() {
            return;
        }
        let state = Arc::make_mut(&mut self.state);
        for stored in changes {
            state.apply_change(&stored.change, stored.at);
            self.seq = self.seq.max(stored.seq);
            self.at = self.at.max(stored.at);
        }
    }
}

impl MemoryCache {
    /// Keeps at most `capacity` bodies.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self {
            bodies: Cache::new(capacity),
            worlds: Cache::new(MAX_CACHED_WORLDS),
            writers: Cache::new(MAX_CACHED_WRITERS),
            relays: OutboxRelay::default(),
        }
    }

    /// Waits for this node's other writers to these NPCs' memories. Not to be held across a model call.
    ///
    /// `npcs` are sorted, so that two callers never wait for each other.
    pub(in crate::dialogue) async fn lock_writers(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
    ) -> Vec<tokio::sync::OwnedMutexGuard<LatestWrites>> {
        let mut held = Vec::with_capacity(npcs.len());
        for npc in npcs {
            let key = (scope.tenant().clone(), world.clone(), npc.clone());
            held.push(self.writers.get_with(key, Arc::default).lock_owned().await);
        }
        held
    }

    /// Keeps the bodies of facts that were just written: the next turn is likely to ask for them.
    pub(in crate::dialogue) fn cache_written(&self, written: &[NewFact]) {
        for fact in written.iter().filter(|fact| !fact.embedding.is_empty()) {
            self.bodies.insert(fact.id, Arc::new(RecallBody::from_new_fact(fact)));
        }
    }

    /// Bodies of facts the ledger has just confirmed, in no particular order; misses are read.
    pub(in crate::dialogue) async fn read_bodies(
        &self,
        services: &Services,
        scope: &TenantScope,
        confirmed: &[ConfirmedFact],
    ) -> Result<Vec<Arc<RecallBody>>, StoreError> {
        let mut found = Vec::with_capacity(confirmed.len());
        let mut missing = Vec::new();
        for wanted in confirmed {
            match self.bodies.get(&wanted.fact) {
                Some(body) if body.version == wanted.version => found.push(body),
                _ => missing.push(wanted.fact),
            }
        }
        if !missing.is_empty() {
            for body in services.ledger.facts.load_bodies(scope, &missing).await? {
                let body = Arc::new(body);
                // One that waits for its vector gets it without a new version.
                if !body.embedding.is_empty() {
                    self.bodies.insert(body.id, Arc::clone(&body));
                }
                found.push(body);
            }
        }
        Ok(found)
    }

    /// The state of a world, folded over its standing changes. What was written since the last time is
    /// read, whoever wrote it, and all of it if anything was taken back; one reader at a time, and so at once, whoever
    /// that is: speakers wait for it.
    pub(in crate::dialogue) async fn world_state(
        &self,
        services: &Services,
        scope: &TenantScope,
        world: &WorldId,
    ) -> Result<Arc<WorldState>, StoreError> {
        let entry = self
            .worlds
            .get_with((scope.tenant().clone(), world.clone()), Arc::default);
        let mut folded = entry.lock().await;
        let store = &services.ledger.state;
        let mut fresh = with_interactive_priority(store.load_changes_since(scope, world, folded.seq)).await?;
        // Something was taken back, by whichever node; or a turn's state that a job read late must not
        // override what was said since.
        let anew = folded.generation.is_some_and(|known| known != fresh.generation)
            || fresh.changes.first().is_some_and(|change| change.at < folded.at);
        if anew {
            *folded = FoldedState::default();
            fresh = with_interactive_priority(store.load_changes_since(scope, world, 0)).await?;
        }
        folded.generation = Some(fresh.generation);
        folded.fold_changes(&fresh.changes);
        Ok(folded.state.clone())
    }
}

impl std::fmt::Debug for MemoryCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fact::Knower;

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
