//! Directives of worlds, written by authors.

use async_trait::async_trait;

use super::{
    audit::Edit,
    authored::{DeleteOutcome, PutOutcome},
};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{DirectiveId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::directive::Directive;

/// Directives. The store counts versions, and ignores the `version` of a value passed to `put_directive`. Every change
/// writes its audit row in the same transaction. Directives are deleted with their world.
#[async_trait]
pub trait DirectiveStore: Send + Sync {
    /// Returns what refuses a put of a directive at present, or `None`.
    async fn check_put(
        &self,
        scope: &TenantScope,
        directive: &Directive,
        if_version: Option<u32>,
    ) -> StoreResult<Option<PutOutcome>>;
    /// Writes a directive. [`PutOutcome::NoParent`]: the world does not exist. [`PutOutcome::Full`]: the world has
    /// reached its limit.
    async fn put_directive(
        &self,
        scope: &TenantScope,
        directive: &Directive,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<PutOutcome>;
    async fn load_directive(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        id: &DirectiveId,
    ) -> StoreResult<Option<Directive>>;
    /// Returns a page of the directives of a world, by id.
    async fn list_directives(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        page: &PageRequest,
    ) -> StoreResult<Page<Directive>>;
    /// Returns all directives of a world, by id: at most
    /// [`MAX_DIRECTIVES_PER_WORLD`](colloquy_memory::directive::MAX_DIRECTIVES_PER_WORLD).
    async fn load_all_directives(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<Vec<Directive>>;
    async fn delete_directive(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        id: &DirectiveId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<DeleteOutcome>;
}
