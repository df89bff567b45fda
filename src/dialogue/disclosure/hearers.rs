//! Who may hear a dialogue: read its turns, and get its events.

use colloquy_core::{
    ids::DialogueKind,
    scope::{Principal, Role},
};
use colloquy_ports::ledger::dialogues::Dialogue;

/// True if a caller may hear a dialogue. A player may hear its own sessions, and conversations that name it as a watcher.
#[must_use]
pub fn may_hear(principal: &Principal, dialogue: &Dialogue) -> bool {
    let is_player_of = || match dialogue.id.kind() {
        DialogueKind::Session => principal.player.is_some() && principal.player == dialogue.player,
        DialogueKind::NpcConversation => {
            let mut player = principal.player.iter();
            player.any(|player| dialogue.options.may_watch(player))
        }
    };
    principal.can_access_world(&dialogue.world)
        && match principal.role {
            Role::Operator => false,
            Role::Admin | Role::Backend | Role::Viewer => true,
            Role::Player => is_player_of(),
        }
}
