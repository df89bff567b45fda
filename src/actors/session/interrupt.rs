//! Interrupt and rewind requests of a session: cuts of the running reply, cuts and rewinds of earlier turns.

use actix::Context;

use super::{Session, SessionCaller, SessionKind, SessionRequest};
use crate::{
    DialogueError, InterruptCommand, InterruptOutcome, dialogue::kind::DialogueBehaviour as _, messages::ReplyHandle,
};
use colloquy_dialogue::rewind::RewindTarget;

/// The state of a session, as far as an interrupt depends on the state.
#[derive(Debug, Clone, Copy, Default)]
struct InterruptView {
    head_turn: u32,
    /// The running turn.
    running: Option<u32>,
    /// The running turn, while its reply is being sent.
    replying: Option<u32>,
    /// True if the turn after the head was rewound for a replacement that is not running.
    is_next_turn_owed: bool,
    /// True if the last turn is about to change, because a turn is being reinstated, regenerated or resumed.
    is_head_changing: bool,
    /// True if the last rewind did what the request asks.
    repeats_last_rewind: bool,
}

/// What an interrupt or a rewind request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InterruptStep {
    /// The request waits until the replaced turn stands again: the request applies to the original turn.
    AwaitReinstatement,
    /// The answer is the last rewind.
    RepeatLastRewind,
    /// The running reply is cut.
    Cut,
    /// The whole reply was sent and is being committed; the cut follows the commit.
    CutAfterCommit,
    /// No turn follows the head, or the whole reply was heard.
    NothingToCut,
    /// The turn is not in the dialogue; an earlier rewind may have removed the turn.
    NotInDialogue(u32),
    RewindTo(u32),
}

/// Decides what an interrupt does. `turn`: the turn to cut; `None`: the running turn.
fn decide_interrupt(turn: Option<u32>, has_heard_length: bool, view: &InterruptView) -> InterruptStep {
    if let Some(step) = decide_without_turn(turn, view) {
        return step;
    }
    if view
        .replying
        .is_some_and(|number| turn.is_none_or(|turn| turn == number))
    {
        return InterruptStep::Cut;
    }
    match (view.running, turn) {
        (Some(number), turn) if turn.is_none_or(|turn| turn == number) => {
            if has_heard_length {
                InterruptStep::CutAfterCommit
            } else {
                InterruptStep::NothingToCut
            }
        }
        (_, None) => InterruptStep::NothingToCut,
        (_, Some(turn)) if turn > view.head_turn => InterruptStep::NotInDialogue(turn),
        (_, Some(turn)) => InterruptStep::RewindTo(turn),
    }
}

/// Decides what a rewind request does. `turn`: the last turn that shall stand; `None`: no turn shall stand.
fn decide_rewind(turn: Option<u32>, view: &InterruptView) -> InterruptStep {
    decide_without_turn(turn, view).unwrap_or(match turn {
        Some(turn) if turn > view.head_turn => InterruptStep::NotInDialogue(turn),
        turn => InterruptStep::RewindTo(turn.unwrap_or_default()),
    })
}

fn decide_without_turn(turn: Option<u32>, view: &InterruptView) -> Option<InterruptStep> {
    if (view.is_next_turn_owed && turn == Some(view.head_turn + 1)) || view.is_head_changing {
        Some(InterruptStep::AwaitReinstatement)
    } else {
        view.repeats_last_rewind.then_some(InterruptStep::RepeatLastRewind)
    }
}

/// The two requests that take turns back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Interrupt,
    Rewind,
}

impl Verb {
    const fn action(self) -> &'static str {
        match self {
            Self::Interrupt => SessionKind::INTERRUPT_ACTION,
            Self::Rewind => "session.rewind",
        }
    }

    fn request(self, command: InterruptCommand, reply: ReplyHandle<InterruptOutcome>) -> SessionRequest {
        match self {
            Self::Interrupt => SessionRequest::Interrupt { command, reply },
            Self::Rewind => SessionRequest::Rewind { command, reply },
        }
    }

    fn decide(self, command: &InterruptCommand, view: &InterruptView) -> InterruptStep {
        match self {
            Self::Interrupt => decide_interrupt(command.turn, command.heard_length.is_some(), view),
            Self::Rewind => decide_rewind(command.turn, view),
        }
    }
}

impl Session {
    pub(super) fn on_interrupt(
        &mut self,
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let retry = |command, reply| Verb::Interrupt.request(command, reply);
        self.with_idempotency_check(command, reply, ctx, retry, |session, command, reply, ctx| {
            session.take_back(Verb::Interrupt, command, reply, ctx);
        });
    }

    pub(super) fn on_rewind(
        &mut self,
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        // A rewind goes to the end of a turn.
        let command = InterruptCommand {
            heard_length: None,
            ..command
        };
        let retry = |command, reply| Verb::Rewind.request(command, reply);
        self.with_idempotency_check(command, reply, ctx, retry, |session, command, reply, ctx| {
            session.take_back(Verb::Rewind, command, reply, ctx);
        });
    }

    fn interrupt_view(&self, head_turn: u32, command: &InterruptCommand) -> InterruptView {
        let running = self.running_number();
        let is_owed = self.state.loaded().is_some_and(|loaded| loaded.replacing.is_some());
        InterruptView {
            head_turn,
            running,
            replying: self.log.replying_turn().filter(|number| Some(*number) == running),
            is_next_turn_owed: running.is_none() && is_owed,
            is_head_changing: self.rewinds.queue.is_replacing(),
            repeats_last_rewind: self.last_rewind_to(command).is_some(),
        }
    }

    fn take_back(
        &mut self,
        verb: Verb,
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let head_turn = match self.check_rewind_allowed(command.if_head) {
            Ok(head_turn) => head_turn,
            Err(error) => return reply.answer(Err(error)),
        };
        match verb.decide(&command, &self.interrupt_view(head_turn, &command)) {
            InterruptStep::AwaitReinstatement => {
                self.deferred.requests.push_back(verb.request(command, reply));
                if !self.rewinds.queue.is_replacing() {
                    self.drop_replacements(|_| false);
                    self.run_next_steps(ctx);
                }
            }
            InterruptStep::RepeatLastRewind => match self.last_rewind_to(&command) {
                Some(rewound) => self.record_and_answer(command.key, InterruptOutcome::Rewound(rewound), reply, ctx),
                None => reply.answer(Err(self.overloaded_error())),
            },
            InterruptStep::Cut => self.cut_reply(command, reply),
            InterruptStep::CutAfterCommit => {
                let heard_chars = command.heard_length.map(|length| self.log.heard_scalar_count(length));
                self.push_pending_cut(heard_chars, false, command.into_requester(verb.action()), reply);
            }
            InterruptStep::NothingToCut => self.answer_idle(command.key, reply, ctx),
            InterruptStep::NotInDialogue(turn) => match self.last_rewind_removing(turn) {
                Some(rewound) => self.record_and_answer(command.key, InterruptOutcome::Rewound(rewound), reply, ctx),
                None => reply.answer(Err(match verb {
                    Verb::Interrupt => DialogueError::NotRunning { turn },
                    Verb::Rewind => DialogueError::NoSuchTurn { turn, head_turn },
                })),
            },
            InterruptStep::RewindTo(number) => {
                let target = RewindTarget::Turn {
                    number,
                    heard: command.heard_length,
                };
                let requester = command.into_requester(verb.action());
                self.enqueue_rewind(target, requester, SessionCaller::Rewind(reply), ctx);
            }
        }
    }

    /// Cuts the running reply. The caller is answered after the heard part is committed, or after the turn is dropped.
    fn cut_reply(&mut self, command: InterruptCommand, reply: ReplyHandle<InterruptOutcome>) {
        // Counted in the text sent so far, as the client counted.
        let heard_chars = command.heard_length.map(|length| self.log.heard_scalar_count(length));
        let requester = command.into_requester(SessionKind::INTERRUPT_ACTION);
        // A repeated cut is answered together with the first cut.
        let key = requester.key.as_ref();
        let is_repeat = key.is_some() && self.pending_cuts().any(|other| other.requester.key.as_ref() == key);
        if !is_repeat {
            self.cut_running_turn(heard_chars, Some(requester.clone()));
        }
        self.push_pending_cut(heard_chars, true, requester, reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session with three turns, and none running.
    const IDLE: InterruptView = InterruptView {
        head_turn: 3,
        running: None,
        replying: None,
        is_next_turn_owed: false,
        is_head_changing: false,
        repeats_last_rewind: false,
    };
    /// The reply of turn 4 is being sent.
    const REPLYING: InterruptView = InterruptView {
        running: Some(4),
        replying: Some(4),
        ..IDLE
    };
    /// The whole reply of turn 4 was sent, and is being committed.
    const COMMITTING: InterruptView = InterruptView {
        replying: None,
        ..REPLYING
    };

    #[test]
    fn interrupt_cuts_the_reply_that_is_being_sent() {
        for turn in [None, Some(4)] {
            assert_eq!(decide_interrupt(turn, false, &REPLYING), InterruptStep::Cut);
            assert_eq!(decide_interrupt(turn, true, &REPLYING), InterruptStep::Cut);
        }
    }

    #[test]
    fn interrupt_of_a_sent_reply_cuts_only_at_a_heard_length() {
        for turn in [None, Some(4)] {
            assert_eq!(decide_interrupt(turn, true, &COMMITTING), InterruptStep::CutAfterCommit);
            assert_eq!(decide_interrupt(turn, false, &COMMITTING), InterruptStep::NothingToCut);
        }
    }

    #[test]
    fn interrupt_of_an_earlier_turn_rewinds_and_of_a_later_turn_is_refused() {
        for view in [IDLE, REPLYING, COMMITTING] {
            assert_eq!(decide_interrupt(Some(3), false, &view), InterruptStep::RewindTo(3));
            assert_eq!(decide_interrupt(Some(5), true, &view), InterruptStep::NotInDialogue(5));
        }
        assert_eq!(decide_interrupt(Some(4), true, &IDLE), InterruptStep::NotInDialogue(4));
        assert_eq!(decide_interrupt(None, true, &IDLE), InterruptStep::NothingToCut);
    }

    #[test]
    fn rewind_without_a_turn_goes_before_the_first() {
        assert_eq!(decide_rewind(None, &REPLYING), InterruptStep::RewindTo(0));
        assert_eq!(decide_rewind(Some(3), &REPLYING), InterruptStep::RewindTo(3));
        assert_eq!(decide_rewind(Some(4), &REPLYING), InterruptStep::NotInDialogue(4));
    }

    #[test]
    fn requests_for_a_replaced_turn_wait_until_it_stands_again() {
        let owed = InterruptView {
            is_next_turn_owed: true,
            repeats_last_rewind: true,
            ..IDLE
        };
        assert_eq!(
            decide_interrupt(Some(4), false, &owed),
            InterruptStep::AwaitReinstatement
        );
        assert_eq!(decide_rewind(Some(4), &owed), InterruptStep::AwaitReinstatement);
        assert_eq!(decide_rewind(Some(2), &owed), InterruptStep::RepeatLastRewind);
        let changing = InterruptView {
            is_head_changing: true,
            ..REPLYING
        };
        assert_eq!(
            decide_interrupt(None, false, &changing),
            InterruptStep::AwaitReinstatement
        );
    }
}
