//! The state of the world in a turn.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::input::TurnInput;
use crate::{
    Services,
    knowledge::scenarios::{self, KnownScenarios},
    recall::StatePosition,
};
use colloquy_memory::{game_clock::GameClock, state::WorldState};
use colloquy_ports::StoreResult;

/// The state of the world and the scenarios that it has unlocked, read once for a turn, by the first step that needs them.
pub(super) struct StateOfTurn<'a> {
    services: &'a Services,
    input: &'a TurnInput,
    state: OnceCell<(Arc<WorldState>, StatePosition)>,
    known_scenarios: OnceCell<KnownScenarios>,
}

impl<'a> StateOfTurn<'a> {
    pub(super) fn new(services: &'a Services, input: &'a TurnInput) -> Self {
        Self {
            services,
            input,
            state: OnceCell::new(),
            known_scenarios: OnceCell::new(),
        }
    }

    async fn read(&self) -> StoreResult<&(Arc<WorldState>, StatePosition)> {
        let cache = &self.services.memory_cache;
        let input = self.input;
        let read_state = || cache.positioned_state(self.services, &input.scope, &input.world.id);
        self.state.get_or_try_init(read_state).await
    }
    pub(super) async fn load(&self) -> StoreResult<&Arc<WorldState>> {
        Ok(&self.read().await?.0)
    }
    pub(super) async fn position(&self) -> StoreResult<StatePosition> {
        Ok(self.read().await?.1)
    }

    /// Returns the player's progress and the recently unlocked scenarios. An NPC without a past that it can tell has none.
    pub(super) async fn known_scenarios(&self) -> StoreResult<&KnownScenarios> {
        let read_scenarios = || async {
            if !scenarios::can_tell_past(self.input) {
                return Ok(KnownScenarios::default());
            }
            scenarios::read_known_scenarios(self.services, self.input, self.load().await?).await
        };
        self.known_scenarios.get_or_try_init(read_scenarios).await
    }

    /// Returns the world's clock, if the world has one. A world without a clock needs no state.
    pub(super) async fn clock(&self) -> StoreResult<Option<GameClock<'_>>> {
        let settings = &self.input.world.settings;
        if settings.clock.is_none() {
            return Ok(None);
        }
        Ok(GameClock::new(settings, self.load().await?))
    }
}
