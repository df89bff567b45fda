//! The dialogue's time in memory: ownership and idle time, drains and closes, and restored saves of the world.

use std::{sync::Arc, time::Duration};

use actix::{ActorContext, ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};

use super::{
    actor::{CloseRequest, DialogueActor, State},
    decisions::{self, OnRestoreNotice},
    due_jobs::make_jobs_due,
    kind::{DialogueBehaviour, DialogueRequest as _},
    load,
};
use crate::{
    DialogueError,
    messages::{LeaveIfIdle, ReplyHandle, ResidencyPermit, WorldRestored},
    rewind_queue::RecentRewinds,
};
use colloquy_dialogue::{
    events::{EventBody, EventError},
    turn::{TurnError, event_error},
};
use colloquy_ports::ledger::dialogues::OwnerWriteOutcome;

impl<K: DialogueBehaviour> DialogueActor<K> {
    pub fn mark_used(&mut self) {
        self.last_used_at = self.now();
        self.residency.iter().for_each(ResidencyPermit::mark_used);
    }

    /// True if the dialogue has no work and no listeners.
    fn is_idle(&self) -> bool {
        let at_rest = matches!(self.state, State::Ready(_))
            && self.running.is_none()
            && self.deferred.requests.is_empty()
            && self.turn_end_waiters.is_empty()
            && self.closing.is_none()
            && !self.rewinds.is_busy()
            && !K::has_work(self);
        at_rest && !self.log.has_listeners()
    }

    /// Renews ownership when due, and stops after a long time without requests.
    pub fn on_tick(&mut self, ctx: &mut Context<Self>) {
        let now = self.now();
        let idle = Duration::from_secs(self.node.settings.idle_s);
        let half = Duration::from_secs(self.node.settings.ownership_s) / 2;
        if now.saturating_duration_since(self.last_used_at) >= idle && self.is_idle() {
            return self.release_and_stop(ctx);
        }
        if let Some(loaded) = self.state.loaded_mut()
            && now.saturating_duration_since(loaded.ownership_renewed_at) >= half
            && !loaded.closed
        {
            loaded.ownership_renewed_at = now;
            let epoch = loaded.epoch;
            let renew = load::renew_ownership(Arc::clone(&self.node), self.key.clone(), epoch);
            ctx.spawn(renew.into_actor(self).map(move |renewed, actor, ctx| match renewed {
                Ok(true) => {}
                Ok(false) => actor.on_ownership_lost(epoch, ctx),
                Err(error) => tracing::warn!(dialogue = %actor.key.1, %error, "ownership could not be renewed"),
            }));
        }
        ctx.run_later(idle.min(half).max(Duration::from_millis(20)), Self::on_tick);
    }

    /// Stops and releases the dialogue for the next owner.
    pub fn release_and_stop(&mut self, ctx: &mut Context<Self>) {
        if let Some(loaded) = self.state.loaded()
            && !K::keeps_ownership(self)
        {
            // Not awaited: an actor that takes the dialogue again meanwhile has its own epoch.
            let next_seq = self.log.next_seq_if_quiet();
            actix::spawn(load::release_ownership(
                Arc::clone(&self.node),
                self.key.clone(),
                loaded.epoch,
                next_seq,
            ));
        }
        if let Some(actors) = self.node.actors() {
            actors.remove_dialogue(&self.key, self.generation);
        }
        self.state = State::Stopped;
        ctx.stop();
    }

    /// Handles the loss of ownership to another node. A running turn learns of the loss at its commit.
    pub fn on_ownership_lost(&mut self, epoch: u64, ctx: &mut Context<Self>) {
        let is_present = self.state.loaded().is_some_and(|loaded| loaded.epoch == epoch);
        if is_present && self.running.is_none() && !self.rewinds.is_busy() {
            self.start_loading(ctx);
        }
    }

    // --- drains and closes ---

    /// Cancels the requested lines of a dialogue that is draining or closing.
    pub fn cancel_lines_on_leave(&mut self) {
        let (code, message, error) = if self.drain.is_some() {
            let message = "the server is shutting down; say it again elsewhere";
            ("draining", message, DialogueError::Draining)
        } else {
            let message = "the session was closed before this line was said";
            ("session_closed", message, K::closed_error())
        };
        let reason = EventError {
            code,
            message: message.to_owned(),
            retry_after_ms: None,
        };
        K::cancel_lines(self, &reason, &error);
    }

    pub fn answer_drain(&mut self) {
        if let Some(drain) = self.drain.take() {
            // The draining caller may have given up.
            let _ = drain.reply.send(drain.saw_turn);
        }
    }

    /// Closes the dialogue: requested lines are cancelled, the running turn is cut and still committed.
    pub fn begin_closing(&mut self, reason: &'static str, reply: Option<ReplyHandle<()>>, ctx: &mut Context<Self>) {
        let close = self.closing.get_or_insert(CloseRequest {
            reason,
            replies: Vec::new(),
            being_written: false,
        });
        close.replies.extend(reply);
        self.cut_running_turn(None, None);
        self.run_next_steps(ctx);
    }

    /// Writes the close to the ledger.
    pub fn write_close(&mut self, ctx: &mut Context<Self>) {
        let (Some(loaded), Some(close)) = (self.state.loaded(), self.closing.as_mut()) else {
            return;
        };
        close.being_written = true;
        let write = load::close_dialogue(Arc::clone(&self.node), self.key.clone(), loaded.epoch);
        ctx.spawn(write.into_actor(self).map(|outcome, actor, ctx| {
            let Some(close) = actor.closing.take() else { return };
            match outcome {
                Ok(OwnerWriteOutcome::Fenced) => {
                    // The reload finds the present state and ends the dialogue accordingly. A caller whose dialogue is
                    // on another node is redirected.
                    actor.closing = Some(CloseRequest {
                        being_written: false,
                        ..close
                    });
                    actor.start_loading(ctx);
                }
                Ok(OwnerWriteOutcome::Done | OwnerWriteOutcome::NotOpen) => {
                    let body = K::closed_event(actor.head_turn(), close.reason);
                    actor.log.publish_event(body, None);
                    for reply in close.replies {
                        reply.answer(Ok(()));
                    }
                    if let Some(turn) = actor.memory.held_turn.take() {
                        // Not awaited: without an answer of the ledger, the jobs become due by themselves.
                        actix::spawn(make_jobs_due(Arc::clone(&actor.node), actor.key.clone(), turn));
                    }
                    actor.release_and_stop(ctx);
                }
                Err(error) => {
                    tracing::warn!(dialogue = %actor.key.1, %error, "a dialogue could not be closed");
                    for reply in close.replies {
                        reply.answer(Err(error.clone().into()));
                    }
                    K::on_close_failed(actor, ctx);
                }
            }
        }));
    }

    // --- restored saves ---

    /// Handles a restored save of the world. The ledger has moved every head already, so no request is needed: the
    /// running turn is aborted, the listeners are notified, and the whole state is loaded again.
    pub fn on_world_restored(&mut self, notice: WorldRestored, ctx: &mut Context<Self>) {
        let loaded_epoch = self.state.loaded().map_or(0, |loaded| loaded.epoch);
        match decisions::on_restore_notice(&self.view(), notice.0.epoch, loaded_epoch) {
            OnRestoreNotice::Ignore => return,
            OnRestoreNotice::Defer => return self.deferred.restores.push(notice),
            OnRestoreNotice::Apply => {}
        }
        self.mark_used();
        if let Some(running) = self.running.take() {
            K::on_turn_unsaid(self, &running);
            running.abort_unsaid();
        }
        let unsaid = event_error(&TurnError::Unsaid);
        if let Some(rewound) = &notice.0.rewound {
            let body = EventBody::DialogueRewound(rewound.into());
            self.log.publish_restore(body, &unsaid, rewound.seq);
        } else {
            self.log.publish_not_committed(&unsaid);
            self.log.raise_epoch();
        }
        // Results of the replaced state do not apply to the restored dialogue.
        self.rewinds.recent = RecentRewinds::default();
        self.rewinds.reinstating = None;
        self.deferred.jobs.clear();
        self.reset_memory_wait(ctx);
        if let Some(rewound) = notice.0.rewound.as_ref().filter(|_| !notice.0.open) {
            return self.end_restored_closed(rewound.head_turn, ctx);
        }
        K::on_restored(self, ctx);
        self.start_loading(ctx);
    }

    /// Ends a dialogue that is closed or missing in the restored save, with `head_turn` as its last turn.
    pub fn end_restored_closed(&mut self, head_turn: u32, ctx: &mut Context<Self>) {
        let error = K::closed_error();
        let reason = EventError {
            code: "session_closed",
            message: "a save was loaded in which this session is not open".to_owned(),
            retry_after_ms: None,
        };
        K::cancel_lines(self, &reason, &error);
        self.cancel_rewinds(&error);
        for request in self.deferred.requests.drain(..) {
            request.reject_with(error.clone());
        }
        for reply in self.closing.take().into_iter().flat_map(|close| close.replies) {
            reply.answer(Ok(()));
        }
        self.log.publish_event(K::closed_event(head_turn, "restored"), None);
        self.release_and_stop(ctx);
    }
}

impl<K: DialogueBehaviour> Handler<LeaveIfIdle> for DialogueActor<K> {
    type Result = ();

    fn handle(&mut self, LeaveIfIdle { reply }: LeaveIfIdle, ctx: &mut Self::Context) {
        if self.is_idle()
            && let Some(residency) = self.residency.take()
        {
            self.release_and_stop(ctx);
            // The caller may have given up; the place is then free.
            let _ = reply.send(residency);
        }
    }
}
