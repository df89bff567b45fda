//! A save of the world was loaded: what this actor holds is not what stands.
//!
//! The ledger has moved every head already, so there is nothing to ask: the running turn is let go, those
//! who listen are told, and everything is read anew.

use actix::{AsyncContext, Context};

use super::{MemoryWait, Phase, Session, WorldRestored};
use crate::{
    actors::SessionError,
    dialogue::{
        events::{EventBody, EventError},
        turn::{TurnError, event_error},
    },
    ports::ledger::rewinds::Rewound,
};

impl Session {
    pub(super) fn restored(&mut self, told: WorldRestored, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else {
            return self.restored_meanwhile.push(told);
        };
        if told.0.epoch <= loaded.epoch {
            // What is held was read after it, and so was what it moved.
            return;
        }
        if self.moving.is_busy() {
            // The ledger made that move before this one, or refuses it; then it is heard of here.
            return self.restored_meanwhile.push(told);
        }
        self.touch();
        let running = self.running.take();
        if let Some(running) = running {
            if let Some(keyed) = &running.key {
                self.keys.unsay(keyed.key.clone());
            }
            running.unsay();
        }
        let unsaid = event_error(&TurnError::Unsaid);
        if let Some(rewound) = &told.0.rewound {
            let body = EventBody::DialogueRewound(rewound.into());
            self.log.restored(body, &unsaid, rewound.seq);
        } else {
            self.log.not_committed(&unsaid);
            self.log.raised();
        }
        self.moving.forget();
        self.drop_replacements(|_| false);
        self.keys.begin_anew(true);
        if let Some(timer) = self.memory.timer.take() {
            ctx.cancel_future(timer);
        }
        self.memory = MemoryWait::default();
        if !told.0.open && told.0.rewound.is_some() {
            return self.ended_by_restore(ctx);
        }
        // They were said to what is no more.
        self.unsay_lines(self.next_line);
        self.load(ctx);
        self.turn_ended(ctx);
    }

    /// The dialogue is read anew. What somebody else has moved since, or a move whose answer was lost, is told, and lines
    /// that had been spoken before go with what they followed. Those behind a turn that was fenced end as it did.
    pub(super) fn moved_meanwhile(&mut self, moved: Vec<Rewound>) {
        let took_turns = moved
            .iter()
            .any(|rewound| !(rewound.removed.is_empty() && rewound.reinstated.is_empty()));
        let before = match self.moving.doubted_before.take() {
            Some(own) if !moved.is_empty() => own,
            None if took_turns => self.next_line,
            _ => 0,
        };
        self.log.moved_meanwhile(moved);
        self.unsay_lines(before);
        if let Some(before) = self.moving.fenced_before.take() {
            self.fence_lines(before);
        }
    }

    /// What came while nothing could be done about it. `true`: everything is read anew.
    pub(super) fn restored_late(&mut self, ctx: &mut Context<Self>) -> bool {
        for told in std::mem::take(&mut self.restored_meanwhile) {
            self.restored(told, ctx);
        }
        matches!(self.phase, Phase::Loading)
    }

    /// The save has this dialogue closed, or not at all.
    pub(super) fn ended_by_restore(&mut self, ctx: &mut Context<Self>) {
        let why = EventError {
            code: "session_closed",
            message: "a save was loaded in which this session is not open".to_owned(),
            retry_after_ms: None,
        };
        self.drop_lines(&why, &SessionError::Closed);
        self.give_up_moves(&SessionError::Closed);
        for request in self.early.drain(..) {
            request.refuse(SessionError::Closed);
        }
        for ask in self.closing.take().into_iter().flat_map(|closing| closing.asks) {
            ask.answer(Ok(()));
        }
        self.log.publish(EventBody::SessionClosed { reason: "restored" }, None);
        self.leave(ctx);
    }
}
