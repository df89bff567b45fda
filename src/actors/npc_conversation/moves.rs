//! Cutting in: the running line is cut, or the head goes back to an earlier one and what followed it
//! never happened. As in a session, the ledger is asked at once, and whoever asks at the same time is
//! told the same outcome. A move of the head pauses the conversation in one with it; before the running line is
//! cut it is paused by itself, so that no restart goes on where somebody cut in.

use std::{ops::ControlFlow, sync::Arc};

use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};

use super::{NpcConversation, Phase, Request, handle::ConversationView, load, pausing::Cutting};
use crate::{
    actors::{
        Interrupted, SessionError, TakeBack,
        handle::Ask,
        memory_wait::MemoryWait,
        rewinding::{self, CutCame, Gone, Moves, PendingCut, Wish},
        session::JobEnded,
    },
    dialogue::{
        events::EventBody,
        rewind::{Move, Moved, RewindError, Target},
        turn::{CutBy, TurnError, event_error},
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
    /// Jobs that ended meanwhile.
    pub jobs: Vec<JobEnded>,
    gone: Gone,
    /// Interrupts that are about to ask for a move: what is asked at once is one move.
    coming: usize,
    /// The last move that was made, until what it changed is read.
    outcome: Option<Arc<Rewound>>,
    /// Whether a move was made is not known. What runs meanwhile ends, and then everything is read anew.
    pub in_doubt: bool,
    /// Whether the move under way pauses the conversation, or has it go on.
    pauses: Option<bool>,
    /// Somebody wanted everything read anew while a move was under way; then it is read after it.
    pub load_after: bool,
}

/// Who is told of a move.
enum Caller {
    Back(Ask<Interrupted>),
    /// Goes on afterwards, whether or not there was a line to take up.
    Resume(Ask<ConversationView>),
    /// Would have gone on, had nobody cut in at the same time.
    Stay(Ask<ConversationView>),
    /// What was to be gone on with is put back.
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

    fn stays_paused(&mut self) {
        *self = match std::mem::replace(self, Self::Nobody) {
            Self::Resume(ask) => Self::Stay(ask),
            other => other,
        };
    }
}

/// What was asked to be taken back so far is begun.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct BeginMove;

impl Moving {
    pub fn is_busy(&self) -> bool {
        self.moves.is_busy()
    }

    pub fn is_under_way(&self) -> bool {
        self.moves.is_under_way()
    }

    /// Everything is read anew.
    pub fn is_read(&mut self) {
        self.outcome = None;
    }
}

impl NpcConversation {
    /// Answers a repeated key with what it came to; else pauses, and cuts.
    pub(super) fn interrupt(&mut self, wish: TakeBack, ask: Ask<Interrupted>, ctx: &mut Context<Self>) {
        let Some(key) = wish.key.clone() else {
            return self.pause_and_cut(wish, ask, ctx);
        };
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move { ports.ledger.rewinds.by_key(&scope, id, &key).await };
        self.moving.coming += 1;
        ctx.spawn(look.into_actor(self).map(move |known, talk, ctx| {
            match known {
                Ok(Some(rewound)) => ask.answer(Ok(rewinding::repeated(rewound))),
                Ok(None) => talk.pause_and_cut(wish, ask, ctx),
                Err(error) => ask.answer(Err(error.into())),
            }
            talk.came(ctx);
        }));
    }

    /// One of those that were about to ask has asked, or will not.
    fn came(&mut self, ctx: &mut Context<Self>) {
        self.moving.coming -= 1;
        if self.moving.is_busy() {
            ctx.notify(BeginMove);
        }
    }

    fn pause_and_cut(&mut self, wish: TakeBack, ask: Ask<Interrupted>, ctx: &mut Context<Self>) {
        if matches!(self.phase, Phase::Loading) || self.moving.moves.replaces() {
            return self.early.push_back(Request::Interrupt { wish, ask });
        }
        if let Err(error) = self.may_move(wish.turn, wish.if_head) {
            return self.unsaid_or(error, wish.key, ask, ctx);
        }
        if self.moves_head(&wish) {
            return self.cut_at(wish, ask, ctx);
        }
        self.moving.coming += 1;
        self.set_paused(true, "interrupted", ctx, move |talk, paused, ctx| {
            match paused {
                Ok(()) => talk.cut_at(wish, ask, ctx),
                Err(error) => ask.answer(Err(error)),
            }
            talk.came(ctx);
        });
    }

    /// Whether something that was said is to be taken back. That pauses it, too.
    fn moves_head(&self, wish: &TakeBack) -> bool {
        let (Phase::Ready(loaded), Some(turn)) = (&self.phase, wish.turn) else {
            return false;
        };
        let head_turn = loaded.dialogue.head_turn;
        let last = loaded.history.last().filter(|said| said.number == turn);
        turn < head_turn
            || last.zip(wish.heard).is_some_and(|(said, heard)| {
                turn == head_turn && heard.scalars(&said.reply_text) < said.reply_text.chars().count()
            })
    }

    /// What took the turn back that is not there, if that is why nothing can be moved.
    fn unsaid_or(&self, error: SessionError, key: Option<String>, ask: Ask<Interrupted>, ctx: &mut Context<Self>) {
        let rewound = match error {
            SessionError::NotRunning { turn } => self.unsaid_with(turn),
            _ => None,
        };
        match rewound {
            Some(rewound) => self.keep(key, Interrupted::Rewound(Arc::clone(&rewound)), rewound, ask, ctx),
            None => ask.answer(Err(error)),
        }
    }

    fn keep(
        &self,
        key: Option<String>,
        told: Interrupted,
        outcome: Arc<Rewound>,
        ask: Ask<Interrupted>,
        ctx: &mut Context<Self>,
    ) {
        rewinding::keep(&self.node, &self.key, key, (told, outcome), ask, ctx);
    }

    /// Whether there is such a line, and the conversation is what the caller takes it for.
    fn may_move(&self, turn: Option<u32>, if_head: Option<u32>) -> Result<u32, SessionError> {
        let Phase::Ready(loaded) = &self.phase else {
            return Err(self.busy());
        };
        if loaded.closed || self.ending.is_some() {
            return Err(SessionError::Ended);
        }
        let head_turn = loaded.dialogue.head_turn;
        let running = self.running.as_ref().map(|running| running.number);
        match (turn, if_head) {
            (_, Some(known)) if known != head_turn && Some(known) != running => {
                Err(SessionError::StaleHead { head_turn })
            }
            // One that is about to be gone on with stands as it was cut.
            (Some(turn), _) if turn == head_turn + 1 && self.owed().is_some() => Ok(head_turn),
            (Some(turn), _) if turn > head_turn && Some(turn) != running => Err(SessionError::NotRunning { turn }),
            _ => Ok(head_turn),
        }
    }

    /// The last move, if `turn` is gone with it and nothing was said since.
    fn unsaid_with(&self, turn: u32) -> Option<Arc<Rewound>> {
        let Phase::Ready(loaded) = &self.phase else { return None };
        self.moving.gone.with(turn, loaded.head)
    }

    /// The last move, if it went just where this is to go.
    fn moved_to(&self, wish: &TakeBack) -> Option<Arc<Rewound>> {
        let Phase::Ready(loaded) = &self.phase else { return None };
        // A line that is owed is not gone for good.
        let idle = self.running.is_none() && !self.moving.is_busy() && self.owed().is_none();
        self.moving.gone.to(wish, loaded.head).filter(|_| idle)
    }

    fn cut_at(&mut self, wish: TakeBack, ask: Ask<Interrupted>, ctx: &mut Context<Self>) {
        // Who cuts in cuts in where the line ended that was about to be gone on with.
        if self.running.is_none() {
            self.unfinished = None;
            let being_put_back = self.putting_back.is_some() && self.moving.is_busy();
            if being_put_back || self.put_back(ctx) {
                return self.early.push_back(Request::Interrupt { wish, ask });
            }
        }
        let head_turn = match self.may_move(wish.turn, None) {
            Ok(head_turn) => head_turn,
            Err(error) => return self.unsaid_or(error, wish.key, ask, ctx),
        };
        // A line that was asked for before is not said after the cut.
        for step in std::mem::take(&mut self.stepping) {
            // Whoever asked may have gone.
            let _ = step.send(Err(Arc::new(TurnError::Unsaid)));
        }
        if let Some(rewound) = self.moved_to(&wish) {
            return self.keep(wish.key, Interrupted::Rewound(Arc::clone(&rewound)), rewound, ask, ctx);
        }
        let Phase::Ready(loaded) = &self.phase else { return };
        match (wish.turn, &self.running) {
            (Some(turn), _) if turn <= head_turn => match loaded.heard_of(turn, wish.heard) {
                Ok(heard_chars) => {
                    let target = Target::Turn {
                        number: turn,
                        heard_chars,
                    };
                    self.want(target, wish.key, wish.who, Caller::Back(ask), ctx);
                }
                Err(error) => ask.answer(Err(error)),
            },
            (_, Some(running)) => {
                // Counted in what was sent so far, as the client counted.
                let heard = wish.heard.map(|heard| self.log.scalars(heard));
                let by = CutBy {
                    who: wish.who.clone(),
                    key: wish.key.clone(),
                    action: "conversation.interrupt",
                };
                running.cut(heard, Some(by));
                // Told once what was said of it is committed, or unsaid after all.
                let cut = PendingCut::of(running, heard, true, wish, ask);
                self.cutting.push(Cutting::Line(cut));
            }
            (_, None) => {
                let outcome = Arc::new(loaded.nothing_moved(&self.node));
                self.keep(wish.key, Interrupted::Idle { head_turn }, outcome, ask, ctx);
            }
        }
    }

    /// A line was committed, with the cuts of these keys: nothing is left to keep of them.
    pub(super) fn line_is_committed(&mut self, line: &Arc<Turn>, keys: &[String]) {
        for cutting in &mut self.cutting {
            if let Cutting::Line(cut) = cutting {
                cut.committed(line, keys);
            }
        }
    }

    /// A line was cut before its first character.
    pub(super) fn line_is_dropped(&mut self, line: TurnId) {
        for cutting in &mut self.cutting {
            if let Cutting::Line(cut) = cutting {
                cut.dropped(line);
            }
        }
    }

    /// The line whose commit a cut waited for was `said`, or came to nothing. One that had been said to its end by
    /// then is cut where it was heard.
    pub(super) fn line_was_cut(&mut self, cut: PendingCut, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else {
            return cut.ask.answer(Err(self.busy()));
        };
        let came = cut.came(loaded, &self.node);
        let PendingCut { number, wish, ask, .. } = cut;
        match came {
            CutCame::TooLate(heard) => {
                let target = Target::Turn {
                    number,
                    heard_chars: Some(heard),
                };
                self.want(target, wish.key, wish.who, Caller::Back(ask), ctx);
            }
            CutCame::Dropped(outcome) => {
                rewinding::keep_dropped(&self.node, &self.key, wish, "conversation.interrupt", outcome, ask, ctx);
            }
            CutCame::To(told, outcome) => self.keep(wish.key, told, outcome, ask, ctx),
        }
    }

    /// Takes the last line up again, if it was cut a moment ago, and goes on.
    pub(super) fn resume(&mut self, who: Principal, ask: Ask<ConversationView>, ctx: &mut Context<Self>) {
        if self.running.is_none() {
            return self.want(Target::Uncut, None, who, Caller::Resume(ask), ctx);
        }
        if self.cutting.is_empty() {
            self.go_on(ask, ctx);
        } else {
            self.cutting.push(Cutting::Resume { who, ask });
        }
    }

    fn want(&mut self, target: Target, key: Option<String>, who: Principal, caller: Caller, ctx: &mut Context<Self>) {
        let action = match caller {
            Caller::Back(_) => "conversation.interrupt",
            Caller::Resume(_) | Caller::Stay(_) => "conversation.resume",
            Caller::Nobody => "conversation.put_back",
        };
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

    pub(super) fn want_back(&mut self, target: Target, who: Principal, ctx: &mut Context<Self>) {
        self.want(target, None, who, Caller::Nobody, ctx);
    }

    fn begin_move(&mut self, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        if self.moving.coming > 0 {
            return;
        }
        let Some(goal) = self.moving.moves.begin() else { return };
        if goal.target.pauses() == Some(true) {
            // Whoever cuts in wins.
            for caller in self.moving.moves.served() {
                caller.stays_paused();
            }
        }
        // A line that is owed would come back after a move that changes nothing.
        let fence = self.running.is_some() || loaded.replacing.is_some() || self.putting_back.is_some();
        let seq = self.log.begin_move();
        let request = loaded.rewind_request(&self.node, &self.key, goal, fence, seq);
        self.moving.pauses = request.paused;
        let moving = rewinding::run(Arc::clone(&self.node), request);
        ctx.spawn(
            moving
                .into_actor(self)
                .map(|moved, talk, ctx| talk.move_ended(moved, ctx)),
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
            // All of the line had been heard; whoever cuts in pauses it all the same.
            Ok(Moved::Unchanged) if self.moving.pauses.take() == Some(true) => {
                self.pause_unmoved(ctx, |talk, paused, ctx| {
                    let told = |head_turn| paused.clone().map(|()| Interrupted::Idle { head_turn });
                    talk.head_stays(&told, false, ctx);
                });
            }
            Ok(Moved::Unchanged) => self.head_stays(&|head_turn| Ok(Interrupted::Idle { head_turn }), false, ctx),
            Err(error) => {
                let doubtful = rewinding::is_doubtful(&error);
                self.head_stays(&|_| Err(rewinding::refused(&error)), doubtful, ctx);
            }
        }
    }

    /// Nothing was written, or if it is `doubtful`, nobody knows: a line that runs goes on, and who asked is
    /// told why.
    fn head_stays(
        &mut self,
        told: &dyn Fn(u32) -> Result<Interrupted, SessionError>,
        doubtful: bool,
        ctx: &mut Context<Self>,
    ) {
        self.log.not_moved(doubtful);
        let callers = self.moving.moves.failed();
        let load = std::mem::take(&mut self.moving.load_after) || doubtful;
        let head_turn = match &self.phase {
            Phase::Ready(loaded) => loaded.dialogue.head_turn,
            Phase::Loading => 0,
        };
        let outcome = self.moving.outcome.clone();
        for caller in callers {
            match (caller, told(head_turn)) {
                (Caller::Back(ask), Ok(told)) => ask.answer(Ok(outcome.clone().map_or(told, Interrupted::Rewound))),
                (Caller::Back(ask), Err(error)) => ask.answer(Err(error)),
                (Caller::Resume(ask), Ok(_) | Err(SessionError::NothingToResume)) => self.go_on(ask, ctx),
                (Caller::Stay(ask), Ok(_)) => ask.answer(self.view()),
                (Caller::Resume(ask) | Caller::Stay(ask), Err(error)) => ask.answer(Err(error)),
                (Caller::Nobody, _) => {}
            }
        }
        // What runs ends first, and so does what is moved meanwhile.
        self.moving.in_doubt |= load;
        // While a move is asked for, whether the line stands is left to it.
        if let Some(ended) = self.ended_meanwhile.take() {
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
            self.reread(Vec::new(), ctx);
        } else {
            self.ready(ctx);
        }
    }

    fn head_moved(&mut self, done: Move, ctx: &mut Context<Self>) {
        // Everything is read again anyway.
        self.moving.load_after = false;
        let Phase::Ready(loaded) = &mut self.phase else {
            // Nothing is read while a move is under way, so there is always a dialogue to move.
            return self.give_up_moves(&self.busy());
        };
        let rewound = Arc::new(done.rewound);
        loaded.epoch = rewound.epoch;
        // It holds the epoch that an earlier move would have raised.
        self.moving.in_doubt = false;
        self.log.holds(rewound.epoch);
        let before = std::mem::replace(&mut loaded.head, rewound.head);
        loaded.replacing = rewound.replacing;
        self.putting_back = None;
        Arc::make_mut(&mut loaded.dialogue).head_turn = rewound.head_turn;
        let said = self.ended_meanwhile.take();
        self.unfinished = done.unfinished;
        let running = self.running.take();
        let ended = running.as_ref().map(|running| running.number);
        if let Some(running) = running {
            self.moving.moves.owe_cuts(&running, said.as_ref());
            running.unsay();
        }
        let unsaid = event_error(&TurnError::Unsaid);
        self.log.moved(EventBody::DialogueRewound((&*rewound).into()), &unsaid);
        failpoint!("rewind.told");
        if let Some(paused) = self.moving.pauses.take() {
            self.now_paused(paused, "interrupted");
        }
        if let Some(timer) = self.memory.timer.take() {
            ctx.cancel_future(timer);
        }
        self.memory = MemoryWait::default();
        for cutting in std::mem::take(&mut self.cutting) {
            match cutting {
                Cutting::Line(cut) => {
                    let ask = self.moving.moves.owe_cut(cut, "conversation.interrupt");
                    self.moving.moves.also_tell(Caller::Back(ask));
                }
                // They come in, and go on, where the conversation is now.
                other => self.cutting.push(other),
            }
        }
        let (scope, id) = self.key.clone();
        let told = rewinding::tell_others(Arc::clone(&self.node), scope, vec![id], rewound.closed.clone());
        ctx.spawn(told.into_actor(self));
        self.moving.gone.note(before, &rewound, ended);
        self.moving.outcome = Some(Arc::clone(&rewound));
        let callers = self.moving.moves.ended(rewound.head_turn);
        if self.moving.is_busy() {
            return self.begin_move(ctx);
        }
        let late = self.moving.moves.take_late();
        if late.is_empty() {
            return self.tell(callers, &rewound, ctx);
        }
        // Whoever came when the move was written is told once that is written too.
        let phase = std::mem::replace(&mut self.phase, Phase::Loading);
        let (node, key, known) = (Arc::clone(&self.node), self.key.clone(), KnownKeys::Follow);
        let kept = rewinding::note(node, key, late, Arc::clone(&rewound), known);
        ctx.spawn(kept.into_actor(self).map(move |kept, talk, ctx| {
            talk.phase = phase;
            let callers = rewinding::only_if_kept(kept, &talk.key, callers, Caller::back);
            talk.tell(callers, &rewound, ctx);
        }));
    }

    /// Tells those who asked, and reads what the move changed.
    fn tell(&mut self, callers: Vec<Caller>, rewound: &Arc<Rewound>, ctx: &mut Context<Self>) {
        let mut resuming = Vec::new();
        for caller in callers {
            match caller {
                Caller::Back(ask) => ask.answer(Ok(Interrupted::Rewound(Arc::clone(rewound)))),
                Caller::Resume(ask) => resuming.push(ask),
                Caller::Stay(ask) => ask.answer(self.view()),
                Caller::Nobody => {}
            }
        }
        self.reread(resuming, ctx);
    }

    /// Reads what the move changed; until then everything waits.
    fn reread(&mut self, resuming: Vec<Ask<ConversationView>>, ctx: &mut Context<Self>) {
        let Phase::Ready(mut loaded) = std::mem::replace(&mut self.phase, Phase::Loading) else {
            return;
        };
        self.moving.is_read();
        let read = load::moved(Arc::clone(&self.node), self.key.clone(), loaded.epoch, loaded.head);
        ctx.spawn(read.into_actor(self).map(move |read, talk, ctx| match read {
            Ok(read) => {
                talk.memory.expect(read.awaited);
                loaded.keep_moved(read);
                talk.phase = Phase::Ready(loaded);
                for ask in resuming {
                    talk.go_on(ask, ctx);
                }
                talk.ready(ctx);
            }
            Err(error) => {
                tracing::warn!(dialogue = %talk.key.1, %error, "a rewound conversation could not be read");
                for ask in resuming {
                    ask.answer(Err(error.clone().into()));
                }
                talk.load(ctx);
            }
        }));
    }

    pub(super) fn give_up_moves(&mut self, error: &SessionError) {
        for caller in self.moving.moves.give_up() {
            match caller {
                Caller::Back(ask) => ask.answer(Err(error.clone())),
                Caller::Resume(ask) | Caller::Stay(ask) => ask.answer(Err(error.clone())),
                Caller::Nobody => {}
            }
        }
        for cutting in self.cutting.drain(..) {
            cutting.refuse(error.clone());
        }
    }
}

impl Handler<BeginMove> for NpcConversation {
    type Result = ();

    fn handle(&mut self, BeginMove: BeginMove, ctx: &mut Self::Context) {
        self.begin_move(ctx);
    }
}
