//! The messages of a conversation, and the way to refuse them.

use std::sync::Arc;

use actix::Message;
use tokio::sync::oneshot;

use super::ConversationKind;
use crate::{
    DialogueError, InterruptCommand, InterruptOutcome, Listener,
    dialogue::{decisions::RequestNeeds, kind::DialogueRequest},
    messages::{AttachedListener, ConversationSnapshot, JoinPoint, ReplyHandle},
    running_turn::TurnOutcome,
};
use colloquy_core::scope::Principal;

/// The requests to a conversation.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum ConversationRequest {
    Snapshot {
        reply: ReplyHandle<ConversationSnapshot>,
    },
    Attach {
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        /// True if the listener wakes a sleeping conversation.
        wakes: bool,
        reply: ReplyHandle<AttachedListener>,
    },
    /// Says one line now.
    Step {
        reply: ReplyHandle<oneshot::Receiver<TurnOutcome>>,
    },
    /// Cuts the running line or rewinds to an earlier line, and pauses.
    Interrupt {
        command: InterruptCommand,
        reply: ReplyHandle<InterruptOutcome>,
    },
    /// Continues after a pause.
    Resume {
        who: Principal,
        reply: ReplyHandle<ConversationSnapshot>,
    },
    /// Pauses for a player, and returns the join point.
    Join {
        reply: ReplyHandle<JoinPoint>,
    },
    End {
        reason: &'static str,
        reply: ReplyHandle<()>,
    },
}

/// Allows lines again: the tenant was enabled, or the conversation was woken.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ContinueTalking;

impl DialogueRequest for ConversationRequest {
    type Kind = ConversationKind;

    fn new_kind(&self) -> ConversationKind {
        ConversationKind {
            asleep: matches!(self, Self::Attach { wakes: false, .. }),
            ..ConversationKind::default()
        }
    }

    fn needs(&self) -> RequestNeeds {
        match self {
            Self::Snapshot { .. } | Self::End { .. } => RequestNeeds::Nothing,
            Self::Attach { .. } => RequestNeeds::Open,
            Self::Interrupt { .. } => RequestNeeds::Rewind,
            Self::Step { .. } | Self::Resume { .. } | Self::Join { .. } => RequestNeeds::OpenAndServing,
        }
    }

    fn reject_with(self, error: DialogueError) {
        match self {
            Self::Snapshot { reply } | Self::Resume { reply, .. } => reply.answer(Err(error)),
            Self::Attach { reply, .. } => reply.answer(Err(error)),
            Self::Step { reply } => reply.answer(Err(error)),
            Self::Interrupt { reply, .. } => reply.answer(Err(error)),
            Self::Join { reply } => reply.answer(Err(error)),
            Self::End { reply, .. } => reply.answer(Err(error)),
        }
    }
}
