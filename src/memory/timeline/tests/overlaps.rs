//! What is known of one subject in two memories.

use super::*;

/// What is known beside a memory of the player's own, near its facts.
impl Case {
    fn beside(mut self, id: u128, n: i64, content: &str, private_to: Option<&str>, near: (u128, f32)) -> Self {
        let mut other = Self::since(0).says(id, n, content, 0.0).timeline.known.remove(0).fact;
        other.audience.private_to = private_to.map(|player| player.parse().expect("an id"));
        let (here, cosine) = (fact(near.0), near.1);
        self.timeline.overlaps.push(Overlap {
            here,
            there: other.id,
            cosine,
        });
        self.timeline.elsewhere.insert(other.id, other);
        self
    }
    fn replaced(&self) -> Vec<(u128, u128)> {
        let pair = |pair: &Replaced| (pair.fact.as_u128(), pair.by.as_u128());
        self.settled().replaced.iter().map(pair).collect()
    }
}

#[test]
fn the_newer_of_two_memories_replaces_the_older_for_whoever_knows_both() {
    let (likes, hates) = ("The player likes apples", "The player hates apples");
    // Told alone, and changed before others; whichever is learned first.
    let told = Case::since(1)
        .says(1, 1, likes, 0.0)
        .beside(2, 2, hates, None, (1, 0.95));
    assert_eq!(told.replaced(), [(1, 2)]);
    assert_eq!(told.ends(), [], "whoever was not there knows what they were told");
    let changed = Case::since(2)
        .says(2, 2, hates, 0.0)
        .beside(1, 1, likes, None, (2, 0.95));
    assert_eq!(changed.replaced(), [(1, 2)]);
    // What is stored is not written again; what no longer holds replaces nothing.
    let mut stored = changed.clone();
    let older = stored.timeline.elsewhere.get_mut(&fact(1)).expect("it is known");
    older.replaced_by.push(fact(2));
    assert_eq!(stored.replaced(), []);
    let over = changed
        .clone()
        .says(3, 3, "The player likes pears", 45.0)
        .with(2, |known| {
            known.ends.push(Ended {
                id: InvalidationId::from_u128(1),
                reason: InvalidReason::Removed,
                by: None,
                turn: None,
                at: second(3),
                restored_at: None,
            });
        });
    assert_eq!(over.replaced(), []);
    // Nor does what says something else.
    let other = Case::since(2)
        .says(2, 2, hates, 0.0)
        .beside(1, 1, hates, None, (2, 0.95));
    assert_eq!(other.replaced(), []);
}

#[test]
fn a_judge_is_asked_about_other_memories_with_the_room_that_is_left() {
    let (bread, guests) = (
        "The player likes the black bread",
        "The player likes bread that guests bake",
    );
    let case = Case::since(2)
        .says(2, 2, guests, 0.0)
        .beside(1, 1, bread, None, (2, 0.95));
    assert_eq!(case.settled().unasked.len(), 1);
    let none = Room {
        tokens: 20,
        ..Room::ENDLESS
    };
    let prepared = Prepared::new(&CALIBRATION, case.timeline.clone());
    assert_eq!(prepared.settle(&none, |_, _| Judged::Unasked).unasked, []);
    assert_eq!(case.judged(bread, guests, Verdict::Contradicts).replaced(), [(1, 2)]);
}

#[test]
fn what_authors_wrote_for_more_than_this_memory_is_flagged() {
    let (likes, hates) = ("The player likes apples", "The player hates apples");
    let mut case = Case::since(2)
        .says(2, 2, hates, 0.0)
        .beside(1, 1, likes, None, (2, 0.95));
    case.timeline.elsewhere.get_mut(&fact(1)).expect("it is known").authored = true;
    let settled = case.settled();
    let flag = Flagged {
        fact: fact(1),
        by: fact(2),
        turn: turn(2),
    };
    assert_eq!((settled.replaced, settled.flags), (vec![], vec![flag]));
}

#[test]
fn a_promise_of_another_memory_ends_for_all_who_hear_that_it_is_kept() {
    let promise = "The player will bring salt";
    let kept = |audience: Option<&str>, private_to| {
        let mut case = Case::since(2)
            .says(2, 2, "The player brought the salt", 0.0)
            .brought(2, &[], &[1]);
        let here = &mut case.known(2).fact.audience;
        here.private_to = audience.map(|player| player.parse().expect("an id"));
        case.timeline.audience = Some(here.clone());
        case.timeline.said[0].ends.push(Ending {
            fact: fact(1),
            how: InvalidReason::Fulfilled,
        });
        let mut case = case.beside(1, 1, promise, private_to, (2, 0.1));
        case.timeline.overlaps.clear();
        case
    };
    let before_all = kept(None, Some("p7"));
    assert_eq!(before_all.ends(), [(1, InvalidReason::Fulfilled, None)]);
    // Those who were not told go on waiting.
    let alone = kept(Some("p7"), None);
    assert_eq!((alone.ends(), alone.replaced()), (vec![], vec![(1, 2)]));
    // Whom it was promised hears it, though not every NPC who heard the promise.
    let mut witnessed = kept(Some("p7"), Some("p7"));
    let promise = witnessed.timeline.elsewhere.get_mut(&fact(1)).expect("it is known");
    promise
        .audience
        .knowers
        .insert(Knower::Npc("tom".parse().expect("an id")));
    assert_eq!(witnessed.ends(), [(1, InvalidReason::Fulfilled, None)]);
    // Nobody hears of both.
    let of_others = kept(Some("p7"), Some("p8"));
    assert_eq!((of_others.ends(), of_others.replaced()), (vec![], vec![]));
}
