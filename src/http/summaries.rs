//! `GET /v1/sessions/{id}/summaries`.

use actix_web::{HttpResponse, get, web};

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Path},
    pagination::Items,
    reachable_sessions::reachable_session,
};
use colloquy_core::{ids::DialogueId, scope::TenantScope};
use colloquy_memory::summary::Summary;

/// Lists the stored summaries in time order.
#[utoipa::path(
    tag = "sessions",
    params(("session" = String, Path)),
    responses((status = 200, body = Items<Summary>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/sessions/{session}/summaries")]
pub async fn list_summaries(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<DialogueId>,
) -> Result<HttpResponse, Problem> {
    reachable_session(&state, &caller.principal, path.0).await?;
    respond_with_summaries(&state, &caller.scope, path.0).await
}

/// Answers with the summaries of a dialogue.
pub async fn respond_with_summaries(
    state: &AppState,
    scope: &TenantScope,
    id: DialogueId,
) -> Result<HttpResponse, Problem> {
    let stored = state.services.ledger.summaries.load_summaries(scope, id).await?;
    Ok(HttpResponse::Ok().json(Items::only_page(stored)))
}
