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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::pool::background_of;
use crate::{
    ids::{TenantId, WorldId},
    ports::ledger::urgency::is_in_background,
};

/// So many are kept before those that nobody waits for are looked for.
const MANY: usize = 1_024;

type Place = (TenantId, WorldId);

/// Those who write to one world.
pub(super) struct Queue {
    urgent: Arc<Semaphore>,
    background: Arc<Semaphore>,
}

impl Queue {
    /// `None`: nobody is let through any more.
    pub(super) async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        let room = if is_in_background() {
            &self.background
        } else {
            &self.urgent
        };
        Arc::clone(room).acquire_owned().await.ok()
    }
}

pub(super) struct Worlds {
    queues: Mutex<HashMap<Place, Weak<Queue>>>,
    /// How many may write to one world of those that somebody waits for, and of the others.
    urgent: usize,
    background: usize,
}

impl Worlds {
    /// One world has a quarter of the `connections`, or two, for those that somebody waits for; and half of those that there
    /// are for the others.
    pub(super) fn new(connections: u32) -> Self {
        Self {
            queues: Mutex::default(),
            urgent: (connections / 4).max(2) as usize,
            background: background_of(connections).div_ceil(2),
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
            urgent: Arc::new(Semaphore::new(self.urgent)),
            background: Arc::new(Semaphore::new(self.background)),
        });
        queues.insert(key, Arc::downgrade(&queue));
        queue
    }
}
