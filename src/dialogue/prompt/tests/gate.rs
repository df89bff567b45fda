//! The facts that a question about memory gets beside those that are on topic by themselves.

use super::*;

fn about(subject: &str, mut hit: RecallHit) -> RecallHit {
    let mut body = (**hit.body).clone();
    subject.clone_into(&mut body.subject);
    *hit.body = Arc::new(body);
    hit
}

fn used(case: &PromptCase) -> Vec<u128> {
    let prompt = case.assemble(&settings()).unwrap();
    let used = prompt.trace.candidates.iter().filter(|c| c.fate == CandidateFate::Used);
    used.map(|c| c.fact.as_u128()).collect()
}

/// A hit with this total that is near, but not near enough to be on topic.
fn near(id: u128, content: &str, total: f64) -> RecallHit {
    let mut near = hit(id, content, total, 0.0, usize::try_from(id).unwrap());
    near.score.relevance = 0.4;
    let calibration = Calibration {
        floor: 0.5,
        ..Calibration::IDENTITY
    };
    near.topic = TopicRelevance::from_score(&calibration, &RecallWeights::FOUR_FACTOR, &near.score, Some(0.5));
    near
}

#[test]
fn better_facts_are_not_dropped_for_worse_ones() {
    let mut case = PromptCase::of(Language::En, "How old is she, and what does she do?");
    case.gate = TopicGate::Asked;
    case.hits = vec![
        near(1, "first", 0.5),
        hit(2, "second", 0.45, 0.5, 2),
        near(3, "third", 0.43),
        near(4, "fourth", 0.42),
        near(5, "fifth", 0.41),
        hit(6, "sixth", 0.4, 0.5, 6),
        near(7, "seventh", 0.39),
    ];
    assert_eq!(used(&case), [1, 2, 3, 4, 6]);
    // A pinned fact has a place of its own.
    case.standing = vec![fact(3, FactKind::Preference, "third", true)];
    assert_eq!(used(&case), [1, 2, 4, 5, 6]);
    case.standing.clear();
    // Nothing better comes without a worse fact on topic.
    case.hits.retain(|hit| hit.body.id != FactId::from_u128(6));
    assert_eq!(used(&case), [1, 2]);
    case.hits.retain(|hit| hit.body.id != FactId::from_u128(2));
    assert_eq!(used(&case), [0_u128; 0], "a question without an answer");
    case.hits.push(hit(6, "sixth", 0.3, 0.3, 6));
    case.gate = TopicGate::Strict;
    assert_eq!(used(&case), [6], "small talk");
}

#[test]
fn facts_about_one_person_come_together() {
    let mut case = PromptCase::of(Language::En, "What does my sister do?");
    case.gate = TopicGate::Asked;
    case.hits = vec![
        about("player:p7's sister", hit(1, "She is a nurse.", 0.5, 0.3, 1)),
        about("Piet", near(2, "Piet is bald.", 0.3)),
        about("player", near(3, "The player sails.", 0.29)),
        about("player:p7's sister", near(4, "She is twenty-three.", 0.28)),
        about("player:p7", near(5, "The player rows.", 0.27)),
    ];
    assert_eq!(used(&case), [1, 4]);
    case.gate = TopicGate::Strict;
    assert_eq!(used(&case), [1]);
    // Facts about the NPC itself have nothing in common.
    case.gate = TopicGate::Asked;
    for hit in &mut case.hits {
        *hit = about("Mira", hit.clone());
    }
    assert_eq!(used(&case), [1]);
}
