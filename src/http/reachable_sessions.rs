//! The sessions that a caller may reach.

use crate::{AppState, errors::Problem};
use colloquy_actors::DialogueError;
use colloquy_core::{
    ids::{DialogueId, DialogueKind},
    scope::Principal,
};
use colloquy_dialogue::disclosure::may_hear;
use colloquy_ports::ledger::dialogues::{Dialogue, DialogueStatus};

/// Loads the session `id` if `principal` has access; 404 otherwise.
pub async fn reachable_session(state: &AppState, principal: &Principal, id: DialogueId) -> Result<Dialogue, Problem> {
    let not_found = || Problem::not_found("session");
    if id.kind() != DialogueKind::Session {
        return Err(not_found());
    }
    let dialogues = &state.services.ledger.dialogues;
    let stored = dialogues.load_dialogue(&principal.scope(), id).await?;
    stored
        .filter(|dialogue| may_hear(principal, dialogue))
        .ok_or_else(not_found)
}

/// As [`reachable_session`], for a session that accepts lines.
///
/// # Errors
/// The session is closed. Its actor may not yet know that an NPC or the world was deleted.
pub async fn reachable_open_session(
    state: &AppState,
    principal: &Principal,
    id: DialogueId,
) -> Result<Dialogue, Problem> {
    let dialogue = reachable_session(state, principal, id).await?;
    if dialogue.status == DialogueStatus::Closed {
        return Err(DialogueError::Closed.into());
    }
    Ok(dialogue)
}
