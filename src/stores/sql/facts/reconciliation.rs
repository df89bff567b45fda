//! Writing facts: the result of an extraction in one transaction.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use serde_json::json;

use super::super::{
    context::{Connection, Engine, acquire_lock},
    episodes, job_calls,
    rows::{Columns, json_list, to_json, to_micros, to_signed, vector_to_bytes, without_nul},
    scope::LedgerLock,
    statements::{BoundQuery, execute, fetch_all, fetch_scalar},
    webhooks::events::{Event, write_events},
};
use super::{fact_replacements, fold, polarity_name, tense_name, verdicts};
use colloquy_core::ids::{FactId, InvalidationId, NpcId, TenantId};
use colloquy_memory::{
    aliases,
    disclosure::audience::Knower,
    fact::{InvalidReason, NewFact},
    flags::FlagKind,
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        facts::{Extraction, ReconcileOutcome, ReconcileTrigger, Reconciliation},
        jobs::JobFence,
        rewinds::DirtyMemory,
        webhooks::WebhookEventType,
    },
};

/// Checks the fence, checks that the memory has not moved, and ends the job, in a single statement.
macro_rules! pass_memory_fence {
    ($calls:literal) => {
        concat!(
            "UPDATE jobs SET status = 'done', finished_at = $5, leased_to = NULL, leased_until = NULL, answer = NULL,
                calls = COALESCE(calls, '') || ",
            $calls,
            " WHERE tenant = $1 AND id = $2 AND turn = $3 AND text_version = $4 AND status = 'pending'
              AND EXISTS (SELECT 1 FROM turns WHERE turns.tenant = $1 AND turns.id = $3
                          AND turns.stands = TRUE AND turns.text_version = $4)
              AND (SELECT COALESCE(SUM(memory_seq), 0) FROM npc_memories
                   WHERE npc_memories.tenant = $1 AND npc_memories.world = $6 AND npc ",
            in_json_list!("$7"),
            ") = $8 RETURNING 1"
        )
    };
}
const PASS_MEMORY_FENCE: &str = pass_memory_fence!("$9");
/// Stores an extraction for the reconciliation of its memory. `$values` are the values of the columns in their order,
/// in a SELECT.
macro_rules! store_extraction {
    ($values:literal, $when:expr) => {
        concat!(
            "INSERT INTO extractions
                (tenant, turn, world, dialogue, number, npc, audience, knowers, private_to, said_at, player, forget, injected,
                 quoted, ends, room)
             SELECT ",
            $values,
            " WHERE ",
            $when,
            " ON CONFLICT (tenant, turn, audience) DO UPDATE
             SET forget = excluded.forget, injected = excluded.injected, quoted = excluded.quoted, ends = excluded.ends,
                 room = excluded.room"
        )
    };
}
const PASS_FENCE_AND_STORE: &str = batch!(
    pass_memory_fence!("$22"),
    store_extraction!(
        "$1, $3, $6, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21",
        was_changed!()
    )
);
/// Like [`PASS_FENCE_AND_STORE`], for a turn with an episode.
const PASS_FENCE_AND_TELL: &str = batch!(
    pass_memory_fence!("$22"),
    episodes::insert_episode_row!(
        "$1, $6, $11, $9, $10, $15, 'turn', $3, $23, $24, $25, $26, $27, $28, $29",
        was_changed!()
    ),
    store_extraction!(
        "$1, $3, $6, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21",
        was_changed!()
    )
);
/// Stores the turn's extraction for a further memory.
const STORE_EXTRACTION: &str = store_extraction!(
    "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16",
    "TRUE"
);
pub(super) const IS_FENCE_OPEN: &str = "SELECT EXISTS (
    SELECT 1 FROM jobs j JOIN turns t ON t.tenant = j.tenant AND t.id = j.turn
    WHERE j.tenant = $1 AND j.id = $2 AND j.turn = $3 AND j.text_version = $4 AND j.status = 'pending'
      AND t.stands = TRUE AND t.text_version = $4)";

/// Inserts a fact in one trip.
const INSERT_FACT: &str = batch!(
    "INSERT INTO facts (tenant, id, world, audience, knowers, private_to, subject, predicate,
        object, content, keywords, speaker, kind, importance, polarity, tense, pinned, pii, authored, derived_from,
        valid_at, expires_at, cause_kind, cause_id, source_dialogue, source_turn,
        view_content, view_keywords, view_importance, view_pinned, version, written_at,
        pinned_once, locked_by)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
        $21, $22, $23, $24, $25, $26, $10, $11, $14, $17, 1, $30, $17, $31)",
    concat!(
        "INSERT INTO fact_knowers (tenant, fact, knower, world, private_to, valid_at, mutable, pinned, importance,
            ends_at, version, locked_by, names_subject)
         SELECT $1, $2, v.value, $3, COALESCE($6, ''), $21, $27, $17, $14, $22, 1, $31, $32 FROM ",
        json_texts_table!("$5"),
        " v"
    ),
    "INSERT INTO fact_embeddings (tenant, fact, model, vector) SELECT $1, $2, $28, $29 WHERE LENGTH($29) > 0",
    "INSERT INTO outbox (tenant, fact) VALUES ($1, $2)"
);

/// Checks that the memory has not moved, for work that is not a job.
const IS_MEMORY_UNMOVED: &str = concat!(
    "SELECT (SELECT COALESCE(SUM(memory_seq), 0) FROM npc_memories WHERE tenant = $1 AND world = $2 AND npc ",
    in_json_list!("$3"),
    ") = $4"
);
/// A mark that was renewed meanwhile stays.
const CLEAR_DIRTY_MARK: &str = "DELETE FROM unsettled WHERE tenant = $1 AND world = $2 AND audience = $3 AND mark = $4";
/// Marks a memory for a reconciliation from a moment on. An existing mark is renewed.
const MARK_MEMORY: &str = concat!(
    "INSERT INTO unsettled (tenant, world, audience, knowers, private_to, since, mark)
     VALUES ($1, $2, $3, $4, $5, $6, 1)
     ON CONFLICT (tenant, world, audience) DO UPDATE SET since = ",
    sql_least!("unsettled.since", "excluded.since"),
    ", mark = unsettled.mark + 1"
);
const LIFT_INVALIDATIONS: &str = concat!(
    "UPDATE invalidations SET lifted_at = $3, lifted_by_kind = 'settled' WHERE tenant = $1 AND id ",
    in_json_list!("$2"),
    " AND (lifted_at IS NULL OR lifted_by_kind = 'edit') RETURNING fact, by_fact"
);

/// Raises the memory's sequence, which rejects plans made from the old state. `$1` is the tenant, `$2` the world, and
/// `$3` lists the NPCs.
macro_rules! raise_memory {
    () => {
        raise_memory!("TRUE")
    };
    ($when:expr) => {
        concat!(
            "INSERT INTO npc_memories (tenant, world, npc, memory_seq) SELECT $1, $2, v.value, 1 FROM ",
            json_texts_table!("$3"),
            " v WHERE ",
            $when,
            " ORDER BY v.value
             ON CONFLICT (tenant, world, npc) DO UPDATE SET memory_seq = npc_memories.memory_seq + 1"
        )
    };
}
pub(in super::super) use raise_memory;

/// Writes the rest of a reconciliation. Invalidations and flags are joined with their facts to exclude other tenants'
/// facts. CROSS JOIN keeps the short list outside.
const INSERT_REST: &str = batch!(
    raise_memory!(),
    concat!(
        "INSERT INTO invalidations (tenant, id, fact, reason, by_fact, cause_kind, cause_id, at, lifted_at,
            lifted_by_kind)
         SELECT $1, v.value ->> 0, f.id, v.value ->> 2, v.value ->> 3, v.value ->> 4, v.value ->> 5,
            CAST(v.value ->> 6 AS BIGINT), CAST(v.value ->> 7 AS BIGINT),
            CASE WHEN v.value ->> 7 IS NOT NULL THEN 'edit' END
         FROM ",
        json_arrays_table!("$4"),
        " v CROSS JOIN facts f WHERE f.tenant = $1 AND f.id = ",
        row_key!("v", 1)
    ),
    concat!(
        "UPDATE fact_flags",
        by_index!("fact_flags_by_cause"),
        " SET lifted_at = $5 WHERE tenant = $1 AND cause_id ",
        in_json_list!("$6"),
        " AND lifted_at IS NULL AND NOT (fact || ' ' || by_fact ",
        in_json_list!("$7"),
        ") AND by_fact ",
        in_json_list!("$8")
    )
);
/// A separate statement, because it may raise flags lifted by the previous statement.
const INSERT_FLAGS: &str = concat!(
    "INSERT INTO fact_flags (tenant, fact, by_fact, cause_kind, cause_id, at)
     SELECT $1, f.id, v.value ->> 1, 'turn', v.value ->> 2, $3
     FROM ",
    json_arrays_table!("$2"),
    " v CROSS JOIN facts f WHERE f.tenant = $1 AND f.id = ",
    row_key!("v", 0),
    "
     ON CONFLICT (tenant, fact, by_fact) DO UPDATE
     SET cause_kind = 'turn', cause_id = excluded.cause_id, lifted_at = NULL, lifted_by = NULL"
);

pub(in super::super) const RAISE_MEMORY: &str = raise_memory!();

/// A key that is no NPC's name. Its `memory_seq` rises when a rewind removes or restores facts known by factions or by
/// everybody. The knowers of such a fact do not show which NPC had the fact in a prompt and only repeated it.
pub(in super::super) const SHARED_MEMORY: &str = "";

/// Lists the keys whose `memory_seq` guards writes about these NPCs. Writes about no NPC depend on no memory.
pub(super) fn guarding_memories(npcs: &[NpcId]) -> String {
    let everybody = (!npcs.is_empty()).then_some(SHARED_MEMORY);
    json_list(npcs.iter().map(NpcId::as_str).chain(everybody))
}

/// Returns the NPCs among knowers, for their `memory_seq`.
pub(in super::super) fn npcs_of<'k>(knowers: impl IntoIterator<Item = &'k Knower>) -> BTreeSet<String> {
    knowers
        .into_iter()
        .filter_map(|knower| match knower {
            Knower::Npc(npc) => Some(npc.to_string()),
            Knower::Faction(_) | Knower::World => None,
        })
        .collect()
}

pub(super) async fn reconcile_memory(
    engine: &Engine,
    tenant: &TenantId,
    result: &Reconciliation,
) -> StoreResult<ReconcileOutcome> {
    let scope = tenant;
    let world = &result.world;
    let teaches_nothing = result.teaches_nothing();
    let tenant = tenant.clone();
    let result = result.clone();
    let now = engine.clock.now();
    let model = engine.embedding_model.clone();
    if teaches_nothing {
        return write_statement!(engine, scope, |connection| {
            write_reconciliation(connection, &tenant, &model, &result, now).await
        })
        .await;
    }
    write_memory!(engine, scope, world, |connection| {
        write_reconciliation(connection, &tenant, &model, &result, now).await
    })
    .await
}

async fn write_reconciliation(
    connection: &mut Connection,
    tenant: &TenantId,
    model: &Arc<str>,
    result: &Reconciliation,
    now: DateTime<Utc>,
) -> StoreResult<ReconcileOutcome> {
    let teaches_nothing = result.teaches_nothing();
    if !teaches_nothing {
        acquire_lock(connection, tenant, LedgerLock::MemoryOf(&result.world, &result.npcs)).await?;
    }
    let refused = match &result.trigger {
        ReconcileTrigger::Job(fence) => pass_memory_fence(connection, tenant, result, fence, now).await?,
        ReconcileTrigger::DirtyMemory { mark, whole } => {
            clear_dirty_mark(connection, tenant, result, mark, *whole).await?
        }
    };
    if let Some(refused) = refused {
        return Ok(refused);
    }
    if teaches_nothing {
        return Ok(ReconcileOutcome::Committed);
    }
    failpoint!("facts.passed");
    store_other_extractions(connection, tenant, result).await?;
    for fact in &result.facts {
        insert_fact(connection, tenant, model, fact, fact.valid_at).await?;
        failpoint!("facts.inserted");
    }
    if result.lacks_vectors {
        mark_memories(connection, tenant, result).await?;
    }
    let mut affected_facts = lift_invalidations(connection, tenant, &result.lifts, now).await?;
    failpoint!("facts.lifted");
    // Requests to forget and ended promises may end facts that are learned later from earlier turns.
    let may_end_facts = result.extractions.iter().any(Extraction::may_end_facts);
    let memory_changed =
        may_end_facts || !(result.facts.is_empty() && result.invalidations.is_empty() && result.lifts.is_empty());
    // Reconciliation of a marked memory may also remove flags.
    let settles = matches!(result.trigger, ReconcileTrigger::DirtyMemory { .. });
    if memory_changed || settles || !result.flags.is_empty() {
        insert_rest(connection, tenant, result, memory_changed, now).await?;
        failpoint!("facts.ended");
    }
    for row in &result.invalidations {
        affected_facts.insert(row.fact);
        // Only a duplicate changes the view of the fact that absorbs it.
        affected_facts.extend(row.ended_by.filter(|_| row.reason == InvalidReason::Duplicate));
    }
    fact_replacements::append_replaced_by(connection, tenant, &result.replaced).await?;
    fold::refresh_views(connection, tenant, affected_facts).await?;
    failpoint!("facts.folded");
    write_events(connection, tenant, &flag_events(result, now)).await?;
    // Verdicts come last: a transaction waiting for the same pairs then holds no lock needed here.
    verdicts::upsert_verdicts(connection, tenant, &result.verdicts, now).await?;
    Ok(ReconcileOutcome::Committed)
}

/// Returns the events of new flags: contradictions, and facts with personal data. A replay that finds a flag again is no
/// second event.
fn flag_events(result: &Reconciliation, now: DateTime<Utc>) -> Vec<Event> {
    let kind = WebhookEventType::FactFlagged;
    let world = &result.world;
    let contradicted = result.flags.iter().map(|flag| {
        let extraction = result
            .extractions
            .iter()
            .find(|extraction| extraction.turn == flag.turn);
        let data = json!({
            "fact_id": flag.fact,
            "flag": FlagKind::Contradicted.as_str(),
            "statement_id": flag.statement,
            "turn_id": flag.turn,
        });
        // A repetition of the event has the same id, which depends on the time.
        let stated_at = flag.turn.made_at();
        let event = match extraction {
            Some(extraction) => {
                Event::in_dialogue(kind, extraction.dialogue, flag.fact, data, stated_at).with_world(world)
            }
            None => Event::in_world(kind, world, flag.fact, data, stated_at),
        };
        event.caused_by(format!("{}/{}", flag.statement, flag.turn))
    });
    let personal = result.facts.iter().filter(|fact| !fact.pii.is_empty()).map(|fact| {
        let (cause_kind, cause) = fact.cause.to_columns();
        let turn = (cause_kind == "turn").then_some(cause);
        let data = json!({"fact_id": fact.id, "flag": FlagKind::Pii.as_str(), "turn_id": turn});
        match fact.source {
            Some((dialogue, _)) => Event::in_dialogue(kind, dialogue, fact.id, data, now).with_world(world),
            None => Event::in_world(kind, world, fact.id, data, now),
        }
    });
    contradicted.chain(personal).collect()
}

/// Ends the job, and stores the first extraction and the episode of its turn. `Some` means that nothing may be written.
async fn pass_memory_fence(
    connection: &mut Connection,
    tenant: &TenantId,
    result: &Reconciliation,
    fence: &JobFence,
    now: DateTime<Utc>,
) -> StoreResult<Option<ReconcileOutcome>> {
    let calls = job_calls::usage_line(&result.calls)?;
    let passing = |statement| {
        bind!(
            statement;
            tenant, fence.job, fence.turn, i64::from(fence.text_version), to_micros(now), result.world,
            guarding_memories(&result.npcs), to_signed(result.expected_memory_seq)
        )
    };
    debug_assert!(
        result.episode.is_none() || !result.extractions.is_empty(),
        "an episode is written with the extraction of its turn"
    );
    let passing = match (result.extractions.first(), &result.episode) {
        (None, _) => passing(PASS_MEMORY_FENCE).bind(&calls),
        (Some(extraction), None) => bind_extraction(passing(PASS_FENCE_AND_STORE), extraction)?.bind(&calls),
        (Some(extraction), Some(episode)) => {
            let passing = bind_extraction(passing(PASS_FENCE_AND_TELL), extraction)?.bind(&calls);
            episodes::bind_episode(passing, episode)
        }
    };
    if execute(connection, passing).await? > 0 {
        return Ok(None);
    }
    if result.teaches_nothing() {
        return Ok(Some(ReconcileOutcome::Fenced));
    }
    let open: bool = fetch_scalar!(
        connection, IS_FENCE_OPEN;
        tenant, fence.job, fence.turn, i64::from(fence.text_version)
    )
    .await?;
    Ok(Some(if open {
        ReconcileOutcome::MemoryMoved
    } else {
        ReconcileOutcome::Fenced
    }))
}

/// Stores the turn's extractions for all memories but the first, which [`pass_memory_fence`] stores.
async fn store_other_extractions(
    connection: &mut Connection,
    tenant: &TenantId,
    result: &Reconciliation,
) -> StoreResult<()> {
    for extraction in result.extractions.iter().skip(1) {
        let keeping = bind!(STORE_EXTRACTION; tenant, extraction.turn, result.world);
        execute(connection, bind_extraction(keeping, extraction)?).await?;
    }
    Ok(())
}

/// Marks the memories of the extractions, because they could not be compared by meaning.
async fn mark_memories(connection: &mut Connection, tenant: &TenantId, result: &Reconciliation) -> StoreResult<()> {
    for extraction in &result.extractions {
        let audience = &extraction.audience;
        execute!(
            connection, MARK_MEMORY;
            tenant, result.world, audience.audience_key(), to_json(&audience.knowers)?, audience.private_to,
            to_micros(extraction.said_at)
        )
        .await?;
    }
    Ok(())
}

/// Binds the columns of an extraction after the tenant, turn and world.
fn bind_extraction<'q>(query: BoundQuery<'q>, extraction: &Extraction) -> StoreResult<BoundQuery<'q>> {
    Ok(query
        .bind(extraction.dialogue)
        .bind(i64::from(extraction.number))
        .bind(&extraction.npc)
        .bind(extraction.audience.audience_key())
        .bind(to_json(&extraction.audience.knowers)?)
        .bind(&extraction.audience.private_to)
        .bind(to_micros(extraction.said_at))
        .bind(&extraction.player)
        .bind(to_json(&extraction.forget)?)
        .bind(json_list(&extraction.injected))
        .bind(json_list(&extraction.quoted))
        .bind(to_json(&extraction.ends)?)
        .bind(i64::from(extraction.room.quarters())))
}

/// Clears the mark if the reconciliation covers the whole memory. `Some` means that nothing may be written.
async fn clear_dirty_mark(
    connection: &mut Connection,
    tenant: &TenantId,
    result: &Reconciliation,
    mark: &DirtyMemory,
    is_complete: bool,
) -> StoreResult<Option<ReconcileOutcome>> {
    let is_unmoved: bool = fetch_scalar!(
        connection, IS_MEMORY_UNMOVED;
        tenant, result.world, guarding_memories(&result.npcs), to_signed(result.expected_memory_seq)
    )
    .await?;
    if !is_unmoved {
        return Ok(Some(ReconcileOutcome::MemoryMoved));
    }
    if !is_complete {
        return Ok(None);
    }
    execute!(
        connection, CLEAR_DIRTY_MARK;
        tenant, mark.world, mark.audience.audience_key(), to_signed(mark.mark)
    )
    .await?;
    failpoint!("settle.unmarked");
    Ok(None)
}

/// Lifts invalidations and returns the affected facts.
async fn lift_invalidations(
    connection: &mut Connection,
    tenant: &TenantId,
    lifts: &[InvalidationId],
    now: DateTime<Utc>,
) -> StoreResult<BTreeSet<FactId>> {
    let mut affected_facts = BTreeSet::new();
    if lifts.is_empty() {
        return Ok(affected_facts);
    }
    let rows = fetch_all!(connection, LIFT_INVALIDATIONS; tenant, json_list(lifts), to_micros(now)).await?;
    for row in &rows {
        let mut columns = Columns::new(row);
        affected_facts.insert(columns.id()?);
        affected_facts.extend(columns.maybe_id::<FactId>()?);
    }
    Ok(affected_facts)
}

async fn insert_rest(
    connection: &mut Connection,
    tenant: &TenantId,
    result: &Reconciliation,
    memory_changed: bool,
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
            let (cause_kind, cause_id) = row.cause.to_columns();
            json!([
                row.id,
                row.fact,
                row.reason.as_str(),
                row.ended_by,
                cause_kind,
                cause_id,
                to_micros(row.ended_at),
                row.restored_at.map(to_micros),
            ])
        })
        .collect();
    // If a flag was raised twice, the last one counts.
    let flags: BTreeMap<(FactId, FactId), serde_json::Value> = result
        .flags
        .iter()
        .map(|flag| {
            (
                (flag.fact, flag.statement),
                json!([flag.fact, flag.statement, flag.turn]),
            )
        })
        .collect();
    let flags: serde_json::Value = flags.into_values().collect();
    let kept_flags = result
        .flags_kept
        .iter()
        .map(|(fact, statement)| format!("{fact} {statement}"));
    execute!(
        connection, INSERT_REST;
        tenant, result.world, json_list(npcs), invalidations.to_string(), to_micros(now), json_list(&result.flagging),
        json_list(kept_flags), json_list(&result.flagging_by)
    )
    .await?;
    if !result.flags.is_empty() {
        execute!(connection, INSERT_FLAGS; tenant, flags.to_string(), to_micros(now)).await?;
    }
    Ok(())
}

/// Inserts a fact; `written_at` is the moment from which the memory has the fact.
pub(super) async fn insert_fact(
    connection: &mut Connection,
    tenant: &TenantId,
    model: &Arc<str>,
    fact: &NewFact,
    written_at: DateTime<Utc>,
) -> StoreResult<()> {
    let statement = &fact.statement;
    let (cause_kind, cause_id) = fact.cause.to_columns();
    execute!(
        connection, INSERT_FACT;
        tenant, fact.id, fact.world, fact.audience.audience_key(), to_json(&fact.audience.knowers)?,
        fact.audience.private_to, without_nul(&statement.subject), without_nul(&statement.predicate),
        without_nul(&statement.object), without_nul(&statement.content), to_json(&statement.keywords)?,
        without_nul(&statement.speaker), statement.kind.as_str(), i64::from(statement.importance.get()),
        polarity_name(statement.polarity), tense_name(statement.tense), statement.pinned, to_json(&fact.pii)?,
        fact.authored, to_json(&fact.derived_from)?, to_micros(fact.valid_at), fact.expires_at.map(to_micros),
        cause_kind, cause_id, fact.source.map(|(dialogue, _)| dialogue.to_string()),
        fact.source.map(|(_, turn)| i64::from(turn)), fact.may_stand(), model, vector_to_bytes(&fact.embedding),
        to_micros(written_at), fact.locks.to_string(), aliases::states_name(statement)
    )
    .await?;
    Ok(())
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn reconciliation_touches_only_the_rows_it_names() {
            let pass = ["sqlite_autoindex_jobs_1 (tenant=? AND id=?)", "SEARCH turns USING INDEX"];
            assert_searches(PASS_MEMORY_FENCE, &pass).await;
            assert_searches(IS_FENCE_OPEN, &["sqlite_autoindex_jobs_1 (tenant=? AND id=?)"]).await;
            for statement in [IS_MEMORY_UNMOVED, CLEAR_DIRTY_MARK, MARK_MEMORY, LIFT_INVALIDATIONS, INSERT_FLAGS, STORE_EXTRACTION] {
                assert_searches(statement, &[]).await;
            }
            for statement in INSERT_REST.split(';').chain(INSERT_FACT.split(';')) {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
