//! Consolidation: the facts of a group, and their conclusions. `fold` decides which conclusions are valid.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::json;

use super::{
    super::{
        context::{Connection, acquire_lock},
        jobs,
        rows::{Columns, json_list, to_micros},
        scope::LedgerLock,
        statements::{execute, fetch_all, fetch_optional, fetch_scalar},
    },
    SqlFactStore,
    edit::raise_memory,
    fact_columns, fact_replacements, fold, invalidation_id_prefix, read_fact,
    reconciliation::{IS_FENCE_OPEN, insert_fact},
};
use colloquy_core::{
    ids::{FactId, InvalidationId, JobId, TenantId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    consolidation::{FactGroup, Week, sentence_hash},
    disclosure::audience::Audience,
    fact::Fact,
    timeline::FactReplacement,
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        consolidation::{
            ConsolidationCommit, ConsolidationOutcome, ConsolidationStore, GroupKey, MAX_FACTS_OF_WEEK, ScanPlace,
        },
        jobs::JobFence,
    },
};

const LIST_WORLDS_TO_SCAN: &str = "SELECT w.id FROM worlds w
    LEFT JOIN consolidation_scans s ON s.tenant = $1 AND s.world = w.id
    WHERE w.tenant = $1 AND (s.scanned_at IS NULL OR s.scanned_at <= $2) ORDER BY w.id LIMIT $3";
const MARK_SCANNED: &str = "INSERT INTO consolidation_scans (tenant, world, scanned_at) VALUES ($1, $2, $3)
    ON CONFLICT (tenant, world) DO UPDATE SET scanned_at = excluded.scanned_at";

/// Facts without an end that turns have taught, without the premises of a conclusion that a person has changed or removed.
macro_rules! select_taught {
    ($rest:expr) => {
        concat!(
            "SELECT ",
            fact_columns!(),
            " FROM facts f WHERE f.tenant = $1 AND f.cause_kind || '' = 'turn' AND f.invalid_at IS NULL
                AND NOT EXISTS (SELECT 1 FROM fact_premises m",
            by_index!("fact_premises_of_fact"),
            " WHERE m.tenant = $1 AND m.premise = f.id AND m.beside = 0
                    AND EXISTS (SELECT 1 FROM facts c WHERE c.tenant = $1 AND c.id = m.conclusion
                        AND (EXISTS (SELECT 1 FROM invalidations x WHERE x.tenant = $1 AND x.fact = c.id
                                AND x.reason = 'removed' AND x.lifted_at IS NULL) OR c.invalid_at IS NULL AND (c.corrects IS NOT NULL
                            OR EXISTS (SELECT 1 FROM fact_edits e WHERE e.tenant = $1 AND e.fact = c.id))))) ",
            $rest
        )
    };
}
const LIST_TAUGHT_FACTS: &str = select_taught!(
    "AND f.world = $2 AND f.audience >= $3 AND f.valid_at < $6
        AND (f.audience, f.valid_at, f.id) > ($3, $4, $5)
     ORDER BY f.audience, f.valid_at, f.id LIMIT $7"
);
const FACTS_OF_TURN: &str = select_taught!("AND f.cause_id = $2");
const FACTS_OF_WEEK: &str = select_taught!(
    "AND f.world = $2 AND f.audience = $3 AND f.valid_at >= $4 AND f.valid_at < $5
     ORDER BY f.valid_at, f.id LIMIT $6"
);
const LOAD_CONSOLIDATED: &str =
    "SELECT audience, week, about, material FROM consolidations WHERE tenant = $1 AND world = $2";
const LOAD_MATERIAL: &str = "SELECT material FROM consolidations
    WHERE tenant = $1 AND world = $2 AND audience = $3 AND week = $4 AND about = $5";
/// A job of the turn that ended before runs again.
const QUEUE_CONSOLIDATION: &str = concat!(
    "INSERT INTO jobs (tenant, id, kind, dialogue, turn, text_version, status, due_at, created_at)
    SELECT $1, $3, 'consolidate', t.dialogue, t.id, t.text_version, 'pending', $4, $4
    FROM turns t WHERE t.tenant = $1 AND t.id = $2 AND t.stands = TRUE",
    jobs::or_run_again!()
);

/// Ends the conclusions from facts of the group ($2) as if they had never been made, except those that a person has changed.
/// The ids of the ends are made as those of a rewind.
const END_CONCLUSIONS: &str = concat!(
    "INSERT INTO invalidations (tenant, id, fact, reason, cause_kind, cause_id, at)
     SELECT $1, $3 || substr(f.id, 16), f.id, 'premise_gone', 'job', $4, f.valid_at
     FROM facts f WHERE f.tenant = $1 AND f.corrects IS NULL AND f.id ",
    in_subquery!(concat!(
        "SELECT m.conclusion FROM fact_premises m",
        by_index!("fact_premises_of_fact"),
        " WHERE m.tenant = $1 AND m.premise ",
        in_json_list!("$2")
    )),
    " AND NOT EXISTS (SELECT 1 FROM fact_edits e WHERE e.tenant = $1 AND e.fact = f.id)
      AND NOT EXISTS (SELECT 1 FROM invalidations g WHERE g.tenant = $1 AND g.fact = f.id
                      AND g.reason = 'premise_gone' AND g.lifted_at IS NULL)
     RETURNING fact"
);
/// Ids begin with their kind: the range has all conclusions of the tenant.
const END_EXPIRED: &str = concat!(
    "INSERT INTO invalidations (tenant, id, fact, reason, cause_kind, cause_id, at)
     SELECT $1, $3 || substr(f.id, 16), f.id, 'expired', f.cause_kind, f.cause_id, f.expires_at FROM facts f",
    by_index!("facts_by_cause"),
    " WHERE f.tenant = $1 AND f.cause_id >= 'job_' AND f.cause_id < 'job`' AND f.cause_kind = 'job' AND f.world = $2
       AND f.invalid_at IS NULL AND f.expires_at <= $4
     RETURNING fact"
);
/// Marks the memories for reconciliation in which a line only repeated an ended conclusion: without the conclusion, the line
/// is news.
const MARK_REPETITIONS_DIRTY: &str = concat!(
    "INSERT INTO unsettled (tenant, world, audience, knowers, private_to, since, mark)
     SELECT f.tenant, f.world, f.audience, f.knowers, f.private_to, MIN(f.valid_at), 1 FROM ",
    json_texts_table!("$2"),
    " v CROSS JOIN invalidations i CROSS JOIN facts f
     WHERE i.tenant = $1 AND i.by_fact = v.value AND i.reason = 'echo' AND i.lifted_at IS NULL AND f.tenant = $1 AND f.id = i.fact
     GROUP BY f.tenant, f.world, f.audience, f.knowers, f.private_to ORDER BY f.audience
     ON CONFLICT (tenant, world, audience) DO UPDATE SET since = ",
    sql_least!("unsettled.since", "excluded.since"),
    ", mark = unsettled.mark + 1"
);
/// The premises are facts of the tenant.
const INSERT_PREMISES: &str = concat!(
    "INSERT INTO fact_premises (tenant, conclusion, premise, sentence, beside)
     SELECT $1, $2, f.id, v.value ->> 1, CAST(v.value ->> 2 AS BIGINT) FROM ",
    json_arrays_table!("$3"),
    " v CROSS JOIN facts f WHERE f.tenant = $1 AND f.id = ",
    row_key!("v", 0)
);
const UPSERT_CONSOLIDATED: &str =
    "INSERT INTO consolidations (tenant, world, audience, week, about, material, at) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (tenant, world, audience, week, about) DO UPDATE SET material = excluded.material, at = excluded.at";

fn most_of_week() -> i64 {
    i64::try_from(MAX_FACTS_OF_WEEK).unwrap_or(i64::MAX)
}

async fn load_group(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &ConsolidationCommit,
    now: DateTime<Utc>,
) -> StoreResult<Option<FactGroup>> {
    let audience = commit.audience.audience_key();
    let week = commit.week;
    let rows = fetch_all!(
        connection, FACTS_OF_WEEK;
        tenant, commit.world, audience, to_micros(week.begins_at()), to_micros(week.ends_at()), most_of_week()
    )
    .await?;
    let facts = Columns::read_rows(&rows, read_fact)?;
    let groups = FactGroup::from_facts(facts, now);
    Ok(groups.into_iter().find(|group| group.about == commit.about))
}

async fn end_conclusions(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &ConsolidationCommit,
    group: &FactGroup,
) -> StoreResult<BTreeSet<FactId>> {
    let facts = json_list(group.facts.iter().map(|fact| fact.id));
    let prefix = invalidation_id_prefix(&commit.ends.to_string());
    let rows = fetch_all!(connection, END_CONCLUSIONS; tenant, facts, prefix, commit.fence.job).await?;
    let ended_facts = BTreeSet::from_iter(Columns::read_rows(&rows, |columns| columns.id())?);
    if !ended_facts.is_empty() {
        execute!(connection, MARK_REPETITIONS_DIRTY; tenant, json_list(&ended_facts)).await?;
    }
    Ok(ended_facts)
}

async fn write_conclusions(
    connection: &mut Connection,
    tenant: &TenantId,
    model: &Arc<str>,
    commit: &ConsolidationCommit,
    group: &FactGroup,
    now: DateTime<Utc>,
) -> StoreResult<()> {
    let mut affected_facts = end_conclusions(connection, tenant, commit, group).await?;
    for fact in &commit.facts {
        insert_fact(connection, tenant, model, fact, now).await?;
        let sources = group.facts.iter().map(|source| {
            let is_context = u8::from(!fact.derived_from.contains(&source.id));
            json!([source.id, sentence_hash(&source.view.content), is_context])
        });
        let sources: serde_json::Value = sources.collect();
        execute!(connection, INSERT_PREMISES; tenant, fact.id, sources.to_string()).await?;
        // What replaces a premise for some readers replaces the conclusion for them.
        let premises = group
            .facts
            .iter()
            .filter(|source| fact.derived_from.contains(&source.id));
        let replacing: BTreeSet<FactId> = premises
            .flat_map(|premise| premise.replaced_by.iter().copied())
            .collect();
        let replaced = replacing.into_iter().map(|successor| FactReplacement {
            fact: fact.id,
            successor,
        });
        fact_replacements::append_replaced_by(connection, tenant, &replaced.collect::<Vec<_>>()).await?;
        failpoint!("consolidation.inserted");
        affected_facts.insert(fact.id);
        affected_facts.extend(group.facts.iter().map(|source| source.id));
    }
    execute!(
        connection, UPSERT_CONSOLIDATED;
        tenant, commit.world, commit.audience.audience_key(), to_micros(commit.week.begins_at()), commit.about,
        commit.material, to_micros(now)
    )
    .await?;
    raise_memory(connection, tenant, &commit.world, &commit.audience).await?;
    fold::refresh_views(connection, tenant, affected_facts).await.map(drop)
}

#[async_trait]
impl ConsolidationStore for SqlFactStore {
    async fn list_worlds_to_scan(
        &self,
        scope: &TenantScope,
        before: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<WorldId>> {
        let query = bind!(LIST_WORLDS_TO_SCAN; scope.tenant(), to_micros(before), i64::from(limit));
        self.0.fetch_all(scope, query, |columns| columns.id()).await
    }
    async fn mark_scanned(&self, scope: &TenantScope, world: &WorldId, now: DateTime<Utc>) -> StoreResult<()> {
        let query = bind!(MARK_SCANNED; scope.tenant(), world, to_micros(now));
        self.0.execute(scope, query).await.map(drop)
    }
    async fn end_expired_conclusions(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        ends: InvalidationId,
        now: DateTime<Utc>,
    ) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        let world = world.clone();
        let locked_world = world.clone();
        write_memory!(self.0, scope.tenant(), &locked_world, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Memory(&world)).await?;
            let prefix = invalidation_id_prefix(&ends.to_string());
            let rows = fetch_all!(connection, END_EXPIRED; tenant, world, prefix, to_micros(now)).await?;
            let ended_facts = BTreeSet::from_iter(Columns::read_rows(&rows, |columns| columns.id())?);
            fold::refresh_views(connection, &tenant, ended_facts).await.map(drop)
        })
        .await
    }
    async fn list_taught_facts(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        after: Option<&ScanPlace>,
        until: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<Fact>> {
        let (audience, valid_at, fact) = match after {
            Some(place) => (
                place.audience.clone(),
                to_micros(place.valid_at),
                place.fact.to_string(),
            ),
            None => (String::new(), i64::MIN, String::new()),
        };
        let query = bind!(
            LIST_TAUGHT_FACTS;
            scope.tenant(), world, audience, valid_at, fact, to_micros(until), i64::from(limit)
        );
        self.0.fetch_all(scope, query, read_fact).await
    }
    async fn list_facts_of_turn(&self, scope: &TenantScope, turn: TurnId) -> StoreResult<Vec<Fact>> {
        let query = bind!(FACTS_OF_TURN; scope.tenant(), turn);
        self.0.fetch_all(scope, query, read_fact).await
    }
    async fn list_facts_of_week(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        audience: &Audience,
        week: Week,
    ) -> StoreResult<Vec<Fact>> {
        let from = to_micros(week.begins_at());
        let to = to_micros(week.ends_at());
        let query = bind!(FACTS_OF_WEEK; scope.tenant(), world, audience.audience_key(), from, to, most_of_week());
        self.0.fetch_all(scope, query, read_fact).await
    }
    async fn load_consolidated(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<HashMap<GroupKey, String>> {
        let query = bind!(LOAD_CONSOLIDATED; scope.tenant(), world);
        let rows = self.0.fetch_all(scope, query, |columns| {
            let group = GroupKey {
                audience: columns.next()?,
                week: Week::of(columns.time()?),
                about: columns.next()?,
            };
            Ok((group, columns.next::<String>()?))
        });
        Ok(rows.await?.into_iter().collect())
    }
    async fn load_material(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        group: &GroupKey,
    ) -> StoreResult<Option<String>> {
        let week = to_micros(group.week.begins_at());
        let query = bind!(LOAD_MATERIAL; scope.tenant(), world, group.audience, week, group.about);
        self.0.fetch_optional(scope, query, |columns| columns.next()).await
    }
    async fn queue_consolidation(
        &self,
        scope: &TenantScope,
        turn: TurnId,
        job: JobId,
        now: DateTime<Utc>,
    ) -> StoreResult<bool> {
        let query = bind!(QUEUE_CONSOLIDATION; scope.tenant(), turn, job, to_micros(now));
        Ok(self.0.execute(scope, query).await? == 1)
    }
    async fn commit_consolidation(
        &self,
        scope: &TenantScope,
        commit: &ConsolidationCommit,
    ) -> StoreResult<ConsolidationOutcome> {
        let tenant = scope.tenant().clone();
        let commit = commit.clone();
        let now = self.0.clock.now();
        let model = self.0.embedding_model.clone();
        let world = commit.world.clone();
        write_memory!(self.0, scope.tenant(), &world, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Memory(&commit.world)).await?;
            let JobFence {
                job,
                turn,
                text_version,
            } = commit.fence;
            if !fetch_scalar!(connection, IS_FENCE_OPEN; tenant, job, turn, i64::from(text_version)).await? {
                return Ok(ConsolidationOutcome::Fenced);
            }
            let audience = commit.audience.audience_key();
            let week = to_micros(commit.week.begins_at());
            let query = bind!(LOAD_MATERIAL; tenant, commit.world, audience, week, commit.about);
            let row = fetch_optional(connection, query).await?;
            let stored_material: Option<String> = row.map(|row| Columns::new(&row).next()).transpose()?;
            if stored_material.as_ref() == Some(&commit.material) {
                return Ok(ConsolidationOutcome::FactsChanged);
            }
            let group = load_group(connection, &tenant, &commit, now).await?;
            let Some(group) = group.filter(|group| group.material_hash() == commit.material) else {
                return Ok(ConsolidationOutcome::FactsChanged);
            };
            write_conclusions(connection, &tenant, &model, &commit, &group, now).await?;
            failpoint!("consolidation.written");
            Ok(ConsolidationOutcome::Committed)
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
        async fn facts_of_a_group_are_found_by_index() {
            assert_searches(END_CONCLUSIONS, &["fact_premises_of_fact (tenant=? AND premise=?)"]).await;
            for statement in [LIST_TAUGHT_FACTS, FACTS_OF_WEEK] {
                assert_searches(statement, &["facts_in_order (tenant=? AND world=? AND audience"]).await;
            }
            assert_searches(END_EXPIRED, &["facts_by_cause (tenant=? AND cause_id>? AND cause_id<?)"]).await;
            assert_searches(FACTS_OF_TURN, &["facts_by_cause (tenant=? AND cause_id=?)"]).await;
            for statement in [LOAD_CONSOLIDATED, LOAD_MATERIAL, QUEUE_CONSOLIDATION, INSERT_PREMISES, MARK_SCANNED, MARK_REPETITIONS_DIRTY] {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
