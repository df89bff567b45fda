//! Cuts of the running turn: their callers are answered after the turn has ended.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{
    actor::DialogueActor,
    kind::{DialogueKind, RewindCaller, TurnEndWaiter},
};
use crate::{
    actors::{
        InterruptCommand, InterruptOutcome,
        messages::ReplyHandle,
        rewinding::{self, CutOutcome, LateCallers, PendingCut},
        running_turn::RunningTurn,
    },
    dialogue::{rewind::RewindTarget, turn::CutRequester},
    memory::turn::Turn,
    ports::ledger::rewinds::{OnKeyConflict, RewindRecord},
};

impl<K: DialogueKind> DialogueActor<K> {
    /// Asks the running turn to end at its present text. Of several requests, the smallest heard length decides.
    pub fn cut_running_turn(&mut self, heard_chars: Option<usize>, by: Option<CutRequester>) {
        if let Some(running) = &self.running {
            running.request_cut(heard_chars, by);
        }
    }

    /// Adds a caller that is answered after the end of the running turn. `recorded`: the commit of the turn records the
    /// caller.
    pub fn push_pending_cut(
        &mut self,
        heard: Option<usize>,
        recorded: bool,
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
    ) {
        match &self.running {
            Some(running) => {
                let cut = PendingCut::of_running_turn(running, heard, recorded, command, reply);
                self.turn_end_waiters.push(TurnEndWaiter::Cut(cut));
            }
            None => reply.answer(Err(self.overloaded_error())),
        }
    }

    pub fn pending_cuts(&self) -> impl Iterator<Item = &PendingCut> {
        self.turn_end_waiters.iter().filter_map(|waiter| match waiter {
            TurnEndWaiter::Cut(cut) => Some(cut),
            TurnEndWaiter::Other(_) => None,
        })
    }

    fn pending_cuts_mut(&mut self) -> impl Iterator<Item = &mut PendingCut> {
        self.turn_end_waiters.iter_mut().filter_map(|waiter| match waiter {
            TurnEndWaiter::Cut(cut) => Some(cut),
            TurnEndWaiter::Other(_) => None,
        })
    }

    /// Notes a committed turn and the keys of its cuts: the stored keys need no further record.
    pub fn mark_cuts_committed(&mut self, turn: &Arc<Turn>, keys: &[String]) {
        for cut in self.pending_cuts_mut() {
            cut.on_turn_committed(turn, keys);
        }
    }

    /// Notes a turn that was cut before the first character of its reply: no commit records the callers of the cuts.
    pub fn mark_cuts_dropped(&mut self, running: &RunningTurn, ctx: &mut Context<Self>) {
        let mut by = running.cut_requesters();
        for cut in self.pending_cuts_mut() {
            cut.on_turn_dropped(running.id);
            // A caller that still waits is recorded with the answer.
            if let Some(at) = by.iter().position(|by| cut.is_requested_by(by)) {
                by.swap_remove(at);
            }
        }
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        let outcome = loaded.unchanged_outcome(&self.node).into_dropped(running.number);
        let mut late = LateCallers::default();
        for CutRequester { who, key, action } in by {
            late.add_caller(key, Some((who, action)));
        }
        self.record_late_cuts(late, outcome, ctx);
    }

    /// Stores the keys of cuts without effect, because the reply had ended or never began. A repeated key then cuts no
    /// later turn.
    pub fn record_cut_keys(&self, mut keys: Vec<String>, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        // Keys of waiting callers are stored with their answers.
        keys.retain(|key| self.pending_cuts().all(|cut| cut.command.key.as_ref() != Some(key)));
        if !keys.is_empty() {
            self.record_late_cuts(keys.into(), loaded.unchanged_outcome(&self.node), ctx);
        }
    }

    /// Records the outcome of cuts without waiting callers.
    fn record_late_cuts(&self, late: LateCallers, outcome: RewindRecord, ctx: &mut Context<Self>) {
        if late.is_empty() {
            return;
        }
        let (node, key) = (Arc::clone(&self.node), self.key.clone());
        let record = rewinding::record_outcome(node, key, late, Arc::new(outcome), OnKeyConflict::Keep);
        ctx.spawn(record.into_actor(self).map(|recorded, actor, _| {
            if let Err(error) = recorded {
                tracing::warn!(dialogue = %actor.key.1, %error, "the outcome of cuts could not be recorded");
            }
        }));
    }

    /// Answers the callers that waited for the end of the running turn, before the next turn starts.
    pub fn answer_waiters(&mut self, ctx: &mut Context<Self>) {
        for waiter in std::mem::take(&mut self.turn_end_waiters) {
            match waiter {
                TurnEndWaiter::Cut(cut) => self.answer_cut(cut, ctx),
                TurnEndWaiter::Other(waiter) => {
                    let waits = K::answer_waiter(self, waiter, ctx);
                    self.turn_end_waiters.extend(waits.map(TurnEndWaiter::Other));
                }
            }
        }
    }

    /// Answers the caller of a cut after the end of the turn. A reply that had ended before the cut is cut at the heard
    /// length.
    fn answer_cut(&mut self, cut: PendingCut, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return cut.reply.answer(Err(self.overloaded_error()));
        };
        let outcome = cut.outcome(loaded, &self.node);
        let PendingCut {
            number, command, reply, ..
        } = cut;
        match outcome {
            CutOutcome::TooLate(heard) => {
                let target = RewindTarget::Turn {
                    number,
                    heard_chars: Some(heard),
                };
                let caller = K::Caller::of_rewind(reply);
                self.enqueue_rewind(target, command.key, command.who, K::INTERRUPT_ACTION, caller, ctx);
            }
            CutOutcome::Dropped(outcome) => {
                let action = K::INTERRUPT_ACTION;
                rewinding::record_dropped_cut(&self.node, &self.key, command, action, outcome, reply, ctx);
            }
            CutOutcome::Answered(answer, outcome) => self.record_and_answer(command.key, answer, outcome, reply, ctx),
        }
    }

    /// Answers with `answer`. A key is first stored with its outcome.
    pub fn record_and_answer(
        &self,
        key: Option<String>,
        answer: InterruptOutcome,
        outcome: Arc<RewindRecord>,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        rewinding::record_and_answer(&self.node, &self.key, key, (answer, outcome), reply, ctx);
    }

    /// Answers with an earlier rewind that did what is asked.
    pub fn answer_with_rewind(
        &self,
        key: Option<String>,
        rewound: Arc<RewindRecord>,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        self.record_and_answer(
            key,
            InterruptOutcome::Rewound(Arc::clone(&rewound)),
            rewound,
            reply,
            ctx,
        );
    }

    /// Answers that no turn follows the head.
    pub fn answer_idle(&self, key: Option<String>, reply: ReplyHandle<InterruptOutcome>, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return reply.answer(Err(self.overloaded_error()));
        };
        let outcome = loaded.unchanged_outcome(&self.node);
        let answer = InterruptOutcome::Idle {
            head_turn: outcome.head_turn,
        };
        self.record_and_answer(key, answer, Arc::new(outcome), reply, ctx);
    }
}
