//! How many calls of one tenant, and to one endpoint, may run at once, and who goes first.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::{
    ids::TenantId,
    ports::llm::Task,
    shares::{Place, Places, Turn},
};

/// With more tenants than this known, those with no call running are forgotten.
const SWEEP_ABOVE: usize = 1_024;

/// Whether somebody waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// A player does: replies, and what a reply needs first.
    Player,
    /// Nobody does: what runs after a turn.
    Nobody,
}

impl Urgency {
    pub(super) const fn of(task: Task) -> Self {
        match task {
            Task::Reply | Task::Intent => Self::Player,
            Task::Extraction | Task::Judge | Task::Summary | Task::Curation => Self::Nobody,
        }
    }
}

/// Of so many places, those that work nobody waits for may take: three quarters, at least one.
#[must_use]
pub const fn places_for_jobs(width: usize) -> usize {
    if width <= 1 { 1 } else { width - width / 4 }
}

/// Places for calls that run at once. What a player waits for goes first: it never queues behind work
/// nobody waits for, and a quarter of the places is its alone (if there is but one place, a call that
/// runs already is not cut). Where several tenants wait, the one with the fewest calls goes first.
#[derive(Debug, Clone)]
pub struct Capacity(Arc<Places<TenantId>>);

/// A place. Given back on drop.
pub(super) type Permit = Place<TenantId>;

impl Capacity {
    /// `width` places, at least one.
    #[must_use]
    pub fn of(width: usize) -> Self {
        Self(Places::of(width, places_for_jobs(width)))
    }
    /// A place for one call of `tenant`, given back on drop; `None` if none comes free in `patience`.
    pub(super) async fn enter(&self, tenant: &TenantId, urgency: Urgency, patience: Duration) -> Option<Permit> {
        let turn = match urgency {
            Urgency::Player => Turn::First,
            Urgency::Nobody => Turn::Later,
        };
        timeout(patience, self.0.enter(tenant, turn)).await.ok()?
    }
}

/// Places of each tenant, made on first use.
pub(super) struct Gate {
    width: usize,
    tenants: Mutex<HashMap<TenantId, Capacity>>,
}

impl Gate {
    pub(super) fn new(width: usize) -> Self {
        Self {
            width,
            tenants: Mutex::default(),
        }
    }
    /// A place for one call of `tenant`, as [`Capacity::enter`].
    pub(super) async fn enter(&self, tenant: &TenantId, urgency: Urgency, patience: Duration) -> Option<Permit> {
        self.of(tenant).enter(tenant, urgency, patience).await
    }
    /// Calls of all tenants that run, and those that wait.
    pub(super) fn under_way(&self) -> (usize, usize) {
        let tenants = self.tenants.lock();
        tenants.values().fold((0, 0), |(running, waiting), capacity| {
            let (theirs, wait) = capacity.0.counts();
            (running + theirs, waiting + wait)
        })
    }

    fn of(&self, tenant: &TenantId) -> Capacity {
        let mut tenants = self.tenants.lock();
        if let Some(capacity) = tenants.get(tenant) {
            return capacity.clone();
        }
        if tenants.len() >= SWEEP_ABOVE {
            // Permits and waiting calls hold a reference of their own.
            tenants.retain(|_, capacity| Arc::strong_count(&capacity.0) > 1);
        }
        let capacity = Capacity::of(self.width);
        tenants.insert(tenant.clone(), capacity.clone());
        capacity
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::{FutureExt, poll};

    use super::{
        Urgency::{Nobody, Player},
        *,
    };

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_full_tenant_waits_and_others_do_not() {
        let gate = Gate::new(1);
        let held = gate.enter(&tenant("a"), Player, Duration::ZERO).await.unwrap();
        assert!(
            gate.enter(&tenant("a"), Player, Duration::from_millis(1))
                .await
                .is_none()
        );
        assert!(gate.enter(&tenant("b"), Player, Duration::ZERO).await.is_some());
        let a = tenant("a");
        let mut waiting = Box::pin(gate.enter(&a, Player, LONG));
        assert!(poll!(&mut waiting).is_pending());
        assert_eq!(gate.under_way(), (1, 1), "who lost patience does not count");
        drop((waiting, held));
        assert!(gate.enter(&tenant("a"), Player, Duration::ZERO).await.is_some());
        assert_eq!(gate.under_way(), (0, 0));
    }

    #[tokio::test]
    async fn what_a_player_waits_for_goes_first() {
        let a = tenant("a");
        let capacity = Capacity::of(1);
        let held = capacity.enter(&a, Nobody, LONG).await.unwrap();
        let mut extraction = Box::pin(capacity.enter(&a, Nobody, LONG));
        assert!(poll!(&mut extraction).is_pending());
        let mut reply = Box::pin(capacity.enter(&a, Player, LONG));
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
    async fn a_quarter_is_kept_for_players() {
        let a = tenant("a");
        let capacity = Capacity::of(4);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(
                capacity
                    .enter(&tenant("a"), Nobody, LONG)
                    .now_or_never()
                    .flatten()
                    .unwrap(),
            );
        }
        let mut fourth = Box::pin(capacity.enter(&a, Nobody, LONG));
        assert!(poll!(&mut fourth).is_pending());
        let reply = capacity.enter(&a, Player, LONG).now_or_never().flatten();
        assert!(reply.is_some());
        drop(reply);
        assert!(poll!(&mut fourth).is_pending(), "the place it gave back is a player's");
        held.pop();
        assert!(fourth.now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn forgetting_idle_tenants_spares_busy_ones() {
        let gate = Gate::new(1);
        let _held = gate.enter(&tenant("busy"), Player, Duration::ZERO).await.unwrap();
        for n in 0..2 * SWEEP_ABOVE {
            drop(gate.enter(&tenant(&format!("t{n}")), Player, Duration::ZERO).await);
        }
        assert!(gate.tenants.lock().len() <= SWEEP_ABOVE);
        assert!(gate.enter(&tenant("busy"), Player, Duration::ZERO).await.is_none());
    }
}
