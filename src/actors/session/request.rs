//! What a session can be told, and how it answers.

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

/// What a session can be asked.
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
    /// Takes the last turn back and says its line anew.
    Regenerate {
        key: Option<String>,
        if_head: Option<u32>,
        re: Option<Arc<str>>,
        who: Principal,
        ask: ReplyHandle<AcceptedLine>,
    },
    /// The client has played a reply to its end.
    Played {
        turn: u32,
        ask: ReplyHandle<()>,
    },
    /// Takes a reply that was cut a moment ago up again.
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
    /// What a turn with this line would start from.
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
    /// Whether it takes the dialogue back; then it does not wait for another that does.
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

/// The curator ran a job of this dialogue, or what a turn unlocked was read, which is no job. Without a report it failed, for
/// now.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct JobEnded {
    pub turn_id: TurnId,
    pub kind: Option<JobKind>,
    pub report: Option<JobReport>,
}

/// Takes no more lines, lets those that wait go, and answers once no turn runs: whether one did.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct DrainDialogue {
    pub reply: oneshot::Sender<bool>,
}

/// Cuts the running turn.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct CutRunningTurn;

/// The dialogue was closed in the ledger, by what happened elsewhere.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct ClosedInLedger(pub &'static str);

/// The dialogue is no longer this node's.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct OwnershipLost;

/// A save of the world was loaded, and this is what became of this dialogue.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct WorldRestored(pub Arc<RestoredDialogue>);

/// What was asked to be taken back so far is begun.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct BeginRewind;

/// Stops at once.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct StopDialogue;

/// Makes the actor panic, to see what becomes of it.
#[cfg(test)]
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct PanicForTest;
