//! The queue of lines and the running turn.

use std::{sync::Arc, time::Duration, time::Instant};

use super::{
    Session, SessionPhase, turn_keys,
    waiting_line::{WaitingLine, accept_line, is_addressed_to, repeated_turn},
};
use crate::{
    actors::{
        AcceptedLine, DialogueError, OnBusy, PlayerLine,
        dialogue::{
            load,
            turn_input::{answering_npc, next_turn_input},
        },
        event_log::TurnEvents,
        messages::{CuratorRequest, ReplyHandle},
        metrics::FencedWrite,
        participants::{ParticipantRecords, Participants},
        running_turn::{KeyedLine, RunningTurn},
    },
    dialogue::{
        events::{EventBody, EventError},
        turn::{CommittedTurn, CutRequester, TurnError, TurnInput, event_error},
    },
    memory::{authored::Npc, turn::TurnStatus},
    ports::{StoreError, StoreResult, ledger::dialogues::KeyedTurn},
};
use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

impl Session {
    // --- lines ---

    pub(super) fn on_say(
        &mut self,
        line: PlayerLine,
        accepted_at: Instant,
        ask: ReplyHandle<AcceptedLine>,
        ctx: &mut Context<Self>,
    ) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        if loaded.closed || self.closing.is_some() {
            return ask.answer(Err(DialogueError::Closed));
        }
        if self.drained.is_some() || self.node.is_draining() {
            return ask.answer(Err(DialogueError::Draining));
        }
        if let Some(npc) = line.to.as_ref().filter(|npc| !loaded.dialogue.npcs.contains(npc)) {
            return ask.answer(Err(DialogueError::TakesNoPart(npc.clone())));
        }
        if let Some(key) = &line.key {
            if let Some(turn) = self.keys.find_turn(key) {
                return ask.answer(repeated_turn(turn, &line));
            }
            if let Some(running) = self.running.as_mut()
                && let Some(keyed) = running.key.as_ref().filter(|keyed| keyed.key == *key)
            {
                if keyed.text != line.text || !is_addressed_to(&line, &keyed.npc) {
                    return ask.answer(Err(DialogueError::KeyReused));
                }
                return accept_line(running.waiters_mut(), ask);
            }
            if let Some(waiting) = self
                .queue
                .iter_mut()
                .find(|waiting| waiting.line.key.as_ref() == Some(key))
            {
                return waiting.join_repeat(&line, ask);
            }
        }
        let busy = self.running.is_some() || !self.queue.is_empty();
        if busy && line.on_busy == OnBusy::Reject {
            return ask.answer(Err(DialogueError::TurnInProgress {
                retry_after: self.retry_after(),
            }));
        }
        // A turn that the line cuts does not count against the queue.
        let cuts = line.on_busy == OnBusy::Interrupt;
        let ahead = self.queue.len() + usize::from(self.running.is_some() && !cuts);
        if ahead > self.node.ports.settings.turn.max_queued {
            return ask.answer(Err(DialogueError::QueueFull {
                queued: self.queue.len(),
                retry_after: self.retry_after(),
            }));
        }
        let id = self.next_line;
        self.next_line += 1;
        let to_check = line.key.clone().filter(|key| self.keys.needs_ledger_lookup(key));
        let mut waiting = WaitingLine::new(
            id,
            line,
            accepted_at,
            to_check.is_none(),
            self.node.metrics.count_waiting_line(),
        );
        waiting.add_asker(ask);
        let (cuts, by) = (waiting.is_cutting(), waiting.cut_request());
        self.queue.push_back(waiting);
        if let Some(key) = to_check {
            self.look_up_key(id, key, ctx);
        } else if cuts {
            // Lines queued earlier are still said first.
            self.cut_running_turn(None, by);
        }
        self.start_next_if_idle(ctx);
    }

    /// Answers a caller with the running, waiting or just committed turn of the same key. Returns `ask` if no such turn
    /// exists.
    pub(super) fn join_turn_with_key(
        &mut self,
        key: Option<&str>,
        ask: ReplyHandle<AcceptedLine>,
    ) -> Option<ReplyHandle<AcceptedLine>> {
        let Some(key) = key else { return Some(ask) };
        if let Some(turn) = self.keys.find_turn(key) {
            ask.answer(Ok(AcceptedLine::Repeated(Arc::clone(turn))));
            return None;
        }
        if let Some(running) = self.running.as_mut()
            && running.key.as_ref().is_some_and(|keyed| keyed.key == key)
        {
            accept_line(running.waiters_mut(), ask);
            return None;
        }
        match self
            .queue
            .iter_mut()
            .find(|waiting| waiting.line.key.as_deref() == Some(key))
        {
            Some(waiting) => {
                waiting.add_asker(ask);
                None
            }
            None => Some(ask),
        }
    }

    /// Asks the ledger whether a key belongs to an earlier turn. Also reads all keys if the read spares later lines the
    /// question. Other work continues meanwhile.
    fn look_up_key(&mut self, line: u64, key: String, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let (epoch, want_all) = (loaded.epoch, self.keys.needs_all_keys());
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move {
            let dialogues = &ports.ledger.dialogues;
            let all = async {
                if want_all {
                    dialogues
                        .list_turn_keys(&scope, id, turn_keys::MAX_KNOWN_KEYS + 1)
                        .await
                        .ok()
                } else {
                    None
                }
            };
            tokio::join!(dialogues.load_turn_by_key(&scope, id, &key), all)
        };
        ctx.spawn(look.into_actor(self).map(move |(found, all), session, ctx| {
            // Keys of turns that were rewound meanwhile may be missing.
            let same = matches!(&session.phase, SessionPhase::Ready(loaded) if loaded.epoch == epoch);
            if let Some(all) = all.filter(|_| same) {
                session.keys.add_ledger_keys(all);
            }
            session.on_key_looked_up(line, found);
            session.start_next_if_idle(ctx);
        }));
    }

    fn on_key_looked_up(&mut self, line: u64, found: StoreResult<Option<KeyedTurn>>) {
        let Some(at) = self.queue.iter().position(|waiting| waiting.id == line) else {
            return;
        };
        let key = self.queue[at].line.key.as_deref();
        let is_unsaid = key.is_some_and(|key| self.keys.is_unsaid(key));
        if let Ok(None) = found
            && !is_unsaid
        {
            let waiting = &mut self.queue[at];
            waiting.checked = true;
            for ask in std::mem::take(&mut waiting.unanswered) {
                accept_line(&mut waiting.waiters, ask);
            }
            if waiting.is_cutting() {
                let by = waiting.cut_request();
                self.cut_running_turn(None, by);
            }
            return;
        }
        let Some(waiting) = self.queue.remove(at) else { return };
        if at == 0 {
            // The line's wait for memory does not count for the next line.
            self.memory.waiting_since = None;
        }
        let found = found.map(|found| found.map(|found| (found.stands, Arc::new(found.turn))));
        for ask in waiting.unanswered {
            ask.answer(match &found {
                Ok(Some((true, turn))) => repeated_turn(turn, &waiting.line),
                Ok(_) => Err(DialogueError::TurnUnsaid),
                Err(error) => Err(error.clone().into()),
            });
        }
    }

    /// Cancels all queued lines; the listeners get the reason.
    pub(super) fn reject_queued_lines(&mut self, why: &EventError, error: &DialogueError) {
        self.memory.waiting_since = None;
        for waiting in self.queue.drain(..) {
            for ask in waiting.unanswered {
                ask.answer(Err(error.clone()));
            }
            let body = EventBody::Error {
                turn: None,
                error: why.clone(),
            };
            self.log.publish_event(body, waiting.line.re);
        }
    }

    fn retry_after(&self) -> Duration {
        let running = self.running.as_ref();
        let spent = running.map_or(Duration::ZERO, |running| {
            self.now().saturating_duration_since(running.started)
        });
        self.last_turn_took
            .saturating_sub(spent)
            .clamp(Duration::from_millis(200), Duration::from_secs(10))
    }

    // --- cutting ---

    /// Asks the running turn to end at its present text. Of several requests, the smallest heard length decides.
    pub(super) fn cut_running_turn(&mut self, heard_chars: Option<usize>, by: Option<CutRequester>) {
        if let Some(running) = &self.running {
            running.request_cut(heard_chars, by);
        }
    }

    // --- turns ---

    /// Starts the next turn, or the next preparation, unless a turn runs.
    pub(super) fn start_next_if_idle(&mut self, ctx: &mut Context<Self>) {
        if self.running.is_some() || self.rewinds.is_busy() {
            return;
        }
        if self.rewinds.in_doubt && matches!(self.phase, SessionPhase::Ready(_)) {
            return self.start_loading(ctx);
        }
        if self.closing.is_some() || self.drained.is_some() {
            return self.drain_or_close(ctx);
        }
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let now = self.node.ports.clock.monotonic_now();
        let Some(first) = self.queue.front_mut() else { return };
        first.ready_at.get_or_insert(now);
        // A replacement line must not start if a pending request may interrupt the replaced turn.
        if first.replaces_after.is_some() && self.rewinds.is_preparing() {
            return;
        }
        let checked = first.checked;
        let authored = loaded.participants.loaded_records();
        // A line ends the wait for the playback of the last turn, even if spoken while the turn ran. The line then
        // waits for the turn's facts.
        self.on_head_heard(ctx);
        if authored.is_none() && !self.reading_participants {
            self.read_participants(ctx);
        }
        if self.memory.awaited_turn.is_some() {
            self.wait_for_memory(now, ctx);
        }
        if let Some(authored) = authored
            && checked
            && self.memory.awaited_turn.is_none()
        {
            self.start_turn(&authored, now, ctx);
        }
    }

    /// Finishes a drain or a close: no new lines are accepted and no turn runs.
    fn drain_or_close(&mut self, ctx: &mut Context<Self>) {
        if let Some(reply) = self.drained.take() {
            let why = EventError {
                code: "draining",
                message: "the server is shutting down; say it again elsewhere".to_owned(),
                retry_after_ms: None,
            };
            self.reject_queued_lines(&why, &DialogueError::Draining);
            // The draining caller may have given up.
            let _ = reply.send(self.drain_saw_turn);
        }
        if self.closing.is_some() {
            let why = EventError {
                code: "session_closed",
                message: "the session was closed before this line was said".to_owned(),
                retry_after_ms: None,
            };
            self.reject_queued_lines(&why, &DialogueError::Closed);
            if self.has_pending_replacement() {
                self.start_loading(ctx);
            } else if matches!(self.phase, SessionPhase::Ready(_)) {
                self.finish_closing(ctx);
            }
        }
    }

    fn read_participants(&mut self, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        self.reading_participants = true;
        let (node, scope) = (Arc::clone(&self.node), self.key.0.clone());
        let dialogue = Arc::clone(&loaded.dialogue);
        let read = async move { Participants::read_all(&node, &scope, &dialogue.world, &dialogue.npcs).await };
        ctx.spawn(read.into_actor(self).map(|read, session, ctx| {
            session.reading_participants = false;
            match read {
                Ok(cast) => {
                    if let SessionPhase::Ready(loaded) = &mut session.phase {
                        loaded.participants = cast;
                    }
                    session.start_next_if_idle(ctx);
                }
                Err(DialogueError::NoNpc(_)) => session.begin_closing("npc_deleted", None, ctx),
                Err(DialogueError::NoWorld(_)) => session.begin_closing("world_deleted", None, ctx),
                Err(error) => {
                    tracing::warn!(dialogue = %session.key.1, %error, "the NPC could not be read");
                    let why = event_error(&TurnError::Store(StoreError::Unavailable(String::new())));
                    session.reject_queued_lines(&why, &error);
                    if session.has_pending_replacement() {
                        session.start_loading(ctx);
                    }
                }
            }
        }));
    }

    /// Lets the next turn wait, for a bounded time, until the last turn's facts are known.
    fn wait_for_memory(&mut self, now: Instant, ctx: &mut Context<Self>) {
        let longest = Duration::from_millis(self.node.ports.settings.turn.wait_for_memory_ms);
        if self.memory.begin_wait(now, longest) {
            self.memory.timer = Some(ctx.run_later(longest, |session, ctx| {
                session.memory.give_up();
                session.start_next_if_idle(ctx);
            }));
        }
    }

    /// Turns the first waiting line into the running turn.
    fn start_turn(&mut self, authored: &ParticipantRecords, now: Instant, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let Some(WaitingLine {
            line,
            continuation: goes_on,
            accepted_at,
            ready_at,
            waiters,
            span,
            ..
        }) = self.queue.pop_front()
        else {
            return;
        };
        let queued = ready_at.unwrap_or(now).saturating_duration_since(accepted_at);
        let number = loaded.dialogue.head_turn + 1;
        let Some(npc) = answering_npc(loaded, authored, &line.text, line.to.as_ref()) else {
            return;
        };
        let key = line.key.clone().map(|key| KeyedLine {
            key,
            text: line.text.clone(),
            npc: npc.id.clone(),
        });
        let mut input = self.build_turn_input(loaded, authored, npc, line.text, accepted_at);
        // A continued turn inherits the key of the cut turn.
        input.key = line.key.filter(|_| goes_on.is_none());
        input.continuation = goes_on;
        input.queue_ms = queued.as_secs_f64() * 1_000.0;
        if let Some(timer) = self.memory.finish_wait(now, &mut input) {
            ctx.cancel_future(timer);
        }
        input.started_seq = self
            .log
            .publish_turn_started(number, input.npc.id.clone(), line.re.clone());
        let feed = TurnEvents {
            log: Arc::clone(&self.log),
            re: line.re,
        };
        let (mut running, turn) = RunningTurn::begin_turn(&self.node, now, input, feed, waiters, &span);
        running.key = key;
        self.running = Some(running);
        ctx.spawn(turn.into_actor(self).map(|ended, session, ctx| {
            // A cancelled turn has been reported already.
            if let Some(ended) = ended {
                session.on_turn_ended(ended, ctx);
            }
        }));
    }

    /// Returns the input of a turn with the given line.
    fn build_turn_input(
        &self,
        loaded: &load::LoadedDialogue,
        authored: &ParticipantRecords,
        npc: Arc<Npc>,
        line: String,
        accepted_at: Instant,
    ) -> TurnInput {
        TurnInput {
            line,
            accepted_at,
            ..next_turn_input(
                &self.node,
                &self.key.0,
                loaded,
                authored,
                npc,
                authored.build_scene(None, false),
            )
        }
    }

    pub(super) fn on_prepare(&mut self, text: String, ask: ReplyHandle<TurnInput>, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        if let Some(authored) = loaded.participants.loaded_records() {
            return ask.answer(self.prepared_input(&authored, text));
        }
        let (node, scope) = (Arc::clone(&self.node), self.key.0.clone());
        let dialogue = Arc::clone(&loaded.dialogue);
        let read = async move { Participants::read_all(&node, &scope, &dialogue.world, &dialogue.npcs).await };
        ctx.spawn(read.into_actor(self).map(|read, session, _| {
            ask.answer(read.and_then(|cast| match cast.loaded_records() {
                Some(authored) => session.prepared_input(&authored, text),
                // Edited since the read.
                None => Err(DialogueError::Overloaded {
                    retry_after: session.last_turn_took,
                }),
            }));
        }));
    }

    fn prepared_input(&self, authored: &ParticipantRecords, text: String) -> Result<TurnInput, DialogueError> {
        let busy = DialogueError::Overloaded {
            retry_after: self.last_turn_took,
        };
        let SessionPhase::Ready(loaded) = &self.phase else {
            return Err(busy);
        };
        let npc = answering_npc(loaded, authored, &text, None).ok_or(busy)?;
        Ok(self.build_turn_input(loaded, authored, npc, text, self.now()))
    }

    pub(super) fn on_turn_ended(&mut self, ended: Result<CommittedTurn, TurnError>, ctx: &mut Context<Self>) {
        if self.rewinds.is_under_way() {
            // The rewind decides whether the turn stands.
            self.rewinds.deferred_outcome = Some(ended);
            return;
        }
        let Some(running) = self.running.take() else { return };
        self.mark_used();
        self.last_turn_took = self.used.saturating_duration_since(running.started);
        match ended {
            Ok(committed) => {
                let (mut keys, kept) = (running.cut_keys(), committed.cut_keys.clone());
                keys.retain(|key| !kept.contains(key));
                self.on_turn_committed(committed, running, ctx);
                self.record_cut_keys(keys, ctx);
                // Before the next line starts on top of a turn that a cut still shortens.
                self.resolve_pending_cuts(ctx);
                self.start_next_if_idle(ctx);
            }
            Err(error) => {
                self.record_cut_keys(running.cut_keys(), ctx);
                self.on_turn_failed(error, running, ctx);
            }
        }
    }

    fn on_turn_committed(&mut self, committed: CommittedTurn, running: RunningTurn, ctx: &mut Context<Self>) {
        let CommittedTurn {
            turn,
            checkpoint,
            state,
            unlocking,
            jobs,
            cut_keys,
        } = committed;
        self.log
            .publish_committed(turn.number, turn.id, turn.npc.clone(), running.re.clone());
        failpoint!("turn.told");
        let turn = Arc::new(turn);
        self.mark_cuts_committed(&turn, &cut_keys);
        let SessionPhase::Ready(loaded) = &mut self.phase else {
            return;
        };
        let key = running.key.as_ref().map(|keyed| keyed.key.clone());
        let played = running.played;
        running.notify_waiters(&Ok(Arc::clone(&turn)));
        if !state.is_empty() {
            let body = EventBody::StateChanged {
                turn: turn.number,
                changes: state,
            };
            self.log.publish_event(body, None);
        }
        loaded.replacing = None;
        loaded.append_turn(&turn, checkpoint);
        if let Some(key) = key {
            self.keys.remember_turn(key, Arc::clone(&turn));
        }
        // The turn was cut at the heard length, and its jobs are due already.
        self.track_head_playback(turn.status == TurnStatus::Interrupted && !jobs.is_empty(), ctx);
        if let Some(unlocking) = unlocking {
            self.publish_unlocked(&turn, unlocking, ctx);
        }
        self.memory.on_turn_committed(turn.id, &jobs);
        if played {
            self.on_head_heard(ctx);
        }
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
            self.node.metrics.count_fenced_write(FencedWrite::Turn);
            self.rewinds.fenced_before = Some(self.next_line);
        }
        // Only the ledger knows the outcome of a commit with a lost answer, and the present owner.
        let doubtful = error.is_doubtful();
        if matches!(error, TurnError::CutBeforeReply) {
            self.mark_cuts_dropped(&running, ctx);
        }
        running.notify_waiters(&Err(Arc::new(error)));
        if doubtful || self.rewinds.in_doubt || self.has_pending_replacement() {
            self.start_loading(ctx);
        } else {
            // Before the next line starts, which becomes another turn of the same number.
            self.resolve_pending_cuts(ctx);
            self.start_next_if_idle(ctx);
        }
    }
}
