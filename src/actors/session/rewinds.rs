//! Taking the dialogue back: interrupts of what was said, rewinds, replies said anew or taken up again.
//!
//! The ledger is asked at once, whatever the running turn waits for; only when the head has moved is
//! that turn let go. Meanwhile lines wait, and whoever else asks to take the dialogue back is told
//! the same outcome.

mod interrupt;
mod regenerate;

use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{
    BeginRewind, JobEnded, Session, SessionPhase, SessionRequest, load,
    waiting_line::{ReplacedHead, WaitingLine},
};
use crate::{
    actors::{
        AcceptedLine, DialogueError, InterruptOutcome, PlayerLine,
        memory_wait::MemoryWait,
        messages::ReplyHandle,
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

/// What is asked of the head, and what waits for it.
#[derive(Default)]
pub(super) struct RewindState {
    intents: RewindQueue<RewindCaller>,
    /// Cuts of the turn that runs: told once what was said of it is committed, or came to nothing.
    pending_cuts: Vec<PendingCut>,
    /// How the running turn ended while the head was being moved.
    pub deferred_outcome: Option<Result<CommittedTurn, TurnError>>,
    /// Jobs that ended meanwhile.
    pub deferred_jobs: Vec<JobEnded>,
    /// The turn that is being put back, or could not be.
    reinstating: Option<TurnId>,
    /// Somebody wanted everything read anew while a move was under way; then it is read after it.
    pub load_after: bool,
    /// What the moves of the callers that still wait have come to.
    pub outcome: Option<Arc<RewindRecord>>,
    recent: RecentRewinds,
    /// Whether a move was made is not known. What runs meanwhile ends, and then everything is read anew.
    pub in_doubt: bool,
    /// Those who may ask for a move: whether their keys are known is being looked up.
    preparing: usize,
    /// What is asked is to take a reply up again.
    resuming: bool,
    /// Somebody asked to take turns back: lines with a lower number had been spoken before, and go with them.
    spoken_before: Option<u64>,
    /// Whether that was done is not known: those lines go if it was.
    pub doubted_before: Option<u64>,
    /// The running turn was fenced, and lines with a lower number had been spoken by then.
    pub fenced_before: Option<u64>,
    /// The reply that the move under way has found to be gone on with.
    unfinished: Option<PartialReply>,
}

/// Who is told of a move.
#[expect(clippy::large_enum_variant, reason = "a handful, and each for a moment")]
enum RewindCaller {
    Rewind(ReplyHandle<InterruptOutcome>),
    /// Whose reply is taken up again.
    Resume {
        re: Option<Arc<str>>,
        ask: ReplyHandle<InterruptOutcome>,
    },
    /// Its line is said anew once turn `before` is the last one.
    Regenerate {
        before: u32,
        line: PlayerLine,
        ask: ReplyHandle<AcceptedLine>,
    },
    /// What was to be said anew is put back.
    Reinstate,
}

impl RewindCaller {
    /// Whether somebody asked to take the dialogue back.
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

    /// Another dialogue is made of it: earlier outcomes say nothing about what stands.
    pub fn forget_outcomes(&mut self) {
        self.recent = RecentRewinds::default();
        self.deferred_jobs.clear();
        self.reinstating = None;
    }

    /// No turn is owed.
    pub fn clear_reinstating(&mut self) {
        self.reinstating = None;
    }

    pub fn is_under_way(&self) -> bool {
        self.intents.is_under_way()
    }

    /// Whether somebody may be about to ask for a move.
    pub fn is_preparing(&self) -> bool {
        self.preparing > 0
    }

    /// Whether a line is to be said anew as the turn that this key is for.
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
        // After the messages that are here already: what is asked at once is one move.
        ctx.notify(BeginRewind);
    }

    /// Whether turns go with it, and not only the end of the last reply.
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

    /// Lines with a lower number than `before` were said to what is taken back, and go with it. Those who listen
    /// are told of each. What becomes of those that take a turn's place is decided by [`Self::drop_replacements`].
    pub(super) fn unsay_queued_lines(&mut self, before: u64) {
        for key in self.cancel_queued_lines(before, &DialogueError::TurnUnsaid, TurnError::Unsaid) {
            self.keys.mark_unsaid(key);
        }
    }

    /// Lines with a lower number than `before` waited behind a turn that was fenced, and end as it did: whoever asks again with the same key says it to what
    /// stands.
    pub(super) fn fence_queued_lines(&mut self, before: u64) {
        let refused = self.overloaded_error();
        self.cancel_queued_lines(before, &refused, TurnError::Fenced);
    }

    /// Lines with a lower number than `before` are not said, and end so. Returns their keys.
    fn cancel_queued_lines(&mut self, before: u64, refused: &DialogueError, ended: TurnError) -> Vec<String> {
        let (why, ended) = (event_error(&ended), Arc::new(ended));
        let mut keys = Vec::new();
        for line in self.drain_queue_where(|line| line.id < before && line.replaces_after.is_none()) {
            // Others are answered that it is none.
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
            // Who asks at the same time is told of the same move.
            return;
        }
        let Some(goal) = self.rewinds.intents.begin_next() else {
            return;
        };
        // A turn that is owed would come back after a move that changes nothing.
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

    /// Nothing was written, or if it is `doubtful`, nobody knows: the running turn goes on, and who asked is
    /// told why.
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
        // What runs ends first, and so does what is moved meanwhile.
        self.rewinds.in_doubt |= load;
        if let Some(ended) = self.rewinds.deferred_outcome.take() {
            self.on_turn_ended(ended, ctx);
        }
        if matches!(self.phase, SessionPhase::Loading) {
            // What is still asked is begun once everything is read.
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
        // Everything is read again anyway.
        self.rewinds.load_after = false;
        self.rewinds.reinstating = None;
        let SessionPhase::Ready(loaded) = &mut self.phase else {
            // Nothing is read while a move is under way, so there is always a dialogue to move.
            return self.cancel_rewinds(&self.overloaded_error());
        };
        let rewound = Arc::new(done.rewound);
        loaded.epoch = rewound.epoch;
        // It holds the epoch that an earlier move would have raised.
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
        // Whoever came when the move was written is told once that is written too.
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

    /// Lines that were to take the place of a turn, and for which the head `is_theirs` no longer, are not said.
    pub(super) fn drop_replacements(&mut self, is_theirs: impl Fn(Option<TurnId>) -> bool) {
        let gone =
            self.drain_queue_where(|line| line.replaces_after.is_some_and(|ReplacedHead(head)| !is_theirs(head)));
        gone.into_iter().for_each(WaitingLine::cancel_unsaid);
    }

    /// Reads what the move changed; until then everything waits.
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

    /// A turn was committed, with the cuts of these keys: nothing is left to keep of them.
    pub(super) fn mark_cuts_committed(&mut self, turn: &Arc<Turn>, keys: &[String]) {
        for cutting in &mut self.rewinds.pending_cuts {
            cutting.on_turn_committed(turn, keys);
        }
    }

    /// A turn was cut before the first character of its reply: nothing is committed that would tell of those who cut it.
    pub(super) fn mark_cuts_dropped(&mut self, running: &RunningTurn, ctx: &mut Context<Self>) {
        let mut by = running.cut_requesters();
        for cutting in &mut self.rewinds.pending_cuts {
            cutting.on_turn_dropped(running.id);
            // Who waits to be told is written down then.
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

    /// The turn that cuts waited for has ended, one way or another.
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
