//! Follows the changes and the actions of a world, for backends that watch the world.

use std::collections::{HashMap, HashSet};

use super::Services;
use colloquy_core::{
    ids::{ActionId, WorldId},
    scope::TenantScope,
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        actions::{Action, ActionStatus},
        state::{StateChanges, StoredStateChange},
    },
};

/// The changes and actions of a world that a follower knows. The ledger is the only source, so a follower on any node
/// misses nothing.
#[derive(Debug)]
pub struct WorldFollower {
    scope: TenantScope,
    world: WorldId,
    generation: i64,
    /// The highest `seq` of changes, and of actions, so far.
    last: i64,
    last_action: i64,
    /// The `seq` of each known change that stands.
    standing: HashSet<i64>,
    /// Each known action that stands, by its `seq`.
    standing_actions: HashMap<i64, ActionId>,
}

/// What has changed since the last read.
#[derive(Debug, Default, PartialEq)]
pub struct WorldNews {
    /// Changes that stood and were taken back, by a rewind or a restored save. In the order of their writes.
    pub taken_back: Vec<StoredStateChange>,
    /// New changes, and changes that stand again. In the order of their events.
    pub changes: Vec<StoredStateChange>,
    pub actions: ActionNews,
}

/// The actions of a [`WorldNews`], in the order of their writes.
#[derive(Debug, Default, PartialEq)]
pub struct ActionNews {
    /// Actions that stood, and whose turn was taken back.
    pub undone: Vec<Action>,
    /// New actions, and actions whose turn stands again.
    pub requested: Vec<Action>,
}

impl WorldFollower {
    /// Follows a world from its present state on. `seen` are actions that the listener knows: the news have those that
    /// were undone meanwhile, and the open actions that are not among them.
    ///
    /// # Errors
    /// The state of the world cannot be read.
    pub async fn start(
        services: &Services,
        scope: TenantScope,
        world: WorldId,
        seen: &[ActionId],
    ) -> StoreResult<(Self, ActionNews)> {
        let mut follower = Self {
            scope,
            world,
            generation: 0,
            last: 0,
            last_action: 0,
            standing: HashSet::new(),
            standing_actions: HashMap::new(),
        };
        // The changes come first: an action that is undone between the reads raises the generation for the next read.
        let present = follower.load_changes_since(services, 0).await?;
        follower.generation = present.generation;
        follower.last_action = present.last_action;
        follower.add_standing(&present.changes);
        let mut standing = Vec::new();
        if present.last_action > 0 {
            standing = follower.load_actions_since(services, 0).await?;
        }
        follower.add_standing_actions(&standing);
        let stands: HashSet<ActionId> = standing.iter().map(|action| action.asked.id).collect();
        let unsettled: Vec<ActionId> = seen.iter().filter(|id| !stands.contains(id)).copied().collect();
        let mut undone = Vec::new();
        if !unsettled.is_empty() {
            let store = &services.ledger.actions;
            undone = store.load_actions(&follower.scope, &unsettled).await?;
            undone.retain(|action| action.asked.world == follower.world);
            let again: Vec<Action> = undone.extract_if(.., |action| action.stands).collect();
            follower.add_standing_actions(&again);
        }
        let now = services.clock.now();
        standing.retain(|action| action.status(now) == ActionStatus::Requested && !seen.contains(&action.asked.id));
        let news = ActionNews {
            undone,
            requested: standing,
        };
        Ok((follower, news))
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
            let mut requested = Vec::new();
            if since.last_action > self.last_action {
                requested = self.load_actions_since(services, self.last_action).await?;
            }
            self.add_standing(&since.changes);
            self.add_standing_actions(&requested);
            self.last_action = self.last_action.max(since.last_action);
            return Ok(WorldNews {
                taken_back: Vec::new(),
                changes: since.changes,
                actions: ActionNews {
                    undone: Vec::new(),
                    requested,
                },
            });
        }
        let all = self.load_changes_since(services, 0).await?;
        let now: HashSet<i64> = all.changes.iter().map(|change| change.seq).collect();
        let gone: Vec<i64> = self.standing.difference(&now).copied().collect();
        let taken_back = match gone.as_slice() {
            [] => Vec::new(),
            gone => services.ledger.state.load_changes(&self.scope, gone).await?,
        };
        let actions = self.read_all_actions(services, all.last_action).await?;
        let mut changes = all.changes;
        changes.retain(|change| !self.standing.contains(&change.seq));
        self.standing.retain(|seq| now.contains(seq));
        self.add_standing(&changes);
        for action in &actions.undone {
            self.standing_actions.remove(&action.seq);
        }
        self.add_standing_actions(&actions.requested);
        self.last_action = self.last_action.max(all.last_action);
        self.generation = all.generation;
        Ok(WorldNews {
            taken_back,
            changes,
            actions,
        })
    }

    /// Compares all actions with the known ones. An action that was undone and stands again between two reads is no
    /// news.
    async fn read_all_actions(&self, services: &Services, last_action: i64) -> StoreResult<ActionNews> {
        if last_action == 0 && self.standing_actions.is_empty() {
            return Ok(ActionNews::default());
        }
        let mut requested = self.load_actions_since(services, 0).await?;
        let now: HashSet<i64> = requested.iter().map(|action| action.seq).collect();
        let gone = self.standing_actions.iter().filter(|(seq, _)| !now.contains(seq));
        let gone: Vec<ActionId> = gone.map(|(_, id)| *id).collect();
        let undone = match gone.as_slice() {
            [] => Vec::new(),
            gone => services.ledger.actions.load_actions(&self.scope, gone).await?,
        };
        requested.retain(|action| !self.standing_actions.contains_key(&action.seq));
        Ok(ActionNews { undone, requested })
    }

    async fn load_changes_since(&self, services: &Services, after: i64) -> StoreResult<StateChanges> {
        let state = &services.ledger.state;
        state.load_changes_since(&self.scope, &self.world, after).await
    }

    async fn load_actions_since(&self, services: &Services, after: i64) -> StoreResult<Vec<Action>> {
        let actions = &services.ledger.actions;
        actions.load_actions_since(&self.scope, &self.world, after).await
    }

    fn add_standing(&mut self, changes: &[StoredStateChange]) {
        for change in changes {
            self.last = self.last.max(change.seq);
            self.standing.insert(change.seq);
        }
    }

    fn add_standing_actions(&mut self, actions: &[Action]) {
        for action in actions {
            self.last_action = self.last_action.max(action.seq);
            self.standing_actions.insert(action.seq, action.asked.id);
        }
    }
}
