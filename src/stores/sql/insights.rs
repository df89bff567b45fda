//! Insights. The commit of a curation pass inserts them; `rewinds::derived_rows` takes them back and reinstates them.
//! Which insights count is decided by every query, so that a rewind of newer ones brings older ones back.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    audit,
    context::{Connection, Engine},
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, parse_text, to_json, to_micros, without_nul},
    statements::{BoundQuery, execute, fetch_all},
};
use colloquy_core::{
    ids::{InsightId, NpcId, PlayerId, TenantId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    insight::{EarlierInsight, Insight, MAX_INSIGHTS},
    party::subject_key,
};
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    ledger::{
        audit::Edit,
        dialogues::Dialogue,
        insights::{InsightFilter, InsightStore},
    },
};

pub(super) struct SqlInsightStore(pub(super) Arc<Engine>);

/// The columns of [`read_insight`].
macro_rules! insight_columns {
    () => {
        "id, world, npc, player, dialogue, number, entity, day, text, turns, rests_on, locked_by, at"
    };
}
/// True if the insight counts: no newer one of the dialogue and the day is about the entity, none stands in its place,
/// and the turns of the one in whose place it stands have not been taken back. One with further locks stands beside it:
/// whoever may not hear that one may hear this one.
macro_rules! is_counted {
    ($of:literal, $rests_on:literal) => {
        concat!(
            "NOT EXISTS (SELECT 1 FROM insights s WHERE s.tenant = $1 AND s.world = ",
            $of,
            ".world AND s.npc = ",
            $of,
            ".npc AND s.player = ",
            $of,
            ".player AND s.entity_key = ",
            $of,
            ".entity_key AND s.day = ",
            $of,
            ".day AND s.dialogue = ",
            $of,
            ".dialogue AND s.lifted_at IS NULL AND (s.text = '' AND s.replaces = ''
                OR s.text <> '' AND s.locked_by IN ('', ",
            $of,
            ".locked_by)) AND (s.at, s.id) > (",
            $of,
            ".at, ",
            $of,
            ".id)) AND NOT EXISTS (SELECT 1 FROM insights r WHERE r.tenant = $1 AND r.world = ",
            $of,
            ".world AND r.npc = ",
            $of,
            ".npc AND r.player = ",
            $of,
            ".player AND r.replaces = ",
            $of,
            ".cause_id AND r.replaces <> '' AND r.entity_key = ",
            $of,
            ".entity_key AND r.lifted_at IS NULL AND (r.text = '' OR r.locked_by IN ('', ",
            $of,
            ".locked_by)) AND ",
            stands_on_all!("r.rests_on"),
            ") AND ",
            stands_on_all!($rests_on)
        )
    };
}
/// True if all turns of a list stand.
macro_rules! stands_on_all {
    ($rests_on:literal) => {
        concat!(
            "NOT EXISTS (SELECT 1 FROM ",
            json_texts_table!($rests_on),
            " v WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.tenant = $1 AND t.id = v.value AND t.stands = TRUE))"
        )
    };
}
macro_rules! newest_insights {
    ($player:literal) => {
        concat!(
            "SELECT ",
            insight_columns!(),
            ", cause_id FROM insights i WHERE i.tenant = $1 AND i.world = $2 AND i.npc = $3 AND i.player = ",
            $player,
            " AND i.lifted_at IS NULL AND ",
            is_counted!("i", "i.rests_on"),
            " ORDER BY i.at DESC, i.id DESC LIMIT $5"
        )
    };
}

pub(super) const LOAD_INSIGHTS: &str = concat!(
    "SELECT * FROM (",
    newest_insights!("$4"),
    ") p UNION ALL SELECT * FROM (",
    newest_insights!("''"),
    ") c WHERE $4 <> ''"
);
/// `$7`: also those of other dialogues.
const EARLIER_INSIGHTS: &str = concat!(
    "SELECT ",
    insight_columns!(),
    ", cause_id FROM insights i WHERE i.tenant = $1 AND i.world = $2 AND i.npc = $3 AND i.player = $4 AND i.at <= $6
        AND i.lifted_at IS NULL AND i.text <> '' AND (i.dialogue = $5 OR $7) AND ",
    is_counted!("i", "i.rests_on"),
    " ORDER BY i.at DESC, i.id DESC LIMIT $8"
);
/// An insight counts if there is no `$7`th newer insight of the NPC with the player.
const LIST_INSIGHTS: &str = concat!(
    "SELECT ",
    insight_columns!(),
    " FROM insights i WHERE i.tenant = $1 AND i.world = $2 AND i.npc = $3 AND i.lifted_at IS NULL
        AND i.text <> '' AND i.entity_key = COALESCE($4, i.entity_key) AND i.player = COALESCE($5, i.player)
        AND ($6 IS NULL OR (i.at, i.id) < (SELECT c.at, c.id FROM insights c WHERE c.tenant = $1 AND c.id = $6)) AND ",
    is_counted!("i", "i.rests_on"),
    " AND (SELECT 1 FROM insights n WHERE n.tenant = $1 AND n.world = i.world AND n.npc = i.npc AND n.player = i.player
            AND n.lifted_at IS NULL AND (n.at, n.id) > (i.at, i.id) AND ",
    is_counted!("n", "n.rests_on"),
    " ORDER BY n.at DESC, n.id DESC LIMIT 1 OFFSET $7) IS NULL
      ORDER BY i.at DESC, i.id DESC LIMIT $8"
);
const INSERT_INSIGHT: &str = "INSERT INTO insights
        (tenant, id, world, npc, player, dialogue, number, entity, entity_key, day, text, turns, replaces, rests_on, locked_by,
         cause_kind, cause_id, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 'turn', $16, $17)";
/// Lifts an insight, and those in whose place it counted. No rewind reinstates a row that an edit has lifted. The rows
/// stay without their texts, as cursors of lists.
const DELETE_INSIGHT: &str = concat!(
    "UPDATE insights SET lifted_at = $5, lifted_by = $6, text = ''
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND lifted_at IS NULL AND EXISTS (
        SELECT 1 FROM insights d CROSS JOIN insights c
        WHERE d.tenant = $1 AND d.id = $4 AND d.world = $2 AND d.npc = $3 AND d.lifted_at IS NULL
            AND c.tenant = $1 AND c.world = $2 AND c.npc = $3 AND c.player = d.player AND c.entity_key = d.entity_key
            AND (c.id = d.id OR ",
    has_text!("d.rests_on", "c.cause_id"),
    ") AND c.player = insights.player AND c.entity_key = insights.entity_key AND c.day = insights.day
            AND c.dialogue = insights.dialogue AND (insights.at, insights.id) <= (c.at, c.id)
            AND d.locked_by IN ('', insights.locked_by))"
);

fn read_insight(columns: &mut Columns<'_>) -> StoreResult<Insight> {
    Ok(Insight {
        id: columns.id()?,
        world: columns.id()?,
        npc: columns.id()?,
        player: match columns.next::<&str>()? {
            "" => None,
            player => Some(parse_text(player)?),
        },
        dialogue: columns.id()?,
        number: columns.number()?,
        entity: columns.next()?,
        day: columns.next()?,
        text: columns.next()?,
        turns: columns.json()?,
        rests_on: columns.json()?,
        locks: columns.id()?,
        last_turn_at: columns.time()?,
    })
}

fn read_earlier_insight(columns: &mut Columns<'_>) -> StoreResult<EarlierInsight> {
    Ok(EarlierInsight {
        insight: read_insight(columns)?,
        cause: columns.id()?,
    })
}

/// Binds the values of [`LOAD_INSIGHTS`].
pub(super) fn bind_insights<'q>(
    query: BoundQuery<'q>,
    scope: &TenantScope,
    world: &WorldId,
    npc: &NpcId,
    player: Option<&PlayerId>,
) -> BoundQuery<'q> {
    bind_to!(query; scope.tenant(), world, npc, player_column(player), i64::from(MAX_INSIGHTS))
}

/// Reads the rows of [`LOAD_INSIGHTS`], newest first.
pub(super) fn read_insights<'r>(rows: impl Iterator<Item = Columns<'r>>) -> StoreResult<Vec<EarlierInsight>> {
    let insights = rows.map(|mut columns| read_earlier_insight(&mut columns));
    let mut insights: Vec<EarlierInsight> = insights.collect::<StoreResult<_>>()?;
    insights.sort_by_key(|earlier| std::cmp::Reverse((earlier.insight.last_turn_at, earlier.insight.id)));
    Ok(insights)
}

/// Returns the value of the column `player`.
pub(super) fn player_column(player: Option<&PlayerId>) -> String {
    player.map(PlayerId::to_string).unwrap_or_default()
}

/// Writes the insights of a pass.
pub(super) async fn insert_insights(
    connection: &mut Connection,
    tenant: &TenantId,
    cause: TurnId,
    insights: &[Insight],
) -> StoreResult<()> {
    for insight in insights {
        execute!(
            connection, INSERT_INSIGHT;
            tenant, insight.id, insight.world, insight.npc, player_column(insight.player.as_ref()), insight.dialogue,
            i64::from(insight.number), without_nul(&insight.entity), without_nul(&insight.entity_key()),
            insight.day, without_nul(&insight.text), to_json(&insight.turns)?,
            insight.rests_on.first().map(ToString::to_string).unwrap_or_default(), to_json(&insight.rests_on)?,
            insight.locks.to_string(), cause, to_micros(insight.last_turn_at)
        )
        .await?;
    }
    Ok(())
}

#[async_trait]
impl InsightStore for SqlInsightStore {
    async fn load_insights(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: Option<&PlayerId>,
    ) -> StoreResult<Vec<EarlierInsight>> {
        let query = bind_insights(sqlx::query(LOAD_INSIGHTS), scope, world, npc, player);
        let rows = fetch_all(&mut *self.0.acquire_reader(scope).await?, query).await?;
        read_insights(rows.iter().map(Columns::new))
    }
    async fn load_earlier_insights(
        &self,
        scope: &TenantScope,
        dialogue: &Dialogue,
        until: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<EarlierInsight>> {
        let [npc, other_npcs @ ..] = &dialogue.npcs[..] else {
            return Ok(Vec::new());
        };
        let has_others = dialogue.player.is_some() && other_npcs.is_empty();
        let query = bind!(
            EARLIER_INSIGHTS;
            scope.tenant(), dialogue.world, npc, player_column(dialogue.player.as_ref()), dialogue.id, to_micros(until),
            has_others, i64::from(limit)
        );
        self.0.fetch_all(scope, query, read_earlier_insight).await
    }
    async fn list_insights(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        filter: InsightFilter<'_>,
        page: &PageRequest,
    ) -> StoreResult<Page<Insight>> {
        let entity = filter.entity.map(subject_key);
        let query = bind!(
            LIST_INSIGHTS;
            scope.tenant(), world, npc, entity.as_deref().map(without_nul), filter.player,
            page_cursor(page), i64::from(MAX_INSIGHTS - 1), page_row_limit(page)
        );
        fetch_page(&self.0, scope, query, page, read_insight, |insight| {
            insight.id.to_string()
        })
        .await
    }
    async fn delete_insight(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        insight: InsightId,
        edit: &Edit,
    ) -> StoreResult<bool> {
        let tenant = scope.tenant().clone();
        let world = world.clone();
        let npc = npc.clone();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| {
            let deleted =
                execute!(connection, DELETE_INSIGHT; tenant, world, npc, insight, to_micros(edit.made_at), edit.id)
                    .await?;
            if deleted > 0 {
                audit::record_audit(connection, &tenant, &edit).await?;
            }
            Ok(deleted > 0)
        })
        .await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn insights_are_found_in_index_order() {
            for (statement, index) in [(LOAD_INSIGHTS, "insights_newest ("), (LIST_INSIGHTS, "insights_of_npc (")] {
                let plan = plan(statement).await;
                for part in [index, "insights_of_day (tenant=? AND world=? AND npc=? AND player=? AND entity_key=? AND day=?"] {
                    assert!(plan.contains(part), "no `{part}` in\n{plan}");
                }
                assert!(!plan.contains("SCAN i") && !plan.contains("TEMP B-TREE"), "{plan}");
            }
            assert_searches(
                EARLIER_INSIGHTS,
                &["insights_newest (tenant=? AND world=? AND npc=? AND player=? AND at<?)", "insights_replacing ("],
            )
            .await;
            assert_searches(DELETE_INSIGHT, &["sqlite_autoindex_insights_1 (tenant=? AND id=?)"]).await;
        }
    }
}
