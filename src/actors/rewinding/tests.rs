//! Who is served by which move, and what is kept of it.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::memory::turn::Turn;

fn wish(number: u32, heard_chars: Option<usize>, caller: u32) -> Wish<u32> {
    Wish {
        target: Target::Turn { number, heard_chars },
        key: Some(format!("k{caller}")),
        who: Principal {
            subject: "s".into(),
            tenant: "t".parse().unwrap(),
            role: Role::Backend,
            player: None,
            world: None,
            issued: crate::tenancy::Issued::default(),
            expires_at: DateTime::<Utc>::MAX_UTC,
        },
        action: "session.rewind",
        caller,
    }
}

#[test]
fn the_lowest_turn_wins_and_everybody_is_told() {
    let mut moves = Moves::default();
    for (number, heard, caller) in [(7, None, 1), (3, Some(9), 2), (3, Some(4), 3), (5, None, 4)] {
        moves.add(wish(number, heard, caller));
    }
    let goal = moves.begin().unwrap();
    assert_eq!(
        (goal.target, goal.key.as_deref()),
        (
            Target::Turn {
                number: 3,
                heard_chars: Some(4)
            },
            Some("k3")
        )
    );
    assert!(moves.begin().is_none(), "one at a time");
    assert_eq!(moves.ended(3), [1, 2, 3, 4]);
    assert!(!moves.is_busy());
}

#[test]
fn keys_of_those_who_are_told_of_a_later_move_come_with_it() {
    let mut moves = Moves::default();
    moves.add(wish(5, None, 1));
    moves.add(wish(6, None, 2));
    assert_eq!(moves.begin().unwrap().also, ["k2"]);
    moves.add(wish(3, None, 3));
    assert!(moves.ended(5).is_empty(), "something lower is asked");
    let goal = moves.begin().unwrap();
    assert_eq!(
        (goal.key.as_deref(), goal.also.as_slice()),
        (Some("k3"), ["k1".to_owned(), "k2".to_owned()].as_slice())
    );
    assert_eq!(moves.ended(3), [1, 2, 3]);
    moves.add(wish(1, None, 4));
    assert!(moves.begin().unwrap().also.is_empty(), "they have been told");
}

#[test]
fn whoever_asks_too_late_is_told_of_the_last_of_the_moves_that_took_it_back() {
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
        Arc::new(Rewound {
            removed: removed.to_vec(),
            seq: 9,
            ..Rewound::live_cut(crate::ids::RewindId::from_u128(1), "vale".parse().unwrap(), 1, &turn)
        })
    };
    let mut gone = Gone::default();
    gone.note(id(6), &moved(4, &[5, 6]), Some(7));
    let last = moved(2, &[3, 4]);
    gone.note(id(4), &last, None);
    for turn in 3..=7 {
        assert_eq!(gone.with(turn, id(2)), Some(Arc::clone(&last)), "{turn}");
    }
    assert_eq!(gone.with(2, id(2)), None);
    assert_eq!(gone.with(8, id(2)), None);
    assert_eq!(gone.with(3, id(30)), None, "something was said since");
    let other = moved(20, &[30]);
    gone.note(id(30), &other, None);
    assert_eq!(gone.with(5, id(20)), None);
}

#[test]
fn what_is_put_back_is_still_asked_when_a_lower_move_comes_to_nothing() {
    let again = || Wish {
        target: Target::Again {
            turn: TurnId::from_u128(1),
        },
        ..wish(0, None, 1)
    };
    let mut moves = Moves::default();
    moves.add(again());
    moves.add(wish(4, None, 2));
    assert_eq!(moves.begin().unwrap().key.as_deref(), Some("k2"));
    assert_eq!(moves.failed(), [2]);
    let goal = moves.begin().unwrap();
    assert_eq!(goal.target, again().target);
    assert_eq!(moves.ended(5), [1]);
    // Whoever takes its turn back for good has decided.
    moves.add(again());
    moves.add(wish(4, None, 2));
    moves.begin().unwrap();
    assert_eq!(moves.ended(4), [2, 1]);
    assert!(!moves.is_busy());
}

#[test]
fn every_key_goes_with_the_move_that_serves_it() {
    let mut moves = Moves::default();
    moves.add(wish(7, None, 1));
    moves.add(wish(3, None, 2));
    moves.add(wish(5, None, 3));
    let goal = moves.begin().unwrap();
    assert_eq!(goal.key.as_deref(), Some("k2"));
    assert_eq!(goal.also, ["k1", "k3"]);
    moves.add(wish(4, None, 4));
    assert_eq!(moves.ended(3), [1, 2, 3, 4]);
    assert_eq!(moves.take_late().keys, ["k4"], "it came when the move was written");
    // The lowest has none.
    moves.add(Wish {
        key: None,
        ..wish(1, None, 5)
    });
    moves.add(wish(2, None, 6));
    let goal = moves.begin().unwrap();
    assert_eq!((goal.key.as_deref(), goal.also.len()), (Some("k6"), 0));
}

#[test]
fn answers_are_held_until_nothing_lower_is_asked() {
    let mut moves = Moves::default();
    moves.add(wish(7, None, 1));
    moves.begin().unwrap();
    moves.add(wish(9, None, 2));
    moves.add(wish(4, None, 3));
    assert_eq!(moves.ended(7), [0; 0]);
    let goal = moves.begin().unwrap();
    assert_eq!(goal.key.as_deref(), Some("k3"));
    assert_eq!(moves.ended(4), [1, 2, 3]);
}

#[test]
fn what_failed_is_told_to_those_it_was_made_for() {
    let mut moves = Moves::default();
    moves.add(wish(7, None, 1));
    moves.begin().unwrap();
    moves.add(wish(4, None, 2));
    assert_eq!(moves.failed(), [1]);
    assert!(moves.is_busy());
    assert_eq!(moves.give_up(), [2]);
    assert!(!moves.is_busy());
}
