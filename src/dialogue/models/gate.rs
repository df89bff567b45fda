//! How many calls of one tenant, and to one endpoint, may run at once, and who goes first.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

use crate::{ids::TenantId, ports::llm::Task};

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
/// runs already is not cut).
#[derive(Debug, Clone)]
pub struct Capacity(Arc<Line>);

#[derive(Debug)]
struct Line {
    width: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// Of these, those nobody waits for.
    unhurried: usize,
    players: VecDeque<oneshot::Sender<Permit>>,
    nobody: VecDeque<oneshot::Sender<Permit>>,
}

impl Capacity {
    /// `width` places, at least one.
    #[must_use]
    pub fn of(width: usize) -> Self {
        Self(Arc::new(Line {
            width: width.max(1),
            state: Mutex::default(),
        }))
    }
    /// A place for one call, given back on drop; `None` if none comes free in `patience`.
    pub(super) async fn enter(&self, urgency: Urgency, patience: Duration) -> Option<Permit> {
        let place = {
            let mut state = self.0.state.lock();
            if state.take(urgency, self.0.width) {
                return Some(Permit::of(&self.0, urgency));
            }
            let (sender, place) = oneshot::channel();
            state.queue(urgency).push_back(sender);
            place
        };
        // Whoever loses patience drops its end; a place that came just then is given back with it.
        timeout(patience, place).await.ok()?.ok()
    }
}

impl State {
    /// Takes a place if one is free for `urgency`.
    fn take(&mut self, urgency: Urgency, width: usize) -> bool {
        let free = match urgency {
            Urgency::Player => self.running < width,
            Urgency::Nobody => self.running < width && self.unhurried < places_for_jobs(width),
        };
        if free {
            self.running += 1;
            self.unhurried += usize::from(urgency == Urgency::Nobody);
        }
        free
    }
    fn give_back(&mut self, urgency: Urgency) {
        self.running -= 1;
        self.unhurried -= usize::from(urgency == Urgency::Nobody);
    }
    fn queue(&mut self, urgency: Urgency) -> &mut VecDeque<oneshot::Sender<Permit>> {
        match urgency {
            Urgency::Player => &mut self.players,
            Urgency::Nobody => &mut self.nobody,
        }
    }
    /// The next in line that still waits, with its place taken.
    fn next(&mut self, width: usize) -> Option<(Urgency, oneshot::Sender<Permit>)> {
        for urgency in [Urgency::Player, Urgency::Nobody] {
            let queue = self.queue(urgency);
            while queue.front().is_some_and(oneshot::Sender::is_closed) {
                queue.pop_front();
            }
            if !queue.is_empty() && self.take(urgency, width) {
                return Some((urgency, self.queue(urgency).pop_front()?));
            }
        }
        None
    }
}

/// A place. Given back on drop.
#[derive(Debug)]
pub(super) struct Permit {
    line: Option<Arc<Line>>,
    urgency: Urgency,
}

impl Permit {
    fn of(line: &Arc<Line>, urgency: Urgency) -> Self {
        Self {
            line: Some(Arc::clone(line)),
            urgency,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        line.state.lock().give_back(self.urgency);
        loop {
            let next = line.state.lock().next(line.width);
            let Some((urgency, waiting)) = next else { return };
            // One that went away just now leaves its place to the one after it.
            if let Err(mut unwanted) = waiting.send(Self::of(&line, urgency)) {
                unwanted.line = None;
                line.state.lock().give_back(urgency);
            }
        }
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
        self.of(tenant).enter(urgency, patience).await
    }
    /// Calls of all tenants that run, and those that wait.
    pub(super) fn under_way(&self) -> (usize, usize) {
        let tenants = self.tenants.lock();
        tenants.values().fold((0, 0), |(running, waiting), capacity| {
            let state = capacity.0.state.lock();
            // Those that lost patience are in line until a place comes free.
            let in_line = state.players.iter().chain(&state.nobody);
            let waits = in_line.filter(|place| !place.is_closed()).count();
            (running + state.running, waiting + waits)
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
        let capacity = Capacity::of(1);
        let held = capacity.enter(Nobody, LONG).await.unwrap();
        let mut extraction = Box::pin(capacity.enter(Nobody, LONG));
        assert!(poll!(&mut extraction).is_pending());
        let mut reply = Box::pin(capacity.enter(Player, LONG));
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
        let capacity = Capacity::of(4);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(capacity.enter(Nobody, LONG).now_or_never().flatten().unwrap());
        }
        let mut fourth = Box::pin(capacity.enter(Nobody, LONG));
        assert!(poll!(&mut fourth).is_pending());
        let reply = capacity.enter(Player, LONG).now_or_never().flatten();
        assert!(reply.is_some());
        drop(reply);
        assert!(poll!(&mut fourth).is_pending(), "the place it gave back is a player's");
        held.pop();
        assert!(fourth.now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn whoever_goes_away_keeps_no_place() {
        let capacity = Capacity::of(1);
        let held = capacity.enter(Player, LONG).await.unwrap();
        let (mut gone, mut late) = (
            Box::pin(capacity.enter(Player, LONG)),
            Box::pin(capacity.enter(Player, LONG)),
        );
        assert!(poll!(&mut gone).is_pending() && poll!(&mut late).is_pending());
        drop(gone);
        drop(held);
        // It has its place and goes before it looks.
        drop(late);
        assert!(capacity.enter(Nobody, LONG).now_or_never().flatten().is_some());
        let state = capacity.0.state.lock();
        assert_eq!((state.running, state.unhurried), (0, 0));
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
