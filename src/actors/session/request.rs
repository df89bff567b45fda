//! The messages of a session, and the way to refuse them.

use std::{sync::Arc, time::Instant};

use actix::Message;

use super::SessionKind;
use crate::{
    AcceptedLine, DialogueError, InterruptCommand, InterruptOutcome, Listener, PlayerLine, RegenerateCommand,
    ResumeCommand,
    dialogue::{decisions::RequestNeeds, kind::DialogueRequest},
    messages::{AttachedListener, ReplyHandle, SessionSnapshot},
};
use colloquy_dialogue::turn::TurnInput;

/// The requests to a session.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum SessionRequest {
    Say {
        line: PlayerLine,
        accepted_at: Instant,
        reply: ReplyHandle<AcceptedLine>,
    },
    Interrupt {
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
    },
    Rewind {
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
    },
    /// Rewinds the last turn and says its line again, or lets the NPC go on with its reply.
    Regenerate {
        command: RegenerateCommand,
        reply: ReplyHandle<AcceptedLine>,
    },
    /// Reports that the client has played a reply to the end.
    Played {
        turn: u32,
        reply: ReplyHandle<()>,
    },
    /// Resumes a reply that was cut a moment ago.
    Resume {
        command: ResumeCommand,
        reply: ReplyHandle<InterruptOutcome>,
    },
    Attach {
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        reply: ReplyHandle<AttachedListener>,
    },
    Snapshot {
        reply: ReplyHandle<SessionSnapshot>,
    },
    /// Asks for the input of a turn with the given line.
    Prepare {
        text: String,
        reply: ReplyHandle<TurnInput>,
    },
    Close {
        reason: &'static str,
        reply: ReplyHandle<()>,
    },
}

impl DialogueRequest for SessionRequest {
    type Kind = SessionKind;

    fn new_kind(&self) -> SessionKind {
        SessionKind::default()
    }

    fn needs(&self) -> RequestNeeds {
        match self {
            Self::Say { .. } => RequestNeeds::OpenAndServing,
            Self::Attach { .. } => RequestNeeds::Open,
            Self::Interrupt { .. } | Self::Rewind { .. } | Self::Regenerate { .. } | Self::Resume { .. } => {
                RequestNeeds::Rewind
            }
            Self::Played { .. } | Self::Snapshot { .. } | Self::Prepare { .. } | Self::Close { .. } => {
                RequestNeeds::Nothing
            }
        }
    }

    fn reject_with(self, error: DialogueError) {
        match self {
            Self::Say { reply, .. } | Self::Regenerate { reply, .. } => reply.answer(Err(error)),
            Self::Interrupt { reply, .. } | Self::Rewind { reply, .. } | Self::Resume { reply, .. } => {
                reply.answer(Err(error));
            }
            Self::Attach { reply, .. } => reply.answer(Err(error)),
            Self::Snapshot { reply } => reply.answer(Err(error)),
            Self::Prepare { reply, .. } => reply.answer(Err(error)),
            Self::Close { reply, .. } | Self::Played { reply, .. } => reply.answer(Err(error)),
        }
    }
}
