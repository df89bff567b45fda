//! Authored memories of NPCs about their own past.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    audit, authored,
    authored_size::Growth,
    context::{Connection, Engine, acquire_lock},
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, to_json, to_micros, vector_from_bytes, vector_to_bytes, without_nul},
    scope::LedgerLock,
    statements::{execute, fetch_optional, fetch_scalar},
};
use colloquy_core::{
    ids::{NpcId, ScenarioId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    progress::Progress,
    scenario::{MAX_SCENARIOS_PER_NPC, Scenario},
};
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    ledger::{
        audit::Edit,
        authored::{DeleteOutcome, PutOutcome},
        scenarios::{EmbeddedScenario, Embedding, RequiredProgress, ScenarioStore, ScenarioTell, ScenarioTitle},
    },
};

pub(super) struct SqlScenarioStore(pub(super) Arc<Engine>);

/// The columns of [`read_scenario`], for the table alias `s`.
macro_rules! scenario_columns {
    () => {
        "s.world, s.npc, s.id, s.title, s.content, s.keywords, s.synonyms, s.required_progress, s.conditions, s.tell,
            s.version, s.updated_at"
    };
}

const SCENARIO_VERSION: &str = "SELECT version FROM scenarios
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND id = $4 AND deleted_at IS NULL";
const COUNT_SCENARIOS: &str = "SELECT COUNT(*) FROM scenarios
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND deleted_at IS NULL";
const UPSERT_SCENARIO: &str =
    "INSERT INTO scenarios (tenant, world, npc, id, title, content, keywords, synonyms, required_progress,
        embedding_model, embedding, version, updated_at, conditions, tell)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
    ON CONFLICT (tenant, world, npc, id) DO UPDATE SET title = excluded.title, content = excluded.content,
        keywords = excluded.keywords, synonyms = excluded.synonyms, required_progress = excluded.required_progress,
        embedding_model = excluded.embedding_model, embedding = excluded.embedding, version = excluded.version,
        updated_at = excluded.updated_at, conditions = excluded.conditions, tell = excluded.tell, deleted_at = NULL";
const SCENARIO_BY_ID: &str = concat!(
    "SELECT ",
    scenario_columns!(),
    " FROM scenarios s
      WHERE s.tenant = $1 AND s.world = $2 AND s.npc = $3 AND s.id = $4 AND s.deleted_at IS NULL"
);
const LIST: &str = concat!(
    "SELECT ",
    scenario_columns!(),
    " FROM scenarios s
      WHERE s.tenant = $1 AND s.world = $2 AND s.npc = $3 AND s.deleted_at IS NULL AND ($4 IS NULL OR s.id > $4)
      ORDER BY s.id LIMIT $5"
);
/// Conditions of scenarios are in the memory of nodes beside the lore. `$5`: the written scenario has conditions.
const RAISE_LORE_VERSION: &str = "UPDATE worlds SET lore_version = lore_version + 1 WHERE tenant = $1 AND id = $2
    AND ($5 OR EXISTS (SELECT 1 FROM scenarios s WHERE s.tenant = $1 AND s.world = $2 AND s.npc = $3 AND s.id = $4
        AND (s.conditions <> '[]' OR s.tell IS NOT NULL)))";
const DELETE_SCENARIO: &str = "DELETE FROM scenarios WHERE tenant = $1 AND world = $2 AND npc = $3 AND id = $4";
const UNLOCKED_SCENARIOS: &str = concat!(
    "SELECT ",
    scenario_columns!(),
    ", s.embedding_model, s.embedding FROM scenarios s
      WHERE s.tenant = $1 AND s.world = $2 AND s.npc = $3 AND s.deleted_at IS NULL AND s.required_progress <= $4
      ORDER BY s.id"
);
const UNLOCKED_TITLES: &str = "SELECT id, title, keywords, synonyms, conditions, required_progress FROM scenarios
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND deleted_at IS NULL AND required_progress <= $4
    ORDER BY id";
/// The columns of [`read_tell`]. Neither contents nor vectors are read.
const SELECT_TELLS: &str = "SELECT id, title, keywords, synonyms, required_progress, conditions, tell FROM scenarios
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND deleted_at IS NULL AND tell IS NOT NULL
    ORDER BY id LIMIT $4";
const SELECT_REQUIRED: &str = concat!(
    "SELECT s.npc, n.name, s.id, s.required_progress, s.conditions FROM ",
    json_arrays_table!("$3"),
    " v CROSS JOIN scenarios s CROSS JOIN npcs n
      WHERE s.tenant = $1 AND s.world = $2 AND s.npc = ",
    row_key!("v", 0),
    " AND s.id = ",
    row_key!("v", 1),
    " AND s.deleted_at IS NULL
        AND n.tenant = $1 AND n.world = $2 AND n.id = s.npc AND n.deleted_at IS NULL
      ORDER BY s.npc, s.id"
);
const UNEMBEDDED: &str = concat!(
    "SELECT ",
    scenario_columns!(),
    " FROM scenarios s
      WHERE s.tenant = $1 AND s.deleted_at IS NULL AND s.embedding_model <> $2
      ORDER BY s.world, s.npc, s.id LIMIT $3"
);
const STORE_EMBEDDING: &str = "UPDATE scenarios SET embedding_model = $6, embedding = $7
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND id = $4 AND version = $5 AND deleted_at IS NULL";

fn read_scenario(columns: &mut Columns<'_>) -> StoreResult<Scenario> {
    Ok(Scenario {
        world: columns.id()?,
        npc: columns.id()?,
        id: columns.id()?,
        title: columns.next()?,
        content: columns.next()?,
        keywords: columns.json()?,
        synonyms: columns.json()?,
        required_progress: read_progress(columns)?,
        when: columns.json()?,
        tell: columns.maybe_json()?,
        version: columns.number()?,
        updated_at: columns.time()?,
    })
}

fn read_progress(columns: &mut Columns<'_>) -> StoreResult<Progress> {
    let value: u32 = columns.number()?;
    Progress::try_from(value).map_err(colloquy_ports::StoreError::Corrupt)
}

fn read_unlocked(columns: &mut Columns<'_>) -> StoreResult<EmbeddedScenario> {
    Ok(EmbeddedScenario {
        scenario: read_scenario(columns)?,
        embedding: Embedding {
            model: columns.next()?,
            vector: vector_from_bytes(columns.next()?)?,
        },
    })
}

fn read_titled(columns: &mut Columns<'_>) -> StoreResult<ScenarioTitle> {
    Ok(ScenarioTitle {
        id: columns.id()?,
        title: columns.next()?,
        keywords: columns.json()?,
        synonyms: columns.json()?,
        when: columns.json()?,
        required_progress: read_progress(columns)?,
    })
}

fn read_tell(columns: &mut Columns<'_>) -> StoreResult<ScenarioTell> {
    Ok(ScenarioTell {
        id: columns.id()?,
        title: columns.next()?,
        keywords: columns.json()?,
        synonyms: columns.json()?,
        required_progress: read_progress(columns)?,
        when: columns.json()?,
        tell: columns.json()?,
    })
}

fn read_required(columns: &mut Columns<'_>) -> StoreResult<RequiredProgress> {
    Ok(RequiredProgress {
        npc: columns.id()?,
        npc_name: columns.next()?,
        scenario: columns.id()?,
        progress: read_progress(columns)?,
        when: columns.json()?,
    })
}

async fn scenario_version(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    npc: &NpcId,
    id: &ScenarioId,
) -> StoreResult<Option<i64>> {
    let row = fetch_optional!(connection, SCENARIO_VERSION; tenant, world, npc, id).await?;
    row.map(|row| Columns::new(&row).next()).transpose()
}

async fn is_full(connection: &mut Connection, tenant: &TenantId, world: &WorldId, npc: &NpcId) -> StoreResult<bool> {
    let stored_count: i64 = fetch_scalar!(connection, COUNT_SCENARIOS; tenant, world, npc).await?;
    Ok(stored_count >= i64::from(MAX_SCENARIOS_PER_NPC))
}

/// Returns the version that a put would write, or the reason for refusing the put.
async fn next_version(
    connection: &mut Connection,
    tenant: &TenantId,
    scenario: &Scenario,
    if_version: Option<u32>,
) -> StoreResult<Result<u32, PutOutcome>> {
    let npc = authored::npc_version(connection, tenant, &scenario.world, &scenario.npc).await?;
    if npc.is_none() {
        return Ok(Err(PutOutcome::NoParent));
    }
    let stored = scenario_version(connection, tenant, &scenario.world, &scenario.npc, &scenario.id).await?;
    let next = authored::next_version(stored, if_version);
    if next.is_ok() && stored.is_none() && is_full(connection, tenant, &scenario.world, &scenario.npc).await? {
        return Ok(Err(PutOutcome::Full {
            most: MAX_SCENARIOS_PER_NPC,
        }));
    }
    Ok(next)
}

#[async_trait]
impl ScenarioStore for SqlScenarioStore {
    async fn put_scenario(
        &self,
        scope: &TenantScope,
        scenario: &Scenario,
        embedding: &Embedding,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        let tenant = scope.tenant().clone();
        let scenario = scenario.clone();
        let edit = edit.clone();
        let keywords = to_json(&scenario.keywords)?;
        let synonyms = to_json(&scenario.synonyms)?;
        let conditions = to_json(&scenario.when)?;
        let tell = scenario.tell.as_ref().map(to_json).transpose()?;
        let model = embedding.model.clone();
        let vector = vector_to_bytes(&embedding.vector);
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Authored(&scenario.world)).await?;
            let version = match next_version(connection, &tenant, &scenario, if_version).await? {
                Ok(version) => version,
                Err(refused) => return Ok(refused),
            };
            let is_conditional = !scenario.when.is_empty() || scenario.tell.is_some();
            execute!(
                connection, RAISE_LORE_VERSION;
                tenant, scenario.world, scenario.npc, scenario.id, is_conditional
            )
            .await?;
            let growth = Growth::begin(connection, &tenant, edit.limits).await?;
            execute!(
                connection, UPSERT_SCENARIO;
                tenant, scenario.world, scenario.npc, scenario.id, without_nul(&scenario.title),
                without_nul(&scenario.content), keywords, synonyms, i64::from(scenario.required_progress.get()),
                without_nul(&model), vector, i64::from(version),
                to_micros(scenario.updated_at), conditions, tell
            )
            .await?;
            Growth::check(growth, connection, &tenant).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(authored::put_outcome(version))
        })
        .await
    }
    async fn check_put(
        &self,
        scope: &TenantScope,
        scenario: &Scenario,
        if_version: Option<u32>,
    ) -> StoreResult<Option<PutOutcome>> {
        let mut connection = self.0.acquire_reader(scope).await?;
        let next = next_version(&mut connection, scope.tenant(), scenario, if_version).await?;
        Ok(next.err())
    }
    async fn load_scenario(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        id: &ScenarioId,
    ) -> StoreResult<Option<Scenario>> {
        let query = bind!(SCENARIO_BY_ID; scope.tenant(), world, npc, id);
        self.0.fetch_optional(scope, query, read_scenario).await
    }
    async fn list_scenarios(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        page: &PageRequest,
    ) -> StoreResult<Page<Scenario>> {
        let query = bind!(LIST; scope.tenant(), world, npc, page_cursor(page), page_row_limit(page));
        fetch_page(&self.0, scope, query, page, read_scenario, |scenario| {
            scenario.id.to_string()
        })
        .await
    }
    async fn delete_scenario(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        id: &ScenarioId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome> {
        let tenant = scope.tenant().clone();
        let edit = edit.clone();
        let world = world.clone();
        let npc = npc.clone();
        let id = id.clone();
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Authored(&world)).await?;
            let stored = scenario_version(connection, &tenant, &world, &npc, &id).await?;
            if let Some(refused) = authored::delete_rejection(stored, if_version) {
                return Ok(refused);
            }
            execute!(connection, RAISE_LORE_VERSION; tenant, world, npc, id, false).await?;
            execute!(connection, DELETE_SCENARIO; tenant, world, npc, id).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(DeleteOutcome::Deleted)
        })
        .await
    }
    async fn list_unlocked_scenarios(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        progress: Progress,
    ) -> StoreResult<Vec<EmbeddedScenario>> {
        let query = bind!(UNLOCKED_SCENARIOS; scope.tenant(), world, npc, i64::from(progress.get()));
        self.0.fetch_all(scope, query, read_unlocked).await
    }
    async fn list_unlocked_titles(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        progress: Progress,
    ) -> StoreResult<Vec<ScenarioTitle>> {
        let query = bind!(UNLOCKED_TITLES; scope.tenant(), world, npc, i64::from(progress.get()));
        self.0.fetch_all(scope, query, read_titled).await
    }
    async fn list_tells(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        limit: u32,
    ) -> StoreResult<Vec<ScenarioTell>> {
        let query = bind!(SELECT_TELLS; scope.tenant(), world, npc, i64::from(limit));
        self.0.fetch_all(scope, query, read_tell).await
    }
    async fn load_required_progress(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        scenarios: &[(NpcId, ScenarioId)],
    ) -> StoreResult<Vec<RequiredProgress>> {
        let query = bind!(SELECT_REQUIRED; scope.tenant(), world, to_json(scenarios)?);
        self.0.fetch_all(scope, query, read_required).await
    }
    async fn list_unembedded(&self, scope: &TenantScope, model: &str, limit: u32) -> StoreResult<Vec<Scenario>> {
        let query = bind!(UNEMBEDDED; scope.tenant(), without_nul(model), i64::from(limit));
        self.0.fetch_all(scope, query, read_scenario).await
    }
    async fn store_embedding(
        &self,
        scope: &TenantScope,
        scenario: &Scenario,
        embedding: &Embedding,
    ) -> StoreResult<()> {
        let query = bind!(
            STORE_EMBEDDING;
            scope.tenant(), scenario.world, scenario.npc, scenario.id, i64::from(scenario.version),
            without_nul(&embedding.model), vector_to_bytes(&embedding.vector)
        );
        self.0.execute(scope, query).await.map(drop)
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::plan;

        #[tokio::test]
        async fn unlocked_scenarios_are_read_by_npc() {
            for statement in [UNLOCKED_SCENARIOS, UNLOCKED_TITLES, SELECT_TELLS] {
                let plan = plan(statement).await;
                assert!(plan.contains("sqlite_autoindex_scenarios_1 (tenant=? AND world=? AND npc=?)"), "{plan}");
            }
        }
    }
}
