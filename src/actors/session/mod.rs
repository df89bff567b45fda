//! A player's dialogue with an NPC: its buffer, its one running turn and the lines that wait.
//!
//! The actor is a state machine; the mailbox stays open whatever it waits for. What a turn does is
//! `dialogue::turn`. This file has the actor and its life; `request` what it can be told, `waiting` the lines,
//! `turns` their queue and the turns, `moves` taking the dialogue back, `restored` what a loaded save makes of it,
//! `load` what is read from the stores, `staying` how long it is in memory.

mod after;
mod keys;
pub(super) mod load;
mod moves;
mod next;
mod request;
mod restored;
mod staying;
mod turns;
mod waiting;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, WrapFuture};
use tokio::sync::oneshot;

use super::{
    Listener, SessionError,
    event_log::{EventLog, Missed, event_of, events_of},
    handle::{Ask, Attached, SessionView},
    memory_wait::MemoryWait,
    registry::{Live, Node, SessionKey},
    running::Running,
};
use crate::{
    dialogue::{
        events::{DialogueEvent, EventBody, EventError},
        turn::{TurnError, event_error},
    },
    ports::{StoreError, ledger::dialogues::OwnerWrite},
};
use keys::Keys;
use load::Loaded;
use moves::Moving;
pub(super) use next::next_turn;
use request::BeginMove;
#[cfg(test)]
pub(super) use request::Panic;
pub(super) use request::{CutNow, Disowned, Drain, JobEnded, Request, Stop, WasClosed, WorldRestored};
use waiting::Waiting;

pub(super) struct Session {
    node: Arc<Node>,
    key: SessionKey,
    generation: u64,
    log: Arc<EventLog>,
    phase: Phase,
    /// Requests that came while the dialogue was being loaded.
    early: VecDeque<Request>,
    /// Lines that are not turns yet, in the order they were spoken.
    queue: VecDeque<Waiting>,
    running: Option<Running>,
    moving: Moving,
    /// Saves that were loaded while this actor could not follow.
    restored_meanwhile: Vec<WorldRestored>,
    /// The last turn has jobs that wait until it was heard.
    unheard: bool,
    /// Ends the wait for that.
    hearing: Option<SpawnHandle>,
    keys: Keys,
    memory: MemoryWait,
    reading_authored: bool,
    closing: Option<Closing>,
    drained: Option<oneshot::Sender<bool>>,
    drain_saw_turn: bool,
    used: Instant,
    /// How long the last turn took, for `retry_after`.
    last_turn: Duration,
    next_line: u64,
    /// Until it is handed over.
    live: Option<Live>,
}

enum Phase {
    Loading,
    Ready(Box<Loaded>),
}

struct Closing {
    reason: &'static str,
    asks: Vec<Ask<()>>,
    begun: bool,
}

impl Session {
    pub fn new(node: Arc<Node>, key: SessionKey, generation: u64, log: Arc<EventLog>, live: Live) -> Self {
        let used = node.ports.clock.instant();
        Self {
            node,
            key,
            generation,
            log,
            phase: Phase::Loading,
            early: VecDeque::new(),
            queue: VecDeque::new(),
            running: None,
            moving: Moving::default(),
            restored_meanwhile: Vec::new(),
            unheard: false,
            hearing: None,
            keys: Keys::default(),
            memory: MemoryWait::default(),
            reading_authored: false,
            closing: None,
            drained: None,
            drain_saw_turn: false,
            used,
            last_turn: Duration::from_millis(800),
            next_line: 0,
            live: Some(live),
        }
    }

    fn now(&self) -> Instant {
        self.node.ports.clock.instant()
    }

    // --- loading ---

    /// Reads everything from the stores, at the start and whenever what is held may be wrong.
    fn load(&mut self, ctx: &mut Context<Self>) {
        if self.moving.is_under_way() {
            // It is written with the epoch that a load would take from it, and ends in this phase.
            self.moving.load_after = true;
            return;
        }
        self.moving.outcome = None;
        self.moving.in_doubt = false;
        self.phase = Phase::Loading;
        let load = load::load(Arc::clone(&self.node), self.key.clone(), self.log.told());
        ctx.spawn(load.into_actor(self).map(|loaded, session, ctx| match loaded {
            Ok(loaded) => session.loaded(loaded, ctx),
            Err(error) => session.not_loaded(&error, ctx),
        }));
    }

    fn loaded(&mut self, mut loaded: Loaded, ctx: &mut Context<Self>) {
        let ended = loaded.ended_by_restore();
        self.moved_meanwhile(std::mem::take(&mut loaded.moved_meanwhile));
        self.node.loaded(&self.key, &self.log, &loaded);
        // A turn that ran when an earlier actor panicked, if nobody has said so yet.
        self.log.not_committed(&lost_turn());
        self.keys.begin_anew(loaded.next_seq > 1);
        self.memory = MemoryWait::of(loaded.awaited);
        let (unreplaced, head) = (loaded.replacing.take(), loaded.head);
        if unreplaced.is_none() {
            self.moving.is_put_back();
        }
        // What is put back is not said anew as well.
        self.drop_replacements(|theirs| unreplaced.is_none() && theirs == head);
        self.phase = Phase::Ready(Box::new(loaded));
        self.head_is_new(false, ctx);
        if ended {
            return self.ended_by_restore(ctx);
        }
        if let Some(turn) = unreplaced
            && !self.put_back(turn, ctx)
        {
            // With the next line said on top of what stands it would be lost for good.
            self.phase = Phase::Loading;
            let error = StoreError::Unavailable("a turn could not be put back".to_owned());
            return self.not_loaded(&error.into(), ctx);
        }
        self.ready(ctx);
    }

    /// Everything is read: what waited for it goes on.
    fn ready(&mut self, ctx: &mut Context<Self>) {
        if self.restored_late(ctx) {
            return;
        }
        self.turn_ended(ctx);
        for request in std::mem::take(&mut self.early) {
            self.dispatch(request, ctx);
        }
        for ended in std::mem::take(&mut self.moving.jobs) {
            self.job_ended(ended, ctx);
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
        let told = match error {
            SessionError::Elsewhere { .. } => {
                self.log.publish(EventBody::SessionClosed { reason: "moved" }, None);
                event_error(&TurnError::Fenced)
            }
            _ => event_error(&TurnError::Store(StoreError::Unavailable(String::new()))),
        };
        self.log.not_moved(false);
        self.log.not_committed(&told);
        self.give_up_moves(error);
        self.drop_lines(&told, error);
        // With listeners the entry stays, and with it the log; the next message tries again.
        if matches!(error, SessionError::Store(_)) && self.log.has_listeners() {
            self.node.sessions.not_loaded(&self.key, self.generation);
        } else {
            self.node.session_ends(&self.key, self.generation);
        }
        ctx.stop();
    }

    // --- requests ---

    fn dispatch(&mut self, request: Request, ctx: &mut Context<Self>) {
        self.touch();
        if matches!(self.phase, Phase::Loading) || (self.moving.is_busy() && !request.takes_back()) {
            return self.early.push_back(request);
        }
        match request {
            Request::Say { line, accepted_at, ask } => self.say(line, accepted_at, ask, ctx),
            Request::Interrupt { wish, ask } => self.interrupt(wish, ask, ctx),
            Request::Rewind { wish, ask } => self.rewind(wish, ask, ctx),
            Request::Regenerate {
                key,
                if_head,
                re,
                who,
                ask,
            } => self.regenerate(key, if_head, re, who, ask, ctx),
            Request::Resume { wish, ask } => self.resume(wish, ask, ctx),
            Request::Played { turn, ask } => self.played(turn, ask, ctx),
            Request::Attach {
                listener,
                last_seq,
                ask,
            } => self.attach(listener, last_seq, ask, ctx),
            Request::View { ask } => match self.view() {
                Some(view) => ask.answer(Ok(view)),
                None => ask.answer(Err(SessionError::Closed)),
            },
            Request::Prepare { text, ask } => self.prepare(text, ask, ctx),
            Request::Close { reason, ask } => self.close(reason, ask, ctx),
        }
    }

    fn attach(
        &mut self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        ask: Ask<Attached>,
        ctx: &mut Context<Self>,
    ) {
        let Phase::Ready(loaded) = &self.phase else { return };
        if loaded.closed || self.closing.is_some() {
            return ask.answer(Err(SessionError::Closed));
        }
        let Some(seen) = last_seq else {
            return ask.answer(self.seat(listener, None, Vec::new()));
        };
        match self.log.missed(seen) {
            Missed::Kept => {}
            Missed::Expired => return ask.answer(Err(SessionError::ResumeExpired { last_seq: seen })),
            Missed::Lost => {
                let failed = self.log.turn_lost(loaded.npc.clone());
                return ask.answer(self.seat(listener, Some(seen), failed.into_iter().collect()));
            }
            Missed::InLedger => {
                let limit = u32::try_from(self.node.settings.replay_events / 3).unwrap_or(u32::MAX);
                let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
                let head = loaded.dialogue.head_turn;
                let from = head.saturating_sub(limit.max(1)) + 1;
                let most = u32::try_from(self.node.settings.replay_events).unwrap_or(u32::MAX);
                let read = async move {
                    let turns = async {
                        if head == 0 {
                            return Ok(Vec::new());
                        }
                        ports.ledger.dialogues.turns(&scope, id, from, head).await
                    };
                    tokio::try_join!(turns, ports.ledger.rewinds.since(&scope, id, seen, most))
                };
                ctx.spawn(read.into_actor(self).map(move |read, session, _| {
                    let (turns, moves) = match read {
                        Ok(read) => read,
                        Err(error) => return ask.answer(Err(error.into())),
                    };
                    let complete = from == 1 || turns.first().is_some_and(|turn| turn.seqs.started <= seen + 1);
                    if complete && moves.len() < most as usize {
                        let told = moves.iter().map(|rewound| event_of(session.key.1, rewound));
                        let said = turns.iter().flat_map(|turn| events_of(turn, None));
                        let mut earlier: Vec<DialogueEvent> = said.chain(told).collect();
                        earlier.sort_by_key(|event| event.seq);
                        ask.answer(session.seat(listener, Some(seen), earlier));
                    } else {
                        ask.answer(Err(SessionError::ResumeExpired { last_seq: seen }));
                    }
                }));
                return;
            }
        }
        ask.answer(self.seat(listener, Some(seen), Vec::new()));
    }

    fn seat(
        &self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        earlier: Vec<DialogueEvent>,
    ) -> Result<Attached, SessionError> {
        let Phase::Ready(loaded) = &self.phase else {
            return Err(SessionError::Overloaded {
                retry_after: self.last_turn,
            });
        };
        let (id, replayed, head_seq) =
            self.log
                .attach(listener, last_seq, earlier)
                .ok_or(SessionError::Overloaded {
                    retry_after: Duration::from_secs(1),
                })?;
        Ok(Attached {
            head_seq,
            head_turn: loaded.dialogue.head_turn,
            replayed,
            listener: id,
        })
    }

    fn view(&self) -> Option<SessionView> {
        let Phase::Ready(loaded) = &self.phase else { return None };
        Some(SessionView {
            dialogue: Arc::clone(&loaded.dialogue),
            history: Arc::clone(&loaded.history),
            summaries: Arc::clone(&loaded.summaries),
            checkpoint: loaded.checkpoint.clone(),
            head_seq: self.log.head_seq(),
            running_turn: self.running.as_ref().map(|running| running.number),
            queued: self.queue.len(),
            at: self.node.ports.clock.now(),
        })
    }

    // --- closing ---

    fn close(&mut self, reason: &'static str, ask: Ask<()>, ctx: &mut Context<Self>) {
        if let Phase::Ready(loaded) = &self.phase
            && loaded.closed
        {
            return ask.answer(Err(SessionError::Closed));
        }
        self.end(reason, Some(ask), ctx);
    }

    /// Ends the dialogue: lines that wait are let go, the running reply is cut and still committed.
    fn end(&mut self, reason: &'static str, ask: Option<Ask<()>>, ctx: &mut Context<Self>) {
        let closing = self.closing.get_or_insert(Closing {
            reason,
            asks: Vec::new(),
            begun: false,
        });
        closing.asks.extend(ask);
        self.cut(None, None);
        self.advance(ctx);
    }

    /// Nothing runs and the dialogue is to end.
    fn finish_closing(&mut self, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        let Some(closing) = self.closing.as_mut().filter(|closing| !closing.begun) else {
            return;
        };
        closing.begun = true;
        let write = load::close(Arc::clone(&self.node), self.key.clone(), loaded.epoch);
        ctx.spawn(write.into_actor(self).map(|written, session, ctx| {
            let Some(mut closing) = session.closing.take() else {
                return;
            };
            match written {
                Ok(OwnerWrite::Fenced) => {
                    // It ends as what it is by now; whoever asked is sent on if it is another node's.
                    closing.begun = false;
                    session.closing = Some(closing);
                    session.load(ctx);
                }
                Ok(OwnerWrite::Done | OwnerWrite::NotOpen) => {
                    let reason = closing.reason;
                    session.log.publish(EventBody::SessionClosed { reason }, None);
                    for ask in closing.asks {
                        ask.answer(Ok(()));
                    }
                    session.leave(ctx);
                }
                Err(error) => {
                    for ask in closing.asks {
                        ask.answer(Err(error.clone().into()));
                    }
                }
            }
        }));
    }
}

/// What listeners hear of a turn that died with its actor.
pub(super) fn lost_turn() -> EventError {
    event_error(&TurnError::Store(StoreError::Rejected(String::new())))
}

impl Actor for Session {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.load(ctx);
        self.tick(ctx);
    }
}

impl Drop for Session {
    /// Also runs while a panic unwinds: whoever waits for the reply must not wait for ever.
    fn drop(&mut self) {
        if self.running.is_some() {
            self.log.not_committed(&lost_turn());
        }
        // Lines that were not accepted yet are asked again of the next actor.
        for waiting in self.queue.drain(..).filter(Waiting::is_accepted) {
            let body = EventBody::Error {
                turn: None,
                error: lost_turn(),
            };
            self.log.publish(body, waiting.re());
        }
    }
}

impl Handler<Request> for Session {
    type Result = ();

    fn handle(&mut self, request: Request, ctx: &mut Self::Context) {
        self.dispatch(request, ctx);
    }
}

impl Handler<BeginMove> for Session {
    type Result = ();

    fn handle(&mut self, BeginMove: BeginMove, ctx: &mut Self::Context) {
        self.begin_move(ctx);
    }
}

impl Handler<WasClosed> for Session {
    type Result = ();

    fn handle(&mut self, WasClosed(reason): WasClosed, ctx: &mut Self::Context) {
        self.end(reason, None, ctx);
    }
}

impl Handler<Disowned> for Session {
    type Result = ();

    fn handle(&mut self, Disowned: Disowned, ctx: &mut Self::Context) {
        // What runs is fenced; its commit finds that out, and so who owns the dialogue now.
        self.cut(None, None);
        if let Phase::Ready(loaded) = &self.phase {
            let epoch = loaded.epoch;
            self.lost(epoch, ctx);
        }
    }
}

impl Handler<WorldRestored> for Session {
    type Result = ();

    fn handle(&mut self, told: WorldRestored, ctx: &mut Self::Context) {
        self.restored(told, ctx);
    }
}

impl Handler<JobEnded> for Session {
    type Result = ();

    fn handle(&mut self, ended: JobEnded, ctx: &mut Self::Context) {
        if self.moving.is_busy() || matches!(self.phase, Phase::Loading) {
            // Whether its turn stands is known when the head is.
            self.moving.jobs.push(ended);
        } else {
            self.job_ended(ended, ctx);
        }
    }
}

impl Handler<Drain> for Session {
    type Result = ();

    fn handle(&mut self, Drain { reply }: Drain, ctx: &mut Self::Context) {
        self.drain_saw_turn = self.running.is_some();
        self.drained = Some(reply);
        self.advance(ctx);
    }
}

impl Handler<CutNow> for Session {
    type Result = ();

    fn handle(&mut self, CutNow: CutNow, _: &mut Self::Context) {
        self.cut(None, None);
    }
}

impl Handler<Stop> for Session {
    type Result = ();

    fn handle(&mut self, Stop: Stop, ctx: &mut Self::Context) {
        self.leave(ctx);
    }
}

#[cfg(test)]
impl Handler<Panic> for Session {
    type Result = ();

    fn handle(&mut self, Panic: Panic, _: &mut Self::Context) {
        panic!("a test asked for it");
    }
}
