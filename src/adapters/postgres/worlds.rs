//! Who writes what is remembered in a world, of those of this node.
//!
//! One writer at a time may (`Lock::Memory`), and whoever waits for that in the database waits with a connection in hand:
//! the jobs of one busy world would hold all of them, and nobody else could so much as read. So those of one node wait
//! here first, and at most one of them has a connection.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

use crate::ids::{TenantId, WorldId};

/// So many are kept before those that nobody waits for are looked for.
const MANY: usize = 1_024;

type Place = (TenantId, WorldId);

#[derive(Default)]
pub(super) struct Worlds(Mutex<HashMap<Place, Weak<Turn<()>>>>);

impl Worlds {
    /// Held by whoever writes.
    pub(super) fn turn(&self, tenant: &TenantId, world: &WorldId) -> Arc<Turn<()>> {
        let key = (tenant.clone(), world.clone());
        let mut worlds = self.0.lock();
        if let Some(turn) = worlds.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        if worlds.len() >= MANY {
            worlds.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        worlds.insert(key, Arc::downgrade(&turn));
        turn
    }
}
