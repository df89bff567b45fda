//! Tenants: `/v1/tenants`, for the operator. The operator has no access to a tenant's content.

use actix_web::{HttpRequest, HttpResponse, get, patch, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{Code, Problem},
    etag::{self, IfMatch},
    extract::{Authorized, Body, OperatorOnly, Path, QueryParams},
    idempotency::{self, IdempotentResponse},
    pagination::{Items, PageQuery},
    refusals::publish_tenant_change,
    uncancelled::run_uncancelled,
    validate::display_name,
};
use colloquy_core::ids::TenantId;
use colloquy_ports::ledger::{
    audit::Edit,
    tenants::{Tenant, TenantChange, TenantEditOutcome},
    usage::TenantBudget,
};

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct TenantView {
    #[schema(value_type = String)]
    id: TenantId,
    name: String,
    /// Tokens of a disabled tenant are refused.
    enabled: bool,
    /// The tenant's own budget, if different from the default.
    budget: Option<BudgetBody>,
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
            budget: tenant.budget.map(BudgetBody::from),
            version: tenant.version,
            created_at: tenant.created_at,
        }
    }
}

/// The budget of a tenant. An omitted limit uses the default (`[budgets]` of the configuration); 0: no limit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct BudgetBody {
    /// Tokens of all model calls and embeddings of a day (UTC).
    #[garde(inner(range(max = MAX_BUDGET)))]
    #[schema(maximum = 1_000_000_000_000u64)]
    tokens_per_day: Option<u64>,
    /// The cost of all calls of a day (UTC), in the currency of `llm.prices`.
    #[garde(inner(range(min = 0.0, max = 1e12)))]
    #[schema(minimum = 0, maximum = 1_000_000_000_000u64)]
    cost_per_day: Option<f64>,
    /// Stored sessions and NPC conversations.
    #[garde(inner(range(max = MAX_BUDGET)))]
    #[schema(maximum = 1_000_000_000_000u64)]
    dialogues: Option<u64>,
    /// Stored turns, including turns that were taken back.
    #[garde(inner(range(max = MAX_BUDGET)))]
    #[schema(maximum = 1_000_000_000_000u64)]
    turns: Option<u64>,
    /// Worlds that are not deleted.
    #[garde(inner(range(max = MAX_BUDGET)))]
    #[schema(maximum = 1_000_000_000_000u64)]
    worlds: Option<u64>,
    /// Bytes of what people write: worlds, NPCs, lore, scenarios, directives, facts, and saves. An object counts 1,024
    /// bytes and its texts.
    #[garde(inner(range(max = MAX_BUDGET)))]
    #[schema(maximum = 1_000_000_000_000u64)]
    authored_bytes: Option<u64>,
}

const MAX_BUDGET: u64 = 1_000_000_000_000;

impl From<TenantBudget> for BudgetBody {
    fn from(budget: TenantBudget) -> Self {
        Self {
            tokens_per_day: budget.tokens_per_day,
            cost_per_day: budget.cost_per_day,
            dialogues: budget.dialogues,
            turns: budget.turns,
            worlds: budget.worlds,
            authored_bytes: budget.authored_bytes,
        }
    }
}

impl BudgetBody {
    /// A cost can be limited only if every model has a price.
    fn into_budget(self, state: &AppState) -> Result<TenantBudget, Problem> {
        if self.cost_per_day.is_some_and(|cost| cost > 0.0)
            && let Some(model) = state
                .services
                .models
                .find_unpriced_model(state.services.embedder.info())
        {
            let detail = format!("needs a price of `{model}` in llm.prices");
            return Err(Problem::invalid_field("budget.cost_per_day", detail));
        }
        Ok(TenantBudget {
            tokens_per_day: self.tokens_per_day,
            cost_per_day: self.cost_per_day,
            dialogues: self.dialogues,
            turns: self.turns,
            worlds: self.worlds,
            authored_bytes: self.authored_bytes,
        })
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
    #[garde(inner(length(chars, max = 200), custom(display_name)))]
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
    /// Default true.
    enabled: Option<bool>,
    /// Default: the budget of the configuration.
    #[garde(dive)]
    #[schema(inline)]
    budget: Option<BudgetBody>,
}

/// Changes of a tenant; omitted fields stay unchanged.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct TenantPatchBody {
    /// One line.
    #[garde(inner(length(chars, max = 200), custom(display_name)))]
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
    /// False: the tenant's tokens are refused from now on. Open sockets and streams of the tenant close with 4401.
    enabled: Option<bool>,
    /// Replaces the whole budget; `{}`: the budget of the configuration.
    #[garde(dive)]
    #[schema(inline)]
    budget: Option<BudgetBody>,
}

/// Makes a written budget count at once. If the read fails, a later read follows soon.
async fn refresh_budgets(state: &AppState) {
    let services = &state.services;
    if let Err(error) = services.models.budgets().refresh_from_ledger(&services.ledger).await {
        tracing::warn!(%error, "budgets could not be read");
    }
}

/// Creates a tenant.
#[utoipa::path(
    tag = "tenants",
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the first answer")),
    request_body = TenantBody,
    responses((status = 201, body = TenantView), (status = 409, description = "The tenant exists already (`tenant_exists`), or the same request is being handled")),
    extensions(("x-roles" = json!(["operator"]))),
)]
#[post("/v1/tenants")]
pub async fn create_tenant(
    state: web::Data<AppState>,
    caller: Authorized<OperatorOnly>,
    request: HttpRequest,
    body: Body<TenantBody>,
) -> Result<HttpResponse, Problem> {
    let raw = body.raw.clone();
    let body = body.value;
    let budget = body.budget.map(|budget| budget.into_budget(&state)).transpose()?;
    let work = {
        let state = state.clone();
        let principal = caller.principal.clone();
        async move {
            let services = &state.services;
            let tenant = Tenant {
                name: body.name.unwrap_or_else(|| body.id.to_string()),
                enabled: body.enabled.unwrap_or(true),
                budget,
                created_at: services.clock.now(),
                version: 1,
                id: body.id,
            };
            let edit = Edit::made_by(
                &principal,
                &services.ids,
                tenant.created_at,
                "tenant.create",
                &tenant.id,
            );
            if !services.ledger.tenants.create_tenant(&tenant, &edit).await? {
                let detail = format!("there is a tenant {} already", tenant.id);
                return Err(Problem::new(Code::TenantExists, detail).with_param("id"));
            }
            refresh_budgets(&state).await;
            // A caller may have used a token of this tenant before.
            publish_tenant_change(&state, &tenant.id, tenant.enabled).await;
            let location = format!("/v1/tenants/{}", tenant.id);
            IdempotentResponse::created(&TenantView::from(tenant), location)
        }
    };
    idempotency::run_once(&state, &caller.principal, &request, &raw, work).await
}

/// Lists all tenants, by id.
#[utoipa::path(
    tag = "tenants",
    params(PageQuery),
    responses((status = 200, body = Items<TenantView>)),
    extensions(("x-roles" = json!(["operator"]))),
)]
#[get("/v1/tenants")]
pub async fn list_tenants(
    state: web::Data<AppState>,
    _: Authorized<OperatorOnly>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<TenantId>()?;
    let page_of_tenants = state.services.ledger.tenants.list_tenants(&page).await?;
    Ok(HttpResponse::Ok().json(Items::from_page(page_of_tenants, TenantView::from)))
}

/// Returns a tenant.
#[utoipa::path(
    tag = "tenants",
    params(("tenant" = String, Path)),
    responses((status = 200, body = TenantView)),
    extensions(("x-roles" = json!(["operator"]))),
)]
#[get("/v1/tenants/{tenant}")]
pub async fn get_tenant(
    state: web::Data<AppState>,
    _: Authorized<OperatorOnly>,
    path: Path<TenantId>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let tenant = state.services.ledger.tenants.load_tenant(&path.0).await?;
    let tenant = tenant.ok_or_else(|| Problem::not_found("tenant"))?;
    Ok(etag::respond_found(&request, tenant.version, &TenantView::from(tenant)))
}

/// Renames, disables or enables a tenant, or changes its budget.
///
/// Other nodes apply a new budget within seconds.
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
    caller: Authorized<OperatorOnly>,
    path: Path<TenantId>,
    request: HttpRequest,
    body: Body<TenantPatchBody>,
) -> Result<HttpResponse, Problem> {
    let if_match = IfMatch::from_request(&request)?;
    let id = path.0;
    let budget = body.value.budget.map(|budget| budget.into_budget(&state)).transpose()?;
    let change = TenantChange {
        name: body.value.name,
        enabled: body.value.enabled,
        budget,
    };
    if change.enabled == Some(false) && id == caller.principal.tenant {
        return Err(Problem::invalid_field(
            "enabled",
            "is that of your own token's tenant: nobody with such a token could enable it again",
        ));
    }
    run_uncancelled(async move {
        let action = match change.enabled {
            Some(true) => "tenant.enable",
            Some(false) => "tenant.disable",
            None => "tenant.edit",
        };
        let edit = caller.new_edit(&state, action, &id);
        let tenants = &state.services.ledger.tenants;
        let version = if_match.expected_version();
        match tenants.change_tenant(&id, &change, version, &edit).await? {
            TenantEditOutcome::NotFound => Err(Problem::not_found("tenant")),
            TenantEditOutcome::VersionMismatch { stored } => Err(etag::version_mismatch_error(stored)),
            TenantEditOutcome::Done(tenant) => {
                refresh_budgets(&state).await;
                publish_tenant_change(&state, &id, tenant.enabled).await;
                let version = tenant.version;
                Ok(etag::respond_stored(false, "", version, &TenantView::from(tenant)))
            }
        }
    })
    .await
}
