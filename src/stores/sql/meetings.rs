//! The last meeting of an NPC and a player, with its summary.

use super::{rows::Columns, statements::BoundQuery};
use colloquy_core::{
    ids::{DialogueId, NpcId, PlayerId, SummaryId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    disclosure::locks::DisclosureLocks,
    summary::{Meeting, MeetingRecap},
};
use colloquy_ports::StoreResult;

/// Selects the disclosure locks of a summary from the checkpoint `c` of the summary's last turn.
macro_rules! summary_locks {
    () => {
        concat!(
            "COALESCE(",
            member_of!("c.body", "told_locks"),
            ", ",
            member_of!("c.body", "locks"),
            ")"
        )
    };
}
/// Finds the player's newest sessions with this NPC, through the player index, with the newest summary per session. If
/// `$7` is true, only an unlocked summary counts, judged by the checkpoint of the summary's last turn. A summary with
/// unknown locks counts only if the NPC has no locked scenario.
pub(super) const LAST_MEETINGS: &str = concat!(
    "SELECT m.committed_at, m.begun_at, m.summary, s.text, s.created_at, ",
    summary_locks!(),
    "
    FROM (SELECT d.id AS dialogue, d.created_at AS begun_at, t.committed_at AS committed_at,
            (SELECT n.id FROM summaries n CROSS JOIN turns e CROSS JOIN checkpoints c
             WHERE n.tenant = $1 AND n.dialogue = d.id AND n.lifted_at IS NULL AND n.text <> ''
               AND e.tenant = $1 AND e.dialogue = d.id AND e.number = n.to_turn AND e.stands = TRUE
               AND c.tenant = $1 AND c.turn = e.id
               AND (",
    summary_locks!(),
    " = '' OR NOT $7 AND ",
    summary_locks!(),
    " IS NOT NULL OR ",
    summary_locks!(),
    " IS NULL AND NOT EXISTS (SELECT 1 FROM scenarios a
                   WHERE a.tenant = $1 AND a.world = $2 AND a.npc = $3 AND (a.required_progress > 0 OR a.conditions <> '[]')))
             ORDER BY n.from_turn DESC, n.created_at DESC, n.id DESC LIMIT 1) AS summary
        FROM dialogues d CROSS JOIN participants p CROSS JOIN turns t
        WHERE d.tenant = $1 AND d.player = $4 AND ",
    unindexed!("d.world"),
    " = $2 AND d.id <> $5
          AND p.tenant = $1 AND p.world = $2 AND p.npc = $3 AND p.part = 'speaker' AND p.dialogue = d.id
          AND t.tenant = $1 AND t.id = d.head_turn_id
        ORDER BY d.created_at DESC, d.id DESC LIMIT $6) m
    LEFT JOIN summaries s ON s.tenant = $1 AND s.id = m.summary
    LEFT JOIN turns e ON e.tenant = $1 AND e.dialogue = m.dialogue AND e.number = s.to_turn AND e.stands = TRUE
    LEFT JOIN checkpoints c ON c.tenant = $1 AND c.turn = e.id
    ORDER BY m.begun_at DESC, m.dialogue DESC"
);
/// The number of sessions searched for a summary.
const MAX_MEETINGS_SEARCHED: i64 = 8;

/// Binds the values of [`LAST_MEETINGS`].
pub(super) fn bind_last_meeting<'q>(
    query: BoundQuery<'q>,
    scope: &TenantScope,
    world: &WorldId,
    npc: &NpcId,
    player: &PlayerId,
    apart_from: DialogueId,
    unlocked: bool,
) -> BoundQuery<'q> {
    bind_to!(query; scope.tenant(), world, npc, player, apart_from, MAX_MEETINGS_SEARCHED, unlocked)
}

/// Reads the rows of [`LAST_MEETINGS`]: the newest session, with the newest summary.
pub(super) fn read_last_meeting<'r>(rows: impl Iterator<Item = Columns<'r>>) -> StoreResult<Option<Meeting>> {
    let mut meeting: Option<Meeting> = None;
    for mut columns in rows {
        let met_at = columns.time()?;
        let since = columns.time()?;
        let summary: Option<SummaryId> = columns.maybe_id()?;
        let text: Option<String> = columns.next()?;
        let made_at = columns.maybe_time()?;
        let meeting = meeting.get_or_insert(Meeting {
            last_turn_at: met_at,
            since,
            summary: None,
        });
        let locks: Option<DisclosureLocks> = columns.maybe_id()?;
        if let (Some(summary), Some(text), Some(made_at)) = (summary, text, made_at) {
            // The query returns unknown locks only if the NPC has no locked scenario.
            let locks = locks.unwrap_or_default();
            let recap = MeetingRecap {
                summary,
                text,
                since,
                last_turn_at: made_at,
                locks,
            };
            meeting.summary = Some(recap);
            break;
        }
    }
    Ok(meeting)
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn meetings_are_found_by_player() {
            assert_searches(
                LAST_MEETINGS,
                &[
                    "dialogues_of_player (tenant=? AND player=?)",
                    "sqlite_autoindex_turns_1 (tenant=? AND id=?)",
                    "summaries_of_dialogue (tenant=? AND dialogue=?)",
                    "sqlite_autoindex_summaries_1 (tenant=? AND id=?)",
                    "turns_standing (tenant=? AND dialogue=? AND number=?)",
                ],
            )
            .await;
        }
    }
}
