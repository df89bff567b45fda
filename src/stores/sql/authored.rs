//! Authored worlds and NPCs.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    audit,
    authored_resource::{
        AuthoredResource, ResourceEdit, ResourceKey, compare_version, delete_resource, put_outcome, put_resource,
        stored_version,
    },
    context::{Engine, acquire_lock},
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, ReadRow, to_json, to_micros, without_nul},
    scope::LedgerLock,
    state,
    statements::{execute, fetch_all},
    webhooks::events::{Event, end_event, write_events},
};
use colloquy_core::{
    ids::{NpcId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Language, Npc, TenantTier, TierSettings, World},
    chat_models::{ChatModel, ChatModels},
};
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    ledger::{
        audit::Edit,
        authored::{AuthoredStore, DeleteOutcome, NpcName, PutOutcome},
    },
};

pub(super) struct SqlAuthoredStore(pub(super) Arc<Engine>);

/// The columns of [`read_world`], for the table alias `w`.
macro_rules! world_columns {
    () => {
        "w.id, w.lore_version, w.version, w.updated_at,
            COALESCE((SELECT x.version FROM tenant_settings x WHERE x.tenant = w.tenant), 0),
            w.name, w.premise, w.language, w.rules, w.settings,
            (SELECT x.settings FROM tenant_settings x WHERE x.tenant = w.tenant)"
    };
}
/// The columns of [`read_npc`], for the table alias `n`.
macro_rules! npc_columns {
    () => {
        "n.world, n.id, n.name, n.persona, n.language, n.factions, n.model, n.settings,
            EXISTS (SELECT 1 FROM scenarios s WHERE s.tenant = n.tenant AND s.world = n.world AND s.npc = n.id
                AND s.deleted_at IS NULL),
            EXISTS (SELECT 1 FROM scenarios s WHERE s.tenant = n.tenant AND s.world = n.world AND s.npc = n.id
                AND s.deleted_at IS NULL AND s.tell IS NOT NULL),
            n.version, n.updated_at"
    };
}
pub(super) use {npc_columns, world_columns};

const TENANT_SETTINGS: &str = "SELECT version, settings FROM tenant_settings WHERE tenant = $1";
const UPSERT_TENANT_SETTINGS: &str = "INSERT INTO tenant_settings (tenant, settings, version, updated_at)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (tenant) DO UPDATE SET settings = excluded.settings, version = excluded.version,
        updated_at = excluded.updated_at";
const CHAT_MODELS: &str = "SELECT version, models FROM chat_models WHERE tenant = $1";
const UPSERT_CHAT_MODELS: &str = "INSERT INTO chat_models (tenant, models, version, updated_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (tenant) DO UPDATE SET models = excluded.models, version = excluded.version,
        updated_at = excluded.updated_at";
const PUT_WORLD: &str = "INSERT INTO worlds (tenant, id, name, premise, language, rules, settings, version, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (tenant, id) DO UPDATE SET name = excluded.name, premise = excluded.premise,
        language = excluded.language, rules = excluded.rules, settings = excluded.settings,
        version = excluded.version, updated_at = excluded.updated_at, deleted_at = NULL";
const WORLD_BY_ID: &str = concat!(
    "SELECT ",
    world_columns!(),
    " FROM worlds w WHERE w.tenant = $1 AND w.id = $2 AND w.deleted_at IS NULL"
);
const LIST_WORLDS: &str = concat!(
    "SELECT ",
    world_columns!(),
    " FROM worlds w
      WHERE w.tenant = $1 AND w.deleted_at IS NULL AND ($2 IS NULL OR w.id > $2) ORDER BY w.id LIMIT $3"
);
const HIDE_WORLD: &str = "UPDATE worlds SET deleted_at = $3 WHERE tenant = $1 AND id = $2 AND deleted_at IS NULL";
const DELETE_SCENARIOS: &str = "DELETE FROM scenarios WHERE tenant = $1 AND world = $2";
const DELETE_LORE: &str = "DELETE FROM lore WHERE tenant = $1 AND world = $2";
const DELETE_DIRECTIVES: &str = "DELETE FROM directives WHERE tenant = $1 AND world = $2";
const HIDE_NPCS: &str = "UPDATE npcs SET deleted_at = $3 WHERE tenant = $1 AND world = $2 AND deleted_at IS NULL";
const CLOSE_DIALOGUES_OF_WORLD: &str = "UPDATE dialogues SET status = 'closed', updated_at = $3
    WHERE tenant = $1 AND world = $2 AND status = 'open' RETURNING id";

const PUT_NPC: &str = "INSERT INTO npcs
        (tenant, world, id, name, persona, language, factions, model, settings, version, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (tenant, world, id) DO UPDATE SET name = excluded.name, persona = excluded.persona,
        language = excluded.language, factions = excluded.factions, model = excluded.model,
        settings = excluded.settings, version = excluded.version, updated_at = excluded.updated_at, deleted_at = NULL";
const NPC_BY_ID: &str = concat!(
    "SELECT ",
    npc_columns!(),
    " FROM npcs n WHERE n.tenant = $1 AND n.world = $2 AND n.id = $3 AND n.deleted_at IS NULL"
);
const LIST_NPCS: &str = concat!(
    "SELECT ",
    npc_columns!(),
    " FROM npcs n WHERE n.tenant = $1 AND n.world = $2 AND n.deleted_at IS NULL AND ($3 IS NULL OR n.id > $3)
      ORDER BY n.id LIMIT $4"
);
const NPCS_NAMED: &str = concat!(
    "SELECT DISTINCT n.id, n.name
     FROM npcs n CROSS JOIN ",
    json_texts_table!("$3"),
    " v WHERE n.tenant = $1 AND n.world = $2 AND n.deleted_at IS NULL
       AND (lower(n.name) = lower(v.value) OR lower(n.id) = lower(v.value))
     ORDER BY n.id"
);
const HIDE_NPC: &str = "UPDATE npcs SET deleted_at = $4
    WHERE tenant = $1 AND world = $2 AND id = $3 AND deleted_at IS NULL";
const DELETE_SCENARIOS_OF_NPC: &str = "DELETE FROM scenarios WHERE tenant = $1 AND world = $2 AND npc = $3";
const CLOSE_DIALOGUES_OF_NPC: &str = "UPDATE dialogues SET status = 'closed', updated_at = $4
    WHERE tenant = $1 AND status = 'open' AND id IN (
        SELECT dialogue FROM participants WHERE tenant = $1 AND world = $2 AND npc = $3 AND part = 'speaker')
    RETURNING id";

fn read_language(columns: &mut Columns<'_>) -> StoreResult<Language> {
    columns.named([Language::En, Language::Ko], Language::as_str)
}

/// Worlds by tenant and id.
pub(super) type KnownWorlds = moka::sync::Cache<(TenantId, WorldId), Arc<World>>;
/// The number of worlds that this node remembers for its jobs.
pub(super) const MAX_KNOWN_WORLDS: u64 = 1_000;
/// The columns of a world after its versions.
const WORLD_BODY_COLUMNS: usize = 6;

pub(super) fn read_world(columns: &mut Columns<'_>) -> StoreResult<World> {
    let head = WorldHead::read(columns)?;
    head.read_body(columns)
}

/// Reads a world. Settings can be long: an unchanged world is not parsed again.
pub(super) fn read_known_world(
    columns: &mut Columns<'_>,
    tenant: &TenantId,
    known_worlds: &KnownWorlds,
) -> StoreResult<Arc<World>> {
    let head = WorldHead::read(columns)?;
    let key = (tenant.clone(), head.id.clone());
    if let Some(world) = known_worlds.get(&key).filter(|world| head.is_of(world)) {
        columns.skip(WORLD_BODY_COLUMNS);
        return Ok(world);
    }
    let world = Arc::new(head.read_body(columns)?);
    known_worlds.insert(key, Arc::clone(&world));
    Ok(world)
}

/// The id of a world, and what changes with every edit.
struct WorldHead {
    id: WorldId,
    lore_version: u32,
    version: u32,
    updated_at: DateTime<Utc>,
    tenant_version: u32,
}

impl WorldHead {
    fn read(columns: &mut Columns<'_>) -> StoreResult<Self> {
        Ok(Self {
            id: columns.id()?,
            lore_version: columns.number()?,
            version: columns.number()?,
            updated_at: columns.time()?,
            tenant_version: columns.number()?,
        })
    }

    fn is_of(&self, world: &World) -> bool {
        (self.lore_version, self.version, self.updated_at, self.tenant_version)
            == (
                world.lore_version,
                world.version,
                world.updated_at,
                world.tenant.version,
            )
    }

    fn read_body(self, columns: &mut Columns<'_>) -> StoreResult<World> {
        Ok(World {
            id: self.id,
            name: columns.next()?,
            premise: columns.next()?,
            language: read_language(columns)?,
            rules: columns.json()?,
            settings: columns.json()?,
            tenant: TenantTier {
                settings: columns.maybe_json()?.unwrap_or_default(),
                version: self.tenant_version,
            },
            lore_version: self.lore_version,
            version: self.version,
            updated_at: self.updated_at,
        })
    }
}

pub(super) fn read_npc(columns: &mut Columns<'_>) -> StoreResult<Npc> {
    Ok(Npc {
        world: columns.id()?,
        id: columns.id()?,
        name: columns.next()?,
        persona: columns.json()?,
        language: read_language(columns)?,
        factions: columns.json()?,
        model: columns.next()?,
        settings: columns.json()?,
        has_scenarios: columns.next()?,
        has_tells: columns.next()?,
        version: columns.number()?,
        updated_at: columns.time()?,
    })
}

impl AuthoredResource for World {
    const VERSION: &'static str = "SELECT version FROM worlds WHERE tenant = $1 AND id = $2 AND deleted_at IS NULL";
    const PARENT_VERSION: Option<&'static str> = None;

    fn key(&self) -> ResourceKey {
        ResourceKey::new(&self.id, [])
    }
    async fn prepare_write(&self, put: &mut ResourceEdit<'_>) -> StoreResult<()> {
        if self.settings.clock.is_some() {
            // All named locks come before the lock of the tenant's size.
            acquire_lock(put.connection, put.tenant, LedgerLock::State(&self.id)).await?;
        }
        Ok(())
    }
    async fn write(&self, put: &mut ResourceEdit<'_>, version: u32) -> StoreResult<()> {
        execute!(
            put.connection, PUT_WORLD;
            put.tenant, self.id, without_nul(&self.name), without_nul(&self.premise), self.language.as_str(),
            to_json(&self.rules)?, to_json(&self.settings)?, i64::from(version), to_micros(self.updated_at)
        )
        .await?;
        match &self.settings.clock {
            Some(clock) => state::update_clock(put.connection, put.tenant, &self.id, clock, put.edit).await,
            None => Ok(()),
        }
    }
    async fn delete(deletion: &mut ResourceEdit<'_>) -> StoreResult<()> {
        // Dialogues before their world, the same lock order as in a rewind.
        close_dialogues(deletion, CLOSE_DIALOGUES_OF_WORLD, "world_deleted").await?;
        for statement in [HIDE_NPCS, HIDE_WORLD] {
            hide(deletion, statement).await?;
        }
        for statement in [DELETE_SCENARIOS, DELETE_LORE, DELETE_DIRECTIVES] {
            deletion.execute(statement).await?;
        }
        deletion.raise_lore_version().await
    }
}

impl AuthoredResource for Npc {
    const VERSION: &'static str =
        "SELECT version FROM npcs WHERE tenant = $1 AND world = $2 AND id = $3 AND deleted_at IS NULL";
    const PARENT_VERSION: Option<&'static str> = Some(World::VERSION);

    fn key(&self) -> ResourceKey {
        ResourceKey::new(&self.world, [self.id.as_str()])
    }
    async fn write(&self, put: &mut ResourceEdit<'_>, version: u32) -> StoreResult<()> {
        execute!(
            put.connection, PUT_NPC;
            put.tenant, self.world, self.id, without_nul(&self.name), to_json(&self.persona)?, self.language.as_str(),
            to_json(&self.factions)?, self.model.as_deref().map(without_nul), to_json(&self.settings)?,
            i64::from(version), to_micros(self.updated_at)
        )
        .await
        .map(drop)
    }
    async fn delete(deletion: &mut ResourceEdit<'_>) -> StoreResult<()> {
        hide(deletion, HIDE_NPC).await?;
        close_dialogues(deletion, CLOSE_DIALOGUES_OF_NPC, "npc_deleted").await?;
        deletion.execute(DELETE_SCENARIOS_OF_NPC).await?;
        deletion.raise_lore_version().await
    }
}

/// Hides rows from the time of the deletion on.
async fn hide(deletion: &mut ResourceEdit<'_>, statement: &'static str) -> StoreResult<()> {
    let query = deletion
        .key
        .bind(statement, deletion.tenant)
        .bind(to_micros(deletion.edit.made_at));
    execute(deletion.connection, query).await.map(drop)
}

/// Closes dialogues, and tells webhooks of their ends.
async fn close_dialogues(
    deletion: &mut ResourceEdit<'_>,
    statement: &'static str,
    reason: &'static str,
) -> StoreResult<()> {
    let closed_at = deletion.edit.made_at;
    let query = deletion.key.bind(statement, deletion.tenant).bind(to_micros(closed_at));
    let rows = fetch_all(deletion.connection, query).await?;
    let closed = Columns::read_rows(&rows, |columns| columns.id())?;
    let events: Vec<Event> = closed.into_iter().map(|id| end_event(id, reason, closed_at)).collect();
    write_events(deletion.connection, deletion.tenant, &events).await
}

/// Writes the one row of a tenant, with statements that read its version and write it.
async fn put_of_tenant(
    engine: &Engine,
    scope: &TenantScope,
    (select, upsert): (&'static str, &'static str),
    json: String,
    if_version: Option<u32>,
    edit: &Edit,
) -> StoreResult<PutOutcome> {
    let tenant = scope.tenant().clone();
    let edit = edit.clone();
    write_transaction!(engine, scope, |connection| {
        acquire_lock(connection, &tenant, LedgerLock::TenantSettings).await?;
        let stored = stored_version(connection, bind!(select; tenant)).await?;
        let version = match compare_version(stored, if_version) {
            Ok(version) => version,
            Err(refused) => return Ok(refused),
        };
        execute!(connection, upsert; tenant, json, i64::from(version), to_micros(edit.made_at)).await?;
        audit::record_audit(connection, &tenant, &edit).await?;
        Ok(put_outcome(version))
    })
    .await
}

#[async_trait]
impl AuthoredStore for SqlAuthoredStore {
    async fn put_world(
        &self,
        scope: &TenantScope,
        world: &World,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        put_resource(&self.0, scope, world.clone(), if_version, edit).await
    }
    async fn load_world(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<Option<World>> {
        let query = bind!(WORLD_BY_ID; scope.tenant(), world);
        self.0.fetch_optional(scope, query, read_world).await
    }
    async fn list_worlds(&self, scope: &TenantScope, page: &PageRequest) -> StoreResult<Page<World>> {
        let query = bind!(LIST_WORLDS; scope.tenant(), page_cursor(page), page_row_limit(page));
        fetch_page(&self.0, scope, query, page, read_world, |world| world.id.to_string()).await
    }
    async fn delete_world(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome> {
        delete_resource::<World>(&self.0, scope, ResourceKey::new(world, []), if_version, edit).await
    }

    async fn load_tenant_tier(&self, scope: &TenantScope) -> StoreResult<TenantTier> {
        let query = bind!(TENANT_SETTINGS; scope.tenant());
        let read_row: ReadRow<TenantTier> = |columns| {
            Ok(TenantTier {
                version: columns.number()?,
                settings: columns.json()?,
            })
        };
        Ok(self.0.fetch_optional(scope, query, read_row).await?.unwrap_or_default())
    }
    async fn put_tenant_settings(
        &self,
        scope: &TenantScope,
        settings: &TierSettings,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        let statements = (TENANT_SETTINGS, UPSERT_TENANT_SETTINGS);
        put_of_tenant(&self.0, scope, statements, to_json(settings)?, if_version, edit).await
    }

    async fn load_chat_models(&self, scope: &TenantScope) -> StoreResult<ChatModels> {
        let query = bind!(CHAT_MODELS; scope.tenant());
        let read_row: ReadRow<ChatModels> = |columns| {
            Ok(ChatModels {
                version: columns.number()?,
                models: columns.json()?,
            })
        };
        Ok(self.0.fetch_optional(scope, query, read_row).await?.unwrap_or_default())
    }
    async fn put_chat_models(
        &self,
        scope: &TenantScope,
        models: &[ChatModel],
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        let statements = (CHAT_MODELS, UPSERT_CHAT_MODELS);
        put_of_tenant(&self.0, scope, statements, to_json(models)?, if_version, edit).await
    }

    async fn put_npc(
        &self,
        scope: &TenantScope,
        npc: &Npc,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        put_resource(&self.0, scope, npc.clone(), if_version, edit).await
    }
    async fn load_npc(&self, scope: &TenantScope, world: &WorldId, npc: &NpcId) -> StoreResult<Option<Npc>> {
        let query = bind!(NPC_BY_ID; scope.tenant(), world, npc);
        self.0.fetch_optional(scope, query, read_npc).await
    }
    async fn list_npcs(&self, scope: &TenantScope, world: &WorldId, page: &PageRequest) -> StoreResult<Page<Npc>> {
        let query = bind!(LIST_NPCS; scope.tenant(), world, page_cursor(page), page_row_limit(page));
        fetch_page(&self.0, scope, query, page, read_npc, |npc| npc.id.to_string()).await
    }
    async fn find_npc_names(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        names: &[String],
    ) -> StoreResult<Vec<NpcName>> {
        let query = bind!(NPCS_NAMED; scope.tenant(), world, to_json(names)?);
        let read_name = |columns: &mut Columns<'_>| {
            Ok(NpcName {
                id: columns.id()?,
                name: columns.next()?,
            })
        };
        self.0.fetch_all(scope, query, read_name).await
    }
    async fn delete_npc(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome> {
        let key = ResourceKey::new(world, [npc.as_str()]);
        delete_resource::<Npc>(&self.0, scope, key, if_version, edit).await
    }
}
