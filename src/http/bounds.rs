//! The bounds of a backend's or viewer's token with a world (`wid`): access to one world only.
//!
//! The check is the same for all routes. An object named in the path must belong to the token's world. A path without a
//! world is about the whole tenant and refused, unless the handler limits itself to the world (`extract::InWorld`). A
//! player's token allows less: its bounds are its sessions.

use actix_web::HttpRequest;

use super::{
    AppState,
    errors::{Code, Problem},
};
use colloquy_core::{
    ids::WorldId,
    scope::{Principal, Role},
};
use colloquy_ports::StoreResult;

/// Checks that a request is within the bounds of its caller's token.
///
/// # Errors
/// 404 if the object belongs to another world, as for a missing object. 403 if the request is about the whole tenant.
pub async fn check_world_bounds(
    state: &AppState,
    request: &HttpRequest,
    principal: &Principal,
    keeps_to_world: bool,
) -> Result<(), Problem> {
    let (Some(bound_world), Role::Backend | Role::Viewer) = (&principal.world, principal.role) else {
        return Ok(());
    };
    for param in WORLD_PARAMS {
        let Some(name) = request.match_info().get(param) else {
            continue;
        };
        return match world_of(state, principal, param, name).await? {
            Some(world) if world != *bound_world => Err(Problem::not_found(param)),
            // The handler answers for missing objects.
            _ => Ok(()),
        };
    }
    if keeps_to_world {
        return Ok(());
    }
    Err(Problem::new(
        Code::Forbidden,
        "this token is bound to a world, and that is about the whole tenant",
    ))
}

/// Path parameters that determine the world, the most specific first.
const WORLD_PARAMS: [&str; 6] = ["world", "session", "conversation", "fact", "action", "job"];

async fn world_of(state: &AppState, principal: &Principal, param: &str, name: &str) -> StoreResult<Option<WorldId>> {
    let ledger = &state.services.ledger;
    let scope = principal.scope();
    Ok(match param {
        "world" => name.parse().ok(),
        "session" | "conversation" => match name.parse() {
            Ok(id) => ledger
                .dialogues
                .load_dialogue(&scope, id)
                .await?
                .map(|dialogue| dialogue.world),
            Err(_) => None,
        },
        "fact" => match name.parse() {
            Ok(id) => ledger.facts.load_fact(&scope, id).await?.map(|fact| fact.world),
            Err(_) => None,
        },
        "action" => match name.parse() {
            Ok(id) => ledger
                .actions
                .load_action(&scope, id)
                .await?
                .map(|action| action.request.world),
            Err(_) => None,
        },
        _ => match name.parse() {
            Ok(id) => ledger.jobs.world_of(&scope, id).await?,
            Err(_) => None,
        },
    })
}
