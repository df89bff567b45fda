//! The model names of chat programs that a tenant chooses: `/v1/chat-models`. Names of the configuration are in
//! `chat.models`; a name of the tenant comes before the same name there.

use actix_web::{HttpRequest, HttpResponse, get, put, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{FieldError, Problem},
    etag::{self, IfMatch},
    extract::{Author, Authorized, Body},
    setting_bodies::WorldSettingsBody,
    uncancelled::run_uncancelled,
    validate::one_line_label,
    worlds,
};
use colloquy_core::ids::{NpcId, WorldId};
use colloquy_memory::{
    authored::WorldSettings,
    chat_models::{self, ChatModel},
};

/// Most model names of a tenant.
const MAX_MODELS: usize = 100;

/// A model name: of an NPC, or of characters that the chat program describes.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatModelView {
    name: String,
    #[schema(value_type = Option<String>)]
    world_id: Option<WorldId>,
    #[schema(value_type = Option<String>)]
    npc_id: Option<NpcId>,
    proxy: bool,
    upstream: Option<String>,
    settings: WorldSettings,
}

/// The model names of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatModelsView {
    models: Vec<ChatModelView>,
}

impl ChatModelsView {
    fn new(models: Vec<ChatModel>) -> Self {
        let models = models.into_iter().map(|model| ChatModelView {
            name: model.name,
            world_id: model.world,
            npc_id: model.npc,
            proxy: model.proxy,
            upstream: model.upstream,
            settings: model.settings,
        });
        Self {
            models: models.collect(),
        }
    }
}

/// A model name as an author writes it: either `world_id` and `npc_id`, or `proxy`.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct ChatModelBody {
    /// What chat programs send as `model`. One line.
    #[garde(length(chars, max = 200), custom(one_line_label))]
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// The world of the NPC. With `proxy`, the world of all characters; default: a world for each player.
    #[schema(value_type = Option<String>, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    world_id: Option<WorldId>,
    /// The NPC that answers.
    #[schema(value_type = Option<String>, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    npc_id: Option<NpcId>,
    /// True: characters that the chat program describes answer. Default false.
    #[serde(default)]
    proxy: bool,
    /// With `proxy`: the model that answers, from the operator's list (`llm.npc_models`). Default: the reply model of the
    /// server.
    #[garde(inner(length(chars, max = 200), custom(one_line_label)))]
    #[schema(min_length = 1, max_length = 200)]
    upstream: Option<String>,
    /// With `proxy`: the settings of worlds that are made. A world that exists keeps its own.
    #[serde(default)]
    #[garde(dive)]
    settings: WorldSettingsBody,
}

/// All model names of a tenant.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct ChatModelsBody {
    #[garde(length(max = MAX_MODELS), dive)]
    #[schema(max_items = 100)]
    models: Vec<ChatModelBody>,
}

impl From<ChatModelBody> for ChatModel {
    fn from(body: ChatModelBody) -> Self {
        Self {
            name: body.name,
            tenant: None,
            world: body.world_id,
            npc: body.npc_id,
            proxy: body.proxy,
            upstream: body.upstream,
            settings: body.settings.into(),
        }
    }
}

/// Returns the model names that the tenant has stored for chat programs.
///
/// `GET /v1/models` also lists the names of the configuration and all NPCs.
#[utoipa::path(
    tag = "settings",
    responses((status = 200, body = ChatModelsView), (status = 304, description = "If-None-Match names this version")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/chat-models")]
pub async fn get_chat_models(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let stored = state.services.ledger.authored.load_chat_models(&caller.scope).await?;
    let view = ChatModelsView::new(stored.models);
    Ok(etag::respond_found(&request, stored.version, &view))
}

/// Replaces the model names that the tenant has stored for chat programs.
///
/// They take effect at once, and come before the same names of the configuration (`chat.models`). An empty list
/// removes them.
#[utoipa::path(
    tag = "settings",
    params(("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet")),
    request_body = ChatModelsBody,
    responses((status = 200, body = ChatModelsView, description = "Replaced"), (status = 201, body = ChatModelsView, description = "Made"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/chat-models")]
pub async fn put_chat_models(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    request: HttpRequest,
    body: Body<ChatModelsBody>,
) -> Result<HttpResponse, Problem> {
    let if_match = IfMatch::from_put_request(&request)?;
    let models: Vec<ChatModel> = body.value.models.into_iter().map(ChatModel::from).collect();
    check_chat_models(&state, &caller, &models).await?;
    run_uncancelled(async move {
        let store = &state.services.ledger.authored;
        if if_match == IfMatch::MustExist && store.load_chat_models(&caller.scope).await?.version == 0 {
            return Err(etag::version_mismatch_error(0));
        }
        let edit = caller.new_edit(&state, "chat_models.put", caller.scope.tenant());
        let version = if_match.expected_version();
        let outcome = store.put_chat_models(&caller.scope, &models, version, &edit).await?;
        let created = etag::created_by_put(outcome, if_match, "tenant")?;
        let stored = store.load_chat_models(&caller.scope).await?;
        let view = ChatModelsView::new(stored.models);
        Ok(etag::respond_stored(created, "/v1/chat-models", stored.version, &view))
    })
    .await
}

/// Refuses names that could never answer.
async fn check_chat_models(state: &AppState, caller: &Authorized<Author>, models: &[ChatModel]) -> Result<(), Problem> {
    let mut errors: Vec<FieldError> = Vec::new();
    let mut refuse = |index: usize, field: &str, detail: String| {
        errors.push(FieldError {
            param: format!("models[{index}].{field}"),
            detail,
        });
    };
    for fault in chat_models::find_faults(models) {
        let field = match fault.field {
            "world" => "world_id",
            "npc" => "npc_id",
            field => field,
        };
        refuse(fault.index, field, fault.problem.to_owned());
    }
    for (index, model) in models.iter().enumerate() {
        if let Some(upstream) = &model.upstream
            && !state.services.models.is_model_allowed(upstream)
        {
            let detail = "is not one that the operator lets NPCs name";
            refuse(index, "upstream", detail.to_owned());
        }
        if let Err(problem) = worlds::check_models(state, model.settings.models.as_ref()) {
            let field = problem.param.as_deref().unwrap_or("settings.models");
            refuse(index, field, "is not one that the operator lets NPCs name".to_owned());
        }
        if let (Some(world), Some(npc), false) = (&model.world, &model.npc, model.proxy) {
            let authored = &state.services.ledger.authored;
            if authored.load_npc(&caller.scope, world, npc).await?.is_none() {
                refuse(index, "npc_id", format!("there is no NPC `{npc}` in a world `{world}`"));
            }
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Problem::invalid_fields(errors))
    }
}
