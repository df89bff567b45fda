//! The idempotency keys of a session's turns, so that only repeated lines wait for a look-up.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use colloquy_memory::turn::Turn;

/// Turns remembered by key. The number is small because each turn holds its texts; older turns are looked up in the
/// ledger.
const MAX_REMEMBERED_TURNS: usize = 16;
/// Known keys of turns, of a hundred bytes or so per key. In a dialogue with more keys, every key is looked up.
pub(super) const MAX_KNOWN_KEYS: usize = 500;
/// Keys of lines that were unsaid before they were turns, unknown to the ledger. Only the latest keys are remembered,
/// for as long as the session is in memory.
const MAX_UNSAID_KEYS: usize = 64;

#[derive(Default)]
pub(super) struct TurnKeys {
    recent: VecDeque<(String, Arc<Turn>)>,
    /// Keys whose turn is in the ledger.
    in_ledger: HashSet<String>,
    /// Keys of unsaid lines, which a repeat must not say again; newest last.
    unsaid: VecDeque<String>,
    ledger_keys: LedgerKeys,
}

/// Keys that only the ledger has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LedgerKeys {
    #[default]
    None,
    /// Some may exist: the dialogue may have turns from before the load.
    Unread,
    /// Too many to be read.
    TooMany,
}

impl TurnKeys {
    /// `ledger_knows_more`: the dialogue may have turns from before the load.
    pub fn new(ledger_knows_more: bool) -> Self {
        let ledger_keys = if ledger_knows_more {
            LedgerKeys::Unread
        } else {
            LedgerKeys::None
        };
        Self {
            ledger_keys,
            ..Self::default()
        }
    }

    /// Resets the known keys, as for a dialogue that was loaded again.
    pub fn reset_known(&mut self, ledger_knows_more: bool) {
        *self = Self {
            unsaid: std::mem::take(&mut self.unsaid),
            ..Self::new(ledger_knows_more)
        };
    }

    /// Notes the key of an accepted line that was unsaid.
    pub fn mark_unsaid(&mut self, key: String) {
        if self.is_unsaid(&key) {
            return;
        }
        if self.unsaid.len() == MAX_UNSAID_KEYS {
            self.unsaid.pop_front();
        }
        self.unsaid.push_back(key);
        debug_assert!(
            self.unsaid.len() <= MAX_UNSAID_KEYS,
            "a session has a bounded number of keys"
        );
    }

    /// True if the key belongs to an unsaid line, unless the ledger has a turn with the key.
    pub fn is_unsaid(&self, key: &str) -> bool {
        self.unsaid.iter().any(|unsaid| unsaid == key)
    }

    pub fn find_turn(&self, key: &str) -> Option<&Arc<Turn>> {
        let entry = self.recent.iter().find(|(known_key, _)| known_key == key);
        entry.map(|(_, turn)| turn)
    }

    /// True if a key without a turn here may still belong to a turn in the ledger.
    pub fn needs_ledger_lookup(&self, key: &str) -> bool {
        self.ledger_keys != LedgerKeys::None || self.in_ledger.contains(key) || self.is_unsaid(key)
    }

    /// True if all keys of the dialogue should be read, at most [`MAX_KNOWN_KEYS`] and one, since some keys are
    /// unknown.
    pub fn needs_all_keys(&self) -> bool {
        self.ledger_keys == LedgerKeys::Unread
    }

    /// Adds keys of turns in the ledger, whether or not the turns stand.
    pub fn add_ledger_keys(&mut self, keys: Vec<String>) {
        if keys.len() > MAX_KNOWN_KEYS {
            self.ledger_keys = LedgerKeys::TooMany;
        } else {
            self.ledger_keys = LedgerKeys::None;
            self.in_ledger.extend(keys);
        }
    }

    pub fn remember_turn(&mut self, key: String, turn: Arc<Turn>) {
        if self.recent.len() == MAX_REMEMBERED_TURNS
            && let Some((key, _)) = self.recent.pop_front()
        {
            if self.in_ledger.len() < MAX_KNOWN_KEYS {
                self.in_ledger.insert(key);
            } else {
                self.ledger_keys = LedgerKeys::TooMany;
            }
        }
        self.recent.push_back((key, turn));
        debug_assert!(
            self.recent.len() <= MAX_REMEMBERED_TURNS,
            "a session remembers a bounded number of turns"
        );
    }
}
