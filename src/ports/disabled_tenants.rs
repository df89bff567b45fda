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
        self.0.send_if_modified(|all| {
            if disabled {
                all.insert(tenant.clone())
            } else {
                all.remove(tenant)
            }
        });
    }

    /// Replaces the set by `now`. Returns the tenants whose state changed, each with `true` if the tenant is now
    /// disabled.
    pub fn set_exactly(&self, now: HashSet<TenantId>) -> Vec<(TenantId, bool)> {
        let mut changed = Vec::new();
        self.0.send_if_modified(|all| {
            let new = now.difference(all).map(|tenant| (tenant.clone(), true));
            let old = all.difference(&now).map(|tenant| (tenant.clone(), false));
            changed = new.chain(old).collect();
            *all = now;
            !changed.is_empty()
        });
        changed
    }
}
