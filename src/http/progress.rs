//! Players' progress with NPCs: `/v1/worlds/{w}/players/{p}/progress/{n}`.

use actix_web::{HttpResponse, get, put, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Body, Path},
    npcs,
    uncancelled::run_uncancelled,
    worlds,
};
use colloquy_core::ids::{NpcId, PlayerId, WorldId};
use colloquy_dialogue::knowledge::scenarios;
use colloquy_memory::{
    authored::{Npc, World},
    progress::Progress,
};

/// The progress that the backend sets.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct ProgressBody {
    #[garde(range(max = 1_000_000))]
    #[schema(minimum = 0, maximum = 1_000_000)]
    progress: u32,
}

/// The progress of a player with an NPC.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProgressView {
    #[schema(value_type = String)]
    world_id: WorldId,
    #[schema(value_type = String)]
    player_id: PlayerId,
    #[schema(value_type = String)]
    npc_id: NpcId,
    /// The effective progress: the higher of `set` and the progress from the world's `unlocks` rules.
    progress: u32,
    /// The progress that the backend set last; 0 if unset.
    set: u32,
}

async fn respond_with_progress(
    state: &AppState,
    caller: &Authorized<Author>,
    world: &World,
    npc: &Npc,
    player_id: PlayerId,
) -> Result<HttpResponse, Problem> {
    let standing = scenarios::player_standing(&state.services, &caller.scope, world, npc, &player_id).await?;
    Ok(HttpResponse::Ok().json(ProgressView {
        world_id: world.id.clone(),
        player_id,
        npc_id: npc.id.clone(),
        progress: standing.progress().get(),
        set: standing.backend_progress().get(),
    }))
}

async fn find_world_and_npc(
    state: &AppState,
    caller: &Authorized<Author>,
    world: &WorldId,
    npc: &NpcId,
) -> Result<(World, Npc), Problem> {
    let world = worlds::find_world(state, caller, world).await?;
    let npc = npcs::find_npc(state, caller, &world.id, npc).await?;
    Ok((world, npc))
}

/// Returns the progress of a player with an NPC.
#[utoipa::path(
    tag = "scenarios",
    params(("world" = String, Path), ("player" = String, Path), ("npc" = String, Path)),
    responses((status = 200, body = ProgressView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/players/{player}/progress/{npc}")]
pub async fn get_progress(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, PlayerId, NpcId)>,
) -> Result<HttpResponse, Problem> {
    let (world, player, npc) = path.0;
    let (world, npc) = find_world_and_npc(&state, &caller, &world, &npc).await?;
    respond_with_progress(&state, &caller, &world, &npc, player).await
}

/// Sets the progress of a player with an NPC, higher or lower.
///
/// Interrupts and restored saves do not change this value. The effective progress is the higher of this value and the
/// progress from the world's `unlocks` rules.
#[utoipa::path(
    tag = "scenarios",
    params(("world" = String, Path), ("player" = String, Path), ("npc" = String, Path)),
    request_body = ProgressBody,
    responses((status = 200, body = ProgressView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/worlds/{world}/players/{player}/progress/{npc}")]
pub async fn put_progress(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, PlayerId, NpcId)>,
    body: Body<ProgressBody>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let (world_id, player, npc_id) = path.0;
        let (world, npc) = find_world_and_npc(&state, &caller, &world_id, &npc_id).await?;
        let edit = caller.new_edit(&state, "progress.put", format!("{world_id}/{player}/{npc_id}"));
        let to = Progress::new(body.value.progress).unwrap_or_default();
        scenarios::set_progress(&state.services, &caller.scope, (&world, &npc), &player, to, &edit).await?;
        respond_with_progress(&state, &caller, &world, &npc, player).await
    })
    .await
}
