//! The idempotency keys of a session's turns, so that no line but a repeated one waits for a look-up.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use crate::memory::turn::Turn;

/// Turns remembered by key. Each holds its texts, so few; older ones are looked up in the ledger.
const REMEMBERED: usize = 16;
/// Keys that are known to belong to turns, of a hundred bytes or so each. Of a dialogue with more of them, each
/// key is looked up.
pub(super) const MOST: usize = 500;
/// Keys of lines that were taken back before they were turns, of which the ledger knows nothing: of the latest, for as long
/// as the session is in memory.
const UNSAID: usize = 64;

#[derive(Default)]
pub(super) struct Keys {
    recent: VecDeque<(String, Arc<Turn>)>,
    /// Those of which the ledger has the turn.
    in_ledger: HashSet<String>,
    /// Of lines that are not to be said when somebody repeats them, newest last.
    unsaid: VecDeque<String>,
    others: Others,
}

/// Keys that only the ledger has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Others {
    #[default]
    None,
    /// There may be some: the dialogue may have turns from before it was loaded.
    Unread,
    /// There are too many to be read.
    TooMany,
}

impl Keys {
    /// `ledger_knows_more`: the dialogue may have turns from before it was loaded.
    pub fn new(ledger_knows_more: bool) -> Self {
        let others = if ledger_knows_more {
            Others::Unread
        } else {
            Others::None
        };
        Self {
            others,
            ..Self::default()
        }
    }

    /// The same for a dialogue that is as if it were read anew.
    pub fn begin_anew(&mut self, ledger_knows_more: bool) {
        *self = Self {
            unsaid: std::mem::take(&mut self.unsaid),
            ..Self::new(ledger_knows_more)
        };
    }

    /// A line with this key was accepted, and taken back.
    pub fn unsay(&mut self, key: String) {
        if self.is_unsaid(&key) {
            return;
        }
        if self.unsaid.len() == UNSAID {
            self.unsaid.pop_front();
        }
        self.unsaid.push_back(key);
    }

    /// Whether it belongs to such a line, unless the ledger has a turn with it.
    pub fn is_unsaid(&self, key: &str) -> bool {
        self.unsaid.iter().any(|unsaid| unsaid == key)
    }

    pub fn find(&self, key: &str) -> Option<&Arc<Turn>> {
        let known = self.recent.iter().find(|(known, _)| known == key);
        known.map(|(_, turn)| turn)
    }

    /// Whether a key that is not found here may still belong to a turn.
    pub fn ask_ledger(&self, key: &str) -> bool {
        self.others != Others::None || self.in_ledger.contains(key) || self.is_unsaid(key)
    }

    /// Whether to read all keys of the dialogue, [`MOST`] and one at most, since not all are known.
    pub fn want_all(&self) -> bool {
        self.others == Others::Unread
    }

    /// The ledger has turns with these keys, whether or not they stand.
    pub fn learn(&mut self, keys: Vec<String>) {
        if keys.len() > MOST {
            self.others = Others::TooMany;
        } else {
            self.others = Others::None;
            self.in_ledger.extend(keys);
        }
    }

    pub fn remember(&mut self, key: String, turn: Arc<Turn>) {
        if self.recent.len() == REMEMBERED
            && let Some((key, _)) = self.recent.pop_front()
        {
            if self.in_ledger.len() < MOST {
                self.in_ledger.insert(key);
            } else {
                self.others = Others::TooMany;
            }
        }
        self.recent.push_back((key, turn));
    }
}
