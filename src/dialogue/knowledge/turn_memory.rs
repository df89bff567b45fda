//! The memory of a turn that several kinds of knowledge read before the intent of the line is known.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::{
    episodes::{PairEpisodes, cached_episodes, episode_request},
    story::may_have_story,
};
use crate::{Services, disclosure::MAX_STANDING_FACTS, turn::TurnInput};
use colloquy_memory::disclosure::audience::Viewpoint;
use colloquy_ports::{
    StoreResult,
    ledger::turn_memory::{StandingRequest, TurnMemory, TurnMemoryRequest},
};

/// The memory of a turn, read in one trip, by the first step that needs a part of it.
pub(crate) struct MemoryOfTurn<'a> {
    services: &'a Services,
    input: &'a TurnInput,
    viewpoint: Viewpoint,
    /// The moment of the standing facts. `None`: they are not read here.
    standing_as_of: Option<DateTime<Utc>>,
    /// The episodes that this node has.
    pub(super) episodes: Arc<Mutex<PairEpisodes>>,
    memory: OnceCell<StoreResult<Mutex<TurnMemory>>>,
}

impl<'a> MemoryOfTurn<'a> {
    pub(crate) fn new(services: &'a Services, input: &'a TurnInput, standing_as_of: Option<DateTime<Utc>>) -> Self {
        Self {
            services,
            input,
            viewpoint: input.viewpoint(),
            standing_as_of,
            episodes: cached_episodes(services, input),
            memory: OnceCell::new(),
        }
    }

    /// Takes a part of the memory. A part that the turn does not need is empty.
    ///
    /// # Errors
    /// The store's, for every part.
    pub(crate) async fn take<T: Default>(&self, part: fn(&mut TurnMemory) -> &mut T) -> StoreResult<T> {
        let read_memory = || async { self.read().await.map(Mutex::new) };
        match self.memory.get_or_init(read_memory).await {
            Ok(memory) => Ok(std::mem::take(part(&mut memory.lock()))),
            Err(error) => Err(error.clone()),
        }
    }

    async fn read(&self) -> StoreResult<TurnMemory> {
        let Self { services, input, .. } = *self;
        let request = TurnMemoryRequest {
            dialogue: &input.dialogue,
            npc: &input.npc.id,
            player: input.player.as_ref(),
            insights: services.settings.prompt.insight_tokens > 0,
            story_until: may_have_story(services, input, false).then_some(input.started_at),
            episodes: episode_request(input, &self.episodes.lock()),
            standing: self.standing_as_of.map(|as_of| StandingRequest {
                viewpoint: &self.viewpoint,
                gossip: input.world.settings.allows_gossip(),
                as_of,
                limit: MAX_STANDING_FACTS,
            }),
        };
        let store = &services.ledger.turn_memory;
        store.load_turn_memory(&input.scope, &request).await
    }
}
