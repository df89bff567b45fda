//! When the NPC last talked with this player, in another session.

use super::{Services, locks, turn::TurnInput};
use crate::{memory::summary::Meeting, ports::StoreResult};

/// Read in every turn: another session with this player may begin, or be taken back, at any time and on any node.
pub(super) async fn last_meeting(services: &Services, input: &TurnInput) -> StoreResult<Option<Meeting>> {
    let Some(player) = &input.player else { return Ok(None) };
    let (scope, npc, dialogue) = (&input.scope, &input.npc.id, input.dialogue.id);
    let dialogues = &services.ledger.dialogues;
    let meeting = dialogues
        .last_meeting(scope, &input.world.id, npc, player, dialogue)
        .await?;
    open(services, input, meeting).await
}

/// Without its summary, where that session was told what this player may not hear of any more.
async fn open(services: &Services, input: &TurnInput, meeting: Option<Meeting>) -> StoreResult<Option<Meeting>> {
    let Some(mut meeting) = meeting else { return Ok(None) };
    let locked = vec![((), meeting.locks.clone())];
    let open = locks::open(services, &input.scope, &input.world, &input.viewpoint(), locked).await?;
    if open.is_empty() {
        meeting.summary = None;
    }
    Ok(Some(meeting))
}
