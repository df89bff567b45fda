//! Tests the comparison of statements about one matter at any distance.

use super::*;

const LIVES: &str = "The player lives in Oakford";
const MOVED: &str = "Rowan moved to Greystone";

/// A home, `others` statements without a topic and about another topic that are nearer to a move, and the move.
fn told(since: i64, others: u8, moved: &str) -> TimelineCase {
    let personal = |known: &mut KnownFact| known.fact.statement.kind = FactKind::PersonalInfo;
    let mut told = TimelineCase::since(since).says(1, 1, LIVES, 89.0).with(1, personal);
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

fn is_asked(told: &TimelineCase, newer: &str) -> bool {
    let unasked = told.settled().unjudged;
    unasked
        .iter()
        .any(|pair| pair.older.content == LIVES && pair.newer.content == newer)
}

#[test]
fn former_home_is_found_under_any_wording_of_a_move() {
    for since in [0, 20, 1_000] {
        for (others, found) in [(0, true), (63, true), (64, false)] {
            let told = told(since, others, MOVED);
            assert_eq!(is_asked(&told, MOVED), found, "{others} others, since {since}");
        }
    }
    let told = told(1_000, 3, MOVED).judged(LIVES, MOVED, JudgeVerdict::Contradicts);
    assert_eq!(told.ends(), [(1, InvalidReason::Superseded, Some(999))]);
}

#[test]
fn facts_of_another_topic_or_without_a_vector_are_not_compared() {
    for newer in ["Rowan works at the mill", "Rowan likes the sea", "Rowan owns a boat"] {
        assert_eq!(told(1_000, 0, newer).settled().unjudged, [], "{newer}");
    }
    let bare = told(1_000, 0, MOVED).with(1, |known| known.vector = Vec::new());
    assert_eq!(bare.settled().unjudged, []);
    // People own many things, and lose single things.
    let personal = |known: &mut KnownFact| known.fact.statement.kind = FactKind::PersonalInfo;
    let of = |newer: &str| {
        let boat = TimelineCase::since(2)
            .says(1, 1, "The player owns a boat", 89.0)
            .with(1, personal);
        let event = |known: &mut KnownFact| known.fact.statement.kind = FactKind::Event;
        boat.says(2, 2, newer, 0.0).with(2, event).settled().unjudged.len()
    };
    assert_eq!((of("Rowan sold the boat"), of("Rowan sold the horse")), (1, 0));
}

#[test]
fn denial_for_all_time_is_compared_with_distant_words_of_its_speaker() {
    const SMITH: &str = "The player is a smith";
    const NEVER: &str = "The player was never a smith";
    let told = TimelineCase::since(2).says(1, 1, SMITH, 89.0).says(2, 2, NEVER, 0.0);
    let asked = |told: &TimelineCase| told.settled().unjudged.len();
    assert_eq!(asked(&told), 1);
    let by_another = told
        .clone()
        .with(2, |known| known.fact.statement.speaker = "Mira".into());
    assert_eq!(asked(&by_another), 0);
    let of_another = TimelineCase::since(2).says(1, 1, "The player is a baker", 89.0);
    assert_eq!(asked(&of_another.says(2, 2, NEVER, 0.0)), 0);
    let ended = told.judged(SMITH, NEVER, JudgeVerdict::Contradicts).ends();
    assert_eq!(ended, [(1, InvalidReason::Superseded, Some(2))]);
}
