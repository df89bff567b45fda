//! Worlds: `/v1/worlds`.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    AppState,
    authored::{ConditionalEdit, PutRequest, StoredByPut, authored_resource, find_resource, parse_id},
    dry_run::PutQuery,
    errors::Problem,
    extract::{Author, Authorized, Body, InWorld, Path, QueryParams},
    pagination::{Items, PageQuery},
    setting_bodies::WorldSettingsBody,
    validate::{display_name, one_line_label},
};
use colloquy_core::ids::WorldId;
use colloquy_memory::{
    authored::{Language, TenantTier, World, WorldSettings},
    tiers::TaskModels,
    vocabulary::Vocabulary,
};
use colloquy_ports::ledger::authored::PutOutcome;

/// A world as its author writes it.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct WorldBody {
    /// One line.
    #[garde(length(chars, max = 200), custom(display_name))]
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// Common knowledge of all NPCs in the world; part of every prompt.
    #[serde(default)]
    #[garde(length(chars, max = 4000))]
    #[schema(max_length = 4000)]
    premise: String,
    #[serde(default)]
    language: Language,
    /// Rules no NPC may break, one per line.
    #[serde(default)]
    #[garde(length(max = 20), inner(length(chars, max = 200), custom(one_line_label)))]
    #[schema(max_items = 20)]
    rules: Vec<String>,
    #[serde(default)]
    #[garde(dive)]
    #[schema(inline)]
    settings: WorldSettingsBody,
}

/// Checks that the operator allows the models of these settings.
///
/// # Errors
/// The first model that is not allowed.
pub fn check_models(state: &AppState, task_models: Option<&TaskModels>) -> Result<(), Problem> {
    let models = &state.services.models;
    let mut task_models = task_models.into_iter().flat_map(TaskModels::named);
    match task_models.find(|(_, model)| !models.is_model_allowed(model)) {
        None => Ok(()),
        Some((task, _)) => {
            let detail = "is not one that the operator lets NPCs name";
            Err(Problem::invalid_field(format!("settings.models.{task}"), detail))
        }
    }
}

/// A synonym for an unknown word would never apply, without any sign of the mistake.
fn check_synonyms(settings: &WorldSettings) -> Result<(), Problem> {
    let vocabulary = Vocabulary::from_settings(settings);
    let mut synonyms = settings.synonyms.iter().flatten();
    match synonyms.find(|(_, meaning)| !vocabulary.contains_word(meaning)) {
        None => Ok(()),
        Some((synonym, meaning)) => {
            let detail = format!(
                "`{synonym}` means `{meaning}`, which is no mood, status or kind of relationship of this world"
            );
            Err(Problem::invalid_field("settings.synonyms", detail))
        }
    }
}

/// Checks that conditions of actions on the time can hold in this world.
fn check_time_conditions(settings: &WorldSettings) -> Result<(), Problem> {
    let rules = settings.action_rules().iter();
    let mut conditions = rules.flat_map(|rule| rule.when.iter().map(move |condition| (rule, condition)));
    let fault = conditions.find_map(|(rule, condition)| {
        let fault = condition.find_time_fault(settings)?;
        Some(format!("`{}` has a condition that never holds: {fault}", rule.name))
    });
    fault.map_or(Ok(()), |fault| Err(Problem::invalid_field("settings.actions", fault)))
}

impl WorldBody {
    fn into_world(self, id: WorldId, updated_at: DateTime<Utc>) -> World {
        World {
            id,
            name: self.name,
            premise: self.premise,
            language: self.language,
            rules: self.rules,
            settings: self.settings.into(),
            lore_version: 0,
            tenant: TenantTier::default(),
            version: 0,
            updated_at,
        }
    }
}

/// Creates or replaces a world.
///
/// A deleted world comes back with all its content except NPCs. Each NPC comes back with its own PUT. A change of
/// `clock.ratio` holds from now on: the clock does not jump.
#[utoipa::path(
    tag = "worlds",
    params(("world" = String, Path, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet"), PutQuery),
    request_body = WorldBody,
    responses((status = 200, body = World, description = "Replaced"), (status = 201, body = World, description = "Made"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/worlds/{world}")]
pub async fn put_world(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<String>,
    query: QueryParams<PutQuery>,
    request: HttpRequest,
    body: Body<WorldBody>,
) -> Result<HttpResponse, Problem> {
    let key = parse_id("world", &path.0)?;
    let put = PutRequest::<World>::new(state, caller, key, &query.0, &request)?;
    put.store(move |state, id, updated_at| {
        let world = body.value.into_world(id.clone(), updated_at);
        check_synonyms(&world.settings)?;
        check_time_conditions(&world.settings)?;
        check_models(state, world.settings.models.as_ref())?;
        Ok(world)
    })
    .await
}

impl StoredByPut for World {
    async fn put(&self, put: &ConditionalEdit<'_>) -> Result<PutOutcome, Problem> {
        let store = &put.state.services.ledger.authored;
        Ok(store.put_world(put.scope, self, put.if_version, put.edit).await?)
    }
}

authored_resource! {
    World is "world" of "world", logged as "world";
    tag "worlds", "/v1/worlds/{world}", key WorldId = "world" world;
    store authored: load_world, delete_world;
    /// Returns a world.
    get get_world;
    /// Hides a world and its NPCs, and ends their dialogues.
    ///
    /// No data is destroyed: a later PUT of the same id restores the dialogues and the facts.
    delete delete_world;
}

/// Lists the tenant's worlds.
#[utoipa::path(
    tag = "worlds",
    params(PageQuery),
    responses((status = 200, body = Items<World>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds")]
pub async fn list_worlds(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Author>>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<WorldId>()?;
    if let Some(world) = &caller.principal.world {
        // The only world of the token.
        let is_next = page.after.as_deref().is_none_or(|after| world.as_str() > after);
        let world = state.services.ledger.authored.load_world(&caller.scope, world).await?;
        return Ok(HttpResponse::Ok().json(Items::only_page(world.filter(|_| is_next))));
    }
    let worlds = state.services.ledger.authored.list_worlds(&caller.scope, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from(worlds)))
}

/// Loads the world; 404 if missing.
pub async fn find_world<A>(state: &AppState, caller: &Authorized<A>, id: &WorldId) -> Result<World, Problem> {
    find_resource(state, caller, id).await
}
