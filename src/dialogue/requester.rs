//! The requesters of cuts and rewinds, for the audit log and for the answers to repeated requests.

use chrono::{DateTime, Utc};

use colloquy_core::{ids::DialogueId, scope::Principal};
use colloquy_ports::{
    clock::IdSource,
    ledger::{audit::Edit, rewinds::RewindAcks},
};

/// The requester of a cut or a rewind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    pub who: Principal,
    /// The idempotency key, unique in a dialogue. Makes a retry safe.
    pub key: Option<String>,
    /// A dotted verb for the audit log: `session.interrupt`, …
    pub action: &'static str,
}

impl Requester {
    /// Returns the audit row of the request.
    #[must_use]
    pub fn audit_edit(&self, ids: &IdSource, moment: DateTime<Utc>, dialogue: DialogueId) -> Edit {
        Edit::made_by(&self.who, ids, moment, self.action, dialogue)
    }
}

/// Requesters that share an outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requesters {
    /// Requesters without an audit row yet. The first requester of a rewind requested its target.
    unaudited: Vec<Requester>,
    /// Keys of requesters that have an audit row, or need none.
    other_keys: Vec<String>,
}

impl From<Requester> for Requesters {
    fn from(requester: Requester) -> Self {
        Self {
            unaudited: vec![requester],
            other_keys: Vec::new(),
        }
    }
}

impl Requesters {
    /// Returns the requesters of a rewind. `author` requested the target, and `companions` requested less at the same
    /// time. `late` requesters got no answer from an earlier rewind or the end of a turn.
    ///
    /// A rewind whose author has no key takes the key of another requester, but no late key: a late key may have an
    /// outcome already.
    #[must_use]
    pub fn of_rewind(mut author: Requester, mut companions: Vec<Requester>, late: Self) -> Self {
        for other in &mut companions {
            other.key.take_if(|key| late.has_key(key));
        }
        if author.key.is_none() {
            author.key = companions.iter_mut().rev().find_map(|other| other.key.take());
        }
        let unaudited = std::iter::once(author).chain(late.unaudited).chain(companions);
        Self {
            unaudited: unaudited.collect(),
            other_keys: late.other_keys,
        }
    }

    /// Adds a requester, who gets an audit row. A repeat with the same key counts once.
    pub fn add_requester(&mut self, requester: Requester) {
        if !requester.key.as_ref().is_some_and(|key| self.has_key(key)) {
            self.unaudited.push(requester);
        }
    }

    /// Adds the key of a requester that has an audit row, or needs none.
    pub fn add_key(&mut self, key: Option<String>) {
        self.other_keys.extend(key.filter(|key| !self.has_key(key)));
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unaudited.is_empty() && self.other_keys.is_empty()
    }

    fn has_key(&self, key: &String) -> bool {
        self.keys().any(|other| other == key)
    }

    /// Returns the key of the first requester, which is the key of the rewind itself.
    #[must_use]
    pub fn own_key(&self) -> Option<&String> {
        self.unaudited.first()?.key.as_ref()
    }

    /// Returns the keys that have the same outcome as [`Self::own_key`].
    pub fn other_keys(&self) -> impl Iterator<Item = &String> {
        let unaudited = self.unaudited.iter().filter_map(|requester| requester.key.as_ref());
        self.other_keys
            .iter()
            .chain(unaudited)
            .filter(|key| self.own_key() != Some(*key))
    }

    /// Returns all keys, [`Self::own_key`] first.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.own_key().into_iter().chain(self.other_keys())
    }

    /// Returns the audit rows of the requests, the first requester's row first.
    #[must_use]
    pub fn audit_edits(&self, ids: &IdSource, moment: DateTime<Utc>, dialogue: DialogueId) -> Vec<Edit> {
        let edit = |requester: &Requester| requester.audit_edit(ids, moment, dialogue);
        self.unaudited.iter().map(edit).collect()
    }

    /// Returns the rows that the ledger writes for requesters whose outcome was written without them.
    #[must_use]
    pub fn acks(&self, ids: &IdSource, moment: DateTime<Utc>, dialogue: DialogueId) -> RewindAcks {
        RewindAcks {
            recorded_at: moment,
            keys: self.keys().map(|key| (ids.next_id(), key.clone())).collect(),
            edits: self.audit_edits(ids, moment, dialogue),
        }
    }
}
