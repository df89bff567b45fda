//! The authored rows of an NPC in use: shared by the NPC's actor and all sessions with the NPC.

use std::sync::Arc;

use parking_lot::Mutex;

use colloquy_core::{
    ids::{NpcId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{authored, directive::Directive};

pub(super) type NpcKey = (TenantScope, WorldId, NpcId);

/// An NPC, and its world with the NPC's settings applied.
#[derive(Debug, Clone)]
pub(super) struct AuthoredNpc {
    pub world: Arc<authored::World>,
    pub npc: Arc<authored::Npc>,
    /// All directives of the world.
    pub directives: Arc<[Directive]>,
}

/// The rows for sessions, without a message to the actor. Empty after an edit.
#[derive(Debug, Default)]
pub(super) struct NpcCell {
    inner: Mutex<CellInner>,
}

#[derive(Debug, Default)]
struct CellInner {
    rows: Option<AuthoredNpc>,
    /// Rises with every [`NpcCell::clear_rows`], so that rows read before an edit are not stored after the edit.
    edits: u64,
}

impl NpcCell {
    pub fn get(&self) -> Option<AuthoredNpc> {
        self.inner.lock().rows.clone()
    }
    pub fn clear_rows(&self) {
        let mut inner = self.inner.lock();
        inner.rows = None;
        inner.edits += 1;
    }
    /// Returns the number of edits so far.
    pub fn edit_count(&self) -> u64 {
        self.inner.lock().edits
    }
    /// Stores the rows. `false`: the rows were edited after the read.
    pub fn store_if_current(&self, rows: AuthoredNpc, edits: u64) -> bool {
        let mut inner = self.inner.lock();
        let current = inner.edits == edits;
        if current {
            inner.rows = Some(rows);
        }
        current
    }
}
