//! The list of models: NPCs, further names, and the name of characters that chat programs describe.

use actix_web::{HttpResponse, get, web};
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{
    characters::is_hidden_world,
    settings::PROXY_MODEL,
    targets::{ChatTarget, find_target, load_named_models, no_such_model, resolve_target},
};
use crate::{
    AppState,
    errors::Problem,
    extract::{Authorized, InWorld, Path, Talker},
    pagination::collect_pages,
};
use colloquy_core::{
    ids::WorldId,
    scope::{Principal, Role},
};

/// The most models in a list. A client that needs others names them.
const MAX_LISTED: usize = 1_000;

#[derive(Debug, Serialize)]
struct ModelView {
    id: String,
    object: &'static str,
    /// Seconds since 1970: when the NPC was last edited.
    created: i64,
    owned_by: String,
}

#[derive(Debug, Serialize)]
struct ModelList {
    object: &'static str,
    data: Vec<ModelView>,
}

impl ModelView {
    fn new(id: String, edited_at: Option<DateTime<Utc>>, principal: &Principal) -> Self {
        Self {
            id,
            object: "model",
            created: edited_at.map_or(0, |edited_at| edited_at.timestamp()),
            owned_by: principal.tenant.to_string(),
        }
    }
}

/// Lists the models that the caller may name.
#[get("")]
pub async fn list_models(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Talker>>,
) -> Result<HttpResponse, Problem> {
    let principal = &caller.principal;
    let mut views: Vec<ModelView> = Vec::new();
    let named_models = load_named_models(&state, principal).await?;
    for model in named_models.iter().filter(|model| model.name != PROXY_MODEL) {
        if resolve_target(&state, principal, &named_models, &model.name).is_ok() {
            views.push(ModelView::new(model.name.clone(), None, principal));
        }
    }
    if principal.role != Role::Player || state.chat.players_list_models {
        let worlds = reachable_worlds(&state, principal).await?;
        for world in worlds.iter().filter(|world| !is_hidden_world(principal, world)) {
            list_npcs(&state, principal, world, &mut views).await?;
        }
    }
    if resolve_target(&state, principal, &named_models, PROXY_MODEL).is_ok() {
        views.push(ModelView::new(PROXY_MODEL.to_owned(), None, principal));
    }
    Ok(HttpResponse::Ok().json(ModelList {
        object: "list",
        data: views,
    }))
}

/// Returns a model.
#[get("/{model:.+}")]
pub async fn get_model(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Talker>>,
    path: Path<String>,
) -> Result<HttpResponse, Problem> {
    let principal = &caller.principal;
    let name = path.0;
    let edited_at = match find_target(&state, principal, &name).await? {
        ChatTarget::Character(_) => None,
        ChatTarget::Npc { world, npc } => {
            let npc = state
                .services
                .ledger
                .authored
                .load_npc(&caller.scope, &world, &npc)
                .await?;
            Some(npc.ok_or_else(|| no_such_model(&name))?.updated_at)
        }
    };
    Ok(HttpResponse::Ok().json(ModelView::new(name, edited_at, principal)))
}

async fn reachable_worlds(state: &AppState, principal: &Principal) -> Result<Vec<WorldId>, Problem> {
    if let Some(world) = &principal.world {
        return Ok(vec![world.clone()]);
    }
    let scope = principal.scope();
    let store = &state.services.ledger.authored;
    let worlds = collect_pages(MAX_LISTED, async |page| store.list_worlds(&scope, page).await).await?;
    Ok(worlds.into_iter().map(|world| world.id).collect())
}

/// Adds the NPCs of a world, up to the most models of a list.
async fn list_npcs(
    state: &AppState,
    principal: &Principal,
    world: &WorldId,
    views: &mut Vec<ModelView>,
) -> Result<(), Problem> {
    let scope = principal.scope();
    let store = &state.services.ledger.authored;
    let room = MAX_LISTED.saturating_sub(views.len());
    let npcs = collect_pages(room, async |page| store.list_npcs(&scope, world, page).await).await?;
    let new_views = npcs
        .into_iter()
        .take(room)
        .map(|npc| ModelView::new(format!("{world}/{}", npc.id), Some(npc.updated_at), principal));
    views.extend(new_views);
    Ok(())
}
