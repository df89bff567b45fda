//! The callers of a session's rewinds, and the lines that a rewind cancels.

use std::{collections::VecDeque, sync::Arc};

use super::{
    Session,
    waiting_line::{ReplacedHead, WaitingLine},
};
use crate::{
    AcceptedLine, DialogueError, InterruptOutcome, OnBusy, PlayerLine, dialogue::kind::RewindCaller,
    messages::ReplyHandle,
};
use colloquy_core::ids::TurnId;
use colloquy_dialogue::{
    events::EventBody,
    turn::{TurnError, event_error},
};
use colloquy_ports::ledger::rewinds::RewindRecord;

/// A caller that waits for a rewind.
#[expect(clippy::large_enum_variant, reason = "a handful, and each for a moment")]
pub(crate) enum SessionCaller {
    Rewind(ReplyHandle<InterruptOutcome>),
    /// The caller wants a cut reply resumed.
    Resume {
        re: Option<Arc<str>>,
        reply: ReplyHandle<InterruptOutcome>,
    },
    /// The caller's line is said again once turn `before` is the last turn.
    Regenerate {
        before: u32,
        line: PlayerLine,
        reply: ReplyHandle<AcceptedLine>,
    },
    /// A turn rewound for a regeneration is reinstated.
    Reinstate,
}

impl RewindCaller for SessionCaller {
    fn of_rewind(reply: ReplyHandle<InterruptOutcome>) -> Self {
        Self::Rewind(reply)
    }

    fn of_reinstatement() -> Self {
        Self::Reinstate
    }

    fn into_rewind_reply(self) -> Result<ReplyHandle<InterruptOutcome>, Self> {
        match self {
            Self::Rewind(reply) => Ok(reply),
            other => Err(other),
        }
    }

    fn reject_with(self, error: DialogueError) {
        match self {
            Self::Rewind(reply) | Self::Resume { reply, .. } => reply.answer(Err(error)),
            Self::Regenerate { reply, .. } => reply.answer(Err(error)),
            Self::Reinstate => {}
        }
    }
}

impl Session {
    /// Answers the callers of an applied rewind. A line that is said again, or a cut reply that continues, comes first
    /// in the queue.
    pub(super) fn answer_callers(&mut self, callers: Vec<SessionCaller>, rewound: &Arc<RewindRecord>) {
        let mut resumed_for = None;
        for caller in callers {
            match caller {
                SessionCaller::Rewind(reply) => reply.answer(Ok(InterruptOutcome::Rewound(Arc::clone(rewound)))),
                SessionCaller::Resume { re, reply } => {
                    resumed_for = resumed_for.or(re);
                    reply.answer(Ok(InterruptOutcome::Rewound(Arc::clone(rewound))));
                }
                SessionCaller::Regenerate { before, line, reply }
                    if before == rewound.head_turn && rewound.replacing.is_some() =>
                {
                    if let Some(reply) = self.join_turn_with_key(line.key.as_deref(), reply) {
                        let mut waiting_line = self.new_waiting_line(line, true);
                        waiting_line.add_asker(reply);
                        waiting_line.intent = self.kind.replaced_intent;
                        if let Some(unfinished) = self.kind.unfinished.take() {
                            waiting_line = waiting_line.continuing(unfinished);
                        }
                        self.kind.queue.push_front(waiting_line.replacing_after(rewound.head));
                    }
                }
                SessionCaller::Regenerate { reply, .. } => reply.answer(Err(DialogueError::StaleHead {
                    head_turn: rewound.head_turn,
                })),
                SessionCaller::Reinstate => {}
            }
        }
        if let Some(unfinished) = self.kind.unfinished.take() {
            let line = PlayerLine {
                text: unfinished.turn.player_text.clone(),
                to: Some(unfinished.turn.npc.clone()),
                // A retry of the line joins the continuation.
                key: unfinished.key.clone(),
                on_busy: OnBusy::Queue,
                re: resumed_for,
                who: None,
                chat: None,
            };
            let waiting_line = self.new_waiting_line(line, true).continuing(unfinished);
            self.kind.queue.push_front(waiting_line.replacing_after(rewound.head));
        }
    }

    fn drain_queue_where(&mut self, are_gone: impl FnMut(&WaitingLine) -> bool) -> VecDeque<WaitingLine> {
        let (removed, remaining) = std::mem::take(&mut self.kind.queue).into_iter().partition(are_gone);
        self.kind.queue = remaining;
        removed
    }

    /// Cancels lines that replace a turn and follow a head for which `is_theirs` is false.
    pub(super) fn drop_replacements(&mut self, is_theirs: impl Fn(Option<TurnId>) -> bool) {
        let removed =
            self.drain_queue_where(|line| line.replaces_after.is_some_and(|ReplacedHead(head)| !is_theirs(head)));
        removed.into_iter().for_each(WaitingLine::cancel_unsaid);
    }

    /// Cancels the lines that were said to turns which no longer stand. Listeners get an event per line. Lines that
    /// were said while the outcome of a rewind was unknown stay, and so do lines that replace a turn.
    pub(super) fn unsay_queued_lines(&mut self) {
        let is_gone = |line: &WaitingLine| !line.said_in_doubt;
        for key in self.cancel_queued_lines(is_gone, &DialogueError::TurnUnsaid, TurnError::Unsaid) {
            self.kind.keys.mark_unsaid(key);
        }
    }

    /// Cancels the lines behind a fenced turn, with the same error. A retry with the same key says the line to the
    /// present head.
    pub(super) fn fence_queued_lines(&mut self) {
        let refused = self.overloaded_error();
        self.cancel_queued_lines(|_| true, &refused, TurnError::Fenced);
    }

    /// The outcome of earlier rewinds is known: the lines in the queue are said to the present head.
    pub(super) fn mark_lines_certain(&mut self) {
        for line in &mut self.kind.queue {
            line.said_in_doubt = false;
        }
    }

    /// Cancels lines for which `is_gone` is true, with the given errors. Returns the keys of the lines.
    fn cancel_queued_lines(
        &mut self,
        is_gone: impl Fn(&WaitingLine) -> bool,
        refused: &DialogueError,
        turn_error: TurnError,
    ) -> Vec<String> {
        let reason = event_error(&turn_error);
        let turn_error = Arc::new(turn_error);
        let mut keys = Vec::new();
        for line in self.drain_queue_where(|line| line.replaces_after.is_none() && is_gone(line)) {
            // Lines that were not accepted get only the refusal.
            if line.is_accepted() {
                let body = EventBody::Error {
                    turn: None,
                    error: reason.clone(),
                };
                self.log.publish_event(body, line.re());
            }
            keys.extend(line.line.key.clone());
            line.cancel_with(refused, &turn_error);
        }
        keys
    }
}
