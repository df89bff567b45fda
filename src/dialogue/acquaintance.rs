//! When the NPC last talked with this player, in another session.

use super::{Services, turn::TurnInput};
use crate::{memory::summary::Meeting, ports::StoreResult};

/// Facts that were taken out since and are compared with what the last talk was about.
const MOST_TAKEN_OUT: u32 = 200;

/// Read in every turn: another session with this player may begin, or be taken back, at any time and on any node. A summary is
/// left out if it tells what the player asked to forget, or what a person removed, since its session began.
pub(super) async fn last_meeting(services: &Services, input: &TurnInput) -> StoreResult<Option<Meeting>> {
    let Some(player) = &input.player else { return Ok(None) };
    let (scope, npc, dialogue) = (&input.scope, &input.npc.id, input.dialogue.id);
    let (dialogues, facts) = (&services.ledger.dialogues, &services.ledger.facts);
    let mut meeting = dialogues
        .last_meeting(scope, &input.world.id, npc, player, dialogue)
        .await?;
    if let Some(meeting) = &mut meeting
        && let Some(recap) = &meeting.summary
    {
        let viewpoint = input.viewpoint();
        let gone = facts.taken_out(scope, &viewpoint, recap.since, MOST_TAKEN_OUT).await?;
        if gone.iter().any(|content| recap.tells(content)) {
            meeting.summary = None;
        }
    }
    Ok(meeting)
}
