//! The rewind requests of a dialogue, and the rewind that is running.

use std::sync::Arc;

use actix::Message;

use super::kind::DialogueBehaviour;
use crate::rewind_queue::{RecentRewinds, RewindQueue};
use colloquy_core::ids::TurnId;
use colloquy_dialogue::turn::{CommittedTurn, TurnError};
use colloquy_ports::ledger::rewinds::RewindRecord;

/// Starts the rewinds requested so far.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct BeginRewind;

/// The rewind requests of a dialogue, and the results of earlier rewinds.
pub(crate) struct Rewinds<K: DialogueBehaviour> {
    pub queue: RewindQueue<K::Caller>,
    /// Number of requests that may soon request a rewind. Simultaneous requests become a single rewind.
    pub preparing: usize,
    pub recent: RecentRewinds,
    /// An applied rewind for callers that wait for a further rewind.
    pub applied: Option<Arc<RewindRecord>>,
    /// The turn being reinstated, or whose reinstatement failed.
    pub reinstating: Option<TurnId>,
    /// True if only the ledger knows the outcome of a rewind. The running turn ends first; then the whole state is
    /// loaded again.
    pub in_doubt: bool,
    /// True if a rewind in doubt takes turns back. Lines that were queued before do not outlive such a rewind.
    pub in_doubt_takes_back: bool,
}

/// The rewind that is running in the ledger.
#[derive(Default)]
pub(crate) struct RewindInFlight {
    /// The result of the running turn, if the turn ended meanwhile. The rewind decides whether the turn stands.
    pub(super) turn_result: Option<Box<Result<CommittedTurn, TurnError>>>,
    /// True if the rewind takes turns back, and not only the end of the last reply.
    pub(super) takes_turns_back: bool,
    /// True if the rewind pauses the conversation, false if it ends a pause; `None`: neither.
    pub pauses: Option<bool>,
    /// True if a load was wanted meanwhile.
    pub load_after: bool,
}

impl<K: DialogueBehaviour> Default for Rewinds<K> {
    fn default() -> Self {
        Self {
            queue: RewindQueue::default(),
            preparing: 0,
            recent: RecentRewinds::default(),
            applied: None,
            reinstating: None,
            in_doubt: false,
            in_doubt_takes_back: false,
        }
    }
}
