//! The key of a fair queue.

use super::sql::scope::RowScope;
use colloquy_core::ids::TenantId;

/// The key of a fair queue: a tenant, or the server itself (`None`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FairnessKey(Option<TenantId>);

impl FairnessKey {
    pub(super) fn from_scope(reach: RowScope<'_>) -> Self {
        match reach {
            RowScope::Tenant(tenant) => Self(Some(tenant.clone())),
            RowScope::All => Self(None),
        }
    }
}
