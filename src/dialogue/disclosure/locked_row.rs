//! Rows that some players may not hear.

use std::collections::BTreeSet;

use colloquy_memory::{
    disclosure::locks::DisclosureLocks, episode::Episode, fact::Fact, insight::EarlierInsight, summary::Meeting,
};
use colloquy_ports::ledger::facts::NamingFact;

/// A row with the locks of its content.
pub(crate) trait LockedRow {
    /// True if a greeting may have a locked row: each prompt of the session has such rows anyway.
    const IS_FOR_GREETINGS: bool;
    fn locks(&self) -> &DisclosureLocks;
}

impl LockedRow for Fact {
    const IS_FOR_GREETINGS: bool = true;
    fn locks(&self) -> &DisclosureLocks {
        &self.locks
    }
}
impl LockedRow for NamingFact {
    const IS_FOR_GREETINGS: bool = true;
    fn locks(&self) -> &DisclosureLocks {
        &self.locks
    }
}
impl LockedRow for Meeting {
    const IS_FOR_GREETINGS: bool = true;
    fn locks(&self) -> &DisclosureLocks {
        static NO_LOCKS: DisclosureLocks = DisclosureLocks(BTreeSet::new());
        self.summary.as_ref().map_or(&NO_LOCKS, |recap| &recap.locks)
    }
}
impl LockedRow for Episode {
    const IS_FOR_GREETINGS: bool = false;
    fn locks(&self) -> &DisclosureLocks {
        &self.locks
    }
}
impl LockedRow for EarlierInsight {
    const IS_FOR_GREETINGS: bool = false;
    fn locks(&self) -> &DisclosureLocks {
        &self.insight.locks
    }
}
