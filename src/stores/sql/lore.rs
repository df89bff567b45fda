//! The lore of worlds.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use super::{
    audit,
    authored_resource::{
        AuthoredResource, ResourceEdit, ResourceKey, check_put, delete_resource, put_resource, raise_lore_version,
        stored_version,
    },
    authored_size::Growth,
    context::{Connection, Engine, acquire_lock},
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, ReadRow, to_json, to_micros, vector_from_bytes, vector_to_bytes, without_nul},
    scope::LedgerLock,
    statements::{execute, fetch_scalar},
};
use colloquy_core::{
    ids::{LoreId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::World,
    condition::Condition,
    disclosure::secrecy::Tell,
    lore::{LoreEntry, MAX_LORE_PER_WORLD},
};
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    ledger::{
        audit::Edit,
        authored::{DeleteOutcome, PutOutcome},
        lore::{EmbeddedLore, ImportOutcome, LoreStore, WorldLore},
        scenarios::Embedding,
    },
};

pub(super) struct SqlLoreStore(pub(super) Arc<Engine>);

/// The columns of [`read_entry`].
macro_rules! lore_columns {
    () => {
        "world, id, body, version, updated_at"
    };
}

const LORE_VERSION_OF_WORLD: &str = "SELECT lore_version FROM worlds WHERE tenant = $1 AND id = $2";
const COUNT_ENTRIES: &str = "SELECT COUNT(*) FROM lore WHERE tenant = $1 AND world = $2 AND deleted_at IS NULL";
const UPSERT_ENTRY: &str = "INSERT INTO lore (tenant, world, id, body, embedding_model, embedding, version, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (tenant, world, id) DO UPDATE SET body = excluded.body, embedding_model = excluded.embedding_model,
        embedding = excluded.embedding, version = excluded.version, updated_at = excluded.updated_at, deleted_at = NULL";
const ENTRY_BY_ID: &str = concat!(
    "SELECT ",
    lore_columns!(),
    " FROM lore WHERE tenant = $1 AND world = $2 AND id = $3 AND deleted_at IS NULL"
);
const LIST_ENTRIES: &str = concat!(
    "SELECT ",
    lore_columns!(),
    " FROM lore WHERE tenant = $1 AND world = $2 AND deleted_at IS NULL AND ($3 IS NULL OR id > $3)
      ORDER BY id LIMIT $4"
);
const ALL_ENTRIES: &str = concat!(
    "SELECT ",
    lore_columns!(),
    ", embedding_model, embedding FROM lore WHERE tenant = $1 AND world = $2 AND deleted_at IS NULL ORDER BY id"
);
const CONDITIONS_OF_SCENARIOS: &str = "SELECT conditions, tell FROM scenarios
    WHERE tenant = $1 AND world = $2 AND deleted_at IS NULL AND (conditions <> '[]' OR tell IS NOT NULL)";
const DELETE_ENTRY: &str = "DELETE FROM lore WHERE tenant = $1 AND world = $2 AND id = $3";
const UNEMBEDDED: &str = concat!(
    "SELECT ",
    lore_columns!(),
    " FROM lore WHERE tenant = $1 AND deleted_at IS NULL AND embedding_model <> $2 ORDER BY world, id LIMIT $3"
);
const STORE_EMBEDDING: &str = "UPDATE lore SET embedding_model = $5, embedding = $6
    WHERE tenant = $1 AND world = $2 AND id = $3 AND version = $4 AND deleted_at IS NULL";

fn read_entry(columns: &mut Columns<'_>) -> StoreResult<LoreEntry> {
    Ok(LoreEntry {
        world: columns.id()?,
        id: columns.id()?,
        text: columns.json()?,
        version: columns.number()?,
        updated_at: columns.time()?,
    })
}

fn read_embedded(columns: &mut Columns<'_>) -> StoreResult<EmbeddedLore> {
    Ok(EmbeddedLore {
        entry: read_entry(columns)?,
        embedding: Embedding {
            model: columns.next()?,
            vector: vector_from_bytes(columns.next()?)?,
        },
    })
}

async fn count_entries(connection: &mut Connection, tenant: &TenantId, world: &WorldId) -> StoreResult<i64> {
    fetch_scalar!(connection, COUNT_ENTRIES; tenant, world).await
}

impl AuthoredResource for EmbeddedLore {
    const VERSION: &'static str =
        "SELECT version FROM lore WHERE tenant = $1 AND world = $2 AND id = $3 AND deleted_at IS NULL";
    const PARENT_VERSION: Option<&'static str> = Some(World::VERSION);
    const LIMIT: Option<(&'static str, u32)> = Some((COUNT_ENTRIES, MAX_LORE_PER_WORLD));

    fn key(&self) -> ResourceKey {
        ResourceKey::new(&self.entry.world, [self.entry.id.as_str()])
    }
    async fn write(&self, put: &mut ResourceEdit<'_>, version: u32) -> StoreResult<()> {
        write_entry(put.connection, put.tenant, self, version).await?;
        put.raise_lore_version().await
    }
    async fn delete(deletion: &mut ResourceEdit<'_>) -> StoreResult<()> {
        deletion.execute(DELETE_ENTRY).await?;
        deletion.raise_lore_version().await
    }
}

async fn write_entry(
    connection: &mut Connection,
    tenant: &TenantId,
    lore: &EmbeddedLore,
    version: u32,
) -> StoreResult<()> {
    let EmbeddedLore { entry, embedding } = lore;
    execute!(
        connection, UPSERT_ENTRY;
        tenant, entry.world, entry.id, to_json(&entry.text)?, without_nul(&embedding.model),
        vector_to_bytes(&embedding.vector), i64::from(version), to_micros(entry.updated_at)
    )
    .await
    .map(drop)
}

#[async_trait]
impl LoreStore for SqlLoreStore {
    async fn put_lore(
        &self,
        scope: &TenantScope,
        lore: &EmbeddedLore,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        put_resource(&self.0, scope, lore.clone(), if_version, edit).await
    }
    async fn check_put(
        &self,
        scope: &TenantScope,
        entry: &LoreEntry,
        if_version: Option<u32>,
    ) -> StoreResult<Option<PutOutcome>> {
        let key = ResourceKey::new(&entry.world, [entry.id.as_str()]);
        check_put::<EmbeddedLore>(&self.0, scope, &key, if_version).await
    }
    async fn import_lore(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        entries: &[EmbeddedLore],
        edit: &Edit,
    ) -> StoreResult<ImportOutcome> {
        let tenant = scope.tenant().clone();
        let world = world.clone();
        let entries = entries.to_vec();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Authored(&world)).await?;
            let stored_world = stored_version(connection, bind!(World::VERSION; tenant, world)).await?;
            if stored_world.is_none() {
                return Ok(ImportOutcome::NoParent);
            }
            let mut versions = Vec::with_capacity(entries.len());
            for lore in &entries {
                let query = bind!(EmbeddedLore::VERSION; tenant, world, lore.entry.id);
                let stored = stored_version(connection, query).await?;
                versions.push(stored.and_then(|version| u32::try_from(version).ok()).unwrap_or(0));
            }
            let new_count = versions.iter().filter(|version| **version == 0).count();
            let created = count_of(new_count);
            let updated = count_of(entries.len() - new_count);
            if count_entries(connection, &tenant, &world).await? + i64::from(created) > i64::from(MAX_LORE_PER_WORLD) {
                return Ok(ImportOutcome::Full {
                    most: MAX_LORE_PER_WORLD,
                });
            }
            let growth = Growth::begin(connection, &tenant, edit.limits).await?;
            for (lore, version) in entries.iter().zip(versions) {
                write_entry(connection, &tenant, lore, version + 1).await?;
            }
            Growth::check(growth, connection, &tenant).await?;
            raise_lore_version(connection, &tenant, &world).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(ImportOutcome::Written { created, updated })
        })
        .await
    }
    async fn load_lore(&self, scope: &TenantScope, world: &WorldId, id: &LoreId) -> StoreResult<Option<LoreEntry>> {
        let query = bind!(ENTRY_BY_ID; scope.tenant(), world, id);
        self.0.fetch_optional(scope, query, read_entry).await
    }
    async fn list_lore(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        page: &PageRequest,
    ) -> StoreResult<Page<LoreEntry>> {
        let query = bind!(LIST_ENTRIES; scope.tenant(), world, page_cursor(page), page_row_limit(page));
        fetch_page(&self.0, scope, query, page, read_entry, |entry| entry.id.to_string()).await
    }
    async fn load_world_lore(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<WorldLore> {
        // The version first: entries may be newer than the version, but not older.
        let query = bind!(LORE_VERSION_OF_WORLD; scope.tenant(), world);
        let version = self
            .0
            .fetch_optional(scope, query, |columns| columns.number::<u32>())
            .await?;
        let query = bind!(CONDITIONS_OF_SCENARIOS; scope.tenant(), world);
        let read_row: ReadRow<Vec<Condition>> = |columns| {
            let mut conditions: Vec<Condition> = columns.json()?;
            conditions.extend(columns.maybe_json::<Tell>()?.into_iter().flat_map(|tell| tell.when));
            Ok(conditions)
        };
        let conditions = self.0.fetch_all(scope, query, read_row).await?;
        let query = bind!(ALL_ENTRIES; scope.tenant(), world);
        Ok(WorldLore {
            version: version.unwrap_or(0),
            conditions_of_scenarios: conditions.into_iter().flatten().collect(),
            entries: self.0.fetch_all(scope, query, read_embedded).await?,
        })
    }
    async fn delete_lore(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        id: &LoreId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome> {
        let key = ResourceKey::new(world, [id.as_str()]);
        delete_resource::<EmbeddedLore>(&self.0, scope, key, if_version, edit).await
    }
    async fn list_unembedded(&self, scope: &TenantScope, model: &str, limit: u32) -> StoreResult<Vec<LoreEntry>> {
        let query = bind!(UNEMBEDDED; scope.tenant(), without_nul(model), i64::from(limit));
        self.0.fetch_all(scope, query, read_entry).await
    }
    async fn store_embeddings(&self, scope: &TenantScope, entries: &[EmbeddedLore]) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        let entries = entries.to_vec();
        let worlds: BTreeSet<WorldId> = entries.iter().map(|lore| lore.entry.world.clone()).collect();
        write_transaction!(self.0, scope, |connection| {
            for world in &worlds {
                acquire_lock(connection, &tenant, LedgerLock::Authored(world)).await?;
            }
            for EmbeddedLore { entry, embedding } in &entries {
                execute!(
                    connection, STORE_EMBEDDING;
                    tenant, entry.world, entry.id, i64::from(entry.version), without_nul(&embedding.model),
                    vector_to_bytes(&embedding.vector)
                )
                .await?;
            }
            for world in &worlds {
                raise_lore_version(connection, &tenant, world).await?;
            }
            Ok(())
        })
        .await
    }
}

fn count_of(entries: usize) -> u32 {
    u32::try_from(entries).unwrap_or(u32::MAX)
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::plan;

        #[tokio::test]
        async fn lore_of_a_world_is_read_by_world() {
            for statement in [ALL_ENTRIES, LIST_ENTRIES, COUNT_ENTRIES] {
                let plan = plan(statement).await;
                assert!(plan.contains("sqlite_autoindex_lore_1 (tenant=? AND world=?"), "{plan}");
            }
            let plan = plan(CONDITIONS_OF_SCENARIOS).await;
            assert!(plan.contains("sqlite_autoindex_scenarios_1 (tenant=? AND world=?"), "{plan}");
        }
    }
}
