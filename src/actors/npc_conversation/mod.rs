//! A conversation between NPCs: the buffer, the next speaker and the running line.
//!
//! As with a session, the actor is a state machine with an open mailbox; `dialogue::turn` does the work of a line. A
//! self-paced conversation says a line, waits for its reading time, and says the next line. An interrupt pauses the
//! conversation; a speaker's conclusion or the last line ends it. The present file has the actor, its messages and its
//! lifetime. Other modules: `lines`, `rewinds` (with interrupts), `pending_replacement` (continued lines) and `handle`
//! (the entry).
//!
//! An open self-paced conversation continues after a restart at the first request. After a panic, the node's chores
//! spawn the actor again.

pub mod handle;
mod lines;
mod listeners;
mod pauses;
mod pending_cuts;
mod pending_replacement;
mod residency;
mod restore;
mod rewinds;
mod speaker_choice;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, SpawnHandle, WrapFuture};
use tokio::sync::oneshot;

use self::{
    pauses::CutWaiter,
    rewinds::{BeginConversationRewind, ConversationRewindState},
    speaker_choice::SpeakerQuery,
};
use super::{
    DialogueError, InterruptCommand, InterruptOutcome, Listener,
    dialogue::load::{self, LoadedDialogue},
    event_log::EventLog,
    mailbox::mailbox,
    memory_wait::MemoryWait,
    messages::{
        AttachedListener, ConversationSnapshot, CutRunningTurn, DialogueKey, DrainDialogue, JobEnded, JoinPoint,
        LeaveIfIdle, OwnershipLost, ReplyHandle, ResidencyPermit, StopDialogue, WorldRestored,
    },
    metrics::ActorKind,
    node::Node,
    running_turn::{RunningTurn, TurnOutcome},
    session::lost_turn_error,
};
use crate::{
    dialogue::{
        events::EventBody,
        turn::{CommittedTurn, PartialReply, TurnError, event_error},
    },
    ids::TurnId,
    ports::{StoreError, ledger::dialogues::OwnerWriteOutcome},
    tenancy::Principal,
};

/// The requests to a conversation.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) enum ConversationRequest {
    Snapshot {
        ask: ReplyHandle<ConversationSnapshot>,
    },
    Attach {
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        /// True if the listener wakes a sleeping conversation.
        wakes: bool,
        ask: ReplyHandle<AttachedListener>,
    },
    /// Says one line now.
    Step {
        ask: ReplyHandle<oneshot::Receiver<TurnOutcome>>,
    },
    /// Cuts the running line or rewinds to an earlier line, and pauses.
    Interrupt {
        wish: InterruptCommand,
        ask: ReplyHandle<InterruptOutcome>,
    },
    /// Continues after a pause.
    Resume {
        who: Principal,
        ask: ReplyHandle<ConversationSnapshot>,
    },
    /// Pauses for a player, and returns the join point.
    Join {
        ask: ReplyHandle<JoinPoint>,
    },
    End {
        reason: &'static str,
        ask: ReplyHandle<()>,
    },
}

/// Allows lines again: the tenant was enabled, or the conversation was woken.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ContinueTalking;

impl ConversationRequest {
    fn reject_with(self, error: DialogueError) {
        match self {
            Self::Snapshot { ask } | Self::Resume { ask, .. } => ask.answer(Err(error)),
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
    key: DialogueKey,
    generation: u64,
    log: Arc<EventLog>,
    phase: ConversationPhase,
    /// Requests that came during a load of the dialogue.
    early: VecDeque<ConversationRequest>,
    running: Option<RunningTurn>,
    /// Callers that wait for the next line.
    stepping: Vec<oneshot::Sender<TurnOutcome>>,
    /// Callers to answer once no line is running.
    pending_cuts: Vec<CutWaiter>,
    rewinds: ConversationRewindState,
    memory: MemoryWait,
    /// The result of a running line that ended during a rewind.
    deferred_outcome: Option<Result<CommittedTurn, TurnError>>,
    /// The line that was cut and rewound, for a continuation by its speaker.
    unfinished: Option<PartialReply>,
    /// The line being reinstated, or whose reinstatement failed.
    reinstating: Option<TurnId>,
    /// The pause before the next line.
    line_timer: Option<SpawnHandle>,
    /// Failed lines in a row.
    failures: u32,
    reading_participants: bool,
    speaker_query: SpeakerQuery,
    closing: Option<ConversationClosing>,
    drained: Option<oneshot::Sender<bool>>,
    drain_saw_turn: bool,
    /// True if the conversation is in memory only for watchers. A sleeping conversation is silent until another
    /// request.
    asleep: bool,
    used: Instant,
    /// Duration of the last line, for `retry_after`.
    last_turn_took: Duration,
    /// Set until the place is handed over.
    residency: Option<ResidencyPermit>,
}

enum ConversationPhase {
    Loading,
    Ready(Box<LoadedDialogue>),
}

struct ConversationClosing {
    reason: &'static str,
    asks: Vec<ReplyHandle<()>>,
    begun: bool,
}

impl NpcConversation {
    pub fn new(
        node: Arc<Node>,
        key: DialogueKey,
        generation: u64,
        log: Arc<EventLog>,
        live: ResidencyPermit,
        asleep: bool,
    ) -> Self {
        let used = node.ports.clock.monotonic_now();
        Self {
            node,
            key,
            generation,
            log,
            phase: ConversationPhase::Loading,
            early: VecDeque::new(),
            running: None,
            stepping: Vec::new(),
            pending_cuts: Vec::new(),
            rewinds: ConversationRewindState::default(),
            memory: MemoryWait::default(),
            deferred_outcome: None,
            unfinished: None,
            reinstating: None,
            line_timer: None,
            failures: 0,
            reading_participants: false,
            speaker_query: SpeakerQuery::default(),
            closing: None,
            drained: None,
            drain_saw_turn: false,
            asleep,
            used,
            last_turn_took: Duration::from_millis(800),
            residency: Some(live),
        }
    }

    fn now(&self) -> Instant {
        self.node.ports.clock.monotonic_now()
    }

    fn overloaded_error(&self) -> DialogueError {
        DialogueError::Overloaded {
            retry_after: self.last_turn_took,
        }
    }

    // --- loading ---

    fn start_loading(&mut self, ctx: &mut Context<Self>) {
        if self.rewinds.is_under_way() {
            // The rewind uses the epoch that a load would replace, and must end in the present phase.
            self.rewinds.load_after = true;
            return;
        }
        self.rewinds.clear_outcome();
        self.rewinds.in_doubt = false;
        self.phase = ConversationPhase::Loading;
        let load = load::load_dialogue(Arc::clone(&self.node), self.key.clone(), self.log.last_notified_seq());
        ctx.spawn(load.into_actor(self).map(|loaded, talk, ctx| match loaded {
            Ok(loaded) => talk.on_loaded(loaded, ctx),
            Err(error) => talk.on_load_failed(&error, ctx),
        }));
    }

    fn on_loaded(&mut self, mut loaded: LoadedDialogue, ctx: &mut Context<Self>) {
        let ended = loaded.is_closed_by_restore();
        self.log
            .publish_missed_rewinds(std::mem::take(&mut loaded.missed_rewinds));
        loaded.sync_event_log(&self.node, &self.key, &self.log);
        self.log.publish_not_committed(&lost_turn_error());
        self.memory = MemoryWait::for_turn(loaded.awaited);
        if loaded.replacing.is_none() {
            self.reinstating = None;
        }
        let head_turn = loaded.dialogue.head_turn;
        self.phase = ConversationPhase::Ready(Box::new(loaded));
        if ended {
            return self.on_closed_by_restore(head_turn, ctx);
        }
        self.on_ready(ctx);
    }

    /// Continues the work that waited for the load.
    fn on_ready(&mut self, ctx: &mut Context<Self>) {
        if !self.rewinds.is_busy() && self.reinstate_turn(ctx) {
            return;
        }
        for ended in std::mem::take(&mut self.rewinds.deferred_jobs) {
            self.on_job_ended(ended, ctx);
        }
        for request in std::mem::take(&mut self.early) {
            self.dispatch_request(request, ctx);
        }
        if self.rewinds.is_busy() {
            // A rewind was requested before the load ended.
            ctx.notify(BeginConversationRewind);
        }
        self.start_next_if_idle(ctx);
    }

    fn on_load_failed(&mut self, error: &DialogueError, ctx: &mut Context<Self>) {
        for request in self.early.drain(..) {
            request.reject_with(error.clone());
        }
        self.cancel_rewinds(error);
        self.log.release_rewind_hold(false);
        let told = match error {
            DialogueError::NotOwner { .. } => {
                let body = EventBody::ConversationEnded {
                    turn: 0,
                    reason: "moved",
                };
                self.log.publish_event(body, None);
                event_error(&TurnError::Fenced)
            }
            _ => event_error(&TurnError::Store(StoreError::Unavailable(String::new()))),
        };
        self.log.publish_not_committed(&told);
        if let Some(actors) = self.node.actors() {
            // After a store failure, only the node's chores try again.
            if matches!(error, DialogueError::Store(_)) && !self.asleep {
                actors.clear_crashes(&self.key, self.generation);
            } else {
                actors.remove_dialogue(&self.key, self.generation);
            }
        }
        ctx.stop();
    }

    // --- requests ---

    fn dispatch_request(&mut self, request: ConversationRequest, ctx: &mut Context<Self>) {
        self.mark_used();
        if self.asleep && !matches!(request, ConversationRequest::Attach { wakes: false, .. }) {
            self.asleep = false;
            ctx.notify(ContinueTalking);
        }
        let interrupts = matches!(request, ConversationRequest::Interrupt { .. });
        let loaded = match &self.phase {
            ConversationPhase::Ready(loaded) if interrupts || !self.rewinds.is_busy() => loaded,
            _ => return self.early.push_back(request),
        };
        let over = loaded.closed || self.closing.is_some();
        match request {
            ConversationRequest::Snapshot { ask } => ask.answer(self.snapshot()),
            ConversationRequest::End { reason, ask } => {
                if loaded.closed {
                    return ask.answer(Err(DialogueError::Ended));
                }
                self.begin_closing(reason, Some(ask), ctx);
            }
            refused if over => refused.reject_with(DialogueError::Ended),
            ConversationRequest::Attach {
                listener,
                last_seq,
                wakes: _,
                ask,
            } => self.on_attach(listener, last_seq, ask, ctx),
            refused if self.drained.is_some() || self.node.is_draining() => {
                refused.reject_with(DialogueError::Draining);
            }
            ConversationRequest::Step { ask } => self.on_step(ask, ctx),
            ConversationRequest::Interrupt { wish, ask } => self.on_interrupt(wish, ask, ctx),
            ConversationRequest::Resume { who, ask } => self.on_resume(who, ask, ctx),
            ConversationRequest::Join { ask } => self.on_join(ask, ctx),
        }
    }

    fn snapshot(&self) -> Result<ConversationSnapshot, DialogueError> {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return Err(self.overloaded_error());
        };
        Ok(ConversationSnapshot {
            dialogue: Arc::clone(&loaded.dialogue),
            head_seq: self.log.head_seq(),
            running_turn: self.running.as_ref().map(|running| running.number),
        })
    }

    // --- ending ---

    /// Ends the conversation: the running line is cut and still committed.
    fn begin_closing(&mut self, reason: &'static str, ask: Option<ReplyHandle<()>>, ctx: &mut Context<Self>) {
        let ending = self.closing.get_or_insert(ConversationClosing {
            reason,
            asks: Vec::new(),
            begun: false,
        });
        ending.asks.extend(ask);
        self.cut_running_turn(None, None);
        self.start_next_if_idle(ctx);
    }

    /// Writes the end once no line is running.
    fn finish_closing(&mut self, ctx: &mut Context<Self>) {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let Some(ending) = self.closing.as_mut().filter(|ending| !ending.begun) else {
            return;
        };
        ending.begun = true;
        let write = load::close_dialogue(Arc::clone(&self.node), self.key.clone(), loaded.epoch);
        ctx.spawn(write.into_actor(self).map(|written, talk, ctx| {
            let Some(mut ending) = talk.closing.take() else { return };
            match written {
                Ok(OwnerWriteOutcome::Fenced) => {
                    // The reload finds the present state and ends the conversation accordingly. A caller whose dialogue
                    // is on another node is redirected.
                    ending.begun = false;
                    talk.closing = Some(ending);
                    talk.start_loading(ctx);
                }
                Ok(OwnerWriteOutcome::Done | OwnerWriteOutcome::NotOpen) => {
                    let turn = match &talk.phase {
                        ConversationPhase::Ready(loaded) => loaded.dialogue.head_turn,
                        ConversationPhase::Loading => 0,
                    };
                    let reason = ending.reason;
                    talk.log
                        .publish_event(EventBody::ConversationEnded { turn, reason }, None);
                    for ask in ending.asks {
                        ask.answer(Ok(()));
                    }
                    talk.release_and_stop(ctx);
                }
                Err(error) => {
                    tracing::warn!(dialogue = %talk.key.1, %error, "a conversation could not be ended");
                    for ask in ending.asks {
                        ask.answer(Err(error.clone().into()));
                    }
                    // A natural end has no caller that would try again.
                    talk.failures += 1;
                    talk.schedule_next_line(lines::retry_pause(talk.failures), ctx);
                }
            }
        }));
    }

    // --- staying alive ---

    /// True if the conversation says lines without a request.
    fn paces_itself(&self) -> bool {
        match &self.phase {
            ConversationPhase::Ready(loaded) => {
                let options = &loaded.dialogue.options;
                options.auto && !options.paused && !loaded.closed && !self.asleep
            }
            ConversationPhase::Loading => true,
        }
    }
}

impl Actor for NpcConversation {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.start_loading(ctx);
        self.on_tick(ctx);
    }
}

impl Drop for NpcConversation {
    /// Also runs while a panic unwinds: listeners must learn that the line will not come.
    fn drop(&mut self) {
        if self.running.is_some() {
            self.log.publish_not_committed(&lost_turn_error());
        }
    }
}

impl Handler<ConversationRequest> for NpcConversation {
    type Result = ();

    fn handle(&mut self, request: ConversationRequest, ctx: &mut Self::Context) {
        self.dispatch_request(request, ctx);
    }
}

impl Handler<JobEnded> for NpcConversation {
    type Result = ();

    fn handle(&mut self, ended: JobEnded, ctx: &mut Self::Context) {
        if self.rewinds.is_busy() || matches!(self.phase, ConversationPhase::Loading) {
            // Only the new head tells whether the job's line stands.
            self.rewinds.deferred_jobs.push(ended);
        } else {
            self.on_job_ended(ended, ctx);
            self.start_next_if_idle(ctx);
        }
    }
}

impl Handler<ContinueTalking> for NpcConversation {
    type Result = ();

    fn handle(&mut self, ContinueTalking: ContinueTalking, ctx: &mut Self::Context) {
        self.start_next_if_idle(ctx);
    }
}

impl Handler<DrainDialogue> for NpcConversation {
    type Result = ();

    fn handle(&mut self, DrainDialogue { reply }: DrainDialogue, ctx: &mut Self::Context) {
        self.drain_saw_turn = self.running.is_some();
        self.drained = Some(reply);
        self.start_next_if_idle(ctx);
    }
}

impl Handler<CutRunningTurn> for NpcConversation {
    type Result = ();

    fn handle(&mut self, CutRunningTurn: CutRunningTurn, _: &mut Self::Context) {
        self.cut_running_turn(None, None);
    }
}

impl Handler<StopDialogue> for NpcConversation {
    type Result = ();

    fn handle(&mut self, StopDialogue: StopDialogue, ctx: &mut Self::Context) {
        self.release_and_stop(ctx);
    }
}

#[cfg(test)]
impl Handler<super::messages::PanicForTest> for NpcConversation {
    type Result = ();

    fn handle(&mut self, _: super::messages::PanicForTest, _: &mut Self::Context) {
        panic!("a test asked for it");
    }
}

mailbox!(
    NpcConversation,
    ActorKind::NpcConversation,
    [
        ConversationRequest,
        ContinueTalking,
        JobEnded,
        DrainDialogue,
        StopDialogue,
        LeaveIfIdle,
        OwnershipLost,
        WorldRestored,
    ]
);
