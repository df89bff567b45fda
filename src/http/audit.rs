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
    responses((status = 200, body = Items<AuditRow>)),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[get("/v1/audit")]
pub async fn list_audit(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    query: QueryParams<AuditQuery>,
) -> Result<HttpResponse, Problem> {
    let page = pagination::parse_page::<AuditId>(&state, query.0.limit, query.0.after)?;
    let audit = &state.services.ledger.audit;
    let found = audit.list_audit_rows(&caller.scope, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from(found)))
}
