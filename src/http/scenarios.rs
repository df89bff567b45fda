//! Scenarios of NPCs: `/v1/worlds/{w}/npcs/{n}/scenarios`.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    AppState,
    dry_run::{self, PutQuery},
    errors::Problem,
    etag::{self, IfMatch},
    extract::{Author, Authorized, Body, Path, QueryParams},
    npcs,
    pagination::{Items, PageQuery},
    uncancelled::run_uncancelled,
    validate::{one_line_label, visible_text},
};
use colloquy_core::ids::{NpcId, ScenarioId, WorldId};
use colloquy_dialogue::knowledge::scenarios;
use colloquy_memory::{condition::Condition, disclosure::secrecy::Tell, progress::Progress, scenario::Scenario};

/// A scenario as its author writes it: a memory of an NPC's own past.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct ScenarioBody {
    /// One line.
    #[garde(length(chars, max = 200), custom(one_line_label))]
    #[schema(min_length = 1, max_length = 200)]
    title: String,
    /// The story that the NPC may tell once the scenario is unlocked.
    #[garde(length(chars, max = 4000), custom(visible_text))]
    #[schema(min_length = 1, max_length = 4000)]
    content: String,
    #[serde(default)]
    #[garde(length(max = 32), inner(length(chars, max = 64), custom(one_line_label)))]
    #[schema(max_items = 32)]
    keywords: Vec<String>,
    /// Other words that players use for the scenario.
    #[serde(default)]
    #[garde(length(max = 32), inner(length(chars, max = 64), custom(one_line_label)))]
    #[schema(max_items = 32)]
    synonyms: Vec<String>,
    /// The progress with the NPC that a player needs; 0: unlocked for all players.
    #[serde(default)]
    #[garde(range(max = 1_000_000))]
    #[schema(minimum = 0, maximum = 1_000_000)]
    required_progress: u32,
    /// The conditions under which the NPC may tell the scenario; all must hold, besides the progress. At most 8.
    #[serde(default)]
    #[schema(max_items = 8)]
    when: Vec<Condition>,
    /// What the NPC shows when a line names the title, a keyword or a synonym while the scenario may not be told.
    /// Without a tell, no prompt has any of it.
    #[serde(default)]
    tell: Option<Tell>,
}

impl ScenarioBody {
    fn into_scenario(self, world: WorldId, npc: NpcId, id: ScenarioId, updated_at: DateTime<Utc>) -> Scenario {
        Scenario {
            world,
            npc,
            id,
            title: self.title,
            content: self.content,
            keywords: self.keywords,
            synonyms: self.synonyms,
            required_progress: Progress::new(self.required_progress).unwrap_or_default(),
            when: self.when,
            tell: self.tell,
            version: 0,
            updated_at,
        }
    }
}

/// Creates or replaces a scenario, a memory of an NPC's own past.
///
/// The scenario is locked for players with less progress than `required_progress`. An NPC has at most 500 scenarios.
#[utoipa::path(
    tag = "scenarios",
    params(("world" = String, Path), ("npc" = String, Path), ("scenario" = String, Path, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet"), PutQuery),
    request_body = ScenarioBody,
    responses((status = 200, body = Scenario, description = "Replaced"), (status = 201, body = Scenario, description = "Made"), (status = 409, description = "The NPC has as many as it may (`too_many_scenarios`)"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/worlds/{world}/npcs/{npc}/scenarios/{scenario}")]
pub async fn put_scenario(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId, String)>,
    query: QueryParams<PutQuery>,
    request: HttpRequest,
    body: Body<ScenarioBody>,
) -> Result<HttpResponse, Problem> {
    let (world, npc, name) = path.0;
    let id: ScenarioId = name
        .parse()
        .map_err(|error| Problem::invalid_field("scenario", format!("{error}")))?;
    let if_match = IfMatch::from_put_request(&request)?;
    run_uncancelled(async move {
        let store = &state.services.ledger.scenarios;
        if if_match == IfMatch::MustExist && store.load_scenario(&caller.scope, &world, &npc, &id).await?.is_none() {
            return Err(etag::version_mismatch_error(0));
        }
        let edit = caller.new_edit(&state, "scenario.put", format!("{world}/{npc}/{id}"));
        let mut scenario = body
            .value
            .into_scenario(world.clone(), npc.clone(), id.clone(), edit.made_at);
        if let Some((field, fault)) = scenario.find_faults().into_iter().next() {
            return Err(Problem::invalid_field(field, fault));
        }
        let version = if_match.expected_version();
        if query.0.is_dry_run() {
            let refusal = store.check_put(&caller.scope, &scenario, version).await?;
            let stored = store.load_scenario(&caller.scope, &world, &npc, &id).await?;
            let stored_version = stored.map(|scenario| scenario.version);
            scenario.version = dry_run::next_version_unless(refusal, stored_version, if_match, "NPC")?;
            return Ok(HttpResponse::Ok().json(scenario));
        }
        let outcome = scenarios::write_scenario(&state.services, &caller.scope, &scenario, version, &edit).await?;
        let created = etag::created_by_put(outcome, if_match, "NPC")?;
        // The cached NPC stores whether the NPC has scenarios.
        state.sessions.forget_authored_everywhere(&caller.scope, &world).await;
        let stored = find_scenario(&state, &caller, &world, &npc, &id).await?;
        let location = format!("/v1/worlds/{world}/npcs/{npc}/scenarios/{id}");
        Ok(etag::respond_stored(created, &location, stored.version, &stored))
    })
    .await
}

/// Returns a scenario.
#[utoipa::path(
    tag = "scenarios",
    params(("world" = String, Path), ("npc" = String, Path), ("scenario" = String, Path)),
    responses((status = 200, body = Scenario), (status = 304, description = "If-None-Match names this version")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/npcs/{npc}/scenarios/{scenario}")]
pub async fn get_scenario(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId, ScenarioId)>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let (world, npc, id) = path.0;
    let scenario = find_scenario(&state, &caller, &world, &npc, &id).await?;
    Ok(etag::respond_found(&request, scenario.version, &scenario))
}

/// Lists the scenarios of an NPC, locked or not.
#[utoipa::path(
    tag = "scenarios",
    params(("world" = String, Path), ("npc" = String, Path), PageQuery),
    responses((status = 200, body = Items<Scenario>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/npcs/{npc}/scenarios")]
pub async fn list_scenarios(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<ScenarioId>(&state)?;
    let (world, npc) = path.0;
    npcs::find_npc(&state, &caller, &world, &npc).await?;
    let store = &state.services.ledger.scenarios;
    let page_of_scenarios = store.list_scenarios(&caller.scope, &world, &npc, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from(page_of_scenarios)))
}

/// Hides a scenario: from now on, the scenario is in no prompt.
#[utoipa::path(
    tag = "scenarios",
    params(("world" = String, Path), ("npc" = String, Path), ("scenario" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag of what is to be deleted, or *")),
    responses((status = 204), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[delete("/v1/worlds/{world}/npcs/{npc}/scenarios/{scenario}")]
pub async fn delete_scenario(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId, ScenarioId)>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let (world, npc, id) = path.0;
    let if_match = IfMatch::from_request(&request)?;
    run_uncancelled(async move {
        let edit = caller.new_edit(&state, "scenario.delete", format!("{world}/{npc}/{id}"));
        let store = &state.services.ledger.scenarios;
        let version = if_match.expected_version();
        let outcome = store
            .delete_scenario(&caller.scope, &world, &npc, &id, version, &edit)
            .await?;
        state.sessions.forget_authored_everywhere(&caller.scope, &world).await;
        etag::respond_deleted(outcome, "scenario")
    })
    .await
}

async fn find_scenario<A>(
    state: &AppState,
    caller: &Authorized<A>,
    world: &WorldId,
    npc: &NpcId,
    id: &ScenarioId,
) -> Result<Scenario, Problem> {
    let store = &state.services.ledger.scenarios;
    let scenario = store.load_scenario(&caller.scope, world, npc, id).await?;
    scenario.ok_or_else(|| Problem::not_found("scenario"))
}
