//! Directives of worlds.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    audit, authored,
    authored_size::Growth,
    context::{Connection, Engine, acquire_lock},
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, to_json, to_micros, without_nul},
    scope::LedgerLock,
    statements::{execute, fetch_optional, fetch_scalar},
};
use colloquy_core::{
    ids::{DirectiveId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::directive::{Directive, MAX_DIRECTIVES_PER_WORLD};
use colloquy_ports::{
    Page, PageRequest, StoreError, StoreResult,
    ledger::{
        audit::Edit,
        authored::{DeleteOutcome, PutOutcome},
        directives::DirectiveStore,
    },
};

pub(super) struct SqlDirectiveStore(pub(super) Arc<Engine>);

/// The columns of [`read_directive`].
macro_rules! directive_columns {
    () => {
        "world, id, keys, text, instructions, fails_if, priority, version, updated_at"
    };
}

const DIRECTIVE_VERSION: &str = "SELECT version FROM directives WHERE tenant = $1 AND world = $2 AND id = $3";
const COUNT_DIRECTIVES: &str = "SELECT COUNT(*) FROM directives WHERE tenant = $1 AND world = $2";
const UPSERT_DIRECTIVE: &str =
    "INSERT INTO directives (tenant, world, id, keys, text, instructions, fails_if, priority,
        version, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    ON CONFLICT (tenant, world, id) DO UPDATE SET keys = excluded.keys, text = excluded.text,
        instructions = excluded.instructions, fails_if = excluded.fails_if, priority = excluded.priority,
        version = excluded.version, updated_at = excluded.updated_at";
const DIRECTIVE_BY_ID: &str = concat!(
    "SELECT ",
    directive_columns!(),
    " FROM directives WHERE tenant = $1 AND world = $2 AND id = $3"
);
const LIST_DIRECTIVES: &str = concat!(
    "SELECT ",
    directive_columns!(),
    " FROM directives WHERE tenant = $1 AND world = $2 AND ($3 IS NULL OR id > $3) ORDER BY id LIMIT $4"
);
const ALL_DIRECTIVES: &str = concat!(
    "SELECT ",
    directive_columns!(),
    " FROM directives WHERE tenant = $1 AND world = $2 ORDER BY id LIMIT $3"
);
const DELETE_DIRECTIVE: &str = "DELETE FROM directives WHERE tenant = $1 AND world = $2 AND id = $3";

fn read_directive(columns: &mut Columns<'_>) -> StoreResult<Directive> {
    Ok(Directive {
        world: columns.id()?,
        id: columns.id()?,
        keys: columns.json()?,
        text: columns.next()?,
        instructions: columns.json()?,
        fails_if: columns.json()?,
        priority: i32::try_from(columns.next::<i64>()?).map_err(|error| StoreError::Corrupt(error.to_string()))?,
        version: columns.number()?,
        updated_at: columns.time()?,
    })
}

async fn directive_version(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    id: &DirectiveId,
) -> StoreResult<Option<i64>> {
    let row = fetch_optional!(connection, DIRECTIVE_VERSION; tenant, world, id).await?;
    row.map(|row| Columns::new(&row).next()).transpose()
}

/// Returns the version that a put would write, or the reason for refusing the put.
async fn next_version(
    connection: &mut Connection,
    tenant: &TenantId,
    directive: &Directive,
    if_version: Option<u32>,
) -> StoreResult<Result<u32, PutOutcome>> {
    if authored::world_version(connection, tenant, &directive.world)
        .await?
        .is_none()
    {
        return Ok(Err(PutOutcome::NoParent));
    }
    let stored = directive_version(connection, tenant, &directive.world, &directive.id).await?;
    let next = authored::next_version(stored, if_version);
    if next.is_ok() && stored.is_none() {
        let stored_count: i64 = fetch_scalar!(connection, COUNT_DIRECTIVES; tenant, directive.world).await?;
        if stored_count >= i64::from(MAX_DIRECTIVES_PER_WORLD) {
            let max = MAX_DIRECTIVES_PER_WORLD;
            return Ok(Err(PutOutcome::Full { most: max }));
        }
    }
    Ok(next)
}

#[async_trait]
impl DirectiveStore for SqlDirectiveStore {
    async fn put_directive(
        &self,
        scope: &TenantScope,
        directive: &Directive,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        let tenant = scope.tenant().clone();
        let directive = directive.clone();
        let edit = edit.clone();
        let keys = to_json(&directive.keys)?;
        let instructions = to_json(&directive.instructions)?;
        let fails_if = to_json(&directive.fails_if)?;
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Authored(&directive.world)).await?;
            let version = match next_version(connection, &tenant, &directive, if_version).await? {
                Ok(version) => version,
                Err(refused) => return Ok(refused),
            };
            let growth = Growth::begin(connection, &tenant, edit.limits).await?;
            execute!(
                connection, UPSERT_DIRECTIVE;
                tenant, directive.world, directive.id, keys, without_nul(&directive.text), instructions, fails_if,
                i64::from(directive.priority), i64::from(version), to_micros(directive.updated_at)
            )
            .await?;
            Growth::check(growth, connection, &tenant).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(authored::put_outcome(version))
        })
        .await
    }
    async fn load_directive(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        id: &DirectiveId,
    ) -> StoreResult<Option<Directive>> {
        let query = bind!(DIRECTIVE_BY_ID; scope.tenant(), world, id);
        self.0.fetch_optional(scope, query, read_directive).await
    }
    async fn list_directives(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        page: &PageRequest,
    ) -> StoreResult<Page<Directive>> {
        let query = bind!(LIST_DIRECTIVES; scope.tenant(), world, page_cursor(page), page_row_limit(page));
        fetch_page(&self.0, scope, query, page, read_directive, |directive| {
            directive.id.to_string()
        })
        .await
    }
    async fn load_all_directives(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<Vec<Directive>> {
        let query = bind!(ALL_DIRECTIVES; scope.tenant(), world, i64::from(MAX_DIRECTIVES_PER_WORLD));
        self.0.fetch_all(scope, query, read_directive).await
    }
    async fn delete_directive(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        id: &DirectiveId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome> {
        let tenant = scope.tenant().clone();
        let world = world.clone();
        let id = id.clone();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| {
            acquire_lock(connection, &tenant, LedgerLock::Authored(&world)).await?;
            let stored = directive_version(connection, &tenant, &world, &id).await?;
            if let Some(refused) = authored::delete_rejection(stored, if_version) {
                return Ok(refused);
            }
            execute!(connection, DELETE_DIRECTIVE; tenant, world, id).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(DeleteOutcome::Deleted)
        })
        .await
    }
}
