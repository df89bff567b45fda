//! The plan of a rewind.

use chrono::TimeDelta;

use crate::turn::PartialReply;
use colloquy_core::ids::TurnId;
use colloquy_memory::turn::Intent;
use colloquy_ports::ledger::rewinds::Replacement;

/// The new head, and the turn that replaces the old turn on top.
pub(super) struct RewindPlan {
    pub(super) number: u32,
    pub(super) to: Option<TurnId>,
    pub(super) replacement: Option<Replacement>,
    pub(super) intent: Option<Intent>,
    pub(super) unfinished: Option<PartialReply>,
    /// How long the jobs of turns that stand again after a resume are held.
    pub(super) hold: TimeDelta,
}

impl RewindPlan {
    pub(super) const fn with_head(number: u32, to: Option<TurnId>) -> Self {
        Self {
            number,
            to,
            replacement: None,
            intent: None,
            unfinished: None,
            hold: TimeDelta::zero(),
        }
    }
}
