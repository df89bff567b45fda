//! Who writes what is remembered in a world, of those of this node.
//!
//! Whoever waits for a lock of a memory in the database waits with a connection in hand: those of one busy world would
//! hold all of them, and nobody else could so much as read. So only so many of one node are let through at a time, and
//! the others wait here, in the order in which they came. Those that somebody waits for do not wait here for those that
//! nobody waits for; and while a head is moved, little begins that nobody waits for ([`Hurry`]).

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::{Instant, timeout},
};

use crate::{
    ids::{TenantId, WorldId},
    ports::ledger::urgency::is_in_background,
};

/// So many are kept before those that nobody waits for are looked for.
const MANY: usize = 1_024;

type Place = (TenantId, WorldId);

/// For how long what nobody waits for waits for those who come first of all: longer than one of them takes. After so long
/// nothing waits for as long again, so that at least half of the time is its own, however many of them there are and
/// whose ever they are.
const PATIENCE: Duration = Duration::from_millis(25);

/// How many come first of all ([`first_of_all`]) and write: whoever moves a head. On few cores, each statement that runs
/// beside theirs makes them wait.
///
/// [`first_of_all`]: crate::ports::ledger::urgency::first_of_all
pub(super) struct Hurry {
    running: watch::Sender<usize>,
    /// Until when nothing waits any more.
    waited_enough: Mutex<Option<Instant>>,
}

impl Hurry {
    pub(super) fn new() -> Self {
        Self {
            running: watch::Sender::new(0),
            waited_enough: Mutex::default(),
        }
    }

    /// One more, until that is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Hurrying {
        self.running.send_modify(|running| *running += 1);
        Hurrying(self.clone())
    }

    /// Waits until there is none, or a while.
    pub(super) async fn pass(&self) {
        if self.waited_enough.lock().is_some_and(|until| Instant::now() < until) {
            return;
        }
        let mut running = self.running.subscribe();
        let none = running.wait_for(|running| *running == 0);
        if timeout(PATIENCE, none).await.is_err() {
            self.waited_enough.lock().replace(Instant::now() + PATIENCE);
        }
    }
}

/// See [`Hurry::begin`].
pub(super) struct Hurrying(Arc<Hurry>);

impl Drop for Hurrying {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

/// Those who write to one world: a permit each.
pub(super) struct Queue {
    urgent: Semaphore,
    background: Semaphore,
}

impl Queue {
    /// `None`: nobody is let through any more.
    pub(super) async fn wait(&self) -> Option<SemaphorePermit<'_>> {
        let room = if is_in_background() {
            &self.background
        } else {
            &self.urgent
        };
        room.acquire().await.ok()
    }
}

pub(super) struct Worlds {
    queues: Mutex<HashMap<Place, Weak<Queue>>>,
    /// How many there may be for one world.
    urgent: usize,
    background: usize,
}

impl Worlds {
    /// One world may have a quarter of the `connections`, or two; and all but one of those that are for the `background`.
    pub(super) fn new(connections: u32, background: u32) -> Self {
        Self {
            queues: Mutex::default(),
            urgent: (connections / 4).max(2) as usize,
            background: (background - 1).max(1) as usize,
        }
    }

    pub(super) fn queue(&self, tenant: &TenantId, world: &WorldId) -> Arc<Queue> {
        let key = (tenant.clone(), world.clone());
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get(&key).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.len() >= MANY {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::new(Queue {
            urgent: Semaphore::new(self.urgent),
            background: Semaphore::new(self.background),
        });
        queues.insert(key, Arc::downgrade(&queue));
        queue
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn nothing_begins_while_somebody_hurries_but_not_for_ever() {
        let hurry = Arc::new(Hurry::new());
        let passes = || hurry.pass().now_or_never().is_some();
        assert!(passes());

        let (first, second) = (hurry.begin(), hurry.begin());
        assert!(!passes());
        drop(first);
        assert!(!passes());
        let waiting = tokio::spawn({
            let hurry = hurry.clone();
            async move { hurry.pass().await }
        });
        drop(second);
        assert!(passes());
        assert!(waiting.await.is_ok());

        // Whoever never ends has half of the time: what waited for so long, and what comes next, goes on.
        let _endless = hurry.begin();
        assert!(!passes());
        hurry.pass().await;
        assert!(passes());
        tokio::time::sleep(PATIENCE).await;
        assert!(!passes());
    }
}
