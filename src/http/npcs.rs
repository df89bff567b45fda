//! NPCs of a world: `/v1/worlds/{w}/npcs`.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    AppState,
    authored::{ConditionalEdit, PutRequest, StoredByPut, authored_list, authored_resource, find_resource, parse_id},
    dry_run::PutQuery,
    errors::Problem,
    extract::{Author, Authorized, Body, Path, QueryParams},
    pagination::{Items, PageQuery},
    setting_bodies::TierSettingsBody,
    validate::{display_name, one_line_label},
    worlds,
};
use colloquy_core::ids::{FactionId, NpcId, WorldId};
use colloquy_memory::authored::{Language, Npc, Persona, World};
use colloquy_ports::ledger::authored::PutOutcome;

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
    settings: TierSettingsBody,
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
    fn into_npc(self, world: WorldId, language: Language, id: NpcId, updated_at: DateTime<Utc>) -> Npc {
        Npc {
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
            settings: self.settings.into(),
            has_scenarios: false,
            has_tells: false,
            version: 0,
            updated_at,
        }
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
    let key = (world, parse_id("npc", &name)?);
    let put = PutRequest::<Npc>::new(state, caller, key, &query.0, &request)?;
    let state = &put.state;
    let (world, id) = &put.key;
    let language = if let Some(language) = body.value.language {
        language
    } else {
        // An unknown world is refused below.
        let authored = &state.services.ledger.authored;
        let stored_world = authored.load_world(&put.caller.scope, world).await?;
        stored_world.map_or_else(Language::default, |world| world.language)
    };
    let now = state.services.clock.now();
    let npc = body.value.into_npc(world.clone(), language, id.clone(), now);
    if let Some(model) = &npc.model
        && !state.services.models.is_model_allowed(model)
    {
        let detail = "is not one that the operator lets NPCs name";
        return Err(Problem::invalid_field("model", detail));
    }
    worlds::check_models(state, npc.settings.models.as_ref())?;
    if query.0.is_dry_run() {
        worlds::find_world(state, &put.caller, world).await?;
    }
    put.store(move |_, _, updated_at| Ok(Npc { updated_at, ..npc })).await
}

impl StoredByPut for Npc {
    async fn put(&self, put: &ConditionalEdit<'_>) -> Result<PutOutcome, Problem> {
        let store = &put.state.services.ledger.authored;
        Ok(store.put_npc(put.scope, self, put.if_version, put.edit).await?)
    }
    fn keep_derived_fields(&mut self, stored: &Self) {
        self.has_scenarios = stored.has_scenarios;
        self.has_tells = stored.has_tells;
    }
}

authored_resource! {
    Npc is "NPC" of "world", logged as "npc";
    tag "npcs", "/v1/worlds/{world}/npcs/{npc}", key (WorldId, NpcId) = "world" world, "npc" npc;
    store authored: load_npc, delete_npc;
    /// Returns an NPC.
    get get_npc;
    /// Hides an NPC and ends its dialogues.
    ///
    /// The memory is not destroyed: a later PUT of the same id restores the NPC with its memory.
    delete delete_npc;
}

authored_list! {
    /// Lists the NPCs of a world.
    list_npcs: Npc by NpcId, of World;
    tag "npcs", "/v1/worlds/{world}/npcs", key WorldId = "world" world;
    store authored: list_npcs;
}

/// Loads the NPC; 404 if missing.
pub async fn find_npc<A>(
    state: &AppState,
    caller: &Authorized<A>,
    world: &WorldId,
    id: &NpcId,
) -> Result<Npc, Problem> {
    find_resource(state, caller, &(world.clone(), id.clone())).await
}
