//! The lines of a conversation: the start of the next line, its speaker, and the work after a line.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use tokio::sync::oneshot;

use super::{ConversationPhase, NpcConversation, speaker_choice::SpeakerChoice};
use crate::{
    actors::{
        DialogueError,
        dialogue::{load, turn_input::next_turn_input},
        event_log::TurnEvents,
        memory_wait::MemoryWait,
        messages::{CuratorRequest, JobEnded, ReplyHandle},
        metrics::FencedWrite,
        participants::{ParticipantRecords, Participants},
        running_turn::{RunningTurn, TurnOutcome},
    },
    dialogue::{
        events::EventBody,
        jobs::JobReport,
        npc_conversation::{end_reason, max_turns, pause_after},
        turn::{CommittedTurn, CutRequester, TurnError, TurnInput, event_error},
    },
    ids::TurnId,
    memory::turn::TurnStatus,
};

/// Failed lines in a row before the conversation pauses.
const MAX_FAILURES_IN_A_ROW: u32 = 5;
const LONGEST_RETRY_PAUSE: Duration = Duration::from_mins(1);
/// Delay before the next try when the tenant's budget is used up.
const BUDGET_RETRY_PAUSE: Duration = Duration::from_mins(1);

/// Returns the pause after the given number of failures in a row.
pub(super) fn retry_pause(failures: u32) -> Duration {
    Duration::from_secs(1)
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(LONGEST_RETRY_PAUSE)
}

impl NpcConversation {
    /// Requests a line. Refused while another line is running or requested.
    pub(super) fn on_step(&mut self, ask: ReplyHandle<oneshot::Receiver<TurnOutcome>>, ctx: &mut Context<Self>) {
        if self.running.is_some() || !self.stepping.is_empty() {
            return ask.answer(Err(DialogueError::TurnInProgress {
                retry_after: self
                    .last_turn_took
                    .clamp(Duration::from_millis(200), Duration::from_secs(10)),
            }));
        }
        let (outcome, done) = oneshot::channel();
        self.stepping.push(outcome);
        ask.answer(Ok(done));
        self.start_next_if_idle(ctx);
    }

    /// Asks the running line to end at its present text. Of several requests, the smallest heard length decides.
    pub(super) fn cut_running_turn(&mut self, heard_chars: Option<usize>, by: Option<CutRequester>) {
        if let Some(running) = &self.running {
            running.request_cut(heard_chars, by);
        }
    }

    /// Starts the next line, or the next preparation, unless a line is running.
    pub(super) fn start_next_if_idle(&mut self, ctx: &mut Context<Self>) {
        if self.running.is_some() || self.rewinds.is_busy() || matches!(self.phase, ConversationPhase::Loading) {
            return;
        }
        if self.rewinds.in_doubt {
            return self.start_loading(ctx);
        }
        if self.reinstate_turn(ctx) {
            return;
        }
        self.resolve_pending_cuts(ctx);
        if self.rewinds.is_busy() {
            return;
        }
        if let Some(reply) = self.drained.take() {
            self.stepping.clear();
            // The draining caller may have given up.
            let _ = reply.send(self.drain_saw_turn);
            return;
        }
        if self.closing.is_some() {
            self.stepping.clear();
            return self.finish_closing(ctx);
        }
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return;
        };
        if loaded.closed || self.asleep || self.node.is_draining() || self.node.is_disabled(&self.key.0) {
            return self.stepping.clear();
        }
        let settings = &self.node.ports.settings.conversation;
        if let Some(reason) = end_reason(&loaded.dialogue, loaded.checkpoint.ended, settings) {
            // Until the reading time is over, or during a pause, the last line can still be cut and joined.
            let open = self.line_timer.is_some() || loaded.dialogue.options.paused;
            if open && self.stepping.is_empty() {
                self.memory.waiting_since = None;
                return;
            }
            return self.begin_closing(reason, None, ctx);
        }
        let asked = !self.stepping.is_empty() || (self.has_continuation() && !loaded.dialogue.options.paused);
        if !asked && (!self.paces_itself() || self.line_timer.is_some()) {
            self.memory.waiting_since = None;
            return;
        }
        let rows = loaded.participants.loaded_records();
        if self.memory.awaited_turn.is_some() {
            self.wait_for_memory(ctx);
        }
        match rows {
            None => self.read_participants(ctx),
            Some(rows) if self.memory.awaited_turn.is_none() => self.start_turn(&rows, ctx),
            Some(_) => {}
        }
    }

    /// Lets the next line wait, for a bounded time, until the facts of the last line are known.
    fn wait_for_memory(&mut self, ctx: &mut Context<Self>) {
        let longest = Duration::from_millis(self.node.ports.settings.turn.wait_for_memory_ms);
        if self.memory.begin_wait(self.now(), longest) {
            self.memory.timer = Some(ctx.run_later(longest, |talk, ctx| {
                talk.memory.give_up();
                talk.start_next_if_idle(ctx);
            }));
        }
    }

    fn read_participants(&mut self, ctx: &mut Context<Self>) {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return;
        };
        if std::mem::replace(&mut self.reading_participants, true) {
            return;
        }
        let (node, scope) = (Arc::clone(&self.node), self.key.0.clone());
        let dialogue = Arc::clone(&loaded.dialogue);
        let read = async move { Participants::read_all(&node, &scope, &dialogue.world, &dialogue.npcs).await };
        ctx.spawn(read.into_actor(self).map(|read, talk, ctx| {
            talk.reading_participants = false;
            match read {
                Ok(cast) => {
                    if let ConversationPhase::Ready(loaded) = &mut talk.phase {
                        loaded.participants = cast;
                    }
                    talk.start_next_if_idle(ctx);
                }
                Err(DialogueError::NoNpc(_)) => talk.begin_closing("npc_deleted", None, ctx),
                Err(DialogueError::NoWorld(_)) => talk.begin_closing("world_deleted", None, ctx),
                Err(error) => {
                    tracing::warn!(dialogue = %talk.key.1, %error, "the NPCs could not be read");
                    talk.stepping.clear();
                    talk.on_line_failed(ctx);
                }
            }
        }));
    }

    fn start_turn(&mut self, rows: &ParticipantRecords, ctx: &mut Context<Self>) {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let number = loaded.dialogue.head_turn + 1;
        let now = self.node.ports.clock.now();
        let goes_on = self
            .unfinished
            .take()
            .filter(|unfinished| unfinished.of.number == number && unfinished.until > now);
        let speaker = match &goes_on {
            Some(unfinished) => Some(unfinished.of.npc.clone()),
            None => match self.choose_speaker(rows, ctx) {
                SpeakerChoice::Known(speaker) => speaker,
                SpeakerChoice::Pending => return,
            },
        };
        let ConversationPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let Some(npc) = speaker.and_then(|npc| rows.npc(&npc)) else {
            // A dialogue names its NPCs, so a speaker always exists.
            return self.stepping.clear();
        };
        if let Some(rest) = self.line_timer.take() {
            ctx.cancel_future(rest);
        }
        let now = self.now();
        let last = number >= max_turns(&loaded.dialogue.options, &self.node.ports.settings.conversation);
        let scene = rows.build_scene(loaded.dialogue.options.topic.as_deref(), last);
        let mut input: TurnInput = next_turn_input(&self.node, &self.key.0, loaded, rows, npc, scene);
        input.continuation = goes_on.map(Arc::new);
        if let Some(timer) = self.memory.finish_wait(now, &mut input) {
            ctx.cancel_future(timer);
        }
        input.started_seq = self.log.publish_turn_started(number, input.npc.id.clone(), None);
        let feed = TurnEvents {
            log: Arc::clone(&self.log),
            re: None,
        };
        let waiters = std::mem::take(&mut self.stepping);
        let (running, line) = RunningTurn::begin_turn(&self.node, now, input, feed, waiters, &tracing::Span::none());
        self.running = Some(running);
        ctx.spawn(line.into_actor(self).map(|ended, talk, ctx| {
            // A cancelled line needs no further handling.
            if let Some(ended) = ended {
                talk.on_turn_ended(ended, ctx);
            }
        }));
    }

    pub(super) fn on_turn_ended(&mut self, ended: Result<CommittedTurn, TurnError>, ctx: &mut Context<Self>) {
        if self.rewinds.is_busy() {
            // The rewind decides whether the line stands.
            self.deferred_outcome = Some(ended);
            return;
        }
        let Some(running) = self.running.take() else { return };
        self.mark_used();
        self.last_turn_took = self.used.saturating_duration_since(running.started);
        match ended {
            Ok(committed) => self.on_turn_committed(committed, running, ctx),
            Err(error) => self.on_turn_failed(error, running, ctx),
        }
    }

    fn on_turn_committed(&mut self, committed: CommittedTurn, running: RunningTurn, ctx: &mut Context<Self>) {
        let ConversationPhase::Ready(loaded) = &mut self.phase else {
            return;
        };
        let CommittedTurn {
            turn,
            checkpoint,
            state,
            jobs,
            cut_keys,
            // No player took part.
            unlocking: _,
        } = committed;
        self.failures = 0;
        loaded.replacing = None;
        self.log.publish_committed(turn.number, turn.id, turn.npc.clone(), None);
        failpoint!("turn.told");
        let turn = Arc::new(turn);
        running.notify_waiters(&Ok(Arc::clone(&turn)));
        if !state.is_empty() {
            let body = EventBody::StateChanged {
                turn: turn.number,
                changes: state,
            };
            self.log.publish_event(body, None);
        }
        loaded.append_turn(&turn, checkpoint);
        self.memory.on_turn_committed(turn.id, &jobs);
        self.mark_cuts_committed(&turn, &cut_keys);
        match self
            .node
            .actors()
            .and_then(|actors| actors.curator(&self.key.0))
            .filter(|_| !jobs.is_empty())
        {
            Some(curator) => {
                // A curator that is just stopping leaves the jobs leased; the jobs are found again later.
                let node = Arc::clone(&self.node);
                let hand_over = async move { curator.send(&node.metrics, CuratorRequest::TakeJobs(jobs)).await };
                ctx.spawn(hand_over.into_actor(self).map(|_, _, _| ()));
            }
            None => self.memory = MemoryWait::default(),
        }
        if turn.status == TurnStatus::Completed {
            let pause = pause_after(&turn.reply_text, &self.node.ports.settings.conversation);
            self.schedule_next_line(pause, ctx);
        }
        self.start_next_if_idle(ctx);
    }

    fn on_turn_failed(&mut self, error: TurnError, running: RunningTurn, ctx: &mut Context<Self>) {
        tracing::info!(dialogue = %self.key.1, turn = running.number, %error, "a line was not committed");
        self.node.metrics.count_failed_turn(self.key.1, &error);
        self.log.publish_not_committed(&event_error(&error));
        if matches!(error, TurnError::Fenced) {
            self.node.metrics.count_fenced_write(FencedWrite::Line);
        }
        // Only the ledger knows the outcome of a commit with a lost answer, and the present owner.
        let doubtful = self.rewinds.in_doubt || error.is_doubtful();
        let cut = matches!(error, TurnError::CutBeforeReply);
        let over = error.over_budget().filter(|over| over.of.is_daily());
        if cut {
            self.mark_cuts_dropped(running.id);
        }
        running.notify_waiters(&Err(Arc::new(error)));
        if doubtful {
            self.start_loading(ctx);
        }
        if let Some(over) = over {
            // The conversation continues by itself on the next day or with a larger budget. An exhausted storage budget
            // counts as a failure instead.
            self.schedule_next_line(over.retry_after.min(BUDGET_RETRY_PAUSE), ctx);
            self.start_next_if_idle(ctx);
        } else if cut {
            self.start_next_if_idle(ctx);
        } else {
            self.on_line_failed(ctx);
        }
    }

    /// Handles a failed line. The delay before each retry grows; after a few failures the conversation pauses.
    pub(super) fn on_line_failed(&mut self, ctx: &mut Context<Self>) {
        self.failures += 1;
        self.schedule_next_line(retry_pause(self.failures), ctx);
        if self.failures >= MAX_FAILURES_IN_A_ROW
            && self.paces_itself()
            && matches!(self.phase, ConversationPhase::Ready(_))
        {
            self.set_paused(true, "failed", ctx, |_, _, _| {});
        }
        self.start_next_if_idle(ctx);
    }

    /// Delays the next self-paced line by `pause`.
    pub(super) fn schedule_next_line(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        if let Some(rest) = self.line_timer.take() {
            ctx.cancel_future(rest);
        }
        self.line_timer = Some(ctx.run_later(pause, |talk, ctx| {
            talk.line_timer = None;
            talk.start_next_if_idle(ctx);
        }));
    }

    // --- after a line ---

    pub(super) fn on_job_ended(&mut self, ended: JobEnded, ctx: &mut Context<Self>) {
        if let Some(kind) = ended.kind {
            self.memory.on_job_ended(ended.turn_id, kind);
        }
        if let Some(report) = ended.report {
            self.on_job_report(ended.turn_id, report, ctx);
        }
    }

    fn on_job_report(&mut self, turn_id: TurnId, report: JobReport, ctx: &mut Context<Self>) {
        let turn = report.turn;
        match &self.phase {
            ConversationPhase::Ready(loaded) if loaded.is_standing(turn_id, turn) => {}
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
        if report.summaries_changed {
            let read = load::reload_summaries(Arc::clone(&self.node), self.key.clone());
            let ConversationPhase::Ready(loaded) = &self.phase else {
                return;
            };
            let (epoch, buffer_min) = (loaded.epoch, self.node.ports.settings.summaries.buffer_min_turns);
            ctx.spawn(read.into_actor(self).map(move |read, talk, _| {
                let loaded = match &mut talk.phase {
                    // Summaries read before a rewind may be gone; the actor reads them again after the rewind.
                    ConversationPhase::Ready(loaded) if loaded.epoch == epoch => loaded,
                    _ => return,
                };
                match read {
                    Ok(summaries) => loaded.set_summaries(summaries, buffer_min),
                    // The next summary, or the next load, reads the summaries.
                    Err(error) => tracing::warn!(dialogue = %talk.key.1, %error, "summaries could not be read"),
                }
            }));
        }
    }
}
