//! Tenants: `/v1/tenants`. The operator's; what is in a tenant is none of the operator's business.

use actix_web::{HttpRequest, HttpResponse, get, patch, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{Code, Problem},
    etag::{self, IfMatch},
    extract::{Body, Caller, OperatorOnly, Path, Query},
    idempotency::{self, Answer},
    pagination::{self, Items, PageQuery},
    standing, to_the_end,
    validate::display_name,
};
use crate::{
    ids::TenantId,
    ports::ledger::{
        audit::Edit,
        tenants::{Tenant, TenantChange, TenantEdit},
    },
};

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct TenantView {
    #[schema(value_type = String)]
    id: TenantId,
    name: String,
    /// Tokens of a disabled tenant are refused.
    enabled: bool,
    /// The `ETag`, as a number.
    version: u32,
    created_at: DateTime<Utc>,
}

impl From<Tenant> for TenantView {
    fn from(tenant: Tenant) -> Self {
        Self {
            id: tenant.id,
            name: tenant.name,
            enabled: tenant.enabled,
            version: tenant.version,
            created_at: tenant.created_at,
        }
    }
}

/// A new tenant.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct TenantBody {
    #[schema(value_type = String, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    id: TenantId,
    /// One line; default: the id.
    #[serde(default)]
    #[garde(inner(length(chars, max = 200), custom(display_name)))]
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
    /// Default true.
    #[serde(default)]
    enabled: Option<bool>,
}

/// What to change of a tenant; what is left out stays.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct TenantPatchBody {
    /// One line.
    #[serde(default)]
    #[garde(inner(length(chars, max = 200), custom(display_name)))]
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
    /// False: its tokens are refused from now on, and its open sockets and streams close with 4401.
    #[serde(default)]
    enabled: Option<bool>,
}

fn missing() -> Problem {
    Problem::not_found("tenant")
}

/// Makes a tenant.
#[utoipa::path(
    tag = "tenants",
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the first answer")),
    request_body = TenantBody,
    responses((status = 201, body = TenantView), (status = 409, description = "There is such a tenant already (`tenant_exists`), or the same request is being handled")),
    extensions(("x-roles" = json!(["operator"]))),
)]
#[post("/v1/tenants")]
pub async fn create_tenant(
    state: web::Data<AppState>,
    caller: Caller<OperatorOnly>,
    request: HttpRequest,
    body: Body<TenantBody>,
) -> Result<HttpResponse, Problem> {
    let raw = body.raw.clone();
    let body = body.value;
    let work = {
        let (state, who) = (state.clone(), caller.principal.clone());
        async move {
            let services = &state.services;
            let tenant = Tenant {
                name: body.name.unwrap_or_else(|| body.id.to_string()),
                enabled: body.enabled.unwrap_or(true),
                created_at: services.clock.now(),
                version: 1,
                id: body.id,
            };
            let edit = Edit::by(&who, &services.ids, tenant.created_at, "tenant.create", &tenant.id);
            if !services.ledger.tenants.create(&tenant, &edit).await? {
                let detail = format!("there is a tenant {} already", tenant.id);
                return Err(Problem::new(Code::TenantExists, detail).param("id"));
            }
            // Somebody may have come with a token of it before.
            standing::tell_of_tenant(&state, &tenant.id, tenant.enabled).await;
            let location = format!("/v1/tenants/{}", tenant.id);
            Answer::created(&TenantView::from(tenant), location)
        }
    };
    idempotency::once(&state, &caller.principal, &request, &raw, work).await
}

/// All tenants, by id.
#[utoipa::path(
    tag = "tenants",
    params(PageQuery),
    responses((status = 200, body = Items<TenantView>)),
    extensions(("x-roles" = json!(["operator"]))),
)]
#[get("/v1/tenants")]
pub async fn list_tenants(
    state: web::Data<AppState>,
    _: Caller<OperatorOnly>,
    query: Query<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = pagination::page::<TenantId>(&state, query.0.limit, query.0.after)?;
    let found = state.services.ledger.tenants.list(&page).await?;
    Ok(HttpResponse::Ok().json(Items::of(found, TenantView::from)))
}

/// A tenant.
#[utoipa::path(
    tag = "tenants",
    params(("tenant" = String, Path)),
    responses((status = 200, body = TenantView)),
    extensions(("x-roles" = json!(["operator"]))),
)]
#[get("/v1/tenants/{tenant}")]
pub async fn get_tenant(
    state: web::Data<AppState>,
    _: Caller<OperatorOnly>,
    path: Path<TenantId>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let tenant = state.services.ledger.tenants.get(&path.0).await?.ok_or_else(missing)?;
    Ok(etag::found(&request, tenant.version, &TenantView::from(tenant)))
}

/// Renames, disables or enables a tenant.
#[utoipa::path(
    tag = "tenants",
    params(("tenant" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *")),
    request_body = TenantPatchBody,
    responses((status = 200, body = TenantView), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["operator"]))),
)]
#[patch("/v1/tenants/{tenant}")]
pub async fn edit_tenant(
    state: web::Data<AppState>,
    caller: Caller<OperatorOnly>,
    path: Path<TenantId>,
    request: HttpRequest,
    body: Body<TenantPatchBody>,
) -> Result<HttpResponse, Problem> {
    let wanted = IfMatch::of(&request)?;
    let id = path.0;
    let change = TenantChange {
        name: body.value.name,
        enabled: body.value.enabled,
    };
    if change.enabled == Some(false) && id == caller.principal.tenant {
        return Err(Problem::field(
            "enabled",
            "is that of your own token's tenant: nobody with such a token could enable it again",
        ));
    }
    to_the_end(async move {
        let services = &state.services;
        let action = match change.enabled {
            Some(true) => "tenant.enable",
            Some(false) => "tenant.disable",
            None => "tenant.edit",
        };
        let edit = Edit::by(&caller.principal, &services.ids, services.clock.now(), action, &id);
        match services
            .ledger
            .tenants
            .change(&id, &change, wanted.version(), &edit)
            .await?
        {
            TenantEdit::NotFound => Err(missing()),
            TenantEdit::VersionMismatch { stored } => Err(etag::mismatch(stored)),
            TenantEdit::Done(tenant) => {
                standing::tell_of_tenant(&state, &id, tenant.enabled).await;
                Ok(etag::stored(false, "", tenant.version, &TenantView::from(tenant)))
            }
        }
    })
    .await
}
