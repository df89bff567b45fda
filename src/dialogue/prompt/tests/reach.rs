//! Facts that recall does not read cannot change a prompt.

use proptest::prelude::*;

use super::*;
use crate::recall::{NEAR_DUPLICATE_COSINE, is_enough};

/// The properties of a hit that matter for a prompt: text, direction, kind, pinned, and scores.
type HitParts = (u8, u8, bool, bool, f64, f64);

fn ranked(parts: &[HitParts]) -> Vec<RecallHit> {
    let mut hits: Vec<RecallHit> = (100..)
        .zip(parts)
        .map(|(id, &(text, axis, mutable, pinned, total, keyword))| {
            let mut hit = hit(
                id,
                &format!("The player saw place {text}."),
                total,
                keyword,
                axis.into(),
            );
            let body = Arc::make_mut(&mut hit.body);
            // Between two axes, so that similarity is not transitive.
            if axis % 2 == 1 {
                let neighbour = usize::from(axis / 2 * 2);
                let mut vector = vec![0.0; 64];
                vector[neighbour] = 0.97;
                vector[usize::from(axis)] = 0.243;
                body.embedding = Arc::from(vector);
            }
            body.view.pinned = pinned;
            if mutable {
                body.kind = FactKind::Goal;
            }
            hit
        })
        .collect();
    hits.sort_by(|a, b| b.score.total.total_cmp(&a.score.total));
    hits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn prompt_is_unchanged_by_candidates_behind_the_early_stop(
        parts in proptest::collection::vec(
            (0_u8..40, 0_u8..40, prop::bool::weighted(0.1), prop::bool::weighted(0.1), 0.0..1.0_f64, 0.0..1.0_f64),
            0..70,
        ),
        standing in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        gate in prop::sample::select(vec![TopicGate::Open, TopicGate::Asked, TopicGate::Strict]),
        top_k in 1_usize..9,
        diversity in prop::sample::select(vec![0.0, 0.4]),
    ) {
        let mut settings = settings();
        settings.recall.top_k = top_k;
        settings.recall.diversity = diversity;
        let mut case = PromptCase::of(Language::En, "What did I see?");
        case.gate = gate;
        case.hits = ranked(&parts);
        // Some of the facts that may have slots of their own are standing facts.
        let may_stand: Vec<&RecallHit> = case.hits.iter().filter(|hit| hit.body.view.pinned || hit.body.kind.is_mutable_state()).collect();
        let mut stands: Vec<&RecallHit> = if may_stand.is_empty() {
            Vec::new()
        } else {
            standing.iter().map(|at| *at.get(&may_stand)).collect()
        };
        stands.dedup_by_key(|hit| hit.body.id);
        case.standing = stands
            .iter()
            .map(|hit| fact(hit.body.id.as_u128(), hit.body.kind, &hit.body.view.content, hit.body.view.pinned))
            .collect();
        let whole = case.assemble(&settings).unwrap();
        let enough = (0..case.hits.len()).find(|&read| is_enough(&settings.recall, NEAR_DUPLICATE_COSINE, &case.hits[..read]));
        if let Some(read) = enough {
            case.hits.truncate(read);
            let cut = case.assemble(&settings).unwrap();
            prop_assert_eq!(cut.trace.prompt_hash, whole.trace.prompt_hash);
            prop_assert_eq!(cut.messages, whole.messages);
        }
    }
}

#[test]
fn early_stop_needs_many_different_hits_and_ignores_copies() {
    let settings = settings().recall;
    let of = |parts: &[HitParts]| is_enough(&settings, NEAR_DUPLICATE_COSINE, &ranked(parts));
    let different: Vec<HitParts> = (0..16).map(|n| (n, n * 2, false, false, 0.9, 0.9)).collect();
    assert!(of(&different));
    assert!(!of(&different[..15]));
    let copies = vec![(1, 0, false, false, 0.9, 0.9); 40];
    assert!(!of(&copies));
    for uncertain in [
        (7, 60, true, false, 0.9, 0.9),
        (7, 60, false, true, 0.9, 0.9),
        (7, 60, false, false, 0.01, 0.9),
        (7, 60, false, false, 0.9, 0.0),
    ] {
        let mut parts = different[..15].to_vec();
        parts.push(uncertain);
        assert!(!of(&parts), "{uncertain:?}");
    }
}
