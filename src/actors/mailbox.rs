//! Messages in actor mailboxes, counted by kind of actor until the actor handles the message.

use actix::{Actor, Addr, Context, Handler, Message, prelude::SendError};

use super::{
    curator::{self, Curator},
    eviction::LeaveIfIdle,
    npc::{self, NpcActor},
    npc_conversation::{self, NpcConversation},
    registry::Node,
    session::{self, Session},
};
use crate::ports::ledger::metrics::GaugeGuard;

/// The kinds of actors, as the metrics name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActorKind {
    Session,
    NpcConversation,
    Npc,
    Curator,
}

impl ActorKind {
    pub const ALL: [Self; 4] = [Self::Session, Self::NpcConversation, Self::Npc, Self::Curator];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::NpcConversation => "npc_conversation",
            Self::Npc => "npc",
            Self::Curator => "curator",
        }
    }
}

/// An actor whose mailbox is measured.
pub(super) trait Mailbox: Actor<Context = Context<Self>> {
    const KIND: ActorKind;
}

/// A message that is counted until the actor handles the message or the message is lost.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct QueuedMessage<M> {
    message: M,
    waits: GaugeGuard,
}

macro_rules! mailboxes {
    ($($actor:ty, $kind:expr => [$($message:ty,)+];)+) => {$(
        impl Mailbox for $actor {
            const KIND: ActorKind = $kind;
        }

        $(impl Handler<QueuedMessage<$message>> for $actor {
            type Result = ();

            fn handle(&mut self, QueuedMessage { message, waits }: QueuedMessage<$message>, ctx: &mut Self::Context) {
                drop(waits);
                self.handle(message, ctx);
            }
        })+
    )+};
}

// All messages that other actors and callers send.
mailboxes! {
    Session, ActorKind::Session => [
        session::SessionRequest,
        session::JobEnded,
        session::DrainDialogue,
        session::StopDialogue,
        LeaveIfIdle,
        session::ClosedInLedger,
        session::OwnershipLost,
        session::WorldRestored,
    ];
    NpcConversation, ActorKind::NpcConversation => [
        npc_conversation::ConversationRequest,
        npc_conversation::ContinueTalking,
        session::JobEnded,
        session::DrainDialogue,
        session::StopDialogue,
        LeaveIfIdle,
        session::OwnershipLost,
        session::WorldRestored,
    ];
    NpcActor, ActorKind::Npc => [npc::FetchAuthored,];
    Curator, ActorKind::Curator => [
        curator::TakeJobs,
        curator::TurnsUnsaid,
        curator::JobsDue,
        curator::DrainCurator,
        curator::StopCurator,
    ];
}

/// Delivers a message; waits while the mailbox is full. An error: the actor is gone and the message is lost.
pub(super) async fn send_message<A, M>(node: &Node, addr: &Addr<A>, message: M) -> Result<(), ()>
where
    A: Mailbox + Handler<QueuedMessage<M>>,
    M: Send + 'static,
{
    let waits = node.metrics.count_waiting_message(A::KIND);
    match addr.try_send(QueuedMessage { message, waits }) {
        Ok(()) => Ok(()),
        Err(SendError::Full(posted)) => addr.send(posted).await.map_err(drop),
        Err(SendError::Closed(_)) => Err(()),
    }
}
