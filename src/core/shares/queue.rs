//! A fair queue of work for one worker.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::FREE_PLACES_FACTOR;

/// A bounded queue in which givers take turns; each giver's work keeps its order. Each giver's share follows the rule
/// of [`super::Shares`].
#[derive(Debug)]
pub struct FairQueue<K, T> {
    size: usize,
    state: Mutex<QueueState<K, T>>,
    /// Notified after a push, and on close.
    changed: Notify,
}

#[derive(Debug)]
struct QueueState<K, T> {
    waiting: HashMap<K, VecDeque<T>>,
    /// Givers with waiting work, in the order of their turns.
    turns: VecDeque<K>,
    count: usize,
    closed: bool,
}

/// Why work was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotQueued {
    Full,
    Closed,
}

impl<K: Hash + Eq + Clone, T> FairQueue<K, T> {
    /// Creates a queue for at most `size` pieces of waiting work, at least one.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self {
            size: size.max(1),
            state: Mutex::new(QueueState {
                waiting: HashMap::new(),
                turns: VecDeque::new(),
                count: 0,
                closed: false,
            }),
            changed: Notify::new(),
        }
    }

    /// Queues work of `giver`.
    ///
    /// # Errors
    /// [`NotQueued`]: the queue is full for `giver` or for all givers, or the queue is closed.
    pub fn push(&self, giver: &K, work: T) -> Result<(), NotQueued> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(NotQueued::Closed);
        }
        let free = self.size - state.count;
        let has = state.waiting.get(giver).map_or(0, VecDeque::len);
        if free == 0 || (has > 0 && has >= FREE_PLACES_FACTOR * (free - 1)) {
            return Err(NotQueued::Full);
        }
        state.count += 1;
        if has == 0 {
            state.turns.push_back(giver.clone());
        }
        state.waiting.entry(giver.clone()).or_default().push_back(work);
        debug_assert!(state.count <= self.size, "no more work waits than the queue has places");
        debug_assert!(
            state.turns.len() == state.waiting.len(),
            "each giver with waiting work has one turn"
        );
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Takes the next piece of work, from the giver with the next turn; `None` if the queue is empty.
    pub fn try_pop(&self) -> Option<T> {
        self.state.lock().pop()
    }

    /// Waits for the next piece of work. `None`: the queue is closed and empty. For one worker.
    pub async fn pop(&self) -> Option<T> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(work) = state.pop() {
                    return Some(work);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Accepts no more work. The waiting work can still be taken.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }
}

impl<K: Hash + Eq + Clone, T> QueueState<K, T> {
    fn pop(&mut self) -> Option<T> {
        debug_assert!(
            self.turns.is_empty() == (self.count == 0),
            "waiting work has a giver with a turn"
        );
        let giver = self.turns.pop_front()?;
        let queue = self.waiting.get_mut(&giver)?;
        let work = queue.pop_front()?;
        self.count -= 1;
        if queue.is_empty() {
            self.waiting.remove(&giver);
        } else {
            self.turns.push_back(giver);
        }
        debug_assert!(
            self.turns.len() == self.waiting.len(),
            "each giver with waiting work has one turn"
        );
        Some(work)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn producers_alternate_and_each_keeps_its_order() {
        let queue = FairQueue::new(100);
        for work in 0..5 {
            queue.push(&'a', work).unwrap();
        }
        queue.push(&'b', 10).unwrap();
        queue.push(&'c', 20).unwrap();
        queue.push(&'b', 11).unwrap();
        let order: Vec<i32> = std::iter::from_fn(|| queue.try_pop()).collect();
        assert_eq!(order, [0, 10, 20, 1, 11, 2, 3, 4]);
        assert!(queue.state.lock().waiting.is_empty() && queue.state.lock().turns.is_empty());
    }

    #[test]
    fn heavy_producer_leaves_room_for_others() {
        let queue = FairQueue::new(10);
        let queued = (0..100).filter(|work| queue.push(&'a', *work).is_ok()).count();
        assert_eq!(queued, 8);
        assert_eq!(queue.push(&'a', 0), Err(NotQueued::Full));
        queue.push(&'b', 0).unwrap();
        assert_eq!(queue.try_pop(), Some(0));
    }

    #[test]
    fn queued_items_are_delivered_before_the_end() {
        let queue = FairQueue::new(4);
        let mut waiting = Box::pin(queue.pop());
        assert!(waiting.as_mut().now_or_never().is_none());
        queue.push(&'a', 1).unwrap();
        queue.close();
        assert_eq!(queue.push(&'a', 2), Err(NotQueued::Closed));
        assert_eq!(waiting.now_or_never(), Some(Some(1)));
        assert_eq!(queue.pop().now_or_never(), Some(None));
    }
}
