//! The overlaps of facts, as tables.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::remember::test_statements::{audience, known_fact};
use colloquy_core::ids::JobId;
use colloquy_memory::fact::Cause;

const CALIBRATION: Calibration = Calibration {
    floor: 0.0,
    ceiling: 1.0,
    answer: None,
    same: 0.9,
    related: 0.55,
};

fn overlap(local: u128, foreign: u128) -> AudienceOverlap {
    AudienceOverlap {
        local_fact: FactId::from_u128(local),
        foreign_fact: FactId::from_u128(foreign),
        cosine: 0.7,
    }
}

#[test]
fn fact_overlaps_all_found_facts_but_itself() {
    let candidates = [1, 2, 3].map(|id| Candidate {
        fact: FactId::from_u128(id),
        cosine: 0.7,
        hint: None,
    });
    let overlaps: Vec<_> = overlaps_with(FactId::from_u128(2), &candidates).collect();
    assert_eq!(overlaps, [overlap(2, 1), overlap(2, 3)]);
}

#[test]
fn manual_fact_overlaps_a_near_fact_about_the_same_subject() {
    for (subject, vector, expected) in [
        ("Anna", [1.0, 0.0], true),
        ("anna", [0.6, 0.8], true),
        ("Ben", [1.0, 0.0], false),
        ("Anna", [0.5, 0.86], false),
    ] {
        let manual_fact = known_fact(1, 5, "Anna", &[1.0, 0.0]);
        let turn_fact = known_fact(2, 10, subject, &vector);
        let overlap = overlap_of_pair(&CALIBRATION, &manual_fact, &turn_fact);
        assert_eq!(overlap.is_some(), expected, "{subject} {vector:?}");
    }
}

#[test]
fn facts_outside_the_audience_and_conclusions_are_dropped() {
    let memory = audience("mira", Some("p1"));
    let world: WorldId = "vale".parse().unwrap();
    let foreign_fact = |id: u128, changes: &dyn Fn(&mut Fact)| {
        let mut fact = known_fact(id, 5, "Anna", &[1.0]).fact;
        changes(&mut fact);
        (fact.id, fact)
    };
    let foreign_facts = HashMap::from([
        foreign_fact(10, &|_| {}),
        foreign_fact(11, &|fact| fact.audience = audience("mira", Some("p2"))),
        foreign_fact(12, &|fact| fact.world = "moor".parse().unwrap()),
        foreign_fact(13, &|fact| fact.cause = Cause::Job(JobId::from_u128(1))),
    ]);
    let known_facts = [known_fact(14, 5, "Anna", &[1.0])];
    let overlaps = (10..=15).map(|foreign| overlap(1, foreign)).collect();
    let retained = retain_overlapping(overlaps, (&world, &memory), &known_facts, &foreign_facts);
    assert_eq!(retained, [overlap(1, 10), overlap(1, 14)]);
}
