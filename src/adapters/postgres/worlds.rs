//! Who writes what is remembered in a world, of those of this node.
//!
//! One writer at a time may (`Lock::Memory`), and whoever waits for that in the database waits with a connection in hand:
//! the jobs of one busy world would hold all of them, and nobody else could so much as read. So those of one node wait
//! here first, and at most one of them has a connection. Somebody waits for a move of a head, so it goes before all but
//! one of those that nobody waits for.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::ids::{TenantId, WorldId};

/// So many are kept before those that nobody waits for are looked for.
const MANY: usize = 1_024;

type Place = (TenantId, WorldId);

/// Those who write to one world.
#[derive(Default)]
pub(super) struct Queue {
    /// Held by whoever writes.
    turn: Arc<Turn<()>>,
    /// Held by the one of those that nobody waits for which is next.
    door: Turn<()>,
}

impl Queue {
    pub(super) async fn wait(&self, first: bool) -> OwnedMutexGuard<()> {
        let _next = if first { None } else { Some(self.door.lock().await) };
        Arc::clone(&self.turn).lock_owned().await
    }
}

#[derive(Default)]
pub(super) struct Worlds(Mutex<HashMap<Place, Weak<Queue>>>);

impl Worlds {
    pub(super) fn queue(&self, tenant: &TenantId, world: &WorldId) -> Arc<Queue> {
        let key = (tenant.clone(), world.clone());
        let mut worlds = self.0.lock();
        if let Some(queue) = worlds.get(&key).and_then(Weak::upgrade) {
            return queue;
        }
        if worlds.len() >= MANY {
            worlds.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::default();
        worlds.insert(key, Arc::downgrade(&queue));
        queue
    }
}
