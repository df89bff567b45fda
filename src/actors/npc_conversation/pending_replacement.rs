//! A cut line that is being continued. The replacement is pending until the whole line is committed. If the
//! continuation fails, the line is reinstated as it was cut.

use actix::Context;

use super::{ConversationPhase, NpcConversation};
use crate::{actors::rewinding::server_principal, dialogue::rewind::RewindTarget, ids::TurnId, ports::StoreError};

impl NpcConversation {
    pub(super) fn pending_replacement(&self) -> Option<TurnId> {
        match &self.phase {
            ConversationPhase::Ready(loaded) => loaded.replacing,
            ConversationPhase::Loading => None,
        }
    }

    /// True if a continuation of the cut line is about to start.
    pub(super) fn has_continuation(&self) -> bool {
        let now = self.node.ports.clock.now();
        self.pending_replacement().is_some()
            && self
                .unfinished
                .as_ref()
                .is_some_and(|unfinished| unfinished.until > now)
    }

    /// Reinstates a cut line without a continuation. `false`: no line needs a reinstatement.
    pub(super) fn reinstate_turn(&mut self, ctx: &mut Context<Self>) -> bool {
        let Some(turn) = self
            .pending_replacement()
            .filter(|_| self.running.is_none() && !self.has_continuation())
        else {
            return false;
        };
        self.unfinished = None;
        if self.reinstating.replace(turn) == Some(turn) {
            tracing::error!(dialogue = %self.key.1, %turn, "a line that was to be gone on with could not be put back");
            // The next line on top of the present head would lose the cut line for good.
            self.phase = ConversationPhase::Loading;
            let error = StoreError::Unavailable("a line could not be put back".to_owned());
            self.on_load_failed(&error.into(), ctx);
            return true;
        }
        self.enqueue_reinstatement(RewindTarget::Reinstate { turn }, server_principal(&self.key.0), ctx);
        true
    }
}
