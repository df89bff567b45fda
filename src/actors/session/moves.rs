//! Taking the dialogue back: interrupts of what was said, rewinds, replies said anew or taken up again.
//!
//! The ledger is asked at once, whatever the running turn waits for; only when the head has moved is
//! that turn let go. Meanwhile lines wait, and whoever else asks to take the dialogue back is told
//! the same outcome.

mod anew;
mod asking;

use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{
    BeginMove, JobEnded, Phase, Request, Session, load,
    waiting::{Follows, Waiting},
};
use crate::{
    actors::{
        Accepted, Interrupted, Line, SessionError,
        handle::Ask,
        memory_wait::MemoryWait,
        rewinding::{self, Gone, Late, Moves, PendingCut, Wish},
        running::Running,
    },
    dialogue::{
        events::EventBody,
        rewind::{Move, Moved, RewindError, Target},
        turn::{CommittedTurn, CutBy, TurnError, Unfinished, event_error},
    },
    ids::TurnId,
    memory::turn::Turn,
    ports::ledger::rewinds::{KnownKeys, Rewound},
    tenancy::Principal,
};

/// What is asked of the head, and what waits for it.
#[derive(Default)]
pub(super) struct Moving {
    moves: Moves<Caller>,
    /// Cuts of the turn that runs: told once what was said of it is committed, or came to nothing.
    cutting: Vec<PendingCut>,
    /// How the running turn ended while the head was being moved.
    pub ended: Option<Result<CommittedTurn, TurnError>>,
    /// Jobs that ended meanwhile.
    pub jobs: Vec<JobEnded>,
    /// The turn that is being put back, or could not be.
    put_back: Option<TurnId>,
    /// Somebody wanted everything read anew while a move was under way; then it is read after it.
    pub load_after: bool,
    /// What the moves of the callers that still wait have come to.
    pub outcome: Option<Arc<Rewound>>,
    gone: Gone,
    /// Whether a move was made is not known. What runs meanwhile ends, and then everything is read anew.
    pub in_doubt: bool,
    /// Those who may ask for a move: whether their keys are known is being looked up.
    looking: usize,
    /// What is asked is to take a reply up again.
    taking_up: bool,
    /// Somebody asked to take turns back: lines with a lower number had been spoken before, and go with them.
    spoken_before: Option<u64>,
    /// Whether that was done is not known: those lines go if it was.
    pub doubted_before: Option<u64>,
    /// The running turn was fenced, and lines with a lower number had been spoken by then.
    pub fenced_before: Option<u64>,
    /// The reply that the move under way has found to be gone on with.
    unfinished: Option<Unfinished>,
}

/// Who is told of a move.
#[expect(clippy::large_enum_variant, reason = "a handful, and each for a moment")]
enum Caller {
    Back(Ask<Interrupted>),
    /// Whose reply is taken up again.
    Up {
        re: Option<Arc<str>>,
        ask: Ask<Interrupted>,
    },
    /// Its line is said anew once turn `before` is the last one.
    Anew {
        before: u32,
        line: Line,
        ask: Ask<Accepted>,
    },
    /// What was to be said anew is put back.
    Nobody,
}

impl Caller {
    /// Whether somebody asked to take the dialogue back.
    fn back(self) -> ControlFlow<Ask<Interrupted>, Self> {
        match self {
            Self::Back(ask) => ControlFlow::Break(ask),
            other => ControlFlow::Continue(other),
        }
    }
}

impl Moving {
    pub fn is_busy(&self) -> bool {
        self.moves.is_busy()
    }

    /// Another dialogue is made of it: earlier outcomes say nothing about what stands.
    pub fn forget(&mut self) {
        self.gone = Gone::default();
        self.jobs.clear();
        self.put_back = None;
    }

    /// No turn is owed.
    pub fn is_put_back(&mut self) {
        self.put_back = None;
    }

    pub fn is_under_way(&self) -> bool {
        self.moves.is_under_way()
    }

    /// Whether somebody may be about to ask for a move.
    pub fn is_looking(&self) -> bool {
        self.looking > 0
    }

    /// Whether a line is to be said anew as the turn that this key is for.
    fn says_anew(&self, key: Option<&str>) -> bool {
        key.is_some()
            && self
                .moves
                .callers()
                .any(|caller| matches!(caller, Caller::Anew { line, .. } if line.key.as_deref() == key))
    }
}

impl Caller {
    fn refuse(self, error: SessionError) {
        match self {
            Self::Back(ask) | Self::Up { ask, .. } => ask.answer(Err(error)),
            Self::Anew { ask, .. } => ask.answer(Err(error)),
            Self::Nobody => {}
        }
    }
}

impl Session {
    fn want(
        &mut self,
        target: Target,
        key: Option<String>,
        who: Principal,
        action: &'static str,
        caller: Caller,
        ctx: &mut Context<Self>,
    ) {
        if self.takes_back(target) {
            self.moving.spoken_before.get_or_insert(self.next_line);
        }
        self.moving.moves.add(Wish {
            target,
            key,
            who,
            action,
            caller,
        });
        // After the messages that are here already: what is asked at once is one move.
        ctx.notify(BeginMove);
    }

    /// Whether turns go with it, and not only the end of the last reply.
    fn takes_back(&self, target: Target) -> bool {
        let Phase::Ready(loaded) = &self.phase else {
            return false;
        };
        match target {
            Target::Turn { number, .. } => number < loaded.dialogue.head_turn || self.running.is_some(),
            Target::Anew { .. } => true,
            Target::Uncut | Target::Again { .. } => false,
        }
    }

    fn take_lines(&mut self, are_gone: impl FnMut(&Waiting) -> bool) -> VecDeque<Waiting> {
        let (gone, waiting) = std::mem::take(&mut self.queue).into_iter().partition(are_gone);
        self.queue = waiting;
        gone
    }

    /// Lines with a lower number than `before` were said to what is taken back, and go with it. Those who listen
    /// are told of each. What becomes of those that take a turn's place is decided by [`Self::drop_replacements`].
    pub(super) fn unsay_lines(&mut self, before: u64) {
        for key in self.let_lines_go(before, &SessionError::TurnUnsaid, TurnError::Unsaid) {
            self.keys.unsay(key);
        }
    }

    /// Lines with a lower number than `before` waited behind a turn that was fenced, and end as it did: whoever asks again with the same key says it to what
    /// stands.
    pub(super) fn fence_lines(&mut self, before: u64) {
        let refused = self.overloaded();
        self.let_lines_go(before, &refused, TurnError::Fenced);
    }

    /// Lines with a lower number than `before` are not said, and end so. Returns their keys.
    fn let_lines_go(&mut self, before: u64, refused: &SessionError, ended: TurnError) -> Vec<String> {
        let (why, ended) = (event_error(&ended), Arc::new(ended));
        let mut keys = Vec::new();
        for line in self.take_lines(|line| line.id < before && line.after.is_none()) {
            // Others are answered that it is none.
            if line.is_accepted() {
                let body = EventBody::Error {
                    turn: None,
                    error: why.clone(),
                };
                self.log.publish(body, line.re());
            }
            keys.extend(line.line.key.clone());
            line.let_go(refused, &ended);
        }
        keys
    }

    // --- moving the head ---

    pub(super) fn begin_move(&mut self, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        if self.moving.is_looking() {
            // Who asks at the same time is told of the same move.
            return;
        }
        let Some(goal) = self.moving.moves.begin() else { return };
        // A turn that is owed would come back after a move that changes nothing.
        let owed = self.owes_a_turn() || self.moving.put_back.is_some();
        let (fence, seq) = (self.running.is_some() || owed, self.log.begin_move());
        let request = loaded.rewind_request(&self.node, &self.key, goal, fence, seq);
        let moving = rewinding::run(Arc::clone(&self.node), request);
        ctx.spawn(
            moving
                .into_actor(self)
                .map(|moved, session, ctx| session.move_ended(moved, ctx)),
        );
    }

    fn move_ended(&mut self, moved: Result<Moved, RewindError>, ctx: &mut Context<Self>) {
        self.touch();
        match moved {
            Ok(Moved::Done(done)) => self.head_moved(*done, ctx),
            Ok(Moved::Repeated(rewound)) => {
                let told = rewinding::repeated(*rewound);
                self.head_stays(&|_| Ok(told.clone()), false, ctx);
            }
            Ok(Moved::Unchanged) => self.head_stays(&|head_turn| Ok(Interrupted::Idle { head_turn }), false, ctx),
            Err(error) => {
                let doubtful = rewinding::is_doubtful(&error);
                self.head_stays(&|_| Err(rewinding::refused(&error)), doubtful, ctx);
            }
        }
    }

    /// Nothing was written, or if it is `doubtful`, nobody knows: the running turn goes on, and who asked is
    /// told why.
    fn head_stays(
        &mut self,
        told: &dyn Fn(u32) -> Result<Interrupted, SessionError>,
        doubtful: bool,
        ctx: &mut Context<Self>,
    ) {
        self.log.not_moved(doubtful);
        let callers = self.moving.moves.failed();
        if doubtful {
            self.moving.doubted_before = Some(self.moving.spoken_before.unwrap_or_default());
        }
        if !self.moving.moves.is_busy() {
            self.moving.spoken_before = None;
        }
        let load = std::mem::take(&mut self.moving.load_after) || doubtful;
        let head_turn = match &self.phase {
            Phase::Ready(loaded) => loaded.dialogue.head_turn,
            Phase::Loading => 0,
        };
        let outcome = self.moving.outcome.clone();
        self.moving.taking_up = false;
        for caller in callers {
            match caller {
                Caller::Back(ask) | Caller::Up { ask, .. } => ask.answer(match (&outcome, told(head_turn)) {
                    (Some(rewound), Ok(_)) => Ok(Interrupted::Rewound(Arc::clone(rewound))),
                    (_, told) => told,
                }),
                Caller::Anew { ask, .. } => ask.answer(Err(match told(head_turn) {
                    Err(error) => error,
                    Ok(_) => SessionError::NothingToRegenerate,
                })),
                Caller::Nobody => {}
            }
        }
        // What runs ends first, and so does what is moved meanwhile.
        self.moving.in_doubt |= load;
        if let Some(ended) = self.moving.ended.take() {
            self.ended(ended, ctx);
        }
        if matches!(self.phase, Phase::Loading) {
            // What is still asked is begun once everything is read.
            return;
        }
        if self.moving.in_doubt && self.running.is_none() {
            self.load(ctx);
        } else if self.moving.is_busy() {
            self.begin_move(ctx);
        } else if outcome.is_some() {
            self.moving.outcome = None;
            self.reread(ctx);
        } else {
            self.ready(ctx);
        }
    }

    fn head_moved(&mut self, done: Move, ctx: &mut Context<Self>) {
        // Everything is read again anyway.
        self.moving.load_after = false;
        self.moving.put_back = None;
        let Phase::Ready(loaded) = &mut self.phase else {
            // Nothing is read while a move is under way, so there is always a dialogue to move.
            return self.give_up_moves(&self.overloaded());
        };
        let rewound = Arc::new(done.rewound);
        loaded.epoch = rewound.epoch;
        // It holds the epoch that an earlier move would have raised.
        self.moving.in_doubt = false;
        self.moving.doubted_before = None;
        self.log.holds(rewound.epoch);
        let before = std::mem::replace(&mut loaded.head, rewound.head);
        loaded.replacing = rewound.replacing;
        Arc::make_mut(&mut loaded.dialogue).head_turn = rewound.head_turn;
        self.head_is_new(rewound.heard_chars.is_some(), ctx);
        let said = self.moving.ended.take();
        self.moving.unfinished = done.unfinished;
        let running = self.running.take();
        let ended = running.as_ref().map(|running| running.number);
        if let Some(running) = running {
            self.moving.moves.owe_cuts(&running, said.as_ref());
            if let Some(keyed) = &running.key {
                self.keys.unsay(keyed.key.clone());
            }
            running.unsay();
        }
        for cut in std::mem::take(&mut self.moving.cutting) {
            let ask = self.moving.moves.owe_cut(cut, "session.interrupt");
            self.moving.moves.also_tell(Caller::Back(ask));
        }
        let unsaid = event_error(&TurnError::Unsaid);
        self.log.moved(EventBody::DialogueRewound((&*rewound).into()), &unsaid);
        failpoint!("rewind.told");
        self.drop_replacements(|_| false);
        let spoken_before = self.moving.spoken_before.take().unwrap_or_default();
        self.unsay_lines(spoken_before);
        self.keys.begin_anew(true);
        if let Some(timer) = self.memory.timer.take() {
            ctx.cancel_future(timer);
        }
        self.memory = MemoryWait::default();
        let (scope, id) = self.key.clone();
        let told = rewinding::tell_others(Arc::clone(&self.node), scope, vec![id], rewound.closed.clone());
        ctx.spawn(told.into_actor(self));
        self.moving.gone.note(before, &rewound, ended);
        self.moving.outcome = Some(Arc::clone(&rewound));
        let callers = self.moving.moves.ended(rewound.head_turn);
        if self.moving.is_busy() {
            return self.begin_move(ctx);
        }
        self.moving.outcome = None;
        self.moving.taking_up = false;
        let late = self.moving.moves.take_late();
        if late.is_empty() {
            self.tell(callers, &rewound);
            return self.reread(ctx);
        }
        // Whoever came when the move was written is told once that is written too.
        let phase = std::mem::replace(&mut self.phase, Phase::Loading);
        let (node, key, known) = (Arc::clone(&self.node), self.key.clone(), KnownKeys::Follow);
        let kept = rewinding::note(node, key, late, Arc::clone(&rewound), known);
        ctx.spawn(kept.into_actor(self).map(move |kept, session, ctx| {
            session.phase = phase;
            session.tell(
                rewinding::only_if_kept(kept, &session.key, callers, Caller::back),
                &rewound,
            );
            session.reread(ctx);
        }));
    }

    fn tell(&mut self, callers: Vec<Caller>, rewound: &Arc<Rewound>) {
        let mut for_whom = None;
        for caller in callers {
            match caller {
                Caller::Back(ask) => ask.answer(Ok(Interrupted::Rewound(Arc::clone(rewound)))),
                Caller::Up { re, ask } => {
                    for_whom = for_whom.or(re);
                    ask.answer(Ok(Interrupted::Rewound(Arc::clone(rewound))));
                }
                Caller::Anew { before, line, ask } if before == rewound.head_turn && rewound.replacing.is_some() => {
                    let Some(ask) = self.join_turn_of(line.key.as_deref(), ask) else {
                        continue;
                    };
                    let id = self.next_line;
                    self.next_line += 1;
                    let waiting = Waiting::anew(id, line, self.now(), ask, self.node.meters.line());
                    self.queue.push_front(waiting.following(rewound.head));
                }
                Caller::Anew { ask, .. } => ask.answer(Err(SessionError::StaleHead {
                    head_turn: rewound.head_turn,
                })),
                Caller::Nobody => {}
            }
        }
        if let Some(unfinished) = self.moving.unfinished.take() {
            let id = self.next_line;
            self.next_line += 1;
            let waiting = Waiting::going_on(id, unfinished, for_whom, self.now(), self.node.meters.line());
            self.queue.push_front(waiting.following(rewound.head));
        }
    }

    /// Lines that were to take the place of a turn, and for which the head `is_theirs` no longer, are not said.
    pub(super) fn drop_replacements(&mut self, is_theirs: impl Fn(Option<TurnId>) -> bool) {
        let gone = self.take_lines(|line| line.after.is_some_and(|Follows(head)| !is_theirs(head)));
        gone.into_iter().for_each(Waiting::unsay);
    }

    /// Reads what the move changed; until then everything waits.
    fn reread(&mut self, ctx: &mut Context<Self>) {
        let Phase::Ready(mut loaded) = std::mem::replace(&mut self.phase, Phase::Loading) else {
            return;
        };
        let read = load::moved(Arc::clone(&self.node), self.key.clone(), loaded.epoch, loaded.head);
        ctx.spawn(read.into_actor(self).map(move |read, session, ctx| match read {
            Ok(read) => {
                session.memory.expect(read.awaited);
                loaded.keep_moved(read);
                session.phase = Phase::Ready(loaded);
                session.turn_ended(ctx);
                session.ready(ctx);
            }
            Err(error) => {
                tracing::warn!(dialogue = %session.key.1, %error, "a rewound dialogue could not be read");
                session.load(ctx);
            }
        }));
    }

    /// A turn was committed, with the cuts of these keys: nothing is left to keep of them.
    pub(super) fn turn_is_committed(&mut self, turn: &Arc<Turn>, keys: &[String]) {
        for cutting in &mut self.moving.cutting {
            cutting.committed(turn, keys);
        }
    }

    /// A turn was cut before the first character of its reply: nothing is committed that would tell of those who cut it.
    pub(super) fn turn_is_dropped(&mut self, running: &Running, ctx: &mut Context<Self>) {
        let mut by = running.cut_by();
        for cutting in &mut self.moving.cutting {
            cutting.dropped(running.id);
            // Who waits to be told is written down then.
            if let Some(at) = by.iter().position(|by| cutting.is(by)) {
                by.swap_remove(at);
            }
        }
        let Phase::Ready(loaded) = &self.phase else { return };
        let mut late = Late::default();
        for CutBy { who, key, action } in by {
            late.add(key, Some((who, action)));
        }
        self.note_cuts(late, loaded.nothing_moved(&self.node).dropped(running.number), ctx);
    }

    /// The turn that cuts waited for has ended, one way or another.
    pub(super) fn turn_ended(&mut self, ctx: &mut Context<Self>) {
        if self.running.is_some() || matches!(self.phase, Phase::Loading) {
            return;
        }
        for cutting in std::mem::take(&mut self.moving.cutting) {
            self.was_cut(cutting, ctx);
        }
    }

    pub(super) fn give_up_moves(&mut self, error: &SessionError) {
        for caller in self.moving.moves.give_up() {
            caller.refuse(error.clone());
        }
        for cutting in self.moving.cutting.drain(..) {
            cutting.ask.answer(Err(error.clone()));
        }
    }
}
