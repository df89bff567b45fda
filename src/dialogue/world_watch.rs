//! Follows the changes of a world, for backends that watch the world.

use std::collections::HashSet;

use super::Services;
use colloquy_core::{ids::WorldId, scope::TenantScope};
use colloquy_ports::{
    StoreResult,
    ledger::state::{StateChanges, StoredStateChange},
};

/// The changes of a world that a follower knows. The ledger is the only source, so a follower on any node misses nothing.
#[derive(Debug)]
pub struct WorldFollower {
    scope: TenantScope,
    world: WorldId,
    generation: i64,
    /// The highest `seq` so far.
    last: i64,
    /// The `seq` of each known change that stands.
    standing: HashSet<i64>,
}

/// What has changed since the last read.
#[derive(Debug, Default, PartialEq)]
pub struct WorldNews {
    /// Changes that stood and were taken back, by a rewind or a restored save. In the order of their writes.
    pub taken_back: Vec<StoredStateChange>,
    /// New changes, and changes that stand again. In the order of their events.
    pub changes: Vec<StoredStateChange>,
}

impl WorldFollower {
    /// Follows a world from its present state on.
    ///
    /// # Errors
    /// The state of the world cannot be read.
    pub async fn start(services: &Services, scope: TenantScope, world: WorldId) -> StoreResult<Self> {
        let mut follower = Self {
            scope,
            world,
            generation: 0,
            last: 0,
            standing: HashSet::new(),
        };
        let present = follower.load_changes_since(services, 0).await?;
        follower.generation = present.generation;
        follower.add_standing(&present.changes);
        Ok(follower)
    }

    #[must_use]
    pub fn world(&self) -> &WorldId {
        &self.world
    }

    /// Returns what has changed since the last successful call, or since the start. After an error, the next call
    /// returns it.
    ///
    /// # Errors
    /// The state of the world cannot be read.
    pub async fn read_news(&mut self, services: &Services) -> StoreResult<WorldNews> {
        let since = self.load_changes_since(services, self.last).await?;
        if since.generation == self.generation {
            self.add_standing(&since.changes);
            return Ok(WorldNews {
                taken_back: Vec::new(),
                changes: since.changes,
            });
        }
        let all = self.load_changes_since(services, 0).await?;
        let now: HashSet<i64> = all.changes.iter().map(|change| change.seq).collect();
        let gone: Vec<i64> = self.standing.difference(&now).copied().collect();
        let taken_back = match gone.as_slice() {
            [] => Vec::new(),
            gone => services.ledger.state.load_changes(&self.scope, gone).await?,
        };
        let mut changes = all.changes;
        changes.retain(|change| !self.standing.contains(&change.seq));
        self.standing.retain(|seq| now.contains(seq));
        self.add_standing(&changes);
        self.generation = all.generation;
        Ok(WorldNews { taken_back, changes })
    }

    async fn load_changes_since(&self, services: &Services, after: i64) -> StoreResult<StateChanges> {
        let state = &services.ledger.state;
        state.load_changes_since(&self.scope, &self.world, after).await
    }

    fn add_standing(&mut self, changes: &[StoredStateChange]) {
        for change in changes {
            self.last = self.last.max(change.seq);
            self.standing.insert(change.seq);
        }
    }
}
