//! The queue of lines, and the start of turns.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{
    Session, turn_keys,
    waiting_line::{LivingNpcs, WaitingLine, accept_line, is_addressed_to, repeated_turn},
};
use crate::{
    AcceptedLine, DialogueError, OnBusy, PlayerLine,
    dialogue::{
        load::LoadedDialogue,
        turn_input::{ListeningNpcs, answering_npc, next_turn_input},
        turns::TurnCallers,
    },
    messages::ReplyHandle,
    participants::{ParticipantRecords, Participants},
    running_turn::KeyedLine,
};
use colloquy_dialogue::{
    events::EventBody,
    npc_conversation::{ListeningNpc, MIN_NPCS, find_addressed},
    turn::{TurnError, TurnInput, event_error},
};
use colloquy_memory::authored::Npc;
use colloquy_ports::{StoreResult, ledger::dialogues::KeyedTurn};

impl Session {
    // --- lines ---

    pub(super) fn on_say(
        &mut self,
        line: PlayerLine,
        accepted_at: Instant,
        reply: ReplyHandle<AcceptedLine>,
        ctx: &mut Context<Self>,
    ) {
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        if let Some(npc) = line.to.as_ref().filter(|npc| !loaded.dialogue.npcs.contains(npc)) {
            return reply.answer(Err(DialogueError::TakesNoPart(npc.clone())));
        }
        let head_turn = loaded.dialogue.head_turn;
        let Some(reply) = self.join_repeated_line(&line, reply) else {
            return;
        };
        let busy = self.running.is_some() || !self.kind.queue.is_empty();
        if busy && line.on_busy == OnBusy::Reject {
            return reply.answer(Err(DialogueError::TurnInProgress {
                retry_after: self.retry_after(),
            }));
        }
        if !busy && line.is_for_another_head(head_turn) {
            return reply.answer(Err(DialogueError::StaleHead { head_turn }));
        }
        // A turn that the line cuts does not count against the queue.
        let cuts = line.on_busy == OnBusy::Interrupt;
        let ahead = self.kind.queue.len() + usize::from(self.running.is_some() && !cuts);
        if ahead > self.node.ports.settings.turn.max_queued {
            return reply.answer(Err(DialogueError::QueueFull {
                queued: self.kind.queue.len(),
                retry_after: self.retry_after(),
            }));
        }
        let to_check = line.key.clone().filter(|key| self.kind.keys.needs_ledger_lookup(key));
        let mut waiting_line = self.new_waiting_line(line, to_check.is_none());
        waiting_line.accepted_at = accepted_at;
        waiting_line.said_in_doubt = self.rewinds.in_doubt;
        waiting_line.add_asker(reply);
        let id = waiting_line.id;
        let cuts = waiting_line.is_cutting();
        let requester = waiting_line.cut_request();
        self.kind.queue.push_back(waiting_line);
        if let Some(key) = to_check {
            self.look_up_key(id, key, ctx);
        } else if cuts {
            // Lines queued earlier are still said first.
            self.cut_running_turn(None, requester);
        }
        self.run_next_steps(ctx);
    }

    /// Answers a repeated line with the running, waiting or just committed turn of its key. Returns `reply` if no such
    /// turn exists.
    fn join_repeated_line(
        &mut self,
        line: &PlayerLine,
        reply: ReplyHandle<AcceptedLine>,
    ) -> Option<ReplyHandle<AcceptedLine>> {
        let Some(key) = &line.key else { return Some(reply) };
        if let Some(turn) = self.kind.keys.find_turn(key) {
            reply.answer(repeated_turn(turn, line));
            return None;
        }
        if let Some(running) = self.running.as_mut()
            && let Some(keyed) = running.key.as_ref().filter(|keyed| keyed.key == *key)
        {
            if keyed.text != line.text || !is_addressed_to(line, &keyed.npc) {
                reply.answer(Err(DialogueError::KeyReused));
            } else {
                accept_line(running.waiters_mut(), reply);
            }
            return None;
        }
        let mut queue = self.kind.queue.iter_mut();
        let Some(waiting_line) = queue.find(|waiting_line| waiting_line.line.key.as_ref() == Some(key)) else {
            return Some(reply);
        };
        waiting_line.join_repeat(line, reply);
        None
    }

    /// Answers a caller with the running, waiting or just committed turn of the same key. Returns `reply` if no such turn
    /// exists.
    pub(super) fn join_turn_with_key(
        &mut self,
        key: Option<&str>,
        reply: ReplyHandle<AcceptedLine>,
    ) -> Option<ReplyHandle<AcceptedLine>> {
        let Some(key) = key else { return Some(reply) };
        if let Some(turn) = self.kind.keys.find_turn(key) {
            reply.answer(Ok(AcceptedLine::Repeated(Arc::clone(turn))));
            return None;
        }
        if let Some(running) = self.running.as_mut()
            && running.key.as_ref().is_some_and(|keyed| keyed.key == key)
        {
            accept_line(running.waiters_mut(), reply);
            return None;
        }
        match self
            .kind
            .queue
            .iter_mut()
            .find(|waiting_line| waiting_line.line.key.as_deref() == Some(key))
        {
            Some(waiting_line) => {
                waiting_line.add_asker(reply);
                None
            }
            None => Some(reply),
        }
    }

    /// Cancels the first lines of the queue that were written for another head. Listeners get an event per line.
    fn refuse_stale_lines(&mut self) {
        let Some(head_turn) = self.state.loaded().map(|loaded| loaded.dialogue.head_turn) else {
            return;
        };
        let is_stale = |first: &WaitingLine| first.line.is_for_another_head(head_turn);
        while let Some(stale) = self.kind.queue.pop_front_if(|first| is_stale(first)) {
            self.memory.abandon_wait();
            let body = EventBody::Error {
                turn: None,
                error: event_error(&TurnError::StaleHead),
            };
            self.log.publish_event(body, stale.re());
            stale.cancel_with(&DialogueError::StaleHead { head_turn }, &Arc::new(TurnError::StaleHead));
        }
    }

    /// Asks the ledger whether a key belongs to an earlier turn. Also reads all keys if the read spares later lines the
    /// question. Other work continues meanwhile.
    fn look_up_key(&mut self, line: u64, key: String, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        let epoch = loaded.epoch;
        let want_all = self.kind.keys.needs_all_keys();
        let ports = self.node.ports.clone();
        let (scope, id) = self.key.clone();
        let look = async move {
            let dialogues = &ports.ledger.dialogues;
            let all_keys = async {
                if want_all {
                    dialogues
                        .list_turn_keys(&scope, id, turn_keys::MAX_KNOWN_KEYS + 1)
                        .await
                        .ok()
                } else {
                    None
                }
            };
            tokio::join!(dialogues.load_turn_by_key(&scope, id, &key), all_keys)
        };
        ctx.spawn(look.into_actor(self).map(move |(keyed_turn, all_keys), session, ctx| {
            // Keys of turns that were rewound meanwhile may be missing.
            let is_same_epoch = session.state.loaded().is_some_and(|loaded| loaded.epoch == epoch);
            if let Some(all_keys) = all_keys.filter(|_| is_same_epoch) {
                session.kind.keys.add_ledger_keys(all_keys);
            }
            session.on_key_looked_up(line, keyed_turn);
            session.run_next_steps(ctx);
        }));
    }

    fn on_key_looked_up(&mut self, line: u64, keyed_turn: StoreResult<Option<KeyedTurn>>) {
        let Some(index) = self.kind.queue.iter().position(|waiting_line| waiting_line.id == line) else {
            return;
        };
        let key = self.kind.queue[index].line.key.as_deref();
        let is_unsaid = key.is_some_and(|key| self.kind.keys.is_unsaid(key));
        if let Ok(None) = keyed_turn
            && !is_unsaid
        {
            let waiting_line = &mut self.kind.queue[index];
            waiting_line.checked = true;
            for reply in std::mem::take(&mut waiting_line.unanswered) {
                accept_line(&mut waiting_line.waiters, reply);
            }
            if waiting_line.is_cutting() {
                let requester = waiting_line.cut_request();
                self.cut_running_turn(None, requester);
            }
            return;
        }
        let Some(waiting_line) = self.kind.queue.remove(index) else {
            return;
        };
        if index == 0 {
            // The line's wait for memory does not count for the next line.
            self.memory.abandon_wait();
        }
        let keyed_turn = keyed_turn.map(|row| row.map(|keyed_turn| (keyed_turn.stands, Arc::new(keyed_turn.turn))));
        for reply in waiting_line.unanswered {
            reply.answer(match &keyed_turn {
                Ok(Some((true, turn))) => repeated_turn(turn, &waiting_line.line),
                Ok(_) => Err(DialogueError::TurnUnsaid),
                Err(error) => Err(error.clone().into()),
            });
        }
    }

    fn retry_after(&self) -> Duration {
        let running = self.running.as_ref();
        let running_for = running.map_or(Duration::ZERO, |running| {
            self.now().saturating_duration_since(running.started)
        });
        self.last_turn_took
            .saturating_sub(running_for)
            .clamp(Duration::from_millis(200), Duration::from_secs(10))
    }

    // --- turns ---

    /// Returns a new line for the queue. `checked`: the line's key belongs to no earlier turn.
    pub(super) fn new_waiting_line(&mut self, line: PlayerLine, checked: bool) -> WaitingLine {
        let id = self.kind.next_line;
        self.kind.next_line += 1;
        let counted = self.node.metrics.count_waiting_line();
        WaitingLine::new(id, line, self.now(), checked, counted)
    }

    /// Starts the first line of the queue, or a preparation of its turn.
    pub(super) fn start_next_line(&mut self, ctx: &mut Context<Self>) {
        let now = self.now();
        self.refuse_stale_lines();
        let Some(first) = self.kind.queue.front_mut() else {
            return;
        };
        first.ready_at.get_or_insert(now);
        // A replacement line must not start if a pending request may interrupt the replaced turn.
        if first.replaces_after.is_some() && self.rewinds.preparing > 0 {
            return;
        }
        let checked = first.checked;
        let line = first.id;
        let is_reading = matches!(first.living, LivingNpcs::Reading);
        let read_in = match first.living {
            LivingNpcs::Read(epoch, _) => Some(epoch),
            LivingNpcs::Unread | LivingNpcs::Reading => None,
        };
        let is_addressed = first.line.to.is_some();
        let is_only_stored = first.line.has_given_reply();
        // A line ends the wait for the playback of the last turn, even if spoken while the turn ran. The line then
        // waits for the turn's facts.
        self.on_head_heard(ctx);
        self.release_held_jobs(ctx);
        // A turn that is only stored needs no memory.
        let waits = !is_only_stored && self.wait_for_memory(ctx);
        match self
            .state
            .loaded()
            .and_then(|loaded| loaded.participants.loaded_records())
        {
            None => self.read_participants(ctx),
            Some(records) if checked && !waits => {
                let epoch = self.state.loaded().map(|loaded| loaded.epoch);
                if is_addressed || records.npcs.len() == 1 || (read_in.is_some() && read_in == epoch) {
                    self.start_first_line(&records, now, ctx);
                } else if let Some(epoch) = epoch.filter(|_| !is_reading) {
                    self.read_living(line, epoch, &records, ctx);
                }
            }
            Some(_) => {}
        }
    }

    /// Reads who of several NPCs is alive, and can answer a line without an addressee. Other work continues meanwhile.
    fn read_living(&mut self, line: u64, epoch: u64, records: &ParticipantRecords, ctx: &mut Context<Self>) {
        let set_living = move |session: &mut Self, living| {
            if let Some(waiting_line) = session
                .kind
                .queue
                .iter_mut()
                .find(|waiting_line| waiting_line.id == line)
            {
                waiting_line.living = living;
            }
        };
        set_living(self, LivingNpcs::Reading);
        let first = self.kind.queue.front();
        let text = first.map_or("", |waiting_line| waiting_line.line.text.as_str());
        let reading = self.listening_npcs(records, text);
        ctx.spawn(reading.into_actor(self).map(move |listening, session, ctx| {
            set_living(session, LivingNpcs::Read(epoch, listening));
            session.run_next_steps(ctx);
        }));
    }

    /// Returns the living NPCs, or all if the state cannot be read: the turn itself reads the state again. If a line
    /// names none of several, also whom the line addresses by a nickname.
    fn listening_npcs(&self, records: &ParticipantRecords, line: &str) -> impl Future<Output = ListeningNpcs> + use<> {
        let use_cases = Arc::clone(&self.node.use_cases);
        let scope = self.key.0.clone();
        let world = Arc::clone(&records.world);
        let members = records.members();
        let line = line.to_owned();
        let mut listening: Vec<ListeningNpc> = self.state.loaded().map_or_else(Vec::new, |loaded| {
            let npcs = records.npcs.iter().map(|npc| ListeningNpc {
                npc: Arc::clone(npc),
                viewpoint: loaded.dialogue.viewpoint_for(npc, loaded.player.clone()),
            });
            npcs.collect()
        });
        async move {
            let result = use_cases.living_members(&scope, &world, &members).await;
            let living = result.unwrap_or_else(|error| {
                tracing::info!(world = %world.id, %error, "the dead among the NPCs are not known");
                members
            });
            if living.len() < MIN_NPCS || find_addressed(living.iter(), &line).is_some() {
                return ListeningNpcs {
                    living,
                    nicknamed: None,
                };
            }
            listening.retain(|listener| living.iter().any(|member| member.id == listener.npc.id));
            let result = use_cases.find_nicknamed_npc(&scope, &world, &listening, &line).await;
            let nicknamed = result.unwrap_or_else(|error| {
                tracing::info!(world = %world.id, %error, "the nicknames of the NPCs are not known");
                None
            });
            ListeningNpcs { living, nicknamed }
        }
    }

    /// Turns the first line of the queue into the running turn.
    fn start_first_line(&mut self, records: &ParticipantRecords, now: Instant, ctx: &mut Context<Self>) {
        let (Some(loaded), Some(first)) = (self.state.loaded(), self.kind.queue.front()) else {
            return;
        };
        let unread = ListeningNpcs::default();
        let listening = match &first.living {
            LivingNpcs::Read(_, listening) => listening,
            LivingNpcs::Unread | LivingNpcs::Reading => &unread,
        };
        let line = &first.line;
        let Some(npc) = answering_npc(loaded, records, &line.text, line.to.as_ref(), listening) else {
            return;
        };
        let Some(first) = self.kind.queue.pop_front() else {
            return;
        };
        let queued = first
            .ready_at
            .unwrap_or(now)
            .saturating_duration_since(first.accepted_at);
        let line = first.line;
        let key = line.key.clone().map(|key| KeyedLine {
            key,
            text: line.text.clone(),
            npc: npc.id.clone(),
        });
        let mut input = self.build_turn_input(loaded, records, npc, line.text, first.accepted_at);
        // A continued turn inherits the key of the cut turn.
        input.key = line.key.filter(|_| first.continuation.is_none());
        if let Some(id) = line.chat.as_ref().and_then(|chat| chat.turn_id) {
            input.id = id;
        }
        input.chat = line.chat;
        input.continuation = first.continuation;
        input.known_intent = first.intent;
        input.queue_ms = queued.as_secs_f64() * 1_000.0;
        let callers = TurnCallers {
            key,
            waiters: first.waiters,
            re: line.re,
            span: first.span,
        };
        self.start_turn(input, callers, ctx);
    }

    /// Returns the input of a turn with the given line.
    fn build_turn_input(
        &self,
        loaded: &LoadedDialogue,
        records: &ParticipantRecords,
        npc: Arc<Npc>,
        line: String,
        accepted_at: Instant,
    ) -> TurnInput {
        let scene = records.build_scene(None, false);
        TurnInput {
            line,
            accepted_at,
            ..next_turn_input(&self.node, &self.key.0, loaded, records, npc, scene)
        }
    }

    pub(super) fn on_prepare(&mut self, text: String, reply: ReplyHandle<TurnInput>, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            return;
        };
        if let Some(authored) = loaded.participants.loaded_records() {
            return self.prepare_input(authored, text, reply, ctx);
        }
        let node = Arc::clone(&self.node);
        let scope = self.key.0.clone();
        let dialogue = Arc::clone(&loaded.dialogue);
        let reading = async move { Participants::read_all(&node, &scope, &dialogue.world, &dialogue.npcs).await };
        ctx.spawn(reading.into_actor(self).map(|participants, session, ctx| {
            match participants.map(|participants| participants.loaded_records()) {
                Ok(Some(authored)) => session.prepare_input(authored, text, reply, ctx),
                // Edited since the read.
                Ok(None) => reply.answer(Err(session.overloaded_error())),
                Err(error) => reply.answer(Err(error)),
            }
        }));
    }

    fn prepare_input(
        &self,
        authored: ParticipantRecords,
        text: String,
        reply: ReplyHandle<TurnInput>,
        ctx: &mut Context<Self>,
    ) {
        let reading = self.listening_npcs(&authored, &text);
        ctx.spawn(reading.into_actor(self).map(move |listening, session, _| {
            let input = session.state.loaded().and_then(|loaded| {
                let npc = answering_npc(loaded, &authored, &text, None, &listening)?;
                Some(session.build_turn_input(loaded, &authored, npc, text, session.now()))
            });
            reply.answer(input.ok_or_else(|| session.overloaded_error()));
        }));
    }
}
