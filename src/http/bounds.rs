//! What a token is good for that is bound to a world (`wid`), of a backend or a viewer: that world, and nothing else.
//!
//! One place for all routes: what a path names must be of that world, and what names nothing of a world is the whole
//! tenant's and refused, unless its handler says that it keeps to the world (`extract::InWorld`). A player's token is
//! good for less than that; its bounds are those of its sessions.

use actix_web::HttpRequest;

use super::{
    AppState,
    errors::{Code, Problem},
};
use crate::{
    ids::WorldId,
    ports::StoreResult,
    tenancy::{Principal, Role},
};

/// Whether the request is within the bounds of its caller's token.
///
/// # Errors
/// What it names is of another world: 404, as for what is not there. It is about the whole tenant: 403.
pub async fn check_world_bounds(
    state: &AppState,
    request: &HttpRequest,
    who: &Principal,
    keeps_to_world: bool,
) -> Result<(), Problem> {
    let (Some(own), Role::Backend | Role::Viewer) = (&who.world, who.role) else {
        return Ok(());
    };
    for what in WORLD_PARAMS {
        let Some(name) = request.match_info().get(what) else {
            continue;
        };
        return match world_of(state, who, what, name).await? {
            Some(world) if world != *own => Err(Problem::not_found(what)),
            // What is not there is the handler's to say.
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

/// Parameters of paths that tell which world it is about, the most telling first.
const WORLD_PARAMS: [&str; 5] = ["world", "session", "conversation", "fact", "job"];

async fn world_of(state: &AppState, who: &Principal, what: &str, name: &str) -> StoreResult<Option<WorldId>> {
    let (ledger, scope) = (&state.services.ledger, who.scope());
    Ok(match what {
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
        _ => match name.parse() {
            Ok(id) => ledger.jobs.world_of(&scope, id).await?,
            Err(_) => None,
        },
    })
}
