//! `GET /v1/audit`: changes, with their author and time.

use actix_web::{HttpResponse, get, web};

use super::{
    AppState,
    errors::Problem,
    extract::{Administrator, Authorized, QueryParams},
    pagination::{Items, PageQuery},
};
use colloquy_core::ids::AuditId;
use colloquy_ports::ledger::audit::AuditRow;

/// Lists the audit log, newest first.
#[utoipa::path(
    tag = "operation",
    params(PageQuery),
    responses((status = 200, body = Items<AuditRow>)),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[get("/v1/audit")]
pub async fn list_audit(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<AuditId>()?;
    let audit = &state.services.ledger.audit;
    let rows = audit.list_audit_rows(&caller.scope, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from(rows)))
}
