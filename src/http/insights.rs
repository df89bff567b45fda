//! Insights of an NPC: `/v1/worlds/{w}/npcs/{n}/insights`. Never for players.

use actix_web::{HttpResponse, delete, get, web};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Path, QueryParams},
    npcs,
    pagination::{Items, list_query},
    uncancelled::run_uncancelled,
};
use colloquy_core::ids::{DialogueId, InsightId, NpcId, PlayerId, WorldId};
use colloquy_memory::insight::Insight;
use colloquy_ports::ledger::insights::InsightFilter;

/// What an NPC has learned about an entity.
#[derive(Debug, Serialize, ToSchema)]
pub struct InsightView {
    #[schema(value_type = String)]
    id: InsightId,
    /// `player:<id>`, or the name of an NPC, a place or another thing.
    entity: String,
    /// The day of the last turn that the pass read, as in `0212-02-15`: by the world's clock, or in UTC without a clock.
    day: String,
    /// One sentence of at most 200 characters.
    text: String,
    /// The player of the session, the only one with whom the NPC uses the insight. `null`: from an NPC conversation.
    #[schema(value_type = Option<String>)]
    player_id: Option<PlayerId>,
    #[schema(value_type = String)]
    dialogue_id: DialogueId,
    /// The number of the last turn that the pass read.
    turn: u32,
    /// The numbers of the turns that the insight rests on. It is forgotten with what they told.
    turns: Vec<u32>,
    /// When this turn was committed.
    #[serde(rename = "at")]
    committed_at: DateTime<Utc>,
}

impl From<Insight> for InsightView {
    fn from(insight: Insight) -> Self {
        Self {
            id: insight.id,
            entity: insight.entity,
            day: insight.day,
            text: insight.text,
            player_id: insight.player,
            dialogue_id: insight.dialogue,
            turn: insight.number,
            turns: insight.turns,
            committed_at: insight.last_turn_at,
        }
    }
}

list_query! {
    pub struct InsightsQuery {
        /// Only those about this entity: `player:<id>` or a name, compared without case and articles.
        entity: Option<String>,
        /// Only those from sessions with this player.
        #[param(value_type = Option<String>)]
        player_id: Option<PlayerId>,
    }
}

/// Lists what an NPC has learned from its dialogues, by curation passes, newest first.
///
/// The list has the newest insight of each dialogue, entity and day, and at most 50 from sessions with the same player
/// or from NPC conversations. The texts are as they were written. Prompts leave out what was forgotten since, and what
/// is locked for the player.
#[utoipa::path(
    tag = "facts",
    params(("world" = String, Path), ("npc" = String, Path), InsightsQuery),
    responses((status = 200, body = Items<InsightView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/npcs/{npc}/insights")]
pub async fn list_insights(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
    query: QueryParams<InsightsQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<InsightId>()?;
    let npc = npcs::find_npc(&state, &caller, &path.0.0, &path.0.1).await?;
    let filter = InsightFilter {
        entity: query.0.entity.as_deref(),
        player: query.0.player_id.as_ref(),
    };
    let store = &state.services.ledger.insights;
    let insights = store
        .list_insights(&caller.scope, &npc.world, &npc.id, filter, &page)
        .await?;
    Ok(HttpResponse::Ok().json(Items::from_page(insights, InsightView::from)))
}

/// Deletes an insight for good, with the older ones of the same entity and day that it replaced.
#[utoipa::path(
    tag = "facts",
    params(("world" = String, Path), ("npc" = String, Path), ("insight" = String, Path)),
    responses((status = 204), (status = 404, description = "No such insight, or its turns were taken back")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[delete("/v1/worlds/{world}/npcs/{npc}/insights/{insight}")]
pub async fn delete_insight(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId, InsightId)>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let (world, npc, insight) = path.0;
        let npc = npcs::find_npc(&state, &caller, &world, &npc).await?;
        let edit = caller.new_edit(&state, "insight.delete", insight);
        let store = &state.services.ledger.insights;
        let deleted = store
            .delete_insight(&caller.scope, &npc.world, &npc.id, insight, &edit)
            .await?;
        if !deleted {
            return Err(Problem::not_found("insight"));
        }
        Ok(HttpResponse::NoContent().finish())
    })
    .await
}
