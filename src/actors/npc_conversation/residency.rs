//! The conversation's time in memory. The actor renews its ownership, and leaves memory after a long idle time or when
//! another dialogue needs the place.

use std::{sync::Arc, time::Duration};

use actix::{ActorContext, ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};

use super::{ConversationPhase, NpcConversation};
use crate::actors::{
    dialogue::load,
    messages::{LeaveIfIdle, ResidencyPermit},
};

impl NpcConversation {
    pub(super) fn mark_used(&mut self) {
        self.used = self.now();
        self.residency.iter().for_each(ResidencyPermit::mark_used);
    }

    /// True if the conversation has no work and no listeners.
    fn is_idle(&self) -> bool {
        let busy = self.running.is_some()
            || self.paces_itself()
            || self.has_continuation()
            || !self.early.is_empty()
            || !self.stepping.is_empty()
            || !self.pending_cuts.is_empty()
            || self.rewinds.is_busy()
            || self.closing.is_some();
        !busy && !self.log.has_listeners()
    }

    /// Renews ownership when due, and stops after a long time without work and listeners.
    pub(super) fn on_tick(&mut self, ctx: &mut Context<Self>) {
        let now = self.now();
        let idle = Duration::from_secs(self.node.settings.idle_s);
        let half = Duration::from_secs(self.node.settings.ownership_s) / 2;
        if now.saturating_duration_since(self.used) >= idle && self.is_idle() {
            return self.release_and_stop(ctx);
        }
        if let ConversationPhase::Ready(loaded) = &mut self.phase
            && now.saturating_duration_since(loaded.renewed) >= half
            && !loaded.closed
        {
            loaded.renewed = now;
            let epoch = loaded.epoch;
            let renew = load::renew_ownership(Arc::clone(&self.node), self.key.clone(), epoch);
            ctx.spawn(renew.into_actor(self).map(move |renewed, talk, ctx| match renewed {
                Ok(true) => {}
                Ok(false) => talk.on_ownership_lost(epoch, ctx),
                Err(error) => tracing::warn!(dialogue = %talk.key.1, %error, "ownership could not be renewed"),
            }));
        }
        ctx.run_later(idle.min(half).max(Duration::from_millis(20)), Self::on_tick);
    }

    /// Stops and releases the dialogue for the next owner. In a cluster, a self-paced dialogue stays owned for a
    /// takeover.
    pub(super) fn release_and_stop(&mut self, ctx: &mut Context<Self>) {
        if let ConversationPhase::Ready(loaded) = &self.phase
            && !(self.paces_itself() && self.node.membership.is_some())
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
        ctx.stop();
    }

    /// Handles the loss of ownership to another node. A running line learns of the loss at its commit.
    pub(super) fn on_ownership_lost(&mut self, epoch: u64, ctx: &mut Context<Self>) {
        let ours = matches!(&self.phase, ConversationPhase::Ready(loaded) if loaded.epoch == epoch);
        if ours && self.running.is_none() && !self.rewinds.is_busy() {
            self.start_loading(ctx);
        }
    }
}

impl Handler<LeaveIfIdle> for NpcConversation {
    type Result = ();

    fn handle(&mut self, LeaveIfIdle { reply }: LeaveIfIdle, ctx: &mut Self::Context) {
        if self.is_idle()
            && let Some(live) = self.residency.take()
        {
            self.release_and_stop(ctx);
            // The caller may have given up; the place is then free.
            let _ = reply.send(live);
        }
    }
}
