//! What is of one matter is compared however far apart the sentences are.

use super::*;

const LIVES: &str = "The player lives in Oakford";
const MOVED: &str = "Rowan moved to Greystone";

/// A home, so many statements of no topic and of another one that are nearer to a move, and the move.
fn told(since: i64, others: u8, moved: &str) -> Case {
    let personal = |known: &mut Known| known.fact.statement.kind = FactKind::PersonalInfo;
    let mut told = Case::since(since).says(1, 1, LIVES, 89.0).with(1, personal);
    for n in 0..others {
        let (id, seen) = (u128::from(n) + 2, f32::from(n) / 2.0 + 30.0);
        let content = if n % 2 == 0 {
            format!("The player saw tree {n}")
        } else {
            format!("The player is {n} years old")
        };
        told = told
            .says(id, i64::from(n) + 2, &content, seen)
            .with(id, |known| known.fact.statement.kind = FactKind::Event);
    }
    told.says(999, 2_000, moved, 0.0)
        .with(999, |known| known.fact.statement.kind = FactKind::Event)
}

fn is_asked(told: &Case, newer: &str) -> bool {
    let unasked = told.settled().unasked;
    unasked
        .iter()
        .any(|pair| pair.older.content == LIVES && pair.newer.content == newer)
}

#[test]
fn a_home_is_found_however_a_move_is_told() {
    for since in [0, 20, 1_000] {
        for (others, found) in [(0, true), (63, true), (64, false)] {
            let told = told(since, others, MOVED);
            assert_eq!(is_asked(&told, MOVED), found, "{others} others, since {since}");
        }
    }
    let told = told(1_000, 3, MOVED).judged(LIVES, MOVED, Verdict::Contradicts);
    assert_eq!(told.ends(), [(1, InvalidReason::Superseded, Some(999))]);
}

#[test]
fn what_is_of_another_matter_or_has_no_vector_is_not_compared() {
    for newer in ["Rowan works at the mill", "Rowan likes the sea", "Rowan owns a boat"] {
        assert_eq!(told(1_000, 0, newer).settled().unasked, [], "{newer}");
    }
    let bare = told(1_000, 0, MOVED).with(1, |known| known.vector = Vec::new());
    assert_eq!(bare.settled().unasked, []);
    // People own many things, and lose one of them.
    let personal = |known: &mut Known| known.fact.statement.kind = FactKind::PersonalInfo;
    let of = |newer: &str| {
        let boat = Case::since(2)
            .says(1, 1, "The player owns a boat", 89.0)
            .with(1, personal);
        let event = |known: &mut Known| known.fact.statement.kind = FactKind::Event;
        boat.says(2, 2, newer, 0.0).with(2, event).settled().unasked.len()
    };
    assert_eq!((of("Rowan sold the boat"), of("Rowan sold the horse")), (1, 0));
}
