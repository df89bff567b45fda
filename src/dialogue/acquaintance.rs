//! The NPC's last talk with this player in another session.

use super::{Services, locks, turn::TurnInput};
use colloquy_memory::summary::Meeting;
use colloquy_ports::StoreResult;

/// Reads the last meeting. Every turn reads again, because another session with this player may begin or be rewound at
/// any time, on any node. If this player may not hear the newest summary's facts, the newest unlocked summary takes its
/// place.
pub(super) async fn last_meeting(services: &Services, input: &TurnInput) -> StoreResult<Option<Meeting>> {
    let Some(player) = &input.player else { return Ok(None) };
    let (scope, npc, dialogue) = (&input.scope, &input.npc.id, input.dialogue.id);
    let dialogues = &services.ledger.dialogues;
    let meeting = async |unlocked| {
        dialogues
            .find_last_meeting(scope, &input.world.id, npc, player, dialogue, unlocked)
            .await
    };
    let newest = meeting(false).await?;
    let summary = newest.as_ref().and_then(|meeting| meeting.summary.as_ref());
    let Some(locks) = summary.map(|recap| &recap.locks).filter(|locks| !locks.is_empty()) else {
        return Ok(newest);
    };
    let locked = vec![((), locks.clone())];
    let open = locks::filter_open(services, scope, &input.world, &input.viewpoint(), locked).await?;
    if open.is_empty() {
        meeting(true).await
    } else {
        Ok(newest)
    }
}
