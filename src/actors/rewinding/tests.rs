//! The rewind that serves each request, and its records.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::memory::turn::Turn;

fn rewind_intent(number: u32, heard_chars: Option<usize>, caller: u32) -> RewindIntent<u32> {
    RewindIntent {
        target: RewindTarget::Turn { number, heard_chars },
        key: Some(format!("k{caller}")),
        who: Principal {
            subject: "s".into(),
            tenant: "t".parse().unwrap(),
            role: Role::Backend,
            player: None,
            world: None,
            issued: crate::tenancy::TokenIdentity::default(),
            expires_at: DateTime::<Utc>::MAX_UTC,
        },
        action: "session.rewind",
        caller,
    }
}

#[test]
fn lowest_rewind_wins_and_all_callers_are_answered() {
    let mut moves = RewindQueue::default();
    for (number, heard, caller) in [(7, None, 1), (3, Some(9), 2), (3, Some(4), 3), (5, None, 4)] {
        moves.push_intent(rewind_intent(number, heard, caller));
    }
    let goal = moves.begin_next().unwrap();
    assert_eq!(
        (goal.target, goal.key.as_deref()),
        (
            RewindTarget::Turn {
                number: 3,
                heard_chars: Some(4)
            },
            Some("k3")
        )
    );
    assert!(moves.begin_next().is_none(), "one at a time");
    assert_eq!(moves.finish_at_head(3), [1, 2, 3, 4]);
    assert!(!moves.is_busy());
}

#[test]
fn keys_of_coalesced_callers_go_with_the_later_rewind() {
    let mut moves = RewindQueue::default();
    moves.push_intent(rewind_intent(5, None, 1));
    moves.push_intent(rewind_intent(6, None, 2));
    assert_eq!(moves.begin_next().unwrap().also, ["k2"]);
    moves.push_intent(rewind_intent(3, None, 3));
    assert!(moves.finish_at_head(5).is_empty(), "something lower is asked");
    let goal = moves.begin_next().unwrap();
    assert_eq!(
        (goal.key.as_deref(), goal.also.as_slice()),
        (Some("k3"), ["k1".to_owned(), "k2".to_owned()].as_slice())
    );
    assert_eq!(moves.finish_at_head(3), [1, 2, 3]);
    moves.push_intent(rewind_intent(1, None, 4));
    assert!(moves.begin_next().unwrap().also.is_empty(), "they have been told");
}

#[test]
fn late_caller_is_answered_with_the_last_rewind_of_its_turn() {
    let id = |n: u128| Some(TurnId::from_u128(n));
    let moved = |to: u32, removed: &[u32]| {
        let turn = Turn {
            id: TurnId::from_u128(u128::from(to)),
            dialogue: DialogueId::new(crate::ids::DialogueKind::Session, ulid::Ulid(1)),
            number: to,
            status: crate::memory::turn::TurnStatus::Completed,
            player: None,
            player_text: String::new(),
            npc: "mira".parse().unwrap(),
            reply_text: String::new(),
            text_version: 1,
            cues: Vec::new(),
            usage: crate::memory::turn::Usage::default(),
            started_at: DateTime::UNIX_EPOCH,
            committed_at: DateTime::UNIX_EPOCH,
            seqs: crate::memory::turn::TurnSeqs::default(),
        };
        Arc::new(RewindRecord {
            removed: removed.to_vec(),
            seq: 9,
            ..RewindRecord::for_live_cut(crate::ids::RewindId::from_u128(1), "vale".parse().unwrap(), 1, &turn)
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
    assert_eq!(moves.begin_next().unwrap().key.as_deref(), Some("k2"));
    assert_eq!(moves.take_failed_callers(), [2]);
    let goal = moves.begin_next().unwrap();
    assert_eq!(goal.target, again().target);
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
    let goal = moves.begin_next().unwrap();
    assert_eq!(goal.key.as_deref(), Some("k2"));
    assert_eq!(goal.also, ["k1", "k3"]);
    moves.push_intent(rewind_intent(4, None, 4));
    assert_eq!(moves.finish_at_head(3), [1, 2, 3, 4]);
    assert_eq!(
        moves.take_late_callers().keys,
        ["k4"],
        "it came when the move was written"
    );
    // The lowest request has no key.
    moves.push_intent(RewindIntent {
        key: None,
        ..rewind_intent(1, None, 5)
    });
    moves.push_intent(rewind_intent(2, None, 6));
    let goal = moves.begin_next().unwrap();
    assert_eq!((goal.key.as_deref(), goal.also.len()), (Some("k6"), 0));
}

#[test]
fn answers_are_held_while_a_lower_rewind_is_pending() {
    let mut moves = RewindQueue::default();
    moves.push_intent(rewind_intent(7, None, 1));
    moves.begin_next().unwrap();
    moves.push_intent(rewind_intent(9, None, 2));
    moves.push_intent(rewind_intent(4, None, 3));
    assert_eq!(moves.finish_at_head(7), [0; 0]);
    let goal = moves.begin_next().unwrap();
    assert_eq!(goal.key.as_deref(), Some("k3"));
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
