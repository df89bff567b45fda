//! Cuts of the running turn: their callers are answered after the turn has ended.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{
    actor::DialogueActor,
    kind::{DialogueBehaviour, RewindCaller, TurnEndWaiter},
    outcome_records::record_outcome,
    pending_cut::{CutOutcome, PendingCut},
};
use crate::{InterruptOutcome, messages::ReplyHandle, running_turn::RunningTurn};
use colloquy_dialogue::{
    heard::HeardLength,
    requester::{Requester, Requesters},
    rewind::RewindTarget,
};
use colloquy_memory::turn::Turn;
use colloquy_ports::ledger::rewinds::OnKeyConflict;

impl<K: DialogueBehaviour> DialogueActor<K> {
    /// Asks the running turn to end at its present text. Of several requests, the smallest heard length decides.
    pub fn cut_running_turn(&mut self, heard_chars: Option<usize>, requester: Option<Requester>) {
        if let Some(running) = &self.running {
            running.request_cut(heard_chars, requester);
        }
    }

    /// Adds a caller that is answered after the end of the running turn. `recorded`: the commit of the turn records the
    /// caller.
    pub fn push_pending_cut(
        &mut self,
        heard_chars: Option<usize>,
        recorded: bool,
        requester: Requester,
        reply: ReplyHandle<InterruptOutcome>,
    ) {
        match &self.running {
            Some(running) => {
                let pending_cut = PendingCut::of_running_turn(running, heard_chars, recorded, requester, reply);
                self.turn_end_waiters.push(TurnEndWaiter::Cut(pending_cut));
            }
            None => reply.answer(Err(self.overloaded_error())),
        }
    }

    pub fn pending_cuts(&self) -> impl Iterator<Item = &PendingCut> {
        self.turn_end_waiters.iter().filter_map(|waiter| match waiter {
            TurnEndWaiter::Cut(pending_cut) => Some(pending_cut),
            TurnEndWaiter::Other(_) => None,
        })
    }

    fn pending_cuts_mut(&mut self) -> impl Iterator<Item = &mut PendingCut> {
        self.turn_end_waiters.iter_mut().filter_map(|waiter| match waiter {
            TurnEndWaiter::Cut(pending_cut) => Some(pending_cut),
            TurnEndWaiter::Other(_) => None,
        })
    }

    /// Notes a committed turn and the keys of its cuts: the stored keys need no further record.
    pub fn mark_cuts_committed(&mut self, turn: &Arc<Turn>, keys: &[String]) {
        for pending_cut in self.pending_cuts_mut() {
            pending_cut.on_turn_committed(turn, keys);
        }
    }

    /// Notes a turn that was cut before the first character of its reply: no commit records the callers of the cuts.
    pub fn mark_cuts_dropped(&mut self, running: &RunningTurn, ctx: &mut Context<Self>) {
        let mut requesters = running.cut_requesters();
        for pending_cut in self.pending_cuts_mut() {
            pending_cut.on_turn_dropped(running.id);
            // A caller that still waits is recorded with the answer.
            if let Some(index) = requesters
                .iter()
                .position(|requester| pending_cut.is_requested_by(requester))
            {
                requesters.swap_remove(index);
            }
        }
        let mut late = Requesters::default();
        for requester in requesters {
            late.add_requester(requester);
        }
        self.record_late_cuts(late, InterruptOutcome::Dropped { turn: running.number }, ctx);
    }

    /// Stores the keys of cuts without effect, because the reply had ended or never began. A repeated key then cuts no
    /// later turn.
    pub fn record_cut_keys(&self, keys: Vec<String>, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        let mut late = Requesters::default();
        for key in keys {
            // Keys of waiting callers are stored with their answers.
            if self
                .pending_cuts()
                .all(|pending_cut| pending_cut.requester.key.as_ref() != Some(&key))
            {
                late.add_key(Some(key));
            }
        }
        let head_turn = loaded.dialogue.head_turn;
        self.record_late_cuts(late, InterruptOutcome::Idle { head_turn }, ctx);
    }

    /// Records the outcome of cuts without waiting callers.
    fn record_late_cuts(&self, late: Requesters, outcome: InterruptOutcome, ctx: &mut Context<Self>) {
        if late.is_empty() {
            return;
        }
        let node = Arc::clone(&self.node);
        let key = self.key.clone();
        let record = record_outcome(node, key, late, outcome, OnKeyConflict::Keep);
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
                TurnEndWaiter::Cut(pending_cut) => self.answer_cut(pending_cut, ctx),
                TurnEndWaiter::Other(waiter) => {
                    let waits = K::answer_waiter(self, waiter, ctx);
                    self.turn_end_waiters.extend(waits.map(TurnEndWaiter::Other));
                }
            }
        }
    }

    /// Answers the caller of a cut after the end of the turn. A reply that had ended before the cut is cut at the heard
    /// length.
    fn answer_cut(&mut self, pending_cut: PendingCut, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return pending_cut.reply.answer(Err(self.overloaded_error()));
        };
        let outcome = pending_cut.outcome(loaded);
        let PendingCut {
            number,
            requester,
            reply,
            ..
        } = pending_cut;
        match outcome {
            CutOutcome::TooLate(heard_chars) => {
                let target = RewindTarget::Turn {
                    number,
                    heard: Some(HeardLength::Chars(heard_chars)),
                };
                self.enqueue_rewind(target, requester, K::Caller::of_rewind(reply), ctx);
            }
            CutOutcome::Answered(outcome @ InterruptOutcome::Dropped { .. }) => {
                // No commit wrote the audit row.
                self.record_then_answer(requester.into(), outcome, reply, ctx);
            }
            CutOutcome::Answered(outcome) => self.record_and_answer(requester.key, outcome, reply, ctx),
        }
    }

    /// Answers with `outcome`. A key is first stored with the outcome, so that a repeat removes no later turn.
    pub fn record_and_answer(
        &self,
        key: Option<String>,
        outcome: InterruptOutcome,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let mut late = Requesters::default();
        late.add_key(key);
        if late.is_empty() {
            return reply.answer(Ok(outcome));
        }
        self.record_then_answer(late, outcome, reply, ctx);
    }

    fn record_then_answer(
        &self,
        late: Requesters,
        outcome: InterruptOutcome,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let node = Arc::clone(&self.node);
        let key = self.key.clone();
        let record = record_outcome(node, key, late, outcome.clone(), OnKeyConflict::Keep);
        ctx.spawn(record.into_actor(self).map(move |recorded, _, _| {
            reply.answer(recorded.map(|()| outcome).map_err(Into::into));
        }));
    }

    /// Answers that no reply is running, and that the head stays.
    pub fn answer_idle(&self, key: Option<String>, reply: ReplyHandle<InterruptOutcome>, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return reply.answer(Err(self.overloaded_error()));
        };
        let head_turn = loaded.dialogue.head_turn;
        self.record_and_answer(key, InterruptOutcome::Idle { head_turn }, reply, ctx);
    }
}
