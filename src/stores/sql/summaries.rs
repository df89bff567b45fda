//! Summaries of a dialogue; eviction and fading are rows with a cause.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    context::{Engine, acquire_lock},
    job_fence::pass_fence,
    rows::{Columns, json_list, to_micros, without_nul},
    scope::LedgerLock,
    statements::{execute, fetch_scalar},
};
use colloquy_core::{
    ids::{DialogueId, SummaryId},
    scope::TenantScope,
};
use colloquy_memory::{fact::Importance, summary::Summary};
use colloquy_ports::{
    StoreResult,
    ledger::summaries::{SummaryCommit, SummaryStore},
};

pub(super) struct SqlSummaryStore(pub(super) Arc<Engine>);

macro_rules! select_summaries {
    ($($rest:expr),+) => {
        concat!(
            "SELECT s.id, s.dialogue, s.from_turn, s.to_turn, s.text,
                s.importance - (SELECT COUNT(*) FROM summary_changes c
                    WHERE c.tenant = s.tenant AND c.summary = s.id AND c.change = 'fade' AND c.lifted_at IS NULL),
                s.created_at
            FROM summaries s WHERE s.tenant = $1 AND ",
            $($rest,)+
            " ORDER BY s.from_turn, s.created_at, s.id"
        )
    };
}
const LIVE_SUMMARIES: &str = select_summaries!(
    "s.dialogue = $2 AND s.lifted_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM summary_changes c
            WHERE c.tenant = s.tenant AND c.summary = s.id AND c.change = 'evict' AND c.lifted_at IS NULL)"
);
const SUMMARIES_BY_ID: &str = select_summaries!("s.id ", in_json_list!("$2"));
// Evicted summaries count too, because they already cover their turns.
const IS_RANGE_COVERED: &str = "SELECT EXISTS (SELECT 1 FROM summaries
    WHERE tenant = $1 AND dialogue = $2 AND lifted_at IS NULL AND from_turn <= $4 AND to_turn >= $3)";
const INSERT_SUMMARY: &str = "INSERT INTO summaries
        (tenant, id, dialogue, from_turn, to_turn, text, importance, cause_kind, cause_id, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'turn', $8, $9)";
// Selecting from the summary itself excludes summaries of other tenants and dialogues.
const INSERT_SUMMARY_CHANGE: &str =
    "INSERT INTO summary_changes (tenant, summary, change, by_summary, cause_kind, cause_id, at)
    SELECT tenant, id, $4, $5, 'turn', $6, $7 FROM summaries WHERE tenant = $1 AND dialogue = $2 AND id = $3";

fn read_summary(columns: &mut Columns<'_>) -> StoreResult<Summary> {
    Ok(Summary {
        id: columns.id()?,
        dialogue: columns.id()?,
        from_turn: columns.number()?,
        to_turn: columns.number()?,
        text: columns.next()?,
        importance: Importance::from_clamped(f64::from(columns.number::<i32>()?)),
        created_at: columns.time()?,
    })
}

#[async_trait]
impl SummaryStore for SqlSummaryStore {
    async fn load_summaries(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<Vec<Summary>> {
        let query = bind!(LIVE_SUMMARIES; scope.tenant(), dialogue);
        self.0.fetch_all(scope, query, read_summary).await
    }
    async fn load_summaries_by_id(&self, scope: &TenantScope, ids: &[SummaryId]) -> StoreResult<Vec<Summary>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let query = bind!(SUMMARIES_BY_ID; scope.tenant(), json_list(ids));
        self.0.fetch_all(scope, query, read_summary).await
    }
    async fn commit_summary(&self, scope: &TenantScope, commit: &SummaryCommit) -> StoreResult<bool> {
        let tenant = scope.tenant().clone();
        let commit = commit.clone();
        let now = self.0.clock.now();
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Summaries(commit.summary.dialogue)).await?;
            if !pass_fence(connection, &tenant, &commit.fence, &commit.calls, now).await? {
                return Ok(false);
            }
            let summary = &commit.summary;
            let cause = commit.fence.turn.to_string();
            debug_assert!(summary.from_turn <= summary.to_turn, "a summary begins before its end");
            let from = i64::from(summary.from_turn);
            let to = i64::from(summary.to_turn);
            if fetch_scalar!(connection, IS_RANGE_COVERED; tenant, summary.dialogue, from, to).await? {
                // Another job was faster, so this job is done.
                return Ok(false);
            }
            execute!(
                connection, INSERT_SUMMARY;
                tenant, summary.id, summary.dialogue, from, to, without_nul(&summary.text),
                i64::from(summary.importance.get()), cause, to_micros(summary.created_at)
            )
            .await?;
            failpoint!("summary.written");
            for (other, change) in [(commit.evict, "evict"), (commit.fade, "fade")] {
                let Some(other) = other else { continue };
                execute!(
                    connection, INSERT_SUMMARY_CHANGE;
                    tenant, summary.dialogue, other, change, summary.id, cause, to_micros(now)
                )
                .await?;
            }
            Ok(true)
        })
        .await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn summaries_are_found_by_dialogue() {
            assert_searches(LIVE_SUMMARIES, &["summaries_of_dialogue"]).await;
            assert_searches(SUMMARIES_BY_ID, &["sqlite_autoindex_summaries_1 (tenant=? AND id=?)"]).await;
            assert_searches(IS_RANGE_COVERED, &["summaries_of_dialogue"]).await;
            assert_searches(INSERT_SUMMARY_CHANGE, &[]).await;
        }
    }
}
