//! What a timeline lacks, and the queries for similar facts, as tables.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::remember::test_statements::{addition, audience, extraction, known_fact, moment, new_fact};
use colloquy_memory::{aliases::canonical_predicate, fact::Tense};

const VECTOR: [f32; 2] = [1.0, 0.0];
const NO_TEXTS: &[&str] = &[];

fn input<'a>(
    audience: &'a Audience,
    addition: Option<&'a TurnAddition>,
    requests: &'a RequestVectors,
) -> TimelineInput<'a> {
    TimelineInput {
        audience,
        since: moment(10),
        addition,
        requests,
        embeds_facts: true,
    }
}

fn rows(known_facts: Vec<KnownFact>, extractions: Vec<Extraction>) -> TimelineRows {
    TimelineRows {
        known_facts,
        extractions,
        foreign_facts: HashMap::new(),
    }
}

fn vectors(texts: &[&str]) -> RequestVectors {
    texts.iter().map(|text| ((*text).to_owned(), VECTOR.to_vec())).collect()
}

/// Returns the subjects of each query; "*": any subject.
fn subjects(queries: &[NeighbourQuery<'_>]) -> Vec<String> {
    let keys = queries.iter().map(|query| query.subjects.as_ref());
    keys.map(|keys| keys.map_or("*".to_owned(), |keys| keys.join(" ")))
        .collect()
}

#[test]
fn new_requests_need_vectors_before_any_search() {
    let shared = audience("mira", None);
    let forgets = |texts: &[&str]| addition(Vec::new(), texts);
    for (added, known, expected) in [
        (None, NO_TEXTS, None),
        (Some(forgets(&[])), NO_TEXTS, None),
        (Some(forgets(&["b", "a", "b"])), NO_TEXTS, Some(vec!["a", "b"])),
        (Some(forgets(&["b", "a"])), &["b"][..], Some(vec!["a"])),
        (Some(forgets(&["b", "a"])), &["b", "a"][..], None),
    ] {
        let requests = vectors(known);
        let missing = input(&shared, added.as_ref(), &requests).missing_in_addition();
        let expected = expected.map(|texts| texts.into_iter().map(str::to_owned).collect());
        assert_eq!(missing, expected.map(MissingVectors::NewRequests));
    }
}

#[test]
fn stored_facts_need_vectors_before_stored_requests() {
    let shared = audience("mira", None);
    let requests = vectors(&["known"]);
    let all = input(&shared, None, &requests);
    let without_facts = TimelineInput {
        embeds_facts: false,
        ..all
    };
    let foreign = KnownFact {
        foreign: true,
        ..known_fact(3, 10, "Anna", &[])
    };
    let facts = vec![
        known_fact(1, 10, "Anna", &[]),
        known_fact(2, 9, "Anna", &[]),
        foreign,
        known_fact(4, 11, "Anna", &VECTOR),
    ];
    let lacking = MissingVectors::Facts(vec![(facts[0].fact.id, facts[0].embedded_text())]);
    let requested = MissingVectors::StoredRequests(vec!["new".to_owned()]);
    let asked = rows(facts.clone(), vec![extraction(11, &["known", "new"])]);
    assert_eq!(all.missing_in_rows(&asked), Some(lacking), "only own facts since then");
    assert_eq!(without_facts.missing_in_rows(&asked), Some(requested));
    let known = rows(facts, vec![extraction(11, &["known"])]);
    assert_eq!(without_facts.missing_in_rows(&known), None);
}

#[test]
fn added_turn_asks_for_its_facts_first_and_then_for_its_requests() {
    let requests = vectors(&["forget it"]);
    let added = addition(
        vec![new_fact(1, 10, "Anna", &VECTOR), new_fact(2, 10, "Ben", &VECTOR)],
        &["forget it"],
    );
    for (memory, expected) in [
        (audience("mira", Some("p1")), vec!["anna", "ben", "*"]),
        (audience("mira", None), vec!["anna", "ben", "*", "player:p1"]),
    ] {
        let queries = input(&memory, Some(&added), &requests).addition_queries();
        assert_eq!(subjects(&queries), expected);
    }
    let narrator = addition(Vec::new(), &["forget it"]);
    let without_player = TurnAddition {
        extraction: Extraction {
            player: None,
            ..narrator.extraction.clone()
        },
        ..narrator
    };
    let shared = audience("mira", None);
    let queries = input(&shared, Some(&without_player), &requests).addition_queries();
    assert!(queries.is_empty(), "a request without a player means no fact");
}

#[test]
fn only_what_was_said_since_is_asked_again() {
    let shared = audience("mira", None);
    let private = audience("mira", Some("p1"));
    let requests = vectors(&["forget it"]);
    let foreign = KnownFact {
        foreign: true,
        ..known_fact(3, 12, "Cleo", &VECTOR)
    };
    let facts = vec![
        known_fact(1, 9, "Anna", &VECTOR),
        known_fact(2, 10, "Ben", &VECTOR),
        foreign,
    ];
    for (memory, facts, forget, expected) in [
        (&shared, vec![known_fact(1, 9, "Anna", &VECTOR)], NO_TEXTS, vec![]),
        (&shared, facts.clone(), NO_TEXTS, vec!["ben"]),
        (
            &shared,
            facts.clone(),
            &["forget it"][..],
            vec!["ben", "*", "player:p1"],
        ),
        (&private, facts, &["forget it"][..], vec!["ben", "*"]),
    ] {
        let input = input(memory, None, &requests);
        let said = extraction(11, forget);
        let turns = [input.to_spoken_turn(&said)];
        let rows = rows(facts, vec![said]);
        assert_eq!(subjects(&input.later_queries(&rows, &[], &turns)), expected);
    }
}

#[test]
fn new_fact_about_a_person_with_two_names_is_asked_by_both() {
    let shared = audience("mira", None);
    let requests = RequestVectors::new();
    let mut naming = known_fact(1, 5, "Tommy", &VECTOR);
    let statement = &mut naming.fact.statement;
    statement.predicate = canonical_predicate("is named".to_owned());
    statement.object = "Tom".to_owned();
    statement.speaker = "player:p1".to_owned();
    statement.tense = Tense::Present;
    let added = addition(
        vec![new_fact(2, 10, "Tom", &VECTOR), new_fact(3, 10, "Ben", &VECTOR)],
        &[],
    );
    let input = input(&shared, Some(&added), &requests);
    let new_facts = input.new_facts();
    let rows = rows(vec![naming], Vec::new());
    let asked = subjects(&input.later_queries(&rows, &new_facts, &[]));
    assert_eq!(asked.len(), 1, "{asked:?}");
    let keys: BTreeSet<&str> = asked[0].split(' ').collect();
    assert_eq!(keys, BTreeSet::from(["tom", "tommy"]));
}
