//! What follows a turn: its jobs report what they did.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{JobEnded, Phase, Session, load};
use crate::{
    dialogue::{events::EventBody, jobs::JobReport},
    ids::TurnId,
    ports::ledger::jobs::JobKind,
};

impl Session {
    pub(super) fn job_ended(&mut self, ended: JobEnded, ctx: &mut Context<Self>) {
        if ended.kind == JobKind::ExtractFacts && self.memory.of == Some(ended.turn_id) {
            self.memory.of = None;
        }
        if let Some(report) = ended.report {
            self.reported(ended.turn_id, report, ctx);
        }
        self.advance(ctx);
    }

    /// Whether a turn that a job was for has not been unsaid meanwhile.
    fn stands(&self, id: TurnId, number: u32) -> bool {
        let Phase::Ready(loaded) = &self.phase else {
            return false;
        };
        match loaded.history.iter().find(|turn| turn.number == number) {
            Some(turn) => turn.id == id,
            // It has left the buffer, or the dialogue.
            None => number <= loaded.dialogue.head_turn,
        }
    }

    fn reported(&mut self, turn_id: TurnId, report: JobReport, ctx: &mut Context<Self>) {
        let turn = report.turn;
        if !self.stands(turn_id, turn) {
            return;
        }
        if !report.memory.is_empty() {
            let facts = report.memory;
            self.log.publish(EventBody::MemoryUpdated { turn, facts }, None);
        }
        if !report.state.is_empty() {
            let changes = report.state;
            self.log.publish(EventBody::StateChanged { turn, changes }, None);
        }
        if report.summaries_changed {
            let Phase::Ready(loaded) = &self.phase else { return };
            let epoch = loaded.epoch;
            let buffer_min = self.node.ports.settings.summaries.buffer_min_turns;
            let read = load::summarised(Arc::clone(&self.node), self.key.clone());
            ctx.spawn(read.into_actor(self).map(move |read, session, _| {
                let loaded = match &mut session.phase {
                    // What was read before a move of the head may be gone, and is read anew after it.
                    Phase::Ready(loaded) if loaded.epoch == epoch => loaded,
                    _ => return,
                };
                match read {
                    Ok(summaries) => {
                        loaded.checkpoint.catch_up(&summaries, buffer_min);
                        loaded.summaries = Arc::new(summaries);
                        loaded.trim();
                    }
                    Err(error) => {
                        // The next one, or the next load, brings them.
                        tracing::warn!(dialogue = %session.key.1, %error, "summaries could not be read");
                    }
                }
            }));
        }
    }
}
