//! The settings of tiers: of the tenant, and how the settings of all tiers come together.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, get, put, web};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    AppState,
    errors::Problem,
    etag::{self, IfMatch},
    extract::{Author, Authorized, Body, Path, QueryParams},
    npcs,
    pagination::collect_pages,
    reachable_sessions::reachable_session,
    setting_bodies::TierSettingsBody,
    uncancelled::run_uncancelled,
    worlds,
};
use colloquy_core::{
    ids::{DialogueId, NpcId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{TenantTier, TierSettings, World, WorldSettings},
    tiers::{EffectiveValue, Tier, effective_values},
};
use colloquy_ports::StoreResult;

/// The settings of a tier.
#[derive(Debug, Serialize, ToSchema)]
pub struct TierView {
    tier: Tier,
    /// The settings of this tier alone.
    #[schema(inline, value_type = WorldSettings)]
    settings: Value,
    /// With `?effective=true`: each value by its name, such as `recall.top_k`, with the tier that sets the value. Values
    /// that no tier sets and the configuration does not have are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    effective: Option<BTreeMap<String, EffectiveValue>>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TierQuery {
    /// True: also the values in effect, with their tiers. Default false.
    #[serde(default)]
    effective: bool,
}

/// The tiers of a view, from the uppermost to the lowest, each with its settings.
#[derive(Default)]
struct Tiers(Vec<(Tier, Value)>);

impl Tiers {
    /// Adds a lower tier.
    fn with(mut self, tier: Tier, settings: &impl Serialize) -> Result<Self, Problem> {
        let settings = serde_json::to_value(settings).map_err(|error| Problem::internal_error(&error))?;
        self.0.push((tier, settings));
        Ok(self)
    }

    /// The tiers down to a world.
    fn of_world(world: &World) -> Result<Self, Problem> {
        let tenant = Self::default().with(Tier::Tenant, &world.tenant.settings)?;
        tenant.with(Tier::World, &world.settings)
    }

    /// Builds the view of the lowest tier.
    fn view(mut self, state: &AppState, query: &TierQuery) -> Result<TierView, Problem> {
        let Some((tier, settings)) = self.0.last().cloned() else {
            return Err(Problem::not_found("settings"));
        };
        let effective = query.effective.then(|| {
            let defaults = (Tier::Configuration, state.services.settings.tier_defaults());
            self.0.insert(0, defaults);
            effective_values(&self.0)
        });
        Ok(TierView {
            tier,
            settings,
            effective,
        })
    }
}

/// Replaces the settings of the tenant, which hold for all its worlds unless a world, an NPC or a session overrides them.
///
/// They take effect at once. Settings that only worlds have are refused.
#[utoipa::path(
    tag = "settings",
    params(("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet")),
    request_body = TierSettingsBody,
    responses((status = 200, body = TierView, description = "Replaced"), (status = 201, body = TierView, description = "Made"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/settings")]
pub async fn put_tenant_settings(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    request: HttpRequest,
    body: Body<TierSettingsBody>,
) -> Result<HttpResponse, Problem> {
    let if_match = IfMatch::from_put_request(&request)?;
    let settings = TierSettings::from(body.value);
    worlds::check_models(&state, settings.models.as_ref())?;
    run_uncancelled(async move {
        let store = &state.services.ledger.authored;
        if if_match == IfMatch::MustExist && store.load_tenant_tier(&caller.scope).await?.version == 0 {
            return Err(etag::version_mismatch_error(0));
        }
        let edit = caller.new_edit(&state, "settings.put", caller.scope.tenant());
        let version = if_match.expected_version();
        let outcome = store
            .put_tenant_settings(&caller.scope, &settings, version, &edit)
            .await?;
        let created = etag::created_by_put(outcome, if_match, "tenant")?;
        if let Err(error) = forget_all_worlds(&state, &caller.scope).await {
            tracing::warn!(%error, "some NPCs in use have the old settings; they read the new settings within an hour");
        }
        let stored = store.load_tenant_tier(&caller.scope).await?;
        let query = TierQuery { effective: false };
        let tiers = Tiers::default().with(Tier::Tenant, &stored.settings)?;
        let view = tiers.view(&state, &query)?;
        Ok(etag::respond_stored(created, "/v1/settings", stored.version, &view))
    })
    .await
}

/// Makes all nodes read the tenant's NPCs again.
async fn forget_all_worlds(state: &AppState, scope: &TenantScope) -> StoreResult<()> {
    let store = &state.services.ledger.authored;
    let worlds = collect_pages(usize::MAX, async |page| store.list_worlds(scope, page).await).await?;
    for world in &worlds {
        state.sessions.forget_authored_everywhere(scope, &world.id).await;
    }
    Ok(())
}

/// Returns the settings of the tenant.
#[utoipa::path(
    tag = "settings",
    params(TierQuery),
    responses((status = 200, body = TierView), (status = 304, description = "If-None-Match names this version")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/settings")]
pub async fn get_tenant_settings(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    query: QueryParams<TierQuery>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let TenantTier { settings, version } = state.services.ledger.authored.load_tenant_tier(&caller.scope).await?;
    let view = Tiers::default().with(Tier::Tenant, &settings)?.view(&state, &query.0)?;
    if query.0.effective {
        // The values in effect can change with the configuration.
        return Ok(HttpResponse::Ok().json(view));
    }
    Ok(etag::respond_found(&request, version, &view))
}

/// Returns the settings of a world. `PUT` of the world sets them.
#[utoipa::path(
    tag = "settings",
    params(("world" = String, Path), TierQuery),
    responses((status = 200, body = TierView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/settings")]
pub async fn get_world_settings(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<TierQuery>,
) -> Result<HttpResponse, Problem> {
    let world = worlds::find_world(&state, &caller, &path.0).await?;
    Ok(HttpResponse::Ok().json(Tiers::of_world(&world)?.view(&state, &query.0)?))
}

/// Returns the settings of an NPC. `PUT` of the NPC sets them.
#[utoipa::path(
    tag = "settings",
    params(("world" = String, Path), ("npc" = String, Path), TierQuery),
    responses((status = 200, body = TierView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/npcs/{npc}/settings")]
pub async fn get_npc_settings(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
    query: QueryParams<TierQuery>,
) -> Result<HttpResponse, Problem> {
    let (world, npc) = path.0;
    let world = worlds::find_world(&state, &caller, &world).await?;
    let npc = npcs::find_npc(&state, &caller, &world.id, &npc).await?;
    let tiers = Tiers::of_world(&world)?.with(Tier::Npc, &npc.settings)?;
    Ok(HttpResponse::Ok().json(tiers.view(&state, &query.0)?))
}

/// Returns the settings of a session, which its creation sets. In a session with several NPCs, the tier of the NPC is that
/// of the first.
#[utoipa::path(
    tag = "settings",
    params(("session" = String, Path), TierQuery),
    responses((status = 200, body = TierView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/sessions/{session}/settings")]
pub async fn get_session_settings(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<DialogueId>,
    query: QueryParams<TierQuery>,
) -> Result<HttpResponse, Problem> {
    let session = reachable_session(&state, &caller.principal, path.0).await?;
    let world = worlds::find_world(&state, &caller, &session.world).await?;
    let npc = session.npcs.first().ok_or_else(|| Problem::not_found("NPC"))?;
    let npc = npcs::find_npc(&state, &caller, &world.id, npc).await?;
    let session_settings = session.options.settings.unwrap_or_default();
    let tiers = Tiers::of_world(&world)?.with(Tier::Npc, &npc.settings)?;
    let tiers = tiers.with(Tier::Session, &session_settings)?;
    Ok(HttpResponse::Ok().json(tiers.view(&state, &query.0)?))
}
