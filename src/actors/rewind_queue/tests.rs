//! The rewind that serves each request, and its records.
#![allow(clippy::unwrap_used)]

use chrono::DateTime;

use super::*;
use crate::{HeardLength, dialogue::rewind_run::server_principal};
use colloquy_core::scope::TenantScope;
use colloquy_ports::ledger::rewinds::RolledBack;

fn turn_target(number: u32, heard: Option<usize>) -> RewindTarget {
    RewindTarget::Turn {
        number,
        heard: heard.map(HeardLength::Chars),
    }
}

fn requester(key: Option<String>) -> Requester {
    Requester {
        who: server_principal(&TenantScope::new("t".parse().unwrap())),
        key,
        action: "session.rewind",
    }
}

fn push_turn(queue: &mut RewindQueue<u32>, number: u32, caller: u32) {
    queue.push_request(turn_target(number, None), requester(Some(key(caller))), caller);
}

fn begin(queue: &mut RewindQueue<u32>) -> (RewindTarget, Option<String>, Vec<String>) {
    let (target, requesters) = queue.begin_next().unwrap();
    let others = requesters.other_keys().cloned().collect();
    (target, requesters.own_key().cloned(), others)
}

fn key(caller: u32) -> String {
    format!("k{caller}")
}

#[test]
fn lowest_rewind_wins_and_all_callers_are_answered() {
    let mut queue = RewindQueue::default();
    for (number, heard, caller) in [(7, None, 1), (3, Some(9), 2), (3, Some(4), 3), (5, None, 4)] {
        queue.push_request(turn_target(number, heard), requester(Some(key(caller))), caller);
    }
    let (target, own, _) = begin(&mut queue);
    assert_eq!((target, own), (turn_target(3, Some(4)), Some(key(3))));
    assert!(queue.begin_next().is_none(), "one at a time");
    assert_eq!(queue.finish_at_head(3), [1, 2, 3, 4]);
    assert!(!queue.is_busy());
}

#[test]
fn keys_of_coalesced_callers_go_with_the_later_rewind() {
    let mut queue = RewindQueue::default();
    push_turn(&mut queue, 5, 1);
    push_turn(&mut queue, 6, 2);
    assert_eq!(begin(&mut queue).2, ["k2"]);
    push_turn(&mut queue, 3, 3);
    assert!(queue.finish_at_head(5).is_empty(), "something lower is asked");
    let (_, own, others) = begin(&mut queue);
    assert_eq!((own, others), (Some(key(3)), vec!["k1".to_owned(), "k2".to_owned()]));
    assert_eq!(queue.finish_at_head(3), [1, 2, 3]);
    push_turn(&mut queue, 1, 4);
    assert!(begin(&mut queue).2.is_empty(), "they have been told");
}

#[test]
fn late_caller_is_answered_with_the_last_rewind_of_its_turn() {
    let id = |n: u128| Some(TurnId::from_u128(n));
    let record = |to: u32, removed: &[u32]| {
        Arc::new(RewindRecord {
            id: colloquy_core::ids::RewindId::from_u128(1),
            world: "vale".parse().unwrap(),
            epoch: 1,
            head: id(to.into()),
            head_turn: to,
            heard_chars: None,
            removed: removed.to_vec(),
            reinstated: Vec::new(),
            rolled_back: RolledBack::default(),
            quoted_in: Vec::new(),
            closed: Vec::new(),
            replacing: None,
            seq: 9,
            rewound_at: DateTime::UNIX_EPOCH,
        })
    };
    let mut recent = RecentRewinds::default();
    recent.record_rewind(id(6), &record(4, &[5, 6]), Some(7));
    let last = record(2, &[3, 4]);
    recent.record_rewind(id(4), &last, None);
    for turn in 3..=7 {
        assert_eq!(recent.last_removing(turn, id(2)), Some(Arc::clone(&last)), "{turn}");
    }
    assert_eq!(recent.last_removing(2, id(2)), None);
    assert_eq!(recent.last_removing(8, id(2)), None);
    assert_eq!(recent.last_removing(3, id(30)), None, "something was said since");
    let other = record(20, &[30]);
    recent.record_rewind(id(30), &other, None);
    assert_eq!(recent.last_removing(5, id(20)), None);
}

#[test]
fn reinstatement_is_still_pending_after_a_failed_lower_rewind() {
    let again = RewindTarget::Reinstate {
        turn: TurnId::from_u128(1),
    };
    let mut queue = RewindQueue::default();
    queue.push_request(again, requester(Some(key(1))), 1);
    push_turn(&mut queue, 4, 2);
    assert_eq!(begin(&mut queue).1, Some(key(2)));
    assert_eq!(queue.take_failed_callers(), [2]);
    assert_eq!(begin(&mut queue).0, again);
    assert_eq!(queue.finish_at_head(5), [1]);
    // A permanent rewind of the turn decides.
    queue.push_request(again, requester(Some(key(1))), 1);
    push_turn(&mut queue, 4, 2);
    queue.begin_next().unwrap();
    assert_eq!(queue.finish_at_head(4), [2, 1]);
    assert!(!queue.is_busy());
}

#[test]
fn idempotency_keys_go_with_the_rewind_that_serves_them() {
    let mut queue = RewindQueue::default();
    push_turn(&mut queue, 7, 1);
    push_turn(&mut queue, 3, 2);
    push_turn(&mut queue, 5, 3);
    let (_, own, others) = begin(&mut queue);
    assert_eq!(own, Some(key(2)));
    assert_eq!(others, ["k1", "k3"]);
    push_turn(&mut queue, 4, 4);
    assert_eq!(queue.finish_at_head(3), [1, 2, 3, 4]);
    let late = queue.take_late_requesters();
    let late: Vec<_> = late.keys().collect();
    assert_eq!(late, ["k4"], "it came when the move was written");
    // The lowest request has no key.
    queue.push_request(turn_target(1, None), requester(None), 5);
    push_turn(&mut queue, 2, 6);
    let (_, own, others) = begin(&mut queue);
    assert_eq!((own, others.len()), (Some(key(6)), 0));
}

#[test]
fn answers_are_held_while_a_lower_rewind_is_pending() {
    let mut queue = RewindQueue::default();
    push_turn(&mut queue, 7, 1);
    queue.begin_next().unwrap();
    push_turn(&mut queue, 9, 2);
    push_turn(&mut queue, 4, 3);
    assert_eq!(queue.finish_at_head(7), [0; 0]);
    assert_eq!(begin(&mut queue).1, Some(key(3)));
    assert_eq!(queue.finish_at_head(4), [1, 2, 3]);
}

#[test]
fn failed_rewind_is_reported_to_its_callers() {
    let mut queue = RewindQueue::default();
    push_turn(&mut queue, 7, 1);
    queue.begin_next().unwrap();
    push_turn(&mut queue, 4, 2);
    assert_eq!(queue.take_failed_callers(), [1]);
    assert!(queue.is_busy());
    assert_eq!(queue.cancel_all(), [2]);
    assert!(!queue.is_busy());
}

#[test]
fn rewind_takes_no_late_key_as_its_own() {
    let mut queue = RewindQueue::default();
    push_turn(&mut queue, 5, 1);
    begin(&mut queue);
    queue.push_request(turn_target(3, None), requester(None), 0);
    push_turn(&mut queue, 4, 1);
    assert!(queue.finish_at_head(5).is_empty());
    // The first rewind has stored the key with its outcome.
    let (_, own, others) = begin(&mut queue);
    assert_eq!((own, others), (None, vec!["k1".to_owned()]));
}
