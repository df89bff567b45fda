//! Benchmark of a million facts of one tenant. It measures the time to propose candidates and the share of the exact
//! best 30 facts among them. A share that is too low fails the run. There are two distributions: a hundred NPCs with
//! 10,000 facts each, and one NPC with all facts. The benchmark runs on the in-process index, and on Qdrant with its
//! default settings if `QDRANT_URL` is set. The in-process part takes about two minutes and 6 GiB of memory.
//!
//! `FACTS=100000` reduces the number of facts; `NPCS=10` changes the number of NPCs.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod clustered;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use colloquy::{
    adapters::{
        in_process::fact_index::{FactIndexOptions, InProcessFactIndex},
        qdrant::{QdrantFactIndex, QdrantOptions},
    },
    ids::{NpcId, WorldId},
    memory::disclosure::audience::Knower,
    ports::{
        StoreResult,
        clock::{Clock as _, SystemClock},
        vectors::{CandidateLimits, CandidateQuery, FactIndex, IndexPoint, PointSource, PrepareOutcome},
    },
    tenancy::TenantScope,
};
use qdrant_client::{Qdrant, qdrant::CollectionStatus};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use clustered::{
    DIMENSIONS, bench_viewpoint, clustered_points, exact_nearest, random_unit_vector, sample_search_terms,
};

const QUERY_COUNT: u32 = 200;
const BEST_COUNT: usize = 30;
/// The required share of the exact best facts, from 0 to 1.
const REQUIRED_RECALL: f64 = 0.98;
/// Seconds without work in Qdrant before its index counts as complete.
const CALM_SECONDS: u32 = 5;

/// The number of NPCs, and of facts that each knows.
struct FactDistribution {
    npcs: u32,
    each: u32,
}

impl FactDistribution {
    fn npc_id(&self, number: u32) -> NpcId {
        assert!(number < self.npcs);
        format!("npc-{number}").parse().expect("a slug")
    }
    /// Returns the same points on every call.
    fn npc_points(&self, number: u32) -> Vec<IndexPoint> {
        let mut rng = StdRng::seed_from_u64(number.into());
        clustered_points(&self.npc_id(number), number * self.each, self.each, &mut rng)
    }
}

#[async_trait]
impl PointSource for FactDistribution {
    async fn points_of(&self, _: &TenantScope, _: &WorldId, knower: &Knower) -> StoreResult<Vec<IndexPoint>> {
        let Knower::Npc(npc) = knower else {
            return Ok(Vec::new());
        };
        let number = (0..self.npcs).find(|number| self.npc_id(*number) == *npc);
        Ok(number.map(|number| self.npc_points(number)).unwrap_or_default())
    }
}

fn number_from_env(name: &str, default: u32) -> u32 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// Returns the found share of the exact best facts, from 0 to 1.
async fn measure_recall(name: &str, index: &dyn FactIndex, scope: &TenantScope, shape: &FactDistribution) -> f64 {
    let mut rng = StdRng::seed_from_u64(7);
    let terms = sample_search_terms();
    let (mut found, mut took) = (0, Vec::new());
    // NPCs are searched one after the other: the facts for the exact search are then built once per NPC.
    let mut asked: HashMap<u32, u32> = HashMap::new();
    for query in 0..QUERY_COUNT {
        *asked.entry(query % shape.npcs).or_default() += 1;
    }
    for (npc, queries) in asked {
        let (viewpoint, points) = (bench_viewpoint(&shape.npc_id(npc)), shape.npc_points(npc));
        let ask = async |query: &[f32], limits| {
            let proposal = CandidateQuery {
                viewpoint: &viewpoint,
                embedding: Some(query),
                terms: &terms,
                limits,
            };
            index.propose_candidates(scope, proposal).await.expect("it answers")
        };
        // The first search reads the NPC's partition and is not timed.
        ask(&points[0].embedding, CandidateLimits::default()).await;
        for _ in 0..queries {
            let near = points[rng.random_range(0..points.len())].embedding.clone();
            let query = random_unit_vector(&mut rng, Some(&near));
            let begun = SystemClock.monotonic_now();
            let proposed = ask(&query, CandidateLimits::default()).await;
            took.push((SystemClock.monotonic_now() - begun).as_secs_f64() * 1_000.0);
            let best = exact_nearest(&points, &query, BEST_COUNT);
            found += proposed
                .iter()
                .filter(|candidate| best.contains(&candidate.fact))
                .count();
        }
    }
    took.sort_unstable_by(f64::total_cmp);
    let wanted = QUERY_COUNT as usize * BEST_COUNT;
    let recall = f64::from(u32::try_from(found).unwrap()) / f64::from(u32::try_from(wanted).unwrap());
    println!(
        "{name}, {} NPCs with {} facts each: p50 {:.2} ms, p95 {:.2} ms; {found} of {wanted} exact best found ({recall:.4})",
        shape.npcs,
        shape.each,
        took[took.len() / 2],
        took[took.len() * 95 / 100],
    );
    recall
}

fn assert_enough(name: &str, shape: &FactDistribution, recall: f64) {
    let FactDistribution { npcs, each } = shape;
    assert!(
        recall >= REQUIRED_RECALL,
        "{name} finds {recall:.4} of the exact best of {npcs} NPCs with {each} facts each; {REQUIRED_RECALL} have to be found"
    );
}

/// The collections of this run in a shared Qdrant.
struct BenchCollections {
    client: Qdrant,
    /// The common prefix of the collection names.
    name: String,
}

impl BenchCollections {
    async fn collection_names(&self) -> Vec<String> {
        let all = self
            .client
            .list_collections()
            .await
            .expect("Qdrant answers")
            .collections;
        let prefix = format!("{}_", self.name);
        let names = all.into_iter().map(|collection| collection.name);
        names.filter(|name| name.starts_with(&prefix)).collect()
    }

    /// Waits until Qdrant has indexed the written points. Earlier searches would scan all points.
    async fn wait_until_indexed(&self) {
        let mut calm = 0;
        while calm < CALM_SECONDS {
            tokio::time::sleep(Duration::from_secs(1)).await;
            calm += 1;
            for name in self.collection_names().await {
                let info = self.client.collection_info(name).await.expect("Qdrant answers");
                if info.result.expect("it is there").status() != CollectionStatus::Green {
                    calm = 0;
                }
            }
        }
    }

    async fn drop_collections(self) {
        for name in self.collection_names().await {
            self.client.delete_collection(name).await.expect("it is dropped");
        }
    }
}

async fn measure_on_qdrant(url: String, scope: &TenantScope, shape: &FactDistribution) {
    let key = std::env::var("QDRANT_API_KEY").ok();
    let kept = BenchCollections {
        client: Qdrant::from_url(&url)
            .api_key(key.clone())
            .skip_compatibility_check()
            .build()
            .expect("an address"),
        name: format!("million-{}-{}", std::process::id(), shape.npcs),
    };
    let index = QdrantFactIndex::new(QdrantOptions {
        url,
        api_key: key.map(Into::into),
        collection: kept.name.clone(),
        timeout: Duration::from_secs(10),
        write_timeout: Duration::from_mins(10),
        embedding_model: "clustered".to_owned(),
        dimensions: DIMENSIONS,
    })
    .expect("an address");
    let prepared = index.prepare_index(true).await.expect("Qdrant answers");
    assert_eq!(prepared, PrepareOutcome::Empty, "{} is somebody else's", kept.name);
    for npc in 0..shape.npcs {
        for part in shape.npc_points(npc).chunks(1_000) {
            index.upsert_points(scope, part).await.expect("it is written");
        }
    }
    index.adopt_index().await.expect("it counts");
    kept.wait_until_indexed().await;
    let recall = measure_recall("Qdrant", &index, scope, shape).await;
    kept.drop_collections().await;
    assert_enough("Qdrant", shape, recall);
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let scope = TenantScope::new("acme".parse().expect("a slug"));
    let (facts, npcs) = (number_from_env("FACTS", 1_000_000), number_from_env("NPCS", 100));
    for npcs in [npcs, 1] {
        let shape = Arc::new(FactDistribution {
            npcs,
            each: facts / npcs,
        });
        let options = FactIndexOptions { memory_bytes: 8 << 30 };
        let index = InProcessFactIndex::new(shape.clone(), options);
        let recall = runtime.block_on(measure_recall("in process", &index, &scope, &shape));
        assert_enough("the index in process", &shape, recall);
        drop(index);
        if let Ok(url) = std::env::var("QDRANT_URL") {
            runtime.block_on(measure_on_qdrant(url, &scope, &shape));
        }
    }
}
