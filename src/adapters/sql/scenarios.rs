//! What NPCs remember of their own past, as people write it.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Connection, Engine, Lock, Row, audit, authored, lock,
    rows::{Columns, json, list, micros, rows_of, store_error, text, vector_bytes, vector_from},
};
use crate::{
    ids::{NpcId, ScenarioId, TenantId, WorldId},
    memory::{
        progress::Progress,
        scenario::{MOST_OF_ONE_NPC, Scenario},
    },
    ports::{
        Page, PageRequest, StoreResult,
        ledger::{
            audit::Edit,
            authored::{DeleteOutcome, PutOutcome},
            scenarios::{Embedding, Required, ScenarioStore, Titled, Unlocked},
        },
    },
    tenancy::TenantScope,
};

pub(super) struct SqlScenarioStore(pub(super) Arc<Engine>);

/// The columns of [`scenario_from`], of the table alias `s`.
macro_rules! scenario_columns {
    () => {
        "s.world, s.npc, s.id, s.title, s.content, s.keywords, s.synonyms, s.required_progress, s.version, s.updated_at"
    };
}

const VERSION: &str = "SELECT version FROM scenarios
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND id = $4 AND deleted_at IS NULL";
const HOW_MANY: &str = "SELECT COUNT(*) FROM scenarios
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND deleted_at IS NULL";
const PUT: &str =
    "INSERT INTO scenarios (tenant, world, npc, id, title, content, keywords, synonyms, required_progress,
        embedding_model, embedding, version, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
    ON CONFLICT (tenant, world, npc, id) DO UPDATE SET title = excluded.title, content = excluded.content,
        keywords = excluded.keywords, synonyms = excluded.synonyms, required_progress = excluded.required_progress,
        embedding_model = excluded.embedding_model, embedding = excluded.embedding, version = excluded.version,
        updated_at = excluded.updated_at, deleted_at = NULL";
const GET: &str = concat!(
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
const HIDE: &str = "UPDATE scenarios SET deleted_at = $5
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND id = $4 AND deleted_at IS NULL";
const WITHIN: &str = concat!(
    "SELECT ",
    scenario_columns!(),
    ", s.embedding_model, s.embedding FROM scenarios s
      WHERE s.tenant = $1 AND s.world = $2 AND s.npc = $3 AND s.deleted_at IS NULL AND s.required_progress <= $4
      ORDER BY s.id"
);
const TITLES: &str = "SELECT id, title, required_progress FROM scenarios
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND deleted_at IS NULL AND required_progress <= $4
    ORDER BY id";
const REQUIRED: &str = concat!(
    "SELECT s.npc, n.name, s.id, s.required_progress FROM ",
    rows!("$3"),
    " v CROSS JOIN scenarios s CROSS JOIN npcs n
      WHERE s.tenant = $1 AND s.world = $2 AND s.npc = ",
    key_of!("v", 0),
    " AND s.id = ",
    key_of!("v", 1),
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
const EMBED: &str = "UPDATE scenarios SET embedding_model = $6, embedding = $7
    WHERE tenant = $1 AND world = $2 AND npc = $3 AND id = $4 AND version = $5 AND deleted_at IS NULL";

fn scenario_from(columns: &mut Columns<'_>) -> StoreResult<Scenario> {
    Ok(Scenario {
        world: columns.id()?,
        npc: columns.id()?,
        id: columns.id()?,
        title: columns.next()?,
        content: columns.next()?,
        keywords: columns.json()?,
        synonyms: columns.json()?,
        required_progress: progress_from(columns)?,
        version: columns.number()?,
        updated_at: columns.time()?,
    })
}

fn progress_from(columns: &mut Columns<'_>) -> StoreResult<Progress> {
    let value: u32 = columns.number()?;
    Progress::try_from(value).map_err(crate::ports::StoreError::Corrupt)
}

fn read(row: &Row) -> StoreResult<Scenario> {
    scenario_from(&mut Columns::of(row))
}

fn read_unlocked(row: &Row) -> StoreResult<Unlocked> {
    let mut columns = Columns::of(row);
    Ok(Unlocked {
        scenario: scenario_from(&mut columns)?,
        embedding: Embedding {
            model: columns.next()?,
            vector: vector_from(columns.next()?)?,
        },
    })
}

fn read_titled(row: &Row) -> StoreResult<Titled> {
    let mut columns = Columns::of(row);
    Ok(Titled {
        id: columns.id()?,
        title: columns.next()?,
        required_progress: progress_from(&mut columns)?,
    })
}

async fn version(
    connection: &mut Connection,
    tenant: &TenantId,
    (world, npc, id): (&WorldId, &NpcId, &ScenarioId),
) -> StoreResult<Option<i64>> {
    sqlx::query_scalar(VERSION)
        .bind(tenant.as_str())
        .bind(world.as_str())
        .bind(npc.as_str())
        .bind(id.as_str())
        .fetch_optional(connection)
        .await
        .map_err(store_error)
}

async fn is_full(connection: &mut Connection, tenant: &TenantId, world: &WorldId, npc: &NpcId) -> StoreResult<bool> {
    let there: i64 = sqlx::query_scalar(HOW_MANY)
        .bind(tenant.as_str())
        .bind(world.as_str())
        .bind(npc.as_str())
        .fetch_one(connection)
        .await
        .map_err(store_error)?;
    Ok(there >= i64::from(MOST_OF_ONE_NPC))
}

/// The version that a put would write, or why it may not.
async fn next_version(
    connection: &mut Connection,
    tenant: &TenantId,
    it: &Scenario,
    if_version: Option<u32>,
) -> StoreResult<Result<u32, PutOutcome>> {
    let npc = authored::npc_version(connection, tenant, &it.world, &it.npc).await?;
    if npc.is_none() {
        return Ok(Err(PutOutcome::NoParent));
    }
    let stored = version(connection, tenant, (&it.world, &it.npc, &it.id)).await?;
    let next = authored::next_version(stored, if_version);
    if next.is_ok() && stored.is_none() && is_full(connection, tenant, &it.world, &it.npc).await? {
        return Ok(Err(PutOutcome::Full { most: MOST_OF_ONE_NPC }));
    }
    Ok(next)
}

impl SqlScenarioStore {
    /// What `statement` gives of an NPC's scenarios within a player's progress.
    async fn unlocked<T>(
        &self,
        statement: &'static str,
        scope: &TenantScope,
        (world, npc): (&WorldId, &NpcId),
        progress: Progress,
        read: fn(&Row) -> StoreResult<T>,
    ) -> StoreResult<Vec<T>> {
        let mut connection = self.0.read(scope).await?;
        let rows = sqlx::query(statement)
            .bind(scope.tenant().as_str())
            .bind(world.as_str())
            .bind(npc.as_str())
            .bind(i64::from(progress.get()))
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(read).collect()
    }
}

#[async_trait]
impl ScenarioStore for SqlScenarioStore {
    async fn put(
        &self,
        scope: &TenantScope,
        scenario: &Scenario,
        embedding: &Embedding,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        let (tenant, it, edit) = (scope.tenant().clone(), scenario.clone(), edit.clone());
        let (keywords, synonyms) = (json(&it.keywords)?, json(&it.synonyms)?);
        let (model, vector) = (embedding.model.clone(), vector_bytes(&embedding.vector));
        self.0
            .write(scope, move |connection| {
                Box::pin(async move {
                    lock(connection, &tenant, Lock::Authored(&it.world)).await?;
                    let version = match next_version(connection, &tenant, &it, if_version).await? {
                        Ok(version) => version,
                        Err(refused) => return Ok(refused),
                    };
                    sqlx::query(PUT)
                        .bind(tenant.as_str())
                        .bind(it.world.as_str())
                        .bind(it.npc.as_str())
                        .bind(it.id.as_str())
                        .bind(text(&it.title))
                        .bind(text(&it.content))
                        .bind(&keywords)
                        .bind(&synonyms)
                        .bind(i64::from(it.required_progress.get()))
                        .bind(text(&model))
                        .bind(&vector)
                        .bind(i64::from(version))
                        .bind(micros(it.updated_at))
                        .execute(&mut *connection)
                        .await
                        .map_err(store_error)?;
                    audit::record(connection, &tenant, &edit).await?;
                    Ok(authored::outcome(version))
                })
            })
            .await
    }
    async fn refusal(
        &self,
        scope: &TenantScope,
        scenario: &Scenario,
        if_version: Option<u32>,
    ) -> StoreResult<Option<PutOutcome>> {
        let mut connection = self.0.read(scope).await?;
        let next = next_version(&mut connection, scope.tenant(), scenario, if_version).await?;
        Ok(next.err())
    }
    async fn get(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        id: &ScenarioId,
    ) -> StoreResult<Option<Scenario>> {
        let mut connection = self.0.read(scope).await?;
        let row = sqlx::query(GET)
            .bind(scope.tenant().as_str())
            .bind(world.as_str())
            .bind(npc.as_str())
            .bind(id.as_str())
            .fetch_optional(&mut *connection)
            .await
            .map_err(store_error)?;
        row.as_ref().map(read).transpose()
    }
    async fn list(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        page: &PageRequest,
    ) -> StoreResult<Page<Scenario>> {
        let query = sqlx::query(LIST)
            .bind(scope.tenant().as_str())
            .bind(world.as_str())
            .bind(npc.as_str())
            .bind(page.after.as_deref().map(text))
            .bind(rows_of(page));
        list(&self.0, scope, query, page, read, |scenario| scenario.id.to_string()).await
    }
    async fn delete(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        id: &ScenarioId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome> {
        let (tenant, edit) = (scope.tenant().clone(), edit.clone());
        let (world, npc, id) = (world.clone(), npc.clone(), id.clone());
        self.0
            .write(scope, move |connection| {
                Box::pin(async move {
                    lock(connection, &tenant, Lock::Authored(&world)).await?;
                    let stored = version(connection, &tenant, (&world, &npc, &id)).await?;
                    if let Some(refused) = authored::not_deleted(stored, if_version) {
                        return Ok(refused);
                    }
                    sqlx::query(HIDE)
                        .bind(tenant.as_str())
                        .bind(world.as_str())
                        .bind(npc.as_str())
                        .bind(id.as_str())
                        .bind(micros(edit.at))
                        .execute(&mut *connection)
                        .await
                        .map_err(store_error)?;
                    audit::record(connection, &tenant, &edit).await?;
                    Ok(DeleteOutcome::Deleted)
                })
            })
            .await
    }
    async fn within(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        progress: Progress,
    ) -> StoreResult<Vec<Unlocked>> {
        self.unlocked(WITHIN, scope, (world, npc), progress, read_unlocked)
            .await
    }
    async fn titles(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        progress: Progress,
    ) -> StoreResult<Vec<Titled>> {
        self.unlocked(TITLES, scope, (world, npc), progress, read_titled).await
    }
    async fn required(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        asked: &[(NpcId, ScenarioId)],
    ) -> StoreResult<Vec<Required>> {
        let mut connection = self.0.read(scope).await?;
        let rows = sqlx::query(REQUIRED)
            .bind(scope.tenant().as_str())
            .bind(world.as_str())
            .bind(json(asked)?)
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        let required = |row: &Row| {
            let columns = &mut Columns::of(row);
            Ok(Required {
                npc: columns.id()?,
                npc_name: columns.next()?,
                scenario: columns.id()?,
                progress: progress_from(columns)?,
            })
        };
        rows.iter().map(required).collect()
    }
    async fn unembedded(&self, scope: &TenantScope, model: &str, limit: u32) -> StoreResult<Vec<Scenario>> {
        let mut connection = self.0.read(scope).await?;
        let rows = sqlx::query(UNEMBEDDED)
            .bind(scope.tenant().as_str())
            .bind(text(model))
            .bind(i64::from(limit))
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(read).collect()
    }
    async fn embed(&self, scope: &TenantScope, scenario: &Scenario, embedding: &Embedding) -> StoreResult<()> {
        let (tenant, it) = (scope.tenant().clone(), scenario.clone());
        let (model, vector) = (embedding.model.clone(), vector_bytes(&embedding.vector));
        self.0
            .write(scope, move |connection| {
                Box::pin(async move {
                    sqlx::query(EMBED)
                        .bind(tenant.as_str())
                        .bind(it.world.as_str())
                        .bind(it.npc.as_str())
                        .bind(it.id.as_str())
                        .bind(i64::from(it.version))
                        .bind(text(&model))
                        .bind(&vector)
                        .execute(connection)
                        .await
                        .map(drop)
                        .map_err(store_error)
                })
            })
            .await
    }
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::plan;

        #[tokio::test]
        async fn what_is_unlocked_is_read_off_the_scenarios_of_its_npc() {
            for statement in [WITHIN, TITLES] {
                let plan = plan(statement).await;
                assert!(plan.contains("sqlite_autoindex_scenarios_1 (tenant=? AND world=? AND npc=?)"), "{plan}");
            }
        }
    }
}
