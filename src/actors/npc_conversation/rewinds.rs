//! Interrupts: the running line is cut, or the conversation is rewound to an earlier line. As in a session, the ledger
//! gets the rewind at once, and simultaneous callers get the same outcome. A single transaction rewinds and pauses. A
//! cut of the running line writes the pause first, so that no restart continues behind an interrupt.

use std::{ops::ControlFlow, sync::Arc};

use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};

use super::{ConversationPhase, ConversationRequest, NpcConversation, pauses::CutWaiter};
use crate::{
    actors::{
        DialogueError, InterruptCommand, InterruptOutcome,
        dialogue::load,
        memory_wait::MemoryWait,
        messages::{ConversationSnapshot, JobEnded, ReplyHandle},
        rewinding::{self, PendingCut, RecentRewinds, RewindIntent, RewindQueue},
    },
    dialogue::{
        events::EventBody,
        rewind::{AppliedRewind, RewindError, RewindResponse, RewindTarget},
        turn::{CutRequester, TurnError, event_error},
    },
    ports::ledger::rewinds::{OnKeyConflict, RewindRecord},
    tenancy::Principal,
};

/// Rewind requests of the conversation, and the state that waits for them.
#[derive(Default)]
pub(super) struct ConversationRewindState {
    intents: RewindQueue<ConversationRewindCaller>,
    /// Jobs that ended meanwhile.
    pub deferred_jobs: Vec<JobEnded>,
    recent: RecentRewinds,
    /// Number of interrupts that may soon request a rewind: simultaneous requests become a single rewind.
    preparing: usize,
    /// The last rewind, until its changes are read.
    outcome: Option<Arc<RewindRecord>>,
    /// True if the outcome of a rewind is unknown. The running line ends first; then the whole state is loaded again.
    pub in_doubt: bool,
    /// True if the running rewind pauses the conversation, false if it ends a pause.
    pauses: Option<bool>,
    /// True if a load was wanted during a rewind; the load then follows the rewind.
    pub load_after: bool,
}

/// A caller that waits for a rewind.
pub(super) enum ConversationRewindCaller {
    Rewind(ReplyHandle<InterruptOutcome>),
    /// The conversation continues afterwards, with or without a resumed line.
    Resume(ReplyHandle<ConversationSnapshot>),
    /// A resume that a simultaneous interrupt overrules.
    StayPaused(ReplyHandle<ConversationSnapshot>),
    /// A line rewound for a continuation is reinstated.
    Reinstate,
}

impl ConversationRewindCaller {
    /// Breaks with the reply handle if the caller requested a rewind.
    fn into_rewind_reply(self) -> ControlFlow<ReplyHandle<InterruptOutcome>, Self> {
        match self {
            Self::Rewind(ask) => ControlFlow::Break(ask),
            other => ControlFlow::Continue(other),
        }
    }

    fn keep_paused(&mut self) {
        *self = match std::mem::replace(self, Self::Reinstate) {
            Self::Resume(ask) => Self::StayPaused(ask),
            other => other,
        };
    }
}

/// Starts the rewinds requested so far.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct BeginConversationRewind;

impl ConversationRewindState {
    pub fn is_busy(&self) -> bool {
        self.intents.is_busy()
    }

    pub fn is_under_way(&self) -> bool {
        self.intents.is_under_way()
    }

    /// Forgets the last rewind before a load.
    pub fn clear_outcome(&mut self) {
        self.outcome = None;
    }
}

impl NpcConversation {
    /// Answers a repeated key with the stored outcome; otherwise pauses and cuts.
    pub(super) fn on_interrupt(
        &mut self,
        wish: InterruptCommand,
        ask: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let Some(key) = wish.key.clone() else {
            return self.pause_and_cut(wish, ask, ctx);
        };
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move { ports.ledger.rewinds.load_rewind_by_key(&scope, id, &key).await };
        self.rewinds.preparing += 1;
        ctx.spawn(look.into_actor(self).map(move |known, talk, ctx| {
            match known {
                Ok(Some(rewound)) => ask.answer(Ok(rewinding::repeated_outcome(rewound))),
                Ok(None) => talk.pause_and_cut(wish, ask, ctx),
                Err(error) => ask.answer(Err(error.into())),
            }
            talk.on_prepared(ctx);
        }));
    }

    /// Ends the preparation of an interrupt, whether or not the interrupt requested a rewind.
    fn on_prepared(&mut self, ctx: &mut Context<Self>) {
        self.rewinds.preparing -= 1;
        if self.rewinds.is_busy() {
            ctx.notify(BeginConversationRewind);
        }
    }

    fn pause_and_cut(&mut self, wish: InterruptCommand, ask: ReplyHandle<InterruptOutcome>, ctx: &mut Context<Self>) {
        if matches!(self.phase, ConversationPhase::Loading) || self.rewinds.intents.is_replacing() {
            return self.early.push_back(ConversationRequest::Interrupt { wish, ask });
        }
        if let Err(error) = self.check_rewind_allowed(wish.turn, wish.if_head) {
            return self.answer_unsaid_or_error(error, wish.key, ask, ctx);
        }
        if self.needs_rewind(&wish) {
            return self.cut_or_rewind(wish, ask, ctx);
        }
        self.rewinds.preparing += 1;
        self.set_paused(true, "interrupted", ctx, move |talk, paused, ctx| {
            match paused {
                Ok(()) => talk.cut_or_rewind(wish, ask, ctx),
                Err(error) => ask.answer(Err(error)),
            }
            talk.on_prepared(ctx);
        });
    }

    /// True if the interrupt rewinds earlier lines. The rewind also pauses the conversation.
    fn needs_rewind(&self, wish: &InterruptCommand) -> bool {
        let (ConversationPhase::Ready(loaded), Some(turn)) = (&self.phase, wish.turn) else {
            return false;
        };
        let head_turn = loaded.dialogue.head_turn;
        let last = loaded.history.last().filter(|said| said.number == turn);
        turn < head_turn
            || last.zip(wish.heard).is_some_and(|(said, heard)| {
                turn == head_turn && heard.to_scalar_count(&said.reply_text) < said.reply_text.chars().count()
            })
    }

    /// Answers with the rewind that removed the requested turn, if any, or else with `error`.
    fn answer_unsaid_or_error(
        &self,
        error: DialogueError,
        key: Option<String>,
        ask: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let rewound = match error {
            DialogueError::NotRunning { turn } => self.last_rewind_removing(turn),
            _ => None,
        };
        match rewound {
            Some(rewound) => {
                self.record_and_answer(key, InterruptOutcome::Rewound(Arc::clone(&rewound)), rewound, ask, ctx);
            }
            None => ask.answer(Err(error)),
        }
    }

    pub(super) fn record_and_answer(
        &self,
        key: Option<String>,
        told: InterruptOutcome,
        outcome: Arc<RewindRecord>,
        ask: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        rewinding::record_and_answer(&self.node, &self.key, key, (told, outcome), ask, ctx);
    }

    /// Checks that the line exists and that the caller knows the head. Returns the head.
    fn check_rewind_allowed(&self, turn: Option<u32>, if_head: Option<u32>) -> Result<u32, DialogueError> {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return Err(self.overloaded_error());
        };
        if loaded.closed || self.closing.is_some() {
            return Err(DialogueError::Ended);
        }
        let head_turn = loaded.dialogue.head_turn;
        let running = self.running.as_ref().map(|running| running.number);
        match (turn, if_head) {
            (_, Some(known)) if known != head_turn && Some(known) != running => {
                Err(DialogueError::StaleHead { head_turn })
            }
            // A line with a pending continuation stands as it was cut.
            (Some(turn), _) if turn == head_turn + 1 && self.pending_replacement().is_some() => Ok(head_turn),
            (Some(turn), _) if turn > head_turn && Some(turn) != running => Err(DialogueError::NotRunning { turn }),
            _ => Ok(head_turn),
        }
    }

    /// Returns the last rewind, if it removed `turn` and no line was said since.
    fn last_rewind_removing(&self, turn: u32) -> Option<Arc<RewindRecord>> {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return None;
        };
        self.rewinds.recent.last_removing(turn, loaded.head)
    }

    /// Returns the last rewind, if its target equals the wish.
    fn last_rewind_to(&self, wish: &InterruptCommand) -> Option<Arc<RewindRecord>> {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return None;
        };
        // A line with a pending replacement is not gone for good.
        let idle = self.running.is_none() && !self.rewinds.is_busy() && self.pending_replacement().is_none();
        self.rewinds.recent.last_with_target(wish, loaded.head).filter(|_| idle)
    }

    fn cut_or_rewind(&mut self, wish: InterruptCommand, ask: ReplyHandle<InterruptOutcome>, ctx: &mut Context<Self>) {
        // An interrupt applies where the cut line ended, before its continuation.
        if self.running.is_none() {
            self.unfinished = None;
            let being_put_back = self.reinstating.is_some() && self.rewinds.is_busy();
            if being_put_back || self.reinstate_turn(ctx) {
                return self.early.push_back(ConversationRequest::Interrupt { wish, ask });
            }
        }
        let head_turn = match self.check_rewind_allowed(wish.turn, None) {
            Ok(head_turn) => head_turn,
            Err(error) => return self.answer_unsaid_or_error(error, wish.key, ask, ctx),
        };
        // A line requested before the cut is not said after it.
        for step in std::mem::take(&mut self.stepping) {
            // The caller may have gone away.
            let _ = step.send(Err(Arc::new(TurnError::Unsaid)));
        }
        if let Some(rewound) = self.last_rewind_to(&wish) {
            return self.record_and_answer(
                wish.key,
                InterruptOutcome::Rewound(Arc::clone(&rewound)),
                rewound,
                ask,
                ctx,
            );
        }
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return;
        };
        match (wish.turn, &self.running) {
            (Some(turn), _) if turn <= head_turn => match loaded.heard_chars_of(turn, wish.heard) {
                Ok(heard_chars) => {
                    let target = RewindTarget::Turn {
                        number: turn,
                        heard_chars,
                    };
                    self.enqueue_rewind(target, wish.key, wish.who, ConversationRewindCaller::Rewind(ask), ctx);
                }
                Err(error) => ask.answer(Err(error)),
            },
            (_, Some(running)) => {
                // Counted in the text sent so far, as the client counted.
                let heard = wish.heard.map(|heard| self.log.heard_scalar_count(heard));
                let by = CutRequester {
                    who: wish.who.clone(),
                    key: wish.key.clone(),
                    action: "conversation.interrupt",
                };
                running.request_cut(heard, Some(by));
                // Answered once the heard part is committed, or unsaid after all.
                let cut = PendingCut::of_running_turn(running, heard, true, wish, ask);
                self.pending_cuts.push(CutWaiter::Cut(cut));
            }
            (_, None) => {
                let outcome = Arc::new(loaded.unchanged_outcome(&self.node));
                self.record_and_answer(wish.key, InterruptOutcome::Idle { head_turn }, outcome, ask, ctx);
            }
        }
    }

    /// Resumes the last line, if cut a moment ago, and continues the conversation.
    pub(super) fn on_resume(
        &mut self,
        who: Principal,
        ask: ReplyHandle<ConversationSnapshot>,
        ctx: &mut Context<Self>,
    ) {
        if self.running.is_none() {
            return self.enqueue_rewind(
                RewindTarget::Resume,
                None,
                who,
                ConversationRewindCaller::Resume(ask),
                ctx,
            );
        }
        if self.pending_cuts.is_empty() {
            self.resume_pacing(ask, ctx);
        } else {
            self.pending_cuts.push(CutWaiter::Resume { who, ask });
        }
    }

    pub(super) fn enqueue_rewind(
        &mut self,
        target: RewindTarget,
        key: Option<String>,
        who: Principal,
        caller: ConversationRewindCaller,
        ctx: &mut Context<Self>,
    ) {
        let action = match caller {
            ConversationRewindCaller::Rewind(_) => "conversation.interrupt",
            ConversationRewindCaller::Resume(_) | ConversationRewindCaller::StayPaused(_) => "conversation.resume",
            ConversationRewindCaller::Reinstate => "conversation.put_back",
        };
        self.rewinds.intents.push_intent(RewindIntent {
            target,
            key,
            who,
            action,
            caller,
        });
        // The message comes after the messages already in the mailbox, so that simultaneous requests become a single
        // rewind.
        ctx.notify(BeginConversationRewind);
    }

    pub(super) fn enqueue_reinstatement(&mut self, target: RewindTarget, who: Principal, ctx: &mut Context<Self>) {
        self.enqueue_rewind(target, None, who, ConversationRewindCaller::Reinstate, ctx);
    }

    fn begin_rewind(&mut self, ctx: &mut Context<Self>) {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return;
        };
        if self.rewinds.preparing > 0 {
            return;
        }
        let Some(goal) = self.rewinds.intents.begin_next() else {
            return;
        };
        if goal.target.paused_after() == Some(true) {
            // An interrupt overrules a resume.
            for caller in self.rewinds.intents.served_callers() {
                caller.keep_paused();
            }
        }
        // A line with a pending replacement would come back after a rewind without changes.
        let fence = self.running.is_some() || loaded.replacing.is_some() || self.reinstating.is_some();
        let seq = self.log.begin_rewind_hold();
        let request = loaded.rewind_request(&self.node, &self.key, goal, fence, seq);
        self.rewinds.pauses = request.paused;
        let moving = rewinding::run_rewind(Arc::clone(&self.node), request);
        ctx.spawn(
            moving
                .into_actor(self)
                .map(|moved, talk, ctx| talk.on_rewind_ended(moved, ctx)),
        );
    }

    fn on_rewind_ended(&mut self, moved: Result<RewindResponse, RewindError>, ctx: &mut Context<Self>) {
        self.mark_used();
        match moved {
            Ok(RewindResponse::Done(done)) => self.on_rewind_applied(*done, ctx),
            Ok(RewindResponse::Repeated(rewound)) => {
                let told = rewinding::repeated_outcome(*rewound);
                self.on_rewind_rejected(&|_| Ok(told.clone()), false, ctx);
            }
            // The whole line had been heard; the interrupt pauses the conversation all the same.
            Ok(RewindResponse::Unchanged) if self.rewinds.pauses.take() == Some(true) => {
                self.pause_without_rewind(ctx, |talk, paused, ctx| {
                    let told = |head_turn| paused.clone().map(|()| InterruptOutcome::Idle { head_turn });
                    talk.on_rewind_rejected(&told, false, ctx);
                });
            }
            Ok(RewindResponse::Unchanged) => {
                self.on_rewind_rejected(&|head_turn| Ok(InterruptOutcome::Idle { head_turn }), false, ctx);
            }
            Err(error) => {
                let doubtful = rewinding::is_outcome_unknown(&error);
                self.on_rewind_rejected(&|_| Err(rewinding::rewind_error(&error)), doubtful, ctx);
            }
        }
    }

    /// Handles a rewind that did not happen, or with `doubtful`, whose outcome is unknown. A running line continues,
    /// and the callers get the reason.
    fn on_rewind_rejected(
        &mut self,
        told: &dyn Fn(u32) -> Result<InterruptOutcome, DialogueError>,
        doubtful: bool,
        ctx: &mut Context<Self>,
    ) {
        self.log.release_rewind_hold(doubtful);
        let callers = self.rewinds.intents.take_failed_callers();
        let load = std::mem::take(&mut self.rewinds.load_after) || doubtful;
        let head_turn = match &self.phase {
            ConversationPhase::Ready(loaded) => loaded.dialogue.head_turn,
            ConversationPhase::Loading => 0,
        };
        let outcome = self.rewinds.outcome.clone();
        for caller in callers {
            match (caller, told(head_turn)) {
                (ConversationRewindCaller::Rewind(ask), Ok(told)) => {
                    ask.answer(Ok(outcome.clone().map_or(told, InterruptOutcome::Rewound)));
                }
                (ConversationRewindCaller::Rewind(ask), Err(error)) => ask.answer(Err(error)),
                (ConversationRewindCaller::Resume(ask), Ok(_) | Err(DialogueError::NothingToResume)) => {
                    self.resume_pacing(ask, ctx);
                }
                (ConversationRewindCaller::StayPaused(ask), Ok(_)) => ask.answer(self.snapshot()),
                (ConversationRewindCaller::Resume(ask) | ConversationRewindCaller::StayPaused(ask), Err(error)) => {
                    ask.answer(Err(error));
                }
                (ConversationRewindCaller::Reinstate, _) => {}
            }
        }
        // The running line and further rewinds end first.
        self.rewinds.in_doubt |= load;
        // A queued rewind decides whether the line stands.
        if let Some(ended) = self.deferred_outcome.take() {
            self.on_turn_ended(ended, ctx);
        }
        if matches!(self.phase, ConversationPhase::Loading) {
            // Queued requests start after the load.
            return;
        }
        if self.rewinds.in_doubt && self.running.is_none() {
            self.start_loading(ctx);
        } else if self.rewinds.is_busy() {
            self.begin_rewind(ctx);
        } else if outcome.is_some() {
            self.reread_after_rewind(Vec::new(), ctx);
        } else {
            self.on_ready(ctx);
        }
    }

    fn on_rewind_applied(&mut self, done: AppliedRewind, ctx: &mut Context<Self>) {
        // The state is read again anyway.
        self.rewinds.load_after = false;
        let ConversationPhase::Ready(loaded) = &mut self.phase else {
            // No load runs during a rewind, so a dialogue is always present.
            return self.cancel_rewinds(&self.overloaded_error());
        };
        let rewound = Arc::new(done.rewound);
        loaded.epoch = rewound.epoch;
        // The answer has the epoch that an earlier rewind would have raised.
        self.rewinds.in_doubt = false;
        self.log.set_epoch(rewound.epoch);
        let before = std::mem::replace(&mut loaded.head, rewound.head);
        loaded.replacing = rewound.replacing;
        self.reinstating = None;
        Arc::make_mut(&mut loaded.dialogue).head_turn = rewound.head_turn;
        let said = self.deferred_outcome.take();
        self.unfinished = done.unfinished;
        let running = self.running.take();
        let ended = running.as_ref().map(|running| running.number);
        if let Some(running) = running {
            self.rewinds.intents.adopt_cuts_of_turn(&running, said.as_ref());
            running.abort_unsaid();
        }
        let unsaid = event_error(&TurnError::Unsaid);
        self.log
            .publish_rewind(EventBody::DialogueRewound((&*rewound).into()), &unsaid);
        failpoint!("rewind.told");
        if let Some(paused) = self.rewinds.pauses.take() {
            self.apply_paused(paused, "interrupted");
        }
        if let Some(timer) = self.memory.timer.take() {
            ctx.cancel_future(timer);
        }
        self.memory = MemoryWait::default();
        for cutting in std::mem::take(&mut self.pending_cuts) {
            match cutting {
                CutWaiter::Cut(cut) => {
                    let ask = self.rewinds.intents.adopt_pending_cut(cut, "conversation.interrupt");
                    self.rewinds
                        .intents
                        .add_served_caller(ConversationRewindCaller::Rewind(ask));
                }
                // Joins and resumes apply to the present state of the conversation.
                other => self.pending_cuts.push(other),
            }
        }
        let (scope, id) = self.key.clone();
        let told = rewinding::notify_others(Arc::clone(&self.node), scope, vec![id], rewound.closed.clone());
        ctx.spawn(told.into_actor(self));
        self.rewinds.recent.record_rewind(before, &rewound, ended);
        self.rewinds.outcome = Some(Arc::clone(&rewound));
        let callers = self.rewinds.intents.finish_at_head(rewound.head_turn);
        if self.rewinds.is_busy() {
            return self.begin_rewind(ctx);
        }
        let late = self.rewinds.intents.take_late_callers();
        if late.is_empty() {
            return self.answer_rewind_callers(callers, &rewound, ctx);
        }
        // Late callers of the rewind are answered after their keys are stored too.
        let phase = std::mem::replace(&mut self.phase, ConversationPhase::Loading);
        let (node, key, known) = (Arc::clone(&self.node), self.key.clone(), OnKeyConflict::Replace);
        let kept = rewinding::record_outcome(node, key, late, Arc::clone(&rewound), known);
        ctx.spawn(kept.into_actor(self).map(move |kept, talk, ctx| {
            talk.phase = phase;
            let callers =
                rewinding::callers_if_recorded(kept, &talk.key, callers, ConversationRewindCaller::into_rewind_reply);
            talk.answer_rewind_callers(callers, &rewound, ctx);
        }));
    }

    /// Answers the callers, and reads the rows that the rewind changed.
    fn answer_rewind_callers(
        &mut self,
        callers: Vec<ConversationRewindCaller>,
        rewound: &Arc<RewindRecord>,
        ctx: &mut Context<Self>,
    ) {
        let mut resuming = Vec::new();
        for caller in callers {
            match caller {
                ConversationRewindCaller::Rewind(ask) => ask.answer(Ok(InterruptOutcome::Rewound(Arc::clone(rewound)))),
                ConversationRewindCaller::Resume(ask) => resuming.push(ask),
                ConversationRewindCaller::StayPaused(ask) => ask.answer(self.snapshot()),
                ConversationRewindCaller::Reinstate => {}
            }
        }
        self.reread_after_rewind(resuming, ctx);
    }

    /// Reads the rows that the rewind changed; all requests wait until then.
    fn reread_after_rewind(&mut self, resuming: Vec<ReplyHandle<ConversationSnapshot>>, ctx: &mut Context<Self>) {
        let ConversationPhase::Ready(mut loaded) = std::mem::replace(&mut self.phase, ConversationPhase::Loading)
        else {
            return;
        };
        self.rewinds.clear_outcome();
        let read = load::reread_after_rewind(Arc::clone(&self.node), self.key.clone(), loaded.epoch, loaded.head);
        ctx.spawn(read.into_actor(self).map(move |read, talk, ctx| match read {
            Ok(read) => {
                talk.memory.expect_turn(read.awaited);
                loaded.apply_reread(read);
                talk.phase = ConversationPhase::Ready(loaded);
                for ask in resuming {
                    talk.resume_pacing(ask, ctx);
                }
                talk.on_ready(ctx);
            }
            Err(error) => {
                tracing::warn!(dialogue = %talk.key.1, %error, "a rewound conversation could not be read");
                for ask in resuming {
                    ask.answer(Err(error.clone().into()));
                }
                talk.start_loading(ctx);
            }
        }));
    }

    pub(super) fn cancel_rewinds(&mut self, error: &DialogueError) {
        for caller in self.rewinds.intents.cancel_all() {
            match caller {
                ConversationRewindCaller::Rewind(ask) => ask.answer(Err(error.clone())),
                ConversationRewindCaller::Resume(ask) | ConversationRewindCaller::StayPaused(ask) => {
                    ask.answer(Err(error.clone()));
                }
                ConversationRewindCaller::Reinstate => {}
            }
        }
        for cutting in self.pending_cuts.drain(..) {
            cutting.reject_with(error.clone());
        }
    }
}

impl Handler<BeginConversationRewind> for NpcConversation {
    type Result = ();

    fn handle(&mut self, BeginConversationRewind: BeginConversationRewind, ctx: &mut Self::Context) {
        self.begin_rewind(ctx);
    }
}
