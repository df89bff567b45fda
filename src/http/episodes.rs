//! `GET /v1/worlds/{w}/npcs/{n}/episodes`: one line about each turn of an NPC with a player. Never for players.

use actix_web::{HttpResponse, get, web};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Path, QueryParams},
    npcs,
    pagination::{Items, list_query},
};
use colloquy_core::ids::{DialogueId, NpcId, PlayerId, TurnId, WorldId};
use colloquy_memory::{episode::Episode, fact::Importance};
use colloquy_ports::ledger::episodes::EpisodePair;

/// What happened or was said in one turn.
#[derive(Debug, Serialize, ToSchema)]
pub struct EpisodeView {
    #[schema(value_type = String)]
    turn_id: TurnId,
    #[schema(value_type = String)]
    dialogue_id: DialogueId,
    /// The number of the turn in its dialogue.
    turn: u32,
    /// Where the player was, or else the NPC.
    place: Option<String>,
    /// One sentence of at most 200 characters.
    text: String,
    #[schema(value_type = u8, minimum = 1, maximum = 10)]
    importance: Importance,
    /// When the turn was committed.
    #[serde(rename = "at")]
    committed_at: DateTime<Utc>,
}

impl From<Episode> for EpisodeView {
    fn from(episode: Episode) -> Self {
        Self {
            turn_id: episode.turn,
            dialogue_id: episode.dialogue,
            turn: episode.number,
            place: episode.place,
            text: episode.text,
            importance: episode.importance,
            committed_at: episode.committed_at,
        }
    }
}

list_query! {
    pub struct EpisodesQuery {
        /// The player; an NPC has episodes of its own with each player.
        #[param(value_type = String)]
        player_id: PlayerId,
    }
}

/// Lists what happened between an NPC and a player, one line per turn, newest first.
///
/// The texts are as they were written. Prompts leave out what was forgotten since, and what is locked for the player.
#[utoipa::path(
    tag = "facts",
    params(("world" = String, Path), ("npc" = String, Path), EpisodesQuery),
    responses((status = 200, body = Items<EpisodeView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/npcs/{npc}/episodes")]
pub async fn list_episodes(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
    query: QueryParams<EpisodesQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<TurnId>()?;
    let npc = npcs::find_npc(&state, &caller, &path.0.0, &path.0.1).await?;
    let pair = EpisodePair {
        world: &npc.world,
        npc: &npc.id,
        player: &query.0.player_id,
    };
    let episodes = state
        .services
        .ledger
        .episodes
        .list_episodes(&caller.scope, pair, &page)
        .await?;
    Ok(HttpResponse::Ok().json(Items::from_page(episodes, EpisodeView::from)))
}
