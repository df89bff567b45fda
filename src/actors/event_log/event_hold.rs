//! What is told while the head is moved, and after.

use std::sync::Arc;

use super::{EventLog, failed_reply};
use crate::{
    dialogue::{
        events::{EventBody, EventError},
        turn::{TurnError, event_error},
    },
    memory::turn::TurnStatus,
    ports::ledger::rewinds::RewindRecord,
};

/// The head is being moved: until it has been, or has not, durable events wait.
pub(super) struct EventHold {
    /// Numbers for the end of the turn under way, should the move end it, and for the move itself.
    first: u64,
    /// What happened meanwhile, with the number it was promised.
    pub(super) held: Vec<(Option<u64>, EventBody, Option<Arc<str>>)>,
}

/// Numbers that a move reserves: for `reply.done` and `error` of the turn it ends, and its own.
const SEQS_PER_REWIND: u64 = 3;

impl EventLog {
    /// The head is about to be moved. Returns the number of the event that will tell of it; durable
    /// events wait until [`Self::publish_rewind`] or [`Self::release_rewind_hold`].
    pub fn begin_rewind_hold(&self) -> u64 {
        let mut inner = self.inner.lock();
        let first = inner.next_seq;
        inner.next_seq += SEQS_PER_REWIND;
        inner.rewind_hold = Some(EventHold {
            first,
            held: Vec::new(),
        });
        first + SEQS_PER_REWIND - 1
    }

    /// The head was moved. The turn under way, if there was one, ends unsaid: `reply.done` goes out if
    /// it had not yet, and what it would have told is dropped; then `body` tells of the move.
    pub fn publish_rewind(&self, body: EventBody, unsaid: &EventError) {
        let mut inner = self.inner.lock();
        let Some(EventHold { first, held }) = inner.rewind_hold.take() else {
            return;
        };
        inner.reserved = None;
        if let Some(open) = inner.open_turn.take() {
            // One that was told while the move was under way was not delivered.
            let told = !held
                .iter()
                .any(|(_, body, _)| matches!(body, EventBody::ReplyDone(_) | EventBody::NpcTurnDone(_)));
            let done = open.done.filter(|_| told);
            if done.is_none() {
                let mut done = failed_reply(open.turn, open.npc, unsaid.code, &unsaid.message);
                done.status = TurnStatus::Interrupted;
                done.error = None;
                inner.emit_with_seq(
                    self,
                    first,
                    EventBody::reply_done(self.dialogue.kind(), done),
                    open.re.clone(),
                );
            }
            if done != Some(TurnStatus::Failed) {
                let body = EventBody::Error {
                    turn: Some(open.turn),
                    error: unsaid.clone(),
                };
                inner.emit_with_seq(self, first + 1, body, open.re);
            }
        }
        inner.emit_with_seq(self, first + SEQS_PER_REWIND - 1, body, None);
        inner.release_held(self);
        for (promised, body, re) in held {
            // What has a number was the unsaid turn's.
            if promised.is_none() {
                inner.emit_event(self, body, re);
            }
        }
    }

    /// A save was loaded: the turn under way ends unsaid, and `body` tells of the move that the ledger made,
    /// with the number `seq`, or with the next one should that have been given out.
    pub fn publish_restore(&self, body: EventBody, unsaid: &EventError, seq: u64) {
        let mut inner = self.inner.lock();
        inner.next_seq = inner.next_seq.max(seq.saturating_sub(SEQS_PER_REWIND - 1));
        inner.epoch += 1;
        // It says where the dialogue stands, whatever was moved before.
        inner.in_doubt_from = None;
        drop(inner);
        self.begin_rewind_hold();
        self.publish_rewind(body, unsaid);
    }

    /// The dialogue was read anew, and its head had been moved meanwhile: by another node, in a restore, or by a
    /// move whose answer was lost. Told before anything that was said since.
    pub fn publish_missed_rewinds(&self, moves: Vec<RewindRecord>) {
        self.release_rewind_hold(false);
        self.inner.lock().in_doubt_from = None;
        let unsaid = event_error(&TurnError::Unsaid);
        let mut last = 0;
        for rewound in moves {
            // Keys of several who were served by one move share it.
            if std::mem::replace(&mut last, rewound.seq) != rewound.seq {
                self.publish_restore(EventBody::DialogueRewound((&rewound).into()), &unsaid, rewound.seq);
            }
        }
    }

    /// How far those who listen have surely been told of moves; `None`: nobody was told anything.
    pub fn last_notified_seq(&self) -> Option<u64> {
        let inner = self.inner.lock();
        let told = inner
            .in_doubt_from
            .map_or(inner.head_seq, |from| inner.head_seq.min(from - 1));
        (inner.head_seq > 0).then_some(told)
    }

    /// The head was not moved, or if that is in doubt, nobody knows until it is read anew: what waited goes out.
    pub fn release_rewind_hold(&self, in_doubt: bool) {
        let mut inner = self.inner.lock();
        let Some(EventHold { first, held }) = inner.rewind_hold.take() else {
            return;
        };
        if in_doubt {
            inner.in_doubt_from.get_or_insert(first);
        }
        let (promised, later): (Vec<_>, Vec<_>) = held.into_iter().partition(|(seq, ..)| seq.is_some());
        for (seq, body, re) in promised {
            inner.emit_with_seq(self, seq.unwrap_or_default(), body, re);
        }
        for (_, body, re) in later {
            if inner.reserved.is_some() {
                inner.held.push_back((body, re));
            } else {
                inner.emit_event(self, body, re);
            }
        }
    }
}
