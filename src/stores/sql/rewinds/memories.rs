//! Effects of a rewind on memories: the cached results of their facts, and the mark for reconciliation.

use std::collections::BTreeSet;

use super::super::{
    context::Connection,
    facts::{
        fold,
        reconciliation::{SHARED_MEMORY, npcs_of, raise_memory},
    },
    rows::{Columns, json_list},
    statements::fetch_all,
};
use super::derived_rows::RewindImpact;
use colloquy_core::ids::{TenantId, WorldId};
use colloquy_memory::disclosure::audience::Knower;
use colloquy_ports::{
    StoreResult,
    ledger::rewinds::{MAX_QUOTED, QuotedIn},
};

/// The rewound dialogue whose memories change.
pub(super) struct RewoundDialogue<'a> {
    pub world: &'a WorldId,
    /// The id of the rewound dialogue.
    pub dialogue: &'a str,
    /// The earliest affected moment, in microseconds.
    pub since: i64,
}

/// The effects of a rewind on facts.
pub(super) struct DirtyMarkOutcome {
    /// The number of facts that the rewind unsaid.
    pub unsaid: u32,
    /// The number of facts that stand again.
    pub restored: u32,
    /// Latest first.
    pub quoted_in: Vec<QuotedIn>,
}

/// Marks memories for reconciliation, each once, from its earliest moment:
/// - memories of the affected facts ($4);
/// - memories in which a statement was only an echo, because an affected fact was in the prompt;
/// - memories with a request to forget ($6);
/// - memories that took an echo for news, because facts from the prompt ($7), which now stand again, did not stand
///   then.
///
/// Existing marks are renewed.
macro_rules! mark_memories_dirty {
    () => {
        concat!(
            "INSERT INTO unsettled (tenant, world, audience, knowers, private_to, since, mark)
             SELECT $1, m.world, m.audience, m.knowers, m.private_to, MIN(m.since), 1 FROM (
                SELECT world, audience, knowers, private_to, CAST($5 AS BIGINT) AS since FROM facts
                WHERE tenant = $1 AND id ",
            in_json_list!("$4"),
            "
                UNION ALL
                SELECT f.world, f.audience, f.knowers, f.private_to, f.valid_at FROM ",
            json_texts_table!("$4"),
            " v CROSS JOIN invalidations i CROSS JOIN facts f
                WHERE i.tenant = $1 AND i.by_fact = v.value AND i.reason = 'echo' AND f.tenant = $1 AND f.id = i.fact
                UNION ALL
                SELECT a.world, a.audience, a.knowers, a.private_to, $5 FROM extractions a WHERE a.tenant = $1 AND a.turn ",
            in_json_list!("$6"),
            "
                UNION ALL
                SELECT r.world, r.audience, r.knowers, r.private_to, $5 FROM extractions r
                WHERE $7 <> '[]' AND r.tenant = $1 AND r.world = $2 AND r.said_at >= $5 AND ",
            has_one_of!("r.injected", "$7"),
            ") m
             GROUP BY m.world, m.audience, m.knowers, m.private_to ORDER BY m.audience
             ON CONFLICT (tenant, world, audience) DO UPDATE SET since = ",
            sql_least!("unsettled.since", "excluded.since"),
            ", mark = unsettled.mark + 1 RETURNING NULL, NULL"
        )
    };
}
/// Finds turns of other dialogues with an affected fact ($8) in the prompt. The turns are of the NPCs concerned ($3),
/// or of all NPCs if factions or everybody are concerned ($11). Only the latest turns per NPC and overall are searched:
/// the list is a courtesy to the caller and must not hold up the rewind.
macro_rules! turns_quoting {
    () => {
        concat!(
            "SELECT e.dialogue, e.number FROM (",
            extractions_of_each!(
                "e.turn, e.dialogue, e.number, e.quoted, e.said_at",
                json_texts_table!("$3"),
                "$8 <> '[]' AND e.tenant = $1 AND e.world = $2 AND e.npc = p.value AND e.said_at >= $5",
                "500"
            ),
            "
                UNION ALL
                SELECT * FROM (SELECT turn, dialogue, number, quoted, said_at FROM extractions
                    WHERE $8 <> '[]' AND $11 AND tenant = $1 AND world = $2 AND said_at >= $5
                    ORDER BY said_at DESC LIMIT 2000) x) e
            CROSS JOIN turns t
            WHERE t.tenant = $1 AND t.id = e.turn AND t.stands = TRUE AND e.dialogue <> $9 AND ",
            has_one_of!("e.quoted", "$8"),
            " GROUP BY e.dialogue, e.number ORDER BY MAX(e.said_at) DESC LIMIT $10"
        )
    };
}
/// Marks and raises every affected memory, and finds the prompts that had unsaid facts. Reconciliation uses the same
/// lock order, because some memories may belong to NPCs that do not hear the rewound dialogue.
const MARK_MEMORIES_DIRTY: &str = batch!(mark_memories_dirty!(), raise_memory!(was_changed!()), turns_quoting!());

/// Refreshes the cached results, raises every affected memory, and marks the memories for reconciliation.
pub(super) async fn mark_memories_dirty(
    connection: &mut Connection,
    tenant: &TenantId,
    concerned: &RewoundDialogue<'_>,
    impact: RewindImpact,
) -> StoreResult<DirtyMarkOutcome> {
    let affected_ids = json_list(&impact.affected_facts);
    let folded = fold::refresh_views(connection, tenant, impact.affected_facts).await?;
    let knowers: BTreeSet<Knower> = folded.knowers.into_iter().chain(impact.hearers).collect();
    let mut memories = npcs_of(&knowers);
    let everybody = knowers.iter().any(|knower| !matches!(knower, Knower::Npc(_)));
    if everybody {
        memories.insert(SHARED_MEMORY.to_owned());
    }
    let rows = fetch_all!(
        connection, MARK_MEMORIES_DIRTY;
        tenant, concerned.world, json_list(memories), affected_ids, concerned.since,
        json_list(&impact.requesting_turns), json_list(&impact.reinstated_facts), json_list(&impact.unsaid_facts),
        concerned.dialogue, i64::try_from(MAX_QUOTED).unwrap_or(i64::MAX), everybody
    )
    .await?;
    let quoted_in = rows.iter().filter_map(|row| {
        let mut columns = Columns::new(row);
        // The row of a mark has no values.
        let dialogue_id = columns.maybe_id().transpose()?;
        Some(dialogue_id.and_then(|dialogue_id| {
            let turn = columns.number()?;
            Ok(QuotedIn { dialogue_id, turn })
        }))
    });
    let count = |facts: usize| u32::try_from(facts).unwrap_or(u32::MAX);
    Ok(DirtyMarkOutcome {
        unsaid: count(folded.valid_before.intersection(&impact.unsaid_facts).count()),
        restored: count(folded.valid_after.difference(&folded.valid_before).count()),
        quoted_in: quoted_in.collect::<StoreResult<_>>()?,
    })
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn memories_are_found_by_their_contents() {
            assert_searches(mark_memories_dirty!(), &["invalidations_by_fact", "extractions_of_world (tenant=? AND world=? AND said_at>?)"]).await;
            let of_npc = "extractions_of_npc (tenant=? AND world=? AND npc=? AND said_at>?)";
            let of_world = "extractions_of_world (tenant=? AND world=? AND said_at>?)";
            assert_searches(turns_quoting!(), &[of_npc, of_world]).await;
        }
    }
}
