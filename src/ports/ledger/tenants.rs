//! Tenants and their settings.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{audit::Edit, usage::TenantBudget};
use crate::{
    ids::TenantId,
    ports::{Page, PageRequest, StoreResult},
};

/// A studio.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    /// A disabled tenant's tokens are refused.
    pub enabled: bool,
    /// What it may use, where that is not what every tenant may. One that says nothing is stored as none.
    pub budget: Option<TenantBudget>,
    pub created_at: DateTime<Utc>,
    /// Counts edits, from 1. Of a tenant that is passed to be stored it is ignored.
    pub version: u32,
}

/// What an operator changes of a tenant. `None`: stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantChange {
    pub name: Option<String>,
    pub enabled: Option<bool>,
    /// In place of the whole budget.
    pub budget: Option<TenantBudget>,
}

/// What a conditional change did.
#[derive(Debug, Clone, PartialEq)]
pub enum TenantEditOutcome {
    /// The tenant as it is now.
    Done(Tenant),
    NotFound,
    /// `if_version` named another version than the stored one.
    VersionMismatch {
        stored: u32,
    },
}

/// Tenants. The one store without a scope: it is what scopes are made from.
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// Adds the tenant if it is new; `false` if it was there. The server's own work: no audit row.
    async fn ensure_tenant(&self, tenant: &Tenant) -> StoreResult<bool>;
    /// As [`Self::ensure_tenant`], by somebody: with a row in the audit log of the new tenant.
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
    /// By id.
    async fn list_tenants(&self, page: &PageRequest) -> StoreResult<Page<Tenant>>;
    /// Every tenant, for start-up work such as resuming jobs.
    async fn list_all(&self) -> StoreResult<Vec<Tenant>>;
    /// Those that are disabled.
    async fn list_disabled(&self) -> StoreResult<Vec<TenantId>>;
    /// Those that have a budget of their own.
    async fn list_tenant_budgets(&self) -> StoreResult<Vec<(TenantId, TenantBudget)>>;
}
