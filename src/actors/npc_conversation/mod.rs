//! NPCs who talk with each other: their buffer, whose turn is next, and the line that is being said.
//!
//! As a session, the actor is a state machine whose mailbox stays open; what a line is made of is
//! `dialogue::turn`. One that paces itself says a line, waits until it can have been read, and says the
//! next, until somebody cuts in, a speaker concludes, or the last line is said. This file has the actor,
//! its messages and its life; `lines` the lines and what follows them, `moves` what cuts them and takes
//! them back, `owed` a line that is gone on with, `handle` the way in.
//!
//! An open conversation that paces itself goes on after a restart as soon as anybody looks at it. One
//! whose actor panicked is taken up again by the node's chores.

mod choosing;
pub mod handle;
mod lines;
mod moves;
mod owed;
mod pausing;
mod restored;
mod watching;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, SpawnHandle, WrapFuture};
use tokio::sync::oneshot;

use self::{
    choosing::Choosing,
    handle::{ConversationView, JoinPoint},
    moves::{BeginMove, Moving},
    pausing::Cutting,
};
use super::{
    Interrupted, Listener, SessionError, TakeBack,
    event_log::EventLog,
    eviction::LeaveIfIdle,
    handle::{Ask, Attached},
    memory_wait::MemoryWait,
    registry::{Live, Node, SessionKey},
    running::{Outcome, Running},
    session::{
        CutNow, Drain, JobEnded, Stop,
        load::{self, Loaded},
        lost_turn,
    },
};
use crate::{
    dialogue::{
        events::EventBody,
        turn::{CommittedTurn, TurnError, Unfinished, event_error},
    },
    ids::TurnId,
    ports::{StoreError, ledger::dialogues::OwnerWrite},
    tenancy::Principal,
};

/// What a conversation can be asked.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) enum Request {
    View {
        ask: Ask<ConversationView>,
    },
    Attach {
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        /// Whether a conversation that sleeps goes on for it.
        wakes: bool,
        ask: Ask<Attached>,
    },
    /// Says one line now.
    Step {
        ask: Ask<oneshot::Receiver<Outcome>>,
    },
    /// Cuts the running line, or goes back to an earlier one, and pauses.
    Interrupt {
        wish: TakeBack,
        ask: Ask<Interrupted>,
    },
    /// Goes on after a pause.
    Resume {
        who: Principal,
        ask: Ask<ConversationView>,
    },
    /// Pauses for a player, and says where.
    Join {
        ask: Ask<JoinPoint>,
    },
    End {
        reason: &'static str,
        ask: Ask<()>,
    },
}

/// Lines may be said again: the tenant is no longer disabled, or it is asleep no longer.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct GoOn;

impl Request {
    fn refuse(self, error: SessionError) {
        match self {
            Self::View { ask } | Self::Resume { ask, .. } => ask.answer(Err(error)),
            Self::Attach { ask, .. } => ask.answer(Err(error)),
            Self::Step { ask } => ask.answer(Err(error)),
            Self::Interrupt { ask, .. } => ask.answer(Err(error)),
            Self::Join { ask } => ask.answer(Err(error)),
            Self::End { ask, .. } => ask.answer(Err(error)),
        }
    }
}

pub(super) struct NpcConversation {
    node: Arc<Node>,
    key: SessionKey,
    generation: u64,
    log: Arc<EventLog>,
    phase: Phase,
    /// Requests that came while the dialogue was being loaded.
    early: VecDeque<Request>,
    running: Option<Running>,
    /// Who waits for the line that is to be said next.
    stepping: Vec<oneshot::Sender<Outcome>>,
    /// Who is to be told once no line runs.
    cutting: Vec<Cutting>,
    moving: Moving,
    memory: MemoryWait,
    /// How the running line ended while the head was being moved.
    ended_meanwhile: Option<Result<CommittedTurn, TurnError>>,
    /// The line that was cut and taken back, for its speaker to go on with.
    unfinished: Option<Unfinished>,
    /// The line that is being put back, or could not be.
    putting_back: Option<TurnId>,
    /// The pause before the next line.
    rest: Option<SpawnHandle>,
    /// Lines that failed one after another.
    failures: u32,
    reading_cast: bool,
    choosing: Choosing,
    ending: Option<Ending>,
    drained: Option<oneshot::Sender<bool>>,
    drain_saw_line: bool,
    /// It is in memory for those who only watch, and says nothing by itself until somebody else comes.
    asleep: bool,
    used: Instant,
    /// How long the last line took, for `retry_after`.
    last_line: Duration,
    /// Until it is handed over.
    live: Option<Live>,
}

enum Phase {
    Loading,
    Ready(Box<Loaded>),
}

struct Ending {
    reason: &'static str,
    asks: Vec<Ask<()>>,
    begun: bool,
}

impl NpcConversation {
    pub fn new(
        node: Arc<Node>,
        key: SessionKey,
        generation: u64,
        log: Arc<EventLog>,
        live: Live,
        asleep: bool,
    ) -> Self {
        let used = node.ports.clock.instant();
        Self {
            node,
            key,
            generation,
            log,
            phase: Phase::Loading,
            early: VecDeque::new(),
            running: None,
            stepping: Vec::new(),
            cutting: Vec::new(),
            moving: Moving::default(),
            memory: MemoryWait::default(),
            ended_meanwhile: None,
            unfinished: None,
            putting_back: None,
            rest: None,
            failures: 0,
            reading_cast: false,
            choosing: Choosing::default(),
            ending: None,
            drained: None,
            drain_saw_line: false,
            asleep,
            used,
            last_line: Duration::from_millis(800),
            live: Some(live),
        }
    }

    fn now(&self) -> Instant {
        self.node.ports.clock.instant()
    }

    fn busy(&self) -> SessionError {
        SessionError::Overloaded {
            retry_after: self.last_line,
        }
    }

    // --- loading ---

    fn load(&mut self, ctx: &mut Context<Self>) {
        if self.moving.is_under_way() {
            // It is written with the epoch that a load would take from it, and ends in this phase.
            self.moving.load_after = true;
            return;
        }
        self.moving.is_read();
        self.moving.in_doubt = false;
        self.phase = Phase::Loading;
        let load = load::load(Arc::clone(&self.node), self.key.clone(), self.log.told());
        ctx.spawn(load.into_actor(self).map(|loaded, talk, ctx| match loaded {
            Ok(loaded) => talk.loaded(loaded, ctx),
            Err(error) => talk.not_loaded(&error, ctx),
        }));
    }

    fn loaded(&mut self, mut loaded: Loaded, ctx: &mut Context<Self>) {
        let ended = loaded.ended_by_restore();
        self.log.moved_meanwhile(std::mem::take(&mut loaded.moved_meanwhile));
        self.node.loaded(&self.key, &self.log, &loaded);
        self.log.not_committed(&lost_turn());
        self.memory = MemoryWait::of(loaded.awaited);
        if loaded.replacing.is_none() {
            self.putting_back = None;
        }
        let head_turn = loaded.dialogue.head_turn;
        self.phase = Phase::Ready(Box::new(loaded));
        if ended {
            return self.ended_by_restore(head_turn, ctx);
        }
        self.ready(ctx);
    }

    /// Everything is read: what waited for it goes on.
    fn ready(&mut self, ctx: &mut Context<Self>) {
        if !self.moving.is_busy() && self.put_back(ctx) {
            return;
        }
        for ended in std::mem::take(&mut self.moving.jobs) {
            self.job_ended(ended, ctx);
        }
        for request in std::mem::take(&mut self.early) {
            self.dispatch(request, ctx);
        }
        if self.moving.is_busy() {
            // Asked before it was read.
            ctx.notify(BeginMove);
        }
        self.advance(ctx);
    }

    fn not_loaded(&mut self, error: &SessionError, ctx: &mut Context<Self>) {
        for request in self.early.drain(..) {
            request.refuse(error.clone());
        }
        self.give_up_moves(error);
        self.log.not_moved(false);
        let told = match error {
            SessionError::Elsewhere { .. } => {
                let body = EventBody::ConversationEnded {
                    turn: 0,
                    reason: "moved",
                };
                self.log.publish(body, None);
                event_error(&TurnError::Fenced)
            }
            _ => event_error(&TurnError::Store(StoreError::Unavailable(String::new()))),
        };
        self.log.not_committed(&told);
        // What the store could not tell now, the chores ask again; nobody else would.
        let conversations = &self.node.conversations;
        if matches!(error, SessionError::Store(_)) && !self.asleep {
            conversations.not_loaded(&self.key, self.generation);
        } else {
            self.node.dialogue_ends(conversations, &self.key, self.generation);
        }
        ctx.stop();
    }

    // --- requests ---

    fn dispatch(&mut self, request: Request, ctx: &mut Context<Self>) {
        self.touch();
        if self.asleep && !matches!(request, Request::Attach { wakes: false, .. }) {
            self.asleep = false;
            ctx.notify(GoOn);
        }
        let interrupts = matches!(request, Request::Interrupt { .. });
        let loaded = match &self.phase {
            Phase::Ready(loaded) if interrupts || !self.moving.is_busy() => loaded,
            _ => return self.early.push_back(request),
        };
        let over = loaded.closed || self.ending.is_some();
        match request {
            Request::View { ask } => ask.answer(self.view()),
            Request::End { reason, ask } => {
                if loaded.closed {
                    return ask.answer(Err(SessionError::Ended));
                }
                self.end(reason, Some(ask), ctx);
            }
            refused if over => refused.refuse(SessionError::Ended),
            Request::Attach {
                listener,
                last_seq,
                wakes: _,
                ask,
            } => self.attach(listener, last_seq, ask, ctx),
            refused if self.drained.is_some() || self.node.is_draining() => refused.refuse(SessionError::Draining),
            Request::Step { ask } => self.step(ask, ctx),
            Request::Interrupt { wish, ask } => self.interrupt(wish, ask, ctx),
            Request::Resume { who, ask } => self.resume(who, ask, ctx),
            Request::Join { ask } => self.join(ask, ctx),
        }
    }

    fn view(&self) -> Result<ConversationView, SessionError> {
        let Phase::Ready(loaded) = &self.phase else {
            return Err(self.busy());
        };
        Ok(ConversationView {
            dialogue: Arc::clone(&loaded.dialogue),
            head_seq: self.log.head_seq(),
            running_turn: self.running.as_ref().map(|running| running.number),
        })
    }

    // --- ending ---

    /// Ends it: the running line is cut and still committed.
    fn end(&mut self, reason: &'static str, ask: Option<Ask<()>>, ctx: &mut Context<Self>) {
        let ending = self.ending.get_or_insert(Ending {
            reason,
            asks: Vec::new(),
            begun: false,
        });
        ending.asks.extend(ask);
        self.cut(None, None);
        self.advance(ctx);
    }

    /// Nothing is being said and it is to end.
    fn finish_ending(&mut self, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        let Some(ending) = self.ending.as_mut().filter(|ending| !ending.begun) else {
            return;
        };
        ending.begun = true;
        let write = load::close(Arc::clone(&self.node), self.key.clone(), loaded.epoch);
        ctx.spawn(write.into_actor(self).map(|written, talk, ctx| {
            let Some(mut ending) = talk.ending.take() else { return };
            match written {
                Ok(OwnerWrite::Fenced) => {
                    // It ends as what it is by now; whoever asked is sent on if it is another node's.
                    ending.begun = false;
                    talk.ending = Some(ending);
                    talk.load(ctx);
                }
                Ok(OwnerWrite::Done | OwnerWrite::NotOpen) => {
                    let turn = match &talk.phase {
                        Phase::Ready(loaded) => loaded.dialogue.head_turn,
                        Phase::Loading => 0,
                    };
                    let reason = ending.reason;
                    talk.log.publish(EventBody::ConversationEnded { turn, reason }, None);
                    for ask in ending.asks {
                        ask.answer(Ok(()));
                    }
                    talk.leave(ctx);
                }
                Err(error) => {
                    tracing::warn!(dialogue = %talk.key.1, %error, "a conversation could not be ended");
                    for ask in ending.asks {
                        ask.answer(Err(error.clone().into()));
                    }
                    // Nobody asked for a natural end, so nobody asks again.
                    talk.failures += 1;
                    talk.rest_for(lines::retry_pause(talk.failures), ctx);
                }
            }
        }));
    }

    // --- staying alive ---

    /// Goes out of memory, and leaves the dialogue to whoever wants it next; one that goes on by itself to
    /// the node that takes up what this one leaves behind.
    fn leave(&mut self, ctx: &mut Context<Self>) {
        if let Phase::Ready(loaded) = &self.phase
            && !(self.paces_itself() && self.node.membership.is_some())
        {
            // Not awaited: an actor that takes the dialogue again meanwhile has an epoch of its own.
            let next_seq = self.log.settled_next();
            actix::spawn(load::release(
                Arc::clone(&self.node),
                self.key.clone(),
                loaded.epoch,
                next_seq,
            ));
        }
        self.node
            .dialogue_ends(&self.node.conversations, &self.key, self.generation);
        ctx.stop();
    }

    /// Whether it says lines without being asked.
    fn paces_itself(&self) -> bool {
        match &self.phase {
            Phase::Ready(loaded) => {
                let options = &loaded.dialogue.options;
                options.auto && !options.paused && !loaded.closed && !self.asleep
            }
            Phase::Loading => true,
        }
    }

    fn touch(&mut self) {
        self.used = self.now();
        self.live.iter().for_each(Live::touch);
    }

    /// Whether nothing goes on, and nobody listens.
    fn is_idle(&self) -> bool {
        let busy = self.running.is_some()
            || self.paces_itself()
            || self.goes_on()
            || !self.early.is_empty()
            || !self.stepping.is_empty()
            || !self.cutting.is_empty()
            || self.moving.is_busy()
            || self.ending.is_some();
        !busy && !self.log.has_listeners()
    }

    /// Renews ownership when it is due, and stops when nothing goes on and nobody listens.
    fn tick(&mut self, ctx: &mut Context<Self>) {
        let now = self.now();
        let idle = Duration::from_secs(self.node.settings.idle_s);
        let half = Duration::from_secs(self.node.settings.ownership_s) / 2;
        if now.saturating_duration_since(self.used) >= idle && self.is_idle() {
            return self.leave(ctx);
        }
        if let Phase::Ready(loaded) = &mut self.phase
            && now.saturating_duration_since(loaded.renewed) >= half
            && !loaded.closed
        {
            loaded.renewed = now;
            let epoch = loaded.epoch;
            let renew = load::renew(Arc::clone(&self.node), self.key.clone(), epoch);
            ctx.spawn(renew.into_actor(self).map(move |renewed, talk, ctx| match renewed {
                Ok(true) => {}
                Ok(false) => talk.lost(epoch, ctx),
                Err(error) => tracing::warn!(dialogue = %talk.key.1, %error, "ownership could not be renewed"),
            }));
        }
        ctx.run_later(idle.min(half).max(Duration::from_millis(20)), Self::tick);
    }

    /// Another node owns the dialogue. A running line learns it at its commit.
    fn lost(&mut self, epoch: u64, ctx: &mut Context<Self>) {
        let ours = matches!(&self.phase, Phase::Ready(loaded) if loaded.epoch == epoch);
        if ours && self.running.is_none() && !self.moving.is_busy() {
            self.load(ctx);
        }
    }
}

impl Actor for NpcConversation {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.load(ctx);
        self.tick(ctx);
    }
}

impl Drop for NpcConversation {
    /// Also runs while a panic unwinds: whoever watches must learn that the line will not come.
    fn drop(&mut self) {
        if self.running.is_some() {
            self.log.not_committed(&lost_turn());
        }
    }
}

impl Handler<Request> for NpcConversation {
    type Result = ();

    fn handle(&mut self, request: Request, ctx: &mut Self::Context) {
        self.dispatch(request, ctx);
    }
}

impl Handler<JobEnded> for NpcConversation {
    type Result = ();

    fn handle(&mut self, ended: JobEnded, ctx: &mut Self::Context) {
        if self.moving.is_busy() || matches!(self.phase, Phase::Loading) {
            // Whether its line stands is known when the head is.
            self.moving.jobs.push(ended);
        } else {
            self.job_ended(ended, ctx);
            self.advance(ctx);
        }
    }
}

impl Handler<GoOn> for NpcConversation {
    type Result = ();

    fn handle(&mut self, GoOn: GoOn, ctx: &mut Self::Context) {
        self.advance(ctx);
    }
}

impl Handler<Drain> for NpcConversation {
    type Result = ();

    fn handle(&mut self, Drain { reply }: Drain, ctx: &mut Self::Context) {
        self.drain_saw_line = self.running.is_some();
        self.drained = Some(reply);
        self.advance(ctx);
    }
}

impl Handler<CutNow> for NpcConversation {
    type Result = ();

    fn handle(&mut self, CutNow: CutNow, _: &mut Self::Context) {
        self.cut(None, None);
    }
}

impl Handler<LeaveIfIdle> for NpcConversation {
    type Result = ();

    fn handle(&mut self, LeaveIfIdle { reply }: LeaveIfIdle, ctx: &mut Self::Context) {
        if self.is_idle()
            && let Some(live) = self.live.take()
        {
            self.leave(ctx);
            // Whoever asked may have lost patience: then the place is free.
            let _ = reply.send(live);
        }
    }
}

impl Handler<Stop> for NpcConversation {
    type Result = ();

    fn handle(&mut self, Stop: Stop, ctx: &mut Self::Context) {
        self.leave(ctx);
    }
}

#[cfg(test)]
impl Handler<super::session::Panic> for NpcConversation {
    type Result = ();

    fn handle(&mut self, _: super::session::Panic, _: &mut Self::Context) {
        panic!("a test asked for it");
    }
}
