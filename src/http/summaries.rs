//! `GET /v1/sessions/{id}/summaries`.

use actix_web::{HttpResponse, get, web};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Path},
    pagination::Items,
    sessions,
};
use colloquy_core::ids::{DialogueId, SummaryId};
use colloquy_memory::{fact::Importance, summary::Summary};

/// A dated digest of older turns.
#[derive(Debug, Serialize, ToSchema)]
pub struct SummaryView {
    #[schema(value_type = String)]
    id: SummaryId,
    from_turn: u32,
    to_turn: u32,
    text: String,
    #[schema(value_type = u8, minimum = 1, maximum = 10)]
    importance: Importance,
    created_at: DateTime<Utc>,
}

impl From<Summary> for SummaryView {
    fn from(summary: Summary) -> Self {
        Self {
            id: summary.id,
            from_turn: summary.from_turn,
            to_turn: summary.to_turn,
            text: summary.text,
            importance: summary.importance,
            created_at: summary.created_at,
        }
    }
}

/// Lists the stored summaries in time order.
#[utoipa::path(
    tag = "sessions",
    params(("session" = String, Path)),
    responses((status = 200, body = Items<SummaryView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/sessions/{session}/summaries")]
pub async fn list_summaries(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<DialogueId>,
) -> Result<HttpResponse, Problem> {
    sessions::reachable_session(&state, &caller.principal, path.0).await?;
    let kept = state
        .services
        .ledger
        .summaries
        .load_summaries(&caller.scope, path.0)
        .await?;
    Ok(HttpResponse::Ok().json(Items {
        items: kept.into_iter().map(SummaryView::from).collect(),
        next: None,
    }))
}
