//! The list of flagged facts, and persons' decisions about flags.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    super::{
        audit,
        context::Connection,
        pages::{into_page, page_row_limit},
        rows::{Columns, json_list, to_micros, without_nul},
        statements::{execute, fetch_all, fetch_scalar},
    },
    SqlFactStore,
    edit::{UndatedEdit, complete_change, is_unsaid, write_patch},
    flag_entries::{FlagQuery, load_entries},
    replacement::{insert_replacement, supersede_fact},
};
use colloquy_core::{
    ids::{FactId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    fact::{Cause, Fact},
    flags::{FlagDecision, FlagEntry, FlagKind, pii_statement},
};
use colloquy_ports::{
    Page, PageRequest, StoreError, StoreResult,
    ledger::{
        audit::Edit,
        facts::FactEditOutcome,
        flags::{FactChange, FlagCursor, FlagDecisionWrite, FlagFilter, FlagOutcome, FlagStore},
    },
};

/// The number of facts per read that may have a flag.
const FACTS_PER_READ: usize = 200;

/// A condition on the knowers of a fact ($5: a list of knowers, or null).
macro_rules! is_known {
    ($fact:literal) => {
        concat!(
            "($5 IS NULL OR EXISTS (SELECT 1 FROM fact_knowers k WHERE k.tenant = $1 AND k.fact = ",
            $fact,
            " AND ",
            unindexed!("k.knower"),
            " ",
            in_json_list!("$5"),
            "))"
        )
    };
}
// Rows of other tables are looked up as values: in a join, Postgres would read all facts.
const MAYBE_CONTRADICTED: &str = concat!(
    "SELECT DISTINCT g.fact FROM fact_flags g
     WHERE g.tenant = $1 AND g.fact < $3 AND g.lifted_at IS NULL
       AND (SELECT f.world FROM facts f WHERE f.tenant = $1 AND f.id = g.fact) = $2
       AND (SELECT d.decision FROM flag_decisions d WHERE d.tenant = $1 AND d.fact = g.fact
              AND d.flag = 'contradicted' AND d.statement = g.by_fact) IS NULL AND ",
    is_known!("g.fact"),
    " ORDER BY g.fact DESC LIMIT $4"
);
const WITH_PERSONAL_DATA: &str = concat!(
    "SELECT f.id FROM facts f
     WHERE f.tenant = $1 AND f.world = $2 AND f.id < $3 AND f.pii <> '[]' AND f.invalid_at IS NULL AND ",
    is_known!("f.id"),
    " ORDER BY f.id DESC LIMIT $4"
);
const MERGED: &str = concat!(
    "SELECT DISTINCT i.by_fact FROM invalidations i
     WHERE i.tenant = $1 AND i.by_fact < $3 AND i.reason = 'duplicate' AND i.lifted_at IS NULL
       AND (SELECT f.world FROM facts f WHERE f.tenant = $1 AND f.id = i.by_fact AND f.invalid_at IS NULL) = $2 AND ",
    is_known!("i.by_fact"),
    " ORDER BY i.by_fact DESC LIMIT $4"
);
const DECIDED: &str = concat!(
    "SELECT DISTINCT d.fact FROM flag_decisions d
     WHERE d.tenant = $1 AND d.world = $2 AND d.flag = $6 AND d.fact < $3 AND ",
    is_known!("d.fact"),
    " ORDER BY d.fact DESC LIMIT $4"
);

const UPSERT_DECISION: &str = "INSERT INTO flag_decisions
        (tenant, world, fact, flag, statement, decision, reason, decided_by, role, edit, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (tenant, fact, flag, statement) DO UPDATE SET decision = excluded.decision, reason = excluded.reason,
        decided_by = excluded.decided_by, role = excluded.role, edit = excluded.edit, at = excluded.at";
/// A condition for ends `i` by an accepted contradiction of the fact $2.
macro_rules! is_accepted_end {
    () => {
        "i.cause_kind || '' = 'edit' AND i.reason = 'superseded' AND EXISTS (SELECT 1 FROM flag_decisions d
            WHERE d.tenant = $1 AND d.fact = $2 AND d.flag = 'contradicted' AND d.decision = 'accepted'
              AND d.edit = i.cause_id)"
    };
}
const HAS_OTHER_END: &str = concat!(
    "SELECT EXISTS (SELECT 1 FROM invalidations i WHERE i.tenant = $1 AND i.fact = $2 AND i.lifted_at IS NULL AND NOT (",
    is_accepted_end!(),
    "))"
);
const LIFT_ACCEPTED_ENDS: &str = concat!(
    "UPDATE invalidations AS i SET lifted_at = $3, lifted_by_kind = $4, lifted_by_id = $5
     WHERE i.tenant = $1 AND i.fact = $2 AND i.lifted_at IS NULL AND ",
    is_accepted_end!()
);

#[async_trait]
impl FlagStore for SqlFactStore {
    async fn list_flags(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        filter: &FlagFilter,
        page: &PageRequest,
    ) -> StoreResult<Page<FlagEntry>> {
        let after = page
            .after
            .as_deref()
            .and_then(|cursor| cursor.parse::<FlagCursor>().ok());
        let mut connection = self.0.acquire_reader(scope).await?;
        let mut entries = Vec::new();
        for flag in FlagKind::ALL {
            if filter.flag.is_some_and(|flag_filter| flag_filter != flag) {
                continue;
            }
            let search = FlagSearch {
                world,
                knowers: filter
                    .knowers
                    .as_ref()
                    .map(|knowers| json_list(knowers.iter().map(|knower| knower.store_key()))),
                query: FlagQuery {
                    flag,
                    decided: filter.decided,
                    as_of: self.0.clock.now(),
                },
                limit: usize::try_from(page_row_limit(page)).unwrap_or(usize::MAX),
            };
            entries.extend(search.find(&mut connection, scope.tenant(), after).await?);
        }
        entries.sort_by_key(|entry| (std::cmp::Reverse(entry.fact.id), entry.flag));
        Ok(into_page(entries, page, |entry| {
            let cursor = FlagCursor {
                fact: entry.fact.id,
                flag: entry.flag,
            };
            cursor.to_string()
        }))
    }
    async fn decide_flag(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        fact: FactId,
        decision: &FlagDecisionWrite,
        edit: &Edit,
    ) -> StoreResult<FlagOutcome> {
        let tenant = scope.tenant().clone();
        let world = world.clone();
        let decision = decision.clone();
        let model = self.0.embedding_model.clone();
        let edit = UndatedEdit::new(&self.0, edit);
        write_transaction!(self.0, scope, |connection| {
            let (fact, edit) = match edit.begin(connection, &tenant, fact, None).await? {
                Ok(started) => started,
                Err(FactEditOutcome::NotFound) => return Ok(FlagOutcome::NotFound),
                Err(other) => return Err(StoreError::Corrupt(format!("an edit cannot begin: {other:?}"))),
            };
            if fact.world != world {
                return Ok(FlagOutcome::NotFound);
            }
            decide(connection, &tenant, &model, &fact, &decision, &edit).await
        })
        .await
    }
}

/// A search for the flags of one kind.
struct FlagSearch<'a> {
    world: &'a WorldId,
    knowers: Option<String>,
    query: FlagQuery,
    limit: usize,
}

impl FlagSearch<'_> {
    /// Returns the first flags after the cursor, newest fact first.
    async fn find(
        &self,
        connection: &mut Connection,
        tenant: &TenantId,
        after: Option<FlagCursor>,
    ) -> StoreResult<Vec<FlagEntry>> {
        // `~` sorts after all characters of ids.
        let mut before = match after {
            None => "~".to_owned(),
            // Later flags of the same fact come after the cursor.
            Some(after) if after.flag < self.query.flag => format!("{}~", after.fact),
            Some(after) => after.fact.to_string(),
        };
        let mut entries = Vec::new();
        loop {
            let ids = self.candidates(connection, tenant, &before).await?;
            let last = ids.len() < FACTS_PER_READ;
            let Some(lowest) = ids.last() else { return Ok(entries) };
            before = lowest.to_string();
            entries.extend(load_entries(connection, tenant, self.query, &ids).await?);
            if last || entries.len() >= self.limit {
                entries.truncate(self.limit);
                return Ok(entries);
            }
        }
    }

    async fn candidates(
        &self,
        connection: &mut Connection,
        tenant: &TenantId,
        before: &str,
    ) -> StoreResult<Vec<FactId>> {
        let limit = i64::try_from(FACTS_PER_READ).unwrap_or(i64::MAX);
        let statement = match self.query.flag {
            _ if self.query.decided => DECIDED,
            FlagKind::Contradicted => MAYBE_CONTRADICTED,
            FlagKind::Pii => WITH_PERSONAL_DATA,
            FlagKind::OverMerged => MERGED,
        };
        let query = bind!(statement; tenant, self.world, before, limit, self.knowers);
        let query = if self.query.decided {
            query.bind(self.query.flag.as_str())
        } else {
            query
        };
        let rows = fetch_all(connection, query).await?;
        Columns::read_rows(&rows, |columns| columns.id())
    }
}

/// Decides about a flag of `fact`, under the lock of its memory.
async fn decide(
    connection: &mut Connection,
    tenant: &TenantId,
    model: &Arc<str>,
    fact: &Fact,
    write: &FlagDecisionWrite,
    edit: &Edit,
) -> StoreResult<FlagOutcome> {
    if is_unsaid(connection, tenant, fact.id).await? {
        return Ok(FlagOutcome::Unsaid);
    }
    let open = load_flag(connection, tenant, fact.id, write.flag, false, edit.made_at).await?;
    let decided = load_flag(connection, tenant, fact.id, write.flag, true, edit.made_at).await?;
    if let (None, Some(entry)) = (&open, &decided)
        && write.change.is_none()
        && let Some(last) = &entry.decided
        && (last.decision, &last.reason) == (write.decision, &write.reason)
        // A person may have restored the fact since.
        && (fact.invalid.is_some() || (write.flag, write.decision) != (FlagKind::Contradicted, FlagDecision::Accepted))
    {
        return Ok(FlagOutcome::Decided(Box::new(entry.clone())));
    }
    if open.is_none() && decided.is_none() {
        return Ok(FlagOutcome::NotFound);
    }
    let has_other_end: bool = fetch_scalar!(connection, HAS_OTHER_END; tenant, fact.id).await?;
    if has_other_end {
        let ended_by = fact.invalid.as_ref().and_then(|invalidation| invalidation.ended_by);
        return Ok(FlagOutcome::Ended { by: ended_by });
    }
    if let Some(expected) = write.if_version
        && expected != fact.version
    {
        return Ok(FlagOutcome::VersionMismatch { stored: fact.version });
    }
    // An earlier decision about other statements stays.
    let flagged = open.as_ref().or(decided.as_ref());
    let mut statements = flagged.map(|entry| entry.statements.clone()).unwrap_or_default();
    statements.sort_by_key(|statement| (statement.valid_at, statement.id));
    let affected_facts = write_effect(connection, tenant, model, fact, &statements, write, edit).await?;
    let statements: BTreeSet<String> = match write.flag {
        FlagKind::Pii => BTreeSet::from([pii_statement(fact)]),
        FlagKind::Contradicted | FlagKind::OverMerged => statements.iter().map(|fact| fact.id.to_string()).collect(),
    };
    for statement in statements {
        execute!(
            connection, UPSERT_DECISION;
            tenant, fact.world, fact.id, write.flag.as_str(), statement, write.decision.as_str(),
            without_nul(&write.reason), without_nul(&edit.subject), audit::role_name(edit.role), edit.id,
            to_micros(edit.made_at)
        )
        .await?;
    }
    complete_change(connection, tenant, fact, affected_facts, edit).await?;
    load_flag(connection, tenant, fact.id, write.flag, true, edit.made_at)
        .await?
        .map(|entry| FlagOutcome::Decided(Box::new(entry)))
        .ok_or_else(|| StoreError::Corrupt(format!("the decided flag of {} vanished", fact.id)))
}

async fn load_flag(
    connection: &mut Connection,
    tenant: &TenantId,
    fact: FactId,
    flag: FlagKind,
    decided: bool,
    as_of: DateTime<Utc>,
) -> StoreResult<Option<FlagEntry>> {
    let query = FlagQuery { flag, decided, as_of };
    Ok(load_entries(connection, tenant, query, &[fact]).await?.pop())
}

/// Writes the effect of a decision on the fact. Returns the facts whose cached results are outdated.
async fn write_effect(
    connection: &mut Connection,
    tenant: &TenantId,
    model: &Arc<str>,
    fact: &Fact,
    statements: &[Fact],
    write: &FlagDecisionWrite,
    edit: &Edit,
) -> StoreResult<BTreeSet<FactId>> {
    let mut affected_facts = BTreeSet::from([fact.id]);
    let (kind, id) = Cause::Edit(edit.id).to_columns();
    execute!(connection, LIFT_ACCEPTED_ENDS; tenant, fact.id, to_micros(edit.made_at), kind, id).await?;
    if let (FlagKind::Contradicted, FlagDecision::Accepted) = (write.flag, write.decision) {
        let statement_ids: Vec<FactId> = statements.iter().map(|statement| statement.id).collect();
        supersede_fact(connection, tenant, fact.id, &statement_ids, edit).await?;
    }
    match &write.change {
        None => {}
        Some(FactChange::Patch(patch)) => write_patch(connection, tenant, model, fact.id, patch, edit).await?,
        Some(FactChange::Replacement(replacement)) => {
            affected_facts.extend(insert_replacement(connection, tenant, model, fact.id, replacement, edit).await?);
        }
    }
    Ok(affected_facts)
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn flagged_facts_are_found_in_index_order() {
            for (statement, index) in [
                (MAYBE_CONTRADICTED, "SEARCH g USING PRIMARY KEY (tenant=? AND fact<?)"),
                (WITH_PERSONAL_DATA, "facts_with_pii (tenant=? AND world=? AND id<?)"),
                (MERGED, "invalidations_by_fact (tenant=? AND by_fact<?)"),
                (DECIDED, "flag_decisions_of_world (tenant=? AND world=? AND flag=? AND fact<?)"),
            ] {
                assert_searches(statement, &[index]).await;
                let plan = plan(statement).await;
                assert!(!plan.contains("TEMP B-TREE FOR ORDER BY"), "{plan}");
            }
            assert_searches(UPSERT_DECISION, &[]).await;
            assert_searches(HAS_OTHER_END, &["invalidations_of_fact"]).await;
            assert_searches(LIFT_ACCEPTED_ENDS, &["invalidations_of_fact"]).await;
        }
    }
}
