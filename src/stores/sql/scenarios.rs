//! Authored memories of NPCs about their own past.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    authored_resource::{AuthoredResource, ResourceEdit, ResourceKey, check_put, delete_resource, put_resource},
    context::Engine,
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, to_json, to_micros, vector_from_bytes, vector_to_bytes, without_nul},
    statements::execute,
};
use colloquy_core::{
    ids::{NpcId, ScenarioId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::Npc,
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

impl AuthoredResource for EmbeddedScenario {
    const VERSION: &'static str = "SELECT version FROM scenarios
        WHERE tenant = $1 AND world = $2 AND npc = $3 AND id = $4 AND deleted_at IS NULL";
    const PARENT_VERSION: Option<&'static str> = Some(Npc::VERSION);
    const LIMIT: Option<(&'static str, u32)> = Some((COUNT_SCENARIOS, MAX_SCENARIOS_PER_NPC));

    fn key(&self) -> ResourceKey {
        scenario_key(&self.scenario.world, &self.scenario.npc, &self.scenario.id)
    }
    async fn prepare_write(&self, put: &mut ResourceEdit<'_>) -> StoreResult<()> {
        let is_conditional = !self.scenario.when.is_empty() || self.scenario.tell.is_some();
        let query = put.key.bind(RAISE_LORE_VERSION, put.tenant).bind(is_conditional);
        execute(put.connection, query).await.map(drop)
    }
    async fn write(&self, put: &mut ResourceEdit<'_>, version: u32) -> StoreResult<()> {
        let Self { scenario, embedding } = self;
        execute!(
            put.connection, UPSERT_SCENARIO;
            put.tenant, scenario.world, scenario.npc, scenario.id, without_nul(&scenario.title),
            without_nul(&scenario.content), to_json(&scenario.keywords)?, to_json(&scenario.synonyms)?,
            i64::from(scenario.required_progress.get()), without_nul(&embedding.model),
            vector_to_bytes(&embedding.vector), i64::from(version), to_micros(scenario.updated_at),
            to_json(&scenario.when)?, scenario.tell.as_ref().map(to_json).transpose()?
        )
        .await
        .map(drop)
    }
    async fn delete(deletion: &mut ResourceEdit<'_>) -> StoreResult<()> {
        let query = deletion.key.bind(RAISE_LORE_VERSION, deletion.tenant).bind(false);
        execute(deletion.connection, query).await?;
        deletion.execute(DELETE_SCENARIO).await
    }
}

fn scenario_key(world: &WorldId, npc: &NpcId, id: &ScenarioId) -> ResourceKey {
    ResourceKey::new(world, [npc.as_str(), id.as_str()])
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
        let resource = EmbeddedScenario {
            scenario: scenario.clone(),
            embedding: embedding.clone(),
        };
        put_resource(&self.0, scope, resource, if_version, edit).await
    }
    async fn check_put(
        &self,
        scope: &TenantScope,
        scenario: &Scenario,
        if_version: Option<u32>,
    ) -> StoreResult<Option<PutOutcome>> {
        let key = scenario_key(&scenario.world, &scenario.npc, &scenario.id);
        check_put::<EmbeddedScenario>(&self.0, scope, &key, if_version).await
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
        let key = scenario_key(world, npc, id);
        delete_resource::<EmbeddedScenario>(&self.0, scope, key, if_version, edit).await
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
