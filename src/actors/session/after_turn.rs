//! The time after a turn: playback, and the reports of the turn's jobs.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};

use super::{Session, SessionPhase};
use crate::{
    actors::{
        DialogueError,
        dialogue::load,
        messages::{CuratorRequest, DialogueKey, JobEnded, ReplyHandle},
        node::Node,
        running_turn::RunningTurn,
    },
    dialogue::{events::EventBody, jobs::JobReport, scenarios::UnlockTrigger},
    ids::TurnId,
    memory::turn::Turn,
    ports::ledger::dialogues::Playback,
};

impl Session {
    /// Handles a turn that was played to the end: the jobs that waited for the playback become due.
    pub(super) fn on_played(&mut self, turn: u32, ask: ReplyHandle<()>, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let head_turn = loaded.dialogue.head_turn;
        let replying = self.log.replying_turn() == Some(turn);
        let said = |running: &&mut RunningTurn| running.number == turn && !replying;
        if let Some(running) = self.running.as_mut().filter(said) {
            // The reply has ended and is about to be committed.
            running.played = true;
            return ask.answer(Ok(()));
        }
        if turn == 0 || turn > head_turn {
            return ask.answer(Err(DialogueError::NoSuchTurn { turn, head_turn }));
        }
        let earlier = loaded.history.iter().find(|said| said.number == turn);
        match earlier.map(|said| said.id).filter(|_| turn < head_turn) {
            // The following line has ended the wait already, unless the ledger did not answer.
            Some(id) if loaded.dialogue.options.playback == Playback::Ack => {
                let due = make_jobs_due(Arc::clone(&self.node), self.key.clone(), id);
                ctx.spawn(due.into_actor(self).map(|_, _, _| ()));
            }
            _ if turn == head_turn => self.on_head_heard(ctx),
            _ => {}
        }
        ask.answer(Ok(()));
    }

    /// Starts to track the playback of a new last turn, or of the same turn again. With `playback: ack`, learning
    /// starts when the client has heard the turn. After the longest playback time, the turn counts as heard without an
    /// acknowledgement. The heard length of a cut reply is known already.
    pub(super) fn track_head_playback(&mut self, was_cut: bool, ctx: &mut Context<Self>) {
        if let Some(earlier) = self.playback_timer.take() {
            ctx.cancel_future(earlier);
        }
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let by_ack = loaded.dialogue.options.playback == Playback::Ack;
        let Some(turn) = loaded.head.filter(|_| by_ack && !was_cut) else {
            self.awaits_playback = false;
            return;
        };
        self.awaits_playback = true;
        let longest = Duration::from_secs(self.node.ports.settings.turn.playback_timeout_s.into());
        self.playback_timer = Some(ctx.run_later(longest, move |session, ctx| {
            session.playback_timer = None;
            let is_last = matches!(&session.phase, SessionPhase::Ready(loaded) if loaded.head == Some(turn));
            // After a restart, the jobs become due by themselves.
            if is_last && !session.rewinds.is_busy() {
                session.on_head_heard(ctx);
            }
        }));
    }

    /// Counts the last turn as heard. The waiting jobs become due, and the next turn waits for them as usual.
    pub(super) fn on_head_heard(&mut self, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let head = loaded.head;
        let Some(turn) = head.filter(|_| std::mem::take(&mut self.awaits_playback)) else {
            return;
        };
        // The next turn waits for extractions that already run in any case.
        let was_awaited = self.memory.awaited_turn == head;
        self.memory.awaited_turn = head;
        let due = make_jobs_due(Arc::clone(&self.node), self.key.clone(), turn);
        ctx.spawn(due.into_actor(self).map(move |due, session, ctx| {
            if due == Some(0) && !was_awaited && session.memory.awaited_turn == head {
                session.memory.awaited_turn = None;
                session.start_next_if_idle(ctx);
            }
        }));
    }

    pub(super) fn on_job_ended(&mut self, ended: JobEnded, ctx: &mut Context<Self>) {
        if let Some(kind) = ended.kind {
            self.memory.on_job_ended(ended.turn_id, kind);
        }
        if let Some(report) = ended.report {
            self.on_job_report(ended.turn_id, report, ctx);
        }
        self.start_next_if_idle(ctx);
    }

    /// Publishes the scenarios that a turn unlocked, after reading them. No turn waits for the read.
    pub(super) fn publish_unlocked(&self, turn: &Turn, unlocking: UnlockTrigger, ctx: &mut Context<Self>) {
        let (node, turn_id, number) = (Arc::clone(&self.node), turn.id, turn.number);
        let reading = async move { node.use_cases.find_newly_unlocked(&unlocking).await };
        ctx.spawn(reading.into_actor(self).map(move |unlocked, session, ctx| {
            let report = JobReport {
                turn: number,
                unlocked,
                ..JobReport::default()
            };
            let read = JobEnded {
                turn_id,
                kind: None,
                report: Some(report),
            };
            session.handle(read, ctx);
        }));
    }

    fn on_job_report(&mut self, turn_id: TurnId, report: JobReport, ctx: &mut Context<Self>) {
        let turn = report.turn;
        match &self.phase {
            SessionPhase::Ready(loaded) if loaded.is_standing(turn_id, turn) => {}
            _ => return,
        }
        if !report.memory.is_empty() {
            let facts = report.memory;
            self.log.publish_event(EventBody::MemoryUpdated { turn, facts }, None);
        }
        if !report.state.is_empty() {
            let changes = report.state;
            self.log.publish_event(EventBody::StateChanged { turn, changes }, None);
        }
        for body in EventBody::scenarios_unlocked(turn, report.unlocked) {
            self.log.publish_event(body, None);
        }
        if report.summaries_changed {
            let SessionPhase::Ready(loaded) = &self.phase else {
                return;
            };
            let epoch = loaded.epoch;
            let buffer_min = self.node.ports.settings.summaries.buffer_min_turns;
            let read = load::reload_summaries(Arc::clone(&self.node), self.key.clone());
            ctx.spawn(read.into_actor(self).map(move |read, session, _| {
                let loaded = match &mut session.phase {
                    // Summaries read before a rewind may be gone; the actor reads them again after the rewind.
                    SessionPhase::Ready(loaded) if loaded.epoch == epoch => loaded,
                    _ => return,
                };
                match read {
                    Ok(summaries) => loaded.set_summaries(summaries, buffer_min),
                    Err(error) => {
                        // The next summary, or the next load, reads the summaries.
                        tracing::warn!(dialogue = %session.key.1, %error, "summaries could not be read");
                    }
                }
            }));
        }
    }
}

/// Makes the jobs due that waited until a turn was heard. Returns the number of jobs; `None`: the ledger did not
/// answer, and the jobs become due by themselves.
async fn make_jobs_due(node: Arc<Node>, (scope, id): DialogueKey, turn: TurnId) -> Option<u64> {
    let jobs = &node.ports.ledger.jobs;
    match jobs.make_due(&scope, id, turn, node.ports.clock.now()).await {
        Ok(due) => {
            if due > 0
                && let Some(curator) = node.actors().and_then(|actors| actors.curator(&scope))
            {
                // A curator that is just stopping leaves the jobs to the next curator.
                let _ = curator.send(&node.metrics, CuratorRequest::JobsDue).await;
            }
            Some(due)
        }
        Err(error) => {
            tracing::warn!(dialogue = %id, %error, "jobs could not be made due");
            None
        }
    }
}
