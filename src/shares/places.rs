//! Places for what is over soon.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// When whoever waits has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    First,
    /// After all that come first, and in part of the places.
    Later,
}

/// So many at a time. Where more want a place, whoever holds fewest of them goes first; each in its own order.
#[derive(Debug)]
pub struct Places<K: Hash + Eq + Clone> {
    width: usize,
    /// How many of the places may be held by those whose turn is later.
    later: usize,
    state: Mutex<State<K>>,
    /// They are closed, and the last one was given back.
    emptied: Notify,
}

#[derive(Debug)]
struct State<K: Hash + Eq + Clone> {
    held: usize,
    held_later: usize,
    held_by: HashMap<K, usize>,
    first: Line<K>,
    later: Line<K>,
    closed: bool,
}

type Waiting<K> = oneshot::Sender<Place<K>>;

/// Who waits, by whose they are. A map of few: those with something waiting.
#[derive(Debug)]
struct Line<K: Hash + Eq + Clone>(VecDeque<(K, VecDeque<Waiting<K>>)>);

/// One place. Given back on drop.
#[derive(Debug)]
pub struct Place<K: Hash + Eq + Clone> {
    places: Option<Arc<Places<K>>>,
    holder: K,
    turn: Turn,
}

impl<K: Hash + Eq + Clone> Places<K> {
    /// `width` places, at least one; at most `later` of them for those whose turn is later.
    #[must_use]
    pub fn of(width: usize, later: usize) -> Arc<Self> {
        let width = width.max(1);
        Arc::new(Self {
            width,
            later: later.clamp(1, width),
            state: Mutex::new(State {
                held: 0,
                held_later: 0,
                held_by: HashMap::new(),
                first: Line(VecDeque::new()),
                later: Line(VecDeque::new()),
                closed: false,
            }),
            emptied: Notify::new(),
        })
    }

    /// A place for `holder`, once there is one. Whoever stops waiting keeps none. `None`: they were closed.
    pub async fn enter(self: &Arc<Self>, holder: &K, turn: Turn) -> Option<Place<K>> {
        let place = {
            let mut state = self.state.lock();
            if state.closed {
                return None;
            }
            if self.is_free(&state, turn) {
                state.take(holder, turn);
                return Some(self.place(holder.clone(), turn));
            }
            let (sender, place) = oneshot::channel();
            state.line(turn).push(holder, sender);
            place
        };
        place.await.ok()
    }

    /// Those in use, and those who wait.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.held, state.first.waiting() + state.later.waiting())
    }

    /// Those in use.
    #[must_use]
    pub fn held(&self) -> usize {
        self.state.lock().held
    }

    /// Takes nobody in any more, and waits until those who waited had their turn and all are given back.
    pub async fn close(&self) {
        loop {
            let emptied = self.emptied.notified();
            {
                let mut state = self.state.lock();
                state.closed = true;
                if state.held == 0 {
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

    fn is_free(&self, state: &State<K>, turn: Turn) -> bool {
        state.held < self.width && (turn == Turn::First || state.held_later < self.later)
    }
    fn place(self: &Arc<Self>, holder: K, turn: Turn) -> Place<K> {
        Place {
            places: Some(Arc::clone(self)),
            holder,
            turn,
        }
    }

    fn give_back(self: &Arc<Self>, holder: &K, turn: Turn) {
        let mut state = self.state.lock();
        state.leave(holder, turn);
        for turn in [Turn::First, Turn::Later] {
            while self.is_free(&state, turn) {
                let State {
                    held_by, first, later, ..
                } = &mut *state;
                let line = if turn == Turn::First { first } else { later };
                let Some((holder, waiting)) = line.pop(held_by) else {
                    break;
                };
                state.take(&holder, turn);
                // One that went away just now leaves its place to the one after it.
                if let Err(mut unwanted) = waiting.send(self.place(holder, turn)) {
                    unwanted.places = None;
                    state.leave(&unwanted.holder, turn);
                }
            }
        }
        if state.closed && state.held == 0 {
            self.emptied.notify_waiters();
        }
    }
}

impl<K: Hash + Eq + Clone> State<K> {
    fn line(&mut self, turn: Turn) -> &mut Line<K> {
        match turn {
            Turn::First => &mut self.first,
            Turn::Later => &mut self.later,
        }
    }
    fn take(&mut self, holder: &K, turn: Turn) {
        self.held += 1;
        self.held_later += usize::from(turn == Turn::Later);
        *self.held_by.entry(holder.clone()).or_default() += 1;
    }
    fn leave(&mut self, holder: &K, turn: Turn) {
        self.held -= 1;
        self.held_later -= usize::from(turn == Turn::Later);
        if let Some(held) = self.held_by.get_mut(holder) {
            *held -= 1;
            if *held == 0 {
                self.held_by.remove(holder);
            }
        }
    }
}

impl<K: Hash + Eq + Clone> Line<K> {
    fn push(&mut self, holder: &K, waiting: Waiting<K>) {
        match self.0.iter_mut().find(|(other, _)| other == holder) {
            Some((_, theirs)) => theirs.push_back(waiting),
            None => self.0.push_back((holder.clone(), VecDeque::from([waiting]))),
        }
    }
    /// The first who still waits, of the holder with the fewest places; of several, of the one that had its turn longest ago.
    fn pop(&mut self, held_by: &HashMap<K, usize>) -> Option<(K, Waiting<K>)> {
        for (_, theirs) in &mut self.0 {
            while theirs.front().is_some_and(Waiting::is_closed) {
                theirs.pop_front();
            }
        }
        self.0.retain(|(_, theirs)| !theirs.is_empty());
        let held = |(holder, _): &(K, _)| held_by.get(holder).copied().unwrap_or_default();
        let next = (0..self.0.len()).min_by_key(|at| held(&self.0[*at]))?;
        let (holder, mut theirs) = self.0.remove(next)?;
        let waiting = theirs.pop_front()?;
        if !theirs.is_empty() {
            self.0.push_back((holder.clone(), theirs));
        }
        Some((holder, waiting))
    }
    fn waiting(&self) -> usize {
        let waiting = self.0.iter().flat_map(|(_, theirs)| theirs);
        // Those that lost patience are in line until a place comes free.
        waiting.filter(|place| !place.is_closed()).count()
    }
}

impl<K: Hash + Eq + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        if let Some(places) = self.places.take() {
            places.give_back(&self.holder, self.turn);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::{FutureExt as _, poll};

    use super::{Turn::First, *};

    fn free(places: &Arc<Places<char>>, holder: char) -> Option<Place<char>> {
        places.enter(&holder, First).now_or_never().flatten()
    }

    #[tokio::test]
    async fn whoever_has_fewest_goes_first() {
        let places = Places::of(2, 2);
        let mut held = vec![free(&places, 'a').unwrap(), free(&places, 'a').unwrap()];
        let mut of_a: Vec<_> = (0..3).map(|_| Box::pin(places.enter(&'a', First))).collect();
        for waiting in &mut of_a {
            assert!(poll!(waiting).is_pending());
        }
        let mut of_b = Box::pin(places.enter(&'b', First));
        assert!(poll!(&mut of_b).is_pending());
        assert_eq!(places.counts(), (2, 4));
        held.pop();
        let b = of_b.now_or_never().flatten().expect("b has none and a has one");
        assert!(poll!(&mut of_a[0]).is_pending());
        drop(b);
        assert!(of_a.remove(0).now_or_never().flatten().is_some(), "nobody else waits");
    }

    #[tokio::test]
    async fn whoever_goes_away_keeps_no_place() {
        let places = Places::of(1, 1);
        let held = free(&places, 'a').unwrap();
        let (mut gone, mut late) = (Box::pin(places.enter(&'a', First)), Box::pin(places.enter(&'b', First)));
        assert!(poll!(&mut gone).is_pending() && poll!(&mut late).is_pending());
        drop(gone);
        drop(held);
        // It has its place and goes before it looks.
        drop(late);
        assert!(free(&places, 'c').is_some());
        let state = places.state.lock();
        assert_eq!((state.held, state.held_later, state.held_by.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn they_close_once_those_who_waited_had_their_turn() {
        let places = Places::of(1, 1);
        let held = free(&places, 'a').unwrap();
        let mut waiting = Box::pin(places.enter(&'b', First));
        assert!(poll!(&mut waiting).is_pending());
        let mut closing = Box::pin(places.close());
        assert!(poll!(&mut closing).is_pending());
        assert!(places.enter(&'c', First).await.is_none());
        drop(held);
        let last = waiting.await.unwrap();
        assert!(poll!(&mut closing).is_pending());
        drop(last);
        closing.await;
        assert!(places.is_closed() && free(&places, 'a').is_none());
    }
}
