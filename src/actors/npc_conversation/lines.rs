//! The lines of a conversation: when the next one begins, who says it, and what follows it.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use tokio::sync::oneshot;

use super::{NpcConversation, Phase, choosing::Speaker, load};
use crate::{
    actors::{
        SessionError,
        cast::{Cast, Rows},
        curator::TakeOn,
        event_log::TurnEvents,
        handle::Ask,
        mailbox::send,
        memory_wait::MemoryWait,
        meters::FencedWrite,
        running::{Outcome, Running},
        session::{JobEnded, next_turn},
    },
    dialogue::{
        events::EventBody,
        jobs::JobReport,
        npc_conversation::{is_over, max_turns, pause_after},
        turn::{CommittedTurn, CutBy, TurnError, TurnInput, event_error},
    },
    ids::TurnId,
    memory::turn::TurnStatus,
};

/// Lines that may fail one after another before it is paused.
const MOST_FAILURES: u32 = 5;
const LONGEST_RETRY: Duration = Duration::from_mins(1);
/// How soon it tries again whose tenant has used up its budget.
const BUDGET_AGAIN: Duration = Duration::from_mins(1);

/// How long to wait after so many failures in a row.
pub(super) fn retry_pause(failures: u32) -> Duration {
    Duration::from_secs(1)
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(LONGEST_RETRY)
}

impl NpcConversation {
    /// Asks for a line now. Refused while one is being said.
    pub(super) fn step(&mut self, ask: Ask<oneshot::Receiver<Outcome>>, ctx: &mut Context<Self>) {
        if self.running.is_some() || !self.stepping.is_empty() {
            return ask.answer(Err(SessionError::TurnInProgress {
                retry_after: self
                    .last_line
                    .clamp(Duration::from_millis(200), Duration::from_secs(10)),
            }));
        }
        let (outcome, done) = oneshot::channel();
        self.stepping.push(outcome);
        ask.answer(Ok(done));
        self.advance(ctx);
    }

    /// Asks the running line to end where it is. Of several, whoever heard least decides.
    pub(super) fn cut(&mut self, heard_chars: Option<usize>, by: Option<CutBy>) {
        if let Some(running) = &self.running {
            running.cut(heard_chars, by);
        }
    }

    /// Starts the next line, or whatever has to happen before it, unless one is being said.
    pub(super) fn advance(&mut self, ctx: &mut Context<Self>) {
        if self.running.is_some() || self.moving.is_busy() || matches!(self.phase, Phase::Loading) {
            return;
        }
        if self.moving.in_doubt {
            return self.load(ctx);
        }
        if self.put_back(ctx) {
            return;
        }
        self.settle(ctx);
        if self.moving.is_busy() {
            return;
        }
        if let Some(reply) = self.drained.take() {
            self.stepping.clear();
            // Whoever drains may have given up.
            let _ = reply.send(self.drain_saw_line);
            return;
        }
        if self.ending.is_some() {
            self.stepping.clear();
            return self.finish_ending(ctx);
        }
        let Phase::Ready(loaded) = &self.phase else { return };
        if loaded.closed || self.asleep || self.node.is_draining() || self.node.is_disabled(&self.key.0) {
            return self.stepping.clear();
        }
        let settings = &self.node.ports.settings.conversation;
        if let Some(reason) = is_over(&loaded.dialogue, loaded.checkpoint.ended, settings) {
            // Until the last line can have been read, or while somebody has cut in, it can be cut and joined.
            let open = self.rest.is_some() || loaded.dialogue.options.paused;
            if open && self.stepping.is_empty() {
                self.memory.since = None;
                return;
            }
            return self.end(reason, None, ctx);
        }
        let asked = !self.stepping.is_empty() || (self.goes_on() && !loaded.dialogue.options.paused);
        if !asked && (!self.paces_itself() || self.rest.is_some()) {
            self.memory.since = None;
            return;
        }
        let rows = loaded.cast.rows();
        if self.memory.of.is_some() {
            self.wait_for_memory(ctx);
        }
        match rows {
            None => self.read_cast(ctx),
            Some(rows) if self.memory.of.is_none() => self.start(&rows, ctx),
            Some(_) => {}
        }
    }

    /// Lets the next line wait, for a bounded time, until what the last one taught is known.
    fn wait_for_memory(&mut self, ctx: &mut Context<Self>) {
        let longest = Duration::from_millis(self.node.ports.settings.turn.wait_for_memory_ms);
        if self.memory.begin(self.now(), longest) {
            self.memory.timer = Some(ctx.run_later(longest, |talk, ctx| {
                talk.memory.give_up();
                talk.advance(ctx);
            }));
        }
    }

    fn read_cast(&mut self, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        if std::mem::replace(&mut self.reading_cast, true) {
            return;
        }
        let (node, scope) = (Arc::clone(&self.node), self.key.0.clone());
        let dialogue = Arc::clone(&loaded.dialogue);
        let read = async move { Cast::read(&node, &scope, &dialogue.world, &dialogue.npcs).await };
        ctx.spawn(read.into_actor(self).map(|read, talk, ctx| {
            talk.reading_cast = false;
            match read {
                Ok(cast) => {
                    if let Phase::Ready(loaded) = &mut talk.phase {
                        loaded.cast = cast;
                    }
                    talk.advance(ctx);
                }
                Err(SessionError::NoNpc(_)) => talk.end("npc_deleted", None, ctx),
                Err(SessionError::NoWorld(_)) => talk.end("world_deleted", None, ctx),
                Err(error) => {
                    tracing::warn!(dialogue = %talk.key.1, %error, "the NPCs could not be read");
                    talk.stepping.clear();
                    talk.failed(ctx);
                }
            }
        }));
    }

    fn start(&mut self, rows: &Rows, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        let number = loaded.dialogue.head_turn + 1;
        let now = self.node.ports.clock.now();
        let goes_on = self
            .unfinished
            .take()
            .filter(|unfinished| unfinished.of.number == number && unfinished.until > now);
        let speaker = match &goes_on {
            Some(unfinished) => Some(unfinished.of.npc.clone()),
            None => match self.speaker(rows, ctx) {
                Speaker::Known(speaker) => speaker,
                Speaker::Asked => return,
            },
        };
        let Phase::Ready(loaded) = &self.phase else { return };
        let Some(npc) = speaker.and_then(|npc| rows.npc(&npc)) else {
            // A dialogue names its NPCs, so there is always one.
            return self.stepping.clear();
        };
        if let Some(rest) = self.rest.take() {
            ctx.cancel_future(rest);
        }
        let now = self.now();
        let last = number >= max_turns(&loaded.dialogue.options, &self.node.ports.settings.conversation);
        let scene = rows.scene(loaded.dialogue.options.topic.as_deref(), last);
        let mut input: TurnInput = next_turn(&self.node, &self.key.0, loaded, rows, npc, scene);
        input.goes_on = goes_on.map(Arc::new);
        if let Some(timer) = self.memory.over(now, &mut input) {
            ctx.cancel_future(timer);
        }
        input.started_seq = self.log.turn_started(number, input.npc.id.clone(), None);
        let feed = TurnEvents {
            log: Arc::clone(&self.log),
            re: None,
        };
        let waiters = std::mem::take(&mut self.stepping);
        let (running, line) = Running::begin(&self.node, now, input, feed, waiters, &tracing::Span::none());
        self.running = Some(running);
        ctx.spawn(line.into_actor(self).map(|ended, talk, ctx| {
            // One that was let go is not there any more.
            if let Some(ended) = ended {
                talk.ended(ended, ctx);
            }
        }));
    }

    pub(super) fn ended(&mut self, ended: Result<CommittedTurn, TurnError>, ctx: &mut Context<Self>) {
        if self.moving.is_busy() {
            // Whether it stands, the move decides.
            self.ended_meanwhile = Some(ended);
            return;
        }
        let Some(running) = self.running.take() else { return };
        self.touch();
        self.last_line = self.used.saturating_duration_since(running.started);
        match ended {
            Ok(committed) => self.committed(committed, running, ctx),
            Err(error) => self.not_committed(error, running, ctx),
        }
    }

    fn committed(&mut self, committed: CommittedTurn, running: Running, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &mut self.phase else { return };
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
        self.log.committed(turn.number, turn.id, turn.npc.clone(), None);
        failpoint!("turn.told");
        let turn = Arc::new(turn);
        running.tell(&Ok(Arc::clone(&turn)));
        if !state.is_empty() {
            let body = EventBody::StateChanged {
                turn: turn.number,
                changes: state,
            };
            self.log.publish(body, None);
        }
        loaded.keep_turn(&turn, checkpoint);
        self.memory.committed(turn.id, &jobs);
        self.line_is_committed(&turn, &cut_keys);
        match self.node.curator(&self.key.0).filter(|_| !jobs.is_empty()) {
            Some(curator) => {
                // A curator that stops just now leaves the jobs leased; they are found again later.
                let node = Arc::clone(&self.node);
                let hand_over = async move { send(&node, &curator, TakeOn { jobs }).await };
                ctx.spawn(hand_over.into_actor(self).map(|_, _, _| ()));
            }
            None => self.memory = MemoryWait::default(),
        }
        if turn.status == TurnStatus::Completed {
            let pause = pause_after(&turn.reply_text, &self.node.ports.settings.conversation);
            self.rest_for(pause, ctx);
        }
        self.advance(ctx);
    }

    fn not_committed(&mut self, error: TurnError, running: Running, ctx: &mut Context<Self>) {
        tracing::info!(dialogue = %self.key.1, turn = running.number, %error, "a line was not committed");
        self.node.meters.not_committed(self.key.1, &error);
        self.log.not_committed(&event_error(&error));
        if matches!(error, TurnError::Fenced) {
            self.node.meters.fenced(FencedWrite::Line);
        }
        // What became of a commit whose answer was lost, and who owns the dialogue now, only the ledger knows.
        let doubtful = self.moving.in_doubt || error.is_doubtful();
        let cut = matches!(error, TurnError::CutBeforeReply);
        let over = error.over_budget().filter(|over| over.of.is_of_a_day());
        if cut {
            self.line_is_dropped(running.id);
        }
        running.tell(&Err(Arc::new(error)));
        if doubtful {
            self.load(ctx);
        }
        if let Some(over) = over {
            // It goes on by itself with the next day, or with a larger budget. Where nothing more may be stored it fails.
            self.rest_for(over.retry_after.min(BUDGET_AGAIN), ctx);
            self.advance(ctx);
        } else if cut {
            self.advance(ctx);
        } else {
            self.failed(ctx);
        }
    }

    /// A line came to nothing: the next try waits longer each time, and after a few it is paused.
    pub(super) fn failed(&mut self, ctx: &mut Context<Self>) {
        self.failures += 1;
        self.rest_for(retry_pause(self.failures), ctx);
        if self.failures >= MOST_FAILURES && self.paces_itself() && matches!(self.phase, Phase::Ready(_)) {
            self.set_paused(true, "failed", ctx, |_, _, _| {});
        }
        self.advance(ctx);
    }

    /// Says nothing by itself for so long.
    pub(super) fn rest_for(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        if let Some(rest) = self.rest.take() {
            ctx.cancel_future(rest);
        }
        self.rest = Some(ctx.run_later(pause, |talk, ctx| {
            talk.rest = None;
            talk.advance(ctx);
        }));
    }

    // --- after a line ---

    pub(super) fn job_ended(&mut self, ended: JobEnded, ctx: &mut Context<Self>) {
        if let Some(kind) = ended.kind {
            self.memory.ended(ended.turn_id, kind);
        }
        if let Some(report) = ended.report {
            self.reported(ended.turn_id, report, ctx);
        }
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
            let read = load::summarised(Arc::clone(&self.node), self.key.clone());
            let Phase::Ready(loaded) = &self.phase else { return };
            let (epoch, buffer_min) = (loaded.epoch, self.node.ports.settings.summaries.buffer_min_turns);
            ctx.spawn(read.into_actor(self).map(move |read, talk, _| {
                let loaded = match &mut talk.phase {
                    // What was read before a move of the head may be gone, and is read anew after it.
                    Phase::Ready(loaded) if loaded.epoch == epoch => loaded,
                    _ => return,
                };
                match read {
                    Ok(summaries) => loaded.keep_summaries(summaries, buffer_min),
                    // The next one, or the next load, brings them.
                    Err(error) => tracing::warn!(dialogue = %talk.key.1, %error, "summaries could not be read"),
                }
            }));
        }
    }
}
