//! Writing facts: one extraction's result in one transaction.

use std::{collections::BTreeSet, sync::Arc};

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::SqliteConnection;

use super::{fold, forget, polarity_name, read::hexadecimal, tense_name};
use crate::{
    adapters::sqlite::{
        Engine,
        rows::{json, json_list, micros, store_error, vector_bytes},
        turns::signed,
    },
    ids::{FactId, TenantId},
    memory::fact::{InvalidReason, Knower, NewFact},
    ports::{
        StoreResult,
        ledger::facts::{ReconcileOutcome, Reconciliation},
    },
};

/// The fence, the check that memory has not moved, and the job's end, at once.
const PASS: &str = "UPDATE jobs SET status = 'done', finished_at = $5, leased_to = NULL, leased_until = NULL
    WHERE tenant = $1 AND id = $2 AND turn = $3 AND text_version = $4 AND status = 'pending'
      AND EXISTS (SELECT 1 FROM turns WHERE turns.tenant = $1 AND turns.id = $3
                  AND turns.stands = 1 AND turns.text_version = $4)
      AND (SELECT COALESCE(SUM(memory_seq), 0) FROM npc_memories
           WHERE npc_memories.tenant = $1 AND npc_memories.world = $6
             AND npc IN (SELECT value FROM json_each($7))) = $8";
const FENCE_IS_OPEN: &str = "SELECT EXISTS (
    SELECT 1 FROM jobs j JOIN turns t ON t.tenant = j.tenant AND t.id = j.turn
    WHERE j.tenant = $1 AND j.id = $2 AND j.turn = $3 AND j.text_version = $4 AND j.status = 'pending'
      AND t.stands = 1 AND t.text_version = $4)";

/// One trip to SQLite per fact.
const INSERT_FACT: &str = "INSERT INTO facts (tenant, id, world, audience, knowers, private_to, subject, predicate,
        object, content, keywords, speaker, kind, importance, polarity, tense, pinned, pii, authored, derived_from,
        valid_at, expires_at, cause_kind, cause_id, source_dialogue, source_turn,
        view_content, view_keywords, view_importance, view_pinned, version)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
        $21, $22, $23, $24, $25, $26, $10, $11, $14, $17, 1);
     INSERT INTO fact_knowers (tenant, fact, knower, world, private_to, valid_at, mutable, pinned, importance,
        ends_at, version)
     SELECT $1, $2, value, $3, COALESCE($6, ''), $21, $27, $17, $14, $22, 1 FROM json_each($5);
     INSERT INTO fact_embeddings (tenant, fact, model, vector) VALUES ($1, $2, $28, $29);
     INSERT INTO fact_links (tenant, premise, fact)
     SELECT DISTINCT $1, value, $2 FROM json_each($20);
     INSERT INTO outbox (tenant, fact) VALUES ($1, $2)";

/// The rest of a reconciliation. Invalidations and flags are joined with the facts they name, so
/// that only facts of this tenant can be touched; CROSS JOIN keeps the short list outside.
const INSERT_REST: &str = "INSERT INTO npc_memories (tenant, world, npc, memory_seq)
     SELECT $1, $2, value, 1 FROM json_each($3) WHERE true
     ON CONFLICT (tenant, world, npc) DO UPDATE SET memory_seq = npc_memories.memory_seq + 1;
     INSERT INTO invalidations (tenant, id, fact, reason, by_fact, cause_kind, cause_id, at)
     SELECT $1, v.value ->> 0, f.id, v.value ->> 2, v.value ->> 3, v.value ->> 4, v.value ->> 5, v.value ->> 6
     FROM json_each($4) v CROSS JOIN facts f ON f.tenant = $1 AND f.id = v.value ->> 1;
     INSERT INTO verdicts (tenant, pair, verdict, model, at)
     SELECT $1, value ->> 0, value ->> 1, value ->> 2, $7 FROM json_each($5) WHERE true
     ON CONFLICT (tenant, pair) DO UPDATE SET verdict = excluded.verdict, model = excluded.model, at = excluded.at;
     INSERT INTO fact_flags (tenant, fact, by_fact, cause_kind, cause_id, at)
     SELECT $1, f.id, v.value ->> 1, 'turn', $8, $7
     FROM json_each($6) v CROSS JOIN facts f ON f.tenant = $1 AND f.id = v.value ->> 0 WHERE true
     ON CONFLICT (tenant, fact, by_fact) DO UPDATE SET lifted_at = NULL";

pub(super) const RAISE_MEMORY: &str = "INSERT INTO npc_memories (tenant, world, npc, memory_seq)
    SELECT $1, $2, value, 1 FROM json_each($3) WHERE true
    ON CONFLICT (tenant, world, npc) DO UPDATE SET memory_seq = npc_memories.memory_seq + 1";

/// The NPCs among knowers, for their `memory_seq`.
pub(super) fn npcs_of<'k>(knowers: impl IntoIterator<Item = &'k Knower>) -> BTreeSet<String> {
    knowers
        .into_iter()
        .filter_map(|knower| match knower {
            Knower::Npc(npc) => Some(npc.to_string()),
            Knower::Faction(_) | Knower::World => None,
        })
        .collect()
}

pub(super) async fn reconcile(
    engine: &Engine,
    tenant: &TenantId,
    result: &Reconciliation,
) -> StoreResult<ReconcileOutcome> {
    let (tenant, result, now) = (tenant.clone(), result.clone(), engine.clock.now());
    let model = engine.embedding_model.clone();
    engine
        .write(move |connection| Box::pin(async move { write(connection, &tenant, &model, &result, now).await }))
        .await
}

async fn write(
    connection: &mut SqliteConnection,
    tenant: &TenantId,
    model: &Arc<str>,
    result: &Reconciliation,
    now: DateTime<Utc>,
) -> StoreResult<ReconcileOutcome> {
    let (job, turn) = (result.fence.job.to_string(), result.fence.turn.to_string());
    let passed = sqlx::query(PASS)
        .bind(tenant.as_str())
        .bind(&job)
        .bind(&turn)
        .bind(i64::from(result.fence.text_version))
        .bind(micros(now))
        .bind(result.world.as_str())
        .bind(json_list(&result.npcs))
        .bind(signed(result.expected_memory_seq))
        .execute(&mut *connection)
        .await
        .map_err(store_error)?;
    if passed.rows_affected() == 0 {
        let open: bool = sqlx::query_scalar(FENCE_IS_OPEN)
            .bind(tenant.as_str())
            .bind(&job)
            .bind(&turn)
            .bind(i64::from(result.fence.text_version))
            .fetch_one(connection)
            .await
            .map_err(store_error)?;
        return Ok(if open {
            ReconcileOutcome::MemoryMoved
        } else {
            ReconcileOutcome::Fenced
        });
    }
    for fact in &result.facts {
        insert_fact(connection, tenant, model, fact).await?;
    }
    if !result.forget.is_empty() {
        forget::insert(connection, tenant, result).await?;
    }
    // A request too: whoever plans to write what it is about must look again.
    let memory_changed = !result.facts.is_empty() || !result.invalidations.is_empty() || !result.forget.is_empty();
    if memory_changed || !result.verdicts.is_empty() || !result.flags.is_empty() {
        insert_rest(connection, tenant, result, memory_changed, &turn, now).await?;
    }
    let touched: BTreeSet<FactId> = result
        .invalidations
        .iter()
        .flat_map(|row| {
            // Only a duplicate changes the view of what it is folded into.
            let folded_into = row.by.filter(|_| row.reason == InvalidReason::Duplicate);
            std::iter::once(row.fact).chain(folded_into)
        })
        .collect();
    fold::refresh(connection, tenant, touched).await?;
    Ok(ReconcileOutcome::Committed)
}

async fn insert_rest(
    connection: &mut SqliteConnection,
    tenant: &TenantId,
    result: &Reconciliation,
    memory_changed: bool,
    turn: &str,
    now: DateTime<Utc>,
) -> StoreResult<()> {
    let mut npcs = BTreeSet::new();
    if memory_changed {
        npcs.extend(result.npcs.iter().map(ToString::to_string));
        npcs.extend(npcs_of(result.facts.iter().flat_map(|fact| &fact.audience.knowers)));
    }
    let invalidations: serde_json::Value = result
        .invalidations
        .iter()
        .map(|row| {
            let (cause_kind, cause_id) = row.cause.columns();
            json!([
                row.id,
                row.fact,
                row.reason.as_str(),
                row.by,
                cause_kind,
                cause_id,
                micros(row.at)
            ])
        })
        .collect();
    let verdicts: serde_json::Value = result
        .verdicts
        .iter()
        .map(|judged| json!([hexadecimal(&judged.pair), judged.verdict.as_str(), judged.model]))
        .collect();
    let flags: serde_json::Value = result.flags.iter().map(|flag| json!([flag.fact, flag.by])).collect();
    sqlx::query(INSERT_REST)
        .bind(tenant.as_str())
        .bind(result.world.as_str())
        .bind(json_list(npcs))
        .bind(invalidations.to_string())
        .bind(verdicts.to_string())
        .bind(flags.to_string())
        .bind(micros(now))
        .bind(turn)
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

pub(super) async fn insert_fact(
    connection: &mut SqliteConnection,
    tenant: &TenantId,
    model: &Arc<str>,
    fact: &NewFact,
) -> StoreResult<()> {
    let statement = &fact.statement;
    let (cause_kind, cause_id) = fact.cause.columns();
    sqlx::query(INSERT_FACT)
        .bind(tenant.as_str())
        .bind(fact.id.to_string())
        .bind(fact.world.as_str())
        .bind(fact.audience.fingerprint())
        .bind(json(&fact.audience.knowers)?)
        .bind(
            fact.audience
                .private_to
                .as_ref()
                .map(|player| player.as_str().to_owned()),
        )
        .bind(&statement.subject)
        .bind(&statement.predicate)
        .bind(&statement.object)
        .bind(&statement.content)
        .bind(json(&statement.keywords)?)
        .bind(&statement.speaker)
        .bind(statement.kind.as_str())
        .bind(i64::from(statement.importance.get()))
        .bind(polarity_name(statement.polarity))
        .bind(tense_name(statement.tense))
        .bind(statement.pinned)
        .bind(json(&fact.pii)?)
        .bind(fact.authored)
        .bind(json(&fact.derived_from)?)
        .bind(micros(fact.valid_at))
        .bind(fact.expires_at.map(micros))
        .bind(cause_kind)
        .bind(cause_id)
        .bind(fact.source.map(|(dialogue, _)| dialogue.to_string()))
        .bind(fact.source.map(|(_, turn)| i64::from(turn)))
        .bind(statement.kind.is_mutable_state())
        .bind(model.as_ref())
        .bind(vector_bytes(&fact.embedding))
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::sqlite::plans::assert_searches;

    #[tokio::test]
    async fn a_reconciliation_writes_only_what_it_names() {
        assert_searches(
            PASS,
            &[
                "sqlite_autoindex_jobs_1 (tenant=? AND id=?)",
                "SEARCH turns USING INDEX",
            ],
        )
        .await;
        assert_searches(FENCE_IS_OPEN, &["sqlite_autoindex_jobs_1 (tenant=? AND id=?)"]).await;
        for statement in INSERT_REST.split(';').chain(INSERT_FACT.split(';')) {
            assert_searches(statement, &[]).await;
        }
    }
}
