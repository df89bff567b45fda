//! The in-process index alone: candidates from 1,000 and 100,000 facts of one NPC, with clustered vectors of 384
//! dimensions. Reports how many of the exact best 30 facts are found. `million` covers larger sizes.

mod clustered;

use std::{hint::black_box, sync::Arc};

use async_trait::async_trait;
use colloquy::{
    adapters::in_process::fact_index::{FactIndexOptions, InProcessFactIndex},
    ids::{NpcId, WorldId},
    memory::disclosure::audience::Knower,
    ports::{
        StoreResult,
        vectors::{CandidateLimits, CandidateQuery, FactIndex, IndexPoint, PointSource},
    },
    tenancy::TenantScope,
};
use criterion::{Criterion, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use clustered::{bench_viewpoint, clustered_points, exact_nearest, random_unit_vector, sample_search_terms};

struct FixedPoints(Vec<IndexPoint>);

#[async_trait]
impl PointSource for FixedPoints {
    async fn points_of(&self, _: &TenantScope, _: &WorldId, knower: &Knower) -> StoreResult<Vec<IndexPoint>> {
        Ok(if matches!(knower, Knower::Npc(_)) {
            self.0.clone()
        } else {
            Vec::new()
        })
    }
}

fn bench_propose(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let scope = TenantScope::new("acme".parse().expect("a slug"));
    let npc: NpcId = "ergen".parse().expect("a slug");
    let viewpoint = bench_viewpoint(&npc);
    let terms = sample_search_terms();
    for count in [1_000, 100_000] {
        let mut rng = StdRng::seed_from_u64(7);
        let points = clustered_points(&npc, 0, count, &mut rng);
        let queries: Vec<Vec<f32>> = (0..64)
            .map(|_| {
                let near = points[rng.random_range(0..points.len())].embedding.clone();
                random_unit_vector(&mut rng, Some(&near))
            })
            .collect();
        let index = InProcessFactIndex::new(Arc::new(FixedPoints(points.clone())), FactIndexOptions::default());
        let ask = |query: &[f32], limits: CandidateLimits| {
            let proposal = CandidateQuery {
                viewpoint: &viewpoint,
                embedding: Some(query),
                terms: &terms,
                limits,
            };
            runtime
                .block_on(index.propose_candidates(&scope, proposal))
                .expect("an in-process search does not fail")
        };
        let dense = CandidateLimits {
            dense: 30,
            sparse: 0,
            important: 0,
            recent: 0,
        };
        let mut found = 0;
        for query in &queries {
            let best = exact_nearest(&points, query, 30);
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
                black_box(ask(&queries[next], CandidateLimits::default()))
            });
        });
    }
}

criterion_group!(benches, bench_propose);
criterion_main!(benches);
