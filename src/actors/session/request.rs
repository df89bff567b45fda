//! The messages of a session, and the way to refuse them.

use std::{sync::Arc, time::Instant};

use actix::Message;

use crate::{
    actors::{
        AcceptedLine, DialogueError, InterruptCommand, InterruptOutcome, Listener, PlayerLine, ResumeCommand,
        messages::{AttachedListener, ReplyHandle, SessionSnapshot},
    },
    dialogue::turn::TurnInput,
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

/// Starts the rewinds requested so far.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct BeginRewind;
