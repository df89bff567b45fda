//! Directives of worlds.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    authored_resource::{AuthoredResource, ResourceEdit, ResourceKey, check_put, delete_resource, put_resource},
    context::Engine,
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, to_json, to_micros, without_nul},
    statements::execute,
};
use colloquy_core::{
    ids::{DirectiveId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::World,
    directive::{Directive, MAX_DIRECTIVES_PER_WORLD},
};
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

impl AuthoredResource for Directive {
    const VERSION: &'static str = "SELECT version FROM directives WHERE tenant = $1 AND world = $2 AND id = $3";
    const PARENT_VERSION: Option<&'static str> = Some(World::VERSION);
    const LIMIT: Option<(&'static str, u32)> = Some((COUNT_DIRECTIVES, MAX_DIRECTIVES_PER_WORLD));

    fn key(&self) -> ResourceKey {
        ResourceKey::new(&self.world, [self.id.as_str()])
    }
    async fn write(&self, put: &mut ResourceEdit<'_>, version: u32) -> StoreResult<()> {
        execute!(
            put.connection, UPSERT_DIRECTIVE;
            put.tenant, self.world, self.id, to_json(&self.keys)?, without_nul(&self.text), to_json(&self.instructions)?,
            to_json(&self.fails_if)?, i64::from(self.priority), i64::from(version), to_micros(self.updated_at)
        )
        .await
        .map(drop)
    }
    async fn delete(deletion: &mut ResourceEdit<'_>) -> StoreResult<()> {
        deletion.execute(DELETE_DIRECTIVE).await
    }
}

#[async_trait]
impl DirectiveStore for SqlDirectiveStore {
    async fn check_put(
        &self,
        scope: &TenantScope,
        directive: &Directive,
        if_version: Option<u32>,
    ) -> StoreResult<Option<PutOutcome>> {
        check_put::<Directive>(&self.0, scope, &directive.key(), if_version).await
    }
    async fn put_directive(
        &self,
        scope: &TenantScope,
        directive: &Directive,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome> {
        put_resource(&self.0, scope, directive.clone(), if_version, edit).await
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
        let key = ResourceKey::new(world, [id.as_str()]);
        delete_resource::<Directive>(&self.0, scope, key, if_version, edit).await
    }
}
