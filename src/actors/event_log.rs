//! The events of a dialogue: sequence numbers, a short buffer of recent events, and the listeners.
//!
//! The log belongs to the registry's entry, not to the session actor. Listeners and sequence numbers therefore outlive
//! an actor that panicked. One short lock covers all operations, which gives every listener the same order;
//! `Listener::deliver_event` therefore must not block.

mod event_hold;

use std::{collections::VecDeque, sync::Arc, time::Duration, time::Instant};

use parking_lot::Mutex;

use super::{
    ActorSettings, HeardLength, Listener, PublishedEvent, VisibleEvent, messages::CREATED_SEQ, messages::LastSeq,
};
use colloquy_core::ids::{DialogueId, DialogueKind, NpcId, TurnId};
use colloquy_dialogue::{
    events::{DialogueEvent, EventBody, EventError, ReplyDone},
    turn::TurnFeed,
};
use colloquy_memory::turn::{Turn, TurnStatus, Usage};
use colloquy_ports::{clock::Clock, ledger::rewinds::RewindRecord};

/// The events of a dialogue.
pub(super) struct EventLog {
    dialogue: DialogueId,
    limits: LogLimits,
    clock: Arc<dyn Clock>,
    inner: Mutex<LogState>,
}

struct LogLimits {
    events: usize,
    age: Duration,
    listeners: usize,
}

struct LogState {
    /// The next sequence number; 0 until the dialogue was loaded for the first time.
    next_seq: u64,
    /// The last published number.
    head_seq: u64,
    /// The last known epoch of the owner; 0 until the dialogue was loaded for the first time.
    epoch: u64,
    /// Recently published durable events, in order.
    ring: VecDeque<LoggedEvent>,
    /// Every durable event from this number on is in `ring`.
    ring_from: u64,
    /// Events below this number were published before the load; the ledger has the events of turns.
    loaded_at: u64,
    /// Another process may have assigned numbers from here to below `loaded_at`, for events that were never committed.
    gap_from: u64,
    /// The turn that may have produced uncommitted events, until a turn with the number is committed.
    lost: Option<u32>,
    listeners: Vec<(u64, Arc<dyn Listener>)>,
    next_listener: u64,
    /// The number reserved for `turn.committed`. Later ones wait in `held_events` until the reservation is resolved.
    reserved: Option<u64>,
    held_events: VecDeque<(EventBody, Option<Arc<str>>)>,
    open_turn: Option<OpenTurn>,
    rewind_hold: Option<event_hold::EventHold>,
    /// The first number of a rewind with an unknown outcome.
    in_doubt_from: Option<u64>,
}

struct LoggedEvent {
    logged_at: Instant,
    seq: u64,
    event: Arc<PublishedEvent>,
}

/// The turn with the latest published `turn.started`.
struct OpenTurn {
    turn: u32,
    npc: NpcId,
    re: Option<Arc<str>>,
    /// The text of the reply sent so far.
    text: String,
    reply_status: Option<TurnStatus>,
}

/// The ledger's values for a dialogue that was loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct LedgerPosition {
    /// All numbers of committed events are below this number.
    pub ledger_next: u64,
    pub head_turn: u32,
    /// The owner's epoch, which is the local node's.
    pub epoch: u64,
    /// How many numbers to skip if another process may have assigned some.
    pub gap: u64,
    /// True if other nodes may have owned the dialogue in between.
    pub among_others: bool,
}

/// The place of the events after a client's `last_seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissedEvents {
    /// In memory.
    InMemory,
    /// Partly from before the load: the ledger's turns have the events.
    InLedger,
    /// Nowhere: the events are too old.
    Expired,
    /// The client saw uncommitted events of a turn that a crash ended. Later events are in memory.
    Lost,
}

impl EventLog {
    pub fn new(dialogue: DialogueId, settings: &ActorSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            dialogue,
            limits: LogLimits {
                events: settings.replay_events.max(1),
                age: Duration::from_secs(settings.replay_s),
                listeners: settings.max_listeners,
            },
            clock,
            inner: Mutex::new(LogState {
                next_seq: 0,
                head_seq: 0,
                epoch: 0,
                ring: VecDeque::new(),
                ring_from: 0,
                loaded_at: 0,
                gap_from: 0,
                lost: None,
                listeners: Vec::new(),
                next_listener: 1,
                reserved: None,
                held_events: VecDeque::new(),
                open_turn: None,
                rewind_hold: None,
                in_doubt_from: None,
            }),
        }
    }

    /// Updates the log after a load; `last_seq` is the last number that the process assigned before. Buffered events
    /// stay valid unless another process continued the dialogue meanwhile.
    ///
    /// The ledger does not know the numbers of a turn that ran when the other process was killed. The log therefore
    /// skips a gap: a number that a client has seen must not be used again.
    pub fn on_loaded(&self, start: LedgerPosition, last_seq: Option<LastSeq>) {
        let LedgerPosition { head_turn, gap, .. } = start;
        let ledger_next = start.ledger_next.max(CREATED_SEQ + 1);
        let mut inner = self.inner.lock();
        inner.lost = inner.lost.filter(|lost_turn| *lost_turn > head_turn);
        let own_next = last_seq.map_or(0, |last_seq| last_seq.seq + 1).max(inner.next_seq);
        // In a cluster, another node may have owned the dialogue without a commit.
        let before = last_seq.map_or(0, |last_seq| last_seq.epoch).max(inner.epoch);
        let is_ours = own_next >= ledger_next && !(start.among_others && start.epoch > before + 1);
        inner.epoch = start.epoch;
        let next_seq = if is_ours {
            own_next
        } else {
            ledger_next.saturating_add(gap).max(own_next)
        };
        if next_seq > inner.next_seq {
            inner.ring.clear();
            inner.ring_from = next_seq;
            inner.loaded_at = next_seq;
            inner.next_seq = next_seq;
            inner.head_seq = next_seq - 1;
            inner.gap_from = if is_ours { next_seq } else { ledger_next };
            inner.lost = (!is_ours).then_some(head_turn + 1);
        }
        debug_assert!(
            inner.gap_from <= inner.loaded_at,
            "a gap of numbers ends where the load began"
        );
        debug_assert!(inner.loaded_at <= inner.next_seq, "numbers rise from the load on");
    }

    pub fn head_seq(&self) -> u64 {
        self.inner.lock().head_seq
    }

    /// Returns the last assigned number and the epoch.
    pub fn last_seq(&self) -> LastSeq {
        let inner = self.inner.lock();
        LastSeq {
            seq: inner.head_seq,
            epoch: inner.epoch,
        }
    }

    /// Returns the next owner's first number, if no published event may still be voided. Returns 0 if an event may be
    /// voided, or if some clients may not know of a lost turn.
    pub fn next_seq_if_quiet(&self) -> u64 {
        let inner = self.inner.lock();
        let is_settled = inner.open_turn.is_none()
            && inner.reserved.is_none()
            && inner.rewind_hold.is_none()
            && inner.in_doubt_from.is_none()
            && inner.lost.is_none();
        if is_settled { inner.next_seq } else { 0 }
    }

    /// Sets the owner's epoch after a local rewind, which raised the epoch.
    pub fn set_epoch(&self, epoch: u64) {
        let mut inner = self.inner.lock();
        debug_assert!(epoch >= inner.epoch, "the epochs of a dialogue never fall");
        inner.epoch = epoch;
        inner.in_doubt_from = None;
    }

    /// Raises the epoch after a restored save, which raised the epoch by 1.
    pub fn raise_epoch(&self) {
        self.inner.lock().epoch += 1;
    }

    /// True if a listener can still take events.
    pub fn has_listeners(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.listeners.retain(|(_, listener)| !listener.is_gone());
        !inner.listeners.is_empty()
    }

    /// Returns where a client with all events up to `last_seq` finds the missed events.
    pub fn locate_missed(&self, last_seq: u64) -> MissedEvents {
        let mut inner = self.inner.lock();
        inner.drop_expired(&self.limits, self.clock.monotonic_now());
        if last_seq > inner.head_seq {
            // The server never sent this number.
            MissedEvents::Expired
        } else if last_seq + 1 >= inner.ring_from {
            MissedEvents::InMemory
        } else if inner.ring_from != inner.loaded_at {
            MissedEvents::Expired
        } else if last_seq >= inner.gap_from {
            MissedEvents::Lost
        } else if last_seq + 1 == inner.gap_from {
            MissedEvents::InMemory
        } else {
            MissedEvents::InLedger
        }
    }

    /// Delivers `earlier` and the buffered events after `last_seq`. The text so far of a running reply follows as a
    /// single delta from its beginning, and then all new events. A new owner replaces the previous owner. `None`: the
    /// dialogue has the most listeners allowed. Otherwise (id, number of delivered events, head).
    pub fn attach_listener(
        &self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        earlier: Vec<DialogueEvent>,
    ) -> Option<(u64, usize, u64)> {
        let mut inner = self.inner.lock();
        inner.listeners.retain(|(_, listener)| !listener.is_gone());
        let (before, remaining): (Vec<_>, Vec<_>) = std::mem::take(&mut inner.listeners)
            .into_iter()
            .partition(|(_, other)| listener.is_owner() && other.is_owner());
        inner.listeners = remaining;
        if inner.listeners.len() >= self.limits.listeners {
            inner.listeners.extend(before);
            return None;
        }
        listener.on_attached();
        let mut replayed = 0;
        if let Some(last_seq) = last_seq {
            let logged = inner.ring.iter().filter(|logged| logged.seq > last_seq);
            let events = earlier
                .into_iter()
                .filter(|event| event.seq.is_some_and(|seq| seq > last_seq && seq < inner.loaded_at))
                .map(PublishedEvent::new)
                .chain(logged.map(|logged| Arc::clone(&logged.event)));
            for event in events {
                let Some(visible_event) = VisibleEvent::of_published(&event, &listener.viewer()) else {
                    continue;
                };
                if listener.deliver_event(&visible_event).is_err() {
                    break;
                }
                replayed += 1;
            }
        }
        if let Some(partial_reply) = inner.partial_reply_event(self.dialogue.kind()) {
            let visible_event = VisibleEvent::of_event(self.make_event(None, partial_reply, None), &listener.viewer());
            // A listener that can take no more is dropped with the next event.
            let _ = visible_event.map(|event| listener.deliver_event(&event));
        }
        let id = inner.next_listener;
        inner.next_listener += 1;
        inner.listeners.push((id, listener));
        debug_assert!(
            inner.listeners.len() <= self.limits.listeners,
            "a dialogue has a bounded number of listeners"
        );
        let head_seq = inner.head_seq;
        drop(inner);
        for (_, other) in before {
            // The new listener may have replaced a listener of the same client already.
            if !other.is_gone() {
                other.on_replaced();
            }
        }
        Some((id, replayed, head_seq))
    }

    pub fn detach_listener(&self, id: u64) {
        self.inner.lock().listeners.retain(|(other, _)| *other != id);
    }

    /// Returns the failure event for clients that saw uncommitted events of a lost turn. The event has the last number
    /// of the gap. `None` if a turn of the same number runs or was committed since. The client may have seen only late
    /// events of the previous turn; the difference is unknowable.
    pub fn lost_turn_event(&self, npc: NpcId) -> Option<DialogueEvent> {
        let inner = self.inner.lock();
        let turn = inner.lost?;
        if inner.open_turn.as_ref().is_some_and(|open| open.turn == turn) {
            return None;
        }
        let message = "the server stopped before this turn was committed";
        let body = EventBody::reply_done(self.dialogue.kind(), failed_reply(turn, npc, "turn_lost", message));
        Some(self.make_event(Some(inner.loaded_at - 1), body, None))
    }

    /// Publishes `turn.started` and returns its number.
    pub fn publish_turn_started(&self, turn: u32, npc: NpcId, re: Option<Arc<str>>) -> u64 {
        let mut inner = self.inner.lock();
        debug_assert!(
            inner.open_turn.is_none(),
            "a turn starts after the end of the turn before"
        );
        let body = EventBody::turn_started(self.dialogue.kind(), turn, npc.clone());
        inner.open_turn = Some(OpenTurn {
            turn,
            npc,
            re: re.clone(),
            text: String::new(),
            reply_status: None,
        });
        inner.emit_event(self, body, re)
    }

    /// Returns the turn whose reply has not ended yet.
    pub fn replying_turn(&self) -> Option<u32> {
        let inner = self.inner.lock();
        let open = inner.open_turn.as_ref()?;
        open.reply_status.is_none().then_some(open.turn)
    }

    /// Converts a position in the running reply to Unicode scalar values.
    pub fn heard_scalar_count(&self, length: HeardLength) -> usize {
        let inner = self.inner.lock();
        length.to_scalar_count(inner.open_turn.as_ref().map_or("", |open| &open.text))
    }

    /// Publishes `turn.committed` with the reserved number, then releases the held events.
    pub fn publish_committed(&self, turn: u32, turn_id: TurnId, npc: NpcId, re: Option<Arc<str>>) {
        let mut inner = self.inner.lock();
        let body = EventBody::turn_committed(self.dialogue.kind(), turn, turn_id, npc);
        match inner.reserved.take() {
            Some(seq) => inner.emit_with_seq(self, seq, body, re),
            None => {
                inner.emit_event(self, body, re);
            }
        }
        inner.open_turn = None;
        inner.lost = inner.lost.filter(|lost_turn| *lost_turn > turn);
        inner.release_held(self);
    }

    /// Publishes the end of a turn that will not be committed. Listeners that saw the start learn of the end exactly
    /// once: by `reply.done` if none was sent, else by `error`. A failed `reply.done` needs no `error`. A turn cut
    /// before its first character ends the same way (`turn_cut`), or clients would wait for the commit.
    pub fn publish_not_committed(&self, error: &EventError) {
        let mut inner = self.inner.lock();
        inner.reserved = None;
        if let Some(open) = inner.open_turn.take() {
            match open.reply_status {
                None => {
                    let mut reply_done = failed_reply(open.turn, open.npc, error.code, &error.message);
                    if let Some(reply_error) = &mut reply_done.error {
                        reply_error.retry_after_ms = error.retry_after_ms;
                    }
                    inner.emit_event(self, EventBody::reply_done(self.dialogue.kind(), reply_done), open.re);
                }
                Some(TurnStatus::Failed) => {}
                Some(_) => {
                    let body = EventBody::Error {
                        turn: Some(open.turn),
                        error: error.clone(),
                    };
                    inner.emit_event(self, body, open.re);
                }
            }
        }
        inner.release_held(self);
    }

    /// Publishes all other events.
    pub fn publish_event(&self, body: EventBody, re: Option<Arc<str>>) {
        let mut inner = self.inner.lock();
        if !body.is_durable() {
            inner.deliver_to_listeners(&PublishedEvent::new(self.make_event(None, body, re)));
        } else if let Some(moving) = &mut inner.rewind_hold {
            moving.held_events.push((None, body, re));
        } else if inner.reserved.is_some() {
            inner.held_events.push_back((body, re));
        } else {
            inner.emit_event(self, body, re);
        }
    }

    fn make_event(&self, seq: Option<u64>, body: EventBody, re: Option<Arc<str>>) -> DialogueEvent {
        DialogueEvent {
            dialogue_id: self.dialogue,
            seq,
            re,
            body,
        }
    }
}

impl LogState {
    /// Returns the text of a running reply sent so far, as a delta.
    fn partial_reply_event(&self, kind: DialogueKind) -> Option<EventBody> {
        let open = self.open_turn.as_ref()?;
        (open.reply_status.is_none() && !open.text.is_empty())
            .then(|| EventBody::reply_delta(kind, open.turn, 0, open.npc.clone(), open.text.clone()))
    }

    fn take_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        debug_assert!(self.head_seq <= seq, "a new number is above all published numbers");
        seq
    }

    fn emit_event(&mut self, log: &EventLog, body: EventBody, re: Option<Arc<str>>) -> u64 {
        let seq = self.take_seq();
        self.emit_with_seq(log, seq, body, re);
        seq
    }

    fn emit_with_seq(&mut self, log: &EventLog, seq: u64, body: EventBody, re: Option<Arc<str>>) {
        debug_assert!(seq < self.next_seq, "a published number was assigned before");
        let event = PublishedEvent::new(log.make_event(Some(seq), body, re));
        let now = log.clock.monotonic_now();
        self.drop_expired(&log.limits, now);
        self.head_seq = self.head_seq.max(seq);
        self.ring.push_back(LoggedEvent {
            logged_at: now,
            seq,
            event: Arc::clone(&event),
        });
        if self.ring.len() > log.limits.events {
            self.drop_oldest();
        }
        debug_assert!(
            self.ring.len() <= log.limits.events,
            "a log has a bounded number of events"
        );
        self.deliver_to_listeners(&event);
    }

    fn deliver_to_listeners(&mut self, event: &Arc<PublishedEvent>) {
        self.listeners.retain(|(_, listener)| {
            let visible_event = VisibleEvent::of_published(event, &listener.viewer());
            visible_event.is_none_or(|event| listener.deliver_event(&event).is_ok())
        });
    }

    fn release_held(&mut self, log: &EventLog) {
        while let Some((body, re)) = self.held_events.pop_front() {
            self.emit_event(log, body, re);
        }
    }

    fn drop_expired(&mut self, limits: &LogLimits, now: Instant) {
        while self
            .ring
            .front()
            .is_some_and(|logged| now.saturating_duration_since(logged.logged_at) > limits.age)
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(logged) = self.ring.pop_front() {
            self.ring_from = logged.seq + 1;
        }
    }
}

/// The feed of a running turn.
pub(super) struct TurnEvents {
    pub log: Arc<EventLog>,
    pub re: Option<Arc<str>>,
}

impl TurnFeed for TurnEvents {
    fn send_delta(&self, turn: u32, offset: usize, npc: &NpcId, text: &str) {
        let mut inner = self.log.inner.lock();
        if let Some(open) = &mut inner.open_turn {
            open.text.push_str(text);
        }
        if inner.listeners.is_empty() {
            return;
        }
        let body = EventBody::reply_delta(self.log.dialogue.kind(), turn, offset, npc.clone(), text.to_owned());
        inner.deliver_to_listeners(&PublishedEvent::new(self.log.make_event(None, body, None)));
    }

    fn send_done(&self, reply: ReplyDone) -> u64 {
        let mut inner = self.log.inner.lock();
        if let Some(open) = &mut inner.open_turn {
            open.reply_status = Some(reply.status);
        }
        let body = EventBody::reply_done(self.log.dialogue.kind(), reply);
        if inner.rewind_hold.is_some() {
            let seq = inner.take_seq();
            if let Some(moving) = &mut inner.rewind_hold {
                moving.held_events.push((Some(seq), body, self.re.clone()));
            }
            return seq;
        }
        inner.emit_event(&self.log, body, self.re.clone())
    }

    fn reserve_committed(&self) -> u64 {
        let mut inner = self.log.inner.lock();
        let seq = inner.take_seq();
        debug_assert!(inner.reserved.is_none(), "one turn is committed at a time");
        inner.reserved = Some(seq);
        seq
    }
}

fn failed_reply(turn: u32, npc: NpcId, code: &'static str, message: &str) -> ReplyDone {
    ReplyDone {
        turn,
        npc_id: npc,
        text: String::new(),
        status: TurnStatus::Failed,
        usage: Usage::default(),
        cues: Vec::new(),
        error: Some(EventError {
            code,
            message: message.to_owned(),
            retry_after_ms: None,
        }),
    }
}

/// Returns the three durable events of a committed turn, for a resume after a restart or a repeated line.
#[must_use]
pub fn events_of_turn(turn: &Turn, re: Option<&Arc<str>>) -> [DialogueEvent; 3] {
    let event = |seq, body| DialogueEvent {
        dialogue_id: turn.dialogue,
        seq: Some(seq),
        re: re.cloned(),
        body,
    };
    let reply_done = ReplyDone {
        turn: turn.number,
        npc_id: turn.npc.clone(),
        text: turn.reply_text.clone(),
        status: turn.status,
        usage: turn.usage,
        cues: turn.cues.clone(),
        error: None,
    };
    let kind = turn.dialogue.kind();
    let number = turn.number;
    let npc = &turn.npc;
    [
        event(turn.seqs.started, EventBody::turn_started(kind, number, npc.clone())),
        event(turn.seqs.done, EventBody::reply_done(kind, reply_done)),
        event(
            turn.seqs.committed,
            EventBody::turn_committed(kind, number, turn.id, npc.clone()),
        ),
    ]
}

/// Returns the event of a rewind, for a resume after a restart or a repeated request.
#[must_use]
pub fn event_of_rewind(dialogue: DialogueId, rewound: &RewindRecord) -> DialogueEvent {
    DialogueEvent {
        dialogue_id: dialogue,
        seq: Some(rewound.seq),
        re: None,
        body: EventBody::DialogueRewound(rewound.into()),
    }
}

#[cfg(test)]
mod tests;
