//! Tests of one subject in two memories.

use super::*;

/// Facts of another memory, near facts of the player's memory.
impl TimelineCase {
    fn beside(mut self, id: u128, n: i64, content: &str, private_to: Option<&str>, near: (u128, f32)) -> Self {
        let mut other = Self::since(0)
            .says(id, n, content, 0.0)
            .timeline
            .known_facts
            .remove(0)
            .fact;
        other.audience.private_to = private_to.map(|player| player.parse().expect("an id"));
        let (here, cosine) = (fact(near.0), near.1);
        self.timeline.overlaps.push(AudienceOverlap {
            local_fact: here,
            foreign_fact: other.id,
            cosine,
        });
        self.timeline.other_memories.insert(other.id, other);
        self
    }
    fn replaced(&self) -> Vec<(u128, u128)> {
        let pair = |pair: &FactReplacement| (pair.fact.as_u128(), pair.successor.as_u128());
        self.settled().replaced.iter().map(pair).collect()
    }
}

#[test]
fn newer_memory_replaces_the_older_for_knowers_of_both() {
    let (likes, hates) = ("The player likes apples", "The player hates apples");
    // Told in private and changed in public, in either order of learning.
    let told = TimelineCase::since(1)
        .says(1, 1, likes, 0.0)
        .beside(2, 2, hates, None, (1, 0.95));
    assert_eq!(told.replaced(), [(1, 2)]);
    assert_eq!(told.ends(), [], "whoever was not there knows what they were told");
    let changed = TimelineCase::since(2)
        .says(2, 2, hates, 0.0)
        .beside(1, 1, likes, None, (2, 0.95));
    assert_eq!(changed.replaced(), [(1, 2)]);
    // A stored replacement is not written again. A fact that no longer holds replaces no fact.
    let mut stored = changed.clone();
    let older = stored.timeline.other_memories.get_mut(&fact(1)).expect("it is known");
    older.replaced_by.push(fact(2));
    assert_eq!(stored.replaced(), []);
    let over = changed
        .clone()
        .says(3, 3, "The player likes pears", 45.0)
        .with(2, |known| {
            known.ends.push(StoredEnd {
                id: InvalidationId::from_u128(1),
                reason: InvalidReason::Removed,
                ended_by: None,
                turn: None,
                ended_at: second(3),
                restored_at: None,
            });
        });
    assert_eq!(over.replaced(), []);
    // A different statement replaces no fact either.
    let other = TimelineCase::since(2)
        .says(2, 2, hates, 0.0)
        .beside(1, 1, hates, None, (2, 0.95));
    assert_eq!(other.replaced(), []);
}

#[test]
fn judge_is_asked_about_other_memories_in_the_remaining_room() {
    let (bread, guests) = (
        "The player likes the black bread",
        "The player likes bread that guests bake",
    );
    let case = TimelineCase::since(2)
        .says(2, 2, guests, 0.0)
        .beside(1, 1, bread, None, (2, 0.95));
    assert_eq!(case.settled().unjudged.len(), 1);
    let none = JudgeBudget {
        tokens: 20,
        ..JudgeBudget::UNLIMITED
    };
    let prepared = PreparedTimeline::new(&CALIBRATION, case.timeline.clone());
    assert_eq!(
        prepared
            .reconcile_timeline(&none, |_, _| JudgeAnswer::NotAsked)
            .unjudged,
        []
    );
    assert_eq!(
        case.judged(bread, guests, JudgeVerdict::Contradicts).replaced(),
        [(1, 2)]
    );
}

#[test]
fn authored_fact_of_a_wider_memory_is_only_flagged() {
    let (likes, hates) = ("The player likes apples", "The player hates apples");
    let mut case = TimelineCase::since(2)
        .says(2, 2, hates, 0.0)
        .beside(1, 1, likes, None, (2, 0.95));
    case.timeline
        .other_memories
        .get_mut(&fact(1))
        .expect("it is known")
        .authored = true;
    let settled = case.settled();
    let flag = FlaggedFact {
        fact: fact(1),
        statement: fact(2),
        turn: turn(2),
    };
    assert_eq!((settled.replaced, settled.flags), (vec![], vec![flag]));
}

#[test]
fn promise_of_another_memory_ends_for_all_who_hear_of_its_fulfilment() {
    let promise = "The player will bring salt";
    let kept = |audience: Option<&str>, private_to| {
        let mut case = TimelineCase::since(2)
            .says(2, 2, "The player brought the salt", 0.0)
            .brought(2, &[], &[1]);
        let here = &mut case.known(2).fact.audience;
        here.private_to = audience.map(|player| player.parse().expect("an id"));
        case.timeline.audience = Some(here.clone());
        case.timeline.turns[0].ends.push(PromiseEnd {
            fact: fact(1),
            how: InvalidReason::Fulfilled,
        });
        let mut case = case.beside(1, 1, promise, private_to, (2, 0.1));
        case.timeline.overlaps.clear();
        case
    };
    let before_all = kept(None, Some("p7"));
    assert_eq!(before_all.ends(), [(1, InvalidReason::Fulfilled, None)]);
    // Players who did not hear the turn keep the promise.
    let alone = kept(Some("p7"), None);
    assert_eq!((alone.ends(), alone.replaced()), (vec![], vec![(1, 2)]));
    // The player of the promise hears the end, though not every NPC who heard the promise.
    let mut witnessed = kept(Some("p7"), Some("p7"));
    let promise = witnessed
        .timeline
        .other_memories
        .get_mut(&fact(1))
        .expect("it is known");
    promise
        .audience
        .knowers
        .insert(Knower::Npc("tom".parse().expect("an id")));
    assert_eq!(witnessed.ends(), [(1, InvalidReason::Fulfilled, None)]);
    // No player hears of both.
    let of_others = kept(Some("p7"), Some("p8"));
    assert_eq!((of_others.ends(), of_others.replaced()), (vec![], vec![]));
}
