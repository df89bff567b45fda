//! Which NPC a model name means.

use super::{
    characters::is_hidden_world,
    settings::{ChatModel, PROXY_MODEL},
};
use crate::{
    AppState,
    errors::{Code, Problem},
};
use colloquy_core::{
    ids::{NpcId, WorldId},
    scope::{Principal, Role},
};

/// What a model name means.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatTarget {
    /// An NPC with its own persona.
    Npc { world: WorldId, npc: NpcId },
    /// A character that the chat program describes. `None`: without a world, model and settings of its own.
    Character(Option<Box<ChatModel>>),
}

/// Returns the meaning of a model name for a caller.
///
/// # Errors
/// 404 if the name means nothing, or an NPC of a world that the token does not reach. 403 if the role may not use it.
pub async fn find_target(state: &AppState, principal: &Principal, name: &str) -> Result<ChatTarget, Problem> {
    let models = load_named_models(state, principal).await?;
    resolve_target(state, principal, &models, name)
}

/// Returns the meaning of a model name for a caller. `models` has the further names of the caller's tenant.
///
/// # Errors
/// As of [`find_target`].
pub fn resolve_target(
    state: &AppState,
    principal: &Principal,
    models: &[ChatModel],
    name: &str,
) -> Result<ChatTarget, Problem> {
    let model = models.iter().find(|model| model.name == name);
    let target = match model {
        Some(model) if model.proxy => ChatTarget::Character(Some(Box::new(model.clone()))),
        Some(ChatModel {
            world: Some(world),
            npc: Some(npc),
            ..
        }) => ChatTarget::Npc {
            world: world.clone(),
            npc: npc.clone(),
        },
        _ if name == PROXY_MODEL => ChatTarget::Character(None),
        _ => {
            let parts = name.split_once('/').or_else(|| name.split_once(':'));
            let ids = parts.and_then(|(world, npc)| Some((world.parse().ok()?, npc.parse().ok()?)));
            let (world, npc) = ids.ok_or_else(|| no_such_model(name))?;
            ChatTarget::Npc { world, npc }
        }
    };
    match &target {
        ChatTarget::Npc { world, .. } if !principal.can_access_world(world) || is_hidden_world(principal, world) => {
            Err(no_such_model(name))
        }
        ChatTarget::Character(_) if !may_use_characters(state, principal) => Err(Problem::new(
            Code::Forbidden,
            "players may not use characters of their own here (setting `chat.players_use_proxy`)",
        )),
        ChatTarget::Character(model) => {
            let world = model.as_ref().and_then(|model| model.world.as_ref());
            match (world, &principal.world) {
                (Some(world), _) if !principal.can_access_world(world) => Err(no_such_model(name)),
                // A world for each player would be outside the bounds of the token.
                (None, Some(_)) => Err(Problem::new(
                    Code::Forbidden,
                    "this token is bound to a world, and characters of chat programs have worlds of their own",
                )),
                _ => Ok(target),
            }
        }
        ChatTarget::Npc { .. } => Ok(target),
    }
}

/// True if the caller may use characters that the chat program describes.
pub fn may_use_characters(state: &AppState, principal: &Principal) -> bool {
    principal.role != Role::Player || state.chat.players_use_proxy
}

/// Returns the further model names of the caller's tenant, each name once: the names that the tenant has stored come before
/// those of the configuration.
///
/// # Errors
/// The store's.
pub async fn load_named_models(state: &AppState, principal: &Principal) -> Result<Vec<ChatModel>, Problem> {
    let stored = state
        .services
        .ledger
        .authored
        .load_chat_models(&principal.scope())
        .await?;
    let configured = &state.chat.models;
    let tenant_models = configured
        .iter()
        .filter(|model| model.tenant.as_ref() == Some(&principal.tenant));
    let shared = configured.iter().filter(|model| model.tenant.is_none());
    let mut models = stored.models;
    for model in tenant_models.chain(shared) {
        if !models.iter().any(|existing| existing.name == model.name) {
            models.push(model.clone());
        }
    }
    Ok(models)
}

/// The answer for an unknown model name.
pub fn no_such_model(name: &str) -> Problem {
    let name: String = name.chars().take(200).collect();
    let detail = format!("there is no model `{name}`; an NPC is `world/npc`, and GET /v1/models lists all");
    Problem::new(Code::NotFound, detail).with_param("model")
}
