//! The actor of a dialogue: one state machine for sessions and NPC conversations, with an open mailbox during every
//! wait. The present file has the state, the requests and the loads. Other modules: `decisions` (what comes next, as
//! pure functions), `kind` (the differences), `turns`, `rewinds`, `lifetime` (time in memory, restores, closes) and
//! `listeners`.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};
use tokio::sync::oneshot;

use super::{
    decisions::{self, Activity, ActorView, Closing, NextStep, Route},
    kind::{DialogueBehaviour, DialogueRequest as _, TurnEndWaiter},
    load::{self, LoadedDialogue},
    rewind_state::{BeginRewind, RewindInFlight, Rewinds},
};
#[cfg(test)]
use crate::messages::PanicForTest;
use crate::{
    DialogueError,
    event_log::EventLog,
    memory_wait::MemoryWait,
    messages::{
        ClosedInLedger, CutRunningTurn, DialogueKey, DrainDialogue, JobEnded, OwnershipLost, ReplyHandle,
        ResidencyPermit, StopDialogue, WorldRestored,
    },
    node::Node,
    running_turn::RunningTurn,
};
use colloquy_dialogue::{
    events::EventError,
    turn::{TurnError, event_error},
};
use colloquy_ports::StoreError;

pub(crate) struct DialogueActor<K: DialogueBehaviour> {
    pub node: Arc<Node>,
    pub key: DialogueKey,
    pub generation: u64,
    pub log: Arc<EventLog>,
    pub state: State,
    pub deferred: Deferred<K>,
    pub running: Option<RunningTurn>,
    /// Callers that wait for the end of the running turn, in the order of their requests.
    pub turn_end_waiters: Vec<TurnEndWaiter<K::Waiter>>,
    pub rewinds: Rewinds<K>,
    pub memory: MemoryWait,
    pub reading_participants: bool,
    pub closing: Option<CloseRequest>,
    pub drain: Option<DrainRequest>,
    pub last_used_at: Instant,
    /// Duration of the last turn, for `retry_after`.
    pub last_turn_took: Duration,
    /// Set until the place is handed over.
    pub residency: Option<ResidencyPermit>,
    /// The state that only this kind of dialogue has.
    pub kind: K,
}

/// Where the actor has its dialogue.
pub(crate) enum State {
    /// The whole dialogue is being read: at the start, and whenever the cached state may be wrong.
    Loading,
    /// In memory. Turns run and requests are handled.
    Ready(Box<LoadedDialogue>),
    /// A rewind is running in the ledger. A turn may be running, and its end waits for the rewind.
    Rewinding(Box<LoadedDialogue>, RewindInFlight),
    /// A rewind was applied, and the keys of callers who came late are being stored.
    Recording(Box<LoadedDialogue>),
    /// The rows that a rewind changed are being read.
    Rereading(Box<LoadedDialogue>),
    /// The dialogue could not be read, or another actor continues. The actor is stopping.
    Stopped,
}

/// Messages that wait until the dialogue is in memory and no rewind is wanted.
pub(crate) struct Deferred<K: DialogueBehaviour> {
    pub requests: VecDeque<K::Request>,
    /// Only the new head tells whether the turn of a job stands.
    pub jobs: Vec<JobEnded>,
    pub restores: Vec<WorldRestored>,
}

pub(crate) struct CloseRequest {
    pub reason: &'static str,
    pub replies: Vec<ReplyHandle<()>>,
    pub being_written: bool,
}

pub(crate) struct DrainRequest {
    pub reply: oneshot::Sender<bool>,
    /// True if a turn was running when the drain was requested.
    pub saw_turn: bool,
}

impl State {
    /// Returns the dialogue, unless a part of the dialogue is being read.
    pub fn loaded(&self) -> Option<&LoadedDialogue> {
        match self {
            Self::Ready(loaded) | Self::Rewinding(loaded, _) => Some(loaded),
            Self::Loading | Self::Recording(_) | Self::Rereading(_) | Self::Stopped => None,
        }
    }

    pub fn loaded_mut(&mut self) -> Option<&mut LoadedDialogue> {
        match self {
            Self::Ready(loaded) | Self::Rewinding(loaded, _) => Some(loaded),
            Self::Loading | Self::Recording(_) | Self::Rereading(_) | Self::Stopped => None,
        }
    }

    pub fn activity(&self) -> Activity {
        match self {
            Self::Ready(_) => Activity::Ready,
            Self::Rewinding(..) => Activity::Rewinding,
            Self::Loading | Self::Recording(_) | Self::Rereading(_) | Self::Stopped => Activity::Reading,
        }
    }

    /// Takes the dialogue out of `Ready`; the state is `Loading` until the caller sets the next state. `None`: another
    /// state, which stays.
    pub fn take_ready(&mut self) -> Option<Box<LoadedDialogue>> {
        match std::mem::replace(self, Self::Loading) {
            Self::Ready(loaded) => Some(loaded),
            other => self.put_back(other),
        }
    }

    /// As [`Self::take_ready`], out of `Rewinding`.
    pub fn take_rewinding(&mut self) -> Option<(Box<LoadedDialogue>, RewindInFlight)> {
        match std::mem::replace(self, Self::Loading) {
            Self::Rewinding(loaded, in_flight) => Some((loaded, in_flight)),
            other => self.put_back(other),
        }
    }

    /// As [`Self::take_ready`], out of `Recording`.
    pub fn take_recording(&mut self) -> Option<Box<LoadedDialogue>> {
        match std::mem::replace(self, Self::Loading) {
            Self::Recording(loaded) => Some(loaded),
            other => self.put_back(other),
        }
    }

    /// As [`Self::take_ready`], out of `Rereading`.
    pub fn take_rereading(&mut self) -> Option<Box<LoadedDialogue>> {
        match std::mem::replace(self, Self::Loading) {
            Self::Rereading(loaded) => Some(loaded),
            other => self.put_back(other),
        }
    }

    fn put_back<T>(&mut self, other: Self) -> Option<T> {
        *self = other;
        None
    }
}

impl<K: DialogueBehaviour> DialogueActor<K> {
    pub fn new(
        node: Arc<Node>,
        key: DialogueKey,
        generation: u64,
        log: Arc<EventLog>,
        residency: ResidencyPermit,
        kind: K,
    ) -> Self {
        let last_used_at = node.ports.clock.monotonic_now();
        Self {
            node,
            key,
            generation,
            log,
            state: State::Loading,
            deferred: Deferred {
                requests: VecDeque::new(),
                jobs: Vec::new(),
                restores: Vec::new(),
            },
            running: None,
            turn_end_waiters: Vec::new(),
            rewinds: Rewinds::default(),
            memory: MemoryWait::default(),
            reading_participants: false,
            closing: None,
            drain: None,
            last_used_at,
            last_turn_took: Duration::from_millis(800),
            residency: Some(residency),
            kind,
        }
    }

    pub fn now(&self) -> Instant {
        self.node.ports.clock.monotonic_now()
    }

    pub fn overloaded_error(&self) -> DialogueError {
        DialogueError::Overloaded {
            retry_after: self.last_turn_took,
        }
    }

    /// Returns the number of the last turn; 0 while the dialogue is being read.
    pub fn head_turn(&self) -> u32 {
        self.state.loaded().map_or(0, |loaded| loaded.dialogue.head_turn)
    }

    pub fn running_number(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.number)
    }

    pub fn is_draining(&self) -> bool {
        self.drain.is_some() || self.node.is_draining()
    }

    pub fn view(&self) -> ActorView {
        debug_assert!(
            self.state.activity() != Activity::Rewinding || self.rewinds.is_busy(),
            "a running rewind is in the queue of rewinds"
        );
        let owed = self.owed_turn();
        let can_answer = |waiter: &TurnEndWaiter<K::Waiter>| match waiter {
            TurnEndWaiter::Cut(_) => true,
            TurnEndWaiter::Other(_) => owed.is_none(),
        };
        ActorView {
            activity: self.state.activity(),
            turn_runs: self.running.is_some(),
            rewind_wanted: self.rewinds.is_busy(),
            in_doubt: self.rewinds.in_doubt,
            has_answerable: self.turn_end_waiters.iter().any(can_answer),
            owed,
            has_lines: K::has_lines(self),
            drain_waits: self.drain.is_some(),
            closing: match &self.closing {
                None => Closing::No,
                Some(close) if close.being_written => Closing::BeingWritten,
                Some(_) => Closing::Wanted,
            },
            closed: self.state.loaded().is_some_and(|loaded| loaded.closed),
            draining: self.is_draining(),
        }
    }

    // --- requests ---

    pub fn dispatch_request(&mut self, request: K::Request, ctx: &mut Context<Self>) {
        self.mark_used();
        K::on_arrival(self, &request, ctx);
        match decisions::route_request(&self.view(), request.needs()) {
            Route::Defer => self.deferred.requests.push_back(request),
            Route::RefuseClosed => request.reject_with(K::closed_error()),
            Route::RefuseDraining => request.reject_with(DialogueError::Draining),
            Route::Handle => K::handle_request(self, request, ctx),
        }
    }

    /// Takes the next steps, until the actor has to wait for a message or a result.
    pub fn run_next_steps(&mut self, ctx: &mut Context<Self>) {
        loop {
            match decisions::next_step(&self.view()) {
                NextStep::Wait => return,
                NextStep::Load => return self.start_loading(ctx),
                NextStep::AnswerWaiters => self.answer_waiters(ctx),
                NextStep::CancelLines => self.cancel_lines_on_leave(),
                NextStep::Reinstate(turn) => return self.reinstate_turn(turn, ctx),
                NextStep::AnswerDrain => self.answer_drain(),
                NextStep::WriteClose => return self.write_close(ctx),
                NextStep::Serve => return K::start_next(self, ctx),
            }
        }
    }

    // --- loading ---

    /// Reads the whole state from the stores, at the start and whenever the cached state may be wrong.
    pub fn start_loading(&mut self, ctx: &mut Context<Self>) {
        if let State::Rewinding(_, in_flight) = &mut self.state {
            // The rewind uses the epoch that a load would replace, and must end in the present state.
            in_flight.load_after = true;
            return;
        }
        debug_assert!(self.running.is_none(), "a dialogue is read while no turn runs");
        self.rewinds.applied = None;
        self.rewinds.in_doubt = false;
        self.state = State::Loading;
        let load = load::load_dialogue(Arc::clone(&self.node), self.key.clone(), self.log.last_notified_seq());
        ctx.spawn(load.into_actor(self).map(|loaded, actor, ctx| match loaded {
            Ok(loaded) => actor.on_loaded(loaded, ctx),
            Err(error) => actor.fail_load(&error, ctx),
        }));
    }

    fn on_loaded(&mut self, mut loaded: LoadedDialogue, ctx: &mut Context<Self>) {
        let closed_by_restore = loaded.is_closed_by_restore();
        let missed = std::mem::take(&mut loaded.missed_rewinds);
        self.log.publish_missed_rewinds(&missed);
        loaded.sync_event_log(&self.node, &self.key, &self.log);
        // Reports a turn that ran when an earlier actor panicked, unless already reported.
        self.log.publish_not_committed(&lost_turn_error());
        self.memory = MemoryWait::for_turn(loaded.head, loaded.extraction);
        let is_settled = loaded.replacing.is_none();
        self.state = State::Ready(Box::new(loaded));
        K::on_loaded(self, &missed, ctx);
        if is_settled {
            self.rewinds.reinstating = None;
        }
        if closed_by_restore {
            return self.end_restored_closed(self.head_turn(), ctx);
        }
        self.on_ready(ctx);
    }

    /// Continues the work that waited until the dialogue was in memory and no rewind was wanted: restores first, then
    /// callers of cuts, the reports of jobs, and the requests in the order of their arrival.
    pub fn on_ready(&mut self, ctx: &mut Context<Self>) {
        for notice in std::mem::take(&mut self.deferred.restores) {
            self.on_world_restored(notice, ctx);
        }
        if self.state.activity() != Activity::Ready {
            return;
        }
        if self.running.is_none() && !self.rewinds.is_busy() {
            self.answer_waiters(ctx);
        }
        if !self.rewinds.is_busy()
            && self.running.is_none()
            && let Some(turn) = self.owed_turn()
        {
            // The deferred requests apply to the dialogue in which the turn stands again.
            return self.reinstate_turn(turn, ctx);
        }
        if !self.rewinds.is_busy() {
            for job_ended in std::mem::take(&mut self.deferred.jobs) {
                self.on_job_ended(job_ended, ctx);
            }
        }
        K::on_ready(self, ctx);
        for request in std::mem::take(&mut self.deferred.requests) {
            self.dispatch_request(request, ctx);
        }
        if self.rewinds.is_busy() {
            // A rewind was requested before the load ended.
            ctx.notify(BeginRewind);
        }
        self.run_next_steps(ctx);
    }

    /// Stops the actor, because the dialogue could not be read. All callers get `error`.
    pub fn fail_load(&mut self, error: &DialogueError, ctx: &mut Context<Self>) {
        self.state = State::Stopped;
        for request in self.deferred.requests.drain(..) {
            request.reject_with(error.clone());
        }
        let reason = match error {
            DialogueError::NotOwner { .. } => {
                self.log.publish_event(K::closed_event(0, "moved"), None);
                event_error(&TurnError::Fenced)
            }
            _ => event_error(&TurnError::Store(StoreError::Unavailable(String::new()))),
        };
        self.log.release_rewind_hold(false);
        self.log.publish_not_committed(&reason);
        self.cancel_rewinds(error);
        K::cancel_lines(self, &reason, error);
        K::on_load_failed(self, error, ctx);
        if let Some(actors) = self.node.actors() {
            if matches!(error, DialogueError::Store(_)) && K::keeps_entry_after_failed_load(self) {
                actors.clear_crashes(&self.key, self.generation);
            } else {
                actors.remove_dialogue(&self.key, self.generation);
            }
        }
        ctx.stop();
    }
}

/// Returns the error for listeners of a turn that died with its actor.
pub(crate) fn lost_turn_error() -> EventError {
    event_error(&TurnError::Store(StoreError::Rejected(String::new())))
}

impl<K: DialogueBehaviour> Actor for DialogueActor<K> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.start_loading(ctx);
        self.on_tick(ctx);
    }
}

impl<K: DialogueBehaviour> Drop for DialogueActor<K> {
    /// Also runs while a panic unwinds: callers and listeners that wait for the reply must not wait for ever.
    fn drop(&mut self) {
        if self.running.is_some() {
            self.log.publish_not_committed(&lost_turn_error());
        }
        K::on_dropped(self);
    }
}

impl<K: DialogueBehaviour> Handler<BeginRewind> for DialogueActor<K> {
    type Result = ();

    fn handle(&mut self, BeginRewind: BeginRewind, ctx: &mut Self::Context) {
        self.begin_rewind(ctx);
    }
}

impl<K: DialogueBehaviour> Handler<ClosedInLedger> for DialogueActor<K> {
    type Result = ();

    fn handle(&mut self, ClosedInLedger(reason): ClosedInLedger, ctx: &mut Self::Context) {
        self.begin_closing(reason, None, ctx);
    }
}

impl<K: DialogueBehaviour> Handler<OwnershipLost> for DialogueActor<K> {
    type Result = ();

    fn handle(&mut self, OwnershipLost: OwnershipLost, ctx: &mut Self::Context) {
        // The running turn is fenced. Its commit finds the fence, and so the new owner of the dialogue.
        self.cut_running_turn(None, None);
        if let Some(epoch) = self.state.loaded().map(|loaded| loaded.epoch) {
            self.on_ownership_lost(epoch, ctx);
        }
    }
}

impl<K: DialogueBehaviour> Handler<WorldRestored> for DialogueActor<K> {
    type Result = ();

    fn handle(&mut self, notice: WorldRestored, ctx: &mut Self::Context) {
        self.on_world_restored(notice, ctx);
    }
}

impl<K: DialogueBehaviour> Handler<JobEnded> for DialogueActor<K> {
    type Result = ();

    fn handle(&mut self, job_ended: JobEnded, ctx: &mut Self::Context) {
        if self.rewinds.is_busy() || self.state.loaded().is_none() {
            self.deferred.jobs.push(job_ended);
        } else {
            self.on_job_ended(job_ended, ctx);
            self.run_next_steps(ctx);
        }
    }
}

impl<K: DialogueBehaviour> Handler<DrainDialogue> for DialogueActor<K> {
    type Result = ();

    fn handle(&mut self, DrainDialogue { reply }: DrainDialogue, ctx: &mut Self::Context) {
        let saw_turn = self.running.is_some();
        self.drain = Some(DrainRequest { reply, saw_turn });
        self.run_next_steps(ctx);
    }
}

impl<K: DialogueBehaviour> Handler<CutRunningTurn> for DialogueActor<K> {
    type Result = ();

    fn handle(&mut self, CutRunningTurn: CutRunningTurn, _: &mut Self::Context) {
        self.cut_running_turn(None, None);
    }
}

impl<K: DialogueBehaviour> Handler<StopDialogue> for DialogueActor<K> {
    type Result = ();

    fn handle(&mut self, StopDialogue: StopDialogue, ctx: &mut Self::Context) {
        self.release_and_stop(ctx);
    }
}

#[cfg(test)]
impl<K: DialogueBehaviour> Handler<PanicForTest> for DialogueActor<K> {
    type Result = ();

    fn handle(&mut self, PanicForTest: PanicForTest, _: &mut Self::Context) {
        panic!("a test asked for it");
    }
}
