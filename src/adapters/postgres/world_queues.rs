//! Who writes what is remembered in a world, of those of this node.
//!
//! Whoever waits for a lock of a memory in the database waits with a connection in hand: those of one busy world would
//! hold all of them, and nobody else could so much as read. So only so many of one node are let through at a time, and
//! the others wait here, in the order in which they came. Those that somebody waits for do not wait here for those that
//! nobody waits for.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    ids::{TenantId, WorldId},
    ports::ledger::priority::is_in_background,
};

/// So many are kept before those that nobody waits for are looked for.
const QUEUES_BEFORE_SWEEP: usize = 1_024;

type WorldKey = (TenantId, WorldId);

/// Those who write to one world: a permit each.
pub(super) struct WorldWriteQueue {
    urgent: Semaphore,
    background: Semaphore,
}

impl WorldWriteQueue {
    /// `None`: nobody is let through any more.
    pub(super) async fn acquire_slot(&self) -> Option<SemaphorePermit<'_>> {
        let room = if is_in_background() {
            &self.background
        } else {
            &self.urgent
        };
        room.acquire().await.ok()
    }
}

pub(super) struct WorldWriteQueues {
    queues: Mutex<HashMap<WorldKey, Weak<WorldWriteQueue>>>,
    /// How many there may be for one world.
    urgent: usize,
    background: usize,
}

impl WorldWriteQueues {
    /// One world may have a quarter of the `connections`, or two; and all but one of those that are for the `background`.
    pub(super) fn new(connections: u32, background: u32) -> Self {
        Self {
            queues: Mutex::default(),
            urgent: (connections / 4).max(2) as usize,
            background: (background - 1).max(1) as usize,
        }
    }

    pub(super) fn queue_of_world(&self, tenant: &TenantId, world: &WorldId) -> Arc<WorldWriteQueue> {
        let key = (tenant.clone(), world.clone());
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get(&key).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.len() >= QUEUES_BEFORE_SWEEP {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::new(WorldWriteQueue {
            urgent: Semaphore::new(self.urgent),
            background: Semaphore::new(self.background),
        });
        queues.insert(key, Arc::downgrade(&queue));
        queue
    }
}
