//! Cuts of the running turn, in a session or a conversation: the caller is answered after the turn has ended.

use std::sync::Arc;

use super::load::LoadedDialogue;
use crate::{InterruptOutcome, messages::ReplyHandle, running_turn::RunningTurn};
use colloquy_core::ids::TurnId;
use colloquy_dialogue::requester::Requester;
use colloquy_memory::turn::{Turn, TurnStatus};

/// A request to cut the running turn.
pub(crate) struct PendingCut {
    id: TurnId,
    pub number: u32,
    /// The turn, once committed.
    committed_turn: Option<Arc<Turn>>,
    /// True if the turn was cut before the first character of its reply and dropped.
    dropped: bool,
    /// The heard length in Unicode scalar values of the text sent so far, as the client counted.
    heard_chars: Option<usize>,
    /// True if the turn's commit, if any, records the requester.
    noted: bool,
    pub requester: Requester,
    pub reply: ReplyHandle<InterruptOutcome>,
}

/// The result of a cut after the turn has ended.
pub(crate) enum CutOutcome {
    /// The reply ended before the cut. A rewind must cut at the heard length, in Unicode scalar values.
    TooLate(usize),
    /// The answer for the caller.
    Answered(InterruptOutcome),
}

impl PendingCut {
    /// `noted`: the commit records the requester.
    pub fn of_running_turn(
        running: &RunningTurn,
        heard_chars: Option<usize>,
        noted: bool,
        requester: Requester,
        reply: ReplyHandle<InterruptOutcome>,
    ) -> Self {
        Self {
            id: running.id,
            number: running.number,
            committed_turn: None,
            dropped: false,
            heard_chars,
            noted,
            requester,
            reply,
        }
    }

    /// Notes a committed turn and the keys that its commit stored. A stored key of the present cut is dropped here.
    pub fn on_turn_committed(&mut self, turn: &Arc<Turn>, keys: &[String]) {
        if self.id == turn.id {
            self.committed_turn = Some(Arc::clone(turn));
            self.requester.key.take_if(|key| keys.contains(key));
        }
    }

    /// Notes a turn that was cut before the first character of its reply.
    pub fn on_turn_dropped(&mut self, turn: TurnId) {
        self.dropped |= self.id == turn;
    }

    /// True if `requester`, of a cut of the turn, made the present request.
    pub fn is_requested_by(&self, requester: &Requester) -> bool {
        self.noted && self.requester.key == requester.key && self.requester.who.subject == requester.who.subject
    }

    /// True if the turn's commit writes the audit row, and not the rewind of the turn.
    pub fn is_audited(&self) -> bool {
        self.noted && !self.dropped
    }

    /// Returns the result of the cut in the present dialogue.
    pub fn outcome(&self, loaded: &LoadedDialogue) -> CutOutcome {
        let chars = match &self.committed_turn {
            Some(turn) => turn.reply_text.chars().count(),
            // The turn's own task never learned of the commit.
            None if loaded.head == Some(self.id) => usize::MAX,
            None => 0,
        };
        if let Some(heard_chars) = self.heard_chars.filter(|heard_chars| *heard_chars < chars) {
            return CutOutcome::TooLate(heard_chars);
        }
        let turn = self.number;
        CutOutcome::Answered(match &self.committed_turn {
            Some(committed) if committed.status == TurnStatus::Interrupted => InterruptOutcome::Cut { turn },
            _ if self.dropped => InterruptOutcome::Dropped { turn },
            _ => InterruptOutcome::Idle {
                head_turn: loaded.dialogue.head_turn,
            },
        })
    }
}
