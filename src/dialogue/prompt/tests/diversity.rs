//! Memories that resemble each other, and memories that do not.

use super::*;

#[test]
fn diversity_setting_of_a_world_prefers_different_memories() {
    let mut case = PromptCase::of(Language::En, "What do I like?");
    // The second hit resembles the first; the third does not.
    case.hits = vec![
        hit(1, "The player likes red grapes.", 0.9, 0.5, 0),
        hit(2, "The player likes green grapes.", 0.8, 0.5, 0),
        hit(3, "The player likes tea.", 0.6, 0.5, 1),
    ];
    let mut settings = settings();
    case.near_duplicate_cosine = 1.1;
    settings.recall.top_k = 2;
    let used = |case: &PromptCase, settings: &DialogueSettings| {
        let prompt = case.assemble(settings).unwrap();
        let used = prompt
            .trace
            .candidates
            .iter()
            .filter(|found| found.fate == CandidateFate::Used);
        used.map(|found| found.fact.as_u128()).collect::<Vec<_>>()
    };
    assert_eq!(used(&case, &settings), [1, 2]);
    settings.recall.diversity = 0.5;
    assert_eq!(used(&case, &settings), [1, 3]);
    case.world.settings.recall = Some(colloquy_memory::tiers::WorldRecall {
        diversity: Some(0.0),
        ..colloquy_memory::tiers::WorldRecall::default()
    });
    assert_eq!(used(&case, &settings), [1, 2], "the world's own goes before");
}
