//! A restored save of the world, or a dialogue that moved to another node: the cached state no longer stands.
//!
//! After a restore the ledger has moved every head already, so no request is needed. The running line is aborted, the
//! listeners are notified, and the whole state is loaded again.

use std::time::Duration;

use actix::{AsyncContext, Context, Handler};

use super::{ConversationPhase, MemoryWait, NpcConversation};
use crate::{
    actors::{
        DialogueError,
        messages::{OwnershipLost, WorldRestored},
    },
    dialogue::{
        events::EventBody,
        turn::{TurnError, event_error},
    },
};

/// Delay before a restore that met a load or a rewind is tried again.
const RESTORE_RETRY_DELAY: Duration = Duration::from_millis(20);

impl NpcConversation {
    fn on_world_restored(&mut self, told: WorldRestored, ctx: &mut Context<Self>) {
        let busy = self.rewinds.is_busy();
        let ConversationPhase::Ready(loaded) = &self.phase else {
            ctx.run_later(RESTORE_RETRY_DELAY, |talk, ctx| talk.on_world_restored(told, ctx));
            return;
        };
        if told.0.epoch <= loaded.epoch {
            // The state was loaded after the restore.
            return;
        }
        if busy {
            // The ledger made the running rewind before the restore, or refuses the rewind.
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
        // Waiting interrupts and requests were made to a dialogue that no longer stands.
        self.cancel_rewinds(&DialogueError::Overloaded {
            retry_after: RESTORE_RETRY_DELAY,
        });
        self.stepping.clear();
        if let Some(rewound) = told.0.rewound.as_ref().filter(|_| !told.0.open) {
            return self.on_closed_by_restore(rewound.head_turn, ctx);
        }
        self.start_loading(ctx);
    }

    /// Ends a conversation that is closed or missing in the save.
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
        // The running line is fenced. Its commit finds the fence, and so the new owner of the dialogue.
        self.cut_running_turn(None, None);
        if let ConversationPhase::Ready(loaded) = &self.phase {
            let epoch = loaded.epoch;
            self.on_ownership_lost(epoch, ctx);
        }
    }
}
