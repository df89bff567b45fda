//! The running turn of a dialogue: the start, the end, and the reports of the turn's jobs.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use tokio::sync::oneshot;
use tracing::Span;

use super::{
    actor::DialogueActor,
    decisions::Activity,
    due_jobs::make_jobs_due,
    kind::{CommitSummary, DialogueBehaviour},
};
use crate::{
    DialogueError,
    event_log::TurnEvents,
    memory_wait::WaitLimit,
    messages::{CuratorRequest, JobEnded},
    participants::Participants,
    running_turn::{KeyedLine, RunningTurn, TurnOutcome},
};
use colloquy_core::ids::TurnId;
use colloquy_dialogue::{
    events::EventBody,
    jobs::JobReport,
    turn::{CommittedTurn, TurnError, TurnInput, event_error},
};
use colloquy_memory::{keywords, trace::MemoryWaitReason};
use colloquy_ports::ledger::jobs::{Job, JobKind};

/// The callers of a turn that is about to start, and the context of their request.
pub(crate) struct TurnCallers {
    /// Identifies a repeated request. A line between NPCs has no key.
    pub key: Option<KeyedLine>,
    pub waiters: Vec<oneshot::Sender<TurnOutcome>>,
    /// The client's message that the turn's events answer.
    pub re: Option<Arc<str>>,
    /// The tracing span of the request.
    pub span: Span,
}

impl<K: DialogueBehaviour> DialogueActor<K> {
    // --- before a turn ---

    /// Reads the records of the participants, unless a read is running.
    pub fn read_participants(&mut self, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        let dialogue = Arc::clone(&loaded.dialogue);
        if std::mem::replace(&mut self.reading_participants, true) {
            return;
        }
        let node = Arc::clone(&self.node);
        let scope = self.key.0.clone();
        let reading = async move { Participants::read_all(&node, &scope, &dialogue.world, &dialogue.npcs).await };
        ctx.spawn(reading.into_actor(self).map(|participants, actor, ctx| {
            actor.reading_participants = false;
            match participants {
                Ok(participants) => {
                    if let Some(loaded) = actor.state.loaded_mut() {
                        loaded.participants = participants;
                    }
                }
                Err(DialogueError::NoNpc(_)) => return actor.begin_closing("npc_deleted", None, ctx),
                Err(DialogueError::NoWorld(_)) => return actor.begin_closing("world_deleted", None, ctx),
                Err(error) => {
                    tracing::warn!(dialogue = %actor.key.1, %error, "the participants could not be read");
                    K::on_participants_failed(actor, &error, ctx);
                }
            }
            actor.run_next_steps(ctx);
        }));
    }

    /// Makes the held jobs of the last turn due, because a line follows. The next turn waits for them as usual.
    pub fn release_held_jobs(&mut self, ctx: &mut Context<Self>) {
        let Some(turn) = self.memory.held_turn.take() else {
            return;
        };
        // The next turn waits for extractions that already run in any case.
        let was_awaited = self.memory.awaited_turn == Some(turn);
        self.memory.expect_turn(turn);
        let due = make_jobs_due(Arc::clone(&self.node), self.key.clone(), turn);
        ctx.spawn(due.into_actor(self).map(move |due, actor, ctx| {
            // A turn without an extraction may have other jobs.
            let has_extraction = due.is_none_or(|kinds| kinds.contains(&JobKind::ExtractFacts));
            if !has_extraction && !was_awaited && actor.memory.awaited_turn == Some(turn) {
                actor.memory.awaited_turn = None;
                actor.run_next_steps(ctx);
            }
        }));
    }

    /// Lets the next turn wait, for a bounded time, until the facts of the last turn are known. `false`: the turn need
    /// not wait.
    pub fn wait_for_memory(&mut self, ctx: &mut Context<Self>) -> bool {
        if self.memory.awaited_turn.is_none() {
            return false;
        }
        let now = self.now();
        let since = self.memory.begin_wait(now);
        if self.memory.is_limited() {
            return true;
        }
        // Until the participants are read, no turn can start anyway.
        let Some(limit) = self.memory_wait_limit() else {
            return true;
        };
        if self.memory.limit_wait(now, limit) {
            let timer = ctx.run_later(limit.longest, move |actor, ctx| {
                actor.memory.give_up(since);
                actor.run_next_steps(ctx);
            });
            self.memory.set_timer(timer);
        }
        self.memory.awaited_turn.is_some()
    }

    /// Returns how long the next turn may wait for the facts of the last turn. `None`: the participants are not read.
    fn memory_wait_limit(&self) -> Option<WaitLimit> {
        let loaded = self.state.loaded()?;
        let records = loaded.participants.loaded_records()?;
        let settings = &self.node.ports.settings.turn;
        let any_line = WaitLimit {
            longest: Duration::from_millis(settings.wait_for_memory_ms),
            reason: MemoryWaitReason::AnyLine,
        };
        let (Some(line), Some(last)) = (K::next_line(self), loaded.history.last()) else {
            return Some(any_line);
        };
        let world = records
            .world_of(&loaded.npc)
            .for_session(loaded.dialogue.options.settings.as_deref());
        let longest = world.settings.longest_wait_for_memory_ms;
        let longest = Duration::from_millis(longest.map_or(settings.longest_wait_for_memory_ms, u64::from));
        let line = match records.npc(&loaded.npc) {
            Some(npc) => keywords::without_listener_name(line, &npc.name),
            None => line.to_owned(),
        };
        let points = longest > any_line.longest && keywords::points_at(&line, &[&last.player_text, &last.reply_text]);
        Some(if points {
            WaitLimit {
                longest,
                reason: MemoryWaitReason::PointsAtLastTurn,
            }
        } else {
            any_line
        })
    }

    /// Starts a turn with `input`.
    pub fn start_turn(&mut self, mut input: TurnInput, callers: TurnCallers, ctx: &mut Context<Self>) {
        debug_assert!(self.running.is_none(), "one turn runs at a time");
        debug_assert!(
            self.state.activity() == Activity::Ready,
            "a turn starts in a dialogue that is in memory"
        );
        let now = self.now();
        if let Some(timer) = self.memory.finish_wait(now, &mut input) {
            ctx.cancel_future(timer);
        }
        let TurnCallers { key, waiters, re, span } = callers;
        input.started_seq = self
            .log
            .publish_turn_started(input.number, input.npc.id.clone(), re.clone());
        let feed = TurnEvents {
            log: Arc::clone(&self.log),
            re,
        };
        let (mut running, turn) = RunningTurn::begin_turn(&self.node, now, input, feed, waiters, &span);
        running.key = key;
        self.running = Some(running);
        ctx.spawn(turn.into_actor(self).map(|result, actor, ctx| {
            // A cancelled turn has been reported already.
            if let Some(result) = result {
                actor.on_turn_ended(result, ctx);
            }
        }));
    }

    // --- the end of a turn ---

    pub fn on_turn_ended(&mut self, result: Result<CommittedTurn, TurnError>, ctx: &mut Context<Self>) {
        let Some(result) = self.defer_turn_result(result) else {
            return;
        };
        let Some(running) = self.running.take() else { return };
        self.mark_used();
        self.last_turn_took = self.last_used_at.saturating_duration_since(running.started);
        match result {
            Ok(committed) => {
                let mut cut_keys = running.cut_keys();
                cut_keys.retain(|key| !committed.cut_keys.contains(key));
                self.on_turn_committed(committed, running, ctx);
                self.record_cut_keys(cut_keys, ctx);
            }
            Err(error) => {
                self.record_cut_keys(running.cut_keys(), ctx);
                self.on_turn_failed(error, running, ctx);
            }
        }
        self.run_next_steps(ctx);
    }

    fn on_turn_committed(&mut self, committed: CommittedTurn, running: RunningTurn, ctx: &mut Context<Self>) {
        let CommittedTurn {
            turn,
            checkpoint,
            state,
            unlocking,
            jobs,
            was_cut,
            cut_keys,
        } = committed;
        self.log
            .publish_committed(turn.number, turn.id, turn.npc.clone(), running.re.clone());
        failpoint!("turn.told");
        let turn = Arc::new(turn);
        // Before the waiters hear of the turn: their next cut applies to the next turn.
        self.mark_cuts_committed(&turn, &cut_keys);
        let Some(loaded) = self.state.loaded_mut() else {
            return;
        };
        loaded.replacing = None;
        loaded.append_turn(&turn, checkpoint);
        // Jobs that are not held are handed over.
        let is_held = was_cut && jobs.is_empty();
        self.memory.on_turn_committed(turn.id, &jobs, is_held);
        let summary = CommitSummary {
            key: running.key.as_ref().map(|keyed| keyed.key.clone()),
            played: running.played,
            was_cut,
            unlocking,
        };
        running.notify_waiters(&Ok(Arc::clone(&turn)));
        if !state.is_empty() {
            let body = EventBody::StateChanged {
                turn: turn.number,
                changes: state,
            };
            self.log.publish_event(body, None);
        }
        K::on_committed(self, &turn, summary, ctx);
        self.hand_jobs_to_curator(jobs, ctx);
    }

    fn hand_jobs_to_curator(&mut self, jobs: Vec<Job>, ctx: &mut Context<Self>) {
        if jobs.is_empty() {
            return;
        }
        match self.node.actors().and_then(|actors| actors.curator(&self.key.0)) {
            Some(curator) => {
                // A curator that is just stopping leaves the jobs leased; the jobs are found again later.
                let node = Arc::clone(&self.node);
                let hand_over = async move { curator.send(&node.metrics, CuratorRequest::TakeJobs(jobs)).await };
                ctx.spawn(hand_over.into_actor(self).map(|_, _, _| ()));
            }
            None => self.memory.awaited_turn = None,
        }
    }

    fn on_turn_failed(&mut self, error: TurnError, running: RunningTurn, ctx: &mut Context<Self>) {
        tracing::info!(dialogue = %self.key.1, turn = running.number, %error, "a turn was not committed");
        self.node.metrics.count_failed_turn(self.key.1, &error);
        self.log.publish_not_committed(&event_error(&error));
        if matches!(error, TurnError::Fenced) {
            self.node.metrics.count_fenced_write(K::FENCED_TURN);
        }
        if matches!(error, TurnError::CutBeforeReply | TurnError::CalledTools(_)) {
            self.mark_cuts_dropped(&running, ctx);
        }
        let error = Arc::new(error);
        running.notify_waiters(&Err(Arc::clone(&error)));
        // Only the ledger knows the outcome of a commit with a lost answer, and the present owner.
        if error.is_doubtful() || self.rewinds.in_doubt {
            self.start_loading(ctx);
        }
        K::on_failed(self, &error, ctx);
    }

    // --- after a turn ---

    pub fn on_job_ended(&mut self, job_ended: JobEnded, ctx: &mut Context<Self>) {
        if let Some(kind) = job_ended.kind {
            self.memory.on_job_ended(job_ended.turn_id, kind);
        }
        if let Some(report) = job_ended.report {
            self.on_job_report(job_ended.turn_id, report, ctx);
        }
    }

    fn on_job_report(&mut self, turn_id: TurnId, report: JobReport, ctx: &mut Context<Self>) {
        let turn = report.turn;
        let epoch = match self.state.loaded() {
            Some(loaded) if loaded.is_standing(turn_id, turn) => loaded.epoch,
            _ => return,
        };
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
            self.reload_summaries(epoch, ctx);
        }
    }

    fn reload_summaries(&self, epoch: u64, ctx: &mut Context<Self>) {
        let buffer_min = self.node.ports.settings.summaries.buffer_min_turns;
        let ports = self.node.ports.clone();
        let (scope, id) = self.key.clone();
        let reading = async move { ports.ledger.summaries.load_summaries(&scope, id).await };
        ctx.spawn(reading.into_actor(self).map(move |summaries, actor, _| {
            let loaded = match actor.state.loaded_mut() {
                // Summaries read before a rewind may be gone; the actor reads them again after the rewind.
                Some(loaded) if loaded.epoch == epoch => loaded,
                _ => return,
            };
            match summaries {
                Ok(summaries) => loaded.set_summaries(summaries, buffer_min),
                // The next summary, or the next load, reads the summaries.
                Err(error) => tracing::warn!(dialogue = %actor.key.1, %error, "summaries could not be read"),
            }
        }));
    }
}
