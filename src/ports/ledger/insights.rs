//! Insights: what NPCs have learned from their dialogues, by curation passes.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{audit::Edit, dialogues::Dialogue};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{InsightId, NpcId, PlayerId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::insight::{EarlierInsight, Insight};

/// Which insights of an NPC a list has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InsightFilter<'a> {
    /// Only those about this entity, compared without case, articles and particles.
    pub entity: Option<&'a str>,
    /// Only those from sessions with this player.
    pub player: Option<&'a PlayerId>,
}

/// Insights. A curation pass writes them ([`PassCommit`](super::curation::PassCommit)), and a rewind of their cause
/// takes them back. The methods return the insights that count: of a dialogue's about an entity on a day the newest,
/// without those in whose place a later one stands, and of an NPC's with a player, or from NPC conversations, the
/// newest [`MAX_INSIGHTS`](colloquy_memory::insight::MAX_INSIGHTS). No write removes the others, so a rewind brings
/// them back. An insight that stands in the place of another counts while the turns of both stand.
#[async_trait]
pub trait InsightStore: Send + Sync {
    /// Returns the insights of an NPC from sessions with the player, and from NPC conversations, newest first. One with
    /// an empty text tells that older ones about the entity do not hold.
    async fn load_insights(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: Option<&PlayerId>,
    ) -> StoreResult<Vec<EarlierInsight>>;
    /// Returns the insights that a pass over a dialogue is shown, up to a time (inclusive), newest first: those of a
    /// player and an NPC from all their sessions, or those of the dialogue alone if it has several NPCs or no player.
    /// They are the rows of the first NPC.
    async fn load_earlier_insights(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
        until: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<EarlierInsight>>;
    /// Returns the insights of an NPC with all players, newest first. The cursor is the id of an insight.
    async fn list_insights(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        filter: InsightFilter<'_>,
        page: &PageRequest,
    ) -> StoreResult<Page<Insight>>;
    /// Deletes an insight for good, with the older ones that it replaced, and stores the audit row. Returns `false` if
    /// the NPC has no such insight.
    async fn delete_insight(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        insight: InsightId,
        edit: &Edit,
    ) -> StoreResult<bool>;
}
