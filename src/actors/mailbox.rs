//! Messages in actor mailboxes, counted by kind of actor until the actor handles the message.

use actix::{Actor, Addr, Context, Handler, Message, Recipient, prelude::SendError};

use super::metrics::{ActorKind, ActorMetrics};
use colloquy_ports::ledger::metrics::GaugeGuard;

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
        impl $crate::mailbox::Mailbox for $actor {
            const KIND: $crate::metrics::ActorKind = $kind;
        }

        $(impl ::actix::Handler<$crate::mailbox::QueuedMessage<$message>> for $actor {
            type Result = ();

            fn handle(
                &mut self,
                queued: $crate::mailbox::QueuedMessage<$message>,
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

/// The mailbox of an actor for one kind of message, without the actor's type.
pub(super) struct ActorMailbox<M: Send + 'static> {
    kind: ActorKind,
    recipient: Recipient<QueuedMessage<M>>,
}

impl<M: Send + 'static> ActorMailbox<M> {
    pub fn of<A: Mailbox + Handler<QueuedMessage<M>>>(addr: Addr<A>) -> Self {
        Self {
            kind: A::KIND,
            recipient: addr.recipient(),
        }
    }

    /// Delivers a message; waits while the mailbox is full. An error: the actor is gone and the message is lost.
    pub async fn send(&self, metrics: &ActorMetrics, message: M) -> Result<(), ()> {
        let waits = metrics.count_waiting_message(self.kind);
        match self.recipient.try_send(QueuedMessage { message, waits }) {
            Ok(()) => Ok(()),
            Err(SendError::Full(queued)) => self.recipient.send(queued).await.map_err(drop),
            Err(SendError::Closed(_)) => Err(()),
        }
    }
}
