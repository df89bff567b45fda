//! People's changes to facts: write, correct, remove, restore. Every change has an audit row.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use serde_json::json;

use super::super::{
    audit,
    authored_size::Growth,
    context::{Connection, Engine, acquire_lock},
    rows::{Columns, json_list, to_json, to_micros, vector_to_bytes},
    scope::LedgerLock,
    statements::{execute, fetch_all, fetch_optional},
};
use super::{
    SqlFactStore, fold,
    lists::load_fact,
    reconciliation::{RAISE_MEMORY, insert_fact, npcs_of},
    replacement::insert_replacement,
};
use colloquy_core::{
    ids::{FactId, InvalidationId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    disclosure::audience::Audience,
    fact::{Cause, Fact, InvalidReason, NewFact},
};
use colloquy_ports::{
    StoreError, StoreResult,
    clock::Clock,
    ledger::{
        audit::Edit,
        facts::{FactEditOutcome, FactEditStore, FactPatch, ReplacementFact},
    },
};

/// Stores an edit with the vector that the new wording is about to replace.
const INSERT_EDIT: &str = "INSERT INTO fact_edits (tenant, fact, edit, at, patch, vector_before, model_before)
    SELECT $1, $2, $3, $4, $5, e.vector, e.model
    FROM (SELECT 1 AS one) o LEFT JOIN fact_embeddings e ON $6 AND e.tenant = $1 AND e.fact = $2";
const MARK_PINNED_ONCE: &str =
    "UPDATE facts SET pinned_once = TRUE WHERE tenant = $1 AND id = $2 AND pinned_once = FALSE";
const UPDATE_PII: &str = "UPDATE facts SET pii = $3 WHERE tenant = $1 AND id = $2";
const UPSERT_EMBEDDING: &str = batch!(
    "INSERT INTO fact_embeddings (tenant, fact, model, vector) VALUES ($1, $2, $3, $4)
     ON CONFLICT (tenant, fact) DO UPDATE SET model = excluded.model, vector = excluded.vector",
    "INSERT INTO outbox (tenant, fact) VALUES ($1, $2)"
);
/// Writes the invalidation even if the fact has ended for another reason, because that reason may become unsaid.
const INSERT_INVALIDATION: &str = "INSERT INTO invalidations (tenant, id, fact, reason, cause_kind, cause_id, at)
    SELECT $1, $2, $3, $4, $5, $6, $7
    WHERE NOT EXISTS (SELECT 1 FROM invalidations
        WHERE tenant = $1 AND fact = $3 AND reason = $4 AND lifted_at IS NULL)";
const FIND_UNSAID: &str = "SELECT id FROM invalidations
    WHERE tenant = $1 AND fact = $2 AND reason = 'unsaid' AND lifted_at IS NULL LIMIT 1";
const LIFT_INVALIDATIONS: &str = "UPDATE invalidations SET lifted_at = $3, lifted_by_kind = $4, lifted_by_id = $5
    WHERE tenant = $1 AND fact = $2 AND lifted_at IS NULL AND reason NOT IN ('unsaid', 'premise_gone')
    RETURNING by_fact";

/// Finds an equal edit that is still the latest word. No extraction, pending job or dead job may be newer than the
/// edit. No turn may have been unsaid since, because an unsaid turn may stand again.
const FIND_SAME_EDIT: &str = "SELECT e.edit FROM fact_edits e
    WHERE e.tenant = $1 AND e.fact = $2 AND e.patch = $3
      AND NOT EXISTS (SELECT 1 FROM extractions x WHERE x.tenant = $1 AND x.world = $4 AND x.said_at > e.at)
      AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.tenant = $1 AND j.status = 'pending' AND j.created_at > e.at)
      AND NOT EXISTS (SELECT 1 FROM jobs d WHERE d.tenant = $1 AND d.status = 'dead' AND d.created_at > e.at)
      AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.tenant = $1 AND t.stands = FALSE AND t.unsaid_at > e.at)
    LIMIT 1";

/// An edit that gets its time under the memory lock. Before the lock, another writer may still add a statement that was
/// compared with the memory without the edit.
#[derive(Clone)]
pub(super) struct UndatedEdit {
    edit: Edit,
    clock: Arc<dyn Clock>,
}

impl UndatedEdit {
    pub(super) fn new(engine: &Engine, edit: &Edit) -> Self {
        let edit = edit.clone();
        let clock = engine.clock.clone();
        Self { edit, clock }
    }

    fn date_now(self) -> Edit {
        let now = self.clock.now();
        Edit {
            made_at: now,
            ..self.edit
        }
    }

    /// Locks the memory of a fact. Returns the fact as of then and the edit, or the reason for refusing the change.
    pub(super) async fn begin(
        self,
        connection: &mut Connection,
        tenant: &TenantId,
        id: FactId,
        if_version: Option<u32>,
    ) -> StoreResult<Result<(Fact, Edit), FactEditOutcome>> {
        let Some(unlocked) = load_fact(connection, tenant, id).await? else {
            return Ok(Err(FactEditOutcome::NotFound));
        };
        acquire_lock(connection, tenant, LedgerLock::Memory(&unlocked.world)).await?;
        Ok(match load_fact(connection, tenant, id).await? {
            None => Err(FactEditOutcome::NotFound),
            Some(fact) if if_version.is_some_and(|expected| expected != fact.version) => {
                Err(FactEditOutcome::VersionMismatch { stored: fact.version })
            }
            Some(fact) => Ok((fact, self.date_now())),
        })
    }
}

/// Marks the memory of a fact for reconciliation from the fact's start. An existing mark is renewed.
const MARK_MEMORY_DIRTY: &str = concat!(
    "INSERT INTO unsettled (tenant, world, audience, knowers, private_to, since, mark)
     SELECT tenant, world, audience, knowers, private_to, valid_at, 1 FROM facts WHERE tenant = $1 AND id = $2
     ON CONFLICT (tenant, world, audience) DO UPDATE SET since = ",
    sql_least!("unsettled.since", "excluded.since"),
    ", mark = unsettled.mark + 1"
);

#[async_trait]
impl FactEditStore for SqlFactStore {
    async fn create_fact(&self, scope: &TenantScope, fact: &NewFact, settles: bool, edit: &Edit) -> StoreResult<()> {
        let world = &fact.world;
        let tenant = scope.tenant().clone();
        let fact = fact.clone();
        let edit = UndatedEdit::new(&self.0, edit);
        let model = self.0.embedding_model.clone();
        write_memory!(self.0, scope.tenant(), world, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Memory(&fact.world)).await?;
            let edit = edit.date_now();
            let growth = Growth::begin(connection, &tenant, edit.limits).await?;
            insert_fact(connection, &tenant, &model, &fact, edit.made_at).await?;
            Growth::check(growth, connection, &tenant).await?;
            raise_memory(connection, &tenant, &fact.world, &fact.audience).await?;
            if settles {
                execute!(connection, MARK_MEMORY_DIRTY; tenant, fact.id).await?;
            }
            audit::record_audit(connection, &tenant, &edit).await
        })
        .await
    }
    async fn edit_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        patch: &FactPatch,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome> {
        let tenant = scope.tenant().clone();
        let patch = patch.clone();
        let edit = UndatedEdit::new(&self.0, edit);
        let model = self.0.embedding_model.clone();
        write_transaction!(self.0, scope, |connection| {
            let (fact, edit) = match edit.begin(connection, &tenant, id, if_version).await? {
                Ok(started) => started,
                Err(refused) => return Ok(refused),
            };
            if is_unsaid(connection, &tenant, id).await? {
                return Ok(FactEditOutcome::Unsaid);
            }
            if patch == FactPatch::default() {
                return Ok(FactEditOutcome::Done(Box::new(fact)));
            }
            let growth = Growth::begin(connection, &tenant, edit.limits).await?;
            write_patch(connection, &tenant, &model, id, &patch, &edit).await?;
            Growth::check(growth, connection, &tenant).await?;
            finish_edit(connection, &tenant, &fact, id, BTreeSet::from([id]), &edit).await
        })
        .await
    }
    async fn replace_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        replacement: &ReplacementFact,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome> {
        let tenant = scope.tenant().clone();
        let replacement = replacement.clone();
        let model = self.0.embedding_model.clone();
        let edit = UndatedEdit::new(&self.0, edit);
        write_transaction!(self.0, scope, |connection| {
            let (fact, edit) = match edit.begin(connection, &tenant, id, if_version).await? {
                Ok(started) => started,
                Err(refused) => return Ok(refused),
            };
            if is_unsaid(connection, &tenant, id).await? {
                return Ok(FactEditOutcome::Unsaid);
            }
            if let Some(invalidation) = &fact.invalid {
                return Ok(FactEditOutcome::Ended {
                    by: invalidation.ended_by,
                });
            }
            let growth = Growth::begin(connection, &tenant, edit.limits).await?;
            let affected_facts = insert_replacement(connection, &tenant, &model, id, &replacement, &edit).await?;
            Growth::check(growth, connection, &tenant).await?;
            finish_edit(connection, &tenant, &fact, replacement.fact.id, affected_facts, &edit).await
        })
        .await
    }
    async fn remove_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome> {
        let tenant = scope.tenant().clone();
        let edit = UndatedEdit::new(&self.0, edit);
        write_transaction!(self.0, scope, |connection| {
            let (fact, edit) = match edit.begin(connection, &tenant, id, if_version).await? {
                Ok(started) => started,
                Err(refused) => return Ok(refused),
            };
            let (cause_kind, cause_id) = Cause::Edit(edit.id).to_columns();
            let removed = execute!(
                connection, INSERT_INVALIDATION;
                tenant,
                // An edit removes a single fact, so the row can take its id from the edit's bits.
                InvalidationId::from_u128(edit.id.as_u128()), id, InvalidReason::Removed.as_str(), cause_kind, cause_id,
                to_micros(edit.made_at)
            )
            .await?;
            if removed == 0 {
                return Ok(FactEditOutcome::Done(Box::new(fact)));
            }
            finish_edit(connection, &tenant, &fact, id, BTreeSet::from([id]), &edit).await
        })
        .await
    }
    async fn restore_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome> {
        let tenant = scope.tenant().clone();
        let edit = UndatedEdit::new(&self.0, edit);
        write_transaction!(self.0, scope, |connection| {
            let (fact, edit) = match edit.begin(connection, &tenant, id, if_version).await? {
                Ok(started) => started,
                Err(refused) => return Ok(refused),
            };
            if is_unsaid(connection, &tenant, id).await? {
                return Ok(FactEditOutcome::Unsaid);
            }
            let (cause_kind, cause_id) = Cause::Edit(edit.id).to_columns();
            let lifted = fetch_all!(
                connection, LIFT_INVALIDATIONS;
                tenant, id, to_micros(edit.made_at), cause_kind, cause_id
            )
            .await?;
            // The edit is stored even if no invalidation was lifted, because an earlier statement may still end the
            // fact later.
            let restored = json!({ "restored": true });
            if lifted.is_empty() && is_edited_already(connection, &tenant, &fact, &restored).await? {
                return Ok(FactEditOutcome::Done(Box::new(fact)));
            }
            record_edit(connection, &tenant, id, &restored, false, &edit).await?;
            // Facts that had absorbed the restored fact lose it again.
            let absorbing: Vec<Option<FactId>> = Columns::read_rows(&lifted, |columns| columns.maybe_id())?;
            let affected_facts = absorbing.into_iter().flatten().chain([id]).collect();
            finish_edit(connection, &tenant, &fact, id, affected_facts, &edit).await
        })
        .await
    }
}

pub(super) async fn is_unsaid(connection: &mut Connection, tenant: &TenantId, id: FactId) -> StoreResult<bool> {
    fetch_optional!(connection, FIND_UNSAID; tenant, id)
        .await
        .map(|row| row.is_some())
}

/// Completes a person's change. Returns the fact `changed`.
async fn finish_edit(
    connection: &mut Connection,
    tenant: &TenantId,
    fact: &Fact,
    changed: FactId,
    affected_facts: BTreeSet<FactId>,
    edit: &Edit,
) -> StoreResult<FactEditOutcome> {
    complete_change(connection, tenant, fact, affected_facts, edit).await?;
    load_fact(connection, tenant, changed)
        .await?
        .map(|fact| FactEditOutcome::Done(Box::new(fact)))
        .ok_or_else(|| StoreError::Corrupt(format!("{changed} vanished while it was edited")))
}

/// Refreshes the cached results, raises the memory's sequence, and writes the audit row.
pub(super) async fn complete_change(
    connection: &mut Connection,
    tenant: &TenantId,
    fact: &Fact,
    affected_facts: BTreeSet<FactId>,
    edit: &Edit,
) -> StoreResult<()> {
    fold::refresh_views(connection, tenant, affected_facts).await?;
    raise_memory(connection, tenant, &fact.world, &fact.audience).await?;
    audit::record_audit(connection, tenant, edit).await
}

/// Raises the memory's sequence, which rejects plans made from the old state.
pub(super) async fn raise_memory(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    audience: &Audience,
) -> StoreResult<()> {
    execute!(connection, RAISE_MEMORY; tenant, world, json_list(npcs_of(&audience.knowers)))
        .await
        .map(drop)
}

/// Writes a person's correction of the view.
pub(super) async fn write_patch(
    connection: &mut Connection,
    tenant: &TenantId,
    model: &Arc<str>,
    id: FactId,
    patch: &FactPatch,
    edit: &Edit,
) -> StoreResult<()> {
    let values = [
        ("content", patch.content.as_ref().map(|content| json!(content))),
        ("keywords", patch.keywords.as_ref().map(|keywords| json!(keywords))),
        ("importance", patch.importance.map(|importance| json!(importance))),
        ("pinned", patch.pinned.map(|pinned| json!(pinned))),
    ];
    let fields = values
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let fields: serde_json::Map<_, _> = fields.collect();
    if patch.pinned == Some(true) {
        execute!(connection, MARK_PINNED_ONCE; tenant, id).await?;
    }
    let reworded = patch.embedding.is_some();
    record_edit(connection, tenant, id, &fields.into(), reworded, edit).await?;
    if let Some(kinds) = &patch.pii {
        execute!(connection, UPDATE_PII; tenant, id, to_json(kinds)?).await?;
    }
    if let Some(embedding) = &patch.embedding {
        execute!(connection, UPSERT_EMBEDDING; tenant, id, model, vector_to_bytes(embedding)).await?;
    }
    Ok(())
}

async fn record_edit(
    connection: &mut Connection,
    tenant: &TenantId,
    id: FactId,
    patch: &serde_json::Value,
    reworded: bool,
    edit: &Edit,
) -> StoreResult<()> {
    execute!(connection, INSERT_EDIT; tenant, id, edit.id, to_micros(edit.made_at), to_json(patch)?, reworded)
        .await
        .map(drop)
}

async fn is_edited_already(
    connection: &mut Connection,
    tenant: &TenantId,
    fact: &Fact,
    patch: &serde_json::Value,
) -> StoreResult<bool> {
    let same_edit = fetch_optional!(connection, FIND_SAME_EDIT; tenant, fact.id, to_json(patch)?, fact.world).await?;
    Ok(same_edit.is_some())
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn fact_reinstatement_touches_only_its_invalidations() {
            assert_searches(LIFT_INVALIDATIONS, &["invalidations_of_fact"]).await;
            assert_searches(FIND_UNSAID, &["invalidations_of_fact"]).await;
            assert_searches(FIND_SAME_EDIT, &["extractions_of_world (tenant=? AND world=? AND said_at>?)"]).await;
        }
    }
}
