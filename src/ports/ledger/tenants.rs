//! Tenants and their settings.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{audit::Edit, usage::TenantBudget};
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::ids::TenantId;

/// A studio.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    /// False for a disabled tenant, whose tokens are refused.
    pub enabled: bool,
    /// The tenant's own budget, where it differs from the budget of every tenant. An empty budget is stored as `None`.
    pub budget: Option<TenantBudget>,
    pub created_at: DateTime<Utc>,
    /// Counts edits, from 1. Ignored in a tenant passed to the store.
    pub version: u32,
}

/// An operator's change of a tenant. `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantChange {
    pub name: Option<String>,
    pub enabled: Option<bool>,
    /// Replaces the whole budget.
    pub budget: Option<TenantBudget>,
}

/// The outcome of a conditional change.
#[derive(Debug, Clone, PartialEq)]
pub enum TenantEditOutcome {
    /// The tenant after the change.
    Done(Tenant),
    NotFound,
    /// `if_version` differs from the stored version.
    VersionMismatch {
        stored: u32,
    },
}

/// Tenants. The only store without a scope, since scopes are made from tenants.
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// Adds the tenant if it is new; returns `false` if it exists. The server's own work has no audit row.
    async fn ensure_tenant(&self, tenant: &Tenant) -> StoreResult<bool>;
    /// As [`Self::ensure_tenant`], on behalf of a caller: with a row in the new tenant's audit log.
    async fn create_tenant(&self, tenant: &Tenant, edit: &Edit) -> StoreResult<bool>;
    /// Changes a tenant, with a row in its audit log.
    async fn change_tenant(
        &self,
        id: &TenantId,
        change: &TenantChange,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<TenantEditOutcome>;
    async fn load_tenant(&self, id: &TenantId) -> StoreResult<Option<Tenant>>;
    /// Returns tenants, by id.
    async fn list_tenants(&self, page: &PageRequest) -> StoreResult<Page<Tenant>>;
    /// Returns every tenant, for start-up work like resuming jobs.
    async fn list_all(&self) -> StoreResult<Vec<Tenant>>;
    /// Returns the disabled tenants.
    async fn list_disabled(&self) -> StoreResult<Vec<TenantId>>;
    /// Returns the tenants with a budget of their own.
    async fn list_tenant_budgets(&self) -> StoreResult<Vec<(TenantId, TenantBudget)>>;
}
