//! Authored worlds and NPCs.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    audit,
    authored_size::Growth,
    context::{Connection, Engine, Row, acquire_lock},
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, ReadRow, to_json, to_micros, without_nul},
    scope::LedgerLock,
    state,
    statements::{execute, fetch_all, fetch_optional},
    webhooks::events::{Event, end_event, write_events},
};
use colloquy_core::{
    ids::{NpcId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Language, Npc, TenantTier, World, WorldSettings},
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
const WORLD_VERSION: &str = "SELECT version FROM worlds WHERE tenant = $1 AND id = $2 AND deleted_at IS NULL";
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
const RAISE_LORE_VERSION: &str = "UPDATE worlds SET lore_version = lore_version + 1 WHERE tenant = $1 AND id = $2";
const DELETE_DIRECTIVES: &str = "DELETE FROM directives WHERE tenant = $1 AND world = $2";
const HIDE_NPCS: &str = "UPDATE npcs SET deleted_at = $3 WHERE tenant = $1 AND world = $2 AND deleted_at IS NULL";
const CLOSE_DIALOGUES_OF_WORLD: &str = "UPDATE dialogues SET status = 'closed', updated_at = $3
    WHERE tenant = $1 AND world = $2 AND status = 'open' RETURNING id";

const NPC_VERSION: &str = "SELECT version FROM npcs
    WHERE tenant = $1 AND world = $2 AND id = $3 AND deleted_at IS NULL";
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

/// Compares a put with the stored version: `Ok` is the version to write.
pub(super) fn next_version(stored: Option<i64>, if_version: Option<u32>) -> Result<u32, PutOutcome> {
    let stored = stored.and_then(|version| u32::try_from(version).ok()).unwrap_or(0);
    match if_version {
        Some(wanted) if wanted != stored => Err(PutOutcome::VersionMismatch { stored }),
        _ => Ok(stored + 1),
    }
}

pub(super) fn put_outcome(version: u32) -> PutOutcome {
    if version == 1 {
        PutOutcome::Created
    } else {
        PutOutcome::Updated { version }
    }
}

/// Tells all nodes that the lore in their memory is old.
pub(super) async fn raise_lore_version(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
) -> StoreResult<()> {
    execute!(connection, RAISE_LORE_VERSION; tenant, world).await.map(drop)
}

pub(super) async fn world_version(
    connection: &mut Connection,
    tenant: &TenantId,
    id: &WorldId,
) -> StoreResult<Option<i64>> {
    let row = fetch_optional!(connection, WORLD_VERSION; tenant, id).await?;
    row.map(|row| Columns::new(&row).next()).transpose()
}

pub(super) async fn npc_version(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    id: &NpcId,
) -> StoreResult<Option<i64>> {
    let row = fetch_optional!(connection, NPC_VERSION; tenant, world, id).await?;
    row.map(|row| Columns::new(&row).next()).transpose()
}

/// Returns why the stored version may not be deleted, or `None` if the delete may proceed.
pub(super) fn delete_rejection(stored: Option<i64>, if_version: Option<u32>) -> Option<DeleteOutcome> {
    let Some(stored) = stored.and_then(|version| u32::try_from(version).ok()) else {
        return Some(DeleteOutcome::NotFound);
    };
    let other = if_version.is_some_and(|expected| expected != stored);
    other.then_some(DeleteOutcome::VersionMismatch { stored })
}

/// Tells webhooks of dialogues that an edit closed.
async fn write_ends(
    connection: &mut Connection,
    tenant: &TenantId,
    closed: &[Row],
    reason: &'static str,
    edit: &Edit,
) -> StoreResult<()> {
    let closed = Columns::read_rows(closed, |columns| columns.id())?;
    let events: Vec<Event> = closed
        .into_iter()
        .map(|id| end_event(id, reason, edit.made_at))
        .collect();
    write_events(connection, tenant, &events).await
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
        let tenant = scope.tenant().clone();
        let world = world.clone();
        let edit = edit.clone();
        let rules = to_json(&world.rules)?;
        let settings = to_json(&world.settings)?;
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Authored(&world.id)).await?;
            let stored = world_version(connection, &tenant, &world.id).await?;
            let version = match next_version(stored, if_version) {
                Ok(version) => version,
                Err(refused) => return Ok(refused),
            };
            if world.settings.clock.is_some() {
                // All named locks come before the lock of the tenant's size.
                acquire_lock(connection, &tenant, LedgerLock::State(&world.id)).await?;
            }
            let growth = Growth::begin(connection, &tenant, edit.limits).await?;
            execute!(
                connection, PUT_WORLD;
                tenant, world.id, without_nul(&world.name), without_nul(&world.premise), world.language.as_str(), rules,
                settings, i64::from(version), to_micros(world.updated_at)
            )
            .await?;
            if let Some(clock) = &world.settings.clock {
                state::update_clock(connection, &tenant, &world.id, clock, &edit).await?;
            }
            Growth::check(growth, connection, &tenant).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(put_outcome(version))
        })
        .await
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
        let tenant = scope.tenant().clone();
        let world = world.clone();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Authored(&world)).await?;
            let stored = world_version(connection, &tenant, &world).await?;
            if let Some(refused) = delete_rejection(stored, if_version) {
                return Ok(refused);
            }
            // Dialogues before their world, the same lock order as in a rewind.
            let closed =
                fetch_all!(connection, CLOSE_DIALOGUES_OF_WORLD; tenant, world, to_micros(edit.made_at)).await?;
            write_ends(connection, &tenant, &closed, "world_deleted", &edit).await?;
            for statement in [HIDE_NPCS, HIDE_WORLD] {
                execute!(connection, statement; tenant, world, to_micros(edit.made_at)).await?;
            }
            for statement in [DELETE_SCENARIOS, DELETE_LORE, DELETE_DIRECTIVES] {
                execute!(connection, statement; tenant, world).await?;
            }
            raise_lore_version(connection, &tenant, &world).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(DeleteOutcome::Deleted)
        })
        .await
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
        settings: &WorldSettings,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        let tenant = scope.tenant().clone();
        let edit = edit.clone();
        let settings = to_json(settings)?;
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::TenantSettings).await?;
            let row = fetch_optional!(connection, TENANT_SETTINGS; tenant).await?;
            let stored: Option<i64> = row.map(|row| Columns::new(&row).next()).transpose()?;
            let version = match next_version(stored, if_version) {
                Ok(version) => version,
                Err(refused) => return Ok(refused),
            };
            execute!(
                connection, UPSERT_TENANT_SETTINGS;
                tenant, settings, i64::from(version), to_micros(edit.made_at)
            )
            .await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(put_outcome(version))
        })
        .await
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
        let tenant = scope.tenant().clone();
        let edit = edit.clone();
        let models = to_json(models)?;
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::TenantSettings).await?;
            let row = fetch_optional!(connection, CHAT_MODELS; tenant).await?;
            let stored: Option<i64> = row.map(|row| Columns::new(&row).next()).transpose()?;
            let version = match next_version(stored, if_version) {
                Ok(version) => version,
                Err(refused) => return Ok(refused),
            };
            execute!(
                connection, UPSERT_CHAT_MODELS;
                tenant, models, i64::from(version), to_micros(edit.made_at)
            )
            .await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(put_outcome(version))
        })
        .await
    }

    async fn put_npc(
        &self,
        scope: &TenantScope,
        npc: &Npc,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        let tenant = scope.tenant().clone();
        let npc = npc.clone();
        let edit = edit.clone();
        let persona = to_json(&npc.persona)?;
        let factions = to_json(&npc.factions)?;
        let settings = to_json(&npc.settings)?;
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Authored(&npc.world)).await?;
            if world_version(connection, &tenant, &npc.world).await?.is_none() {
                return Ok(PutOutcome::NoParent);
            }
            let stored = npc_version(connection, &tenant, &npc.world, &npc.id).await?;
            let version = match next_version(stored, if_version) {
                Ok(version) => version,
                Err(refused) => return Ok(refused),
            };
            let growth = Growth::begin(connection, &tenant, edit.limits).await?;
            execute!(
                connection, PUT_NPC;
                tenant, npc.world, npc.id, without_nul(&npc.name), persona, npc.language.as_str(), factions,
                npc.model.as_deref().map(without_nul), settings, i64::from(version), to_micros(npc.updated_at)
            )
            .await?;
            Growth::check(growth, connection, &tenant).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(put_outcome(version))
        })
        .await
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
        let tenant = scope.tenant().clone();
        let world = world.clone();
        let npc = npc.clone();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Authored(&world)).await?;
            let stored = npc_version(connection, &tenant, &world, &npc).await?;
            if let Some(refused) = delete_rejection(stored, if_version) {
                return Ok(refused);
            }
            execute!(connection, HIDE_NPC; tenant, world, npc, to_micros(edit.made_at)).await?;
            let closed =
                fetch_all!(connection, CLOSE_DIALOGUES_OF_NPC; tenant, world, npc, to_micros(edit.made_at)).await?;
            write_ends(connection, &tenant, &closed, "npc_deleted", &edit).await?;
            execute!(connection, DELETE_SCENARIOS_OF_NPC; tenant, world, npc).await?;
            raise_lore_version(connection, &tenant, &world).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(DeleteOutcome::Deleted)
        })
        .await
    }
}
