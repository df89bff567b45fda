//! A player's dialogue with NPCs: the kind of dialogue with a queue of lines. The common part of the actor is
//! `actors::dialogue`. Modules: `request` (the messages), `lines` (the queue and the start of turns), `waiting_line`,
//! `turn_keys` (repeated lines), `playback` (the time after a turn), `interrupt`, `regenerate` (with resumed replies)
//! and `rewinds` (the callers of a rewind, and the lines that a rewind cancels).

mod interrupt;
mod lines;
mod playback;
mod regenerate;
mod request;
mod rewinds;
mod turn_keys;
mod waiting_line;

use std::{collections::VecDeque, sync::Arc};

use actix::{Context, Handler, SpawnHandle};

use super::{
    DialogueError, InterruptOutcome,
    dialogue::{
        actor::{DialogueActor, lost_turn_error},
        kind::{CommitSummary, DialogueBehaviour, RewindEffect},
    },
    mailbox::mailbox,
    messages::{
        ClosedInLedger, DrainDialogue, JobEnded, LeaveIfIdle, OwnershipLost, SessionSnapshot, StopDialogue,
        WorldRestored,
    },
    metrics::{ActorKind, FencedWrite},
    running_turn::RunningTurn,
};
use colloquy_dialogue::{
    events::{EventBody, EventError},
    turn::{PartialReply, TurnError, event_error},
};
use colloquy_memory::turn::{Intent, Turn};
use colloquy_ports::{StoreError, ledger::rewinds::RewindRecord};
pub(super) use request::SessionRequest;
use rewinds::SessionCaller;
use turn_keys::TurnKeys;
use waiting_line::{ReplacedHead, WaitingLine};

/// The actor of a session.
pub(super) type Session = DialogueActor<SessionKind>;

/// The state that only sessions have.
#[derive(Default)]
pub(super) struct SessionKind {
    /// Lines that are not turns yet, in the order of speaking.
    queue: VecDeque<WaitingLine>,
    next_line: u64,
    keys: TurnKeys,
    /// True if the last turn has jobs that wait until the turn was heard.
    awaits_playback: bool,
    /// Ends the wait for the playback.
    playback_timer: Option<SpawnHandle>,
    /// The cut reply that the running rewind found for a continuation.
    unfinished: Option<PartialReply>,
    /// The intent of the line that the running rewind lets be answered again, if known.
    replaced_intent: Option<Intent>,
    /// True if a turn was fenced: the lines in the queue were said behind the turn, and the next load cancels them.
    has_fenced_turn: bool,
}

impl DialogueBehaviour for SessionKind {
    type Request = SessionRequest;
    type Caller = SessionCaller;
    type Waiter = std::convert::Infallible;

    const INTERRUPT_ACTION: &'static str = "session.interrupt";
    const REINSTATE_ACTION: &'static str = "session.put_back";
    const FENCED_TURN: FencedWrite = FencedWrite::Turn;

    fn closed_error() -> DialogueError {
        DialogueError::Closed
    }

    fn closed_event(_head_turn: u32, reason: &'static str) -> EventBody {
        EventBody::SessionClosed { reason }
    }

    fn max_replayed_turns(session: &Session) -> u32 {
        // A turn has three events.
        u32::try_from(session.node.settings.replay_events / 3).unwrap_or(u32::MAX)
    }

    fn handle_request(session: &mut Session, request: SessionRequest, ctx: &mut Context<Session>) {
        match request {
            SessionRequest::Say {
                line,
                accepted_at,
                reply,
            } => session.on_say(line, accepted_at, reply, ctx),
            SessionRequest::Interrupt { command, reply } => session.on_interrupt(command, reply, ctx),
            SessionRequest::Rewind { command, reply } => session.on_rewind(command, reply, ctx),
            SessionRequest::Regenerate { command, reply } => session.on_regenerate(command, reply, ctx),
            SessionRequest::Resume { command, reply } => session.on_resume(command, reply, ctx),
            SessionRequest::Played { turn, reply } => session.on_played(turn, reply, ctx),
            SessionRequest::Attach {
                listener,
                last_seq,
                reply,
            } => session.on_attach(listener, last_seq, reply, ctx),
            SessionRequest::Snapshot { reply } => reply.answer(session.snapshot()),
            SessionRequest::Prepare { text, reply } => session.on_prepare(text, reply, ctx),
            SessionRequest::Close { reason, reply } => {
                if session.state.loaded().is_some_and(|loaded| loaded.closed) {
                    return reply.answer(Err(DialogueError::Closed));
                }
                session.begin_closing(reason, Some(reply), ctx);
            }
        }
    }

    fn has_lines(session: &Session) -> bool {
        !session.kind.queue.is_empty()
    }

    fn next_line(session: &Session) -> Option<&str> {
        session.kind.queue.front().map(|first| first.line.text.as_str())
    }

    fn cancel_lines(session: &mut Session, reason: &EventError, error: &DialogueError) {
        session.memory.abandon_wait();
        for waiting_line in session.kind.queue.drain(..) {
            for reply in waiting_line.unanswered {
                reply.answer(Err(error.clone()));
            }
            let body = EventBody::Error {
                turn: None,
                error: reason.clone(),
            };
            session.log.publish_event(body, waiting_line.line.re);
        }
    }

    fn start_next(session: &mut Session, ctx: &mut Context<Session>) {
        session.start_next_line(ctx);
    }

    fn on_participants_failed(session: &mut Session, error: &DialogueError, _: &mut Context<Session>) {
        let reason = event_error(&TurnError::Store(StoreError::Unavailable(String::new())));
        Self::cancel_lines(session, &reason, error);
    }

    fn on_committed(session: &mut Session, turn: &Arc<Turn>, summary: CommitSummary, ctx: &mut Context<Session>) {
        if let Some(key) = summary.key {
            session.kind.keys.remember_turn(key, Arc::clone(turn));
        }
        session.track_head_playback(summary.was_cut, ctx);
        if let Some(unlocking) = summary.unlocking {
            session.publish_unlocked(turn, unlocking, ctx);
        }
        if summary.played {
            session.on_head_heard(ctx);
        }
    }

    fn on_failed(session: &mut Session, error: &TurnError, _: &mut Context<Session>) {
        session.kind.has_fenced_turn |= matches!(error, TurnError::Fenced);
    }

    fn has_replacement(session: &Session) -> bool {
        let Some(loaded) = session.state.loaded() else {
            return false;
        };
        let follows_head = |line: &WaitingLine| line.replaces_after == Some(ReplacedHead(loaded.head));
        session.kind.queue.iter().any(follows_head)
    }

    fn on_loaded(session: &mut Session, missed: &[RewindRecord], ctx: &mut Context<Session>) {
        let Some(loaded) = session.state.loaded() else {
            return;
        };
        let owed = loaded.replacing.is_some();
        let head = loaded.head;
        let has_turns = loaded.next_seq > 1;
        // A reinstatement of this actor, whose answer was lost, takes no turns back.
        let by_others = session.rewinds.reinstating.is_none();
        let changed =
            |rewound: &RewindRecord| !rewound.removed.is_empty() || (by_others && !rewound.reinstated.is_empty());
        // A rewind to the head removes no turn, but takes the running turn back, and the lines behind the turn.
        let is_own_rewind = std::mem::take(&mut session.rewinds.in_doubt_takes_back) && !missed.is_empty();
        if is_own_rewind || missed.iter().any(changed) {
            session.unsay_queued_lines();
        }
        if std::mem::take(&mut session.kind.has_fenced_turn) {
            session.fence_queued_lines();
        }
        session.mark_lines_certain();
        session.kind.keys.reset_known(has_turns);
        // A turn that is about to be reinstated is not regenerated as well.
        session.drop_replacements(|follows| !owed && follows == head);
        session.stop_tracking_playback(ctx);
    }

    fn keeps_entry_after_failed_load(session: &Session) -> bool {
        // The next message of a listener tries again.
        session.log.has_listeners()
    }

    fn on_restored(session: &mut Session, _: &mut Context<Session>) {
        session.drop_replacements(|_| false);
        session.kind.keys.reset_known(true);
        // The queued lines were said to a dialogue that no longer stands.
        session.mark_lines_certain();
        session.unsay_queued_lines();
    }

    fn has_work(session: &Session) -> bool {
        !session.kind.queue.is_empty()
    }

    fn on_dropped(session: &mut Session) {
        // Lines that were not accepted yet are sent again to the next actor.
        for waiting_line in session.kind.queue.drain(..).filter(WaitingLine::is_accepted) {
            let body = EventBody::Error {
                turn: None,
                error: lost_turn_error(),
            };
            session.log.publish_event(body, waiting_line.re());
        }
    }

    fn on_turn_unsaid(session: &mut Session, running: &RunningTurn) {
        if let Some(keyed) = &running.key {
            session.kind.keys.mark_unsaid(keyed.key.clone());
        }
    }

    fn on_rewind_applied(session: &mut Session, effect: RewindEffect, ctx: &mut Context<Session>) {
        session.stop_tracking_playback(ctx);
        session.kind.unfinished = effect.unfinished;
        session.kind.replaced_intent = effect.intent;
        session.drop_replacements(|_| false);
        session.mark_lines_certain();
        if effect.took_turns_back {
            session.unsay_queued_lines();
        }
        session.kind.keys.reset_known(true);
    }

    fn answer_callers(
        session: &mut Session,
        callers: Vec<SessionCaller>,
        rewound: &Arc<RewindRecord>,
    ) -> Vec<SessionCaller> {
        session.answer_callers(callers, rewound);
        Vec::new()
    }

    fn answer_rejected(
        _: &mut Session,
        caller: SessionCaller,
        applied: Option<&Arc<RewindRecord>>,
        answer: Result<InterruptOutcome, DialogueError>,
        _: &mut Context<Session>,
    ) {
        match caller {
            SessionCaller::Rewind(reply) | SessionCaller::Resume { reply, .. } => {
                reply.answer(answer.map(|answer| applied.cloned().map_or(answer, InterruptOutcome::Rewound)));
            }
            SessionCaller::Regenerate { reply, .. } => {
                reply.answer(Err(answer.err().unwrap_or(DialogueError::NothingToRegenerate)));
            }
            SessionCaller::Reinstate => {}
        }
    }

    fn answer_waiter(_: &mut Session, waiter: Self::Waiter, _: &mut Context<Session>) -> Option<Self::Waiter> {
        match waiter {}
    }

    fn reject_waiter(waiter: Self::Waiter, _: DialogueError) {
        match waiter {}
    }
}

impl Session {
    fn snapshot(&self) -> Result<SessionSnapshot, DialogueError> {
        let loaded = self.state.loaded().ok_or_else(|| self.overloaded_error())?;
        Ok(SessionSnapshot {
            dialogue: Arc::clone(&loaded.dialogue),
            history: Arc::clone(&loaded.history),
            summaries: Arc::clone(&loaded.summaries),
            checkpoint: loaded.checkpoint.clone(),
            head_seq: self.log.head_seq(),
            running_turn: self.running_number(),
            queued: self.kind.queue.len(),
            read_at: self.node.ports.clock.now(),
        })
    }
}

impl Handler<SessionRequest> for Session {
    type Result = ();

    fn handle(&mut self, request: SessionRequest, ctx: &mut Self::Context) {
        self.dispatch_request(request, ctx);
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
