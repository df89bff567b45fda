//! A player's dialogue with an NPC: the buffer, the running turn and the waiting lines.
//!
//! The actor is a state machine, and the mailbox stays open during every wait. `dialogue::turn` does the work of a
//! turn. The present file has the actor and its lifetime. Other modules: `request`, `waiting_line`, `turns` (with the
//! queue), `rewinds`, `restore` (restored saves), `load` (reads from the stores) and `residency` (the time in memory).

mod after_turn;
mod request;
mod residency;
mod restore;
mod rewinds;
mod turn_keys;
mod turns;
mod waiting_line;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, WrapFuture};
use tokio::sync::oneshot;

#[cfg(test)]
use super::messages::PanicForTest;
use super::{
    DialogueError, Listener,
    dialogue::load::{self, LoadedDialogue},
    event_log::{EventLog, MissedEvents, event_of_rewind, events_of_turn},
    mailbox::mailbox,
    memory_wait::MemoryWait,
    messages::{
        AttachedListener, ClosedInLedger, CutRunningTurn, DialogueKey, DrainDialogue, JobEnded, LeaveIfIdle,
        OwnershipLost, ReplyHandle, ResidencyPermit, SessionSnapshot, StopDialogue, WorldRestored,
    },
    metrics::ActorKind,
    node::Node,
    running_turn::RunningTurn,
};
use crate::{
    dialogue::{
        events::{DialogueEvent, EventBody, EventError},
        turn::{TurnError, event_error},
    },
    ports::{StoreError, ledger::dialogues::OwnerWriteOutcome},
};
use request::BeginRewind;
pub(super) use request::SessionRequest;
use rewinds::RewindState;
use turn_keys::TurnKeys;
use waiting_line::WaitingLine;

pub(super) struct Session {
    node: Arc<Node>,
    key: DialogueKey,
    generation: u64,
    log: Arc<EventLog>,
    phase: SessionPhase,
    /// Requests that came during a load of the dialogue.
    early: VecDeque<SessionRequest>,
    /// Lines that are not turns yet, in the order of speaking.
    queue: VecDeque<WaitingLine>,
    running: Option<RunningTurn>,
    rewinds: RewindState,
    /// Restored saves that the actor could not handle yet.
    late_restores: Vec<WorldRestored>,
    /// True if the last turn has jobs that wait until the turn was heard.
    awaits_playback: bool,
    /// Ends the wait for the playback.
    playback_timer: Option<SpawnHandle>,
    keys: TurnKeys,
    memory: MemoryWait,
    reading_participants: bool,
    closing: Option<SessionClosing>,
    drained: Option<oneshot::Sender<bool>>,
    drain_saw_turn: bool,
    used: Instant,
    /// Duration of the last turn, for `retry_after`.
    last_turn_took: Duration,
    next_line: u64,
    /// Set until the place is handed over.
    residency: Option<ResidencyPermit>,
}

enum SessionPhase {
    Loading,
    Ready(Box<LoadedDialogue>),
}

struct SessionClosing {
    reason: &'static str,
    asks: Vec<ReplyHandle<()>>,
    begun: bool,
}

impl Session {
    pub fn new(node: Arc<Node>, key: DialogueKey, generation: u64, log: Arc<EventLog>, live: ResidencyPermit) -> Self {
        let used = node.ports.clock.monotonic_now();
        Self {
            node,
            key,
            generation,
            log,
            phase: SessionPhase::Loading,
            early: VecDeque::new(),
            queue: VecDeque::new(),
            running: None,
            rewinds: RewindState::default(),
            late_restores: Vec::new(),
            awaits_playback: false,
            playback_timer: None,
            keys: TurnKeys::default(),
            memory: MemoryWait::default(),
            reading_participants: false,
            closing: None,
            drained: None,
            drain_saw_turn: false,
            used,
            last_turn_took: Duration::from_millis(800),
            next_line: 0,
            residency: Some(live),
        }
    }

    fn now(&self) -> Instant {
        self.node.ports.clock.monotonic_now()
    }

    // --- loading ---

    /// Reads the whole state from the stores, at the start and whenever the cached state may be wrong.
    fn start_loading(&mut self, ctx: &mut Context<Self>) {
        if self.rewinds.is_under_way() {
            // The rewind uses the epoch that a load would replace, and must end in the present phase.
            self.rewinds.load_after = true;
            return;
        }
        self.rewinds.outcome = None;
        self.rewinds.in_doubt = false;
        self.phase = SessionPhase::Loading;
        let load = load::load_dialogue(Arc::clone(&self.node), self.key.clone(), self.log.last_notified_seq());
        ctx.spawn(load.into_actor(self).map(|loaded, session, ctx| match loaded {
            Ok(loaded) => session.on_loaded(loaded, ctx),
            Err(error) => session.on_load_failed(&error, ctx),
        }));
    }

    fn on_loaded(&mut self, mut loaded: LoadedDialogue, ctx: &mut Context<Self>) {
        let ended = loaded.is_closed_by_restore();
        self.apply_missed_rewinds(std::mem::take(&mut loaded.missed_rewinds));
        loaded.sync_event_log(&self.node, &self.key, &self.log);
        // Reports a turn that ran when an earlier actor panicked, unless already reported.
        self.log.publish_not_committed(&lost_turn_error());
        self.keys.reset_known(loaded.next_seq > 1);
        self.memory = MemoryWait::for_turn(loaded.awaited);
        let (unreplaced, head) = (loaded.replacing.take(), loaded.head);
        if unreplaced.is_none() {
            self.rewinds.clear_reinstating();
        }
        // A reinstated turn is not regenerated as well.
        self.drop_replacements(|theirs| unreplaced.is_none() && theirs == head);
        self.phase = SessionPhase::Ready(Box::new(loaded));
        self.track_head_playback(false, ctx);
        if ended {
            return self.on_closed_by_restore(ctx);
        }
        if let Some(turn) = unreplaced
            && !self.reinstate_turn(turn, ctx)
        {
            // The next line on top of the present head would lose the turn for good.
            self.phase = SessionPhase::Loading;
            let error = StoreError::Unavailable("a turn could not be put back".to_owned());
            return self.on_load_failed(&error.into(), ctx);
        }
        self.on_ready(ctx);
    }

    /// Continues the work that waited for the load.
    fn on_ready(&mut self, ctx: &mut Context<Self>) {
        if self.apply_late_restores(ctx) {
            return;
        }
        self.resolve_pending_cuts(ctx);
        for request in std::mem::take(&mut self.early) {
            self.dispatch_request(request, ctx);
        }
        for ended in std::mem::take(&mut self.rewinds.deferred_jobs) {
            self.on_job_ended(ended, ctx);
        }
        if self.rewinds.is_busy() {
            // A rewind was requested before the load ended.
            ctx.notify(BeginRewind);
        }
        self.start_next_if_idle(ctx);
    }

    fn on_load_failed(&mut self, error: &DialogueError, ctx: &mut Context<Self>) {
        for request in self.early.drain(..) {
            request.reject_with(error.clone());
        }
        let told = match error {
            DialogueError::NotOwner { .. } => {
                self.log
                    .publish_event(EventBody::SessionClosed { reason: "moved" }, None);
                event_error(&TurnError::Fenced)
            }
            _ => event_error(&TurnError::Store(StoreError::Unavailable(String::new()))),
        };
        self.log.release_rewind_hold(false);
        self.log.publish_not_committed(&told);
        self.cancel_rewinds(error);
        self.reject_queued_lines(&told, error);
        if let Some(actors) = self.node.actors() {
            // With listeners, the entry and its log stay; the next message tries again.
            if matches!(error, DialogueError::Store(_)) && self.log.has_listeners() {
                actors.clear_crashes(&self.key, self.generation);
            } else {
                actors.remove_dialogue(&self.key, self.generation);
            }
        }
        ctx.stop();
    }

    // --- requests ---

    fn dispatch_request(&mut self, request: SessionRequest, ctx: &mut Context<Self>) {
        self.mark_used();
        if matches!(self.phase, SessionPhase::Loading) || (self.rewinds.is_busy() && !request.is_rewind_request()) {
            return self.early.push_back(request);
        }
        match request {
            SessionRequest::Say { line, accepted_at, ask } => self.on_say(line, accepted_at, ask, ctx),
            SessionRequest::Interrupt { wish, ask } => self.on_interrupt(wish, ask, ctx),
            SessionRequest::Rewind { wish, ask } => self.on_rewind(wish, ask, ctx),
            SessionRequest::Regenerate {
                key,
                if_head,
                re,
                who,
                ask,
            } => self.on_regenerate(key, if_head, re, who, ask, ctx),
            SessionRequest::Resume { wish, ask } => self.on_resume(wish, ask, ctx),
            SessionRequest::Played { turn, ask } => self.on_played(turn, ask, ctx),
            SessionRequest::Attach {
                listener,
                last_seq,
                ask,
            } => self.on_attach(listener, last_seq, ask, ctx),
            SessionRequest::Snapshot { ask } => match self.snapshot() {
                Some(view) => ask.answer(Ok(view)),
                None => ask.answer(Err(DialogueError::Closed)),
            },
            SessionRequest::Prepare { text, ask } => self.on_prepare(text, ask, ctx),
            SessionRequest::Close { reason, ask } => self.on_close(reason, ask, ctx),
        }
    }

    fn on_attach(
        &mut self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        ask: ReplyHandle<AttachedListener>,
        ctx: &mut Context<Self>,
    ) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        if loaded.closed || self.closing.is_some() {
            return ask.answer(Err(DialogueError::Closed));
        }
        let Some(seen) = last_seq else {
            return ask.answer(self.seat_listener(listener, None, Vec::new()));
        };
        match self.log.locate_missed(seen) {
            MissedEvents::InMemory => {}
            MissedEvents::Expired => return ask.answer(Err(DialogueError::ResumeExpired { last_seq: seen })),
            MissedEvents::Lost => {
                let failed = self.log.lost_turn_event(loaded.npc.clone());
                return ask.answer(self.seat_listener(listener, Some(seen), failed.into_iter().collect()));
            }
            MissedEvents::InLedger => {
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
                        ports.ledger.dialogues.load_turns(&scope, id, from, head).await
                    };
                    tokio::try_join!(turns, ports.ledger.rewinds.list_rewinds_since(&scope, id, seen, most))
                };
                ctx.spawn(read.into_actor(self).map(move |read, session, _| {
                    let (turns, moves) = match read {
                        Ok(read) => read,
                        Err(error) => return ask.answer(Err(error.into())),
                    };
                    let complete = from == 1 || turns.first().is_some_and(|turn| turn.seqs.started <= seen + 1);
                    if complete && moves.len() < most as usize {
                        let told = moves.iter().map(|rewound| event_of_rewind(session.key.1, rewound));
                        let said = turns.iter().flat_map(|turn| events_of_turn(turn, None));
                        let mut earlier: Vec<DialogueEvent> = said.chain(told).collect();
                        earlier.sort_by_key(|event| event.seq);
                        ask.answer(session.seat_listener(listener, Some(seen), earlier));
                    } else {
                        ask.answer(Err(DialogueError::ResumeExpired { last_seq: seen }));
                    }
                }));
                return;
            }
        }
        ask.answer(self.seat_listener(listener, Some(seen), Vec::new()));
    }

    fn seat_listener(
        &self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        earlier: Vec<DialogueEvent>,
    ) -> Result<AttachedListener, DialogueError> {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return Err(DialogueError::Overloaded {
                retry_after: self.last_turn_took,
            });
        };
        let (id, replayed, head_seq) =
            self.log
                .attach_listener(listener, last_seq, earlier)
                .ok_or(DialogueError::Overloaded {
                    retry_after: Duration::from_secs(1),
                })?;
        Ok(AttachedListener {
            head_seq,
            head_turn: loaded.dialogue.head_turn,
            replayed,
            listener: id,
        })
    }

    fn snapshot(&self) -> Option<SessionSnapshot> {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return None;
        };
        Some(SessionSnapshot {
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

    fn on_close(&mut self, reason: &'static str, ask: ReplyHandle<()>, ctx: &mut Context<Self>) {
        if let SessionPhase::Ready(loaded) = &self.phase
            && loaded.closed
        {
            return ask.answer(Err(DialogueError::Closed));
        }
        self.begin_closing(reason, Some(ask), ctx);
    }

    /// Closes the dialogue: queued lines are cancelled, the running reply is cut and still committed.
    fn begin_closing(&mut self, reason: &'static str, ask: Option<ReplyHandle<()>>, ctx: &mut Context<Self>) {
        let closing = self.closing.get_or_insert(SessionClosing {
            reason,
            asks: Vec::new(),
            begun: false,
        });
        closing.asks.extend(ask);
        self.cut_running_turn(None, None);
        self.start_next_if_idle(ctx);
    }

    /// Writes the close once no turn runs.
    fn finish_closing(&mut self, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let Some(closing) = self.closing.as_mut().filter(|closing| !closing.begun) else {
            return;
        };
        closing.begun = true;
        let write = load::close_dialogue(Arc::clone(&self.node), self.key.clone(), loaded.epoch);
        ctx.spawn(write.into_actor(self).map(|written, session, ctx| {
            let Some(mut closing) = session.closing.take() else {
                return;
            };
            match written {
                Ok(OwnerWriteOutcome::Fenced) => {
                    // The reload finds the present state and ends the session accordingly. A caller whose dialogue is
                    // on another node is redirected.
                    closing.begun = false;
                    session.closing = Some(closing);
                    session.start_loading(ctx);
                }
                Ok(OwnerWriteOutcome::Done | OwnerWriteOutcome::NotOpen) => {
                    let reason = closing.reason;
                    session.log.publish_event(EventBody::SessionClosed { reason }, None);
                    for ask in closing.asks {
                        ask.answer(Ok(()));
                    }
                    session.release_and_stop(ctx);
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

/// Returns the error for listeners of a turn that died with its actor.
pub(super) fn lost_turn_error() -> EventError {
    event_error(&TurnError::Store(StoreError::Rejected(String::new())))
}

impl Actor for Session {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.start_loading(ctx);
        self.on_tick(ctx);
    }
}

impl Drop for Session {
    /// Also runs while a panic unwinds: callers that wait for the reply must not wait for ever.
    fn drop(&mut self) {
        if self.running.is_some() {
            self.log.publish_not_committed(&lost_turn_error());
        }
        // Lines that were not accepted yet are sent again to the next actor.
        for waiting in self.queue.drain(..).filter(WaitingLine::is_accepted) {
            let body = EventBody::Error {
                turn: None,
                error: lost_turn_error(),
            };
            self.log.publish_event(body, waiting.re());
        }
    }
}

impl Handler<SessionRequest> for Session {
    type Result = ();

    fn handle(&mut self, request: SessionRequest, ctx: &mut Self::Context) {
        self.dispatch_request(request, ctx);
    }
}

impl Handler<BeginRewind> for Session {
    type Result = ();

    fn handle(&mut self, BeginRewind: BeginRewind, ctx: &mut Self::Context) {
        self.begin_rewind(ctx);
    }
}

impl Handler<ClosedInLedger> for Session {
    type Result = ();

    fn handle(&mut self, ClosedInLedger(reason): ClosedInLedger, ctx: &mut Self::Context) {
        self.begin_closing(reason, None, ctx);
    }
}

impl Handler<OwnershipLost> for Session {
    type Result = ();

    fn handle(&mut self, OwnershipLost: OwnershipLost, ctx: &mut Self::Context) {
        // The running turn is fenced. Its commit finds the fence, and so the new owner of the dialogue.
        self.cut_running_turn(None, None);
        if let SessionPhase::Ready(loaded) = &self.phase {
            let epoch = loaded.epoch;
            self.on_ownership_lost(epoch, ctx);
        }
    }
}

impl Handler<WorldRestored> for Session {
    type Result = ();

    fn handle(&mut self, told: WorldRestored, ctx: &mut Self::Context) {
        self.on_world_restored(told, ctx);
    }
}

impl Handler<JobEnded> for Session {
    type Result = ();

    fn handle(&mut self, ended: JobEnded, ctx: &mut Self::Context) {
        if self.rewinds.is_busy() || matches!(self.phase, SessionPhase::Loading) {
            // Only the new head tells whether the job's turn stands.
            self.rewinds.deferred_jobs.push(ended);
        } else {
            self.on_job_ended(ended, ctx);
        }
    }
}

impl Handler<DrainDialogue> for Session {
    type Result = ();

    fn handle(&mut self, DrainDialogue { reply }: DrainDialogue, ctx: &mut Self::Context) {
        self.drain_saw_turn = self.running.is_some();
        self.drained = Some(reply);
        self.start_next_if_idle(ctx);
    }
}

impl Handler<CutRunningTurn> for Session {
    type Result = ();

    fn handle(&mut self, CutRunningTurn: CutRunningTurn, _: &mut Self::Context) {
        self.cut_running_turn(None, None);
    }
}

impl Handler<StopDialogue> for Session {
    type Result = ();

    fn handle(&mut self, StopDialogue: StopDialogue, ctx: &mut Self::Context) {
        self.release_and_stop(ctx);
    }
}

#[cfg(test)]
impl Handler<PanicForTest> for Session {
    type Result = ();

    fn handle(&mut self, PanicForTest: PanicForTest, _: &mut Self::Context) {
        panic!("a test asked for it");
    }
}

mailbox!(
    Session,
    ActorKind::Session,
    [
        SessionRequest,
        JobEnded,
        DrainDialogue,
        StopDialogue,
        LeaveIfIdle,
        ClosedInLedger,
        OwnershipLost,
        WorldRestored,
    ]
);
