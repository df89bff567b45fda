//! What follows a turn: its jobs report what they did.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{JobEnded, Phase, Session, load};
use crate::{
    actors::{SessionError, curator::JobsDue, handle::Ask, registry::send},
    dialogue::{events::EventBody, jobs::JobReport},
    ids::TurnId,
    ports::ledger::dialogues::Playback,
};

impl Session {
    /// The last turn was played to its end; an earlier one was heard when the next line came.
    pub(super) fn played(&mut self, turn: u32, ask: Ask<()>, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        let head_turn = loaded.dialogue.head_turn;
        if turn == 0 || turn > head_turn {
            return ask.answer(Err(SessionError::NoSuchTurn { turn, head_turn }));
        }
        if turn == head_turn {
            self.heard_out(ctx);
        }
        ask.answer(Ok(()));
    }

    /// Another turn is the last one, or the same one again. What a client hears of its own accord is learned
    /// when it has been heard; once it would have been played it counts as heard, whatever the client says.
    /// Of a reply that was cut, it is known how much was.
    pub(super) fn head_is_new(&mut self, was_cut: bool, ctx: &mut Context<Self>) {
        if let Some(earlier) = self.hearing.take() {
            ctx.cancel_future(earlier);
        }
        let Phase::Ready(loaded) = &self.phase else { return };
        let by_ack = loaded.dialogue.options.playback == Playback::Ack;
        let Some(turn) = loaded.head.filter(|_| by_ack && !was_cut) else {
            self.unheard = false;
            return;
        };
        self.unheard = true;
        let longest = Duration::from_secs(self.node.ports.settings.turn.playback_timeout_s.into());
        self.hearing = Some(ctx.run_later(longest, move |session, ctx| {
            session.hearing = None;
            let is_last = matches!(&session.phase, Phase::Ready(loaded) if loaded.head == Some(turn));
            // After a restart, the jobs are found when they are due.
            if is_last && !session.moving.is_busy() {
                session.heard_out(ctx);
            }
        }));
    }

    /// The last turn counts as heard: what waited for that is learned now, and the next turn waits for it
    /// as for any other.
    pub(super) fn heard_out(&mut self, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        if !std::mem::take(&mut self.unheard) || loaded.head.is_none() {
            return;
        }
        let head = loaded.head;
        // What is being learned from it already is waited for in any case.
        let was_awaited = self.memory.of == head;
        self.memory.of = head;
        let (node, (scope, id)) = (Arc::clone(&self.node), self.key.clone());
        let due = async move {
            let due = node
                .ports
                .ledger
                .jobs
                .make_due(&scope, id, node.ports.clock.now())
                .await;
            if let (Ok(1..), Some(curator)) = (&due, node.curator(&scope)) {
                // A curator that stops just now leaves the jobs to the next one.
                let _ = send(&curator, JobsDue).await;
            }
            due
        };
        ctx.spawn(due.into_actor(self).map(move |due, session, ctx| match due {
            Ok(0) if !was_awaited && session.memory.of == head => {
                session.memory.of = None;
                session.advance(ctx);
            }
            Ok(_) => {}
            // They become due by themselves.
            Err(error) => tracing::warn!(dialogue = %session.key.1, %error, "jobs could not be made due"),
        }));
    }

    pub(super) fn job_ended(&mut self, ended: JobEnded, ctx: &mut Context<Self>) {
        self.memory.ended(ended.turn_id, ended.kind);
        if let Some(report) = ended.report {
            self.reported(ended.turn_id, report, ctx);
        }
        self.advance(ctx);
    }

    fn reported(&mut self, turn_id: TurnId, report: JobReport, ctx: &mut Context<Self>) {
        let turn = report.turn;
        match &self.phase {
            Phase::Ready(loaded) if loaded.stands(turn_id, turn) => {}
            _ => return,
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
                    Ok(summaries) => loaded.keep_summaries(summaries, buffer_min),
                    Err(error) => {
                        // The next one, or the next load, brings them.
                        tracing::warn!(dialogue = %session.key.1, %error, "summaries could not be read");
                    }
                }
            }));
        }
    }
}
