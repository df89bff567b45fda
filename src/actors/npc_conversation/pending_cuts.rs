//! Interrupts of the running line until its end. Every interrupt is answered with the result of its cut.

use std::sync::Arc;

use actix::Context;

use super::{ConversationPhase, NpcConversation, pauses::CutWaiter, rewinds::ConversationRewindCaller};
use crate::{
    actors::rewinding::{self, CutOutcome, PendingCut},
    dialogue::rewind::RewindTarget,
    ids::TurnId,
    memory::turn::Turn,
};

impl NpcConversation {
    /// Notes a committed line and the keys of its cuts: the stored keys need no further record.
    pub(super) fn mark_cuts_committed(&mut self, line: &Arc<Turn>, keys: &[String]) {
        for cutting in &mut self.pending_cuts {
            if let CutWaiter::Cut(cut) = cutting {
                cut.on_turn_committed(line, keys);
            }
        }
    }

    /// Notes a line that was cut before its first character.
    pub(super) fn mark_cuts_dropped(&mut self, line: TurnId) {
        for cutting in &mut self.pending_cuts {
            if let CutWaiter::Cut(cut) = cutting {
                cut.on_turn_dropped(line);
            }
        }
    }

    /// Resolves a cut after the line's commit or failure. A line that had ended before the cut is cut at the heard
    /// length.
    pub(super) fn resolve_cut(&mut self, cut: PendingCut, ctx: &mut Context<Self>) {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return cut.ask.answer(Err(self.overloaded_error()));
        };
        let came = cut.outcome(loaded, &self.node);
        let PendingCut { number, wish, ask, .. } = cut;
        match came {
            CutOutcome::TooLate(heard) => {
                let target = RewindTarget::Turn {
                    number,
                    heard_chars: Some(heard),
                };
                self.enqueue_rewind(target, wish.key, wish.who, ConversationRewindCaller::Rewind(ask), ctx);
            }
            CutOutcome::Dropped(outcome) => {
                rewinding::record_dropped_cut(&self.node, &self.key, wish, "conversation.interrupt", outcome, ask, ctx);
            }
            CutOutcome::Answered(told, outcome) => self.record_and_answer(wish.key, told, outcome, ask, ctx),
        }
    }
}
