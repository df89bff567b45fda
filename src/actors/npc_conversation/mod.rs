//! A conversation between NPCs: the kind of dialogue that paces itself. The common part of the actor is
//! `actors::dialogue`.
//!
//! A self-paced conversation says a line, waits for its reading time, and says the next line. An interrupt pauses the
//! conversation; a speaker's conclusion or the last line ends it. Modules: `request` (the messages), `lines` (the next
//! line and its pace), `speaker_choice`, `pauses`, `interrupt`, and `handle` (the entry).
//!
//! An open self-paced conversation continues after a restart at the first request. After a panic, the node's chores
//! spawn the actor again.

pub mod handle;
mod interrupt;
mod lines;
mod pauses;
mod request;
mod speaker_choice;

use std::{sync::Arc, time::Duration};

use actix::{AsyncContext, Context, Handler, SpawnHandle};
use tokio::sync::oneshot;

use self::{pauses::PauseWrite, speaker_choice::SpeakerQuery};
use super::{
    DialogueError, InterruptOutcome,
    dialogue::{
        actor::{DialogueActor, State},
        kind::{CommitSummary, DialogueBehaviour, RewindCaller, RewindEffect},
    },
    mailbox::mailbox,
    messages::{
        ConversationSnapshot, DrainDialogue, JobEnded, JoinPoint, LeaveIfIdle, OwnershipLost, ReplyHandle,
        StopDialogue, WorldRestored,
    },
    metrics::{ActorKind, FencedWrite},
    running_turn::TurnOutcome,
};
use colloquy_core::{ids::PlayerId, scope::Principal};
use colloquy_dialogue::{
    events::{EventBody, EventError},
    npc_conversation::pause_after,
    rewind::RewindTarget,
    turn::{PartialReply, TurnError},
};
use colloquy_memory::turn::{Turn, TurnStatus};
use colloquy_ports::ledger::rewinds::RewindRecord;
pub(super) use request::{ContinueTalking, ConversationRequest};

/// The actor of a conversation.
pub(super) type NpcConversation = DialogueActor<ConversationKind>;

/// Delay after which a caller may try again whose request met a restored save.
const RESTORE_RETRY_DELAY: Duration = Duration::from_millis(20);

/// The state that only conversations have.
#[derive(Default)]
pub(super) struct ConversationKind {
    /// Callers that wait for the next line.
    stepping: Vec<oneshot::Sender<TurnOutcome>>,
    /// The line that was cut and rewound, for a continuation by its speaker.
    unfinished: Option<PartialReply>,
    /// The player who ended the pause. The next line is charged to the player, and each line that is said again.
    resumed_by: Option<PlayerId>,
    /// The highest number of a committed line. A rewind does not lower it.
    highest_line: u32,
    /// The pause before the next line.
    line_timer: Option<SpawnHandle>,
    /// Failed lines in a row.
    failures: u32,
    speaker_query: SpeakerQuery,
    /// Pauses that met a rewind, and are written after the rewind.
    deferred_pauses: Vec<PauseWrite>,
    /// True if the conversation is in memory only for watchers. A sleeping conversation is silent until another
    /// request.
    asleep: bool,
}

/// A caller that waits for a rewind.
pub(super) enum ConversationCaller {
    Rewind(ReplyHandle<InterruptOutcome>),
    /// The conversation continues afterwards, with or without a resumed line.
    Resume(ReplyHandle<ConversationSnapshot>),
    /// A resume that a simultaneous interrupt overrules.
    StayPaused(ReplyHandle<ConversationSnapshot>),
    /// A line rewound for a continuation is reinstated.
    Reinstate,
}

impl ConversationCaller {
    fn keep_paused(&mut self) {
        *self = match std::mem::replace(self, Self::Reinstate) {
            Self::Resume(reply) => Self::StayPaused(reply),
            other => other,
        };
    }
}

impl RewindCaller for ConversationCaller {
    fn of_rewind(reply: ReplyHandle<InterruptOutcome>) -> Self {
        Self::Rewind(reply)
    }

    fn of_reinstatement() -> Self {
        Self::Reinstate
    }

    fn into_rewind_reply(self) -> Result<ReplyHandle<InterruptOutcome>, Self> {
        match self {
            Self::Rewind(reply) => Ok(reply),
            other => Err(other),
        }
    }

    fn reject_with(self, error: DialogueError) {
        match self {
            Self::Rewind(reply) => reply.answer(Err(error)),
            Self::Resume(reply) | Self::StayPaused(reply) => reply.answer(Err(error)),
            Self::Reinstate => {}
        }
    }
}

/// A caller that waits until no line is running.
pub(super) enum ConversationWaiter {
    Join(ReplyHandle<JoinPoint>),
    /// Continues the conversation, with the line that is being cut if possible.
    Resume {
        who: Principal,
        reply: ReplyHandle<ConversationSnapshot>,
    },
}

impl DialogueBehaviour for ConversationKind {
    type Request = ConversationRequest;
    type Caller = ConversationCaller;
    type Waiter = ConversationWaiter;

    const INTERRUPT_ACTION: &'static str = "conversation.interrupt";
    const REINSTATE_ACTION: &'static str = "conversation.put_back";
    const FENCED_TURN: FencedWrite = FencedWrite::Line;

    fn closed_error() -> DialogueError {
        DialogueError::Ended
    }

    fn closed_event(head_turn: u32, reason: &'static str) -> EventBody {
        EventBody::ConversationEnded {
            turn: head_turn,
            reason,
        }
    }

    fn max_replayed_turns(_: &NpcConversation) -> u32 {
        // A conversation has at most 100 lines.
        u32::MAX
    }

    fn on_arrival(talk: &mut NpcConversation, request: &ConversationRequest, ctx: &mut Context<NpcConversation>) {
        if talk.kind.asleep && !matches!(request, ConversationRequest::Attach { wakes: false, .. }) {
            talk.kind.asleep = false;
            ctx.notify(ContinueTalking);
        }
    }

    fn handle_request(talk: &mut NpcConversation, request: ConversationRequest, ctx: &mut Context<NpcConversation>) {
        match request {
            ConversationRequest::Snapshot { reply } => reply.answer(talk.snapshot()),
            ConversationRequest::End { reason, reply } => {
                if talk.state.loaded().is_some_and(|loaded| loaded.closed) {
                    return reply.answer(Err(DialogueError::Ended));
                }
                talk.begin_closing(reason, Some(reply), ctx);
            }
            ConversationRequest::Attach {
                listener,
                last_seq,
                wakes: _,
                reply,
            } => talk.on_attach(listener, last_seq, reply, ctx),
            ConversationRequest::Step { reply } => talk.on_step(reply, ctx),
            ConversationRequest::Interrupt { command, reply } => talk.on_interrupt(command, reply, ctx),
            ConversationRequest::Resume { who, reply } => talk.on_resume(who, reply, ctx),
            ConversationRequest::Join { reply } => talk.on_join(reply, ctx),
        }
    }

    fn has_lines(talk: &NpcConversation) -> bool {
        !talk.kind.stepping.is_empty()
    }

    fn cancel_lines(talk: &mut NpcConversation, _: &EventError, _: &DialogueError) {
        talk.kind.stepping.clear();
    }

    fn start_next(talk: &mut NpcConversation, ctx: &mut Context<NpcConversation>) {
        talk.start_next_line(ctx);
    }

    fn on_participants_failed(talk: &mut NpcConversation, _: &DialogueError, ctx: &mut Context<NpcConversation>) {
        talk.kind.stepping.clear();
        talk.on_line_failed(ctx);
    }

    fn on_committed(
        talk: &mut NpcConversation,
        turn: &Arc<Turn>,
        _: CommitSummary,
        ctx: &mut Context<NpcConversation>,
    ) {
        talk.kind.failures = 0;
        talk.kind.highest_line = talk.kind.highest_line.max(turn.number);
        if turn.status == TurnStatus::Completed {
            let pause = pause_after(&turn.reply_text, &talk.node.ports.settings.conversation);
            talk.schedule_next_line(pause, ctx);
        }
    }

    fn on_failed(talk: &mut NpcConversation, error: &TurnError, ctx: &mut Context<NpcConversation>) {
        if let Some(over) = error.over_budget().filter(|over| over.budget.is_daily()) {
            // The conversation continues by itself on the next day or with a larger budget. An exhausted storage budget
            // counts as a failure instead.
            talk.schedule_next_line(over.retry_after.min(lines::BUDGET_RETRY_PAUSE), ctx);
        } else if !matches!(error, TurnError::CutBeforeReply) {
            talk.on_line_failed(ctx);
        }
    }

    fn has_replacement(talk: &NpcConversation) -> bool {
        let now = talk.node.ports.clock.now();
        let unfinished = talk.kind.unfinished.as_ref();
        unfinished.is_some_and(|unfinished| unfinished.until > now)
    }

    fn on_loaded(talk: &mut NpcConversation, _: &[RewindRecord], _: &mut Context<NpcConversation>) {
        let stored = talk.state.loaded().map_or(0, |loaded| loaded.highest_line);
        talk.kind.highest_line = talk.kind.highest_line.max(stored);
    }

    fn on_ready(talk: &mut NpcConversation, ctx: &mut Context<NpcConversation>) {
        for write in std::mem::take(&mut talk.kind.deferred_pauses) {
            talk.write_pause(write, ctx);
        }
    }

    fn on_load_failed(talk: &mut NpcConversation, error: &DialogueError, ctx: &mut Context<NpcConversation>) {
        for write in std::mem::take(&mut talk.kind.deferred_pauses) {
            (write.on_written)(talk, Err(error.clone()), ctx);
        }
    }

    fn keeps_entry_after_failed_load(talk: &NpcConversation) -> bool {
        // The node's chores wake every entry without an actor, and must not wake a conversation that was asleep.
        !talk.kind.asleep
    }

    fn on_restored(talk: &mut NpcConversation, ctx: &mut Context<NpcConversation>) {
        talk.kind.unfinished = None;
        if let Some(timer) = talk.kind.line_timer.take() {
            ctx.cancel_future(timer);
        }
        // Interrupts and requests were made to a dialogue that no longer stands.
        talk.cancel_rewinds(&DialogueError::Overloaded {
            retry_after: RESTORE_RETRY_DELAY,
        });
        talk.kind.stepping.clear();
    }

    fn on_close_failed(talk: &mut NpcConversation, ctx: &mut Context<NpcConversation>) {
        // A natural end has no caller that would try again.
        talk.kind.failures += 1;
        talk.schedule_next_line(lines::retry_pause(talk.kind.failures), ctx);
    }

    fn has_work(talk: &NpcConversation) -> bool {
        talk.paces_itself() || talk.has_continuation() || !talk.kind.stepping.is_empty()
    }

    fn keeps_ownership(talk: &NpcConversation) -> bool {
        // In a cluster, another node takes a self-paced conversation over.
        talk.paces_itself() && talk.node.membership.is_some()
    }

    fn on_rewind_starting(talk: &mut NpcConversation, target: RewindTarget) {
        if matches!(target, RewindTarget::Turn { .. }) {
            // An interrupt overrules a resume.
            for caller in talk.rewinds.queue.served_callers() {
                caller.keep_paused();
            }
        }
    }

    fn continue_unchanged(talk: &mut NpcConversation, ctx: &mut Context<NpcConversation>) -> bool {
        let State::Rewinding(_, in_flight) = &mut talk.state else {
            return false;
        };
        let pauses = in_flight.pauses.take() == Some(true);
        if pauses {
            // The whole line had been heard; the interrupt pauses the conversation all the same.
            talk.pause_without_rewind(ctx);
        }
        pauses
    }

    fn on_rewind_applied(talk: &mut NpcConversation, effect: RewindEffect, _: &mut Context<NpcConversation>) {
        talk.kind.unfinished = effect.unfinished;
        if let Some(paused) = effect.pauses {
            talk.apply_paused(paused, "interrupted");
        }
    }

    fn answer_callers(
        talk: &mut NpcConversation,
        callers: Vec<ConversationCaller>,
        rewound: &Arc<RewindRecord>,
    ) -> Vec<ConversationCaller> {
        let mut resuming = Vec::new();
        for caller in callers {
            match caller {
                ConversationCaller::Rewind(reply) => reply.answer(Ok(InterruptOutcome::Rewound(Arc::clone(rewound)))),
                ConversationCaller::StayPaused(reply) => reply.answer(talk.snapshot()),
                ConversationCaller::Reinstate => {}
                resume @ ConversationCaller::Resume(_) => resuming.push(resume),
            }
        }
        resuming
    }

    fn answer_after_reread(talk: &mut NpcConversation, caller: ConversationCaller, ctx: &mut Context<NpcConversation>) {
        if let ConversationCaller::Resume(reply) = caller {
            talk.resume_pacing(reply, ctx);
        }
    }

    fn answer_rejected(
        talk: &mut NpcConversation,
        caller: ConversationCaller,
        applied: Option<&Arc<RewindRecord>>,
        answer: Result<InterruptOutcome, DialogueError>,
        ctx: &mut Context<NpcConversation>,
    ) {
        match (caller, answer) {
            (ConversationCaller::Rewind(reply), Ok(answer)) => {
                reply.answer(Ok(applied.cloned().map_or(answer, InterruptOutcome::Rewound)));
            }
            (ConversationCaller::Resume(reply), Ok(_) | Err(DialogueError::NothingToResume)) => {
                talk.resume_pacing(reply, ctx);
            }
            (ConversationCaller::StayPaused(reply), Ok(_)) => reply.answer(talk.snapshot()),
            (caller, Err(error)) => caller.reject_with(error),
            (ConversationCaller::Reinstate, Ok(_)) => {}
        }
    }

    fn answer_waiter(
        talk: &mut NpcConversation,
        waiter: ConversationWaiter,
        ctx: &mut Context<NpcConversation>,
    ) -> Option<ConversationWaiter> {
        let loaded = match talk.state.loaded() {
            Some(loaded) if talk.owed_turn().is_none() => loaded,
            _ => return Some(waiter),
        };
        match waiter {
            ConversationWaiter::Resume { who, reply } => talk.on_resume(who, reply, ctx),
            ConversationWaiter::Join(reply) => {
                reply.answer(Ok(JoinPoint {
                    dialogue: Arc::clone(&loaded.dialogue),
                    head: loaded.head,
                }));
                // The joined talk goes on from the heard part.
                talk.release_held_jobs(ctx);
            }
        }
        None
    }

    fn reject_waiter(waiter: ConversationWaiter, error: DialogueError) {
        match waiter {
            ConversationWaiter::Join(reply) => reply.answer(Err(error)),
            ConversationWaiter::Resume { reply, .. } => reply.answer(Err(error)),
        }
    }
}

impl NpcConversation {
    fn snapshot(&self) -> Result<ConversationSnapshot, DialogueError> {
        let loaded = self.state.loaded().ok_or_else(|| self.overloaded_error())?;
        Ok(ConversationSnapshot {
            dialogue: Arc::clone(&loaded.dialogue),
            head_seq: self.log.head_seq(),
            running_turn: self.running_number(),
        })
    }

    /// True if the conversation says lines without a request.
    fn paces_itself(&self) -> bool {
        self.state.loaded().is_some_and(|loaded| {
            let options = &loaded.dialogue.options;
            options.auto && !options.paused && !loaded.closed && !self.kind.asleep
        })
    }

    /// True if a continuation of the cut line is about to start.
    fn has_continuation(&self) -> bool {
        let is_replaced = self.state.loaded().is_some_and(|loaded| loaded.replacing.is_some());
        is_replaced && ConversationKind::has_replacement(self)
    }
}

impl Handler<ConversationRequest> for NpcConversation {
    type Result = ();

    fn handle(&mut self, request: ConversationRequest, ctx: &mut Self::Context) {
        self.dispatch_request(request, ctx);
    }
}

impl Handler<ContinueTalking> for NpcConversation {
    type Result = ();

    fn handle(&mut self, ContinueTalking: ContinueTalking, ctx: &mut Self::Context) {
        self.run_next_steps(ctx);
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
