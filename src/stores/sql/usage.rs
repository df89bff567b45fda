//! Usage counters: sums per tenant, day, task and model.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use chrono::NaiveDate;
use serde_json::json;

use super::{
    authored_size,
    context::Engine,
    rows::{Columns, ReadRow, to_signed, without_nul},
    scope::RowScope,
    statements::execute,
};
use colloquy_core::{
    ids::{PlayerId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::turn::Usage;
use colloquy_ports::{
    StoreResult,
    ledger::usage::{
        AuthoredSize, DailyModelUsage, OwnerUsageRow, StoredAmounts, UsageDelta, UsageOwner, UsageRow, UsageStore,
    },
};

pub(super) struct SqlUsageStore(pub(super) Arc<Engine>);

const ADD_USAGE: &str = concat!(
    "INSERT INTO model_usage
        (tenant, day, task, model, calls, prompt_tokens, cached_tokens, unchanged_tokens, completion_tokens)
     SELECT $1, value ->> 0, value ->> 1, value ->> 2, CAST(value ->> 3 AS BIGINT), CAST(value ->> 4 AS BIGINT),
        CAST(value ->> 5 AS BIGINT), CAST(value ->> 6 AS BIGINT), CAST(value ->> 7 AS BIGINT)
     FROM ",
    json_arrays_table!("$2"),
    " v WHERE TRUE ORDER BY key
    ON CONFLICT (tenant, day, task, model) DO UPDATE SET
        calls = model_usage.calls + excluded.calls,
        prompt_tokens = model_usage.prompt_tokens + excluded.prompt_tokens,
        cached_tokens = model_usage.cached_tokens + excluded.cached_tokens,
        unchanged_tokens = model_usage.unchanged_tokens + excluded.unchanged_tokens,
        completion_tokens = model_usage.completion_tokens + excluded.completion_tokens"
);
const ADD_NPC_USAGE: &str = concat!(
    "INSERT INTO npc_usage (tenant, day, task, model, calls, prompt_tokens, cached_tokens, unchanged_tokens,
        completion_tokens, world, npc)
     SELECT $1, value ->> 0, value ->> 1, value ->> 2, CAST(value ->> 3 AS BIGINT), CAST(value ->> 4 AS BIGINT),
        CAST(value ->> 5 AS BIGINT), CAST(value ->> 6 AS BIGINT), CAST(value ->> 7 AS BIGINT), value ->> 8, value ->> 9
     FROM ",
    json_arrays_table!("$2"),
    " v WHERE TRUE ORDER BY key
    ON CONFLICT (tenant, world, npc, day, task, model) DO UPDATE SET
        calls = npc_usage.calls + excluded.calls,
        prompt_tokens = npc_usage.prompt_tokens + excluded.prompt_tokens,
        cached_tokens = npc_usage.cached_tokens + excluded.cached_tokens,
        unchanged_tokens = npc_usage.unchanged_tokens + excluded.unchanged_tokens,
        completion_tokens = npc_usage.completion_tokens + excluded.completion_tokens"
);
const ADD_PLAYER_USAGE: &str = concat!(
    "INSERT INTO player_usage (tenant, player, day, model, prompt_tokens, cached_tokens, completion_tokens)
     SELECT $1, value ->> 0, value ->> 1, value ->> 2, CAST(value ->> 3 AS BIGINT), CAST(value ->> 4 AS BIGINT),
        CAST(value ->> 5 AS BIGINT)
     FROM ",
    json_arrays_table!("$2"),
    " v WHERE TRUE ORDER BY key
    ON CONFLICT (tenant, player, day, model) DO UPDATE SET
        prompt_tokens = player_usage.prompt_tokens + excluded.prompt_tokens,
        cached_tokens = player_usage.cached_tokens + excluded.cached_tokens,
        completion_tokens = player_usage.completion_tokens + excluded.completion_tokens"
);
const USAGE_OF_PLAYER: &str = "SELECT tenant, model, prompt_tokens, cached_tokens, completion_tokens FROM player_usage
    WHERE tenant = $1 AND player = $2 AND day = $3";
/// Deletes the oldest day, if the day is before `$2`.
pub(super) const DELETE_OLD_PLAYER_USAGE: &str = "DELETE FROM player_usage WHERE tenant = $1 AND day < $2
    AND day = (SELECT MIN(day) FROM player_usage WHERE tenant = $1)";
/// The sums of [`read_owner_usage`].
macro_rules! usage_sums {
    () => {
        "task, model, CAST(SUM(calls) AS BIGINT), CAST(SUM(prompt_tokens) AS BIGINT), CAST(SUM(cached_tokens) AS BIGINT),
            CAST(SUM(unchanged_tokens) AS BIGINT), CAST(SUM(completion_tokens) AS BIGINT)"
    };
}
const USAGE_OF_WORLDS: &str = concat!(
    "SELECT world, ",
    usage_sums!(),
    " FROM npc_usage WHERE tenant = $1 AND day BETWEEN $2 AND $3
      GROUP BY world, task, model ORDER BY world, task, model"
);
const USAGE_OF_NPCS: &str = concat!(
    "SELECT npc, ",
    usage_sums!(),
    " FROM npc_usage WHERE tenant = $1 AND world = $2 AND day BETWEEN $3 AND $4 AND npc IN (
        SELECT DISTINCT npc FROM npc_usage
        WHERE tenant = $1 AND world = $2 AND day BETWEEN $3 AND $4 AND ($5 IS NULL OR npc > $5) ORDER BY npc LIMIT $6)
      GROUP BY npc, task, model ORDER BY npc, task, model"
);
const USAGE_BETWEEN: &str =
    "SELECT day, task, model, calls, prompt_tokens, cached_tokens, unchanged_tokens, completion_tokens
    FROM model_usage WHERE tenant = $1 AND day BETWEEN $2 AND $3 ORDER BY day, task, model";
const USAGE_OF_DAY: &str =
    "SELECT tenant, model, CAST(SUM(prompt_tokens) AS BIGINT), CAST(SUM(cached_tokens) AS BIGINT),
        CAST(SUM(completion_tokens) AS BIGINT)
    FROM model_usage WHERE day = $1 GROUP BY tenant, model";
/// Deletes the oldest day, if the day is before `$2`.
pub(super) const DELETE_OLD_NPC_USAGE: &str = "DELETE FROM npc_usage WHERE tenant = $1 AND day < $2
    AND day = (SELECT MIN(day) FROM npc_usage WHERE tenant = $1)";
/// Counts only up to the given limits, because the tables may have millions of rows.
const COUNT_STORED: &str = "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM dialogues WHERE tenant = $1 LIMIT $2) d),
    (SELECT COUNT(*) FROM (SELECT 1 FROM turns WHERE tenant = $1 LIMIT $3) t)";

/// Standing and unsaid turns have an index each.
const COUNT_TURNS_OF_PLAYER: &str = "SELECT COUNT(*) FROM (
    SELECT 1 FROM dialogues d CROSS JOIN turns t WHERE d.tenant = $1 AND d.player = $2
        AND t.tenant = $1 AND t.dialogue = d.id AND t.stands = TRUE
    UNION ALL
    SELECT 1 FROM dialogues d CROSS JOIN turns t WHERE d.tenant = $1 AND d.player = $2
        AND t.tenant = $1 AND t.dialogue = d.id AND t.stands = FALSE
    LIMIT $3) c";
const COUNT_SESSIONS_OF_PLAYER: &str =
    "SELECT COUNT(*) FROM (SELECT 1 FROM dialogues WHERE tenant = $1 AND player = $2 LIMIT $3) d";

fn read_usage(columns: &mut Columns<'_>) -> StoreResult<UsageRow> {
    Ok(UsageRow {
        day: columns.id()?,
        task: columns.next()?,
        model: columns.next()?,
        calls: columns.number()?,
        prompt_tokens: columns.number()?,
        cached_tokens: columns.number()?,
        unchanged_tokens: columns.number()?,
        completion_tokens: columns.number()?,
    })
}

fn read_owner_usage(columns: &mut Columns<'_>) -> StoreResult<OwnerUsageRow> {
    Ok(OwnerUsageRow {
        owner: columns.next()?,
        task: columns.next()?,
        model: columns.next()?,
        calls: columns.number()?,
        prompt_tokens: columns.number()?,
        cached_tokens: columns.number()?,
        unchanged_tokens: columns.number()?,
        completion_tokens: columns.number()?,
    })
}

fn read_daily_usage(columns: &mut Columns<'_>) -> StoreResult<DailyModelUsage> {
    Ok(DailyModelUsage {
        tenant: columns.id()?,
        model: columns.next()?,
        prompt_tokens: columns.number()?,
        cached_tokens: columns.number()?,
        completion_tokens: columns.number()?,
    })
}

/// Returns the sums of the deltas as a JSON array of rows, each by its owner, day, task and model.
fn sum_rows<'a>(
    deltas: impl Iterator<Item = &'a UsageDelta>,
    owner: impl Fn(&'a UsageDelta) -> Option<&'a UsageOwner>,
) -> String {
    // Each counter appears once, and all writers use the same order.
    let mut sums = BTreeMap::<_, (u32, Usage, u64)>::new();
    for delta in deltas {
        let key = (owner(delta), delta.day, delta.task, delta.model.as_str());
        let (calls, usage, unchanged) = sums.entry(key).or_default();
        *calls = calls.saturating_add(delta.calls);
        *usage += delta.usage;
        *unchanged = unchanged.saturating_add(delta.unchanged_tokens);
    }
    let rows = sums
        .into_iter()
        .map(|((owner, day, task, model), (calls, usage, unchanged))| {
            json!([
                day.to_string(),
                task,
                model,
                calls,
                usage.prompt_tokens,
                usage.cached_tokens,
                unchanged,
                usage.completion_tokens,
                owner.map(|owner| &owner.world),
                owner.map(|owner| &owner.npc),
            ])
        });
    rows.collect::<serde_json::Value>().to_string()
}

/// Returns the sums of the deltas of players as a JSON array of rows, each by player, day and model.
fn player_rows(deltas: &[UsageDelta]) -> String {
    let mut sums = BTreeMap::<_, Usage>::new();
    for delta in deltas {
        if let Some(player) = &delta.player {
            *sums.entry((player, delta.day, delta.model.as_str())).or_default() += delta.usage;
        }
    }
    let rows = sums.into_iter().map(|((player, day, model), usage)| {
        json!([
            player,
            day.to_string(),
            model,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens
        ])
    });
    rows.collect::<serde_json::Value>().to_string()
}

#[async_trait]
impl UsageStore for SqlUsageStore {
    async fn add_usage(&self, scope: &TenantScope, deltas: &[UsageDelta]) -> StoreResult<()> {
        if deltas.is_empty() {
            return Ok(());
        }
        let tenant = scope.tenant().clone();
        let total_rows = sum_rows(deltas.iter(), |_| None);
        let of_npcs = sum_rows(deltas.iter().filter(|delta| delta.owner.is_some()), |delta| {
            delta.owner.as_ref()
        });
        let has_players = deltas.iter().any(|delta| delta.player.is_some());
        let of_players = has_players.then(|| player_rows(deltas));
        write_transaction!(self.0, scope, |connection| {
            execute!(connection, ADD_USAGE; tenant, total_rows).await?;
            if let Some(of_players) = &of_players {
                execute!(connection, ADD_PLAYER_USAGE; tenant, of_players).await?;
            }
            execute!(connection, ADD_NPC_USAGE; tenant, of_npcs).await.map(drop)
        })
        .await
    }
    async fn list_usage_between(
        &self,
        scope: &TenantScope,
        from: NaiveDate,
        to: NaiveDate,
    ) -> StoreResult<Vec<UsageRow>> {
        let query = bind!(USAGE_BETWEEN; scope.tenant(), from.to_string(), to.to_string());
        self.0.fetch_all(scope, query, read_usage).await
    }
    async fn sum_usage_of_worlds(
        &self,
        scope: &TenantScope,
        from: NaiveDate,
        to: NaiveDate,
    ) -> StoreResult<Vec<OwnerUsageRow>> {
        let query = bind!(USAGE_OF_WORLDS; scope.tenant(), from.to_string(), to.to_string());
        self.0.fetch_all(scope, query, read_owner_usage).await
    }
    async fn sum_usage_of_npcs(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        (from, to): (NaiveDate, NaiveDate),
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Vec<OwnerUsageRow>> {
        let query = bind!(
            USAGE_OF_NPCS;
            scope.tenant(), world, from.to_string(), to.to_string(), after.map(without_nul), i64::from(limit)
        );
        self.0.fetch_all(scope, query, read_owner_usage).await
    }
    async fn list_usage_of_day(&self, day: NaiveDate) -> StoreResult<Vec<DailyModelUsage>> {
        let query = bind!(USAGE_OF_DAY; day.to_string());
        self.0.fetch_all(RowScope::All, query, read_daily_usage).await
    }
    async fn list_player_usage(
        &self,
        scope: &TenantScope,
        player: &PlayerId,
        day: NaiveDate,
    ) -> StoreResult<Vec<DailyModelUsage>> {
        let query = bind!(USAGE_OF_PLAYER; scope.tenant(), player, day.to_string());
        self.0.fetch_all(scope, query, read_daily_usage).await
    }
    async fn count_turns_of(&self, scope: &TenantScope, player: &PlayerId, at_most: u64) -> StoreResult<u64> {
        let query = bind!(COUNT_TURNS_OF_PLAYER; scope.tenant(), player, to_signed(at_most));
        self.0.fetch_one(scope, query, |columns| columns.number()).await
    }
    async fn count_sessions_of(&self, scope: &TenantScope, player: &PlayerId, at_most: u64) -> StoreResult<u64> {
        let query = bind!(COUNT_SESSIONS_OF_PLAYER; scope.tenant(), player, to_signed(at_most));
        self.0.fetch_one(scope, query, |columns| columns.number()).await
    }
    async fn load_authored_size(&self, scope: &TenantScope) -> StoreResult<AuthoredSize> {
        let query = bind!(authored_size::AUTHORED_SIZE; scope.tenant());
        self.0.fetch_one(scope, query, authored_size::read_size).await
    }
    async fn count_stored(&self, scope: &TenantScope, at_most: StoredAmounts) -> StoreResult<StoredAmounts> {
        let query = bind!(COUNT_STORED; scope.tenant(), to_signed(at_most.dialogues), to_signed(at_most.turns));
        let read_row: ReadRow<StoredAmounts> = |columns| {
            Ok(StoredAmounts {
                dialogues: columns.number()?,
                turns: columns.number()?,
            })
        };
        self.0.fetch_one(scope, query, read_row).await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn usage_and_stored_rows_are_found_without_reading_the_rest() {
            assert_searches(USAGE_OF_WORLDS, &["npc_usage_of_day (tenant=? AND day>? AND day<?)"]).await;
            let of_npcs = plan(USAGE_OF_NPCS).await;
            assert!(of_npcs.contains("(tenant=? AND world=? AND npc") && !of_npcs.contains("SCAN npc_usage"), "{of_npcs}");
            assert_searches(DELETE_OLD_NPC_USAGE, &["npc_usage_of_day (tenant=? AND day=?)", "npc_usage_of_day (tenant=?)"]).await;
            assert_searches(USAGE_OF_DAY, &["model_usage_of_day (day=?)"]).await;
            assert_searches(COUNT_SESSIONS_OF_PLAYER, &["dialogues_of_player (tenant=? AND player=?)"]).await;
            assert_searches(USAGE_OF_PLAYER, &["player_usage_of_day (tenant=? AND day=? AND player=?)"]).await;
            assert_searches(DELETE_OLD_PLAYER_USAGE, &["player_usage_of_day (tenant=? AND day=?)", "player_usage_of_day (tenant=?)"]).await;
            let turns = plan(COUNT_TURNS_OF_PLAYER).await;
            assert!(turns.contains("turns_standing (tenant=? AND dialogue=?)") && turns.contains("turns_unsaid_of_dialogue"), "{turns}");
            let stored = plan(COUNT_STORED).await;
            // A scan of the subqueries' results is expected.
            assert!(!stored.contains("SCAN dialogues") && !stored.contains("SCAN turns"), "{stored}");
        }
    }
}
