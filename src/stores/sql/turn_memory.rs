//! The memory that a turn reads before the intent of its line is known, in one trip.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    context::Engine,
    curation::{STORY, bind_story, read_story_row},
    episodes::{FIND_EPISODES, bind_episode_request, read_found_episodes},
    facts::{SqlFactStore, bind_standing, read_fact, standing_statement},
    insights::{LOAD_INSIGHTS, bind_insights, read_insights},
    joint_read::JointRead,
    meetings::{LAST_MEETINGS, bind_last_meeting, read_last_meeting},
};
use colloquy_core::scope::TenantScope;
use colloquy_ports::{
    StoreResult,
    ledger::{
        facts::StandingMemory,
        turn_memory::{TurnMemory, TurnMemoryRequest, TurnMemoryStore},
    },
};

pub(super) struct SqlTurnMemoryStore(pub(super) Arc<Engine>);

#[async_trait]
impl TurnMemoryStore for SqlTurnMemoryStore {
    async fn load_turn_memory(&self, scope: &TenantScope, request: &TurnMemoryRequest<'_>) -> StoreResult<TurnMemory> {
        let TurnMemoryRequest {
            dialogue, npc, player, ..
        } = *request;
        let mut read = JointRead::new();
        let meeting = player.map(|player| {
            read.add(LAST_MEETINGS, |query| {
                let bound = bind_last_meeting(query, scope, &dialogue.world, npc, player, dialogue.id, false);
                Ok(bound)
            })
        });
        let insights = request.insights.then(|| {
            read.add(LOAD_INSIGHTS, |query| {
                Ok(bind_insights(query, scope, &dialogue.world, npc, player))
            })
        });
        let story = request
            .story_until
            .zip(dialogue.player.as_ref())
            .map(|(until, player)| read.add(STORY, |query| bind_story(query, scope, dialogue, player, until)));
        let episodes = request
            .episodes
            .map(|wanted| read.add(FIND_EPISODES, |query| Ok(bind_episode_request(query, scope, &wanted))));
        let standing = request.standing.map(|wanted| {
            let statement = standing_statement(&wanted);
            read.add(statement, |query| bind_standing(query, scope, &wanted))
        });
        let found = read.fetch(&self.0, scope).await?;
        Ok(TurnMemory {
            meeting: read_last_meeting(found.columns_of(meeting))?,
            insights: read_insights(found.columns_of(insights))?,
            story: found.read_rows(story, read_story_row)?,
            episodes: read_found_episodes(found.columns_of(episodes))?,
            standing: match &request.standing {
                Some(wanted) => {
                    let facts = found.read_rows(standing, read_fact)?;
                    SqlFactStore(Arc::clone(&self.0))
                        .complete_standing(scope, wanted, facts)
                        .await?
                }
                None => StandingMemory::default(),
            },
        })
    }
}
