//! How many calls of one tenant may run at once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::ids::TenantId;

/// With more tenants than this known, those with no call running are forgotten.
const SWEEP_ABOVE: usize = 1_024;

/// One semaphore per tenant, made on first use.
pub(super) struct Gate {
    width: usize,
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

impl Gate {
    pub(super) fn new(width: usize) -> Self {
        Self {
            width,
            tenants: Mutex::default(),
        }
    }
    /// A place for one call of `tenant`, given back on drop; `None` if none comes free in `patience`.
    pub(super) async fn enter(&self, tenant: &TenantId, patience: Duration) -> Option<OwnedSemaphorePermit> {
        let semaphore = self.of(tenant);
        if let Ok(permit) = semaphore.clone().try_acquire_owned() {
            return Some(permit);
        }
        timeout(patience, semaphore.acquire_owned()).await.ok()?.ok()
    }

    fn of(&self, tenant: &TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock();
        if let Some(semaphore) = tenants.get(tenant) {
            return semaphore.clone();
        }
        if tenants.len() >= SWEEP_ABOVE {
            // Permits and waiting calls hold a reference of their own.
            tenants.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        let semaphore = Arc::new(Semaphore::new(self.width));
        tenants.insert(tenant.clone(), semaphore.clone());
        semaphore
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    #[tokio::test]
    async fn a_full_tenant_waits_and_others_do_not() {
        let gate = Gate::new(1);
        let held = gate.enter(&tenant("a"), Duration::ZERO).await.unwrap();
        assert!(gate.enter(&tenant("a"), Duration::from_millis(1)).await.is_none());
        assert!(gate.enter(&tenant("b"), Duration::ZERO).await.is_some());
        drop(held);
        assert!(gate.enter(&tenant("a"), Duration::ZERO).await.is_some());
    }

    #[tokio::test]
    async fn forgetting_idle_tenants_spares_busy_ones() {
        let gate = Gate::new(1);
        let _held = gate.enter(&tenant("busy"), Duration::ZERO).await.unwrap();
        for n in 0..2 * SWEEP_ABOVE {
            drop(gate.enter(&tenant(&format!("t{n}")), Duration::ZERO).await);
        }
        assert!(gate.tenants.lock().len() <= SWEEP_ABOVE);
        assert!(gate.enter(&tenant("busy"), Duration::ZERO).await.is_none());
    }
}
