//! The time after a turn: the playback of the reply, and the scenarios that the turn unlocked.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};

use super::Session;
use crate::{
    DialogueError,
    messages::{JobEnded, ReplyHandle},
    running_turn::RunningTurn,
};
use colloquy_core::ids::TurnId;
use colloquy_dialogue::{jobs::JobReport, knowledge::scenarios::UnlockTrigger};
use colloquy_memory::turn::{Turn, TurnStatus};
use colloquy_ports::ledger::dialogues::Playback;

impl Session {
    /// Handles a turn that was played to the end: the jobs that waited for the playback become due. An earlier turn has
    /// no such jobs, because the following line has ended the wait.
    pub(super) fn on_played(&mut self, turn: u32, reply: ReplyHandle<()>, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        let head_turn = loaded.dialogue.head_turn;
        let replying = self.log.replying_turn() == Some(turn);
        let awaits_commit = |running: &&mut RunningTurn| running.number == turn && !replying;
        if let Some(running) = self.running.as_mut().filter(awaits_commit) {
            // The reply has ended and is about to be committed.
            running.played = true;
            return reply.answer(Ok(()));
        }
        if turn == 0 || turn > head_turn {
            return reply.answer(Err(DialogueError::NoSuchTurn { turn, head_turn }));
        }
        if turn == head_turn && self.kind.awaits_playback {
            self.on_head_heard(ctx);
        } else if turn == head_turn {
            self.on_loaded_head_heard(ctx);
        }
        reply.answer(Ok(()));
    }

    /// Starts to track the playback of a new last turn. With `playback: ack`, learning starts when the client has heard
    /// the turn. After the longest playback time, the turn counts as heard without an acknowledgement. The heard length
    /// of a cut reply is known already.
    pub(super) fn track_head_playback(&mut self, was_cut: bool, ctx: &mut Context<Self>) {
        self.stop_tracking_playback(ctx);
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        let by_ack = loaded.dialogue.options.playback == Playback::Ack;
        let Some(turn) = loaded.head.filter(|_| by_ack && !was_cut) else {
            return;
        };
        self.kind.awaits_playback = true;
        let longest = Duration::from_secs(self.node.ports.settings.turn.playback_timeout_s.into());
        self.kind.playback_timer = Some(ctx.run_later(longest, move |session, ctx| {
            session.kind.playback_timer = None;
            let is_last = session.state.loaded().is_some_and(|loaded| loaded.head == Some(turn));
            // After a restart, the jobs become due by themselves.
            if is_last && !session.rewinds.is_busy() {
                session.on_head_heard(ctx);
            }
        }));
    }

    /// Ends the wait for the playback of the last turn, after a rewind or a load. The ledger knows how long the jobs of
    /// the present last turn wait. The next line ends this wait, and so does the playback of a reply that was never
    /// cut. A client that cuts, resumes and acknowledges a reply in turn would otherwise start the same jobs again and
    /// again.
    pub(super) fn stop_tracking_playback(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.kind.playback_timer.take() {
            ctx.cancel_future(timer);
        }
        self.kind.awaits_playback = false;
    }

    /// Counts the last turn as heard. The waiting jobs become due, and the next turn waits for them as usual.
    pub(super) fn on_head_heard(&mut self, ctx: &mut Context<Self>) {
        let head = self.state.loaded().and_then(|loaded| loaded.head);
        if let Some(turn) = head.filter(|_| std::mem::take(&mut self.kind.awaits_playback)) {
            self.memory.held_turn = Some(turn);
            self.release_held_jobs(ctx);
        }
    }

    /// Counts the last turn as heard, if a load found its jobs held. The jobs of a cut or resumed reply stay held: they
    /// wait for the next line.
    fn on_loaded_head_heard(&self, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        let by_ack = loaded.dialogue.options.playback == Playback::Ack;
        let is_held = |turn: &TurnId| by_ack && self.memory.held_turn == Some(*turn);
        let Some(head) = loaded.head.filter(is_held) else {
            return;
        };
        let number = loaded.dialogue.head_turn;
        let ports = self.node.ports.clone();
        let (scope, id) = self.key.clone();
        let reading = async move {
            let turn = ports.ledger.dialogues.load_turn(&scope, head);
            tokio::try_join!(turn, ports.ledger.rewinds.count_cuts(&scope, id, number))
        };
        ctx.spawn(reading.into_actor(self).map(move |rows, session, ctx| match rows {
            Ok((turn, cuts)) => {
                let was_cut =
                    cuts > 0 || turn.is_none_or(|keyed_turn| keyed_turn.turn.status == TurnStatus::Interrupted);
                let is_held = session.memory.held_turn == Some(head) && !session.rewinds.is_busy();
                if is_held && !was_cut {
                    session.release_held_jobs(ctx);
                }
            }
            // The jobs become due by themselves.
            Err(error) => tracing::warn!(dialogue = %session.key.1, %error, "a played turn could not be read"),
        }));
    }

    /// Publishes the scenarios that a turn unlocked, after reading them. No turn waits for the read.
    pub(super) fn publish_unlocked(&self, turn: &Turn, unlocking: UnlockTrigger, ctx: &mut Context<Self>) {
        let node = Arc::clone(&self.node);
        let turn_id = turn.id;
        let number = turn.number;
        let reading = async move { node.use_cases.find_newly_unlocked(&unlocking).await };
        ctx.spawn(reading.into_actor(self).map(move |unlocked, session, ctx| {
            let report = JobReport {
                turn: number,
                unlocked,
                ..JobReport::default()
            };
            let job_ended = JobEnded {
                turn_id,
                kind: None,
                report: Some(report),
            };
            session.handle(job_ended, ctx);
        }));
    }
}
