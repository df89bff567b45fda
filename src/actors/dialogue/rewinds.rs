//! Rewinds of a dialogue: the requests that wait, the running rewind, and what follows.
//!
//! The ledger gets the rewind at once, whatever the running turn waits for. The running turn is aborted only after the
//! head has moved. Other requests wait meanwhile, and callers with further rewind requests get the same outcome.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{
    actor::{DialogueActor, State},
    decisions::{self, AfterRejectedRewind},
    kind::{DialogueBehaviour, RewindCaller, RewindEffect, TurnEndWaiter},
    load, outcome_records, rewind_run,
    rewind_state::{BeginRewind, RewindInFlight, Rewinds},
};
use crate::{
    DialogueError, InterruptCommand, InterruptOutcome, memory_wait::MemoryWait, messages::ReplyHandle, rewind_notices,
};
use colloquy_core::ids::TurnId;
use colloquy_dialogue::{
    events::EventBody,
    requester::{Requester, Requesters},
    rewind::{AppliedRewind, RewindError, RewindResponse, RewindTarget},
    turn::{CommittedTurn, TurnError, event_error},
};
use colloquy_ports::{
    StoreError,
    ledger::rewinds::{OnKeyConflict, RewindRecord},
};

impl<K: DialogueBehaviour> Rewinds<K> {
    /// True if a rewind is queued or running.
    pub fn is_busy(&self) -> bool {
        self.queue.is_busy()
    }
}

impl<K: DialogueBehaviour> DialogueActor<K> {
    // --- requests ---

    /// Answers a repeated key with the stored outcome; otherwise continues with `proceed`. A request that meets a load
    /// waits as `retry`.
    pub fn with_idempotency_check(
        &mut self,
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
        retry: fn(InterruptCommand, ReplyHandle<InterruptOutcome>) -> K::Request,
        proceed: fn(&mut Self, InterruptCommand, ReplyHandle<InterruptOutcome>, &mut Context<Self>),
    ) {
        let Some(key) = command.key.clone() else {
            return proceed(self, command, reply, ctx);
        };
        let ports = self.node.ports.clone();
        let (scope, id) = self.key.clone();
        let look = async move { ports.ledger.rewinds.load_outcome_by_key(&scope, id, &key).await };
        self.rewinds.preparing += 1;
        ctx.spawn(look.into_actor(self).map(move |outcome, actor, ctx| {
            match outcome {
                Ok(Some(outcome)) => reply.answer(Ok(outcome)),
                Ok(None) if actor.state.loaded().is_none() => {
                    actor.deferred.requests.push_back(retry(command, reply));
                }
                Ok(None) => proceed(actor, command, reply, ctx),
                Err(error) => reply.answer(Err(error.into())),
            }
            actor.end_preparation(ctx);
        }));
    }

    /// Ends the preparation of a request, whether or not the request asked for a rewind.
    pub fn end_preparation(&mut self, ctx: &mut Context<Self>) {
        self.rewinds.preparing -= 1;
        if self.rewinds.is_busy() {
            ctx.notify(BeginRewind);
        }
        self.run_next_steps(ctx);
    }

    /// Checks that the dialogue is open and that the caller knows the head. Returns the head.
    pub fn check_rewind_allowed(&self, if_head: Option<u32>) -> Result<u32, DialogueError> {
        let Some(loaded) = self.state.loaded() else {
            return Err(self.overloaded_error());
        };
        if loaded.closed || self.closing.is_some() {
            return Err(K::closed_error());
        }
        decisions::check_head(loaded.dialogue.head_turn, self.running_number(), if_head)
    }

    pub fn enqueue_rewind(
        &mut self,
        target: RewindTarget,
        requester: Requester,
        caller: K::Caller,
        ctx: &mut Context<Self>,
    ) {
        self.rewinds.queue.push_request(target, requester, caller);
        // The message comes after the messages already in the mailbox, so that simultaneous requests become a single
        // rewind.
        ctx.notify(BeginRewind);
    }

    /// Returns the last rewind, if its target equals that of the command.
    pub fn last_rewind_to(&self, command: &InterruptCommand) -> Option<Arc<RewindRecord>> {
        let loaded = self.state.loaded()?;
        // A turn with a pending replacement is not gone for good.
        let idle = self.running.is_none() && !self.rewinds.is_busy() && loaded.replacing.is_none();
        let last = self.rewinds.recent.last_with_target(command, loaded.head);
        last.filter(|_| idle)
    }

    /// Returns the last rewind, if it removed `turn` and no turn was said since.
    pub fn last_rewind_removing(&self, turn: u32) -> Option<Arc<RewindRecord>> {
        let head = self.state.loaded()?.head;
        self.rewinds.recent.last_removing(turn, head)
    }

    // --- a turn that stands again ---

    /// Returns the turn that was rewound for a replacement, if no replacement is running or about to start.
    pub fn owed_turn(&self) -> Option<TurnId> {
        let replaced = self.state.loaded()?.replacing?;
        (self.running.is_none() && !K::has_replacement(self)).then_some(replaced)
    }

    /// Reinstates a turn whose replacement does not come. If the reinstatement was just tried in vain, the actor stops:
    /// the next line on top of the present head would lose the turn for good.
    pub fn reinstate_turn(&mut self, turn: TurnId, ctx: &mut Context<Self>) {
        if self.rewinds.reinstating.replace(turn) == Some(turn) {
            tracing::error!(dialogue = %self.key.1, %turn, "a replaced turn could not be reinstated");
            let error = StoreError::Unavailable("a turn could not be reinstated".to_owned());
            return self.fail_load(&error.into(), ctx);
        }
        let requester = Requester {
            who: rewind_run::server_principal(&self.key.0),
            key: None,
            action: K::REINSTATE_ACTION,
        };
        let target = RewindTarget::Reinstate { turn };
        self.enqueue_rewind(target, requester, K::Caller::of_reinstatement(), ctx);
    }

    // --- the rewind ---

    pub fn begin_rewind(&mut self, ctx: &mut Context<Self>) {
        if self.rewinds.preparing > 0 {
            // Simultaneous callers get the same rewind. The preparation of a caller may itself have waited for the
            // rewind or the load that has just ended.
            if matches!(self.state, State::Ready(_)) {
                K::on_ready(self, ctx);
            }
            return;
        }
        let Some(loaded) = self.state.take_ready() else {
            return;
        };
        let Some((target, requesters)) = self.rewinds.queue.begin_next() else {
            self.state = State::Ready(loaded);
            return;
        };
        K::on_rewind_starting(self, target);
        // A turn with a pending replacement would come back after a rewind without changes.
        let fence = self.running.is_some() || loaded.replacing.is_some() || self.rewinds.reinstating.is_some();
        let seq = self.log.begin_rewind_hold();
        let dialogue = loaded.to_owned_dialogue(&self.node, &self.key, fence, seq);
        let takes_turns_back = match target {
            RewindTarget::Turn { number, .. } => number < dialogue.head_turn || self.running.is_some(),
            RewindTarget::Regenerate { .. } | RewindTarget::GoOn { .. } => true,
            RewindTarget::Resume { .. } | RewindTarget::Reinstate { .. } => false,
        };
        let in_flight = RewindInFlight {
            takes_turns_back,
            pauses: target.paused_after(dialogue.id.kind()),
            ..RewindInFlight::default()
        };
        self.state = State::Rewinding(loaded, in_flight);
        let rewinding = rewind_run::run_rewind(Arc::clone(&self.node), dialogue, target, requesters);
        ctx.spawn(
            rewinding
                .into_actor(self)
                .map(|result, actor, ctx| actor.on_rewind_ended(result, ctx)),
        );
    }

    /// Keeps the result of a turn that ended during a rewind. Returns the result if no rewind is running.
    pub fn defer_turn_result(
        &mut self,
        result: Result<CommittedTurn, TurnError>,
    ) -> Option<Result<CommittedTurn, TurnError>> {
        match &mut self.state {
            State::Rewinding(_, in_flight) => {
                in_flight.turn_result = Some(Box::new(result));
                None
            }
            _ => Some(result),
        }
    }

    fn on_rewind_ended(&mut self, result: Result<RewindResponse, RewindError>, ctx: &mut Context<Self>) {
        self.mark_used();
        match result {
            Ok(RewindResponse::Done(applied)) => self.on_rewind_applied(*applied, ctx),
            Ok(RewindResponse::Repeated(outcome)) => self.on_rewind_rejected(&|_| Ok(outcome.clone()), false, ctx),
            Ok(RewindResponse::Unchanged) => {
                if !K::continue_unchanged(self, ctx) {
                    self.on_rewind_rejected(&|head_turn| Ok(InterruptOutcome::Idle { head_turn }), false, ctx);
                }
            }
            Err(error) => {
                if matches!(error, RewindError::Fenced) {
                    // The epoch was old. A reinstatement is tried again with the epoch of the next load.
                    self.rewinds.reinstating = None;
                }
                let in_doubt = rewind_run::is_outcome_unknown(&error);
                self.on_rewind_rejected(&|_| Err(rewind_run::rewind_error(&error)), in_doubt, ctx);
            }
        }
    }

    /// Handles a rewind that did not happen, or with `in_doubt`, whose outcome is unknown. The running turn continues,
    /// and the callers get `answer`, made from the number of the last turn.
    pub fn on_rewind_rejected(
        &mut self,
        answer: &dyn Fn(u32) -> Result<InterruptOutcome, DialogueError>,
        in_doubt: bool,
        ctx: &mut Context<Self>,
    ) {
        self.log.release_rewind_hold(in_doubt);
        let callers = self.rewinds.queue.take_failed_callers();
        let Some((loaded, in_flight)) = self.state.take_rewinding() else {
            return;
        };
        let head_turn = loaded.dialogue.head_turn;
        self.state = State::Ready(loaded);
        let applied = self.rewinds.applied.clone();
        for caller in callers {
            K::answer_rejected(self, caller, applied.as_ref(), answer(head_turn), ctx);
        }
        // The running turn and further rewinds end first.
        self.rewinds.in_doubt |= in_doubt || in_flight.load_after;
        self.rewinds.in_doubt_takes_back |= in_doubt && in_flight.takes_turns_back;
        if let Some(result) = in_flight.turn_result {
            self.on_turn_ended(*result, ctx);
        }
        match decisions::after_rejected_rewind(&self.view(), applied.is_some()) {
            AfterRejectedRewind::AwaitLoad => {}
            AfterRejectedRewind::Load => self.start_loading(ctx),
            AfterRejectedRewind::NextRewind => self.begin_rewind(ctx),
            AfterRejectedRewind::Reread => self.reread_after_rewind(Vec::new(), ctx),
            AfterRejectedRewind::Continue => self.on_ready(ctx),
        }
    }

    fn on_rewind_applied(&mut self, applied: AppliedRewind, ctx: &mut Context<Self>) {
        let Some((mut loaded, in_flight)) = self.state.take_rewinding() else {
            return;
        };
        let rewound = applied.rewound;
        debug_assert!(rewound.epoch > loaded.epoch, "a rewind raises the epoch");
        loaded.epoch = rewound.epoch;
        // The answer has the epoch that an earlier rewind would have raised.
        self.rewinds.in_doubt = false;
        self.rewinds.in_doubt_takes_back = false;
        self.rewinds.reinstating = None;
        self.log.set_epoch(rewound.epoch);
        let old_head = std::mem::replace(&mut loaded.head, rewound.head);
        loaded.replacing = rewound.replacing;
        Arc::make_mut(&mut loaded.dialogue).head_turn = rewound.head_turn;
        self.state = State::Ready(loaded);
        let cut_turn = self.running_number();
        if let Some(running) = self.running.take() {
            self.rewinds
                .queue
                .adopt_cuts_of_turn(&running, in_flight.turn_result.as_deref());
            K::on_turn_unsaid(self, &running);
            running.abort_unsaid();
        }
        self.adopt_pending_cuts();
        let unsaid = event_error(&TurnError::Unsaid);
        self.log
            .publish_rewind(EventBody::DialogueRewound((&*rewound).into()), &unsaid);
        failpoint!("rewind.told");
        let effect = RewindEffect {
            intent: applied.intent,
            unfinished: applied.unfinished,
            pauses: in_flight.pauses,
            took_turns_back: in_flight.takes_turns_back,
        };
        K::on_rewind_applied(self, effect, ctx);
        self.reset_memory_wait(ctx);
        let (scope, id) = self.key.clone();
        let notify = rewind_notices::notify_others(Arc::clone(&self.node), scope, vec![id], rewound.closed.clone());
        ctx.spawn(notify.into_actor(self));
        self.rewinds.recent.record_rewind(old_head, &rewound, cut_turn);
        self.rewinds.applied = Some(Arc::clone(&rewound));
        let callers = self.rewinds.queue.finish_at_head(rewound.head_turn);
        if self.rewinds.is_busy() {
            return self.begin_rewind(ctx);
        }
        let late = self.rewinds.queue.take_late_requesters();
        if late.is_empty() {
            return self.answer_rewind_callers(callers, &rewound, ctx);
        }
        self.record_late_callers(late, callers, rewound, ctx);
    }

    /// Callers of pending cuts get the outcome of the rewind. Other waiters keep waiting: their requests apply to the
    /// present state of the dialogue.
    fn adopt_pending_cuts(&mut self) {
        for waiter in std::mem::take(&mut self.turn_end_waiters) {
            match waiter {
                TurnEndWaiter::Cut(pending_cut) => {
                    let reply = self.rewinds.queue.adopt_pending_cut(pending_cut);
                    self.rewinds.queue.add_served_caller(K::Caller::of_rewind(reply));
                }
                other @ TurnEndWaiter::Other(_) => self.turn_end_waiters.push(other),
            }
        }
    }

    /// Stores the keys of late requesters. All callers of the rewind are answered afterwards.
    fn record_late_callers(
        &mut self,
        late: Requesters,
        callers: Vec<K::Caller>,
        rewound: Arc<RewindRecord>,
        ctx: &mut Context<Self>,
    ) {
        let Some(loaded) = self.state.take_ready() else {
            return;
        };
        self.state = State::Recording(loaded);
        let node = Arc::clone(&self.node);
        let key = self.key.clone();
        let outcome = InterruptOutcome::Rewound(Arc::clone(&rewound));
        let record = outcome_records::record_outcome(node, key, late, outcome, OnKeyConflict::Replace);
        ctx.spawn(record.into_actor(self).map(move |recorded, actor, ctx| {
            let Some(loaded) = actor.state.take_recording() else {
                return;
            };
            actor.state = State::Ready(loaded);
            let into_reply = K::Caller::into_rewind_reply;
            let callers = outcome_records::callers_if_recorded(recorded, &actor.key, callers, into_reply);
            actor.answer_rewind_callers(callers, &rewound, ctx);
        }));
    }

    fn answer_rewind_callers(&mut self, callers: Vec<K::Caller>, rewound: &Arc<RewindRecord>, ctx: &mut Context<Self>) {
        let answered_after_reread = K::answer_callers(self, callers, rewound);
        self.reread_after_rewind(answered_after_reread, ctx);
    }

    /// Reads the rows that the rewind changed; all requests wait until then. `callers` are answered afterwards.
    fn reread_after_rewind(&mut self, callers: Vec<K::Caller>, ctx: &mut Context<Self>) {
        self.rewinds.applied = None;
        let Some(loaded) = self.state.take_ready() else {
            return;
        };
        let reading = load::reread_after_rewind(Arc::clone(&self.node), self.key.clone(), loaded.epoch, loaded.head);
        self.state = State::Rereading(loaded);
        ctx.spawn(reading.into_actor(self).map(move |reread, actor, ctx| {
            let Some(mut loaded) = actor.state.take_rereading() else {
                return;
            };
            match reread {
                Ok(reread) => {
                    actor.reset_memory_wait(ctx);
                    actor.memory = MemoryWait::for_turn(loaded.head, reread.extraction);
                    loaded.apply_reread(reread);
                    actor.state = State::Ready(loaded);
                    for caller in callers {
                        K::answer_after_reread(actor, caller, ctx);
                    }
                    actor.on_ready(ctx);
                }
                Err(error) => {
                    tracing::warn!(dialogue = %actor.key.1, %error, "a rewound dialogue could not be read");
                    for caller in callers {
                        caller.reject_with(error.clone().into());
                    }
                    actor.start_loading(ctx);
                }
            }
        }));
    }

    /// The last turn has changed: the next turn no longer waits for the facts of the previous last turn.
    pub fn reset_memory_wait(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.memory.take_timer() {
            ctx.cancel_future(timer);
        }
        self.memory = MemoryWait::default();
    }

    pub fn cancel_rewinds(&mut self, error: &DialogueError) {
        for caller in self.rewinds.queue.cancel_all() {
            caller.reject_with(error.clone());
        }
        for waiter in self.turn_end_waiters.drain(..) {
            match waiter {
                TurnEndWaiter::Cut(pending_cut) => pending_cut.reply.answer(Err(error.clone())),
                TurnEndWaiter::Other(waiter) => K::reject_waiter(waiter, error.clone()),
            }
        }
    }
}
