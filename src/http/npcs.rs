//! NPCs of a world: `/v1/worlds/{w}/npcs`.

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
    pagination::{Items, PageQuery},
    uncancelled::run_uncancelled,
    validate::{display_name, one_line_label},
    worlds::{self, SettingsBody},
};
use colloquy_core::ids::{FactionId, NpcId, WorldId};
use colloquy_memory::authored::{Language, Npc, Persona};

/// An NPC as its author writes it.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct NpcBody {
    /// One line.
    #[garde(length(chars, max = 200), custom(display_name))]
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    #[serde(default)]
    #[garde(dive)]
    #[schema(inline)]
    persona: PersonaBody,
    /// Default: the language of the world.
    #[schema(inline)]
    language: Option<Language>,
    #[serde(default)]
    #[garde(length(max = 32))]
    #[schema(value_type = Vec<String>, max_items = 32)]
    factions: Vec<FactionId>,
    /// A reply model in place of the configured model. Allowed are the models that the operator lists in
    /// `llm.npc_models`.
    #[garde(inner(length(chars, max = 200), custom(one_line_label)))]
    #[schema(min_length = 1, max_length = 200)]
    model: Option<String>,
    /// Overrides settings of the world.
    #[serde(default)]
    #[garde(dive)]
    #[schema(inline)]
    settings: SettingsBody,
}

/// A fixed character: never changed by play.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PersonaBody {
    /// Who the NPC is: role, history, looks.
    #[garde(length(chars, max = 4000))]
    #[schema(max_length = 4000)]
    description: String,
    /// How the NPC speaks.
    #[garde(length(chars, max = 1000))]
    #[schema(max_length = 1000)]
    speech_style: String,
    /// Limits of the NPC's words and acts, one per line.
    #[garde(length(max = 20), inner(length(chars, max = 200), custom(one_line_label)))]
    #[schema(max_items = 20)]
    boundaries: Vec<String>,
    /// Emotion and gesture tags the NPC may use.
    #[garde(length(max = 32), inner(length(chars, max = 32), custom(one_line_label)))]
    #[schema(max_items = 32)]
    cues: Vec<String>,
    /// The NPC's first words to a new player, if a session requests a greeting.
    #[garde(length(chars, max = 1000))]
    #[schema(max_length = 1000)]
    greeting: String,
}

impl NpcBody {
    fn into_npc(
        self,
        world: WorldId,
        language: Language,
        id: NpcId,
        updated_at: DateTime<Utc>,
    ) -> Result<Npc, Problem> {
        Ok(Npc {
            world,
            id,
            name: self.name,
            persona: Persona {
                description: self.persona.description,
                speech_style: self.persona.speech_style,
                boundaries: self.persona.boundaries,
                cues: self.persona.cues,
                greeting: self.persona.greeting,
            },
            language,
            factions: self.factions,
            model: self.model,
            settings: self.settings.into_tier_settings()?,
            has_scenarios: false,
            has_tells: false,
            version: 0,
            updated_at,
        })
    }
}

/// Creates or replaces an NPC.
///
/// A deleted NPC comes back with its memory.
#[utoipa::path(
    tag = "npcs",
    params(("world" = String, Path), ("npc" = String, Path, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet"), PutQuery),
    request_body = NpcBody,
    responses((status = 200, body = Npc, description = "Replaced"), (status = 201, body = Npc, description = "Made"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/worlds/{world}/npcs/{npc}")]
pub async fn put_npc(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, String)>,
    query: QueryParams<PutQuery>,
    request: HttpRequest,
    body: Body<NpcBody>,
) -> Result<HttpResponse, Problem> {
    let (world, name) = path.0;
    let id: NpcId = name
        .parse()
        .map_err(|error| Problem::invalid_field("npc", format!("{error}")))?;
    let if_match = IfMatch::from_put_request(&request)?;
    let edit = caller.new_edit(&state, "npc.put", format!("{world}/{id}"));
    let authored = &state.services.ledger.authored;
    let language = match body.value.language {
        Some(language) => language,
        // An unknown world is refused below.
        None => {
            (authored.load_world(&caller.scope, &world).await?).map_or_else(Language::default, |world| world.language)
        }
    };
    let mut npc = body.value.into_npc(world.clone(), language, id.clone(), edit.made_at)?;
    if let Some(model) = &npc.model
        && !state.services.models.is_model_allowed(model)
    {
        let detail = "is not one that the operator lets NPCs name";
        return Err(Problem::invalid_field("model", detail));
    }
    worlds::check_models(&state, &npc.settings)?;
    if query.0.is_dry_run() {
        worlds::find_world(&state, &caller, &world).await?;
        let stored = authored.load_npc(&caller.scope, &world, &id).await?;
        npc.version = dry_run::next_version(stored.as_ref().map(|stored| stored.version), if_match)?;
        if let Some(stored) = stored {
            npc.has_scenarios = stored.has_scenarios;
            npc.has_tells = stored.has_tells;
        }
        return Ok(HttpResponse::Ok().json(npc));
    }
    run_uncancelled(async move {
        let store = &state.services.ledger.authored;
        if if_match == IfMatch::MustExist && store.load_npc(&caller.scope, &world, &id).await?.is_none() {
            return Err(etag::version_mismatch_error(0));
        }
        let version = if_match.expected_version();
        let outcome = store.put_npc(&caller.scope, &npc, version, &edit).await?;
        let created = etag::created_by_put(outcome, if_match, "world")?;
        state.sessions.forget_authored_everywhere(&caller.scope, &world).await;
        let stored = find_npc(&state, &caller, &world, &id).await?;
        let location = format!("/v1/worlds/{world}/npcs/{id}");
        Ok(etag::respond_stored(created, &location, stored.version, &stored))
    })
    .await
}

/// Returns an NPC.
#[utoipa::path(
    tag = "npcs",
    params(("world" = String, Path), ("npc" = String, Path)),
    responses((status = 200, body = Npc), (status = 304, description = "If-None-Match names this version")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/npcs/{npc}")]
pub async fn get_npc(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let npc = find_npc(&state, &caller, &path.0.0, &path.0.1).await?;
    Ok(etag::respond_found(&request, npc.version, &npc))
}

/// Lists the NPCs of a world.
#[utoipa::path(
    tag = "npcs",
    params(("world" = String, Path), PageQuery),
    responses((status = 200, body = Items<Npc>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/npcs")]
pub async fn list_npcs(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = query.0.parse_page::<NpcId>(&state)?;
    worlds::find_world(&state, &caller, &path.0).await?;
    let authored = &state.services.ledger.authored;
    let npcs = authored.list_npcs(&caller.scope, &path.0, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from(npcs)))
}

/// Hides an NPC and ends its dialogues.
///
/// The memory is not destroyed: a later PUT of the same id restores the NPC with its memory.
#[utoipa::path(
    tag = "npcs",
    params(("world" = String, Path), ("npc" = String, Path), ("If-Match" = Option<String>, Header, description = "The ETag of what is to be deleted, or *")),
    responses((status = 204), (status = 412, description = "Another version is stored")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[delete("/v1/worlds/{world}/npcs/{npc}")]
pub async fn delete_npc(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let (world, id) = path.0;
    let if_match = IfMatch::from_request(&request)?;
    run_uncancelled(async move {
        let edit = caller.new_edit(&state, "npc.delete", format!("{world}/{id}"));
        let store = &state.services.ledger.authored;
        let version = if_match.expected_version();
        let outcome = store.delete_npc(&caller.scope, &world, &id, version, &edit).await?;
        state.sessions.forget_authored_everywhere(&caller.scope, &world).await;
        etag::respond_deleted(outcome, "NPC")
    })
    .await
}

/// Loads the NPC; 404 if missing.
pub async fn find_npc<A>(
    state: &AppState,
    caller: &Authorized<A>,
    world: &WorldId,
    id: &NpcId,
) -> Result<Npc, Problem> {
    let authored = &state.services.ledger.authored;
    let npc = authored.load_npc(&caller.scope, world, id).await?;
    npc.ok_or_else(|| Problem::not_found("NPC"))
}
