//! Rewinds of the dialogue: interrupts of earlier turns, rewinds, regenerated and resumed replies.
//!
//! The ledger gets the rewind at once, whatever the running turn waits for. The running turn is aborted only after the
//! head has moved. Lines wait meanwhile, and callers with further rewind requests get the same outcome.

mod interrupt;
mod regenerate;

use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{
    BeginRewind, Session, SessionPhase, SessionRequest,
    waiting_line::{ReplacedHead, WaitingLine},
};
use crate::{
    actors::{
        AcceptedLine, DialogueError, InterruptOutcome, PlayerLine,
        dialogue::load,
        memory_wait::MemoryWait,
        messages::{JobEnded, ReplyHandle},
        rewinding::{self, LateCallers, PendingCut, RecentRewinds, RewindIntent, RewindQueue},
        running_turn::RunningTurn,
    },
    dialogue::{
        events::EventBody,
        rewind::{AppliedRewind, RewindError, RewindResponse, RewindTarget},
        turn::{CommittedTurn, CutRequester, PartialReply, TurnError, event_error},
    },
    ids::TurnId,
    memory::turn::Turn,
    ports::ledger::rewinds::{OnKeyConflict, RewindRecord},
    tenancy::Principal,
};

/// Rewind requests of the session, and the state that waits for them.
#[derive(Default)]
pub(super) struct RewindState {
    intents: RewindQueue<RewindCaller>,
    /// Cuts of the running turn: answered after the heard part is committed, or after the turn is dropped.
    pending_cuts: Vec<PendingCut>,
    /// The result of a running turn that ended during a rewind.
    pub deferred_outcome: Option<Result<CommittedTurn, TurnError>>,
    /// Jobs that ended meanwhile.
    pub deferred_jobs: Vec<JobEnded>,
    /// The turn being reinstated, or whose reinstatement failed.
    reinstating: Option<TurnId>,
    /// True if a load was wanted during a rewind; the load then follows the rewind.
    pub load_after: bool,
    /// The outcome of rewinds for callers that still wait.
    pub outcome: Option<Arc<RewindRecord>>,
    recent: RecentRewinds,
    /// True if the outcome of a rewind is unknown. The running turn ends first; then the whole state is loaded again.
    pub in_doubt: bool,
    /// Number of requests whose idempotency key is being looked up.
    preparing: usize,
    /// True if the queued rewind resumes a reply.
    resuming: bool,
    /// Set by a request that removes turns: lines with a lower number were spoken before and are unsaid with the turns.
    spoken_before: Option<u64>,
    /// Set if the outcome of the rewind is unknown: lines with a lower number are unsaid if the rewind happened.
    pub doubted_before: Option<u64>,
    /// Set if the running turn was fenced: lines with a lower number had been spoken by then.
    pub fenced_before: Option<u64>,
    /// The cut reply that the running rewind found for a continuation.
    unfinished: Option<PartialReply>,
}

/// A caller that waits for a rewind.
#[expect(clippy::large_enum_variant, reason = "a handful, and each for a moment")]
enum RewindCaller {
    Rewind(ReplyHandle<InterruptOutcome>),
    /// The caller wants a cut reply resumed.
    Resume {
        re: Option<Arc<str>>,
        ask: ReplyHandle<InterruptOutcome>,
    },
    /// The caller's line is said again once turn `before` is the last turn.
    Regenerate {
        before: u32,
        line: PlayerLine,
        ask: ReplyHandle<AcceptedLine>,
    },
    /// A turn rewound for a regeneration is reinstated.
    Reinstate,
}

impl RewindCaller {
    /// Breaks with the reply handle if the caller requested a rewind.
    fn into_rewind_reply(self) -> ControlFlow<ReplyHandle<InterruptOutcome>, Self> {
        match self {
            Self::Rewind(ask) => ControlFlow::Break(ask),
            other => ControlFlow::Continue(other),
        }
    }
}

impl RewindState {
    pub fn is_busy(&self) -> bool {
        self.intents.is_busy()
    }

    /// Forgets earlier outcomes after a restore: they do not apply to the restored dialogue.
    pub fn forget_outcomes(&mut self) {
        self.recent = RecentRewinds::default();
        self.deferred_jobs.clear();
        self.reinstating = None;
    }

    /// Notes that no turn needs a reinstatement.
    pub fn clear_reinstating(&mut self) {
        self.reinstating = None;
    }

    pub fn is_under_way(&self) -> bool {
        self.intents.is_under_way()
    }

    /// True if a rewind request may follow soon.
    pub fn is_preparing(&self) -> bool {
        self.preparing > 0
    }

    /// True if a regeneration with the given key is queued.
    fn is_regenerating(&self, key: Option<&str>) -> bool {
        key.is_some()
            && self
                .intents
                .callers()
                .any(|caller| matches!(caller, RewindCaller::Regenerate { line, .. } if line.key.as_deref() == key))
    }
}

impl RewindCaller {
    fn reject_with(self, error: DialogueError) {
        match self {
            Self::Rewind(ask) | Self::Resume { ask, .. } => ask.answer(Err(error)),
            Self::Regenerate { ask, .. } => ask.answer(Err(error)),
            Self::Reinstate => {}
        }
    }
}

impl Session {
    fn enqueue_rewind(
        &mut self,
        target: RewindTarget,
        key: Option<String>,
        who: Principal,
        action: &'static str,
        caller: RewindCaller,
        ctx: &mut Context<Self>,
    ) {
        if self.removes_turns(target) {
            self.rewinds.spoken_before.get_or_insert(self.next_line);
        }
        self.rewinds.intents.push_intent(RewindIntent {
            target,
            key,
            who,
            action,
            caller,
        });
        // The message comes after the messages already in the mailbox, so that simultaneous requests become a single
        // rewind.
        ctx.notify(BeginRewind);
    }

    /// True if the rewind removes turns, and not only the end of the last reply.
    fn removes_turns(&self, target: RewindTarget) -> bool {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return false;
        };
        match target {
            RewindTarget::Turn { number, .. } => number < loaded.dialogue.head_turn || self.running.is_some(),
            RewindTarget::Regenerate { .. } => true,
            RewindTarget::Resume | RewindTarget::Reinstate { .. } => false,
        }
    }

    fn drain_queue_where(&mut self, are_gone: impl FnMut(&WaitingLine) -> bool) -> VecDeque<WaitingLine> {
        let (gone, waiting) = std::mem::take(&mut self.queue).into_iter().partition(are_gone);
        self.queue = waiting;
        gone
    }

    /// Cancels lines with a lower number than `before`, which were said to rewound turns. Listeners get an event per
    /// line. [`Self::drop_replacements`] handles lines that replace a turn.
    pub(super) fn unsay_queued_lines(&mut self, before: u64) {
        for key in self.cancel_queued_lines(before, &DialogueError::TurnUnsaid, TurnError::Unsaid) {
            self.keys.mark_unsaid(key);
        }
    }

    /// Cancels lines with a lower number than `before` behind a fenced turn, with the same error. A retry with the same
    /// key says the line to the present head.
    pub(super) fn fence_queued_lines(&mut self, before: u64) {
        let refused = self.overloaded_error();
        self.cancel_queued_lines(before, &refused, TurnError::Fenced);
    }

    /// Cancels lines with a lower number than `before` with the given errors. Returns the keys of the lines.
    fn cancel_queued_lines(&mut self, before: u64, refused: &DialogueError, ended: TurnError) -> Vec<String> {
        let (why, ended) = (event_error(&ended), Arc::new(ended));
        let mut keys = Vec::new();
        for line in self.drain_queue_where(|line| line.id < before && line.replaces_after.is_none()) {
            // Lines that were not accepted get only the refusal.
            if line.is_accepted() {
                let body = EventBody::Error {
                    turn: None,
                    error: why.clone(),
                };
                self.log.publish_event(body, line.re());
            }
            keys.extend(line.line.key.clone());
            line.cancel_with(refused, &ended);
        }
        keys
    }

    // --- moving the head ---

    pub(super) fn begin_rewind(&mut self, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        if self.rewinds.is_preparing() {
            // Simultaneous callers get the same rewind.
            return;
        }
        let Some(goal) = self.rewinds.intents.begin_next() else {
            return;
        };
        // A turn with a pending replacement would come back after a rewind without changes.
        let owed = self.has_pending_replacement() || self.rewinds.reinstating.is_some();
        let (fence, seq) = (self.running.is_some() || owed, self.log.begin_rewind_hold());
        let request = loaded.rewind_request(&self.node, &self.key, goal, fence, seq);
        let moving = rewinding::run_rewind(Arc::clone(&self.node), request);
        ctx.spawn(
            moving
                .into_actor(self)
                .map(|moved, session, ctx| session.on_rewind_ended(moved, ctx)),
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
            Ok(RewindResponse::Unchanged) => {
                self.on_rewind_rejected(&|head_turn| Ok(InterruptOutcome::Idle { head_turn }), false, ctx);
            }
            Err(error) => {
                let doubtful = rewinding::is_outcome_unknown(&error);
                self.on_rewind_rejected(&|_| Err(rewinding::rewind_error(&error)), doubtful, ctx);
            }
        }
    }

    /// Handles a rewind that did not happen, or with `doubtful`, whose outcome is unknown. The running turn continues,
    /// and the callers get the reason.
    fn on_rewind_rejected(
        &mut self,
        told: &dyn Fn(u32) -> Result<InterruptOutcome, DialogueError>,
        doubtful: bool,
        ctx: &mut Context<Self>,
    ) {
        self.log.release_rewind_hold(doubtful);
        let callers = self.rewinds.intents.take_failed_callers();
        if doubtful {
            self.rewinds.doubted_before = Some(self.rewinds.spoken_before.unwrap_or_default());
        }
        if !self.rewinds.intents.is_busy() {
            self.rewinds.spoken_before = None;
        }
        let load = std::mem::take(&mut self.rewinds.load_after) || doubtful;
        let head_turn = match &self.phase {
            SessionPhase::Ready(loaded) => loaded.dialogue.head_turn,
            SessionPhase::Loading => 0,
        };
        let outcome = self.rewinds.outcome.clone();
        self.rewinds.resuming = false;
        for caller in callers {
            match caller {
                RewindCaller::Rewind(ask) | RewindCaller::Resume { ask, .. } => {
                    ask.answer(match (&outcome, told(head_turn)) {
                        (Some(rewound), Ok(_)) => Ok(InterruptOutcome::Rewound(Arc::clone(rewound))),
                        (_, told) => told,
                    });
                }
                RewindCaller::Regenerate { ask, .. } => ask.answer(Err(match told(head_turn) {
                    Err(error) => error,
                    Ok(_) => DialogueError::NothingToRegenerate,
                })),
                RewindCaller::Reinstate => {}
            }
        }
        // The running turn and further rewinds end first.
        self.rewinds.in_doubt |= load;
        if let Some(ended) = self.rewinds.deferred_outcome.take() {
            self.on_turn_ended(ended, ctx);
        }
        if matches!(self.phase, SessionPhase::Loading) {
            // Queued requests start after the load.
            return;
        }
        if self.rewinds.in_doubt && self.running.is_none() {
            self.start_loading(ctx);
        } else if self.rewinds.is_busy() {
            self.begin_rewind(ctx);
        } else if outcome.is_some() {
            self.rewinds.outcome = None;
            self.reread_after_rewind(ctx);
        } else {
            self.on_ready(ctx);
        }
    }

    fn on_rewind_applied(&mut self, done: AppliedRewind, ctx: &mut Context<Self>) {
        // The state is read again anyway.
        self.rewinds.load_after = false;
        self.rewinds.reinstating = None;
        let SessionPhase::Ready(loaded) = &mut self.phase else {
            // No load runs during a rewind, so a dialogue is always present.
            return self.cancel_rewinds(&self.overloaded_error());
        };
        let rewound = Arc::new(done.rewound);
        loaded.epoch = rewound.epoch;
        // The answer has the epoch that an earlier rewind would have raised.
        self.rewinds.in_doubt = false;
        self.rewinds.doubted_before = None;
        self.log.set_epoch(rewound.epoch);
        let before = std::mem::replace(&mut loaded.head, rewound.head);
        loaded.replacing = rewound.replacing;
        Arc::make_mut(&mut loaded.dialogue).head_turn = rewound.head_turn;
        self.track_head_playback(rewound.heard_chars.is_some(), ctx);
        let said = self.rewinds.deferred_outcome.take();
        self.rewinds.unfinished = done.unfinished;
        let running = self.running.take();
        let ended = running.as_ref().map(|running| running.number);
        if let Some(running) = running {
            self.rewinds.intents.adopt_cuts_of_turn(&running, said.as_ref());
            if let Some(keyed) = &running.key {
                self.keys.mark_unsaid(keyed.key.clone());
            }
            running.abort_unsaid();
        }
        for cut in std::mem::take(&mut self.rewinds.pending_cuts) {
            let ask = self.rewinds.intents.adopt_pending_cut(cut, "session.interrupt");
            self.rewinds.intents.add_served_caller(RewindCaller::Rewind(ask));
        }
        let unsaid = event_error(&TurnError::Unsaid);
        self.log
            .publish_rewind(EventBody::DialogueRewound((&*rewound).into()), &unsaid);
        failpoint!("rewind.told");
        self.drop_replacements(|_| false);
        let spoken_before = self.rewinds.spoken_before.take().unwrap_or_default();
        self.unsay_queued_lines(spoken_before);
        self.keys.reset_known(true);
        if let Some(timer) = self.memory.timer.take() {
            ctx.cancel_future(timer);
        }
        self.memory = MemoryWait::default();
        let (scope, id) = self.key.clone();
        let told = rewinding::notify_others(Arc::clone(&self.node), scope, vec![id], rewound.closed.clone());
        ctx.spawn(told.into_actor(self));
        self.rewinds.recent.record_rewind(before, &rewound, ended);
        self.rewinds.outcome = Some(Arc::clone(&rewound));
        let callers = self.rewinds.intents.finish_at_head(rewound.head_turn);
        if self.rewinds.is_busy() {
            return self.begin_rewind(ctx);
        }
        self.rewinds.outcome = None;
        self.rewinds.resuming = false;
        let late = self.rewinds.intents.take_late_callers();
        if late.is_empty() {
            self.answer_rewind_callers(callers, &rewound);
            return self.reread_after_rewind(ctx);
        }
        // Late callers of the rewind are answered after their keys are stored too.
        let phase = std::mem::replace(&mut self.phase, SessionPhase::Loading);
        let (node, key, known) = (Arc::clone(&self.node), self.key.clone(), OnKeyConflict::Replace);
        let kept = rewinding::record_outcome(node, key, late, Arc::clone(&rewound), known);
        ctx.spawn(kept.into_actor(self).map(move |kept, session, ctx| {
            session.phase = phase;
            session.answer_rewind_callers(
                rewinding::callers_if_recorded(kept, &session.key, callers, RewindCaller::into_rewind_reply),
                &rewound,
            );
            session.reread_after_rewind(ctx);
        }));
    }

    fn answer_rewind_callers(&mut self, callers: Vec<RewindCaller>, rewound: &Arc<RewindRecord>) {
        let mut for_whom = None;
        for caller in callers {
            match caller {
                RewindCaller::Rewind(ask) => ask.answer(Ok(InterruptOutcome::Rewound(Arc::clone(rewound)))),
                RewindCaller::Resume { re, ask } => {
                    for_whom = for_whom.or(re);
                    ask.answer(Ok(InterruptOutcome::Rewound(Arc::clone(rewound))));
                }
                RewindCaller::Regenerate { before, line, ask }
                    if before == rewound.head_turn && rewound.replacing.is_some() =>
                {
                    let Some(ask) = self.join_turn_with_key(line.key.as_deref(), ask) else {
                        continue;
                    };
                    let id = self.next_line;
                    self.next_line += 1;
                    let waiting = WaitingLine::for_regeneration(
                        id,
                        line,
                        self.now(),
                        ask,
                        self.node.metrics.count_waiting_line(),
                    );
                    self.queue.push_front(waiting.replacing_after(rewound.head));
                }
                RewindCaller::Regenerate { ask, .. } => ask.answer(Err(DialogueError::StaleHead {
                    head_turn: rewound.head_turn,
                })),
                RewindCaller::Reinstate => {}
            }
        }
        if let Some(unfinished) = self.rewinds.unfinished.take() {
            let id = self.next_line;
            self.next_line += 1;
            let waiting = WaitingLine::for_continuation(
                id,
                unfinished,
                for_whom,
                self.now(),
                self.node.metrics.count_waiting_line(),
            );
            self.queue.push_front(waiting.replacing_after(rewound.head));
        }
    }

    /// Cancels lines that replace a turn and follow a head for which `is_theirs` is false.
    pub(super) fn drop_replacements(&mut self, is_theirs: impl Fn(Option<TurnId>) -> bool) {
        let gone =
            self.drain_queue_where(|line| line.replaces_after.is_some_and(|ReplacedHead(head)| !is_theirs(head)));
        gone.into_iter().for_each(WaitingLine::cancel_unsaid);
    }

    /// Reads the rows that the rewind changed; all requests wait until then.
    fn reread_after_rewind(&mut self, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(mut loaded) = std::mem::replace(&mut self.phase, SessionPhase::Loading) else {
            return;
        };
        let read = load::reread_after_rewind(Arc::clone(&self.node), self.key.clone(), loaded.epoch, loaded.head);
        ctx.spawn(read.into_actor(self).map(move |read, session, ctx| match read {
            Ok(read) => {
                session.memory.expect_turn(read.awaited);
                loaded.apply_reread(read);
                session.phase = SessionPhase::Ready(loaded);
                session.resolve_pending_cuts(ctx);
                session.on_ready(ctx);
            }
            Err(error) => {
                tracing::warn!(dialogue = %session.key.1, %error, "a rewound dialogue could not be read");
                session.start_loading(ctx);
            }
        }));
    }

    /// Notes a committed turn and the keys of its cuts: the stored keys need no further record.
    pub(super) fn mark_cuts_committed(&mut self, turn: &Arc<Turn>, keys: &[String]) {
        for cutting in &mut self.rewinds.pending_cuts {
            cutting.on_turn_committed(turn, keys);
        }
    }

    /// Notes a turn that was cut before the first character of its reply: no commit records the callers of the cuts.
    pub(super) fn mark_cuts_dropped(&mut self, running: &RunningTurn, ctx: &mut Context<Self>) {
        let mut by = running.cut_requesters();
        for cutting in &mut self.rewinds.pending_cuts {
            cutting.on_turn_dropped(running.id);
            // A caller that still waits is recorded with the answer.
            if let Some(at) = by.iter().position(|by| cutting.is_requested_by(by)) {
                by.swap_remove(at);
            }
        }
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let mut late = LateCallers::default();
        for CutRequester { who, key, action } in by {
            late.add_caller(key, Some((who, action)));
        }
        self.record_late_cuts(
            late,
            loaded.unchanged_outcome(&self.node).into_dropped(running.number),
            ctx,
        );
    }

    /// Resolves the pending cuts after the end of their turn.
    pub(super) fn resolve_pending_cuts(&mut self, ctx: &mut Context<Self>) {
        if self.running.is_some() || matches!(self.phase, SessionPhase::Loading) {
            return;
        }
        for cutting in std::mem::take(&mut self.rewinds.pending_cuts) {
            self.resolve_cut(cutting, ctx);
        }
    }

    pub(super) fn cancel_rewinds(&mut self, error: &DialogueError) {
        for caller in self.rewinds.intents.cancel_all() {
            caller.reject_with(error.clone());
        }
        for cutting in self.rewinds.pending_cuts.drain(..) {
            cutting.ask.answer(Err(error.clone()));
        }
    }
}
