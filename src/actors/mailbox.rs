//! Messages on their way to an actor: counted, by the kind of the actor, until it comes to them.

use actix::{Actor, Addr, Context, Handler, Message, prelude::SendError};

use super::{
    curator::{self, Curator},
    eviction::LeaveIfIdle,
    npc::{self, Npc},
    npc_conversation::{self, NpcConversation},
    registry::Node,
    session::{self, Session},
};
use crate::ports::ledger::meters::Counted;

/// What lives on a node, as its metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Session,
    NpcConversation,
    Npc,
    Curator,
}

impl Kind {
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

/// An actor whose mailbox is looked at.
pub(super) trait Mailbox: Actor<Context = Context<Self>> {
    const KIND: Kind;
}

/// A message that waits until its actor comes to it, or is gone.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Posted<M> {
    message: M,
    waits: Counted,
}

macro_rules! mailboxes {
    ($($actor:ty, $kind:expr => [$($message:ty,)+];)+) => {$(
        impl Mailbox for $actor {
            const KIND: Kind = $kind;
        }

        $(impl Handler<Posted<$message>> for $actor {
            type Result = ();

            fn handle(&mut self, Posted { message, waits }: Posted<$message>, ctx: &mut Self::Context) {
                drop(waits);
                self.handle(message, ctx);
            }
        })+
    )+};
}

// Whatever is sent to them from outside.
mailboxes! {
    Session, Kind::Session => [
        session::Request,
        session::JobEnded,
        session::Drain,
        session::Stop,
        LeaveIfIdle,
        session::WasClosed,
        session::Disowned,
        session::WorldRestored,
    ];
    NpcConversation, Kind::NpcConversation => [
        npc_conversation::Request,
        npc_conversation::GoOn,
        session::JobEnded,
        session::Drain,
        session::Stop,
        LeaveIfIdle,
        session::Disowned,
        session::WorldRestored,
    ];
    Npc, Kind::Npc => [npc::Fetch,];
    Curator, Kind::Curator => [
        curator::TakeOn,
        curator::Unsaid,
        curator::JobsDue,
        curator::Drain,
        curator::Stop,
    ];
}

/// Delivers a message; waits while the mailbox is full. An error: the actor is gone, and so is the message.
pub(super) async fn send<A, M>(node: &Node, addr: &Addr<A>, message: M) -> Result<(), ()>
where
    A: Mailbox + Handler<Posted<M>>,
    M: Send + 'static,
{
    let waits = node.meters.message(A::KIND);
    match addr.try_send(Posted { message, waits }) {
        Ok(()) => Ok(()),
        Err(SendError::Full(posted)) => addr.send(posted).await.map_err(drop),
        Err(SendError::Closed(_)) => Err(()),
    }
}
