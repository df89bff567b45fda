//! Consolidation of a world's facts: `/v1/worlds/{w}/consolidation:run`.

use actix_web::{HttpResponse, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Path},
    uncancelled::run_uncancelled,
    worlds,
};
use colloquy_core::ids::WorldId;
use colloquy_dialogue::remember::queue_consolidations;

/// What was queued.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConsolidationRunView {
    /// The queued jobs, one for each turn with the newest fact of a group that has changed since its last consolidation.
    /// 0: no group has changed.
    queued: u32,
}

/// Looks through a world's old facts, and queues the consolidation of those that have changed.
///
/// A model puts facts about the same topic into one fact, whose `derived_from` names them. The importance of these facts
/// becomes lower. The jobs run after the answer, within the budget of `curation` in the settings. Facts are old
/// `curation.consolidate_after_d` days after the end of their week.
#[utoipa::path(
    tag = "facts",
    params(("world" = String, Path)),
    responses((status = 202, body = ConsolidationRunView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/consolidation:run")]
pub async fn run_consolidation(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let world = worlds::find_world(&state, &caller, &path.0).await?;
        let queued = queue_consolidations(&state.services, &caller.scope, &world.id).await?;
        Ok(HttpResponse::Accepted().json(ConsolidationRunView { queued }))
    })
    .await
}
