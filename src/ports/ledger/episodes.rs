//! Episodes: one line about each turn of an NPC with a player.

use std::sync::Arc;

use async_trait::async_trait;

use super::scenarios::Embedding;
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{DialogueId, NpcId, PlayerId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::episode::Episode;

/// An episode with its vector. `None`: the line is not compared by meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddedEpisode {
    pub episode: Episode,
    pub embedding: Option<Embedding>,
}

/// An NPC and a player, whose episodes are read together.
#[derive(Debug, Clone, Copy)]
pub struct EpisodePair<'a> {
    pub world: &'a WorldId,
    pub npc: &'a NpcId,
    pub player: &'a PlayerId,
}

/// What [`EpisodeStore::find_episodes`] returns.
#[derive(Debug, Clone, Copy)]
pub struct EpisodeRequest<'a> {
    pub pair: EpisodePair<'a>,
    /// The most newest episodes.
    pub recent: u32,
    /// The most episodes by importance.
    pub important: u32,
    /// Their least importance.
    pub min_importance: u8,
    /// Vectors with a higher `seq`.
    pub after: i64,
    /// The most vectors.
    pub vectors: u32,
    /// Episodes of this dialogue from this turn on are left out; vectors are not.
    pub without: Option<(DialogueId, u32)>,
}

/// The vector of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeVector {
    /// The order of the writes of the pair's episodes.
    pub seq: i64,
    pub turn: TurnId,
    /// The embedder's model.
    pub model: String,
    pub vector: Arc<[f32]>,
}

/// Episodes and vectors of a pair.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FoundEpisodes {
    /// Standing episodes, each once: the newest and the most important.
    pub episodes: Vec<Episode>,
    /// The newest vectors after `after`, in no particular order. Their episodes may be lifted.
    pub vectors: Vec<EpisodeVector>,
}

/// Episodes. Their writes are part of other writes: with the facts of a turn
/// ([`Reconciliation`](super::facts::Reconciliation)), or, for a turn without an extraction, with the turn itself. A second
/// episode of the same turn is not written. A rewind lifts the episodes of unsaid turns, and reinstates those of turns that
/// stand again.
#[async_trait]
pub trait EpisodeStore: Send + Sync {
    /// Returns the standing episodes of a turn's prompt, and the vectors that the caller has not read yet, in one trip.
    async fn find_episodes(&self, scope: &TenantScope, request: &EpisodeRequest<'_>) -> StoreResult<FoundEpisodes>;
    /// Returns the episodes of these turns that stand and are of the pair, in no particular order.
    async fn load_standing_episodes(
        &self,
        scope: &TenantScope,
        pair: EpisodePair<'_>,
        turns: &[TurnId],
    ) -> StoreResult<Vec<Episode>>;
    /// Returns the standing episodes of a pair, newest first. The cursor is the id of a turn.
    async fn list_episodes(
        &self,
        scope: &TenantScope,
        pair: EpisodePair<'_>,
        page: &PageRequest,
    ) -> StoreResult<Page<Episode>>;
    /// Returns at most `limit` texts whose vector is from another model than `model`, in the order of the turns' ids after
    /// `after`.
    async fn list_unembedded(
        &self,
        scope: &TenantScope,
        model: &str,
        after: Option<TurnId>,
        limit: u32,
    ) -> StoreResult<Vec<(TurnId, String)>>;
    /// Stores vectors of one model.
    async fn store_embeddings(
        &self,
        scope: &TenantScope,
        model: &str,
        vectors: &[(TurnId, Vec<f32>)],
    ) -> StoreResult<()>;
}
