//! The tenants that have texts without a vector.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use colloquy_core::{ids::TenantId, scope::TenantScope};

/// The tenants with facts or episodes that this node stored without vectors, because the embedder was away.
#[derive(Default)]
pub(crate) struct UnembeddedTenants(pub(super) Mutex<BTreeSet<TenantId>>);

impl UnembeddedTenants {
    pub(crate) fn record_tenant(&self, scope: &TenantScope) {
        self.0.lock().insert(scope.tenant().clone());
    }
}
