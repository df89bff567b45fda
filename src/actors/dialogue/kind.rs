//! The differences between the two kinds of dialogues: a player's session and a conversation of NPCs.

use std::sync::Arc;

use actix::{Context, Message};

use super::{actor::DialogueActor, decisions::RequestNeeds, pending_cut::PendingCut};
use crate::{DialogueError, InterruptOutcome, messages::ReplyHandle, metrics::FencedWrite, running_turn::RunningTurn};
use colloquy_dialogue::{
    events::{EventBody, EventError},
    knowledge::scenarios::UnlockTrigger,
    rewind::RewindTarget,
    turn::{PartialReply, TurnError},
};
use colloquy_memory::turn::{Intent, Turn};
use colloquy_ports::ledger::rewinds::RewindRecord;

/// A request to a dialogue's actor.
pub(crate) trait DialogueRequest: Message<Result = ()> + Send + Unpin + 'static {
    type Kind: DialogueBehaviour<Request = Self>;

    /// Returns the state of an actor that is spawned for the request.
    fn new_kind(&self) -> Self::Kind;
    fn needs(&self) -> RequestNeeds;
    fn reject_with(self, error: DialogueError);
}

/// A caller that waits for a rewind.
pub(crate) trait RewindCaller: Sized + Unpin + 'static {
    /// A caller that wants the outcome of the rewind.
    fn of_rewind(reply: ReplyHandle<InterruptOutcome>) -> Self;
    /// The caller for whom the server reinstates a turn: no caller waits.
    fn of_reinstatement() -> Self;
    /// Returns the reply handle if the caller wants the outcome of the rewind, and the caller itself otherwise.
    fn into_rewind_reply(self) -> Result<ReplyHandle<InterruptOutcome>, Self>;
    fn reject_with(self, error: DialogueError);
}

/// A caller that waits for the end of the running turn.
#[expect(clippy::large_enum_variant, reason = "a handful, and each for a moment")]
pub(crate) enum TurnEndWaiter<W> {
    Cut(PendingCut),
    Other(W),
}

/// A committed turn, as the kind of dialogue sees the turn.
pub(crate) struct CommitSummary {
    /// The client's key of the line.
    pub key: Option<String>,
    /// True if the client had heard the whole reply before the commit.
    pub played: bool,
    /// True if the reply was cut on request.
    pub was_cut: bool,
    pub unlocking: Option<UnlockTrigger>,
}

/// A rewind that was applied.
pub(crate) struct RewindEffect {
    /// The intent of the line that is answered again, if known.
    pub intent: Option<Intent>,
    /// The cut reply that the rewind found for a continuation.
    pub unfinished: Option<PartialReply>,
    /// True if the rewind paused the conversation, false if it ended a pause; `None`: neither.
    pub pauses: Option<bool>,
    /// True if the rewind took turns back, and not only the end of the last reply.
    pub took_turns_back: bool,
}

/// A kind of dialogue. The value is the part of the actor's state that only this kind has. The functions get the whole
/// actor, because a step of a kind uses the common state too.
pub(crate) trait DialogueBehaviour: Sized + Unpin + 'static {
    type Request: DialogueRequest;
    type Caller: RewindCaller;
    /// A caller, other than that of a cut, that waits for the end of the running turn.
    type Waiter: Unpin + 'static;

    /// The names of actions in the audit log.
    const INTERRUPT_ACTION: &'static str;
    const REINSTATE_ACTION: &'static str;
    const FENCED_TURN: FencedWrite;

    /// Returns the error for requests to a closed dialogue.
    fn closed_error() -> DialogueError;
    /// Returns the event that ends the dialogue after `head_turn`.
    fn closed_event(head_turn: u32, reason: &'static str) -> EventBody;
    /// Returns the most turns that a resumed listener may read again from the ledger.
    fn max_replayed_turns(actor: &DialogueActor<Self>) -> u32;

    // --- requests ---

    /// Called for each request before the request is routed.
    fn on_arrival(_actor: &mut DialogueActor<Self>, _request: &Self::Request, _ctx: &mut Context<DialogueActor<Self>>) {
    }
    fn handle_request(actor: &mut DialogueActor<Self>, request: Self::Request, ctx: &mut Context<DialogueActor<Self>>);

    // --- turns ---

    /// True if requested lines wait.
    fn has_lines(actor: &DialogueActor<Self>) -> bool;
    /// Returns the text of the first requested line, if a player says one.
    fn next_line(_actor: &DialogueActor<Self>) -> Option<&str> {
        None
    }
    /// Cancels the requested lines. The listeners get `reason`; callers without an answer get `error`.
    fn cancel_lines(actor: &mut DialogueActor<Self>, reason: &EventError, error: &DialogueError);
    /// Starts the next turn, or a preparation of the next turn, if a turn is due.
    fn start_next(actor: &mut DialogueActor<Self>, ctx: &mut Context<DialogueActor<Self>>);
    /// Called when the records of the participants could not be read. The caller starts the next turn afterwards.
    fn on_participants_failed(
        actor: &mut DialogueActor<Self>,
        error: &DialogueError,
        ctx: &mut Context<DialogueActor<Self>>,
    );
    /// Called after a commit, when the common state has the turn.
    fn on_committed(
        actor: &mut DialogueActor<Self>,
        turn: &Arc<Turn>,
        summary: CommitSummary,
        ctx: &mut Context<DialogueActor<Self>>,
    );
    /// Called after a turn failed. A load may be running already.
    fn on_failed(actor: &mut DialogueActor<Self>, error: &TurnError, ctx: &mut Context<DialogueActor<Self>>);
    /// True if the replacement of a rewound turn is about to start.
    fn has_replacement(actor: &DialogueActor<Self>) -> bool;

    // --- loads, restores, closes ---

    /// Called after a load, before deferred requests: `missed` are the rewinds that the actor did not make itself.
    fn on_loaded(actor: &mut DialogueActor<Self>, missed: &[RewindRecord], ctx: &mut Context<DialogueActor<Self>>);
    /// Called when the dialogue is in memory and no rewind is wanted, after deferred jobs and before deferred requests.
    fn on_ready(_actor: &mut DialogueActor<Self>, _ctx: &mut Context<DialogueActor<Self>>) {}
    /// Called when a load failed: the actor stops.
    fn on_load_failed(
        _actor: &mut DialogueActor<Self>,
        _error: &DialogueError,
        _ctx: &mut Context<DialogueActor<Self>>,
    ) {
    }
    /// True if the directory keeps the entry, and so the listeners, of an actor whose load failed.
    fn keeps_entry_after_failed_load(actor: &DialogueActor<Self>) -> bool;
    /// Called when a restored save has replaced the state of the dialogue, before the load.
    fn on_restored(actor: &mut DialogueActor<Self>, ctx: &mut Context<DialogueActor<Self>>);
    /// Called when a close could not be written.
    fn on_close_failed(_actor: &mut DialogueActor<Self>, _ctx: &mut Context<DialogueActor<Self>>) {}
    /// True if the dialogue has work of its own: the actor stays in memory.
    fn has_work(actor: &DialogueActor<Self>) -> bool;
    /// True if a stopping actor stays the owner, so that another node can take the dialogue over.
    fn keeps_ownership(_actor: &DialogueActor<Self>) -> bool {
        false
    }
    /// Called for a dropped actor, also while a panic unwinds.
    fn on_dropped(_actor: &mut DialogueActor<Self>) {}

    // --- rewinds ---

    /// Called when a rewind is about to start.
    fn on_rewind_starting(_actor: &mut DialogueActor<Self>, _target: RewindTarget) {}
    /// Called for a rewind that changed nothing. `true`: the kind continues the rewind, which counts as running until
    /// then.
    fn continue_unchanged(_actor: &mut DialogueActor<Self>, _ctx: &mut Context<DialogueActor<Self>>) -> bool {
        false
    }
    /// Called when a rewind or a restore ends a running turn.
    fn on_turn_unsaid(_actor: &mut DialogueActor<Self>, _running: &RunningTurn) {}
    /// Called for an applied rewind, after the event of the rewind.
    fn on_rewind_applied(actor: &mut DialogueActor<Self>, effect: RewindEffect, ctx: &mut Context<DialogueActor<Self>>);
    /// Answers the callers of an applied rewind. Returns the callers that [`Self::answer_after_reread`] answers.
    fn answer_callers(
        actor: &mut DialogueActor<Self>,
        callers: Vec<Self::Caller>,
        rewound: &Arc<RewindRecord>,
    ) -> Vec<Self::Caller>;
    /// Answers a caller after the rows that the rewind changed were read.
    fn answer_after_reread(
        _actor: &mut DialogueActor<Self>,
        _caller: Self::Caller,
        _ctx: &mut Context<DialogueActor<Self>>,
    ) {
    }
    /// Answers a caller of a rewind that did not happen. `applied`: an earlier rewind for the same callers.
    fn answer_rejected(
        actor: &mut DialogueActor<Self>,
        caller: Self::Caller,
        applied: Option<&Arc<RewindRecord>>,
        answer: Result<InterruptOutcome, DialogueError>,
        ctx: &mut Context<DialogueActor<Self>>,
    );
    /// Answers a waiter after the end of the running turn. Returns a waiter that must wait until an owed turn stands
    /// again.
    fn answer_waiter(
        actor: &mut DialogueActor<Self>,
        waiter: Self::Waiter,
        ctx: &mut Context<DialogueActor<Self>>,
    ) -> Option<Self::Waiter>;
    fn reject_waiter(waiter: Self::Waiter, error: DialogueError);
}
