//! What this actor holds is not what stands: a save of the world was loaded, or the dialogue is another node's.
//!
//! The ledger has moved every head already, so there is nothing to ask: the running line is let go, those
//! who watch are told, and everything is read anew.

use std::time::Duration;

use actix::{AsyncContext, Context, Handler};

use super::{ConversationPhase, MemoryWait, NpcConversation};
use crate::{
    actors::{
        DialogueError,
        session::{OwnershipLost, WorldRestored},
    },
    dialogue::{
        events::EventBody,
        turn::{TurnError, event_error},
    },
};

/// How long what is being read, or moved, is waited for.
const RESTORE_RETRY_DELAY: Duration = Duration::from_millis(20);

impl NpcConversation {
    fn on_world_restored(&mut self, told: WorldRestored, ctx: &mut Context<Self>) {
        let busy = self.rewinds.is_busy();
        let ConversationPhase::Ready(loaded) = &self.phase else {
            ctx.run_later(RESTORE_RETRY_DELAY, |talk, ctx| talk.on_world_restored(told, ctx));
            return;
        };
        if told.0.epoch <= loaded.epoch {
            // What is held was read after it.
            return;
        }
        if busy {
            // The ledger made that move before this one, or refuses it.
            ctx.run_later(RESTORE_RETRY_DELAY, |talk, ctx| talk.on_world_restored(told, ctx));
            return;
        }
        self.mark_used();
        if let Some(running) = self.running.take() {
            running.abort_unsaid();
        }
        self.deferred_outcome = None;
        self.unfinished = None;
        let unsaid = event_error(&TurnError::Unsaid);
        if let Some(rewound) = &told.0.rewound {
            let body = EventBody::DialogueRewound(rewound.into());
            self.log.publish_restore(body, &unsaid, rewound.seq);
        } else {
            self.log.publish_not_committed(&unsaid);
            self.log.raise_epoch();
        }
        for timer in [self.memory.timer.take(), self.line_timer.take()].into_iter().flatten() {
            ctx.cancel_future(timer);
        }
        self.memory = MemoryWait::default();
        // Whoever waits to cut in, or for a line, asked of what is no more.
        self.cancel_rewinds(&DialogueError::Overloaded {
            retry_after: RESTORE_RETRY_DELAY,
        });
        self.stepping.clear();
        if let Some(rewound) = told.0.rewound.as_ref().filter(|_| !told.0.open) {
            return self.on_closed_by_restore(rewound.head_turn, ctx);
        }
        self.start_loading(ctx);
    }

    /// The save has this conversation ended, or not at all.
    pub(super) fn on_closed_by_restore(&mut self, turn: u32, ctx: &mut Context<Self>) {
        for request in std::mem::take(&mut self.early) {
            request.reject_with(DialogueError::Ended);
        }
        let reason = "restored";
        self.log
            .publish_event(EventBody::ConversationEnded { turn, reason }, None);
        self.release_and_stop(ctx);
    }
}

impl Handler<WorldRestored> for NpcConversation {
    type Result = ();

    fn handle(&mut self, told: WorldRestored, ctx: &mut Self::Context) {
        self.on_world_restored(told, ctx);
    }
}

impl Handler<OwnershipLost> for NpcConversation {
    type Result = ();

    fn handle(&mut self, OwnershipLost: OwnershipLost, ctx: &mut Self::Context) {
        // What runs is fenced; its commit finds that out, and so who owns the dialogue now.
        self.cut_running_turn(None, None);
        if let ConversationPhase::Ready(loaded) = &self.phase {
            let epoch = loaded.epoch;
            self.on_ownership_lost(epoch, ctx);
        }
    }
}
