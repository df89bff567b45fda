//! Messages in actor mailboxes, counted by kind of actor until the actor handles the message.

use actix::{Actor, Addr, Context, Handler, Message, prelude::SendError};

use super::registry::Node;
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

/// Makes an actor take messages through its measured mailbox: `mailbox!(Actor, kind, [Message, …])`. Lists all messages
/// that other actors and callers send. Beside each actor, because an implementation for all actors at once is not
/// possible: `Handler` belongs to another crate.
macro_rules! mailbox {
    ($actor:ty, $kind:expr, [$($message:ty),+ $(,)?]) => {
        impl $crate::actors::mailbox::Mailbox for $actor {
            const KIND: $crate::actors::mailbox::ActorKind = $kind;
        }

        $(impl ::actix::Handler<$crate::actors::mailbox::QueuedMessage<$message>> for $actor {
            type Result = ();

            fn handle(
                &mut self,
                queued: $crate::actors::mailbox::QueuedMessage<$message>,
                ctx: &mut <Self as ::actix::Actor>::Context,
            ) {
                ::actix::Handler::<$message>::handle(self, queued.into_message(), ctx);
            }
        })+
    };
}
pub(super) use mailbox;

impl<M> QueuedMessage<M> {
    /// Returns the message, which waits no longer.
    pub fn into_message(self) -> M {
        drop(self.waits);
        self.message
    }
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
