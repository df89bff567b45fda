//! The sessions that a caller may reach.

use crate::{AppState, errors::Problem};
use colloquy_actors::DialogueError;
use colloquy_core::{
    ids::{DialogueId, DialogueKind},
    scope::{Principal, Role},
};
use colloquy_ports::ledger::dialogues::{Dialogue, DialogueStatus};

/// Loads the session `id` if `who` has access; 404 otherwise.
pub async fn reachable_session(state: &AppState, who: &Principal, id: DialogueId) -> Result<Dialogue, Problem> {
    let missing = || Problem::not_found("session");
    if id.kind() != DialogueKind::Session {
        return Err(missing());
    }
    let found = state.services.ledger.dialogues.load_dialogue(&who.scope(), id).await?;
    found.filter(|dialogue| may_reach(who, dialogue)).ok_or_else(missing)
}

/// As [`reachable_session`], for a session that accepts lines.
///
/// # Errors
/// The session is closed. Its actor may not yet know that an NPC or the world was deleted.
pub async fn reachable_open_session(state: &AppState, who: &Principal, id: DialogueId) -> Result<Dialogue, Problem> {
    let dialogue = reachable_session(state, who, id).await?;
    if dialogue.status == DialogueStatus::Closed {
        return Err(DialogueError::Closed.into());
    }
    Ok(dialogue)
}

pub(super) fn may_reach(who: &Principal, dialogue: &Dialogue) -> bool {
    who.can_access_world(&dialogue.world)
        && match who.role {
            Role::Operator => false,
            Role::Admin | Role::Backend | Role::Viewer => true,
            Role::Player => who.player.is_some() && who.player == dialogue.player,
        }
}
