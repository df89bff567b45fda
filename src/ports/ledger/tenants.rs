//! Tenants and their settings.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::{ids::TenantId, ports::StoreResult};

/// A studio.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    /// A disabled tenant's tokens are refused.
    pub enabled: bool,
    pub created_at: DateTime<Utc>,
}

/// Tenants. The one store without a scope: it is what scopes are made from.
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// Adds the tenant if it is new; `false` if it was there.
    async fn ensure(&self, tenant: &Tenant) -> StoreResult<bool>;
    async fn get(&self, id: &TenantId) -> StoreResult<Option<Tenant>>;
    /// Every tenant, for start-up work such as resuming jobs.
    async fn all(&self) -> StoreResult<Vec<Tenant>>;
}
