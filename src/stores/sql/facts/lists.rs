//! Facts for display to people: lists, contradictions and histories.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    super::{
        context::Connection,
        pages::{into_page, page_cursor, page_row_limit},
        rows::{Columns, json_list, to_micros, without_nul},
        statements::{fetch_all, fetch_optional},
    },
    SqlFactStore, fact_columns, read_fact,
};
use colloquy_core::{
    ids::{FactId, TenantId},
    scope::TenantScope,
};
use colloquy_memory::fact::{Fact, FactKind, InvalidReason, Invalidation};
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    ledger::facts::{Contradiction, FactFilter, FactHistoryEntry, FactListStore},
};

const FACT_BY_ID: &str = concat!(
    "SELECT ",
    fact_columns!(),
    " FROM facts f WHERE f.tenant = $1 AND f.id = $2"
);
pub(super) const FACTS_BY_ID: &str = concat!(
    "SELECT ",
    fact_columns!(),
    " FROM facts f WHERE f.tenant = $1 AND f.id ",
    in_json_list!("$2")
);

/// A condition for contradictions `g` without a decision: neither about the statement, nor a dismissal of the same words
/// by the same speaker. Facts are looked up as values: in a join, Postgres would read all facts.
macro_rules! is_undecided {
    () => {
        "NOT EXISTS (SELECT 1 FROM flag_decisions d
            WHERE d.tenant = $1 AND d.fact = g.fact AND d.flag = 'contradicted'
              AND (d.statement = g.by_fact OR d.decision = 'dismissed'
                   AND (SELECT s.speaker || ' ' || s.content FROM facts s
                        WHERE s.tenant = $1 AND s.id = d.statement AND s.invalid_reason IS DISTINCT FROM 'unsaid')
                     = (SELECT n.speaker || ' ' || n.content FROM facts n WHERE n.tenant = $1 AND n.id = g.by_fact)))"
    };
}
// The flagging fact is looked up as a value, too.
const LIST_FACTS: &str = concat!(
    "SELECT k.valid_at, k.fact FROM fact_knowers k JOIN facts f ON f.tenant = k.tenant AND f.id = k.fact
    WHERE k.tenant = $1 AND k.world = $2 AND k.knower = $3
      AND ($4 OR k.private_to = '' OR k.private_to = $5)
      AND k.valid_at >= $6 AND k.valid_at <= $7
      AND ($8 OR (k.valid_at <= $9 AND (k.ends_at IS NULL OR k.ends_at > $9)))
      AND ($10 IS NULL OR f.subject = $10) AND ($11 IS NULL OR f.kind = $11)
      AND ($12 IS NULL OR (k.valid_at, k.fact) < (SELECT valid_at, id FROM facts WHERE tenant = $1 AND id = $12))
      AND (NOT $14 OR EXISTS (SELECT 1 FROM fact_flags g
                              WHERE g.tenant = $1 AND g.fact = k.fact AND g.lifted_at IS NULL
                                AND (SELECT b.invalid_at IS NULL OR b.invalid_at > $9 FROM facts b
                                     WHERE b.tenant = $1 AND b.id = g.by_fact) AND ",
    is_undecided!(),
    "))
    ORDER BY k.valid_at DESC, k.fact DESC LIMIT $13"
);
const CONTRADICTIONS: &str = concat!(
    "SELECT g.fact, g.by_fact, (SELECT b.view_content FROM facts b WHERE b.tenant = $1 AND b.id = g.by_fact), g.at
     FROM fact_flags g
     WHERE g.tenant = $1 AND g.lifted_at IS NULL
       AND (SELECT b.invalid_at IS NULL OR b.invalid_at > $3 FROM facts b WHERE b.tenant = $1 AND b.id = g.by_fact)
       AND g.fact ",
    in_json_list!("$2"),
    " AND ",
    is_undecided!(),
    " ORDER BY g.at, g.by_fact"
);

macro_rules! invalidation_columns {
    () => {
        "i.id, i.fact, i.reason, i.by_fact, i.cause_kind, i.cause_id, i.at, i.lifted_at"
    };
}
const INVALIDATIONS_OF: &str = concat!(
    "SELECT ",
    invalidation_columns!(),
    " FROM invalidations i WHERE i.tenant = $1 AND i.fact = $2"
);
const INVALIDATED_BY: &str = concat!(
    "SELECT ",
    invalidation_columns!(),
    " FROM invalidations i WHERE i.tenant = $1 AND i.by_fact = $2 ORDER BY i.at, i.id"
);
const EDITS_OF: &str = "SELECT edit, at, patch FROM fact_edits WHERE tenant = $1 AND fact = $2";
const FLAGS_OF: &str = "SELECT by_fact, at FROM fact_flags WHERE tenant = $1 AND fact = $2 AND lifted_at IS NULL";

pub(super) async fn load_fact(connection: &mut Connection, tenant: &TenantId, id: FactId) -> StoreResult<Option<Fact>> {
    let row = fetch_optional!(connection, FACT_BY_ID; tenant, id).await?;
    row.map(|row| read_fact(&mut Columns::new(&row))).transpose()
}

/// Returns the facts among `ids`.
pub(super) async fn load_facts(
    connection: &mut Connection,
    tenant: &TenantId,
    ids: impl IntoIterator<Item = &FactId>,
) -> StoreResult<HashMap<FactId, Fact>> {
    let rows = fetch_all!(connection, FACTS_BY_ID; tenant, json_list(ids)).await?;
    let facts = Columns::read_rows(&rows, read_fact)?;
    Ok(facts.into_iter().map(|fact| (fact.id, fact)).collect())
}

fn read_contradiction(columns: &mut Columns<'_>) -> StoreResult<Contradiction> {
    Ok(Contradiction {
        fact: columns.id()?,
        statement: columns.id()?,
        content: columns.next()?,
        flagged_at: columns.time()?,
    })
}

fn read_invalidation(columns: &mut Columns<'_>) -> StoreResult<Invalidation> {
    Ok(Invalidation {
        id: columns.id()?,
        fact: columns.id()?,
        reason: columns.parse_with(InvalidReason::parse)?,
        ended_by: columns.maybe_id()?,
        cause: columns.cause()?,
        ended_at: columns.time()?,
        lifted_at: columns.maybe_time()?,
    })
}

fn read_edit(columns: &mut Columns<'_>) -> StoreResult<(DateTime<Utc>, FactHistoryEntry)> {
    let edit = columns.id()?;
    let edited_at = columns.time()?;
    let patch = columns.json()?;
    Ok((
        edited_at,
        FactHistoryEntry::Edited {
            edit,
            at: edited_at,
            patch,
        },
    ))
}

fn read_flag(columns: &mut Columns<'_>) -> StoreResult<(DateTime<Utc>, FactHistoryEntry)> {
    let statement = columns.id()?;
    let flagged_at = columns.time()?;
    Ok((
        flagged_at,
        FactHistoryEntry::Flagged {
            by: statement,
            at: flagged_at,
        },
    ))
}

#[async_trait]
impl FactListStore for SqlFactStore {
    async fn load_fact(&self, scope: &TenantScope, id: FactId) -> StoreResult<Option<Fact>> {
        let query = bind!(FACT_BY_ID; scope.tenant(), id);
        self.0.fetch_optional(scope, query, read_fact).await
    }
    async fn list_contradictions(
        &self,
        scope: &TenantScope,
        ids: &[FactId],
        as_of: DateTime<Utc>,
    ) -> StoreResult<Vec<Contradiction>> {
        let query = bind!(CONTRADICTIONS; scope.tenant(), json_list(ids), to_micros(as_of));
        self.0.fetch_all(scope, query, read_contradiction).await
    }
    /// Each knower's partition is read in index order and only as far as the page needs.
    async fn list_facts(
        &self,
        scope: &TenantScope,
        filter: &FactFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<Fact>> {
        let tenant = scope.tenant();
        let viewpoint = &filter.viewpoint;
        let mut connection = self.0.acquire_reader(scope).await?;
        let mut keyed_facts: Vec<(DateTime<Utc>, FactId)> = Vec::new();
        for knower in viewpoint.knowers() {
            let rows = fetch_all!(
                connection, LIST_FACTS;
                tenant, viewpoint.world, knower.store_key(), viewpoint.sees_all_players, viewpoint.player,
                filter.from.map_or(i64::MIN, to_micros), filter.to.map_or(i64::MAX, to_micros), filter.include_invalid,
                to_micros(filter.as_of), filter.subject.as_deref().map(without_nul), filter.kind.map(FactKind::as_str),
                page_cursor(page), page_row_limit(page), filter.flagged
            )
            .await?;
            keyed_facts.extend(Columns::read_rows(&rows, |columns| {
                Ok((columns.time()?, columns.id()?))
            })?);
        }
        keyed_facts.sort_unstable_by(|a, b| b.cmp(a));
        keyed_facts.dedup();
        let page = into_page(keyed_facts, page, |(_, fact)| fact.to_string());
        let listed = page.items.iter().map(|(_, fact)| fact);
        let mut facts = load_facts(&mut connection, tenant, listed).await?;
        Ok(Page {
            items: page.items.iter().filter_map(|(_, fact)| facts.remove(fact)).collect(),
            next: page.next,
        })
    }
    async fn load_history(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<FactHistoryEntry>> {
        let tenant = scope.tenant();
        let mut connection = self.0.acquire_reader(scope).await?;
        let ends = fetch_all!(connection, INVALIDATIONS_OF; tenant, id).await?;
        let edits = fetch_all!(connection, EDITS_OF; tenant, id).await?;
        let ended_rows = fetch_all!(connection, INVALIDATED_BY; tenant, id).await?;
        let flags = fetch_all!(connection, FLAGS_OF; tenant, id).await?;
        drop(connection);
        let ends = Columns::read_rows(&ends, read_invalidation)?.into_iter();
        let mut entries: Vec<_> = ends
            .map(|end| (end.ended_at, FactHistoryEntry::Invalidated(end)))
            .collect();
        entries.extend(Columns::read_rows(&edits, read_edit)?);
        let mut merged = HashSet::new();
        for invalidation in Columns::read_rows(&ended_rows, read_invalidation)? {
            if invalidation.reason == InvalidReason::Duplicate
                && invalidation.lifted_at.is_none()
                && merged.insert(invalidation.fact)
            {
                let from = invalidation.fact;
                let merged_at = invalidation.ended_at;
                entries.push((merged_at, FactHistoryEntry::Merged { from, at: merged_at }));
            }
        }
        entries.extend(Columns::read_rows(&flags, read_flag)?);
        entries.sort_by_key(|(moment, _)| *moment);
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }
    async fn list_invalidated_by(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<Invalidation>> {
        let query = bind!(INVALIDATED_BY; scope.tenant(), id);
        self.0.fetch_all(scope, query, read_invalidation).await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn fact_history_is_found_by_fact() {
            assert_searches(INVALIDATIONS_OF, &["invalidations_of_fact"]).await;
            assert_searches(INVALIDATED_BY, &["invalidations_by_fact"]).await;
            for statement in [FACT_BY_ID, FACTS_BY_ID, EDITS_OF, FLAGS_OF, CONTRADICTIONS] {
                assert_searches(statement, &[]).await;
            }
        }

        #[tokio::test]
        async fn lists_are_sorted_by_the_index() {
            assert_searches(LIST_FACTS, &["knowers_newest"]).await;
            assert!(!plan(LIST_FACTS).await.contains("TEMP B-TREE"));
        }
    }
}
