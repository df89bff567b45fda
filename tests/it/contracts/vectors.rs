//! The contract of the index port. To add an adapter, add a line at the end.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use async_trait::async_trait;
use chrono::{DateTime, Duration, Utc};
use colloquy::{
    adapters::in_process::{
        counted_index::CountedFactIndex,
        fact_index::{FactIndexOptions, InProcessFactIndex},
    },
    ids::{FactId, PlayerId, WorldId},
    memory::{
        disclosure::audience::{Audience, Knower, Viewpoint},
        fact::Importance,
        keywords::{TermStatistics, TermWeights, bm25_score},
    },
    ports::{
        StoreResult,
        vectors::{
            Candidate, CandidateLimits, CandidateQuery, FactIndex, IndexPoint, MemoryScope, PointSource,
            SimilarFactsQuery,
        },
    },
    tenancy::TenantScope,
};

use super::qdrant::{RealServer, qdrant, run_on_real_server};

pub const DIMENSIONS: usize = 16;

/// A ledger with exactly the given points.
struct FixedPointSource(TenantScope, Vec<IndexPoint>);

#[async_trait]
impl PointSource for FixedPointSource {
    async fn points_of(&self, scope: &TenantScope, world: &WorldId, knower: &Knower) -> StoreResult<Vec<IndexPoint>> {
        let known = |point: &&IndexPoint| point.world == *world && point.audience.knowers.contains(knower);
        Ok(if *scope == self.0 {
            self.1.iter().filter(known).cloned().collect()
        } else {
            Vec::new()
        })
    }
}

pub fn scope(tenant: &str) -> TenantScope {
    TenantScope::new(tenant.parse().unwrap())
}

fn nth_day(n: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_750_000_000, 0).unwrap() + Duration::days(n)
}

/// Returns a unit vector that leans from axis `axis` towards axis 0 by `lean` in [0, 1].
pub fn vector_leaning_to(axis: usize, lean: f32) -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSIONS];
    vector[axis] += 1.0 - lean;
    vector[0] += lean;
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    for x in &mut vector {
        *x /= norm;
    }
    vector
}

pub fn audience(knowers: &[&str], private_to: Option<&str>) -> Audience {
    Audience {
        knowers: knowers
            .iter()
            .map(|key| Knower::parse(key).unwrap())
            .collect::<BTreeSet<_>>(),
        private_to: private_to.map(|player| player.parse().unwrap()),
    }
}

pub fn point(n: u128, audience: Audience, embedding: Vec<f32>) -> IndexPoint {
    IndexPoint {
        fact: FactId::from_u128(n),
        version: 1,
        world: "vale".parse().unwrap(),
        audience,
        subject: "player:p7".to_owned(),
        importance: Importance::DEFAULT,
        valid_at: nth_day(0),
        is_locked: false,
        embedding,
        terms: TermWeights(vec![(u64::try_from(n).unwrap(), 1.0)]),
    }
}

static VALE: LazyLock<WorldId> = LazyLock::new(|| "vale".parse().unwrap());

/// Returns a query for the ten nearest facts.
fn similar_to<'a>(audience: &'a Audience, embedding: &'a [f32], min_cosine: f32) -> SimilarFactsQuery<'a> {
    SimilarFactsQuery {
        world: &VALE,
        memories: MemoryScope::Of(audience),
        subjects: None,
        before: None,
        embedding,
        min_cosine,
        limit: 10,
    }
}

pub fn ergen_with(player: Option<&str>) -> Viewpoint {
    Viewpoint {
        world: "vale".parse().unwrap(),
        npc: "ergen".parse().unwrap(),
        factions: vec!["guild".parse().unwrap()],
        player: player.map(|id| id.parse::<PlayerId>().unwrap()),
        watchers: colloquy::memory::disclosure::audience::Watchers::default(),
        sees_all_players: false,
    }
}

const ONLY_DENSE: CandidateLimits = CandidateLimits {
    dense: 10,
    sparse: 0,
    important: 0,
    recent: 0,
};

async fn propose_candidates(
    index: &dyn FactIndex,
    viewpoint: &Viewpoint,
    embedding: Option<&[f32]>,
    terms: &TermWeights,
    limits: CandidateLimits,
) -> Vec<Candidate> {
    let proposal = CandidateQuery {
        viewpoint,
        embedding,
        terms,
        limits,
    };
    let mut found = index.propose_candidates(&scope("acme"), proposal).await.unwrap();
    found.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then(a.fact.cmp(&b.fact)));
    found
}

fn candidate_numbers(candidates: &[Candidate]) -> Vec<u128> {
    candidates.iter().map(|candidate| candidate.fact.as_u128()).collect()
}

async fn index_proposes_the_nearest_with_exact_cosines(index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>) {
    let ergen = || audience(&["npc:ergen"], None);
    let points = (1..=9u8)
        .map(|n| {
            point(
                n.into(),
                ergen(),
                vector_leaning_to(usize::from(n), f32::from(n) / 10.0),
            )
        })
        .collect::<Vec<_>>();
    let query = vector_leaning_to(0, 1.0);
    let expected: Vec<f32> = points.iter().map(|p| p.embedding[0]).collect();
    let index = index(points).await;
    let limits = CandidateLimits { dense: 4, ..ONLY_DENSE };
    let found = propose_candidates(
        &*index,
        &ergen_with(None),
        Some(&query),
        &TermWeights::default(),
        limits,
    )
    .await;
    assert_eq!(candidate_numbers(&found), [9, 8, 7, 6]);
    for candidate in found {
        let exact = expected[usize::try_from(candidate.fact.as_u128()).unwrap() - 1];
        assert!(
            (candidate.cosine - exact).abs() < 1e-3,
            "{candidate:?} should have cosine {exact}"
        );
    }
}

async fn candidate_sources_all_compete(index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>) {
    let ergen = || audience(&["npc:ergen"], None);
    let near = point(1, ergen(), vector_leaning_to(0, 1.0));
    let worded = point(2, ergen(), vector_leaning_to(1, 0.0));
    let mut vital = point(3, ergen(), vector_leaning_to(2, 0.0));
    vital.importance = Importance::new(10).unwrap();
    let mut fresh = point(4, ergen(), vector_leaning_to(3, 0.0));
    fresh.valid_at = nth_day(9);
    let plain = point(5, ergen(), vector_leaning_to(4, 0.0));
    let index = index(vec![near, worded, vital, fresh, plain]).await;
    let limits = CandidateLimits {
        dense: 1,
        sparse: 1,
        important: 1,
        recent: 1,
    };
    let query = vector_leaning_to(0, 1.0);
    let terms = TermWeights(vec![(2, 1.0)]);
    let mut found =
        candidate_numbers(&propose_candidates(&*index, &ergen_with(None), Some(&query), &terms, limits).await);
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3, 4]);
    // Without an embedding (the embedder is down), the other sources still run.
    let mut found = candidate_numbers(&propose_candidates(&*index, &ergen_with(None), None, &terms, limits).await);
    found.sort_unstable();
    assert_eq!(found, [2, 3, 4]);
}

/// An index may omit hints. Hints it returns equal the point's values to the bit.
async fn hints_equal_the_points(index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>) {
    let ergen = || audience(&["npc:ergen"], None);
    let weight = |n: u8| 0.1 + f32::from(n % 9) / 10.0;
    let mut points: Vec<IndexPoint> = (1..=60_u8)
        .map(|n| IndexPoint {
            version: u32::from(n % 4) + 1,
            importance: Importance::from_clamped(f64::from(n % 10) + 1.0),
            valid_at: nth_day(n.into()),
            // Some terms are in all points, some in a few, and some in a single point.
            terms: TermWeights(vec![
                (5, weight(n)),
                (6 + u64::from(n % 3), weight(n + 1)),
                (10 + u64::from(n), 0.7),
            ]),
            ..point(n.into(), ergen(), vector_leaning_to(1 + usize::from(n % 15), 0.3))
        })
        .collect();
    let index = index(points.clone()).await;
    // The first search fills an index that reads lazily. The later edits then change loaded data.
    propose_candidates(
        &*index,
        &ergen_with(None),
        None,
        &TermWeights::default(),
        CandidateLimits::default(),
    )
    .await;
    // The index must not confuse a removed point with its successor, nor an older version with a newer.
    let gone: Vec<FactId> = (0..20).map(|n| FactId::from_u128(n * 3)).collect();
    index.remove_points(&scope("acme"), &gone).await.unwrap();
    points.retain(|point| !gone.contains(&point.fact));
    points[0].version = 9;
    points[0].importance = Importance::from_clamped(10.0);
    points[0].terms = TermWeights(vec![(6, 0.3), (99, 0.9)]);
    index.upsert_points(&scope("acme"), &points[..1]).await.unwrap();
    for terms in [
        TermWeights(vec![(5, 0.4), (6, 1.0), (7, 0.9), (12, 0.3), (99, 0.8), (1_000, 1.0)]),
        TermWeights(vec![(5, 1.0)]),
        TermWeights::default(),
    ] {
        let query = vector_leaning_to(3, 0.3);
        let found = propose_candidates(
            &*index,
            &ergen_with(None),
            Some(&query),
            &terms,
            CandidateLimits::default(),
        )
        .await;
        assert!(found.len() > 30, "{}", found.len());
        for candidate in found {
            let Some(hint) = candidate.hint else { continue };
            let point = points.iter().find(|point| point.fact == candidate.fact).unwrap();
            let told = (hint.version, hint.importance, hint.valid_at);
            assert_eq!(told, (point.version, point.importance, point.valid_at));
            let keyword = bm25_score(&terms, &point.terms);
            assert_eq!(hint.keyword.to_bits(), keyword.to_bits(), "{terms:?} {point:?}");
        }
    }
}

async fn index_respects_the_viewpoint(index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>) {
    let vector = || vector_leaning_to(0, 1.0);
    let mut elsewhere = point(9, audience(&["npc:ergen"], None), vector());
    elsewhere.world = "other".parse().unwrap();
    let index = index(vec![
        point(1, audience(&["npc:ergen"], None), vector()),
        point(2, audience(&["npc:ergen"], Some("p1")), vector()),
        point(3, audience(&["npc:ergen"], Some("p2")), vector()),
        point(4, audience(&["faction:guild"], None), vector()),
        point(5, audience(&["world"], None), vector()),
        point(6, audience(&["npc:mira"], None), vector()),
        point(7, audience(&["faction:thieves"], None), vector()),
        point(8, audience(&["npc:ergen", "npc:mira"], Some("p1")), vector()),
        elsewhere,
    ])
    .await;
    let query = vector();
    let none = TermWeights::default();
    let seen = async |viewpoint: &Viewpoint| {
        let mut found = candidate_numbers(
            &propose_candidates(&*index, viewpoint, Some(&query), &none, CandidateLimits::default()).await,
        );
        found.sort_unstable();
        found
    };
    assert_eq!(seen(&ergen_with(Some("p1"))).await, [1, 2, 4, 5, 8]);
    assert_eq!(seen(&ergen_with(Some("p2"))).await, [1, 3, 4, 5]);
    assert_eq!(seen(&ergen_with(None)).await, [1, 4, 5]);
    let designer = Viewpoint {
        sees_all_players: true,
        ..ergen_with(None)
    };
    assert_eq!(seen(&designer).await, [1, 2, 3, 4, 5, 8]);
}

async fn foreign_tenant_finds_nothing(index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>) {
    let known = audience(&["npc:ergen"], None);
    let index = index(vec![point(1, known.clone(), vector_leaning_to(0, 1.0))]).await;
    let query = vector_leaning_to(0, 1.0);
    let viewpoint = ergen_with(None);
    let terms = TermWeights(vec![(1, 1.0)]);
    let proposal = || CandidateQuery {
        viewpoint: &viewpoint,
        embedding: Some(&query),
        terms: &terms,
        limits: CandidateLimits::default(),
    };
    assert_eq!(
        index
            .propose_candidates(&scope("acme"), proposal())
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(
        index
            .propose_candidates(&scope("rival"), proposal())
            .await
            .unwrap()
            .is_empty()
    );
    let with = similar_to(&known, &query, 0.0);
    assert!(index.find_similar(&scope("rival"), with).await.unwrap().is_empty());
    // A foreign tenant cannot remove points either.
    index
        .remove_points(&scope("rival"), &[FactId::from_u128(1)])
        .await
        .unwrap();
    index.clear_tenant(&scope("rival")).await.unwrap();
    assert_eq!(
        index
            .propose_candidates(&scope("acme"), proposal())
            .await
            .unwrap()
            .len(),
        1
    );
}

async fn similarity_search_compares_within_one_audience(index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>) {
    let private = audience(&["npc:ergen"], Some("p1"));
    let index = index(vec![
        point(1, private.clone(), vector_leaning_to(1, 0.9)),
        point(2, private.clone(), vector_leaning_to(1, 0.5)),
        point(3, private.clone(), vector_leaning_to(1, 0.0)),
        point(4, audience(&["npc:ergen"], None), vector_leaning_to(1, 0.9)),
        point(
            5,
            audience(&["npc:ergen", "npc:mira"], Some("p1")),
            vector_leaning_to(1, 0.9),
        ),
    ])
    .await;
    let query = vector_leaning_to(0, 1.0);
    let with = similar_to(&private, &query, 0.6);
    let found = index.find_similar(&scope("acme"), with).await.unwrap();
    assert_eq!(candidate_numbers(&found), [1, 2]);
    let found = index
        .find_similar(&scope("acme"), SimilarFactsQuery { limit: 1, ..with })
        .await
        .unwrap();
    assert_eq!(candidate_numbers(&found), [1]);
}

async fn similarity_search_finds_facts_known_beside_a_memory(
    index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>,
) {
    let private = audience(&["npc:ergen"], Some("p1"));
    let with_mira = audience(&["npc:ergen", "npc:mira"], None);
    let index = index(vec![
        point(1, private.clone(), vector_leaning_to(1, 0.9)),
        point(2, audience(&["npc:ergen"], None), vector_leaning_to(1, 0.8)),
        point(
            3,
            audience(&["npc:ergen", "npc:mira"], Some("p1")),
            vector_leaning_to(1, 0.7),
        ),
        point(4, audience(&["npc:ergen"], Some("p2")), vector_leaning_to(1, 0.9)),
        point(5, audience(&["npc:mira"], None), vector_leaning_to(1, 0.9)),
        point(6, audience(&["npc:ergen"], None), vector_leaning_to(1, 0.1)),
        point(7, with_mira.clone(), vector_leaning_to(1, 0.65)),
    ])
    .await;
    let query = vector_leaning_to(0, 1.0);
    let beside = async |of| {
        let memories = MemoryScope::Overlapping(of);
        let with = SimilarFactsQuery {
            memories,
            ..similar_to(of, &query, 0.6)
        };
        let mut found = candidate_numbers(&index.find_similar(&scope("acme"), with).await.unwrap());
        found.sort_unstable();
        found
    };
    assert_eq!(beside(&private).await, [2, 3, 7], "not its own, and no other player's");
    assert_eq!(
        beside(&with_mira).await,
        [1, 2, 3, 4, 5],
        "each once, whoever was told it alone"
    );
}

/// The result is right however many other points are nearer.
async fn similarity_search_compares_with_subjects_and_earlier_facts(
    index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>,
) {
    let of = |subject: &str, began: i64, n: u128, lean: f32| IndexPoint {
        subject: subject.to_owned(),
        valid_at: nth_day(began),
        ..point(n, audience(&["npc:ergen"], None), vector_leaning_to(1, lean))
    };
    let mut points: Vec<IndexPoint> = (1..=30).map(|n| of("player:p1", 1, n, 0.95)).collect();
    points.extend([
        of("player:p2", 1, 40, 0.7),
        of("player:p2", 2, 41, 0.8),
        of("player:p2", 3, 42, 0.9),
    ]);
    let index = index(points).await;
    let (query, known) = (vector_leaning_to(0, 1.0), audience(&["npc:ergen"], None));
    let with = similar_to(&known, &query, 0.6);
    let found = async |subjects: &[&str], before, limit| {
        let subjects: Vec<String> = subjects.iter().map(|subject| (*subject).to_owned()).collect();
        let with = SimilarFactsQuery {
            subjects: (!subjects.is_empty()).then_some(subjects.as_slice()),
            before,
            limit,
            ..with
        };
        candidate_numbers(&index.find_similar(&scope("acme"), with).await.unwrap())
    };
    assert_eq!(found(&["player:p2"], None, 2).await, [42, 41]);
    assert_eq!(found(&["player:p2"], Some(nth_day(3)), 2).await, [41, 40]);
    assert_eq!(
        found(&["player:p1", "player:p2", "player:p3"], None, 100).await.len(),
        33
    );
    assert_eq!(found(&["player:p3", "player:p2"], None, 2).await, [42, 41]);
    assert_eq!(found(&["player:p3"], None, 2).await, [0; 0]);
    assert_eq!(found(&[], Some(nth_day(1)), 2).await, [0; 0]);
    assert_eq!(found(&[], None, 100).await.len(), 33);
}

async fn upserts_and_removals_are_idempotent(index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>) {
    let known = || audience(&["npc:ergen"], None);
    let index = index(Vec::new()).await;
    let query = vector_leaning_to(0, 1.0);
    let none = TermWeights::default();
    let seen = async || propose_candidates(&*index, &ergen_with(None), Some(&query), &none, ONLY_DENSE).await;
    assert!(seen().await.is_empty());

    let acme = scope("acme");
    let first = point(1, known(), vector_leaning_to(1, 0.0));
    index
        .upsert_points(&acme, &[first.clone(), first.clone()])
        .await
        .unwrap();
    index.upsert_points(&acme, &[first]).await.unwrap();
    assert_eq!(seen().await.len(), 1);
    assert_eq!(index.count_points(&acme).await.unwrap(), 1);

    // A new vector and a new importance replace the old values.
    index
        .upsert_points(&acme, &[point(1, known(), vector_leaning_to(0, 1.0))])
        .await
        .unwrap();
    let found = seen().await;
    assert_eq!(found.len(), 1);
    assert!(found[0].cosine > 0.99);

    let fact = FactId::from_u128(1);
    index
        .remove_points(&acme, &[fact, fact, FactId::from_u128(77)])
        .await
        .unwrap();
    index.remove_points(&acme, &[fact]).await.unwrap();
    assert!(seen().await.is_empty());

    // After many removals, the remaining points are still found under the right ids.
    let many: Vec<_> = (1..=40u8)
        .map(|n| {
            point(
                n.into(),
                known(),
                vector_leaning_to(1 + usize::from(n % 8), 0.02 * f32::from(n)),
            )
        })
        .collect();
    index.upsert_points(&acme, &many).await.unwrap();
    let gone: Vec<_> = (1..=40u128).filter(|n| n % 4 != 0).map(FactId::from_u128).collect();
    index.remove_points(&acme, &gone).await.unwrap();
    assert_eq!(candidate_numbers(&seen().await), [40, 36, 32, 28, 24, 20, 16, 12, 8, 4]);
    let terms = TermWeights(vec![(16, 1.0), (17, 1.0)]);
    let limits = CandidateLimits {
        dense: 0,
        sparse: 5,
        important: 0,
        recent: 0,
    };
    assert_eq!(
        candidate_numbers(&propose_candidates(&*index, &ergen_with(None), None, &terms, limits).await),
        [16]
    );

    index.clear_tenant(&acme).await.unwrap();
    assert_eq!(index.count_points(&acme).await.unwrap(), 0);
}

/// After a change of the embedder, facts without a new vector come before and after other facts.
async fn points_without_a_vector_are_found_by_other_sources(
    index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>,
) {
    let ergen = || audience(&["npc:ergen"], None);
    let mut vital = point(3, ergen(), Vec::new());
    vital.importance = Importance::new(10).unwrap();
    let mut fresh = point(4, ergen(), Vec::new());
    fresh.valid_at = nth_day(9);
    let query = vector_leaning_to(0, 1.0);
    let index = index(vec![
        point(2, ergen(), Vec::new()),
        point(1, ergen(), vector_leaning_to(1, 0.5)),
        vital,
        fresh,
        point(5, ergen(), vec![1.0; DIMENSIONS + 1]),
    ])
    .await;
    let none = TermWeights::default();
    let near = propose_candidates(&*index, &ergen_with(None), Some(&query), &none, ONLY_DENSE).await;
    assert_eq!(candidate_numbers(&near), [1]);
    let limits = CandidateLimits {
        dense: 1,
        sparse: 2,
        important: 1,
        recent: 1,
    };
    let terms = TermWeights(vec![(2, 1.0), (5, 1.0)]);
    let found = propose_candidates(&*index, &ergen_with(None), Some(&query), &terms, limits).await;
    assert!(
        found
            .iter()
            .all(|candidate| candidate.fact.as_u128() == 1 || candidate.cosine == 0.0)
    );
    let mut found = candidate_numbers(&found);
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3, 4, 5]);
    let known = ergen();
    let similar = index
        .find_similar(&scope("acme"), similar_to(&known, &query, -1.0))
        .await
        .unwrap();
    assert_eq!(candidate_numbers(&similar), [1]);
}

/// Counts each fact that the viewpoint sees once, beside any other points of the index.
async fn words_are_counted_in_one_memory(index: impl AsyncFn(Vec<IndexPoint>) -> Arc<dyn FactIndex>) {
    let with = |n: u128, audience: Audience, terms: &[u64]| IndexPoint {
        terms: TermWeights(terms.iter().map(|term| (*term, 0.7)).collect()),
        ..point(n, audience, vector_leaning_to(1, 0.3))
    };
    let mut elsewhere = with(7, audience(&["npc:ergen"], None), &[5]);
    elsewhere.world = "other".parse().unwrap();
    let index = index(vec![
        with(1, audience(&["npc:ergen"], None), &[5, 6]),
        with(2, audience(&["npc:ergen"], Some("p1")), &[5]),
        with(3, audience(&["npc:ergen"], Some("p2")), &[5]),
        with(4, audience(&["npc:ergen", "faction:guild", "npc:mira"], None), &[5, 7]),
        with(5, audience(&["npc:mira"], None), &[5]),
        with(6, audience(&["world"], None), &[6]),
        // Words of facts with locks do not count.
        IndexPoint {
            is_locked: true,
            ..with(8, audience(&["npc:ergen"], None), &[5])
        },
        elsewhere,
    ])
    .await;
    let asked = TermWeights(vec![(5, 1.0), (6, 0.5), (7, 0.1), (8, 1.0)]);
    let counted = async |tenant: &str, player: Option<&str>| {
        index
            .term_statistics(&scope(tenant), &ergen_with(player), &asked)
            .await
            .unwrap()
    };
    let of = |facts, with_term: &[(u64, u64)]| TermStatistics {
        facts,
        with_term: with_term.iter().copied().collect(),
    };
    assert_eq!(counted("acme", Some("p1")).await, of(4, &[(5, 3), (6, 2), (7, 1)]));
    assert_eq!(counted("acme", None).await, of(3, &[(5, 2), (6, 2), (7, 1)]));
    assert_eq!(counted("rival", Some("p1")).await, of(0, &[]));
    // Counts ignore removed points and include new points, as after a fresh start.
    let gone = [FactId::from_u128(1), FactId::from_u128(99)];
    index.remove_points(&scope("acme"), &gone).await.unwrap();
    let changed = with(2, audience(&["npc:ergen"], Some("p1")), &[6]);
    index.upsert_points(&scope("acme"), &[changed]).await.unwrap();
    let now = counted("acme", Some("p1")).await;
    let listed: Vec<_> = now.with_term.into_iter().filter(|(_, facts)| *facts > 0).collect();
    assert_eq!((now.facts, listed), (3, vec![(5, 1), (6, 2), (7, 1)]));
}

/// Returns a Qdrant index with an in-process count of words beside it.
async fn counted(points: Vec<IndexPoint>) -> Arc<dyn FactIndex> {
    let source = Arc::new(FixedPointSource(scope("acme"), points.clone()));
    let words = InProcessFactIndex::new_term_counter(source, FactIndexOptions::default());
    Arc::new(CountedFactIndex::new(qdrant(points).await, Arc::new(words)))
}

async fn in_process(points: Vec<IndexPoint>) -> Arc<dyn FactIndex> {
    Arc::new(InProcessFactIndex::new(
        Arc::new(FixedPointSource(scope("acme"), points)),
        FactIndexOptions::default(),
    ))
}

/// Returns an in-process index with room for one partition, so that partitions are read again and again.
async fn in_process_without_room(points: Vec<IndexPoint>) -> Arc<dyn FactIndex> {
    let source = Arc::new(FixedPointSource(scope("acme"), points));
    Arc::new(InProcessFactIndex::new(source, FactIndexOptions { memory_bytes: 0 }))
}

macro_rules! contract {
    (real server: $($case:ident),+ $(,)?) => {
        mod real_qdrant {
            use super::RealServer;

            $(#[tokio::test]
            #[ignore = "needs a Qdrant in QDRANT_URL"]
            async fn $case() {
                super::run_on_real_server(stringify!($case), async |server: RealServer| {
                    super::$case(async |points| server.clone().filled(points).await).await;
                })
                .await;
            })+
        }
    };
    ($adapter:ident: $($case:ident),+ $(,)?) => {
        mod $adapter {
            $(#[tokio::test]
            async fn $case() {
                super::$case(super::$adapter).await;
            })+
        }
    };
}

contract!(in_process: index_proposes_the_nearest_with_exact_cosines, candidate_sources_all_compete, index_respects_the_viewpoint,
    hints_equal_the_points, foreign_tenant_finds_nothing, similarity_search_compares_within_one_audience, similarity_search_finds_facts_known_beside_a_memory,
    similarity_search_compares_with_subjects_and_earlier_facts, upserts_and_removals_are_idempotent,
    points_without_a_vector_are_found_by_other_sources, words_are_counted_in_one_memory);
contract!(counted: index_proposes_the_nearest_with_exact_cosines, index_respects_the_viewpoint, hints_equal_the_points,
    upserts_and_removals_are_idempotent, points_without_a_vector_are_found_by_other_sources, words_are_counted_in_one_memory);
contract!(in_process_without_room: index_proposes_the_nearest_with_exact_cosines, candidate_sources_all_compete, index_respects_the_viewpoint,
    foreign_tenant_finds_nothing, similarity_search_compares_within_one_audience, similarity_search_finds_facts_known_beside_a_memory,
    similarity_search_compares_with_subjects_and_earlier_facts, points_without_a_vector_are_found_by_other_sources);

contract!(qdrant: index_proposes_the_nearest_with_exact_cosines, candidate_sources_all_compete, index_respects_the_viewpoint,
    hints_equal_the_points, foreign_tenant_finds_nothing, similarity_search_compares_within_one_audience, similarity_search_finds_facts_known_beside_a_memory,
    similarity_search_compares_with_subjects_and_earlier_facts, upserts_and_removals_are_idempotent,
    points_without_a_vector_are_found_by_other_sources);
contract!(real server: index_proposes_the_nearest_with_exact_cosines, candidate_sources_all_compete, index_respects_the_viewpoint,
    hints_equal_the_points, foreign_tenant_finds_nothing, similarity_search_compares_within_one_audience, similarity_search_finds_facts_known_beside_a_memory,
    similarity_search_compares_with_subjects_and_earlier_facts, upserts_and_removals_are_idempotent,
    points_without_a_vector_are_found_by_other_sources);

/// A change that lands while a partition is being read must not be lost.
#[tokio::test]
async fn index_change_during_the_first_read_is_applied() {
    struct PausingPointSource {
        started: tokio::sync::Notify,
        go_on: tokio::sync::Notify,
        stale: IndexPoint,
    }
    #[async_trait]
    impl PointSource for PausingPointSource {
        async fn points_of(&self, _: &TenantScope, _: &WorldId, knower: &Knower) -> StoreResult<Vec<IndexPoint>> {
            if *knower != Knower::World {
                return Ok(Vec::new());
            }
            self.started.notify_one();
            self.go_on.notified().await;
            Ok(vec![self.stale.clone()])
        }
    }
    let known = audience(&["world"], None);
    let stale = point(1, known.clone(), vector_leaning_to(1, 0.0));
    let source = Arc::new(PausingPointSource {
        started: tokio::sync::Notify::new(),
        go_on: tokio::sync::Notify::new(),
        stale,
    });
    let index = Arc::new(InProcessFactIndex::new(source.clone(), FactIndexOptions::default()));
    let searching = tokio::spawn({
        let index = index.clone();
        async move {
            let query = vector_leaning_to(0, 1.0);
            candidate_numbers(
                &propose_candidates(
                    &*index,
                    &ergen_with(None),
                    Some(&query),
                    &TermWeights::default(),
                    ONLY_DENSE,
                )
                .await,
            )
        }
    });
    source.started.notified().await;
    index
        .remove_points(&scope("acme"), &[FactId::from_u128(1)])
        .await
        .unwrap();
    index
        .upsert_points(&scope("acme"), &[point(2, known, vector_leaning_to(0, 1.0))])
        .await
        .unwrap();
    source.go_on.notify_one();
    assert_eq!(searching.await.unwrap(), [2]);
}
