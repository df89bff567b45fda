//! Scenarios of NPCs: `/v1/worlds/{w}/npcs/{n}/scenarios`.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    AppState,
    authored::{ConditionalEdit, PutRequest, StoredByPut, authored_list, authored_resource, parse_id},
    dry_run::PutQuery,
    errors::Problem,
    extract::{Author, Authorized, Body, Path, QueryParams},
    pagination::{Items, PageQuery},
    validate::{one_line_label, visible_text},
};
use colloquy_core::ids::{NpcId, ScenarioId, WorldId};
use colloquy_dialogue::knowledge::scenarios;
use colloquy_memory::{
    authored::Npc, condition::Condition, disclosure::secrecy::Tell, progress::Progress, scenario::Scenario,
};
use colloquy_ports::ledger::authored::PutOutcome;

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
    let key = (world, npc, parse_id("scenario", &name)?);
    let put = PutRequest::<Scenario>::new(state, caller, key, &query.0, &request)?;
    put.store(move |_, (world, npc, id), updated_at| {
        let scenario = body
            .value
            .into_scenario(world.clone(), npc.clone(), id.clone(), updated_at);
        match scenario.find_faults().into_iter().next() {
            Some((field, fault)) => Err(Problem::invalid_field(field, fault)),
            None => Ok(scenario),
        }
    })
    .await
}

impl StoredByPut for Scenario {
    async fn find_refusal(&self, put: &ConditionalEdit<'_>) -> Result<Option<PutOutcome>, Problem> {
        let store = &put.state.services.ledger.scenarios;
        Ok(store.check_put(put.scope, self, put.if_version).await?)
    }
    async fn put(&self, put: &ConditionalEdit<'_>) -> Result<PutOutcome, Problem> {
        Ok(scenarios::write_scenario(&put.state.services, put.scope, self, put.if_version, put.edit).await?)
    }
}

authored_resource! {
    Scenario is "scenario" of "NPC", logged as "scenario";
    tag "scenarios", "/v1/worlds/{world}/npcs/{npc}/scenarios/{scenario}",
        key (WorldId, NpcId, ScenarioId) = "world" world, "npc" npc, "scenario" scenario;
    store scenarios: load_scenario, delete_scenario;
    /// Returns a scenario.
    get get_scenario;
    /// Hides a scenario: from now on, the scenario is in no prompt.
    delete delete_scenario;
}

authored_list! {
    /// Lists the scenarios of an NPC, locked or not.
    list_scenarios: Scenario by ScenarioId, of Npc;
    tag "scenarios", "/v1/worlds/{world}/npcs/{npc}/scenarios", key (WorldId, NpcId) = "world" world, "npc" npc;
    store scenarios: list_scenarios;
}
