//! The state of the world in a turn.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::input::TurnInput;
use crate::{Services, recall::StatePosition};
use colloquy_memory::{game_clock::GameClock, state::WorldState};
use colloquy_ports::StoreResult;

/// The state of the world, read once for a turn, by the first step that needs it.
pub(super) struct StateOfTurn<'a> {
    services: &'a Services,
    input: &'a TurnInput,
    state: OnceCell<(Arc<WorldState>, StatePosition)>,
}

impl<'a> StateOfTurn<'a> {
    pub(super) fn new(services: &'a Services, input: &'a TurnInput) -> Self {
        let state = OnceCell::new();
        Self { services, input, state }
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

    /// Returns the world's clock, if the world has one. A world without a clock needs no state.
    pub(super) async fn clock(&self) -> StoreResult<Option<GameClock<'_>>> {
        let settings = &self.input.world.settings;
        if settings.clock.is_none() {
            return Ok(None);
        }
        Ok(GameClock::new(settings, self.load().await?))
    }
}
