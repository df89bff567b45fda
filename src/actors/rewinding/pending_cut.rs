//! Cuts of the turn that runs, in a session or a conversation: who asked is told once it has ended.

use std::sync::Arc;

use crate::{
    actors::{
        InterruptCommand, InterruptOutcome, messages::ReplyHandle, registry::Node, running_turn::RunningTurn,
        session::load::LoadedDialogue,
    },
    dialogue::turn::CutRequester,
    ids::TurnId,
    memory::turn::{Turn, TurnStatus},
    ports::ledger::rewinds::RewindRecord,
    tenancy::Principal,
};

/// Somebody asked to cut the turn that runs.
pub(in crate::actors) struct PendingCut {
    id: TurnId,
    pub number: u32,
    /// The turn, once it is committed.
    said: Option<Arc<Turn>>,
    /// It was cut before the first character of its reply, and is none.
    dropped: bool,
    /// What was heard, in Unicode scalar values of what was sent so far, as the client counted.
    heard: Option<usize>,
    /// The commit writes down who asked, if there is one.
    noted: bool,
    pub wish: InterruptCommand,
    pub ask: ReplyHandle<InterruptOutcome>,
}

/// What a cut has come to, once the turn has ended.
pub(in crate::actors) enum CutOutcome {
    /// It had been said to its end by then: it is to be cut where it was heard, in Unicode scalar values.
    TooLate(usize),
    /// It was cut before the first character of its reply: what its key is kept with.
    Dropped(Arc<RewindRecord>),
    /// What who asked is told, and its key is kept with.
    Answered(InterruptOutcome, Arc<RewindRecord>),
}

impl PendingCut {
    /// `noted`: the commit writes down who asked.
    pub fn of_running_turn(
        running: &RunningTurn,
        heard: Option<usize>,
        noted: bool,
        wish: InterruptCommand,
        ask: ReplyHandle<InterruptOutcome>,
    ) -> Self {
        Self {
            id: running.id,
            number: running.number,
            said: None,
            dropped: false,
            heard,
            noted,
            wish,
            ask,
        }
    }

    /// A turn was committed, with the cuts of these keys: if it is this one, nothing is left to keep of them.
    pub fn on_turn_committed(&mut self, turn: &Arc<Turn>, keys: &[String]) {
        if self.id == turn.id {
            self.said = Some(Arc::clone(turn));
            self.wish.key.take_if(|key| keys.contains(key));
        }
    }

    /// A turn was cut before the first character of its reply.
    pub fn on_turn_dropped(&mut self, turn: TurnId) {
        self.dropped |= self.id == turn;
    }

    /// Whether the turn's own cut, which is `by` somebody, is this one.
    pub fn is_requested_by(&self, by: &CutRequester) -> bool {
        self.noted && self.wish.key == by.key && self.wish.who.subject == by.who.subject
    }

    /// Who asked, if nothing else writes that down once the turn is taken back with others.
    pub fn audit_entry(&self, action: &'static str) -> Option<(Principal, &'static str)> {
        (!self.noted || self.dropped).then(|| (self.wish.who.clone(), action))
    }

    /// What it has come to in the dialogue as it is now.
    pub fn outcome(&self, loaded: &LoadedDialogue, node: &Node) -> CutOutcome {
        let nothing = loaded.unchanged_outcome(node);
        let chars = match &self.said {
            Some(turn) => turn.reply_text.chars().count(),
            // Whether it was committed, its own task never learned.
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
