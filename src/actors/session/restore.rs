//! A restored save of the world: the actor's cached state no longer stands.
//!
//! The ledger has moved every head already, so no request is needed. The running turn is aborted, the listeners are
//! notified, and the whole state is loaded again.

use actix::{AsyncContext, Context};

use super::{MemoryWait, Session, SessionPhase};
use crate::{
    actors::{DialogueError, messages::WorldRestored},
    dialogue::{
        events::{EventBody, EventError},
        turn::{TurnError, event_error},
    },
    ports::ledger::rewinds::RewindRecord,
};

impl Session {
    pub(super) fn on_world_restored(&mut self, told: WorldRestored, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return self.late_restores.push(told);
        };
        if told.0.epoch <= loaded.epoch {
            // The state was loaded after the restore, and so were the restore's rewinds.
            return;
        }
        if self.rewinds.is_busy() {
            // The ledger made the running rewind before the restore, or refuses the rewind. The restore is handled
            // afterwards.
            return self.late_restores.push(told);
        }
        self.mark_used();
        let running = self.running.take();
        if let Some(running) = running {
            if let Some(keyed) = &running.key {
                self.keys.mark_unsaid(keyed.key.clone());
            }
            running.abort_unsaid();
        }
        let unsaid = event_error(&TurnError::Unsaid);
        if let Some(rewound) = &told.0.rewound {
            let body = EventBody::DialogueRewound(rewound.into());
            self.log.publish_restore(body, &unsaid, rewound.seq);
        } else {
            self.log.publish_not_committed(&unsaid);
            self.log.raise_epoch();
        }
        self.rewinds.forget_outcomes();
        self.drop_replacements(|_| false);
        self.keys.reset_known(true);
        if let Some(timer) = self.memory.timer.take() {
            ctx.cancel_future(timer);
        }
        self.memory = MemoryWait::default();
        if !told.0.open && told.0.rewound.is_some() {
            return self.on_closed_by_restore(ctx);
        }
        // The queued lines were said to a dialogue that no longer stands.
        self.unsay_queued_lines(self.next_line);
        self.start_loading(ctx);
        self.resolve_pending_cuts(ctx);
    }

    /// Handles a load that found rewinds of other nodes, or of a request with a lost answer. The rewinds are published.
    /// Lines spoken before are unsaid with their turns, and lines behind a fenced turn fail with the same error.
    pub(super) fn apply_missed_rewinds(&mut self, moved: Vec<RewindRecord>) {
        let took_turns = moved
            .iter()
            .any(|rewound| !(rewound.removed.is_empty() && rewound.reinstated.is_empty()));
        let before = match self.rewinds.doubted_before.take() {
            Some(own) if !moved.is_empty() => own,
            None if took_turns => self.next_line,
            _ => 0,
        };
        self.log.publish_missed_rewinds(moved);
        self.unsay_queued_lines(before);
        if let Some(before) = self.rewinds.fenced_before.take() {
            self.fence_queued_lines(before);
        }
    }

    /// Handles restores that came at a bad time. `true`: the state is being loaded again.
    pub(super) fn apply_late_restores(&mut self, ctx: &mut Context<Self>) -> bool {
        for told in std::mem::take(&mut self.late_restores) {
            self.on_world_restored(told, ctx);
        }
        matches!(self.phase, SessionPhase::Loading)
    }

    /// Ends a session that is closed or missing in the save.
    pub(super) fn on_closed_by_restore(&mut self, ctx: &mut Context<Self>) {
        let why = EventError {
            code: "session_closed",
            message: "a save was loaded in which this session is not open".to_owned(),
            retry_after_ms: None,
        };
        self.reject_queued_lines(&why, &DialogueError::Closed);
        self.cancel_rewinds(&DialogueError::Closed);
        for request in self.early.drain(..) {
            request.reject_with(DialogueError::Closed);
        }
        for ask in self.closing.take().into_iter().flat_map(|closing| closing.asks) {
            ask.answer(Ok(()));
        }
        self.log
            .publish_event(EventBody::SessionClosed { reason: "restored" }, None);
        self.release_and_stop(ctx);
    }
}
