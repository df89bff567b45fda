//! Interrupts and resumes of a conversation: the running line is cut, or the conversation is rewound to an earlier
//! line. A single transaction rewinds and pauses. A cut of the running line writes the pause first, so that no restart
//! continues behind an interrupt.

use actix::Context;

use super::{ConversationCaller, ConversationKind, ConversationRequest, ConversationWaiter, NpcConversation};
use crate::{
    DialogueError, InterruptCommand, InterruptOutcome,
    dialogue::kind::{DialogueBehaviour as _, TurnEndWaiter},
    messages::{ConversationSnapshot, ReplyHandle},
};
use colloquy_core::scope::Principal;
use colloquy_dialogue::{requester::Requester, rewind::RewindTarget, turn::TurnError};

/// The state of a conversation, as far as an interrupt depends on the state.
#[derive(Debug, Clone, Copy, Default)]
struct InterruptView {
    head_turn: u32,
    /// The running line.
    running: Option<u32>,
    /// True if a cut line stands again before another line is said: its reinstatement is queued, running or due.
    awaits_reinstatement: bool,
    /// True if the last rewind did what the interrupt asks.
    repeats_last_rewind: bool,
}

/// What an interrupt does once the conversation is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InterruptStep {
    /// The interrupt waits until the cut line stands again.
    AwaitReinstatement,
    /// The line is not in the conversation; an earlier rewind may have removed the line.
    NotInConversation(u32),
    /// The answer is the last rewind.
    RepeatLastRewind,
    RewindTo(u32),
    /// The running line is cut.
    Cut,
    NothingToCut,
}

/// Decides what an interrupt does. `turn`: the line to cut; `None`: the running line.
fn decide_interrupt(turn: Option<u32>, view: &InterruptView) -> InterruptStep {
    if view.awaits_reinstatement && view.running.is_none() {
        return InterruptStep::AwaitReinstatement;
    }
    match turn {
        Some(turn) if turn > view.head_turn && Some(turn) != view.running => InterruptStep::NotInConversation(turn),
        _ if view.repeats_last_rewind => InterruptStep::RepeatLastRewind,
        Some(turn) if turn <= view.head_turn => InterruptStep::RewindTo(turn),
        _ if view.running.is_some() => InterruptStep::Cut,
        _ => InterruptStep::NothingToCut,
    }
}

impl NpcConversation {
    /// Answers a repeated key with the stored outcome; otherwise pauses and cuts.
    pub(super) fn on_interrupt(
        &mut self,
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let retry = |command, reply| ConversationRequest::Interrupt { command, reply };
        self.with_idempotency_check(command, reply, ctx, retry, Self::pause_and_cut);
    }

    fn pause_and_cut(
        &mut self,
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        if self.is_draining() {
            return reply.answer(Err(DialogueError::Draining));
        }
        if self.rewinds.queue.is_replacing() {
            let retry = ConversationRequest::Interrupt { command, reply };
            return self.deferred.requests.push_back(retry);
        }
        let head_turn = match self.check_rewind_allowed(command.if_head) {
            Ok(head_turn) => head_turn,
            Err(error) => return reply.answer(Err(error)),
        };
        if let Some(turn) = command.turn
            && !self.is_in_conversation(turn, head_turn)
        {
            return self.answer_removed(turn, command.key, reply, ctx);
        }
        if self.needs_rewind(&command) {
            return self.cut_or_rewind(command, reply, ctx);
        }
        self.rewinds.preparing += 1;
        self.set_paused(true, "interrupted", ctx, move |talk, paused, ctx| {
            match paused {
                Ok(()) => talk.cut_or_rewind(command, reply, ctx),
                Err(error) => reply.answer(Err(error)),
            }
            talk.end_preparation(ctx);
        });
    }

    /// True if the line was said, is running, or stands again soon: a line with a pending continuation stands as it was
    /// cut.
    fn is_in_conversation(&self, turn: u32, head_turn: u32) -> bool {
        let is_replaced = self.state.loaded().is_some_and(|loaded| loaded.replacing.is_some());
        turn <= head_turn || Some(turn) == self.running_number() || (turn == head_turn + 1 && is_replaced)
    }

    /// True if the interrupt rewinds earlier lines. The rewind also pauses the conversation.
    fn needs_rewind(&self, command: &InterruptCommand) -> bool {
        let (Some(loaded), Some(turn)) = (self.state.loaded(), command.turn) else {
            return false;
        };
        let head_turn = loaded.dialogue.head_turn;
        let last = loaded.history.last().filter(|last_turn| last_turn.number == turn);
        turn < head_turn
            || last.zip(command.heard_length).is_some_and(|(last_turn, length)| {
                turn == head_turn
                    && length.to_scalar_count(&last_turn.reply_text) < last_turn.reply_text.chars().count()
            })
    }

    /// Answers with the rewind that removed `turn`, if no line was said since.
    fn answer_removed(
        &self,
        turn: u32,
        key: Option<String>,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        match self.last_rewind_removing(turn) {
            Some(rewound) => self.record_and_answer(key, InterruptOutcome::Rewound(rewound), reply, ctx),
            None => reply.answer(Err(DialogueError::NotRunning { turn })),
        }
    }

    fn cut_or_rewind(
        &mut self,
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let head_turn = match self.check_rewind_allowed(None) {
            Ok(head_turn) => head_turn,
            Err(error) => return reply.answer(Err(error)),
        };
        if self.running.is_none() {
            // An interrupt applies where the cut line ended, before its continuation.
            self.kind.unfinished = None;
        }
        let is_being_reinstated = self.rewinds.reinstating.is_some() && self.rewinds.is_busy();
        let view = InterruptView {
            head_turn,
            running: self.running_number(),
            awaits_reinstatement: is_being_reinstated || self.owed_turn().is_some(),
            repeats_last_rewind: self.last_rewind_to(&command).is_some(),
        };
        let step = decide_interrupt(command.turn, &view);
        if !matches!(
            step,
            InterruptStep::AwaitReinstatement | InterruptStep::NotInConversation(_)
        ) {
            self.cancel_requested_lines();
        }
        match step {
            InterruptStep::AwaitReinstatement => {
                let retry = ConversationRequest::Interrupt { command, reply };
                self.deferred.requests.push_back(retry);
                self.run_next_steps(ctx);
            }
            InterruptStep::NotInConversation(turn) => self.answer_removed(turn, command.key, reply, ctx),
            InterruptStep::RepeatLastRewind => match self.last_rewind_to(&command) {
                Some(rewound) => self.record_and_answer(command.key, InterruptOutcome::Rewound(rewound), reply, ctx),
                None => reply.answer(Err(self.overloaded_error())),
            },
            InterruptStep::RewindTo(number) => {
                let target = RewindTarget::Turn {
                    number,
                    heard: command.heard_length,
                };
                let requester = command.into_requester(ConversationKind::INTERRUPT_ACTION);
                self.enqueue_rewind(target, requester, ConversationCaller::Rewind(reply), ctx);
            }
            InterruptStep::Cut => {
                // Counted in the text sent so far, as the client counted.
                let heard_chars = command.heard_length.map(|length| self.log.heard_scalar_count(length));
                let requester = command.into_requester(ConversationKind::INTERRUPT_ACTION);
                self.cut_running_turn(heard_chars, Some(requester.clone()));
                self.push_pending_cut(heard_chars, true, requester, reply);
            }
            InterruptStep::NothingToCut => self.answer_idle(command.key, reply, ctx),
        }
    }

    /// A line requested before the cut is not said after it.
    fn cancel_requested_lines(&mut self) {
        for step in std::mem::take(&mut self.kind.stepping) {
            // The caller may have gone away.
            let _ = step.send(Err(std::sync::Arc::new(TurnError::Unsaid)));
        }
    }

    /// Resumes the last line, if cut a moment ago, and continues the conversation.
    pub(super) fn on_resume(
        &mut self,
        who: Principal,
        reply: ReplyHandle<ConversationSnapshot>,
        ctx: &mut Context<Self>,
    ) {
        if self.state.loaded().is_some_and(|loaded| loaded.dialogue.options.paused) {
            self.kind.resumed_by.clone_from(&who.player);
        }
        if self.running.is_none() {
            let requester = Requester {
                who,
                key: None,
                action: "conversation.resume",
            };
            let caller = ConversationCaller::Resume(reply);
            // A resume of a conversation counts as a line in any case.
            let target = RewindTarget::Resume { may_continue: true };
            self.enqueue_rewind(target, requester, caller, ctx);
        } else if self.turn_end_waiters.is_empty() {
            self.resume_pacing(reply, ctx);
        } else {
            let waiter = ConversationWaiter::Resume { who, reply };
            self.turn_end_waiters.push(TurnEndWaiter::Other(waiter));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation with three lines, and none running.
    const IDLE: InterruptView = InterruptView {
        head_turn: 3,
        running: None,
        awaits_reinstatement: false,
        repeats_last_rewind: false,
    };
    const TALKING: InterruptView = InterruptView {
        running: Some(4),
        ..IDLE
    };

    #[test]
    fn interrupt_cuts_the_running_line_or_rewinds_to_an_earlier_line() {
        assert_eq!(decide_interrupt(None, &TALKING), InterruptStep::Cut);
        assert_eq!(decide_interrupt(Some(4), &TALKING), InterruptStep::Cut);
        for view in [IDLE, TALKING] {
            assert_eq!(decide_interrupt(Some(3), &view), InterruptStep::RewindTo(3));
            assert_eq!(decide_interrupt(Some(5), &view), InterruptStep::NotInConversation(5));
        }
        assert_eq!(decide_interrupt(None, &IDLE), InterruptStep::NothingToCut);
    }

    #[test]
    fn interrupt_waits_until_a_cut_line_stands_again() {
        let owed = InterruptView {
            awaits_reinstatement: true,
            ..IDLE
        };
        for turn in [None, Some(2), Some(4), Some(9)] {
            assert_eq!(decide_interrupt(turn, &owed), InterruptStep::AwaitReinstatement);
        }
        let continued = InterruptView {
            running: Some(4),
            ..owed
        };
        assert_eq!(decide_interrupt(Some(4), &continued), InterruptStep::Cut);
    }

    #[test]
    fn interrupt_repeats_the_last_rewind_to_the_same_line() {
        let repeated = InterruptView {
            repeats_last_rewind: true,
            ..IDLE
        };
        assert_eq!(decide_interrupt(Some(3), &repeated), InterruptStep::RepeatLastRewind);
        assert_eq!(
            decide_interrupt(Some(4), &repeated),
            InterruptStep::NotInConversation(4)
        );
    }
}
