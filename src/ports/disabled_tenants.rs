//! The disabled tenants, as this node knows them. The ledger is the truth; `tenancy::auth` keeps this copy up to date.

use std::{collections::HashSet, sync::Arc};

use tokio::sync::watch;

use colloquy_core::ids::TenantId;

/// The set of disabled tenants, shared by the gate for callers and the work for tenants. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DisabledTenants(Arc<watch::Sender<HashSet<TenantId>>>);

impl Default for DisabledTenants {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(HashSet::new())))
    }
}

impl DisabledTenants {
    #[must_use]
    pub fn contains(&self, tenant: &TenantId) -> bool {
        self.0.borrow().contains(tenant)
    }

    /// Returns a receiver of every later change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<HashSet<TenantId>> {
        self.0.subscribe()
    }

    pub fn set_disabled(&self, tenant: &TenantId, disabled: bool) {
        self.0.send_if_modified(|tenants| {
            if disabled {
                tenants.insert(tenant.clone())
            } else {
                tenants.remove(tenant)
            }
        });
    }

    /// Replaces the set by `disabled`. Returns the tenants whose state changed, each with `true` if the tenant is now
    /// disabled.
    pub fn set_exactly(&self, disabled: HashSet<TenantId>) -> Vec<(TenantId, bool)> {
        let mut changed = Vec::new();
        self.0.send_if_modified(|tenants| {
            let newly_disabled = disabled.difference(tenants).map(|tenant| (tenant.clone(), true));
            let newly_enabled = tenants.difference(&disabled).map(|tenant| (tenant.clone(), false));
            changed = newly_disabled.chain(newly_enabled).collect();
            debug_assert!(
                changed.is_empty() == (*tenants == disabled),
                "each difference of the two sets is a change"
            );
            *tenants = disabled;
            !changed.is_empty()
        });
        changed
    }
}
