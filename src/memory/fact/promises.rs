//! Which statements are promises, goals and intentions.

use super::{FactKind, Statement, Tense};
use crate::party;

impl FactKind {
    /// True if a statement of this kind and tense is a promise or a goal: still to be done, and asked about while open.
    #[must_use]
    pub fn is_open_promise(self, tense: Tense) -> bool {
        match self {
            Self::Goal | Self::Todo => tense != Tense::Past,
            Self::Decision | Self::Event => tense == Tense::Future,
            _ => false,
        }
    }

    /// True if a statement of this kind and tense tells what somebody promises or means to do.
    #[must_use]
    pub fn is_intention(self, tense: Tense) -> bool {
        self.is_open_promise(tense) || self == Self::Decision && tense != Tense::Past
    }
}

impl Statement {
    /// True if the statement is a promise or a goal, whoever speaks of it ([`FactKind::is_open_promise`]).
    #[must_use]
    pub fn is_open_promise(&self) -> bool {
        self.kind.is_open_promise(self.tense)
    }

    /// True for an open promise or goal by its maker's word: of the speaker itself, or a duty that an NPC gives a
    /// player. What a player says of the NPC's promises is hearsay.
    #[must_use]
    pub fn is_promise_of_maker(&self) -> bool {
        let gives_duty = || !party::is_player(&self.speaker) && party::is_player(&self.subject);
        self.is_open_promise() && (self.subject == self.speaker || gives_duty())
    }
}
