//! Who writes what is remembered in a world, of those of this node that somebody waits for.
//!
//! Whoever waits for a lock of a memory in the database waits with a connection in hand: those of one busy world would
//! hold all of them, and nobody else could so much as read. So only so many of one node are let through at a time, and
//! the others wait here, in the order in which they came. Those that nobody waits for have few connections as it is.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::ids::{TenantId, WorldId};

/// So many are kept before those that nobody waits for are looked for.
const MANY: usize = 1_024;

type Place = (TenantId, WorldId);

pub(super) struct Worlds {
    /// Those who write to a world have a permit each.
    queues: Mutex<HashMap<Place, Weak<Semaphore>>>,
    /// How many there are for a world.
    beside: usize,
}

impl Worlds {
    /// A quarter of the `connections` may be those of one world, or two.
    pub(super) fn new(connections: u32) -> Self {
        Self {
            queues: Mutex::default(),
            beside: (connections / 4).max(2) as usize,
        }
    }

    pub(super) fn queue(&self, tenant: &TenantId, world: &WorldId) -> Arc<Semaphore> {
        let key = (tenant.clone(), world.clone());
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get(&key).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.len() >= MANY {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::new(Semaphore::new(self.beside));
        queues.insert(key, Arc::downgrade(&queue));
        queue
    }
}
