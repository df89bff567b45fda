//! A line that was cut and is gone on with: until the whole of it is committed it is owed, and stands again as it
//! was cut if that comes to nothing.

use actix::Context;

use super::{NpcConversation, Phase};
use crate::{actors::rewinding::by_itself, dialogue::rewind::Target, ids::TurnId, ports::StoreError};

impl NpcConversation {
    pub(super) fn owed(&self) -> Option<TurnId> {
        match &self.phase {
            Phase::Ready(loaded) => loaded.replacing,
            Phase::Loading => None,
        }
    }

    /// Whether somebody is about to go on with the line that is owed.
    pub(super) fn goes_on(&self) -> bool {
        let now = self.node.ports.clock.now();
        self.owed().is_some()
            && self
                .unfinished
                .as_ref()
                .is_some_and(|unfinished| unfinished.until > now)
    }

    /// Puts the line back that nobody goes on with. `false`: there is none.
    pub(super) fn put_back(&mut self, ctx: &mut Context<Self>) -> bool {
        let Some(turn) = self.owed().filter(|_| self.running.is_none() && !self.goes_on()) else {
            return false;
        };
        self.unfinished = None;
        if self.putting_back.replace(turn) == Some(turn) {
            tracing::error!(dialogue = %self.key.1, %turn, "a line that was to be gone on with could not be put back");
            // With the next line said on top of what stands it would be lost for good.
            self.phase = Phase::Loading;
            let error = StoreError::Unavailable("a line could not be put back".to_owned());
            self.not_loaded(&error.into(), ctx);
            return true;
        }
        self.want_back(Target::Again { turn }, by_itself(&self.key.0), ctx);
        true
    }
}
