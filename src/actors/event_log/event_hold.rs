//! Events during and after a rewind of the head.

use std::sync::Arc;

use super::{EventLog, failed_reply};
use colloquy_dialogue::{
    events::{EventBody, EventError},
    turn::{TurnError, event_error},
};
use colloquy_memory::turn::TurnStatus;
use colloquy_ports::ledger::rewinds::RewindRecord;

/// A rewind is running: durable events wait for the outcome.
pub(super) struct EventHold {
    /// The first reserved number. The numbers serve the rewind itself and the end of the running turn.
    first: u64,
    /// Events during the rewind, with the number already promised.
    pub(super) held_events: Vec<(Option<u64>, EventBody, Option<Arc<str>>)>,
}

/// Numbers that a rewind reserves: for `reply.done` and `error` of the turn that the rewind ends, and for the rewind.
const SEQS_PER_REWIND: u64 = 3;

impl EventLog {
    /// Starts the hold before a rewind and returns the number of the rewind's event. Durable events wait until
    /// [`Self::publish_rewind`] or [`Self::release_rewind_hold`].
    pub fn begin_rewind_hold(&self) -> u64 {
        let mut inner = self.inner.lock();
        debug_assert!(inner.rewind_hold.is_none(), "one rewind runs at a time");
        let first = inner.next_seq;
        inner.next_seq += SEQS_PER_REWIND;
        inner.rewind_hold = Some(EventHold {
            first,
            held_events: Vec::new(),
        });
        first + SEQS_PER_REWIND - 1
    }

    /// Publishes a finished rewind. A running turn ends unsaid: `reply.done` goes out if still missing, and held events
    /// of the turn are dropped. Then `body` announces the rewind.
    pub fn publish_rewind(&self, body: EventBody, unsaid: &EventError) {
        let mut inner = self.inner.lock();
        let Some(EventHold { first, held_events }) = inner.rewind_hold.take() else {
            return;
        };
        inner.reserved = None;
        if let Some(open) = inner.open_turn.take() {
            // A `reply.done` held during the rewind was not delivered.
            let was_delivered = !held_events
                .iter()
                .any(|(_, body, _)| matches!(body, EventBody::ReplyDone(_) | EventBody::NpcTurnDone(_)));
            let status = open.reply_status.filter(|_| was_delivered);
            if status.is_none() {
                let mut reply_done = failed_reply(open.turn, open.npc, unsaid.code, &unsaid.message);
                reply_done.status = TurnStatus::Interrupted;
                reply_done.error = None;
                inner.emit_with_seq(
                    self,
                    first,
                    EventBody::reply_done(self.dialogue.kind(), reply_done),
                    open.re.clone(),
                );
            }
            if status != Some(TurnStatus::Failed) {
                let body = EventBody::Error {
                    turn: Some(open.turn),
                    error: unsaid.clone(),
                };
                inner.emit_with_seq(self, first + 1, body, open.re);
            }
        }
        inner.emit_with_seq(self, first + SEQS_PER_REWIND - 1, body, None);
        inner.release_held(self);
        for (promised, body, re) in held_events {
            // Held events with a number belonged to the unsaid turn.
            if promised.is_none() {
                inner.emit_event(self, body, re);
            }
        }
    }

    /// Publishes a restored save. The running turn ends unsaid, and `body` announces the rewind in the ledger. The
    /// event has the number `seq`, or the next number if `seq` was already assigned.
    pub fn publish_restore(&self, body: EventBody, unsaid: &EventError, seq: u64) {
        let mut inner = self.inner.lock();
        inner.next_seq = inner.next_seq.max(seq.saturating_sub(SEQS_PER_REWIND - 1));
        inner.epoch += 1;
        // The event states the present head, whatever rewinds came before.
        inner.in_doubt_from = None;
        drop(inner);
        self.begin_rewind_hold();
        self.publish_rewind(body, unsaid);
    }

    /// Publishes rewinds found on a reload: by another node, in a restore, or a rewind with a lost answer. Published
    /// before all later events.
    pub fn publish_missed_rewinds(&self, missed: &[RewindRecord]) {
        self.release_rewind_hold(false);
        self.inner.lock().in_doubt_from = None;
        let unsaid = event_error(&TurnError::Unsaid);
        let mut last = 0;
        for rewound in missed {
            // The keys of several callers served by a rewind share its number.
            if std::mem::replace(&mut last, rewound.seq) != rewound.seq {
                self.publish_restore(EventBody::DialogueRewound(rewound.into()), &unsaid, rewound.seq);
            }
        }
    }

    /// Returns the last number up to which listeners surely know of rewinds; `None`: no event was published.
    pub fn last_notified_seq(&self) -> Option<u64> {
        let inner = self.inner.lock();
        let last = inner
            .in_doubt_from
            .map_or(inner.head_seq, |from| inner.head_seq.min(from - 1));
        (inner.head_seq > 0).then_some(last)
    }

    /// Releases held events if no rewind happened. With `in_doubt`, the outcome is unknown until the next load.
    pub fn release_rewind_hold(&self, in_doubt: bool) {
        let mut inner = self.inner.lock();
        let Some(EventHold { first, held_events }) = inner.rewind_hold.take() else {
            return;
        };
        if in_doubt {
            inner.in_doubt_from.get_or_insert(first);
        }
        let (promised, later): (Vec<_>, Vec<_>) = held_events.into_iter().partition(|(seq, ..)| seq.is_some());
        for (seq, body, re) in promised {
            inner.emit_with_seq(self, seq.unwrap_or_default(), body, re);
        }
        for (_, body, re) in later {
            if inner.reserved.is_some() {
                inner.held_events.push_back((body, re));
            } else {
                inner.emit_event(self, body, re);
            }
        }
    }
}
