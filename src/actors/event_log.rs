//! The events of one dialogue: their sequence numbers, a short memory of them, and who listens.
//!
//! Owned by the registry's entry, not by the session actor, so that listeners and sequence numbers
//! outlive an actor that panicked. Everything happens under one short lock, which is what keeps the
//! order the same for every listener; `Listener::deliver` therefore must not block.

use std::{collections::VecDeque, sync::Arc, time::Duration, time::Instant};

use parking_lot::Mutex;

use super::{ActorSettings, Listener, Published, handle::CREATED_SEQ};
use crate::{
    dialogue::{
        events::{DialogueEvent, EventBody, EventError, ReplyDone},
        turn::TurnFeed,
    },
    ids::{DialogueId, NpcId, TurnId},
    memory::turn::{Turn, TurnStatus, Usage},
    ports::{clock::Clock, ledger::rewinds::Rewound},
};

/// Events of one dialogue.
pub(super) struct EventLog {
    dialogue: DialogueId,
    limits: Limits,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

struct Limits {
    events: usize,
    age: Duration,
    listeners: usize,
}

struct Inner {
    /// The next sequence number; 0 until the dialogue was loaded for the first time.
    next_seq: u64,
    /// The last number that went out.
    head_seq: u64,
    /// Durable events that went out lately, in order.
    ring: VecDeque<Kept>,
    /// Every durable event from this number on is in `ring`.
    ring_from: u64,
    /// Events below this number went out before the dialogue was loaded; the ledger has those of turns.
    loaded_at: u64,
    /// Numbers from this one on and below `loaded_at` may have been given out by another process, for
    /// events that were never committed.
    gap_from: u64,
    /// The turn that such events may have been of, until one of its number is committed.
    lost: Option<u32>,
    listeners: Vec<(u64, Arc<dyn Listener>)>,
    next_listener: u64,
    /// The number kept for `turn.committed`. Later durable events are `held` until it is settled.
    reserved: Option<u64>,
    held: VecDeque<(EventBody, Option<Arc<str>>)>,
    open: Option<OpenTurn>,
    moving: Option<Moving>,
}

/// The head is being moved: until it has been, or has not, durable events wait.
struct Moving {
    /// Numbers for the end of the turn under way, should the move end it, and for the move itself.
    first: u64,
    /// What happened meanwhile, with the number it was promised.
    held: Vec<(Option<u64>, EventBody, Option<Arc<str>>)>,
}

/// Numbers that a move reserves: for `reply.done` and `error` of the turn it ends, and its own.
const OF_A_MOVE: u64 = 3;

struct Kept {
    at: Instant,
    seq: u64,
    event: Arc<Published>,
}

/// The turn whose `turn.started` went out last.
struct OpenTurn {
    turn: u32,
    npc: NpcId,
    re: Option<Arc<str>>,
    done: Option<TurnStatus>,
}

/// Where the events after a client's `last_seq` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missed {
    /// In memory.
    Kept,
    /// Partly from before the dialogue was loaded: the ledger's turns have them.
    InLedger,
    /// Nowhere: they are too old.
    Expired,
    /// The client saw events that were never committed, those of a turn that a crash took. What came
    /// since is in memory.
    Lost,
}

impl EventLog {
    pub fn new(dialogue: DialogueId, settings: &ActorSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            dialogue,
            limits: Limits {
                events: settings.replay_events.max(1),
                age: Duration::from_secs(settings.replay_s),
                listeners: settings.max_listeners,
            },
            clock,
            inner: Mutex::new(Inner {
                next_seq: 0,
                head_seq: 0,
                ring: VecDeque::new(),
                ring_from: 0,
                loaded_at: 0,
                gap_from: 0,
                lost: None,
                listeners: Vec::new(),
                next_listener: 1,
                reserved: None,
                held: VecDeque::new(),
                open: None,
                moving: None,
            }),
        }
    }

    /// The dialogue was loaded, with `head_turn` turns; the numbers of what was committed are below
    /// `ledger_next`, and `known` is the last one that this process gave out before. What is kept
    /// stays valid unless another process went on with the dialogue meanwhile.
    ///
    /// The ledger knows nothing of the numbers of a turn that was under way when such a process was
    /// killed, so `gap` numbers are left out: one that a client has seen must not come again.
    pub fn loaded(&self, ledger_next: u64, known: Option<u64>, head_turn: u32, gap: u64) {
        let ledger_next = ledger_next.max(CREATED_SEQ + 1);
        let mut inner = self.inner.lock();
        inner.lost = inner.lost.filter(|lost| *lost > head_turn);
        let ours = known.map_or(0, |seq| seq + 1).max(inner.next_seq);
        let next_seq = if ours >= ledger_next {
            ours
        } else {
            ledger_next.saturating_add(gap)
        };
        if next_seq > inner.next_seq {
            inner.ring.clear();
            inner.ring_from = next_seq;
            inner.loaded_at = next_seq;
            inner.next_seq = next_seq;
            inner.head_seq = next_seq - 1;
            inner.gap_from = if ours >= ledger_next { next_seq } else { ledger_next };
            inner.lost = (ours < ledger_next).then_some(head_turn + 1);
        }
    }

    pub fn head_seq(&self) -> u64 {
        self.inner.lock().head_seq
    }

    /// Whether a listener is there that can still take events.
    pub fn has_listeners(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.listeners.retain(|(_, listener)| !listener.is_gone());
        !inner.listeners.is_empty()
    }

    /// Where a client that saw everything up to `last_seq` finds what it missed.
    pub fn missed(&self, last_seq: u64) -> Missed {
        let mut inner = self.inner.lock();
        inner.forget_old(&self.limits, self.clock.instant());
        if last_seq > inner.head_seq {
            // Never sent by this server.
            Missed::Expired
        } else if last_seq + 1 >= inner.ring_from {
            Missed::Kept
        } else if inner.ring_from != inner.loaded_at {
            Missed::Expired
        } else if last_seq >= inner.gap_from {
            Missed::Lost
        } else if last_seq + 1 == inner.gap_from {
            Missed::Kept
        } else {
            Missed::InLedger
        }
    }

    /// Delivers `earlier` and what is kept after `last_seq`, then everything to come.
    /// `None`: there are as many listeners as there may be. Otherwise (id, how many were delivered, head).
    pub fn attach(
        &self,
        listener: Arc<dyn Listener>,
        last_seq: Option<u64>,
        earlier: Vec<DialogueEvent>,
    ) -> Option<(u64, usize, u64)> {
        let mut inner = self.inner.lock();
        inner.listeners.retain(|(_, listener)| !listener.is_gone());
        if inner.listeners.len() >= self.limits.listeners {
            return None;
        }
        listener.seated();
        let mut replayed = 0;
        if let Some(last_seq) = last_seq {
            let kept = inner.ring.iter().filter(|kept| kept.seq > last_seq);
            let events = earlier
                .into_iter()
                .filter(|event| event.seq.is_some_and(|seq| seq > last_seq && seq < inner.loaded_at))
                .map(Published::new)
                .chain(kept.map(|kept| Arc::clone(&kept.event)));
            for event in events {
                if event.body.is_optional() && !listener.sees_optional() {
                    continue;
                }
                if listener.deliver(&event).is_err() {
                    break;
                }
                replayed += 1;
            }
        }
        let id = inner.next_listener;
        inner.next_listener += 1;
        inner.listeners.push((id, listener));
        Some((id, replayed, inner.head_seq))
    }

    pub fn detach(&self, id: u64) {
        self.inner.lock().listeners.retain(|(other, _)| *other != id);
    }

    /// What a client is to hear that saw events which were never committed: that their turn failed,
    /// with the last number of the gap, unless a turn of that number runs or was committed since.
    /// It may have seen none of that turn but late events of the one before; which, nobody knows any more.
    pub fn turn_lost(&self, npc: NpcId) -> Option<DialogueEvent> {
        let inner = self.inner.lock();
        let turn = inner.lost?;
        if inner.open.as_ref().is_some_and(|open| open.turn == turn) {
            return None;
        }
        let why = "the server stopped before this turn was committed";
        let body = EventBody::done(self.dialogue.kind(), failed(turn, npc, "turn_lost", why));
        Some(self.event(Some(inner.loaded_at - 1), body, None))
    }

    /// Says `turn.started`; returns its number.
    pub fn turn_started(&self, turn: u32, npc: NpcId, re: Option<Arc<str>>) -> u64 {
        let mut inner = self.inner.lock();
        let body = EventBody::started(self.dialogue.kind(), turn, npc.clone());
        inner.open = Some(OpenTurn {
            turn,
            npc,
            re: re.clone(),
            done: None,
        });
        inner.emit(self, body, re)
    }

    /// The turn whose reply has not ended yet.
    pub fn replying(&self) -> Option<u32> {
        let inner = self.inner.lock();
        let open = inner.open.as_ref()?;
        open.done.is_none().then_some(open.turn)
    }

    /// Settles the reserved number with `turn.committed`, then lets go what was held back.
    pub fn committed(&self, turn: u32, turn_id: TurnId, npc: NpcId, re: Option<Arc<str>>) {
        let mut inner = self.inner.lock();
        let body = EventBody::committed(self.dialogue.kind(), turn, turn_id, npc);
        match inner.reserved.take() {
            Some(seq) => inner.emit_as(self, seq, body, re),
            None => {
                inner.emit(self, body, re);
            }
        }
        inner.open = None;
        inner.lost = inner.lost.filter(|lost| *lost > turn);
        inner.release(self);
    }

    /// The turn will not be committed. Makes sure that those who saw it start learn so, exactly once:
    /// by `reply.done` if none went out, else by `error` unless that reply said so already. A turn cut
    /// before its first character ends this way too (`turn_cut`), or clients would wait for its commit.
    pub fn not_committed(&self, error: &EventError) {
        let mut inner = self.inner.lock();
        inner.reserved = None;
        if let Some(open) = inner.open.take() {
            match open.done {
                None => {
                    let mut done = failed(open.turn, open.npc, error.code, &error.message);
                    if let Some(told) = &mut done.error {
                        told.retry_after_ms = error.retry_after_ms;
                    }
                    inner.emit(self, EventBody::done(self.dialogue.kind(), done), open.re);
                }
                Some(TurnStatus::Failed) => {}
                Some(_) => {
                    let body = EventBody::Error {
                        turn: Some(open.turn),
                        error: error.clone(),
                    };
                    inner.emit(self, body, open.re);
                }
            }
        }
        inner.release(self);
    }

    /// The head is about to be moved. Returns the number of the event that will tell of it; durable
    /// events wait until [`Self::moved`] or [`Self::not_moved`].
    pub fn begin_move(&self) -> u64 {
        let mut inner = self.inner.lock();
        let first = inner.next_seq;
        inner.next_seq += OF_A_MOVE;
        inner.moving = Some(Moving {
            first,
            held: Vec::new(),
        });
        first + OF_A_MOVE - 1
    }

    /// The head was moved. The turn under way, if there was one, ends unsaid: `reply.done` goes out if
    /// it had not yet, and what it would have told is dropped; then `body` tells of the move.
    pub fn moved(&self, body: EventBody, unsaid: &EventError) {
        let mut inner = self.inner.lock();
        let Some(Moving { first, held }) = inner.moving.take() else {
            return;
        };
        inner.reserved = None;
        if let Some(open) = inner.open.take() {
            // One that was told while the move was under way was not delivered.
            let told = !held.iter().any(|(_, body, _)| matches!(body, EventBody::ReplyDone(_)));
            let done = open.done.filter(|_| told);
            if done.is_none() {
                let mut done = failed(open.turn, open.npc, unsaid.code, &unsaid.message);
                done.status = TurnStatus::Interrupted;
                done.error = None;
                inner.emit_as(self, first, EventBody::ReplyDone(done), open.re.clone());
            }
            if done != Some(TurnStatus::Failed) {
                let body = EventBody::Error {
                    turn: Some(open.turn),
                    error: unsaid.clone(),
                };
                inner.emit_as(self, first + 1, body, open.re);
            }
        }
        inner.emit_as(self, first + OF_A_MOVE - 1, body, None);
        inner.release(self);
        for (promised, body, re) in held {
            // What has a number was the unsaid turn's.
            if promised.is_none() {
                inner.emit(self, body, re);
            }
        }
    }

    /// The head was not moved: what waited goes out.
    pub fn not_moved(&self) {
        let mut inner = self.inner.lock();
        let Some(Moving { held, .. }) = inner.moving.take() else {
            return;
        };
        let (promised, later): (Vec<_>, Vec<_>) = held.into_iter().partition(|(seq, ..)| seq.is_some());
        for (seq, body, re) in promised {
            inner.emit_as(self, seq.unwrap_or_default(), body, re);
        }
        for (_, body, re) in later {
            if inner.reserved.is_some() {
                inner.held.push_back((body, re));
            } else {
                inner.emit(self, body, re);
            }
        }
    }

    /// Publishes any other event.
    pub fn publish(&self, body: EventBody, re: Option<Arc<str>>) {
        let mut inner = self.inner.lock();
        if !body.is_durable() {
            inner.deliver(&Published::new(self.event(None, body, re)));
        } else if let Some(moving) = &mut inner.moving {
            moving.held.push((None, body, re));
        } else if inner.reserved.is_some() {
            inner.held.push_back((body, re));
        } else {
            inner.emit(self, body, re);
        }
    }

    fn event(&self, seq: Option<u64>, body: EventBody, re: Option<Arc<str>>) -> DialogueEvent {
        DialogueEvent {
            dialogue_id: self.dialogue,
            seq,
            re,
            body,
        }
    }
}

impl Inner {
    fn take_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    fn emit(&mut self, log: &EventLog, body: EventBody, re: Option<Arc<str>>) -> u64 {
        let seq = self.take_seq();
        self.emit_as(log, seq, body, re);
        seq
    }

    fn emit_as(&mut self, log: &EventLog, seq: u64, body: EventBody, re: Option<Arc<str>>) {
        let event = Published::new(log.event(Some(seq), body, re));
        let now = log.clock.instant();
        self.forget_old(&log.limits, now);
        self.head_seq = self.head_seq.max(seq);
        self.ring.push_back(Kept {
            at: now,
            seq,
            event: Arc::clone(&event),
        });
        if self.ring.len() > log.limits.events {
            self.forget_first();
        }
        self.deliver(&event);
    }

    fn deliver(&mut self, event: &Arc<Published>) {
        let optional = event.body.is_optional();
        self.listeners
            .retain(|(_, listener)| (optional && !listener.sees_optional()) || listener.deliver(event).is_ok());
    }

    fn release(&mut self, log: &EventLog) {
        while let Some((body, re)) = self.held.pop_front() {
            self.emit(log, body, re);
        }
    }

    fn forget_old(&mut self, limits: &Limits, now: Instant) {
        while self
            .ring
            .front()
            .is_some_and(|kept| now.saturating_duration_since(kept.at) > limits.age)
        {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(kept) = self.ring.pop_front() {
            self.ring_from = kept.seq + 1;
        }
    }
}

/// The feed of one running turn.
pub(super) struct TurnEvents {
    pub log: Arc<EventLog>,
    pub re: Option<Arc<str>>,
}

impl TurnFeed for TurnEvents {
    fn delta(&self, turn: u32, offset: usize, npc: &NpcId, text: &str) {
        let mut inner = self.log.inner.lock();
        if inner.listeners.is_empty() {
            return;
        }
        let body = EventBody::delta(self.log.dialogue.kind(), turn, offset, npc.clone(), text.to_owned());
        inner.deliver(&Published::new(self.log.event(None, body, None)));
    }

    fn done(&self, done: ReplyDone) -> u64 {
        let mut inner = self.log.inner.lock();
        if let Some(open) = &mut inner.open {
            open.done = Some(done.status);
        }
        let body = EventBody::done(self.log.dialogue.kind(), done);
        if inner.moving.is_some() {
            let seq = inner.take_seq();
            if let Some(moving) = &mut inner.moving {
                moving.held.push((Some(seq), body, self.re.clone()));
            }
            return seq;
        }
        inner.emit(&self.log, body, self.re.clone())
    }

    fn reserve_committed(&self) -> u64 {
        let mut inner = self.log.inner.lock();
        let seq = inner.take_seq();
        inner.reserved = Some(seq);
        seq
    }
}

fn failed(turn: u32, npc: NpcId, code: &'static str, message: &str) -> ReplyDone {
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

/// The three durable events of a committed turn, for a resume after a restart.
pub(super) fn events_of(turn: &Turn) -> [DialogueEvent; 3] {
    let event = |seq, body| DialogueEvent {
        dialogue_id: turn.dialogue,
        seq: Some(seq),
        re: None,
        body,
    };
    let done = ReplyDone {
        turn: turn.number,
        npc_id: turn.npc.clone(),
        text: turn.reply_text.clone(),
        status: turn.status,
        usage: turn.usage,
        cues: turn.cues.clone(),
        error: None,
    };
    let (kind, number, npc) = (turn.dialogue.kind(), turn.number, &turn.npc);
    [
        event(turn.seqs.started, EventBody::started(kind, number, npc.clone())),
        event(turn.seqs.done, EventBody::done(kind, done)),
        event(
            turn.seqs.committed,
            EventBody::committed(kind, number, turn.id, npc.clone()),
        ),
    ]
}

/// The event of a move, for a resume after a restart.
pub(super) fn event_of(dialogue: DialogueId, rewound: &Rewound) -> DialogueEvent {
    DialogueEvent {
        dialogue_id: dialogue,
        seq: Some(rewound.seq),
        re: None,
        body: EventBody::DialogueRewound(rewound.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        actors::tests::world::{Ear, settings},
        ids::{DialogueKind, GeneratedId},
        ports::clock::SystemClock,
    };

    fn log() -> (Arc<EventLog>, Arc<Ear>) {
        let id = DialogueId::new(DialogueKind::Session, ulid::Ulid(1));
        let log = Arc::new(EventLog::new(id, &settings(), Arc::new(SystemClock)));
        log.loaded(1, Some(1), 0, 0);
        let ear = Ear::new();
        let listener: Arc<dyn Listener> = Arc::<Ear>::clone(&ear);
        log.attach(listener, None, Vec::new()).unwrap();
        (log, ear)
    }

    /// Turn 1 up to the reservation of its commit, with an event of an earlier turn coming in between.
    fn spoken(log: &Arc<EventLog>) -> u64 {
        log.turn_started(1, "mira".parse().unwrap(), None);
        let feed = TurnEvents {
            log: Arc::clone(log),
            re: None,
        };
        let mut done = failed(1, "mira".parse().unwrap(), "", "");
        done.status = TurnStatus::Completed;
        feed.done(done);
        let reserved = feed.reserve_committed();
        let facts = Vec::new();
        log.publish(EventBody::MemoryUpdated { turn: 0, facts }, None);
        reserved
    }

    #[test]
    fn what_comes_during_a_commit_goes_out_after_it() {
        let (log, ear) = log();
        let reserved = spoken(&log);
        assert_eq!(ear.story(), ["started 1", "completed 1"]);
        assert_eq!(
            log.head_seq(),
            reserved - 1,
            "a reserved number was not seen by anybody"
        );
        log.committed(1, TurnId::from_ulid(ulid::Ulid(1)), "mira".parse().unwrap(), None);
        assert_eq!(ear.story(), ["started 1", "completed 1", "committed 1", "memory 0"]);
        assert_eq!(ear.seqs(), [2, 3, reserved, reserved + 1]);
    }

    #[test]
    fn what_comes_during_a_commit_that_fails_goes_out_too() {
        let (log, ear) = log();
        spoken(&log);
        let error = EventError {
            code: "store_unavailable",
            message: String::new(),
            retry_after_ms: None,
        };
        log.not_committed(&error);
        assert_eq!(
            ear.story(),
            ["started 1", "completed 1", "error store_unavailable", "memory 0"]
        );
        assert!(ear.seqs().is_sorted_by(|a, b| a < b));
        log.not_committed(&error);
        assert_eq!(ear.story().len(), 4, "it is told once");
    }

    #[test]
    fn a_turn_cut_before_its_first_character_has_an_end() {
        let (log, ear) = log();
        log.turn_started(1, "mira".parse().unwrap(), None);
        let feed = TurnEvents {
            log: Arc::clone(&log),
            re: None,
        };
        let mut done = failed(1, "mira".parse().unwrap(), "", "");
        done.status = TurnStatus::Interrupted;
        feed.done(done);
        let error = EventError {
            code: "turn_cut",
            message: String::new(),
            retry_after_ms: None,
        };
        log.not_committed(&error);
        assert_eq!(ear.story(), ["started 1", "interrupted 1", "error turn_cut"]);
    }

    #[test]
    fn a_listener_that_may_not_see_optional_events_sees_a_jump() {
        struct Plain(Arc<Ear>);
        impl Listener for Plain {
            fn deliver(&self, event: &Arc<Published>) -> Result<(), crate::actors::ListenerGone> {
                self.0.deliver(event)
            }
            fn sees_optional(&self) -> bool {
                false
            }
        }
        let (log, all) = log();
        let heard = Ear::new();
        log.attach(Arc::new(Plain(Arc::clone(&heard))), None, Vec::new())
            .unwrap();
        spoken(&log);
        log.committed(1, TurnId::from_ulid(ulid::Ulid(1)), "mira".parse().unwrap(), None);
        log.turn_started(2, "mira".parse().unwrap(), None);
        assert_eq!(all.seqs(), [2, 3, 4, 5, 6]);
        assert_eq!(heard.seqs(), [2, 3, 4, 6]);
        // A resume skips them as well.
        let late = Ear::new();
        let (_, replayed, _) = log
            .attach(Arc::new(Plain(Arc::clone(&late))), Some(3), Vec::new())
            .unwrap();
        assert_eq!((replayed, late.seqs()), (2, vec![4, 6]));
    }
}
