//! The memory that a turn reads before the intent of its line is known.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    curation::StoryRow,
    dialogues::Dialogue,
    episodes::{EpisodeRequest, FoundEpisodes},
    facts::StandingMemory,
};
use crate::StoreResult;
use colloquy_core::{
    ids::{NpcId, PlayerId},
    scope::TenantScope,
};
use colloquy_memory::{disclosure::audience::Viewpoint, insight::EarlierInsight, summary::Meeting};

/// The arguments of [`load_standing`](super::facts::RecallStore::load_standing).
#[derive(Debug, Clone, Copy)]
pub struct StandingRequest<'a> {
    pub viewpoint: &'a Viewpoint,
    pub gossip: bool,
    pub as_of: DateTime<Utc>,
    pub limit: u32,
}

/// What [`TurnMemoryStore::load_turn_memory`] returns.
#[derive(Debug, Clone, Copy)]
pub struct TurnMemoryRequest<'a> {
    /// The dialogue of the turn.
    pub dialogue: &'a Dialogue,
    /// The NPC that speaks.
    pub npc: &'a NpcId,
    /// The player of the turn. `None`: no meeting.
    pub player: Option<&'a PlayerId>,
    /// False: no insights.
    pub insights: bool,
    /// The time up to which the story is told. `None`: no story.
    pub story_until: Option<DateTime<Utc>>,
    /// `None`: no episodes.
    pub episodes: Option<EpisodeRequest<'a>>,
    /// `None`: no standing facts.
    pub standing: Option<StandingRequest<'a>>,
}

/// The memory of a turn. A part that was not requested is empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurnMemory {
    /// As of [`find_last_meeting`](super::dialogues::DialogueStore::find_last_meeting), with the newest summary, locked
    /// or not.
    pub meeting: Option<Meeting>,
    /// As of [`load_insights`](super::insights::InsightStore::load_insights).
    pub insights: Vec<EarlierInsight>,
    /// As of [`load_story`](super::curation::CurationStore::load_story).
    pub story: Vec<StoryRow>,
    /// As of [`find_episodes`](super::episodes::EpisodeStore::find_episodes).
    pub episodes: FoundEpisodes,
    /// As of [`load_standing`](super::facts::RecallStore::load_standing).
    pub standing: StandingMemory,
}

/// Reads of several aggregates for a turn.
#[async_trait]
pub trait TurnMemoryStore: Send + Sync {
    /// Returns the requested parts, read in one trip. Replaced, corrected and forgotten standing facts take further
    /// trips.
    async fn load_turn_memory(&self, scope: &TenantScope, request: &TurnMemoryRequest<'_>) -> StoreResult<TurnMemory>;
}
