//! Places for short tasks.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// When a waiting caller is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitPriority {
    First,
    /// After all callers with `First`, and in a part of the places only.
    Later,
}

/// A fixed number of places. Under contention, the holder with the fewest places goes first. Each holder's callers keep
/// their order.
#[derive(Debug)]
pub struct FairPermits<K: Hash + Eq + Clone> {
    width: usize,
    /// Maximum places for callers with `Later`.
    later: usize,
    state: Mutex<PermitState<K>>,
    /// Notified after `close`, when the last place is free.
    emptied: Notify,
}

#[derive(Debug)]
struct PermitState<K: Hash + Eq + Clone> {
    held_count: usize,
    held_later: usize,
    held_by: HashMap<K, usize>,
    first: WaitLine<K>,
    later: WaitLine<K>,
    closed: bool,
}

type PermitSender<K> = oneshot::Sender<FairPermit<K>>;

/// The waiting callers by holder. Only holders with waiting callers have an entry, so the list is short.
#[derive(Debug)]
struct WaitLine<K: Hash + Eq + Clone>(VecDeque<(K, VecDeque<PermitSender<K>>)>);

/// One acquired place. Freed on drop.
#[derive(Debug)]
pub struct FairPermit<K: Hash + Eq + Clone> {
    places: Option<Arc<FairPermits<K>>>,
    holder: K,
    turn: PermitPriority,
}

impl<K: Hash + Eq + Clone> FairPermits<K> {
    /// Creates `width` places, at least one. At most `later` places serve callers with [`PermitPriority::Later`].
    #[must_use]
    pub fn new(width: usize, later: usize) -> Arc<Self> {
        let width = width.max(1);
        Arc::new(Self {
            width,
            later: later.clamp(1, width),
            state: Mutex::new(PermitState {
                held_count: 0,
                held_later: 0,
                held_by: HashMap::new(),
                first: WaitLine(VecDeque::new()),
                later: WaitLine(VecDeque::new()),
                closed: false,
            }),
            emptied: Notify::new(),
        })
    }

    /// Waits for a place for `holder`. A caller that stops waiting holds no place. `None`: the permits are closed.
    pub async fn acquire_permit(self: &Arc<Self>, holder: &K, turn: PermitPriority) -> Option<FairPermit<K>> {
        let place = {
            let mut state = self.state.lock();
            if state.closed {
                return None;
            }
            if self.has_free_permit(&state, turn) {
                state.add_holder(holder, turn);
                return Some(self.new_permit(holder.clone(), turn));
            }
            let (sender, place) = oneshot::channel();
            state.line_mut(turn).push(holder, sender);
            place
        };
        place.await.ok()
    }

    /// Places in use, and callers that wait.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (
            state.held_count,
            state.first.waiting_count() + state.later.waiting_count(),
        )
    }

    /// Number of places in use.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.state.lock().held_count
    }

    /// Accepts no new callers, then waits for all waiting callers to be served and all places to be free.
    pub async fn close(&self) {
        loop {
            let emptied = self.emptied.notified();
            {
                let mut state = self.state.lock();
                state.closed = true;
                if state.held_count == 0 {
                    debug_assert!(state.held_by.is_empty(), "without a place in use there is no holder");
                    debug_assert!(
                        state.first.waiting_count() + state.later.waiting_count() == 0,
                        "nobody waits while all places are free"
                    );
                    return;
                }
            }
            emptied.await;
        }
    }
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    fn has_free_permit(&self, state: &PermitState<K>, turn: PermitPriority) -> bool {
        state.held_count < self.width && (turn == PermitPriority::First || state.held_later < self.later)
    }
    fn new_permit(self: &Arc<Self>, holder: K, turn: PermitPriority) -> FairPermit<K> {
        FairPermit {
            places: Some(Arc::clone(self)),
            holder,
            turn,
        }
    }

    fn release_permit(self: &Arc<Self>, holder: &K, turn: PermitPriority) {
        let mut state = self.state.lock();
        state.remove_holder(holder, turn);
        for turn in [PermitPriority::First, PermitPriority::Later] {
            while self.has_free_permit(&state, turn) {
                let PermitState {
                    held_by, first, later, ..
                } = &mut *state;
                let line = if turn == PermitPriority::First { first } else { later };
                let Some((holder, sender)) = line.pop(held_by) else {
                    break;
                };
                state.add_holder(&holder, turn);
                // A caller that left just now gives its place to the next caller.
                if let Err(mut unwanted) = sender.send(self.new_permit(holder, turn)) {
                    unwanted.places = None;
                    state.remove_holder(&unwanted.holder, turn);
                }
            }
        }
        debug_assert!(
            state.held_count <= self.width,
            "no more places are in use than there are"
        );
        debug_assert!(
            state.held_later <= self.later,
            "later callers have a part of the places"
        );
        debug_assert!(
            !self.has_free_permit(&state, PermitPriority::First) || state.first.0.is_empty(),
            "nobody waits beside a free place"
        );
        if state.closed && state.held_count == 0 {
            self.emptied.notify_waiters();
        }
    }
}

impl<K: Hash + Eq + Clone> PermitState<K> {
    fn line_mut(&mut self, turn: PermitPriority) -> &mut WaitLine<K> {
        match turn {
            PermitPriority::First => &mut self.first,
            PermitPriority::Later => &mut self.later,
        }
    }
    fn add_holder(&mut self, holder: &K, turn: PermitPriority) {
        self.held_count += 1;
        self.held_later += usize::from(turn == PermitPriority::Later);
        *self.held_by.entry(holder.clone()).or_default() += 1;
        debug_assert!(
            self.held_later <= self.held_count,
            "places of later callers are among the places in use"
        );
        debug_assert!(
            self.held_by.len() <= self.held_count,
            "each holder has at least one of the places in use"
        );
    }
    fn remove_holder(&mut self, holder: &K, turn: PermitPriority) {
        debug_assert!(
            self.held_by.contains_key(holder),
            "a holder that releases a place has one"
        );
        self.held_count -= 1;
        self.held_later -= usize::from(turn == PermitPriority::Later);
        if let Some(count) = self.held_by.get_mut(holder) {
            *count -= 1;
            if *count == 0 {
                self.held_by.remove(holder);
            }
        }
    }
}

impl<K: Hash + Eq + Clone> WaitLine<K> {
    fn push(&mut self, holder: &K, sender: PermitSender<K>) {
        match self.0.iter_mut().find(|(other, _)| other == holder) {
            Some((_, senders)) => senders.push_back(sender),
            None => self.0.push_back((holder.clone(), VecDeque::from([sender]))),
        }
    }
    /// Takes the first waiting caller of the holder with the fewest places. Ties go to the holder that was served
    /// longest ago.
    fn pop(&mut self, held_by: &HashMap<K, usize>) -> Option<(K, PermitSender<K>)> {
        for (_, senders) in &mut self.0 {
            while senders.front().is_some_and(PermitSender::is_closed) {
                senders.pop_front();
            }
        }
        self.0.retain(|(_, senders)| !senders.is_empty());
        let held_count = |(holder, _): &(K, _)| held_by.get(holder).copied().unwrap_or_default();
        let next = (0..self.0.len()).min_by_key(|index| held_count(&self.0[*index]))?;
        let (holder, mut senders) = self.0.remove(next)?;
        let sender = senders.pop_front()?;
        if !senders.is_empty() {
            self.0.push_back((holder.clone(), senders));
        }
        Some((holder, sender))
    }
    fn waiting_count(&self) -> usize {
        let senders = self.0.iter().flat_map(|(_, senders)| senders);
        // Callers that stopped waiting stay in line until a place becomes free.
        senders.filter(|place| !place.is_closed()).count()
    }
}

impl<K: Hash + Eq + Clone> Drop for FairPermit<K> {
    fn drop(&mut self) {
        if let Some(places) = self.places.take() {
            places.release_permit(&self.holder, self.turn);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::{FutureExt as _, poll};

    use super::{PermitPriority::First, *};

    fn free(places: &Arc<FairPermits<char>>, holder: char) -> Option<FairPermit<char>> {
        places.acquire_permit(&holder, First).now_or_never().flatten()
    }

    #[tokio::test]
    async fn tenant_with_fewest_places_goes_first() {
        let places = FairPermits::new(2, 2);
        let mut held = vec![free(&places, 'a').unwrap(), free(&places, 'a').unwrap()];
        let mut of_a: Vec<_> = (0..3).map(|_| Box::pin(places.acquire_permit(&'a', First))).collect();
        for waiting in &mut of_a {
            assert!(poll!(waiting).is_pending());
        }
        let mut of_b = Box::pin(places.acquire_permit(&'b', First));
        assert!(poll!(&mut of_b).is_pending());
        assert_eq!(places.counts(), (2, 4));
        held.pop();
        let b = of_b.now_or_never().flatten().expect("b has none and a has one");
        assert!(poll!(&mut of_a[0]).is_pending());
        drop(b);
        assert!(of_a.remove(0).now_or_never().flatten().is_some(), "nobody else waits");
    }

    #[tokio::test]
    async fn waiting_caller_that_leaves_holds_no_place() {
        let places = FairPermits::new(1, 1);
        let held = free(&places, 'a').unwrap();
        let (mut gone, mut late) = (
            Box::pin(places.acquire_permit(&'a', First)),
            Box::pin(places.acquire_permit(&'b', First)),
        );
        assert!(poll!(&mut gone).is_pending() && poll!(&mut late).is_pending());
        drop(gone);
        drop(held);
        // The caller has a place, but leaves before polling.
        drop(late);
        assert!(free(&places, 'c').is_some());
        let state = places.state.lock();
        assert_eq!((state.held_count, state.held_later, state.held_by.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn places_close_after_waiting_callers_are_served() {
        let places = FairPermits::new(1, 1);
        let held = free(&places, 'a').unwrap();
        let mut waiting = Box::pin(places.acquire_permit(&'b', First));
        assert!(poll!(&mut waiting).is_pending());
        let mut closing = Box::pin(places.close());
        assert!(poll!(&mut closing).is_pending());
        assert!(places.acquire_permit(&'c', First).await.is_none());
        drop(held);
        let last = waiting.await.unwrap();
        assert!(poll!(&mut closing).is_pending());
        drop(last);
        closing.await;
        assert!(places.is_closed() && free(&places, 'a').is_none());
    }
}
