//! Who writes what is remembered in a world, of those of this node.
//!
//! Whoever waits for a lock of a memory in the database waits with a connection in hand: those of one busy world would
//! hold all of them, and nobody else could so much as read. So only so many of one node are let through at a time, and
//! the others wait here. Somebody waits for a move of a head, so of those who wait here it goes before all but one of those
//! that nobody waits for; not before those who were let through, and may be waiting for each other in the database. Whoever
//! writes to all of the world waits for those, and holds up all who come later.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Door, OwnedSemaphorePermit, Semaphore};

use crate::ids::{TenantId, WorldId};

/// So many are kept before those that nobody waits for are looked for.
const MANY: usize = 1_024;

type Place = (TenantId, WorldId);

/// How one of them writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Beside those who write to other memories of the world.
    Beside,
    /// As [`Self::Beside`], and before all but one of them.
    First,
    /// When nobody else writes there.
    Alone,
}

/// Those who write to one world.
pub(super) struct Queue {
    /// Some for whoever writes, in the order in which they came.
    room: Arc<Semaphore>,
    all: u32,
    /// Held by the one of those that nobody waits for which is next.
    door: Door<()>,
}

impl Queue {
    /// `None`: nobody is let through any more.
    pub(super) async fn wait(&self, turn: Turn) -> Option<OwnedSemaphorePermit> {
        let _next = match turn {
            Turn::First => None,
            Turn::Beside | Turn::Alone => Some(self.door.lock().await),
        };
        let room = match turn {
            Turn::First | Turn::Beside => 1,
            Turn::Alone => self.all,
        };
        Arc::clone(&self.room).acquire_many_owned(room).await.ok()
    }
}

pub(super) struct Worlds {
    queues: Mutex<HashMap<Place, Weak<Queue>>>,
    /// How many write to one world at the same time, at most.
    beside: u32,
}

impl Worlds {
    /// A quarter of the `connections` may be those of one world, or two.
    pub(super) fn new(connections: u32) -> Self {
        Self {
            queues: Mutex::default(),
            beside: (connections / 4).max(2),
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
            room: Arc::new(Semaphore::new(self.beside as usize)),
            all: self.beside,
            door: Door::default(),
        });
        queues.insert(key, Arc::downgrade(&queue));
        queue
    }
}
