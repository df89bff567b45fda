//! The in-process index alone: proposing candidates from 1,000 and 100,000 facts of one NPC, on
//! clustered vectors of 384 dimensions, and how many of the exact best 30 it finds.

use std::{collections::BTreeSet, hint::black_box, sync::Arc};

use async_trait::async_trait;
use chrono::{DateTime, Duration};
use colloquy::{
    adapters::in_process::fact_index::{FactIndexOptions, InProcessFactIndex},
    ids::{FactId, WorldId},
    memory::{
        fact::{Audience, Importance, Knower, Viewpoint},
        keywords::TermWeights,
    },
    ports::{
        StoreResult,
        vectors::{FactIndex, IndexPoint, LegLimits, PointSource, Proposal},
    },
    tenancy::TenantScope,
};
use criterion::{Criterion, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng, rngs::StdRng};

const DIMENSIONS: usize = 384;

struct Points(Vec<IndexPoint>);

#[async_trait]
impl PointSource for Points {
    async fn points_of(&self, _: &TenantScope, _: &WorldId, knower: &Knower) -> StoreResult<Vec<IndexPoint>> {
        Ok(if matches!(knower, Knower::Npc(_)) {
            self.0.clone()
        } else {
            Vec::new()
        })
    }
}

fn unit(rng: &mut StdRng, around: Option<&[f32]>) -> Vec<f32> {
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

fn points(count: u32, rng: &mut StdRng) -> Vec<IndexPoint> {
    let centres: Vec<Vec<f32>> = (0..200).map(|_| unit(rng, None)).collect();
    let knowers: BTreeSet<_> = [Knower::Npc("ergen".parse().expect("a slug"))].into();
    (0_u32..count)
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
                importance: Importance::clamped(rng.random_range(1.0..10.0)),
                valid_at: DateTime::from_timestamp(1_750_000_000, 0).expect("in range") + Duration::minutes(n.into()),
                embedding: unit(rng, Some(centre)),
                terms: TermWeights(terms),
            }
        })
        .collect()
}

fn propose(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let scope = TenantScope::new("acme".parse().expect("a slug"));
    let viewpoint = Viewpoint {
        world: "vale".parse().expect("a slug"),
        npc: "ergen".parse().expect("a slug"),
        factions: Vec::new(),
        player: Some("p1".parse().expect("a player")),
        sees_all_players: false,
    };
    for count in [1_000, 100_000] {
        let mut rng = StdRng::seed_from_u64(7);
        let points = points(count, &mut rng);
        let queries: Vec<Vec<f32>> = (0..64)
            .map(|_| {
                let near = points[rng.random_range(0..points.len())].embedding.clone();
                unit(&mut rng, Some(&near))
            })
            .collect();
        let index = InProcessFactIndex::new(Arc::new(Points(points.clone())), FactIndexOptions::default());
        let ask = |query: &[f32], limits: LegLimits| {
            let terms = TermWeights(vec![(17, 1.0), (4_242, 1.0), (1_000_000, 0.2)]);
            runtime.block_on(async {
                let proposal = Proposal {
                    viewpoint: &viewpoint,
                    embedding: Some(query),
                    terms: &terms,
                    limits,
                };
                index
                    .propose(&scope, proposal)
                    .await
                    .expect("an in-process search does not fail")
            })
        };
        let dense = LegLimits {
            dense: 30,
            sparse: 0,
            important: 0,
            recent: 0,
        };
        let mut found = 0;
        for query in &queries {
            let cosine = |v: &[f32]| v.iter().zip(query).map(|(a, b)| a * b).sum::<f32>();
            let mut exact: Vec<(f32, FactId)> = points.iter().map(|p| (cosine(&p.embedding), p.fact)).collect();
            exact.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
            let best: BTreeSet<FactId> = exact[..30].iter().map(|(_, fact)| *fact).collect();
            found += ask(query, dense)
                .iter()
                .filter(|candidate| best.contains(&candidate.fact))
                .count();
        }
        println!("{count} facts: {found} of {} exact best found", queries.len() * 30);
        let mut next = 0;
        c.bench_function(&format!("propose/{count}"), |b| {
            b.iter(|| {
                next = (next + 1) % queries.len();
                black_box(ask(&queries[next], LegLimits::default()))
            });
        });
    }
}

criterion_group!(benches, propose);
criterion_main!(benches);
