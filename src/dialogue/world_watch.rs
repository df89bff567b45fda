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
        actions::Action,
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

impl ActionNews {
    fn highest_seq(&self) -> i64 {
        let actions = self.undone.iter().chain(&self.requested);
        actions.map(|action| action.seq).max().unwrap_or_default()
    }
}

impl WorldFollower {
    /// Follows a world from its present state on. `known_ids` are actions that the listener knows: the news have those
    /// that were undone meanwhile, and the open actions that are not among them.
    ///
    /// # Errors
    /// The state of the world cannot be read.
    pub async fn start(
        services: &Services,
        scope: TenantScope,
        world: WorldId,
        known_ids: &[ActionId],
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
        let store = &services.ledger.actions;
        let mut undone = Vec::new();
        let mut requested = Vec::new();
        if present.last_action > 0 {
            let standing = store.list_standing_actions(&follower.scope, &follower.world).await?;
            follower.standing_actions = standing.into_iter().collect();
            requested = store
                .load_open_actions(&follower.scope, &follower.world, services.clock.now())
                .await?;
            follower.add_standing_actions(&requested);
            requested.retain(|action| !known_ids.contains(&action.request.id));
        }
        let standing_ids: HashSet<&ActionId> = follower.standing_actions.values().collect();
        let unsettled: Vec<ActionId> = known_ids
            .iter()
            .filter(|id| !standing_ids.contains(id))
            .copied()
            .collect();
        if !unsettled.is_empty() {
            undone = store.load_actions(&follower.scope, &unsettled).await?;
            undone.retain(|action| action.request.world == follower.world);
            let reinstated: Vec<Action> = undone.extract_if(.., |action| action.stands).collect();
            follower.add_standing_actions(&reinstated);
        }
        let news = ActionNews { undone, requested };
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
        let latest = self.load_changes_since(services, self.last).await?;
        if latest.generation == self.generation {
            let actions = self.read_new_actions(services, latest.last_action).await?;
            self.add_standing(&latest.changes);
            self.add_standing_actions(&actions.requested);
            self.last_action = actions.highest_seq().max(latest.last_action).max(self.last_action);
            return Ok(WorldNews {
                taken_back: Vec::new(),
                changes: latest.changes,
                actions,
            });
        }
        let present = self.load_changes_since(services, 0).await?;
        let present_seqs: HashSet<i64> = present.changes.iter().map(|change| change.seq).collect();
        let lifted_seqs: Vec<i64> = self.standing.difference(&present_seqs).copied().collect();
        let taken_back = match lifted_seqs.as_slice() {
            [] => Vec::new(),
            lifted_seqs => services.ledger.state.load_changes(&self.scope, lifted_seqs).await?,
        };
        let mut actions = self.read_new_actions(services, present.last_action).await?;
        if self.last_action > 0 {
            self.compare_known_actions(services, &mut actions).await?;
        }
        let mut changes = present.changes;
        changes.retain(|change| !self.standing.contains(&change.seq));
        self.standing.retain(|seq| present_seqs.contains(seq));
        self.add_standing(&changes);
        for action in &actions.undone {
            self.standing_actions.remove(&action.seq);
        }
        self.add_standing_actions(&actions.requested);
        self.last_action = actions.highest_seq().max(present.last_action).max(self.last_action);
        self.generation = present.generation;
        Ok(WorldNews {
            taken_back,
            changes,
            actions,
        })
    }

    /// Returns the actions since the last read. An action that was undone before this read is undone at once: a backend
    /// may have read it over REST.
    async fn read_new_actions(&self, services: &Services, last_action: i64) -> StoreResult<ActionNews> {
        if last_action <= self.last_action {
            return Ok(ActionNews::default());
        }
        let store = &services.ledger.actions;
        let mut requested = store
            .load_actions_since(&self.scope, &self.world, self.last_action)
            .await?;
        let undone = requested.extract_if(.., |action| !action.stands).collect();
        Ok(ActionNews { undone, requested })
    }

    /// Adds the known actions that were undone, and the earlier actions that stand again. An action that was undone and
    /// stands again between two reads is no news.
    async fn compare_known_actions(&self, services: &Services, news: &mut ActionNews) -> StoreResult<()> {
        let store = &services.ledger.actions;
        let standing_now: HashMap<i64, ActionId> = store
            .list_standing_actions(&self.scope, &self.world)
            .await?
            .into_iter()
            .filter(|(seq, _)| *seq <= self.last_action)
            .collect();
        let known_actions = &self.standing_actions;
        let lifted = known_actions.iter().filter(|(seq, _)| !standing_now.contains_key(seq));
        let restored = standing_now.iter().filter(|(seq, _)| !known_actions.contains_key(seq));
        let changed: Vec<ActionId> = lifted.chain(restored).map(|(_, id)| *id).collect();
        if !changed.is_empty() {
            let changed = store.load_actions(&self.scope, &changed).await?;
            let (restored, lifted): (Vec<Action>, Vec<Action>) = changed.into_iter().partition(|action| action.stands);
            news.undone.splice(..0, lifted);
            news.requested.splice(..0, restored);
        }
        Ok(())
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

    fn add_standing_actions(&mut self, actions: &[Action]) {
        for action in actions {
            self.last_action = self.last_action.max(action.seq);
            self.standing_actions.insert(action.seq, action.request.id);
        }
    }
}
