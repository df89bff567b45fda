//! Limits on the concurrent calls of a tenant and of an endpoint, with their order of precedence.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::timeout;

use colloquy_core::{
    ids::TenantId,
    shares::{FairPermit, FairPermits, PermitPriority},
};
use colloquy_ports::llm::Task;

/// If more tenants than this are known, tenants without running calls are removed.
const SWEEP_ABOVE: usize = 1_024;

/// Whether a player waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallUrgency {
    /// A player waits: replies, and calls that a reply needs first.
    Interactive,
    /// Nobody waits: work after a turn.
    Background,
}

impl CallUrgency {
    pub(super) const fn for_task(task: Task) -> Self {
        match task {
            Task::Reply | Task::Intent => Self::Interactive,
            Task::Extraction | Task::Judge | Task::Summary | Task::Curation => Self::Background,
        }
    }
}

/// Returns the share of `width` places for background work: three quarters, at least one.
#[must_use]
pub const fn places_for_jobs(width: usize) -> usize {
    if width <= 1 { 1 } else { width - width / 4 }
}

/// Places for concurrent calls. Interactive calls go first: they never queue behind background work, and a quarter of
/// the places is reserved for them. (With a single place, a running call is not cut.) Among waiting tenants, the
/// tenant with the fewest calls goes first.
#[derive(Debug, Clone)]
pub struct CallCapacity(Arc<FairPermits<TenantId>>);

/// A place, released on drop.
pub(super) type CallPermit = FairPermit<TenantId>;

impl CallCapacity {
    /// Creates a capacity of `width` places, at least one.
    #[must_use]
    pub fn with_places(width: usize) -> Self {
        Self(FairPermits::new(width, places_for_jobs(width)))
    }
    /// Acquires a place for one call of `tenant`, released on drop. `None` if no place is free within `patience`.
    pub(super) async fn acquire_place(
        &self,
        tenant: &TenantId,
        urgency: CallUrgency,
        patience: Duration,
    ) -> Option<CallPermit> {
        let turn = match urgency {
            CallUrgency::Interactive => PermitPriority::First,
            CallUrgency::Background => PermitPriority::Later,
        };
        timeout(patience, self.0.acquire_permit(tenant, turn)).await.ok()?
    }
}

/// The places of each tenant, created on first use.
pub(super) struct TenantGate {
    width: usize,
    tenants: Mutex<HashMap<TenantId, CallCapacity>>,
}

impl TenantGate {
    pub(super) fn new(width: usize) -> Self {
        Self {
            width,
            tenants: Mutex::default(),
        }
    }
    /// Acquires a place for one call of `tenant`, as [`CallCapacity::acquire_place`] does.
    pub(super) async fn acquire_place(
        &self,
        tenant: &TenantId,
        urgency: CallUrgency,
        patience: Duration,
    ) -> Option<CallPermit> {
        self.capacity_of(tenant).acquire_place(tenant, urgency, patience).await
    }
    /// Returns the numbers of running and of waiting calls of all tenants.
    pub(super) fn running_and_waiting(&self) -> (usize, usize) {
        let tenants = self.tenants.lock();
        tenants.values().fold((0, 0), |(running, waiting), capacity| {
            let (theirs, wait) = capacity.0.counts();
            (running + theirs, waiting + wait)
        })
    }

    fn capacity_of(&self, tenant: &TenantId) -> CallCapacity {
        let mut tenants = self.tenants.lock();
        if let Some(capacity) = tenants.get(tenant) {
            return capacity.clone();
        }
        if tenants.len() >= SWEEP_ABOVE {
            // Every permit and every waiting call holds a reference.
            tenants.retain(|_, capacity| Arc::strong_count(&capacity.0) > 1);
        }
        let capacity = CallCapacity::with_places(self.width);
        tenants.insert(tenant.clone(), capacity.clone());
        capacity
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::{FutureExt, poll};

    use super::{
        CallUrgency::{Background, Interactive},
        *,
    };

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn full_tenant_waits_and_others_do_not() {
        let gate = TenantGate::new(1);
        let held = gate
            .acquire_place(&tenant("a"), Interactive, Duration::ZERO)
            .await
            .unwrap();
        assert!(
            gate.acquire_place(&tenant("a"), Interactive, Duration::from_millis(1))
                .await
                .is_none()
        );
        assert!(
            gate.acquire_place(&tenant("b"), Interactive, Duration::ZERO)
                .await
                .is_some()
        );
        let a = tenant("a");
        let mut waiting = Box::pin(gate.acquire_place(&a, Interactive, LONG));
        assert!(poll!(&mut waiting).is_pending());
        assert_eq!(gate.running_and_waiting(), (1, 1), "who lost patience does not count");
        drop((waiting, held));
        assert!(
            gate.acquire_place(&tenant("a"), Interactive, Duration::ZERO)
                .await
                .is_some()
        );
        assert_eq!(gate.running_and_waiting(), (0, 0));
    }

    #[tokio::test]
    async fn interactive_calls_go_first() {
        let a = tenant("a");
        let capacity = CallCapacity::with_places(1);
        let held = capacity.acquire_place(&a, Background, LONG).await.unwrap();
        let mut extraction = Box::pin(capacity.acquire_place(&a, Background, LONG));
        assert!(poll!(&mut extraction).is_pending());
        let mut reply = Box::pin(capacity.acquire_place(&a, Interactive, LONG));
        assert!(poll!(&mut reply).is_pending());
        drop(held);
        let reply = reply
            .now_or_never()
            .flatten()
            .expect("the reply came later and goes first");
        assert!(poll!(&mut extraction).is_pending());
        drop(reply);
        assert!(extraction.now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn gate_reserves_a_quarter_for_players() {
        let a = tenant("a");
        let capacity = CallCapacity::with_places(4);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(
                capacity
                    .acquire_place(&tenant("a"), Background, LONG)
                    .now_or_never()
                    .flatten()
                    .unwrap(),
            );
        }
        let mut fourth = Box::pin(capacity.acquire_place(&a, Background, LONG));
        assert!(poll!(&mut fourth).is_pending());
        let reply = capacity.acquire_place(&a, Interactive, LONG).now_or_never().flatten();
        assert!(reply.is_some());
        drop(reply);
        assert!(poll!(&mut fourth).is_pending(), "the place it gave back is a player's");
        held.pop();
        assert!(fourth.now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn idle_tenants_are_forgotten_and_busy_tenants_are_not() {
        let gate = TenantGate::new(1);
        let _held = gate
            .acquire_place(&tenant("busy"), Interactive, Duration::ZERO)
            .await
            .unwrap();
        for n in 0..2 * SWEEP_ABOVE {
            drop(
                gate.acquire_place(&tenant(&format!("t{n}")), Interactive, Duration::ZERO)
                    .await,
            );
        }
        assert!(gate.tenants.lock().len() <= SWEEP_ABOVE);
        assert!(
            gate.acquire_place(&tenant("busy"), Interactive, Duration::ZERO)
                .await
                .is_none()
        );
    }
}
