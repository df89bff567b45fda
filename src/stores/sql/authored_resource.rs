//! The path of all resources that authors write: conditional puts and deletions, under the lock of their world, with the
//! tenant's budget of bytes and the audit row.

use std::future::{Future, ready};

use super::{
    audit,
    authored_size::Growth,
    context::{Connection, Engine, acquire_lock},
    rows::Columns,
    scope::LedgerLock,
    statements::{BoundQuery, execute, fetch_optional, fetch_scalar},
};
use colloquy_core::{
    ids::{TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        audit::Edit,
        authored::{DeleteOutcome, PutOutcome},
    },
};

const RAISE_LORE_VERSION: &str = "UPDATE worlds SET lore_version = lore_version + 1 WHERE tenant = $1 AND id = $2";

/// The ids of a resource: its world, and its ids in the world.
#[derive(Debug, Clone)]
pub(super) struct ResourceKey {
    pub world: WorldId,
    ids: Vec<String>,
}

impl ResourceKey {
    pub(super) fn new<const N: usize>(world: &WorldId, ids: [&str; N]) -> Self {
        Self {
            world: world.clone(),
            ids: ids.map(str::to_owned).to_vec(),
        }
    }

    /// Returns the key of the parent of a resource in a world.
    fn parent(&self) -> Self {
        let mut parent = self.clone();
        parent.ids.pop();
        parent
    }

    /// Binds the tenant to `$1`, and the world and the other ids to the next parameters.
    pub(super) fn bind<'q>(&'q self, statement: &'static str, tenant: &'q TenantId) -> BoundQuery<'q> {
        let query = bind!(statement; tenant, self.world);
        self.ids.iter().fold(query, |query, id| query.bind(id))
    }
}

/// A put or a deletion of a resource, in its transaction.
pub(super) struct ResourceEdit<'t> {
    pub connection: &'t mut Connection,
    pub tenant: &'t TenantId,
    pub key: &'t ResourceKey,
    pub edit: &'t Edit,
}

impl ResourceEdit<'_> {
    /// Runs a statement that binds the tenant and the ids.
    pub(super) async fn execute(&mut self, statement: &'static str) -> StoreResult<()> {
        execute(self.connection, self.key.bind(statement, self.tenant))
            .await
            .map(drop)
    }

    /// Tells all nodes that the lore in their memory is old.
    pub(super) async fn raise_lore_version(&mut self) -> StoreResult<()> {
        raise_lore_version(self.connection, self.tenant, &self.key.world).await
    }
}

/// Tells all nodes that the lore of a world in their memory is old.
pub(super) async fn raise_lore_version(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
) -> StoreResult<()> {
    execute!(connection, RAISE_LORE_VERSION; tenant, world).await.map(drop)
}

/// A resource that authors write. Its statements bind the tenant and the ids, see [`ResourceKey::bind`].
pub(super) trait AuthoredResource: Clone + Send + Sync + 'static {
    /// Selects the version of a resource.
    const VERSION: &'static str;
    /// Selects the version of a parent, with the ids of the parent. `None`: a world.
    const PARENT_VERSION: Option<&'static str>;
    /// Counts the resources of a parent, and the most that a parent may have.
    const LIMIT: Option<(&'static str, u32)> = None;

    fn key(&self) -> ResourceKey;

    /// Takes further locks, and writes what belongs before the lock of the tenant's size.
    fn prepare_write(&self, _put: &mut ResourceEdit<'_>) -> impl Future<Output = StoreResult<()>> + Send {
        ready(Ok(()))
    }

    fn write(&self, put: &mut ResourceEdit<'_>, version: u32) -> impl Future<Output = StoreResult<()>> + Send;

    /// Deletes a resource with all that belongs to it.
    fn delete(deletion: &mut ResourceEdit<'_>) -> impl Future<Output = StoreResult<()>> + Send;
}

/// Reads the version that `query` selects.
pub(super) async fn stored_version(connection: &mut Connection, query: BoundQuery<'_>) -> StoreResult<Option<i64>> {
    let row = fetch_optional(connection, query).await?;
    row.map(|row| Columns::new(&row).next()).transpose()
}

/// Compares a put with the stored version: `Ok` is the version to write.
pub(super) fn compare_version(stored: Option<i64>, if_version: Option<u32>) -> Result<u32, PutOutcome> {
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

/// Returns why the stored version may not be deleted, or `None` if the delete may proceed.
pub(super) fn delete_rejection(stored: Option<i64>, if_version: Option<u32>) -> Option<DeleteOutcome> {
    let Some(stored) = stored.and_then(|version| u32::try_from(version).ok()) else {
        return Some(DeleteOutcome::NotFound);
    };
    let other = if_version.is_some_and(|expected| expected != stored);
    other.then_some(DeleteOutcome::VersionMismatch { stored })
}

/// Returns the version that a put would write, or the reason for refusing the put.
async fn next_version<R: AuthoredResource>(
    connection: &mut Connection,
    tenant: &TenantId,
    key: &ResourceKey,
    if_version: Option<u32>,
) -> StoreResult<Result<u32, PutOutcome>> {
    let parent = key.parent();
    if let Some(statement) = R::PARENT_VERSION
        && stored_version(connection, parent.bind(statement, tenant))
            .await?
            .is_none()
    {
        return Ok(Err(PutOutcome::NoParent));
    }
    let stored = stored_version(connection, key.bind(R::VERSION, tenant)).await?;
    let next = compare_version(stored, if_version);
    if next.is_ok()
        && stored.is_none()
        && let Some((count, most)) = R::LIMIT
    {
        let stored_count: i64 = fetch_scalar(connection, parent.bind(count, tenant)).await?;
        if stored_count >= i64::from(most) {
            return Ok(Err(PutOutcome::Full { most }));
        }
    }
    Ok(next)
}

/// Returns the present refusal of a put, or `None`.
pub(super) async fn check_put<R: AuthoredResource>(
    engine: &Engine,
    scope: &TenantScope,
    key: &ResourceKey,
    if_version: Option<u32>,
) -> StoreResult<Option<PutOutcome>> {
    let mut connection = engine.acquire_reader(scope).await?;
    let next = next_version::<R>(&mut connection, scope.tenant(), key, if_version).await?;
    Ok(next.err())
}

/// Creates or replaces a resource.
pub(super) async fn put_resource<R: AuthoredResource>(
    engine: &Engine,
    scope: &TenantScope,
    resource: R,
    if_version: Option<u32>,
    edit: &Edit,
) -> StoreResult<PutOutcome> {
    let tenant = scope.tenant().clone();
    let edit = edit.clone();
    write_transaction!(engine, scope, |connection| {
        let key = resource.key();
        acquire_lock(connection, &tenant, LedgerLock::Authored(&key.world)).await?;
        let version = match next_version::<R>(connection, &tenant, &key, if_version).await? {
            Ok(version) => version,
            Err(refused) => return Ok(refused),
        };
        let mut put = ResourceEdit {
            connection: &mut *connection,
            tenant: &tenant,
            key: &key,
            edit: &edit,
        };
        resource.prepare_write(&mut put).await?;
        let growth = Growth::begin(put.connection, &tenant, edit.limits).await?;
        resource.write(&mut put, version).await?;
        Growth::check(growth, connection, &tenant).await?;
        audit::record_audit(connection, &tenant, &edit).await?;
        Ok(put_outcome(version))
    })
    .await
}

/// Deletes a resource of the kind `R`.
pub(super) async fn delete_resource<R: AuthoredResource>(
    engine: &Engine,
    scope: &TenantScope,
    key: ResourceKey,
    if_version: Option<u32>,
    edit: &Edit,
) -> StoreResult<DeleteOutcome> {
    let tenant = scope.tenant().clone();
    let edit = edit.clone();
    write_transaction!(engine, scope, |connection| {
        acquire_lock(connection, &tenant, LedgerLock::Authored(&key.world)).await?;
        let stored = stored_version(connection, key.bind(R::VERSION, &tenant)).await?;
        if let Some(refused) = delete_rejection(stored, if_version) {
            return Ok(refused);
        }
        let mut deletion = ResourceEdit {
            connection: &mut *connection,
            tenant: &tenant,
            key: &key,
            edit: &edit,
        };
        R::delete(&mut deletion).await?;
        audit::record_audit(connection, &tenant, &edit).await?;
        Ok(DeleteOutcome::Deleted)
    })
    .await
}
