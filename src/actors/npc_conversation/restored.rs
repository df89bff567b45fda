//! What this actor holds is not what stands: a save of the world was loaded, or the dialogue is another node's.
//!
//! The ledger has moved every head already, so there is nothing to ask: the running line is let go, those
//! who watch are told, and everything is read anew.

use std::time::Duration;

use actix::{AsyncContext, Context, Handler};

use super::{MemoryWait, NpcConversation, Phase};
use crate::{
    actors::{
        SessionError,
        session::{Disowned, WorldRestored},
    },
    dialogue::{
        events::EventBody,
        turn::{TurnError, event_error},
    },
};

/// How long what is being read, or moved, is waited for.
const MOMENT: Duration = Duration::from_millis(20);

impl NpcConversation {
    fn restored(&mut self, told: WorldRestored, ctx: &mut Context<Self>) {
        let busy = self.moving.is_busy();
        let Phase::Ready(loaded) = &self.phase else {
            ctx.run_later(MOMENT, |talk, ctx| talk.restored(told, ctx));
            return;
        };
        if told.0.epoch <= loaded.epoch {
            // What is held was read after it.
            return;
        }
        if busy {
            // The ledger made that move before this one, or refuses it.
            ctx.run_later(MOMENT, |talk, ctx| talk.restored(told, ctx));
            return;
        }
        self.touch();
        if let Some(running) = self.running.take() {
            running.unsay();
        }
        self.ended_meanwhile = None;
        self.unfinished = None;
        let unsaid = event_error(&TurnError::Unsaid);
        if let Some(rewound) = &told.0.rewound {
            let body = EventBody::DialogueRewound(rewound.into());
            self.log.restored(body, &unsaid, rewound.seq);
        } else {
            self.log.not_committed(&unsaid);
            self.log.raised();
        }
        for timer in [self.memory.timer.take(), self.rest.take()].into_iter().flatten() {
            ctx.cancel_future(timer);
        }
        self.memory = MemoryWait::default();
        // Whoever waits to cut in, or for a line, asked of what is no more.
        self.give_up_moves(&SessionError::Overloaded { retry_after: MOMENT });
        self.stepping.clear();
        if let Some(rewound) = told.0.rewound.as_ref().filter(|_| !told.0.open) {
            return self.ended_by_restore(rewound.head_turn, ctx);
        }
        self.load(ctx);
    }

    /// The save has this conversation ended, or not at all.
    pub(super) fn ended_by_restore(&mut self, turn: u32, ctx: &mut Context<Self>) {
        for request in std::mem::take(&mut self.early) {
            request.refuse(SessionError::Ended);
        }
        let reason = "restored";
        self.log.publish(EventBody::ConversationEnded { turn, reason }, None);
        self.leave(ctx);
    }
}

impl Handler<WorldRestored> for NpcConversation {
    type Result = ();

    fn handle(&mut self, told: WorldRestored, ctx: &mut Self::Context) {
        self.restored(told, ctx);
    }
}

impl Handler<Disowned> for NpcConversation {
    type Result = ();

    fn handle(&mut self, Disowned: Disowned, ctx: &mut Self::Context) {
        // What runs is fenced; its commit finds that out, and so who owns the dialogue now.
        self.cut(None, None);
        if let Phase::Ready(loaded) = &self.phase {
            let epoch = loaded.epoch;
            self.lost(epoch, ctx);
        }
    }
}
