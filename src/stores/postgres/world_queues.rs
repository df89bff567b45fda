//! Queues for this node's writes to the memory of a world.
//!
//! A write that waits for a memory lock in the database holds a connection. The waiting writes of a busy world would
//! take all connections, and no other work could even read. Therefore only a limited number of writes per node proceeds
//! at a time, and the rest wait here in order of arrival. Writes that a caller waits for never queue behind background
//! writes.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use colloquy_core::ids::{TenantId, WorldId};
use colloquy_ports::ledger::priority::is_in_background;

/// The number of queues above which unused queues are removed.
const QUEUES_BEFORE_SWEEP: usize = 1_024;

type WorldKey = (TenantId, WorldId);

/// The writers of a world: a permit for each.
pub(super) struct WorldWriteQueue {
    urgent: Semaphore,
    background: Semaphore,
}

impl WorldWriteQueue {
    /// Waits for a slot. `None` means that the queue is closed.
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
    /// The number of slots per world.
    urgent: usize,
    background: usize,
}

impl WorldWriteQueues {
    /// A world may use a quarter of the `connections` but at least two. Of the `background` connections it may use all
    /// but one.
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
