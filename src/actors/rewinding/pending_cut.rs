//! Cuts of the running turn, in a session or a conversation: the caller is answered after the turn has ended.

use std::sync::Arc;

use crate::{
    actors::{
        InterruptCommand, InterruptOutcome, dialogue::load::LoadedDialogue, messages::ReplyHandle, node::Node,
        running_turn::RunningTurn,
    },
    dialogue::turn::CutRequester,
    ids::TurnId,
    memory::turn::{Turn, TurnStatus},
    ports::ledger::rewinds::RewindRecord,
    tenancy::Principal,
};

/// A request to cut the running turn.
pub(in crate::actors) struct PendingCut {
    id: TurnId,
    pub number: u32,
    /// The turn, once committed.
    said: Option<Arc<Turn>>,
    /// True if the turn was cut before the first character of its reply and dropped.
    dropped: bool,
    /// The heard length in Unicode scalar values of the text sent so far, as the client counted.
    heard: Option<usize>,
    /// True if the turn's commit, if any, records the caller.
    noted: bool,
    pub command: InterruptCommand,
    pub reply: ReplyHandle<InterruptOutcome>,
}

/// The result of a cut after the turn has ended.
pub(in crate::actors) enum CutOutcome {
    /// The reply ended before the cut. A rewind must cut at the heard length, in Unicode scalar values.
    TooLate(usize),
    /// The turn was cut before the first character of its reply. The record is stored with the key.
    Dropped(Arc<RewindRecord>),
    /// The answer for the caller, and the record stored with the key.
    Answered(InterruptOutcome, Arc<RewindRecord>),
}

impl PendingCut {
    /// `noted`: the commit records the caller.
    pub fn of_running_turn(
        running: &RunningTurn,
        heard: Option<usize>,
        noted: bool,
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
    ) -> Self {
        Self {
            id: running.id,
            number: running.number,
            said: None,
            dropped: false,
            heard,
            noted,
            command,
            reply,
        }
    }

    /// Notes a committed turn and the keys that its commit stored. A stored key of the present cut is dropped here.
    pub fn on_turn_committed(&mut self, turn: &Arc<Turn>, keys: &[String]) {
        if self.id == turn.id {
            self.said = Some(Arc::clone(turn));
            self.command.key.take_if(|key| keys.contains(key));
        }
    }

    /// Notes a turn that was cut before the first character of its reply.
    pub fn on_turn_dropped(&mut self, turn: TurnId) {
        self.dropped |= self.id == turn;
    }

    /// True if the turn's own cut `by` a requester is the present request.
    pub fn is_requested_by(&self, by: &CutRequester) -> bool {
        self.noted && self.command.key == by.key && self.command.who.subject == by.who.subject
    }

    /// Returns the caller, if only the rewind of the turn can record the caller.
    pub fn audit_entry(&self, action: &'static str) -> Option<(Principal, &'static str)> {
        (!self.noted || self.dropped).then(|| (self.command.who.clone(), action))
    }

    /// Returns the result of the cut in the present dialogue.
    pub fn outcome(&self, loaded: &LoadedDialogue, node: &Node) -> CutOutcome {
        let nothing = loaded.unchanged_outcome(node);
        let chars = match &self.said {
            Some(turn) => turn.reply_text.chars().count(),
            // The turn's own task never learned of the commit.
            None if loaded.head == Some(self.id) => usize::MAX,
            None => 0,
        };
        if let Some(heard) = self.heard.filter(|heard| *heard < chars) {
            return CutOutcome::TooLate(heard);
        }
        let cut = self.said.as_ref().filter(|turn| turn.status == TurnStatus::Interrupted);
        if let Some(turn) = cut {
            let cut = RewindRecord::for_live_cut(nothing.id, nothing.world, nothing.epoch, turn);
            return CutOutcome::Answered(InterruptOutcome::Cut { turn: turn.number }, Arc::new(cut));
        }
        if self.dropped {
            return CutOutcome::Dropped(Arc::new(nothing.into_dropped(self.number)));
        }
        let head_turn = nothing.head_turn;
        CutOutcome::Answered(InterruptOutcome::Idle { head_turn }, Arc::new(nothing))
    }
}
