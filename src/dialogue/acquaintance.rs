//! When the NPC last talked with this player, in another session.

use super::{Services, turn::TurnInput};
use crate::{memory::summary::Meeting, ports::StoreResult};

/// Read in every turn: another session with this player may begin, or be taken back, at any time and on any node.
pub(super) async fn last_meeting(services: &Services, input: &TurnInput) -> StoreResult<Option<Meeting>> {
    let Some(player) = &input.player else { return Ok(None) };
    let (scope, npc, dialogue) = (&input.scope, &input.npc.id, input.dialogue.id);
    let dialogues = &services.ledger.dialogues;
    dialogues
        .last_meeting(scope, &input.world.id, npc, player, dialogue)
        .await
}
