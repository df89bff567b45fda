//! The rewind that serves each request, and its records.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::HeardLength;
use colloquy_ports::ledger::rewinds::RolledBack;

fn turn_target(number: u32, heard: Option<usize>) -> RewindTarget {
    RewindTarget::Turn {
        number,
        heard: heard.map(HeardLength::Chars),
    }
}

fn rewind_intent(number: u32, heard: Option<usize>, caller: u32) -> RewindIntent<u32> {
    RewindIntent {
        target: turn_target(number, heard),
        requester: Requester {
            who: server_principal(&TenantScope::new("t".parse().unwrap())),
            key: Some(key(caller)),
            action: "session.rewind",
        },
        caller,
    }
}

fn begin(moves: &mut RewindQueue<u32>) -> (RewindTarget, Option<String>, Vec<String>) {
    let (target, requesters) = moves.begin_next().unwrap();
    let others = requesters.other_keys().cloned().collect();
    (target, requesters.own_key().cloned(), others)
}

fn key(caller: u32) -> String {
    format!("k{caller}")
}

#[test]
fn lowest_rewind_wins_and_all_callers_are_answered() {
    let mut moves = RewindQueue::default();
    for (number, heard, caller) in [(7, None, 1), (3, Some(9), 2), (3, Some(4), 3), (5, None, 4)] {
        moves.push_intent(rewind_intent(number, heard, caller));
    }
    let (target, own, _) = begin(&mut moves);
    assert_eq!((target, own), (turn_target(3, Some(4)), Some(key(3))));
    assert!(moves.begin_next().is_none(), "one at a time");
    assert_eq!(moves.finish_at_head(3), [1, 2, 3, 4]);
    assert!(!moves.is_busy());
}

#[test]
fn keys_of_coalesced_callers_go_with_the_later_rewind() {
    let mut moves = RewindQueue::default();
    moves.push_intent(rewind_intent(5, None, 1));
    moves.push_intent(rewind_intent(6, None, 2));
    assert_eq!(begin(&mut moves).2, ["k2"]);
    moves.push_intent(rewind_intent(3, None, 3));
    assert!(moves.finish_at_head(5).is_empty(), "something lower is asked");
    let (_, own, others) = begin(&mut moves);
    assert_eq!((own, others), (Some(key(3)), vec!["k1".to_owned(), "k2".to_owned()]));
    assert_eq!(moves.finish_at_head(3), [1, 2, 3]);
    moves.push_intent(rewind_intent(1, None, 4));
    assert!(begin(&mut moves).2.is_empty(), "they have been told");
}

#[test]
fn late_caller_is_answered_with_the_last_rewind_of_its_turn() {
    let id = |n: u128| Some(TurnId::from_u128(n));
    let moved = |to: u32, removed: &[u32]| {
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
    let mut gone = RecentRewinds::default();
    gone.record_rewind(id(6), &moved(4, &[5, 6]), Some(7));
    let last = moved(2, &[3, 4]);
    gone.record_rewind(id(4), &last, None);
    for turn in 3..=7 {
        assert_eq!(gone.last_removing(turn, id(2)), Some(Arc::clone(&last)), "{turn}");
    }
    assert_eq!(gone.last_removing(2, id(2)), None);
    assert_eq!(gone.last_removing(8, id(2)), None);
    assert_eq!(gone.last_removing(3, id(30)), None, "something was said since");
    let other = moved(20, &[30]);
    gone.record_rewind(id(30), &other, None);
    assert_eq!(gone.last_removing(5, id(20)), None);
}

#[test]
fn reinstatement_is_still_pending_after_a_failed_lower_rewind() {
    let again = || RewindIntent {
        target: RewindTarget::Reinstate {
            turn: TurnId::from_u128(1),
        },
        ..rewind_intent(0, None, 1)
    };
    let mut moves = RewindQueue::default();
    moves.push_intent(again());
    moves.push_intent(rewind_intent(4, None, 2));
    assert_eq!(begin(&mut moves).1, Some(key(2)));
    assert_eq!(moves.take_failed_callers(), [2]);
    assert_eq!(begin(&mut moves).0, again().target);
    assert_eq!(moves.finish_at_head(5), [1]);
    // A permanent rewind of the turn decides.
    moves.push_intent(again());
    moves.push_intent(rewind_intent(4, None, 2));
    moves.begin_next().unwrap();
    assert_eq!(moves.finish_at_head(4), [2, 1]);
    assert!(!moves.is_busy());
}

#[test]
fn idempotency_keys_go_with_the_rewind_that_serves_them() {
    let mut moves = RewindQueue::default();
    moves.push_intent(rewind_intent(7, None, 1));
    moves.push_intent(rewind_intent(3, None, 2));
    moves.push_intent(rewind_intent(5, None, 3));
    let (_, own, others) = begin(&mut moves);
    assert_eq!(own, Some(key(2)));
    assert_eq!(others, ["k1", "k3"]);
    moves.push_intent(rewind_intent(4, None, 4));
    assert_eq!(moves.finish_at_head(3), [1, 2, 3, 4]);
    let late = moves.take_late_requesters();
    let late: Vec<_> = late.keys().collect();
    assert_eq!(late, ["k4"], "it came when the move was written");
    // The lowest request has no key.
    let mut keyless = rewind_intent(1, None, 5);
    keyless.requester.key = None;
    moves.push_intent(keyless);
    moves.push_intent(rewind_intent(2, None, 6));
    let (_, own, others) = begin(&mut moves);
    assert_eq!((own, others.len()), (Some(key(6)), 0));
}

#[test]
fn answers_are_held_while_a_lower_rewind_is_pending() {
    let mut moves = RewindQueue::default();
    moves.push_intent(rewind_intent(7, None, 1));
    moves.begin_next().unwrap();
    moves.push_intent(rewind_intent(9, None, 2));
    moves.push_intent(rewind_intent(4, None, 3));
    assert_eq!(moves.finish_at_head(7), [0; 0]);
    assert_eq!(begin(&mut moves).1, Some(key(3)));
    assert_eq!(moves.finish_at_head(4), [1, 2, 3]);
}

#[test]
fn failed_rewind_is_reported_to_its_callers() {
    let mut moves = RewindQueue::default();
    moves.push_intent(rewind_intent(7, None, 1));
    moves.begin_next().unwrap();
    moves.push_intent(rewind_intent(4, None, 2));
    assert_eq!(moves.take_failed_callers(), [1]);
    assert!(moves.is_busy());
    assert_eq!(moves.cancel_all(), [2]);
    assert!(!moves.is_busy());
}

#[test]
fn rewind_takes_no_late_key_as_its_own() {
    let keyless = |number| {
        let mut intent = rewind_intent(number, None, 0);
        intent.requester.key = None;
        intent
    };
    let mut moves = RewindQueue::default();
    moves.push_intent(rewind_intent(5, None, 1));
    begin(&mut moves);
    moves.push_intent(keyless(3));
    moves.push_intent(rewind_intent(4, None, 1));
    assert!(moves.finish_at_head(5).is_empty());
    // The first rewind has stored the key with its outcome.
    let (_, own, others) = begin(&mut moves);
    assert_eq!((own, others), (None, vec!["k1".to_owned()]));
}
