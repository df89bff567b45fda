//! The idempotency keys of a session's turns, so that no line but a repeated one waits for a look-up.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use crate::memory::turn::Turn;

/// Turns remembered by key. Each holds its texts, so few; older ones are looked up in the ledger.
const MAX_REMEMBERED_TURNS: usize = 16;
/// Keys that are known to belong to turns, of a hundred bytes or so each. Of a dialogue with more of them, each
/// key is looked up.
pub(super) const MAX_KNOWN_KEYS: usize = 500;
/// Keys of lines that were taken back before they were turns, of which the ledger knows nothing: of the latest, for as long
/// as the session is in memory.
const MAX_UNSAID_KEYS: usize = 64;

#[derive(Default)]
pub(super) struct TurnKeys {
    recent: VecDeque<(String, Arc<Turn>)>,
    /// Those of which the ledger has the turn.
    in_ledger: HashSet<String>,
    /// Of lines that are not to be said when somebody repeats them, newest last.
    unsaid: VecDeque<String>,
    others: LedgerKeys,
}

/// Keys that only the ledger has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LedgerKeys {
    #[default]
    None,
    /// There may be some: the dialogue may have turns from before it was loaded.
    Unread,
    /// There are too many to be read.
    TooMany,
}

impl TurnKeys {
    /// `ledger_knows_more`: the dialogue may have turns from before it was loaded.
    pub fn new(ledger_knows_more: bool) -> Self {
        let others = if ledger_knows_more {
            LedgerKeys::Unread
        } else {
            LedgerKeys::None
        };
        Self {
            others,
            ..Self::default()
        }
    }

    /// The same for a dialogue that is as if it were read anew.
    pub fn reset_known(&mut self, ledger_knows_more: bool) {
        *self = Self {
            unsaid: std::mem::take(&mut self.unsaid),
            ..Self::new(ledger_knows_more)
        };
    }

    /// A line with this key was accepted, and taken back.
    pub fn mark_unsaid(&mut self, key: String) {
        if self.is_unsaid(&key) {
            return;
        }
        if self.unsaid.len() == MAX_UNSAID_KEYS {
            self.unsaid.pop_front();
        }
        self.unsaid.push_back(key);
    }

    /// Whether it belongs to such a line, unless the ledger has a turn with it.
    pub fn is_unsaid(&self, key: &str) -> bool {
        self.unsaid.iter().any(|unsaid| unsaid == key)
    }

    pub fn find_turn(&self, key: &str) -> Option<&Arc<Turn>> {
        let known = self.recent.iter().find(|(known, _)| known == key);
        known.map(|(_, turn)| turn)
    }

    /// Whether a key that is not found here may still belong to a turn.
    pub fn needs_ledger_lookup(&self, key: &str) -> bool {
        self.others != LedgerKeys::None || self.in_ledger.contains(key) || self.is_unsaid(key)
    }

    /// Whether to read all keys of the dialogue, [`MAX_KNOWN_KEYS`] and one at most, since not all are known.
    pub fn needs_all_keys(&self) -> bool {
        self.others == LedgerKeys::Unread
    }

    /// The ledger has turns with these keys, whether or not they stand.
    pub fn add_ledger_keys(&mut self, keys: Vec<String>) {
        if keys.len() > MAX_KNOWN_KEYS {
            self.others = LedgerKeys::TooMany;
        } else {
            self.others = LedgerKeys::None;
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
                self.others = LedgerKeys::TooMany;
            }
        }
        self.recent.push_back((key, turn));
    }
}
