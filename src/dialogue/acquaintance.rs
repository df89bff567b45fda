//! The NPC's last talk with this player in another session.

use super::{
    Services,
    locks::{self, LocksByWords},
    turn::TurnInput,
};
use colloquy_memory::{locks::DisclosureLocks, summary::Meeting};
use colloquy_ports::StoreResult;

/// Reads the last meeting. Every turn reads again, because another session with this player may begin or be rewound at
/// any time, on any node. If this player may not hear the newest summary's facts, the newest unlocked summary takes its
/// place.
pub(super) async fn last_meeting(services: &Services, input: &TurnInput) -> StoreResult<Option<Meeting>> {
    let Some(player) = &input.player else { return Ok(None) };
    let scope = &input.scope;
    let npc = &input.npc.id;
    let dialogue = input.dialogue.id;
    let dialogues = &services.ledger.dialogues;
    let meeting = async |unlocked| {
        dialogues
            .find_last_meeting(scope, &input.world.id, npc, player, dialogue, unlocked)
            .await
    };
    let mut newest = meeting(false).await?;
    let summary = newest.as_mut().and_then(|meeting| meeting.summary.as_mut());
    let Some(recap) = summary.filter(|recap| !recap.locks.is_empty()) else {
        return Ok(newest);
    };
    let is_open = async |locks: &DisclosureLocks| {
        let locked = vec![((), locks.clone())];
        let open = locks::filter_open(services, scope, &input.world, &input.viewpoint(), locked).await;
        open.map(|open| !open.is_empty())
    };
    if !is_open(&recap.locks).await? {
        // The locks are those of the whole dialogue. The summary may tell nothing of the locked content.
        let split = LocksByWords::load(services, scope, &input.world, &recap.locks, &input.npc.name).await?;
        recap.locks = split.locks_of(&[&recap.text]);
        if !is_open(&recap.locks).await? {
            return meeting(true).await;
        }
    }
    Ok(newest)
}
