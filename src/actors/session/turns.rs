//! The queue of lines and the running turn.

use std::{sync::Arc, time::Duration, time::Instant};

use super::{
    Phase, Session, keys, load,
    next::{answering, next_turn},
    waiting::{Waiting, accept, may_be_for, repeated},
};
use crate::{
    actors::{
        Accepted, Line, OnBusy, SessionError,
        cast::{Cast, Rows},
        curator::TakeOn,
        event_log::TurnEvents,
        handle::Ask,
        mailbox::send,
        meters::FencedWrite,
        running::{Keyed, Running},
    },
    dialogue::{
        events::{EventBody, EventError},
        turn::{CommittedTurn, CutBy, TurnError, TurnInput, event_error},
    },
    memory::{authored::Npc, turn::TurnStatus},
    ports::{StoreError, StoreResult, ledger::dialogues::KeyedTurn},
};
use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

impl Session {
    // --- lines ---

    pub(super) fn say(&mut self, line: Line, accepted_at: Instant, ask: Ask<Accepted>, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        if loaded.closed || self.closing.is_some() {
            return ask.answer(Err(SessionError::Closed));
        }
        if self.drained.is_some() || self.node.is_draining() {
            return ask.answer(Err(SessionError::Draining));
        }
        if let Some(npc) = line.to.as_ref().filter(|npc| !loaded.dialogue.npcs.contains(npc)) {
            return ask.answer(Err(SessionError::TakesNoPart(npc.clone())));
        }
        if let Some(key) = &line.key {
            if let Some(turn) = self.keys.find(key) {
                return ask.answer(repeated(turn, &line));
            }
            if let Some(running) = self.running.as_mut()
                && let Some(keyed) = running.key.as_ref().filter(|keyed| keyed.key == *key)
            {
                if keyed.text != line.text || !may_be_for(&line, &keyed.npc) {
                    return ask.answer(Err(SessionError::KeyReused));
                }
                return accept(running.take_on(), ask);
            }
            if let Some(waiting) = self
                .queue
                .iter_mut()
                .find(|waiting| waiting.line.key.as_ref() == Some(key))
            {
                return waiting.join(&line, ask);
            }
        }
        let busy = self.running.is_some() || !self.queue.is_empty();
        if busy && line.on_busy == OnBusy::Reject {
            return ask.answer(Err(SessionError::TurnInProgress {
                retry_after: self.retry_after(),
            }));
        }
        // A turn that the line ends keeps no place from it.
        let cuts = line.on_busy == OnBusy::Interrupt;
        let ahead = self.queue.len() + usize::from(self.running.is_some() && !cuts);
        if ahead > self.node.ports.settings.turn.max_queued {
            return ask.answer(Err(SessionError::QueueFull {
                queued: self.queue.len(),
                retry_after: self.retry_after(),
            }));
        }
        let id = self.next_line;
        self.next_line += 1;
        let to_check = line.key.clone().filter(|key| self.keys.ask_ledger(key));
        let mut waiting = Waiting::new(id, line, accepted_at, to_check.is_none(), self.node.meters.line());
        waiting.take_on(ask);
        let (cuts, by) = (waiting.cuts(), waiting.cut_by());
        self.queue.push_back(waiting);
        if let Some(key) = to_check {
            self.look_up(id, key, ctx);
        } else if cuts {
            // Lines that were queued before it are still said before it.
            self.cut(None, by);
        }
        self.advance(ctx);
    }

    /// Whoever asks with the key of a turn that runs, waits or was just committed is told of that one. The
    /// ask comes back if there is none.
    pub(super) fn join_turn_of(&mut self, key: Option<&str>, ask: Ask<Accepted>) -> Option<Ask<Accepted>> {
        let Some(key) = key else { return Some(ask) };
        if let Some(turn) = self.keys.find(key) {
            ask.answer(Ok(Accepted::Repeated(Arc::clone(turn))));
            return None;
        }
        if let Some(running) = self.running.as_mut()
            && running.key.as_ref().is_some_and(|keyed| keyed.key == key)
        {
            accept(running.take_on(), ask);
            return None;
        }
        match self
            .queue
            .iter_mut()
            .find(|waiting| waiting.line.key.as_deref() == Some(key))
        {
            Some(waiting) => {
                waiting.take_on(ask);
                None
            }
            None => Some(ask),
        }
    }

    /// Asks the ledger whether a key belongs to an earlier turn, and for all keys if that spares the next lines the
    /// question; all else goes on beside it.
    fn look_up(&mut self, line: u64, key: String, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        let (epoch, want_all) = (loaded.epoch, self.keys.want_all());
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move {
            let dialogues = &ports.ledger.dialogues;
            let all = async {
                if want_all {
                    dialogues.keys(&scope, id, keys::MOST + 1).await.ok()
                } else {
                    None
                }
            };
            tokio::join!(dialogues.turn_by_key(&scope, id, &key), all)
        };
        ctx.spawn(look.into_actor(self).map(move |(found, all), session, ctx| {
            // A turn that came and went meanwhile may be missing among them.
            let same = matches!(&session.phase, Phase::Ready(loaded) if loaded.epoch == epoch);
            if let Some(all) = all.filter(|_| same) {
                session.keys.learn(all);
            }
            session.looked_up(line, found);
            session.advance(ctx);
        }));
    }

    fn looked_up(&mut self, line: u64, found: StoreResult<Option<KeyedTurn>>) {
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
            for ask in std::mem::take(&mut waiting.asking) {
                accept(&mut waiting.waiters, ask);
            }
            if waiting.cuts() {
                let by = waiting.cut_by();
                self.cut(None, by);
            }
            return;
        }
        let Some(waiting) = self.queue.remove(at) else { return };
        if at == 0 {
            // What it waited for memory is not the next one's time.
            self.memory.since = None;
        }
        let found = found.map(|found| found.map(|found| (found.stands, Arc::new(found.turn))));
        for ask in waiting.asking {
            ask.answer(match &found {
                Ok(Some((true, turn))) => repeated(turn, &waiting.line),
                Ok(_) => Err(SessionError::TurnUnsaid),
                Err(error) => Err(error.clone().into()),
            });
        }
    }

    /// Lets every waiting line go; those who listen are told why.
    pub(super) fn drop_lines(&mut self, why: &EventError, error: &SessionError) {
        self.memory.since = None;
        for waiting in self.queue.drain(..) {
            for ask in waiting.asking {
                ask.answer(Err(error.clone()));
            }
            let body = EventBody::Error {
                turn: None,
                error: why.clone(),
            };
            self.log.publish(body, waiting.line.re);
        }
    }

    fn retry_after(&self) -> Duration {
        let running = self.running.as_ref();
        let spent = running.map_or(Duration::ZERO, |running| {
            self.now().saturating_duration_since(running.started)
        });
        self.last_turn
            .saturating_sub(spent)
            .clamp(Duration::from_millis(200), Duration::from_secs(10))
    }

    // --- cutting ---

    /// Asks the running turn to end where it is. Of several, whoever heard least decides.
    pub(super) fn cut(&mut self, heard_chars: Option<usize>, by: Option<CutBy>) {
        if let Some(running) = &self.running {
            running.cut(heard_chars, by);
        }
    }

    // --- turns ---

    /// Starts the next turn, or whatever it still needs, unless one runs.
    pub(super) fn advance(&mut self, ctx: &mut Context<Self>) {
        if self.running.is_some() || self.moving.is_busy() {
            return;
        }
        if self.moving.in_doubt && matches!(self.phase, Phase::Ready(_)) {
            return self.load(ctx);
        }
        if self.closing.is_some() || self.drained.is_some() {
            return self.wind_up(ctx);
        }
        let Phase::Ready(loaded) = &self.phase else { return };
        let now = self.node.ports.clock.instant();
        let Some(first) = self.queue.front_mut() else { return };
        first.ready_at.get_or_insert(now);
        // What is to be said in another turn's place is not, if that one is what they cut.
        if first.after.is_some() && self.moving.is_looking() {
            return;
        }
        let checked = first.checked;
        let authored = loaded.cast.rows();
        // Also a line that was spoken while the last turn ran ends the wait of that, and waits for what it teaches.
        self.heard_out(ctx);
        if authored.is_none() && !self.reading_authored {
            self.read_authored(ctx);
        }
        if self.memory.of.is_some() {
            self.wait_for_memory(now, ctx);
        }
        if let Some(authored) = authored
            && checked
            && self.memory.of.is_none()
        {
            self.start(&authored, now, ctx);
        }
    }

    /// The session takes no more lines and nothing runs.
    fn wind_up(&mut self, ctx: &mut Context<Self>) {
        if let Some(reply) = self.drained.take() {
            let why = EventError {
                code: "draining",
                message: "the server is shutting down; say it again elsewhere".to_owned(),
                retry_after_ms: None,
            };
            self.drop_lines(&why, &SessionError::Draining);
            // Whoever drains may have given up.
            let _ = reply.send(self.drain_saw_turn);
        }
        if self.closing.is_some() {
            let why = EventError {
                code: "session_closed",
                message: "the session was closed before this line was said".to_owned(),
                retry_after_ms: None,
            };
            self.drop_lines(&why, &SessionError::Closed);
            if self.owes_a_turn() {
                self.load(ctx);
            } else if matches!(self.phase, Phase::Ready(_)) {
                self.finish_closing(ctx);
            }
        }
    }

    fn read_authored(&mut self, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        self.reading_authored = true;
        let (node, scope) = (Arc::clone(&self.node), self.key.0.clone());
        let dialogue = Arc::clone(&loaded.dialogue);
        let read = async move { Cast::read(&node, &scope, &dialogue.world, &dialogue.npcs).await };
        ctx.spawn(read.into_actor(self).map(|read, session, ctx| {
            session.reading_authored = false;
            match read {
                Ok(cast) => {
                    if let Phase::Ready(loaded) = &mut session.phase {
                        loaded.cast = cast;
                    }
                    session.advance(ctx);
                }
                Err(SessionError::NoNpc(_)) => session.end("npc_deleted", None, ctx),
                Err(SessionError::NoWorld(_)) => session.end("world_deleted", None, ctx),
                Err(error) => {
                    tracing::warn!(dialogue = %session.key.1, %error, "the NPC could not be read");
                    let why = event_error(&TurnError::Store(StoreError::Unavailable(String::new())));
                    session.drop_lines(&why, &error);
                    if session.owes_a_turn() {
                        session.load(ctx);
                    }
                }
            }
        }));
    }

    /// Lets the next turn wait, for a bounded time, until the last one's facts are known.
    fn wait_for_memory(&mut self, now: Instant, ctx: &mut Context<Self>) {
        let longest = Duration::from_millis(self.node.ports.settings.turn.wait_for_memory_ms);
        if self.memory.begin(now, longest) {
            self.memory.timer = Some(ctx.run_later(longest, |session, ctx| {
                session.memory.give_up();
                session.advance(ctx);
            }));
        }
    }

    /// The first waiting line becomes a turn.
    fn start(&mut self, authored: &Rows, now: Instant, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        let Some(Waiting {
            line,
            goes_on,
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
        let Some(npc) = answering(loaded, authored, &line.text, line.to.as_ref()) else {
            return;
        };
        let key = line.key.clone().map(|key| Keyed {
            key,
            text: line.text.clone(),
            npc: npc.id.clone(),
        });
        let mut input = self.input(loaded, authored, npc, line.text, accepted_at);
        // The turn of a reply that is gone on with takes the key over from the one that was cut.
        input.key = line.key.filter(|_| goes_on.is_none());
        input.goes_on = goes_on;
        input.queue_ms = queued.as_secs_f64() * 1_000.0;
        if let Some(timer) = self.memory.over(now, &mut input) {
            ctx.cancel_future(timer);
        }
        input.started_seq = self.log.turn_started(number, input.npc.id.clone(), line.re.clone());
        let feed = TurnEvents {
            log: Arc::clone(&self.log),
            re: line.re,
        };
        let (mut running, turn) = Running::begin(&self.node, now, input, feed, waiters, &span);
        running.key = key;
        self.running = Some(running);
        ctx.spawn(turn.into_actor(self).map(|ended, session, ctx| {
            // One that was let go has been told of.
            if let Some(ended) = ended {
                session.ended(ended, ctx);
            }
        }));
    }

    /// What a turn with this line starts from, now.
    fn input(
        &self,
        loaded: &load::Loaded,
        authored: &Rows,
        npc: Arc<Npc>,
        line: String,
        accepted_at: Instant,
    ) -> TurnInput {
        TurnInput {
            line,
            accepted_at,
            ..next_turn(
                &self.node,
                &self.key.0,
                loaded,
                authored,
                npc,
                authored.scene(None, false),
            )
        }
    }

    pub(super) fn prepare(&mut self, text: String, ask: Ask<TurnInput>, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        if let Some(authored) = loaded.cast.rows() {
            return ask.answer(self.prepared(&authored, text));
        }
        let (node, scope) = (Arc::clone(&self.node), self.key.0.clone());
        let dialogue = Arc::clone(&loaded.dialogue);
        let read = async move { Cast::read(&node, &scope, &dialogue.world, &dialogue.npcs).await };
        ctx.spawn(read.into_actor(self).map(|read, session, _| {
            ask.answer(read.and_then(|cast| match cast.rows() {
                Some(authored) => session.prepared(&authored, text),
                // Edited since.
                None => Err(SessionError::Overloaded {
                    retry_after: session.last_turn,
                }),
            }));
        }));
    }

    fn prepared(&self, authored: &Rows, text: String) -> Result<TurnInput, SessionError> {
        let busy = SessionError::Overloaded {
            retry_after: self.last_turn,
        };
        let Phase::Ready(loaded) = &self.phase else {
            return Err(busy);
        };
        let npc = answering(loaded, authored, &text, None).ok_or(busy)?;
        Ok(self.input(loaded, authored, npc, text, self.now()))
    }

    pub(super) fn ended(&mut self, ended: Result<CommittedTurn, TurnError>, ctx: &mut Context<Self>) {
        if self.moving.is_under_way() {
            // Whether it stands, the move decides.
            self.moving.ended = Some(ended);
            return;
        }
        let Some(running) = self.running.take() else { return };
        self.touch();
        self.last_turn = self.used.saturating_duration_since(running.started);
        match ended {
            Ok(committed) => {
                let (mut keys, kept) = (running.cut_keys(), committed.cut_keys.clone());
                keys.retain(|key| !kept.contains(key));
                self.committed(committed, running, ctx);
                self.keep_cuts(keys, ctx);
                // Before the next line begins on top of what is to be cut.
                self.turn_ended(ctx);
                self.advance(ctx);
            }
            Err(error) => {
                self.keep_cuts(running.cut_keys(), ctx);
                self.not_committed(error, running, ctx);
            }
        }
    }

    fn committed(&mut self, committed: CommittedTurn, running: Running, ctx: &mut Context<Self>) {
        let CommittedTurn {
            turn,
            checkpoint,
            state,
            unlocking,
            jobs,
            cut_keys,
        } = committed;
        self.log
            .committed(turn.number, turn.id, turn.npc.clone(), running.re.clone());
        failpoint!("turn.told");
        let turn = Arc::new(turn);
        self.turn_is_committed(&turn, &cut_keys);
        let Phase::Ready(loaded) = &mut self.phase else { return };
        let key = running.key.as_ref().map(|keyed| keyed.key.clone());
        let played = running.played;
        running.tell(&Ok(Arc::clone(&turn)));
        if !state.is_empty() {
            let body = EventBody::StateChanged {
                turn: turn.number,
                changes: state,
            };
            self.log.publish(body, None);
        }
        loaded.replacing = None;
        loaded.keep_turn(&turn, checkpoint);
        if let Some(key) = key {
            self.keys.remember(key, Arc::clone(&turn));
        }
        // It was cut as it was heard, and is learned from already.
        self.head_is_new(turn.status == TurnStatus::Interrupted && !jobs.is_empty(), ctx);
        if let Some(unlocking) = unlocking {
            self.tell_unlocked(&turn, unlocking, ctx);
        }
        self.memory.committed(turn.id, &jobs);
        if played {
            self.heard_out(ctx);
        }
        if jobs.is_empty() {
            return;
        }
        match self.node.curator(&self.key.0) {
            Some(curator) => {
                // A curator that stops just now leaves the jobs leased; they are found again later.
                let node = Arc::clone(&self.node);
                let hand_over = async move { send(&node, &curator, TakeOn { jobs }).await };
                ctx.spawn(hand_over.into_actor(self).map(|_, _, _| ()));
            }
            None => self.memory.of = None,
        }
    }

    fn not_committed(&mut self, error: TurnError, running: Running, ctx: &mut Context<Self>) {
        tracing::info!(dialogue = %self.key.1, turn = running.number, %error, "a turn was not committed");
        self.node.meters.not_committed(self.key.1, &error);
        self.log.not_committed(&event_error(&error));
        if matches!(error, TurnError::Fenced) {
            self.node.meters.fenced(FencedWrite::Turn);
            self.moving.fenced_before = Some(self.next_line);
        }
        // What became of a commit whose answer was lost, and who owns the dialogue now, only the ledger knows.
        let doubtful = error.is_doubtful();
        if matches!(error, TurnError::CutBeforeReply) {
            self.turn_is_dropped(&running, ctx);
        }
        running.tell(&Err(Arc::new(error)));
        if doubtful || self.moving.in_doubt || self.owes_a_turn() {
            self.load(ctx);
        } else {
            // Before the next line begins, which is another turn of the same number.
            self.turn_ended(ctx);
            self.advance(ctx);
        }
    }
}
