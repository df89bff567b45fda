//! `GET /v1/audit`: changes, with their author and time.

use actix_web::{HttpResponse, get, web};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    AppState,
    errors::Problem,
    extract::{Administrator, Authorized, QueryParams},
    pagination::{self, Items},
};
use colloquy_core::{
    ids::{AuditId, PlayerId},
    scope::Role,
};
use colloquy_ports::ledger::audit::AuditRow;

/// A line of the audit log. Objects are named by their ids; a line contains no texts.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditView {
    #[schema(value_type = String)]
    id: AuditId,
    at: DateTime<Utc>,
    subject: String,
    role: Role,
    /// The player of the token, or the player named by a backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    player_id: Option<PlayerId>,
    action: String,
    object: String,
}

impl From<AuditRow> for AuditView {
    fn from(row: AuditRow) -> Self {
        Self {
            id: row.id,
            at: row.at,
            subject: row.subject,
            role: row.role,
            player_id: row.player,
            action: row.action,
            object: row.object,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// 1–200; default 50.
    limit: Option<u32>,
    /// `next` of the previous page.
    after: Option<String>,
}

/// Lists the audit log, newest first.
#[utoipa::path(
    tag = "operation",
    params(AuditQuery),
    responses((status = 200, body = Items<AuditView>)),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[get("/v1/audit")]
pub async fn list_audit(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    query: QueryParams<AuditQuery>,
) -> Result<HttpResponse, Problem> {
    let page = pagination::parse_page::<AuditId>(&state, query.0.limit, query.0.after)?;
    let found = state
        .services
        .ledger
        .audit
        .list_audit_rows(&caller.scope, &page)
        .await?;
    Ok(HttpResponse::Ok().json(Items::from_page(found, AuditView::from)))
}
