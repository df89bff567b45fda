//! Sample facts with the structure of real embeddings: clustered vectors, a few words, an importance and a time.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::BTreeSet;

use chrono::{DateTime, Duration};
use colloquy::{
    ids::{FactId, NpcId},
    memory::{
        disclosure::audience::{Audience, Knower, Viewpoint},
        fact::Importance,
        keywords::TermWeights,
    },
    ports::vectors::IndexPoint,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

pub const DIMENSIONS: usize = 384;
const CLUSTERS: u64 = 200;

/// Returns a random unit vector, near `around` if given.
pub fn random_unit_vector(rng: &mut StdRng, around: Option<&[f32]>) -> Vec<f32> {
    let mut vector: Vec<f32> = (0..DIMENSIONS).map(|_| rng.random_range(-1.0..1.0)).collect();
    if let Some(centre) = around {
        let spread = 0.08;
        vector.iter_mut().zip(centre).for_each(|(x, c)| *x = *x * spread + c);
    }
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    for x in &mut vector {
        *x /= norm;
    }
    vector
}

/// Returns `count` facts that one NPC knows, numbered from `first`. Every call uses the same clusters.
pub fn clustered_points(npc: &NpcId, first: u32, count: u32, rng: &mut StdRng) -> Vec<IndexPoint> {
    let of_cluster = |n: u64| random_unit_vector(&mut StdRng::seed_from_u64(n), None);
    let centres: Vec<Vec<f32>> = (0..CLUSTERS).map(of_cluster).collect();
    let knowers: BTreeSet<_> = [Knower::Npc(npc.clone())].into();
    (first..first + count)
        .map(|n| {
            let centre = &centres[rng.random_range(0..centres.len())];
            let mut terms: Vec<(u64, f32)> = (0..16).map(|_| (rng.random_range(0..20_000), 1.0)).collect();
            terms.push((1_000_000, 0.2));
            terms.sort_unstable_by_key(|(term, _)| *term);
            terms.dedup_by_key(|(term, _)| *term);
            IndexPoint {
                fact: FactId::from_u128(u128::from(n) + 1),
                version: 1,
                world: "vale".parse().expect("a slug"),
                audience: Audience {
                    knowers: knowers.clone(),
                    private_to: None,
                },
                subject: "player:p1".to_owned(),
                importance: Importance::from_clamped(rng.random_range(1.0..10.0)),
                valid_at: DateTime::from_timestamp(1_750_000_000, 0).expect("in range") + Duration::minutes(n.into()),
                is_locked: false,
                embedding: random_unit_vector(rng, Some(centre)),
                terms: TermWeights(terms),
            }
        })
        .collect()
}

/// Returns the viewpoint of an NPC in conversation with a player.
pub fn bench_viewpoint(npc: &NpcId) -> Viewpoint {
    Viewpoint {
        world: "vale".parse().expect("a slug"),
        npc: npc.clone(),
        factions: Vec::new(),
        player: Some("p1".parse().expect("a player")),
        watchers: colloquy::memory::disclosure::audience::Watchers::default(),
        sees_all_players: false,
    }
}

/// Returns the words of a line: two rare words, and a word that every fact has.
pub fn sample_search_terms() -> TermWeights {
    TermWeights(vec![(17, 1.0), (4_242, 1.0), (1_000_000, 0.2)])
}

/// Returns the `best` facts nearest to a query by exact comparison with every fact.
pub fn exact_nearest(points: &[IndexPoint], query: &[f32], best: usize) -> BTreeSet<FactId> {
    let cosine = |v: &[f32]| v.iter().zip(query).map(|(a, b)| a * b).sum::<f32>();
    let mut all: Vec<(f32, FactId)> = points.iter().map(|p| (cosine(&p.embedding), p.fact)).collect();
    let by_cosine = |a: &(f32, FactId), b: &(f32, FactId)| b.0.total_cmp(&a.0);
    all.select_nth_unstable_by(best - 1, by_cosine);
    all[..best].iter().map(|(_, fact)| *fact).collect()
}
