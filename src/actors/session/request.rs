//! The messages of a session, and the way to refuse them.

use std::{sync::Arc, time::Instant};

use actix::Message;
use tokio::sync::oneshot;

use crate::{
    actors::{
        AcceptedLine, DialogueError, InterruptCommand, InterruptOutcome, Listener, PlayerLine, ResumeCommand,
        messages::{AttachedListener, ReplyHandle, SessionSnapshot},
    },
    dialogue::{jobs::JobReport, turn::TurnInput},
    ids::TurnId,
    ports::ledger::{jobs::JobKind, saves::RestoredDialogue},
    tenancy::Principal,
};

/// The requests to a session.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) enum SessionRequest {
    Say {
        line: PlayerLine,
        accepted_at: Instant,
        ask: ReplyHandle<AcceptedLine>,
    },
    Interrupt {
        wish: InterruptCommand,
        ask: ReplyHandle<InterruptOutcome>,
    },
    Rewind {
        wish: InterruptCommand,
        ask: ReplyHandle<InterruptOutcome>,
    },
    /// Rewinds the last turn and says its line again.
    Regenerate {
        key: Option<String>,
        if_head: Option<u32>,
        re: Option<Arc<str>>,
        who: Principal,
        ask: ReplyHandle<AcceptedLine>,
    },
    /// Reports that the client has played a reply to the end.
    Played {
        turn: u32,
        ask: ReplyHandle<()>,
    },
    /// Resumes a reply that was cut a moment ago.
    Resume {
        wish: ResumeCommand,
        ask: ReplyHandle<InterruptOutcome>,
    },
    Attach {
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        ask: ReplyHandle<AttachedListener>,
    },
    Snapshot {
        ask: ReplyHandle<SessionSnapshot>,
    },
    /// Asks for the input of a turn with the given line.
    Prepare {
        text: String,
        ask: ReplyHandle<TurnInput>,
    },
    Close {
        reason: &'static str,
        ask: ReplyHandle<()>,
    },
}

impl SessionRequest {
    /// True if the request rewinds the dialogue. Such a request does not wait for a running rewind.
    pub fn is_rewind_request(&self) -> bool {
        matches!(
            self,
            Self::Interrupt { .. } | Self::Rewind { .. } | Self::Regenerate { .. } | Self::Resume { .. }
        )
    }

    pub fn reject_with(self, error: DialogueError) {
        match self {
            Self::Say { ask, .. } | Self::Regenerate { ask, .. } => ask.answer(Err(error)),
            Self::Interrupt { ask, .. } | Self::Rewind { ask, .. } | Self::Resume { ask, .. } => ask.answer(Err(error)),
            Self::Attach { ask, .. } => ask.answer(Err(error)),
            Self::Snapshot { ask } => ask.answer(Err(error)),
            Self::Prepare { ask, .. } => ask.answer(Err(error)),
            Self::Close { ask, .. } | Self::Played { ask, .. } => ask.answer(Err(error)),
        }
    }
}

/// Reports a finished job of the dialogue, or the scenarios that a turn unlocked, which is no job. A missing report
/// means a failed attempt.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct JobEnded {
    pub turn_id: TurnId,
    pub kind: Option<JobKind>,
    pub report: Option<JobReport>,
}

/// Refuses new lines and cancels queued lines. The answer comes once no turn runs: true if a turn was running.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct DrainDialogue {
    pub reply: oneshot::Sender<bool>,
}

/// Cuts the running turn.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct CutRunningTurn;

/// Reports that another part of the system closed the dialogue in the ledger.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct ClosedInLedger(pub &'static str);

/// Reports that the node no longer owns the dialogue.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct OwnershipLost;

/// Reports a restored save of the world, with the new state of the dialogue.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct WorldRestored(pub Arc<RestoredDialogue>);

/// Starts the rewinds requested so far.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct BeginRewind;

/// Stops the actor at once.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct StopDialogue;

/// Makes the actor panic, to test the recovery.
#[cfg(test)]
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct PanicForTest;
