//! The idempotency keys of a session's latest turns, so that the usual line needs no look-up.

use std::{collections::VecDeque, sync::Arc};

use crate::memory::turn::Turn;

/// Turns remembered by key. Each holds its texts, so few; older keys are looked up in the ledger.
const REMEMBERED: usize = 16;

#[derive(Default)]
pub(super) struct Keys {
    recent: VecDeque<(String, Arc<Turn>)>,
    ledger_knows_more: bool,
}

impl Keys {
    /// `ledger_knows_more`: the dialogue may have turns from before it was loaded.
    pub fn new(ledger_knows_more: bool) -> Self {
        Self {
            recent: VecDeque::new(),
            ledger_knows_more,
        }
    }

    pub fn find(&self, key: &str) -> Option<&Arc<Turn>> {
        let known = self.recent.iter().find(|(known, _)| known == key);
        known.map(|(_, turn)| turn)
    }

    /// Whether a key that is not found here may still belong to a turn.
    pub fn ask_ledger(&self) -> bool {
        self.ledger_knows_more
    }

    pub fn remember(&mut self, key: String, turn: Arc<Turn>) {
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
            self.ledger_knows_more = true;
        }
        self.recent.push_back((key, turn));
    }
}
