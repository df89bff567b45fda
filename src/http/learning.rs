//! `GET /v1/sessions/{id}/learning`: how far NPCs have learned from a session.

use actix_web::{HttpResponse, get, web};

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Path},
    reachable_sessions::reachable_session,
};
use colloquy_core::ids::DialogueId;
use colloquy_ports::ledger::jobs::LearningProgress;

/// Returns how far NPCs have learned from the turns of a session: the progress of an imported talk.
///
/// In sessions that wait for playback, as those of chat programs do, the last turn waits for the next line, or for a
/// minute.
#[utoipa::path(
    tag = "sessions",
    params(("session" = String, Path)),
    responses((status = 200, body = LearningProgress)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/sessions/{session}/learning")]
pub async fn get_learning(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<DialogueId>,
) -> Result<HttpResponse, Problem> {
    reachable_session(&state, &caller.principal, path.0).await?;
    let jobs = &state.services.ledger.jobs;
    let progress = jobs.load_learning_progress(&caller.scope, path.0).await?;
    let progress = progress.ok_or_else(|| Problem::not_found("session"))?;
    Ok(HttpResponse::Ok().json(progress))
}
