//! What this node keeps of memory between turns. All of it can be lost and read again.

use std::{sync::Arc, time::Duration};

use moka::sync::Cache;
use parking_lot::Mutex;

use super::CachedBody;
use crate::{
    dialogue::Services,
    ids::{FactId, NpcId, TenantId, WorldId},
    memory::state::{self, StateChange, WorldState},
    ports::{StoreError, ledger::facts::Confirmed},
    tenancy::TenantScope,
};

/// Worlds whose folded state is kept.
const WORLDS: u64 = 1_024;
/// How long another node's state changes may stay unseen here. This node's own are seen at once.
const WORLD_TTL: Duration = Duration::from_secs(2);

/// NPCs whose memory is being written to.
const WRITERS: u64 = 10_000;

/// Bodies of facts by (id, version), and the folded state of worlds; shared by every dialogue of
/// this node.
pub struct BodyCache {
    bodies: Cache<FactId, Arc<CachedBody>>,
    worlds: Cache<(TenantId, WorldId), Arc<WorldState>>,
    /// Rises with every state change of this node: a fold read before one is not kept after it.
    world_changes: Mutex<u64>,
    /// Orders this node's writes to an NPC's memory, which would only make each other plan anew.
    writers: Cache<(TenantId, WorldId, NpcId), Arc<tokio::sync::Mutex<()>>>,
    /// Held by the one relay of this node that moves the outbox.
    pub(in crate::dialogue) relay: tokio::sync::Mutex<()>,
}

impl BodyCache {
    /// Keeps at most `capacity` bodies.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self {
            bodies: Cache::new(capacity),
            worlds: Cache::builder().max_capacity(WORLDS).time_to_live(WORLD_TTL).build(),
            world_changes: Mutex::new(0),
            writers: Cache::new(WRITERS),
            relay: tokio::sync::Mutex::new(()),
        }
    }

    /// Waits for this node's other writers to these NPCs' memories. Not to be held across a model call.
    ///
    /// `npcs` are sorted, so that two callers never wait for each other.
    pub(in crate::dialogue) async fn write_memory(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
    ) -> Vec<tokio::sync::OwnedMutexGuard<()>> {
        let mut held = Vec::with_capacity(npcs.len());
        for npc in npcs {
            let key = (scope.tenant().clone(), world.clone(), npc.clone());
            held.push(self.writers.get_with(key, Arc::default).lock_owned().await);
        }
        held
    }

    /// Bodies of facts the ledger has just confirmed, in no particular order; misses are read.
    pub(in crate::dialogue) async fn of(
        &self,
        services: &Services,
        scope: &TenantScope,
        confirmed: &[Confirmed],
    ) -> Result<Vec<Arc<CachedBody>>, StoreError> {
        let mut found = Vec::with_capacity(confirmed.len());
        let mut missing = Vec::new();
        for wanted in confirmed {
            match self.bodies.get(&wanted.fact) {
                Some(cached) if cached.body.version == wanted.version => found.push(cached),
                _ => missing.push(wanted.fact),
            }
        }
        if !missing.is_empty() {
            for body in services.ledger.facts.bodies(scope, &missing).await? {
                let cached = Arc::new(CachedBody::new(body));
                self.bodies.insert(cached.body.id, cached.clone());
                found.push(cached);
            }
        }
        Ok(found)
    }

    /// The state of a world, folded over its standing changes.
    pub(in crate::dialogue) async fn world(
        &self,
        services: &Services,
        scope: &TenantScope,
        world: &WorldId,
    ) -> Result<Arc<WorldState>, StoreError> {
        let key = (scope.tenant().clone(), world.clone());
        if let Some(known) = self.worlds.get(&key) {
            return Ok(known);
        }
        let before = *self.world_changes.lock();
        let changes = services.ledger.state.standing(scope, world).await?;
        let folded = Arc::new(state::fold(changes.iter().map(|stored| &stored.change)));
        let version = self.world_changes.lock();
        if *version == before {
            self.worlds.insert(key, folded.clone());
        }
        drop(version);
        Ok(folded)
    }

    /// Applies changes this node has just committed, so that the next turn sees them.
    pub(in crate::dialogue) fn world_changed<'a>(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        changes: impl Iterator<Item = &'a StateChange>,
    ) {
        let key = (scope.tenant().clone(), world.clone());
        let mut version = self.world_changes.lock();
        *version += 1;
        if let Some(known) = self.worlds.get(&key) {
            let mut state = WorldState::clone(&known);
            for change in changes {
                state.apply(change);
            }
            self.worlds.insert(key, Arc::new(state));
        }
    }

    /// Forgets the folded state of a world: after something else than a turn changed it.
    pub fn forget_world(&self, scope: &TenantScope, world: &WorldId) {
        *self.world_changes.lock() += 1;
        self.worlds.invalidate(&(scope.tenant().clone(), world.clone()));
    }
}

impl std::fmt::Debug for BodyCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyCache").finish_non_exhaustive()
    }
}
