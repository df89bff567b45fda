//! The lines of a conversation: the start of the next line, its speaker, and its pace.

use std::{sync::Arc, time::Duration};

use actix::{AsyncContext, Context};
use tokio::sync::oneshot;
use tracing::Span;

use super::{NpcConversation, speaker_choice::SpeakerChoice};
use crate::{
    DialogueError,
    dialogue::{turn_input::next_turn_input, turns::TurnCallers},
    messages::ReplyHandle,
    participants::ParticipantRecords,
    running_turn::TurnOutcome,
};
use colloquy_dialogue::{
    npc_conversation::{end_reason, max_turns},
    turn::TurnError,
};

/// Failed lines in a row before the conversation pauses.
const MAX_FAILURES_IN_A_ROW: u32 = 5;
const LONGEST_RETRY_PAUSE: Duration = Duration::from_mins(1);
/// Delay before the next try when the tenant's budget is used up.
pub(super) const BUDGET_RETRY_PAUSE: Duration = Duration::from_mins(1);

/// Returns the pause after the given number of failures in a row.
pub(super) fn retry_pause(failures: u32) -> Duration {
    Duration::from_secs(1)
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(LONGEST_RETRY_PAUSE)
}

impl NpcConversation {
    /// Requests a line. Refused while another line is running or requested.
    pub(super) fn on_step(&mut self, reply: ReplyHandle<oneshot::Receiver<TurnOutcome>>, ctx: &mut Context<Self>) {
        if self.running.is_some() || !self.kind.stepping.is_empty() {
            return reply.answer(Err(DialogueError::TurnInProgress {
                retry_after: self
                    .last_turn_took
                    .clamp(Duration::from_millis(200), Duration::from_secs(10)),
            }));
        }
        let (sender, receiver) = oneshot::channel();
        self.kind.stepping.push(sender);
        reply.answer(Ok(receiver));
        self.run_next_steps(ctx);
    }

    /// Starts the next line, or a preparation of the next line, if a line is due or requested.
    pub(super) fn start_next_line(&mut self, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        if loaded.closed || self.kind.asleep || self.node.is_draining() || self.node.is_disabled(&self.key.0) {
            return self.kind.stepping.clear();
        }
        let settings = &self.node.ports.settings.conversation;
        if let Some(reason) = end_reason(&loaded.dialogue, loaded.checkpoint.has_ended, settings) {
            // Until the reading time is over, or during a pause, the last line can still be cut and joined.
            let open = self.kind.line_timer.is_some() || loaded.dialogue.options.paused;
            if open && self.kind.stepping.is_empty() {
                self.memory.abandon_wait();
                return;
            }
            return self.begin_closing(reason, None, ctx);
        }
        let requested = !self.kind.stepping.is_empty() || (self.has_continuation() && !loaded.dialogue.options.paused);
        if !requested && (!self.paces_itself() || self.kind.line_timer.is_some()) {
            self.memory.abandon_wait();
            return;
        }
        let records = loaded.participants.loaded_records();
        self.release_held_jobs(ctx);
        let waits = self.wait_for_memory(ctx);
        match records {
            None => self.read_participants(ctx),
            Some(records) if !waits => self.say_next_line(&records, ctx),
            Some(_) => {}
        }
    }

    fn say_next_line(&mut self, records: &ParticipantRecords, ctx: &mut Context<Self>) {
        let number = self.head_turn() + 1;
        let now = self.node.ports.clock.now();
        let continuation = self
            .kind
            .unfinished
            .take()
            .filter(|unfinished| unfinished.turn.number == number && unfinished.until > now);
        let speaker = match &continuation {
            Some(unfinished) => Some(unfinished.turn.npc.clone()),
            None => match self.choose_speaker(records, ctx) {
                SpeakerChoice::Known(speaker) => speaker,
                SpeakerChoice::Pending => return,
            },
        };
        let Some(speaker) = speaker else {
            let turn_error = Arc::new(TurnError::NpcDead);
            for caller in self.kind.stepping.drain(..) {
                let _ = caller.send(Err(Arc::clone(&turn_error)));
            }
            return self.begin_closing("npc_dead", None, ctx);
        };
        let (Some(loaded), Some(npc)) = (self.state.loaded(), records.npc(&speaker)) else {
            // A dialogue names its NPCs, so the record always exists.
            return self.kind.stepping.clear();
        };
        let last = number >= max_turns(&loaded.dialogue.options, &self.node.ports.settings.conversation);
        let scene = records.build_scene(loaded.dialogue.options.topic.as_deref(), last);
        let mut input = next_turn_input(&self.node, &self.key.0, loaded, records, npc, scene);
        input.continuation = continuation.map(Arc::new);
        // The player also pays for lines that were taken back and are said again.
        input.charged_player = if number < self.kind.highest_line {
            self.kind.resumed_by.clone()
        } else {
            self.kind.resumed_by.take()
        };
        if let Some(timer) = self.kind.line_timer.take() {
            ctx.cancel_future(timer);
        }
        let callers = TurnCallers {
            key: None,
            waiters: std::mem::take(&mut self.kind.stepping),
            re: None,
            span: Span::none(),
        };
        self.start_turn(input, callers, ctx);
    }

    /// Handles a failed line. The delay before each retry grows; after a few failures the conversation pauses.
    pub(super) fn on_line_failed(&mut self, ctx: &mut Context<Self>) {
        self.kind.failures += 1;
        self.schedule_next_line(retry_pause(self.kind.failures), ctx);
        if self.kind.failures >= MAX_FAILURES_IN_A_ROW && self.paces_itself() {
            self.set_paused(true, "failed", ctx, |_, _, _| {});
        }
    }

    /// Delays the next self-paced line by `pause`.
    pub(super) fn schedule_next_line(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        if let Some(timer) = self.kind.line_timer.take() {
            ctx.cancel_future(timer);
        }
        self.kind.line_timer = Some(ctx.run_later(pause, |talk, ctx| {
            talk.kind.line_timer = None;
            talk.run_next_steps(ctx);
        }));
    }
}
