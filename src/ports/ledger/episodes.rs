//! Episodes: one line about each turn of an NPC with a player.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use super::scenarios::Embedding;
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{NpcId, PlayerId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::episode::Episode;

/// An episode with its vector.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddedEpisode {
    pub episode: Episode,
    pub vector: EpisodeVector,
}

/// The vector of an episode.
#[derive(Debug, Clone, PartialEq)]
pub enum EpisodeVector {
    /// The line is not compared by meaning.
    NotCompared,
    /// The embedder was away: [`EpisodeStore::list_unembedded`] has the line.
    Missing,
    Stored(Embedding),
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
    /// Rows with a higher `seq`.
    pub after: i64,
    /// The most rows.
    pub rows: u32,
}

/// A stored episode. Except for its vector, a row never changes; whether the episode stands is not part of the row.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeRow {
    /// The order of the writes of the pair's episodes.
    pub seq: i64,
    pub episode: Episode,
    /// The embedder's model. `None`: the line is not compared by meaning. Empty: the vector is missing.
    pub model: Option<String>,
    /// Empty without a vector.
    pub vector: Arc<[f32]>,
}

/// Episodes of a pair.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FoundEpisodes {
    /// The turns of standing episodes: of the newest and of the most important.
    pub standing: BTreeSet<TurnId>,
    /// The newest rows after `after`, in no particular order. Their episodes may be lifted.
    pub rows: Vec<EpisodeRow>,
}

/// Episodes. Their writes are part of other writes: with the facts of a turn
/// ([`Reconciliation`](super::facts::Reconciliation)), or, for a turn without an extraction, with the turn itself. A second
/// episode of the same turn is not written. A rewind lifts the episodes of unsaid turns, and reinstates those of turns that
/// stand again.
#[async_trait]
pub trait EpisodeStore: Send + Sync {
    /// Returns which episodes stand, for a turn's prompt, and the rows that the caller has not read yet, in one trip.
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
    /// Returns at most `limit` texts whose vector is missing or from another model than `model`, in the order of the
    /// turns' ids after `after`.
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
